//! The columns of the op table, and the queries that they answer.
//!
//! The rows themselves are in [`super::ops`]. A pass never lists ops; it asks a column.

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
use std::ops::RangeInclusive;
use std::sync::OnceLock;

/// One row: the whole declaration of an op.
pub struct Row {
    /// The op's name in graphs and in Rust.
    pub name: &'static str,
    /// The ATen schema.
    pub schema: Schema,
    /// Infers dtype, sizes and strides of the result.
    pub infer: fn(&Call<'_>) -> Result<TensorType>,
    /// What it computes.
    pub meaning: Meaning,
    /// How gradients of its operands follow from the gradient of its result.
    pub derivative: Derivative,
}

/// The schema of a row. Most follow from the arity.
pub enum Schema {
    /// `name(Tensor self) -> Tensor`
    Unary,
    /// `name[.overload](Tensor self, Tensor other) -> Tensor`
    Binary(&'static str),
    /// The whole text.
    Text(&'static str),
}

/// How operands are promoted, and the dtype of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Operands are promoted together; the result has that dtype.
    Promote,
    /// Like `Promote`; see [`Rule::scales`].
    Factor,
    /// Like `Promote`, and number arguments take part as plain numbers.
    PromoteNumbers,
    /// Like `Promote`, but bool is an error.
    PromoteNum,
    /// Like `Promote`, but bools become i64.
    PromoteCounting,
    /// Like `Promote`, but integers and bools become the default float.
    PromoteFloat,
    /// Like `Promote`, but integers and bools are errors.
    FloatOnly,
    /// Operands are promoted for a comparison; the result is bool.
    Compare,
    /// Like `Promote`, but floats are errors.
    Integral,
    /// Like `Promote`, but floats and bools are errors.
    Whole,
    /// Like `PromoteNum` if the argument `rounding_mode` is given, else like `PromoteFloat`; see [`Rule::scales`].
    Division,
    /// Each operand keeps its own dtype; the result is bool.
    Predicate,
    /// A bool condition, then operands that are promoted.
    Where,
    /// A value and a bool mask. The result has the dtype of the value.
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
    /// Greatest; a NaN propagates.
    Max,
    /// Least; a NaN propagates.
    Min,
    /// Logical or.
    Any,
    /// Logical and.
    All,
    /// Index of the first greatest, or of the first NaN.
    ArgMax,
    /// Index of the first least, or of the first NaN.
    ArgMin,
}

impl Combine {
    /// Whether the result is an index, and a value is compared with the best one so far.
    pub const fn is_index(self) -> bool {
        matches!(self, Combine::ArgMax | Combine::ArgMin)
    }

    /// How the result depends on the sign and payload of an element that is a NaN.
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

/// The layout of a view, from that of the operand.
pub type ViewRule = fn(&Layout, &[Attr]) -> Result<Layout>;

/// Layout and dtype of a window of memory, from those of the operand.
pub type WindowRule = fn(&Layout, DType, &[Attr]) -> Result<(Layout, DType)>;

/// Adds the decomposition of a call to a graph that has its operands.
pub type GraphFn = fn(&mut Graph, &[NodeId], &[Attr]) -> Result<NodeId>;

/// What an op computes.
pub enum Meaning {
    /// Pointwise: a scalar body on operands that the rule has promoted.
    Body(Rule, for<'r> fn(&[Sym<'r>], &[Attr]) -> Sym<'r>),
    /// A composition of other ops.
    Decompose(GraphFn),
    /// A reduction, whose arguments begin with those of `Fold`.
    Fold(Combine),
    /// The same elements under another layout.
    View(ViewRule),
    /// The operand's memory under another layout, and perhaps another dtype. Its elements depend on the layout of the
    /// operand, so the operand is never computed inside a kernel.
    Window(WindowRule),
    /// A (batched) matrix product.
    Product,
    /// Elements read by index.
    Gather(GatherKind),
    /// A concatenation of the operands.
    Concat,
    /// A row-major copy of operand 0, with operand 1 written over a window of it.
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
    /// Types of the tensor operands, without absent optional ones.
    pub args: &'a [&'a TensorType],
    /// The other arguments in schema order.
    pub attrs: &'a [Attr],
}

impl Call<'_> {
    /// The op's name for errors. The underscore of an internal op is dropped.
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

    /// Whether it reads its first operand at indices from its second one.
    pub fn is_gather(self) -> bool {
        matches!(self.row().meaning, Meaning::Gather(_))
    }

    /// Whether a call with a result of this dtype may find a value that it refuses: an index out of range, a divisor of
    /// 0, a singular matrix.
    pub fn checks_values(self, dtype: DType) -> bool {
        match &self.row().meaning {
            Meaning::Gather(_) | Meaning::Routine(Routine::Scatter(_) | Routine::FlatIndex) => true,
            Meaning::Routine(Routine::Matrix(work)) => work.may_fail(),
            // It adds rows by index.
            Meaning::Decompose(_) => self == Op::EmbeddingDenseBackward,
            _others => !dtype.is_float() && matches!(self, Op::FloorDivide | Op::Remainder | Op::Fmod | Op::DivMode),
        }
    }

    /// Whether its result shares the memory of its operand.
    pub fn is_view(self) -> bool {
        matches!(self.row().meaning, Meaning::View(_) | Meaning::Window(_))
    }

    /// Whether it shows the memory of its operand, and not its elements.
    pub fn is_window(self) -> bool {
        matches!(self.row().meaning, Meaning::Window(_))
    }

    /// Its fusion pattern for operands and a result of these types.
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
            // Fusion never sees a composite op, because decomposition comes first.
            Meaning::Window(_) | Meaning::Decompose(_) | Meaning::Routine(_) => Pattern::Opaque,
        }
    }

    /// The type of the result.
    ///
    /// # Errors
    /// If the op does not take these operands or arguments.
    pub fn infer(self, args: &[&TensorType], attrs: &[Attr]) -> Result<TensorType> {
        let call = Call { op: self, args, attrs };
        let arity = self.arity();
        if !arity.contains(&args.len()) {
            let (least, most, found) = (arity.start(), arity.end(), args.len());
            let expected = match (least == most, *most == usize::MAX) {
                (true, _) => format!("{least}"),
                (false, true) => format!("{least} or more"),
                (false, false) => format!("{least} to {most}"),
            };
            return Err(Error::argument(call.name(), format!("takes {expected} tensors, but {found} were given")));
        }
        let asked = attrs.iter().filter_map(|attr| if let Attr::DType(dtype) = attr { Some(*dtype) } else { None });
        if let Some(dtype) = args.iter().map(|arg| arg.dtype).chain(asked).find(|dtype| dtype.is_complex()) {
            // Calls on complex tensors come as calls on pairs of real numbers.
            let hint = "convert an operand with to_dtype first, or call it on real(), imag() or view_as_real()";
            return Err(Error::unsupported(call.name(), dtype, "real dtypes", hint));
        }
        (self.row().infer)(&call)
    }

    /// How many tensor operands it takes, by its schema: optional ones may be left out, and a list is any number.
    pub fn arity(self) -> RangeInclusive<usize> {
        static ARITIES: OnceLock<Vec<RangeInclusive<usize>>> = OnceLock::new();
        ARITIES.get_or_init(|| Op::ALL.iter().map(|op| arity_of(&op.schema())).collect())[self as usize].clone()
    }

    /// The scalar body of a pointwise op on operands of these types. It converts operands to the dtype of the
    /// computation, and rounds the result to the dtype of the result.
    ///
    /// # Errors
    /// If the op is not pointwise, or does not take these dtypes.
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

/// `value` of dtype `from`, converted and rounded to dtype `to`.
fn convert(value: Sym<'_>, from: DType, to: DType) -> Sym<'_> {
    // Small integers wrap after the conversion to i32, so 300.0 as u8 is 44.
    let wide = value.to(to.compute());
    // A 16-bit float is held as the f32 that it widens to.
    let is_same_kind = from.category() == to.category() && (!from.is_float() || from.compute() == to.compute());
    // Not `rounded`, which skips values that only move bits: these may be wider than `to`.
    match to.rounding() {
        Some(prim) if !(is_same_kind && from.promote(to) == to) => wide.prim(prim, &[]),
        Some(_) | None => wide,
    }
}

/// The dtypes of the computation of a pointwise op.
pub struct Compute {
    /// The dtype that operands are converted to. `None` keeps the dtype of each.
    operands: Option<DType>,
    /// The operand that is a mask and not converted, if any.
    mask: Option<usize>,
    /// The dtype of the result.
    pub result: DType,
}

impl Compute {
    /// The dtype that an operand is converted to. `None` keeps its dtype.
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

    /// Whether a call on these operands is arithmetic of plain numbers, whose result is a plain number.
    pub fn keeps_numbers(self, args: &[&TensorType]) -> bool {
        let is_copy = matches!(self, Rule::Cast | Rule::Destination | Rule::Masked);
        !is_copy && !args.is_empty() && args.iter().all(|arg| arg.number)
    }

    /// Whether the second operand scales the first. The computation with 16-bit floats is in f32, so a 0-dim scale is
    /// not rounded to 16 bits. So `x * 0.1` uses 0.1 in f32, and a factor beyond the range of f16 is no infinity.
    pub const fn scales(self) -> bool {
        matches!(self, Rule::Factor | Rule::Division)
    }

    /// The dtypes of the computation of a call under this rule.
    ///
    /// # Errors
    /// If the rule does not take the dtypes of the operands.
    pub fn compute(self, op: &str, args: &[&TensorType], attrs: &[Attr]) -> Result<Compute> {
        let none = || Error::argument(op, "needs at least one tensor");
        let promoted = |skip: Option<usize>| {
            let operands = args.iter().enumerate().filter(|(index, _)| Some(*index) != skip);
            let scalars = attrs.iter().filter_map(|attr| attr.scalar()).filter(|_| self == Rule::PromoteNumbers);
            let scalars = scalars.map(|scalar| TensorType::number(scalar.dtype()).promote_operand());
            if self.keeps_numbers(args) {
                // Plain numbers among themselves are i64 and f64, as Rust's are.
                let dtypes = operands.map(|(_, arg)| arg.promote_operand()).chain(scalars).map(|operand| operand.dtype);
                return dtypes.reduce(DType::promote).ok_or_else(none);
            }
            super::dtype::promote_all(operands.map(|(_, arg)| arg.promote_operand()).chain(scalars)).ok_or_else(none)
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
            Rule::Division if op == Op::DivMode.name() && DivMode::read(attrs).rounding_mode.is_some() => {
                numbers(promoted(None)?)
            }
            Rule::PromoteFloat | Rule::Division => {
                let dtype = promoted(None)?;
                let default = if self.keeps_numbers(args) { DType::F64 } else { DType::DEFAULT_FLOAT };
                plain(if dtype.is_float() { dtype } else { default })
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

/// How many tensors a call of this schema takes.
fn arity_of(schema: &str) -> RangeInclusive<usize> {
    let arguments =
        schema.split_once('(').and_then(|(_, rest)| rest.rsplit_once(") ->")).map_or("", |(inner, _)| inner);
    let (mut least, mut most) = (0usize, 0usize);
    for argument in arguments.split(", ").filter(|argument| argument.starts_with("Tensor")) {
        let ty = argument.split_once(' ').map_or(argument, |(ty, _)| ty);
        match ty {
            _ if ty.ends_with(']') => most = usize::MAX,
            _ if ty.ends_with('?') => most = most.saturating_add(1),
            _ => (least, most) = (least + 1, most.saturating_add(1)),
        }
    }
    least..=most
}
