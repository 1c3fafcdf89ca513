//! What a row of the op table says, and the questions it answers.
//!
//! The rows themselves are in [`super::ops`]. A pass that asks "is it one of these ops?" asks a column here instead.

use super::attr::Attr;
use super::attrs::{Attributes, DivMode, ToCopy};
use super::autodiff::Derivative;
use super::dtype::DType;
use super::graph::{Graph, NodeId};
use super::op::Op;
use super::pattern::Pattern;
use super::routine::Routine;
use super::scalar::{Body, NanPayload, Recorder, Sym};
use super::shape::Layout;
use super::types::TensorType;
use crate::error::{Error, Result};
use smallvec::SmallVec;

/// One row: everything there is to know about an op.
pub struct Row {
    /// The op's name in graphs and in Rust.
    pub name: &'static str,
    /// How the ATen schema is made.
    pub schema: Schema,
    /// Dtype and shape of the result.
    pub infer: fn(&Call<'_>) -> Result<TensorType>,
    /// What it computes.
    pub meaning: Meaning,
    /// How gradients of its operands follow from the gradient of its result.
    pub derivative: Derivative,
}

/// The schema of a row; most follow from the arity.
pub enum Schema {
    /// `name(Tensor self) -> Tensor`
    Unary,
    /// `name[.overload](Tensor self, Tensor other) -> Tensor`
    Binary(&'static str),
    /// The whole text.
    Text(&'static str),
}

/// How operands are promoted and what dtype comes out. The names are those of the coverage list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Operands are promoted together; the result has that dtype.
    Promote,
    /// As `Promote`; see [`Rule::scales`].
    Factor,
    /// As `Promote`, and number arguments take part as plain numbers.
    PromoteNumbers,
    /// As `Promote`, but bool is refused.
    PromoteNum,
    /// As `Promote`, but bools are counted: they become i64.
    PromoteCounting,
    /// As `Promote`, and integers and bools are raised to the default float.
    PromoteFloat,
    /// As `Promote`, but integers and bools are refused.
    FloatOnly,
    /// Operands are promoted for a comparison; the result is bool.
    Compare,
    /// As `Promote`, but floats are refused.
    Integral,
    /// As `Promote`, but floats and bools are refused.
    Whole,
    /// As `PromoteFloat`, or as `PromoteNum` where a word argument says how the quotient is rounded; see [`Rule::scales`].
    Division,
    /// Each operand in its own dtype; the result is bool.
    Predicate,
    /// A bool condition, then operands that are promoted.
    Where,
    /// A value and a bool mask: dtype of the value.
    Masked,
    /// The dtype argument decides.
    Cast,
    /// The dtype of the first operand, to which the others are converted.
    Destination,
}

/// How a reduction combines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Combine {
    /// Sum, from 0.
    Sum,
    /// Product, from 1.
    Prod,
    /// Greatest, NaN winning.
    Max,
    /// Least, NaN winning.
    Min,
    /// Logical or.
    Any,
    /// Logical and.
    All,
    /// Index of the first greatest, the first NaN winning.
    ArgMax,
    /// Index of the first least, the first NaN winning.
    ArgMin,
}

impl Combine {
    /// What becomes of the sign and payload of an element that is a NaN.
    pub const fn payload(self) -> NanPayload {
        match self {
            Combine::Max | Combine::Min => NanPayload::Moved,
            Combine::Sum | Combine::Prod | Combine::Any | Combine::All => NanPayload::Hidden,
            Combine::ArgMax | Combine::ArgMin => NanPayload::Hidden,
        }
    }
}

/// How a gather finds its source element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GatherKind {
    /// One index vector along one dimension: `index_select`.
    Select,
    /// One index per result element: `gather`.
    Elementwise,
    /// Rows of a table: `embedding`.
    Rows,
}

/// From the layout of the operand to that of a view of it.
pub type ViewRule = fn(&Layout, &[Attr]) -> Result<Layout>;

/// From layout and dtype of the operand to those of a window of its memory.
pub type WindowRule = fn(&Layout, DType, &[Attr]) -> Result<(Layout, DType)>;

/// Adds the nodes of an op's parts to a graph, on operands that are there already.
pub type GraphFn = fn(&mut Graph, &[NodeId], &[Attr]) -> Result<NodeId>;

/// What an op computes.
pub enum Meaning {
    /// Element by element: a scalar body on operands that were promoted by the rule.
    Body(Rule, for<'r> fn(&[Sym<'r>], &[Attr]) -> Sym<'r>),
    /// Other ops.
    Decompose(GraphFn),
    /// A reduction, whose arguments begin as those of [`Fold`](super::attrs::Fold).
    Fold(Combine),
    /// The same elements under another layout.
    View(ViewRule),
    /// The operand's memory under another layout, and perhaps another dtype. What the elements are depends on how the
    /// operand lies in memory, so the operand is never computed inside a kernel.
    Window(WindowRule),
    /// A (batched) matrix product.
    Product,
    /// Elements found by index.
    Gather(GatherKind),
    /// Operands side by side.
    Concat,
    /// Operand 0, row-major, with operand 1 put over a window of it.
    Overlay,
    /// Every element is the argument `fill_value`.
    Fill,
    /// `start + i * step`.
    Range,
    /// A procedure on whole arrays.
    Routine(Routine),
}

/// One call of an op, for inference: operand types and arguments.
pub struct Call<'a> {
    /// The op.
    pub op: Op,
    /// Types of the tensor operands, absent optional ones left out.
    pub args: &'a [&'a TensorType],
    /// The other arguments in schema order.
    pub attrs: &'a [Attr],
}

impl Call<'_> {
    /// The op's name, for errors: that of an op which users do not call themselves is told without its underscore.
    pub fn name(&self) -> &'static str {
        self.op.row().name.trim_start_matches('_')
    }
}

impl Op {
    /// The op's name in graphs and in Rust.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The ATen schema.
    pub fn schema(self) -> String {
        let name = self.row().name;
        match self.row().schema {
            Schema::Unary => format!("{name}(Tensor self) -> Tensor"),
            Schema::Binary("") => format!("{name}(Tensor self, Tensor other) -> Tensor"),
            Schema::Binary(overload) => format!("{name}.{overload}(Tensor self, Tensor other) -> Tensor"),
            Schema::Text(text) => text.to_string(),
        }
    }

    /// Whether its first operand is read at indices that its second one holds.
    pub fn is_gather(self) -> bool {
        matches!(self.row().meaning, Meaning::Gather(_))
    }

    /// Whether its result shares the memory of its operand.
    pub fn is_view(self) -> bool {
        matches!(self.row().meaning, Meaning::View(_) | Meaning::Window(_))
    }

    /// How it may be fused.
    pub fn pattern(self, args: &[&TensorType], out: &TensorType) -> Pattern {
        match self.row().meaning {
            Meaning::Body(..) | Meaning::Fill => {
                if args.iter().all(|arg| arg.sizes == out.sizes) {
                    Pattern::Elemwise
                } else {
                    Pattern::Broadcast
                }
            }
            Meaning::Fold(_) => Pattern::Reduce,
            Meaning::Product => Pattern::OutEwise,
            Meaning::View(_) | Meaning::Gather(_) | Meaning::Concat | Meaning::Overlay | Meaning::Range => {
                Pattern::Injective
            }
            // A decomposition is never seen by the fuser: it comes first.
            Meaning::Window(_) | Meaning::Decompose(_) | Meaning::Routine(_) => Pattern::Opaque,
        }
    }

    /// Type of the result, or what is wrong with the call.
    pub fn infer(self, args: &[&TensorType], attrs: &[Attr]) -> Result<TensorType> {
        (self.row().infer)(&Call { op: self, args, attrs })
    }

    /// The scalar body of a pointwise op on operands of these types: operands are converted to the computation
    /// dtype, and the result is brought to what a store of the result's dtype keeps.
    pub fn body(self, args: &[&TensorType], attrs: &[Attr]) -> Result<Body> {
        let Meaning::Body(rule, body) = self.row().meaning else {
            return Err(Error::invalid("body", format!("{} is not pointwise", self.name())));
        };
        let recorder = Recorder::new();
        let compute = rule.compute(self.name(), args, attrs)?;
        let operands: SmallVec<[Sym<'_>; 4]> = args
            .iter()
            .zip(0u32..)
            .map(|(arg, index)| {
                let value = recorder.arg(index, arg.dtype.compute());
                let is_scale = rule.scales() && index == 1 && arg.sizes.is_empty();
                match compute.of_operand(index as usize) {
                    Some(dtype) if is_scale && dtype.is_float() => value.to(dtype.compute()),
                    Some(dtype) if dtype != arg.dtype => convert(value, arg.dtype, dtype),
                    Some(_) | None => value,
                }
            })
            .collect();
        let out = compute.result;
        let value = body(&operands, attrs);
        let value = if value.ty() == out.compute() { value } else { value.to(out.compute()) };
        let value = value.rounded(out);
        Ok(recorder.finish(&[value]))
    }
}

/// `value` of dtype `from` as what a store of dtype `to` would keep.
fn convert(value: Sym<'_>, from: DType, to: DType) -> Sym<'_> {
    // Small integers are wrapped from the wide conversion, so that 300.0 as u8 is 44.
    let wide = value.to(to.compute());
    // A 16-bit float is held as the f32 that it widens to.
    let held = from.category() == to.category() && (!from.is_float() || from.compute() == to.compute());
    // Not `rounded`: what only moves bits still has more of them than `to`.
    match to.rounding() {
        Some(prim) if !(held && from.promote(to) == to) => wide.prim(prim, &[]),
        Some(_) | None => wide,
    }
}

/// The dtypes a pointwise op works in.
pub struct Compute {
    /// What operands are converted to; `None` leaves each as it is.
    operands: Option<DType>,
    /// The operand that is not converted (a mask), if any.
    mask: Option<usize>,
    /// The dtype of the result.
    pub result: DType,
}

impl Compute {
    /// What an operand is converted to; `None` leaves it as it is.
    pub fn of_operand(&self, index: usize) -> Option<DType> {
        if self.mask == Some(index) { None } else { self.operands }
    }
}

impl Rule {
    /// The operand that is a condition, if any.
    pub const fn mask(self) -> Option<usize> {
        match self {
            Rule::Where => Some(0),
            Rule::Masked => Some(1),
            Rule::Promote
            | Rule::Factor
            | Rule::PromoteNumbers
            | Rule::PromoteNum
            | Rule::PromoteCounting
            | Rule::PromoteFloat
            | Rule::FloatOnly
            | Rule::Compare
            | Rule::Integral
            | Rule::Whole
            | Rule::Division
            | Rule::Predicate
            | Rule::Cast
            | Rule::Destination => None,
        }
    }

    /// Whether the second operand scales the first. Without dims it keeps its digits where that is of 16-bit floats, which are computed
    /// in f32 anyway: `x * 0.1` is not `x` times the tenth of 16 bits, and a factor beyond f16 is no infinity.
    pub const fn scales(self) -> bool {
        matches!(self, Rule::Factor | Rule::Division)
    }

    /// The dtypes of a call under this rule.
    pub fn compute(self, op: &str, args: &[&TensorType], attrs: &[Attr]) -> Result<Compute> {
        let promoted = |skip: Option<usize>| {
            let operands = args.iter().enumerate().filter(|(index, _)| Some(*index) != skip);
            let scalars = attrs.iter().filter_map(|attr| attr.scalar()).filter(|_| self == Rule::PromoteNumbers);
            let scalars = scalars.map(|scalar| TensorType::number(scalar.dtype()).promote_operand());
            super::dtype::promote_all(operands.map(|(_, arg)| arg.promote_operand()).chain(scalars))
                .ok_or_else(|| Error::argument(op, "needs at least one tensor"))
        };
        let refuse = |found: DType, expected: &str, hint: &str| -> Result<Compute> {
            Err(Error::unsupported(op, found, expected, hint))
        };
        let need_bool = |index: usize| match args[index].dtype {
            DType::Bool => Ok(()),
            found => Err(Error::dtype(op, found, "bool", "compare first to make a condition")),
        };
        let plain = |dtype: DType| Ok(Compute { operands: Some(dtype), mask: None, result: dtype });
        let numbers = |dtype: DType| match dtype {
            DType::Bool => refuse(DType::Bool, "a number", "use logical ops on bools, or convert first"),
            dtype => plain(dtype),
        };
        match self {
            Rule::Promote | Rule::Factor | Rule::PromoteNumbers => plain(promoted(None)?),
            Rule::PromoteNum => numbers(promoted(None)?),
            Rule::PromoteCounting => match promoted(None)? {
                DType::Bool => plain(DType::I64),
                dtype => plain(dtype),
            },
            Rule::Division if DivMode::read(attrs).rounding_mode.is_some() => numbers(promoted(None)?),
            Rule::PromoteFloat | Rule::Division => {
                let dtype = promoted(None)?;
                plain(if dtype.is_float() { dtype } else { DType::DEFAULT_FLOAT })
            }
            Rule::Whole => match promoted(None)? {
                found if found.is_float() || found == DType::Bool => {
                    refuse(found, "an integer dtype", "bits are moved in integers only; convert first")
                }
                dtype => plain(dtype),
            },
            Rule::Destination => plain(args[0].dtype),
            Rule::FloatOnly => match promoted(None)? {
                dtype if dtype.is_float() => plain(dtype),
                found => refuse(found, "a floating dtype", "convert with to_dtype(DType::F32) first"),
            },
            Rule::Integral => match promoted(None)? {
                found if found.is_float() => {
                    refuse(found, "an integer dtype or bool", "bitwise ops have no meaning on floats")
                }
                dtype => plain(dtype),
            },
            Rule::Compare => Ok(Compute { operands: Some(promoted(None)?), mask: None, result: DType::Bool }),
            Rule::Predicate => Ok(Compute { operands: None, mask: None, result: DType::Bool }),
            Rule::Where => {
                need_bool(0)?;
                let dtype = promoted(Some(0))?;
                Ok(Compute { operands: Some(dtype), mask: Some(0), result: dtype })
            }
            Rule::Masked => {
                need_bool(1)?;
                Ok(Compute { operands: Some(args[0].dtype), mask: Some(1), result: args[0].dtype })
            }
            Rule::Cast => plain(ToCopy::read(attrs).dtype.unwrap_or(args[0].dtype)),
        }
    }
}
