//! Expressions: handles to the nodes of a graph that is being built.
//!
//! A gradient formula reads like mathematics because [`Expr`] is a plain copyable value with operators. The [`Builder`]
//! keeps the first error of inference. Nodes that are added after an error are meaningless; [`Builder::finish`] returns
//! the error. Every method adds one call of one row of the op table, so a formula consists of ops that have
//! derivatives.

use crate::error::{Error, Result};
use crate::ir::attr::{Attrs, MemoryFormat};
use crate::ir::attrs::{self, ints};
use crate::ir::dtype::DType;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::Op;
use crate::ir::scalar::Scalar;
use crate::ir::shape::{Sizes, contiguous_strides, numel};
use crate::ir::types::TensorType;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A graph that is built through shared references.
#[derive(Debug, Default)]
pub struct Builder {
    graph: RefCell<Graph>,
    error: RefCell<Option<Error>>,
}

impl Builder {
    /// An empty graph.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Adds a decomposition that is written over expressions: `build` gets expressions for the nodes `args`.
    ///
    /// # Errors
    /// The first error of inference. The graph then has unused nodes.
    pub fn extend(
        graph: &mut Graph,
        args: &[NodeId],
        build: impl for<'g> FnOnce(&[Expr<'g>]) -> Expr<'g>,
    ) -> Result<NodeId> {
        let builder = Builder { graph: RefCell::new(std::mem::take(graph)), error: RefCell::default() };
        let args: SmallVec<[Expr<'_>; 4]> = args.iter().map(|&node| builder.expr(node)).collect();
        let node = build(&args).node;
        *graph = builder.graph.take();
        builder.error.take().map_or(Ok(node), Err)
    }

    /// The next input.
    pub fn input(&self, ty: TensorType) -> Expr<'_> {
        Expr { builder: self, node: self.graph.borrow_mut().input(ty) }
    }

    /// A plain number.
    pub fn number(&self, value: impl Into<Scalar>) -> Expr<'_> {
        Expr { builder: self, node: self.graph.borrow_mut().number(value.into()) }
    }

    /// A count that follows from sizes, as a plain number.
    pub fn extent(&self, count: usize) -> Expr<'_> {
        Expr { builder: self, node: self.graph.borrow_mut().extent(count) }
    }

    /// A tensor of one value.
    pub fn full(&self, sizes: &[usize], value: impl Into<Scalar>, dtype: DType) -> Expr<'_> {
        let attrs = attrs::Full { size: ints(sizes), fill_value: value.into(), dtype: Some(dtype) };
        self.make(|graph| graph.add(Op::Full, &[], attrs.into()))
    }

    /// The whole numbers `start..start + count`, as i64.
    pub fn range(&self, start: i64, count: usize) -> Expr<'_> {
        let end = start.saturating_add(count as i64);
        let [start, end, step] = [start, end, 1].map(Scalar::Int);
        let attrs = attrs::Arange { start, end, step, dtype: Some(DType::I64) };
        self.make(|graph| graph.add(Op::Arange, &[], attrs.into()))
    }

    /// The node that `make` adds.
    pub fn make(&self, make: impl FnOnce(&mut Graph) -> Result<NodeId>) -> Expr<'_> {
        let made = make(&mut self.graph.borrow_mut());
        let node = made.unwrap_or_else(|error| self.refused(error));
        Expr { builder: self, node }
    }

    /// Keeps the error if it is the first, and returns a placeholder node.
    fn refused(&self, error: Error) -> NodeId {
        self.error.borrow_mut().get_or_insert(error);
        self.graph.borrow_mut().number(Scalar::Int(0))
    }

    /// The expression of a node that is already there.
    pub fn expr(&self, node: NodeId) -> Expr<'_> {
        Expr { builder: self, node }
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.graph.borrow().len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the graph so far.
    pub fn read<R>(&self, read: impl FnOnce(&Graph) -> R) -> R {
        read(&self.graph.borrow())
    }

    /// Whether there was an error. Nodes that are added from here on are meaningless.
    pub fn failed(&self) -> bool {
        self.error.borrow().is_some()
    }

    /// Takes the graph out.
    ///
    /// # Errors
    /// The first error of inference.
    pub fn finish(&self) -> Result<Graph> {
        let graph = self.graph.take();
        self.error.take().map_or(Ok(graph), Err)
    }
}

/// A value of the graph that is being built.
#[derive(Clone, Copy)]
pub struct Expr<'g> {
    builder: &'g Builder,
    node: NodeId,
}

impl fmt::Debug for Expr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.ty())
    }
}

/// The right operand of an operator: an expression or a number.
pub trait Term<'g> {
    /// The expression in the graph of `like`.
    fn expr(self, like: Expr<'g>) -> Expr<'g>;
}

impl<'g> Term<'g> for Expr<'g> {
    fn expr(self, _: Expr<'g>) -> Expr<'g> {
        self
    }
}

impl<'g> Term<'g> for f64 {
    fn expr(self, like: Expr<'g>) -> Expr<'g> {
        like.builder.number(self)
    }
}

impl<'g> Term<'g> for Scalar {
    fn expr(self, like: Expr<'g>) -> Expr<'g> {
        like.builder.number(self)
    }
}

macro_rules! regular_expressions {
    (
        unary { $($(#[$udoc:meta])* $Unary:ident $uname:ident $uwrite:ident $urule:ident |$ux:ident| $ubody:expr; $ud:tt;)* }
        binary { $($(#[$bdoc:meta])* $Binary:ident $bname:ident $bwrite:ident $boverload:literal $brule:ident |$ba:ident, $bb:ident| $bbody:expr; $bd:tt;)* }
        other { $($(#[$odoc:meta])* $Other:ident $(: $Shared:ident)? $({ $($field:tt)* })? = $row:expr;)* }
    ) => {
        /// The regular rows of the op table.
        #[allow(clippy::should_implement_trait, reason = "methods are named after the ops they add")]
        impl<'g> Expr<'g> {
            $(
                $(#[$udoc])*
                pub fn $uname(self) -> Expr<'g> {
                    self.call(Op::$Unary, &[], Attrs::new())
                }
            )*
            $(
                $(#[$bdoc])*
                pub fn $bname(self, other: impl Term<'g>) -> Expr<'g> {
                    self.call(Op::$Binary, &[other.expr(self)], Attrs::new())
                }
            )*
        }
    };
}

crate::for_each_op!(regular_expressions);

impl<'g> Expr<'g> {
    /// The builder it belongs to.
    pub fn builder(self) -> &'g Builder {
        self.builder
    }

    /// Its node.
    pub fn node(self) -> NodeId {
        self.node
    }

    /// Its type.
    pub fn ty(self) -> TensorType {
        self.builder.graph.borrow()[self.node].ty.clone()
    }

    /// Its element type.
    pub fn dtype(self) -> DType {
        self.builder.graph.borrow()[self.node].ty.dtype
    }

    /// Its sizes.
    pub fn sizes(self) -> Sizes {
        self.ty().sizes
    }

    /// The number of its dims.
    pub fn rank(self) -> usize {
        self.builder.graph.borrow()[self.node].ty.rank()
    }

    /// The call of `op` with this as first operand.
    pub fn call(self, op: Op, rest: &[Expr<'g>], attrs: Attrs) -> Expr<'g> {
        let args: SmallVec<[NodeId; 4]> = std::iter::once(self.node).chain(rest.iter().map(|arg| arg.node)).collect();
        let made = self.builder.graph.borrow_mut().add(op, &args, attrs);
        // After an error the operand is the placeholder, because callers go on to ask for dims.
        let node = made.unwrap_or_else(|error| {
            self.builder.error.borrow_mut().get_or_insert(error);
            self.node
        });
        Expr { node, ..self }
    }

    /// Raised to a power.
    pub fn pow(self, exponent: impl Term<'g>) -> Expr<'g> {
        self.call(Op::Pow, &[exponent.expr(self)], Attrs::new())
    }

    /// Raised to a power that is a number.
    pub fn pow_scalar(self, exponent: f64) -> Expr<'g> {
        self.call(Op::PowScalar, &[], attrs::PowScalar { exponent: exponent.into() }.into())
    }

    /// The derivative of order `order` of the digamma function.
    pub fn polygamma(self, order: i64) -> Expr<'g> {
        self.call(Op::Polygamma, &[], attrs::Polygamma { n: order }.into())
    }

    /// `yes` where this mask holds, else `no`.
    pub fn then(self, yes: impl Term<'g>, no: impl Term<'g>) -> Expr<'g> {
        self.call(Op::Where, &[yes.expr(self), no.expr(self)], Attrs::new())
    }

    /// `value` where the mask holds, else the element.
    pub fn masked_fill(self, mask: Expr<'g>, value: impl Into<Scalar>) -> Expr<'g> {
        self.call(Op::MaskedFill, &[mask], attrs::Value { value: value.into() }.into())
    }

    /// Times a number argument. A factor of 1 adds no node.
    pub fn scaled(self, factor: Scalar) -> Expr<'g> {
        if factor.as_f64() == 1.0 { self } else { self.mul(factor) }
    }

    /// Converted to a dtype, or itself if it has that dtype.
    pub fn to(self, dtype: DType) -> Expr<'g> {
        if self.dtype() == dtype { self } else { self.call(Op::ToCopy, &[], attrs::Cast { dtype: Some(dtype) }.into()) }
    }

    /// Converted to the dtype of its computation: f32 for 16-bit floats.
    pub fn wide(self) -> Expr<'g> {
        self.to(self.dtype().widened())
    }

    /// With exactly the row-major strides, even for dims of size 1.
    pub fn contiguous(self) -> Expr<'g> {
        let TensorType { sizes, strides, .. } = self.ty();
        if strides == contiguous_strides(&sizes) {
            return self;
        }
        self.call(Op::Clone, &[], attrs::Ordered { memory_format: MemoryFormat::Contiguous }.into())
    }

    /// Zeros of its sizes and dtype.
    pub fn zeros(self) -> Expr<'g> {
        let TensorType { dtype, sizes, .. } = self.ty();
        self.builder.full(&sizes, Scalar::Int(0), dtype)
    }

    /// Whether it is one value, whatever the operands are.
    pub fn is_full(self) -> bool {
        self.builder.read(|graph| graph[self.node].op() == Some(Op::Full))
    }

    /// The same value as one that is computed from `gradient`, of which it takes no element. Zero is a gradient, too:
    /// what follows depends on whether it arrives, so a backward pass must not take it for none.
    #[must_use]
    pub fn arriving_with(self, gradient: Expr<'g>) -> Expr<'g> {
        let TensorType { dtype, sizes, .. } = self.ty();
        let first = if gradient.rank() == 0 { gradient.reshape(&[1]) } else { gradient };
        let nothing = attrs::Slice { dim: 0, start: Some(0), end: Some(0), step: 1 };
        let none = first.call(Op::Slice, &[], nothing.into()).reshape(&[0]).to(dtype);
        let all = self.reshape(&[numel(&sizes)]);
        none.call(Op::Cat, &[all], attrs::Along { dim: 0 }.into()).reshape(&sizes)
    }

    /// The sum over dims. No dims mean no sum.
    pub fn sum(self, dims: &[usize], keepdim: bool) -> Expr<'g> {
        if dims.is_empty() {
            return self;
        }
        self.call(Op::Sum, &[], attrs::FoldTo { dim: ints(dims), keepdim, dtype: None }.into())
    }

    /// The product over dims, which stay with size 1. No dims mean no product.
    pub fn prod(self, dims: &[usize]) -> Expr<'g> {
        if dims.is_empty() {
            return self;
        }
        self.call(Op::Prod, &[], attrs::FoldTo { dim: ints(dims), keepdim: true, dtype: None }.into())
    }

    /// The transpose of broadcasting: sums over the dims that `sizes` lacks or has with size 1.
    pub fn sum_to(self, sizes: &[usize]) -> Expr<'g> {
        let own = self.sizes();
        if own[..] == *sizes {
            return self;
        }
        let lead = own.len().saturating_sub(sizes.len());
        let repeated = |&dim: &usize| dim < lead || (sizes[dim - lead] == 1 && own[dim] != 1);
        let dims: SmallVec<[usize; 6]> = (0..own.len()).filter(repeated).collect();
        if dims.len() == lead {
            return self.sum(&dims, false);
        }
        let leading: SmallVec<[usize; 6]> = (0..lead).collect();
        self.sum(&dims, true).squeeze(&leading)
    }

    /// Expanded to `sizes`.
    pub fn expand(self, sizes: &[usize]) -> Expr<'g> {
        if self.sizes()[..] == *sizes {
            return self;
        }
        self.call(Op::Expand, &[], attrs::Expand { size: ints(sizes), implicit: false }.into())
    }

    /// Reshaped. This is a view if strides allow it, else a copy.
    pub fn reshape(self, sizes: &[usize]) -> Expr<'g> {
        if self.sizes()[..] == *sizes {
            return self;
        }
        self.contiguous().call(Op::View, &[], attrs::Shape { size: ints(sizes) }.into())
    }

    /// Without the given dims, which have size 1. No dims mean no change.
    pub fn squeeze(self, dims: &[usize]) -> Expr<'g> {
        if dims.is_empty() { self } else { self.call(Op::Squeeze, &[], attrs::DimList { dim: ints(dims) }.into()) }
    }

    /// With a new dim of size 1.
    pub fn unsqueeze(self, dim: usize) -> Expr<'g> {
        self.call(Op::Unsqueeze, &[], attrs::Along { dim: dim as i64 }.into())
    }

    /// With dims in another order.
    pub fn permute(self, dims: &[usize]) -> Expr<'g> {
        self.call(Op::Permute, &[], attrs::Dims { dims: ints(dims) }.into())
    }

    /// With the last two dims swapped.
    pub fn transposed(self) -> Expr<'g> {
        self.call(Op::Transpose, &[], attrs::Transpose { dim0: -2, dim1: -1 }.into())
    }

    /// Whether the columns of its matrices are contiguous, and not the rows.
    pub fn is_column_major(self) -> bool {
        let ty = self.ty();
        let Some(first) = ty.rank().checked_sub(2) else { return false };
        let (sizes, strides) = (&ty.sizes[first..], &ty.strides[first..]);
        sizes.iter().all(|&size| size > 1) && strides[0] == 1 && strides[1] >= sizes[0]
    }

    /// The matrix product of 2-d operands, or the batched one of 3-d operands.
    pub fn matmul(self, other: Expr<'g>) -> Expr<'g> {
        self.call(if self.rank() == 2 { Op::Mm } else { Op::Bmm }, &[other], Attrs::new())
    }
}

macro_rules! operators {
    ($($Trait:ident $method:ident $op:expr, $attrs:expr;)*) => {
        $(
            impl<'g, T: Term<'g>> $Trait<T> for Expr<'g> {
                type Output = Expr<'g>;
                fn $method(self, other: T) -> Expr<'g> {
                    self.call($op, &[other.expr(self)], $attrs)
                }
            }

            impl<'g> $Trait<Expr<'g>> for f64 {
                type Output = Expr<'g>;
                fn $method(self, other: Expr<'g>) -> Expr<'g> {
                    self.expr(other).call($op, &[other], $attrs)
                }
            }
        )*
    };
}

operators! {
    Add add Op::Add, attrs::Add { alpha: Scalar::Int(1) }.into();
    Sub sub Op::Sub, attrs::Add { alpha: Scalar::Int(1) }.into();
    Mul mul Op::Mul, Attrs::new();
    Div div Op::Div, Attrs::new();
}

impl<'g> Neg for Expr<'g> {
    type Output = Expr<'g>;
    fn neg(self) -> Expr<'g> {
        self.call(Op::Neg, &[], Attrs::new())
    }
}
