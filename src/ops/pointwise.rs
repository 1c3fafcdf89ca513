//! Element-wise arithmetic, powers, selection and limits: operators with arguments, overloads with numbers in place of
//! tensors, and composites.
//!
//! Operators that are one row without arguments, such as `mul` and `exp`, get their methods from the op table. The
//! parts of a composite give its dtype and memory order. Operators that PyTorch computes in several steps round after
//! the same steps.

use crate::dispatch::Kernel;
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::{Add, Addcmul, Clamp, LerpScalar, Logit, Polygamma, PowScalar, RoundDecimals, Value};
use crate::ir::row::Schema;
use crate::ir::{Attr, Attrs, DType, Op, Scalar};
use crate::ops::composite::Composite;
use crate::ops::in_place::{in_place_methods, row_methods};
use crate::ops::mutation::call_in_place;
use crate::ops::rust_operators::Operand;
use crate::ops::written_forms;
use crate::tensor::handle::Tensor;
use std::borrow::Cow;

static CLAMP: Composite =
    Composite::new("clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor").with_writes();
static CLAMP_MIN: Composite = Composite::new("clamp_min(Tensor self, Scalar min) -> Tensor").with_writes();
static CLAMP_MAX: Composite = Composite::new("clamp_max(Tensor self, Scalar max) -> Tensor").with_writes();
static CLAMP_MIN_TENSOR: Composite =
    Composite::new("clamp_min.Tensor(Tensor self, Tensor min) -> Tensor").with_writes();
static CLAMP_MAX_TENSOR: Composite =
    Composite::new("clamp_max.Tensor(Tensor self, Tensor max) -> Tensor").with_writes();
static FLOAT_POWER: Composite =
    Composite::new("float_power.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor").with_writes_as("Tensor");
static FLOAT_POWER_BY_NUMBER: Composite =
    Composite::new("float_power.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor").with_writes_as("Scalar");
static NAN_TO_NUM: Composite =
    Composite::new("nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor")
        .with_writes();
static ADD_NUMBER: Composite =
    Composite::new("add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor").with_writes();
static SUB_NUMBER: Composite =
    Composite::new("sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor").with_writes();
static DIV_NUMBER_ROUNDED: Composite =
    Composite::new("div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor").with_writes();
static FLOOR_DIVIDE_NUMBER: Composite =
    Composite::new("floor_divide.Scalar(Tensor self, Scalar other) -> Tensor").with_writes();

/// A bound of [`Tensor::clamp`]: a number, a tensor, or none.
pub struct Bound<'a>(Option<Operand<'a>>);

impl<'a, T: Into<Operand<'a>>> From<T> for Bound<'a> {
    fn from(bound: T) -> Self {
        Bound(Some(bound.into()))
    }
}

// The only one for `Option`, so that the type of a plain `None` is known.
impl From<Option<Scalar>> for Bound<'_> {
    fn from(bound: Option<Scalar>) -> Self {
        Bound(bound.map(Operand::Number))
    }
}

/// Two bounds. ATen has an operator for numbers and one for tensors.
enum Bounds<'a, 'b> {
    Numbers(Clamp),
    Tensors(Option<Cow<'a, Tensor>>, Option<Cow<'b, Tensor>>),
}

impl<'a, 'b> Bounds<'a, 'b> {
    fn of(Bound(min): Bound<'a>, Bound(max): Bound<'b>) -> Result<Bounds<'a, 'b>> {
        let number = |bound: &Option<Operand<'_>>| match bound {
            None => Some(None),
            Some(Operand::Number(number)) => Some(Some(*number)),
            Some(Operand::Ref(_) | Operand::Owned(_) | Operand::Failed(_)) => None,
        };
        if let (Some(min), Some(max)) = (number(&min), number(&max)) {
            return Ok(Bounds::Numbers(Clamp { min, max }));
        }
        Ok(Bounds::Tensors(min.map(Operand::tensor).transpose()?, max.map(Operand::tensor).transpose()?))
    }
}

/// Element-wise operators with arguments.
impl Tensor {
    /// The derivative of order `n` of the digamma function. Integers become the default float. Sizes are kept.
    ///
    /// # Errors
    /// If `n` is not from 0 to 30.
    #[track_caller]
    pub fn polygamma(&self, n: i64) -> Result<Tensor> {
        call(Op::Polygamma, &[self], &Attrs::from(Polygamma { n }))
    }

    row_methods! {
        /// `self + other`, and logical or for bools. Sizes are broadcast, dtypes promoted.
        ///
        /// # Errors
        /// If the sizes do not broadcast.
        add add_<'a>(other: impl Into<Operand<'a>>)
            |x, call| call(Op::Add, &[x, &*other.into().tensor()?], &Attrs::from(Add { alpha: Scalar::Int(1) }));

        /// `self + alpha * other`. Sizes are broadcast, dtypes promoted. `alpha` is converted to the common dtype.
        ///
        /// # Errors
        /// If the sizes do not broadcast.
        add_scaled add_scaled_<'a>(other: impl Into<Operand<'a>>, alpha: impl Into<Scalar>)
            |x, call| call(Op::Add, &[x, &*other.into().tensor()?], &Attrs::from(Add { alpha: alpha.into() }));

        /// `self - other`. Sizes are broadcast, dtypes promoted.
        ///
        /// # Errors
        /// If the sizes do not broadcast, or if both operands are bools.
        sub sub_<'a>(other: impl Into<Operand<'a>>)
            |x, call| call(Op::Sub, &[x, &*other.into().tensor()?], &Attrs::from(Add { alpha: Scalar::Int(1) }));

        /// `self - alpha * other`; see [`Tensor::add_scaled`].
        ///
        /// # Errors
        /// If the sizes do not broadcast, or if both operands are bools.
        sub_scaled sub_scaled_<'a>(other: impl Into<Operand<'a>>, alpha: impl Into<Scalar>)
            |x, call| call(Op::Sub, &[x, &*other.into().tensor()?], &Attrs::from(Add { alpha: alpha.into() }));

        /// Each element to the power of `exponent`, a number or a tensor. Sizes are broadcast, dtypes promoted. An
        /// integer to a negative power of a tensor is truncated to an integer.
        ///
        /// # Errors
        /// If both dtypes are bool, if an integer is raised to a negative number, or if the sizes do not broadcast.
        pow pow_<'a>(exponent: impl Into<Operand<'a>>) |x, call| match exponent.into() {
            Operand::Number(exponent) => call(Op::PowScalar, &[x], &Attrs::from(PowScalar { exponent })),
            exponent => call(Op::Pow, &[x, &*exponent.tensor()?], &[]),
        };

        /// The quotient, rounded by `rounding_mode`: `floor` or `trunc`. Sizes are broadcast, dtypes promoted. Integers
        /// are divided exactly.
        ///
        /// # Errors
        /// If `rounding_mode` is another word, if both dtypes are bool, or if the sizes do not broadcast. If an integer
        /// is divided by zero.
        // The word comes from the user. Inference rejects one that it does not know.
        div_rounded div_rounded_<'a>(other: impl Into<Operand<'a>>, rounding_mode: &str)
            |x, call| call(Op::DivMode, &[x, &*other.into().tensor()?], &[Attr::Str(rounding_mode.into())]);

        /// Linear interpolation: `self + weight * (end - self)`. `weight` is a number or a tensor. Sizes are broadcast.
        ///
        /// # Errors
        /// If the dtypes differ or are not floating, or if the sizes do not broadcast.
        lerp lerp_<'a>(end: &Tensor, weight: impl Into<Operand<'a>>) |x, call| match weight.into() {
            Operand::Number(weight) => call(Op::LerpScalar, &[x, end], &Attrs::from(LerpScalar { weight })),
            weight => call(Op::Lerp, &[x, end, &*weight.tensor()?], &[]),
        };

        /// `self + value * a * b`. Sizes are broadcast, dtypes promoted.
        ///
        /// # Errors
        /// If the dtype is bool, if `value` is fractional and the dtype an integer, or if the sizes do not broadcast.
        addcmul addcmul_(a: &Tensor, b: &Tensor, value: impl Into<Scalar>)
            |x, call| call(Op::Addcmul, &[x, a, b], &Attrs::from(Addcmul { value: value.into() }));

        /// `self + value * a / b`. Sizes are broadcast, dtypes promoted.
        ///
        /// # Errors
        /// If the promoted dtype is not floating, or if the sizes do not broadcast.
        addcdiv addcdiv_(a: &Tensor, b: &Tensor, value: impl Into<Scalar>)
            |x, call| call(Op::Addcdiv, &[x, a, b], &Attrs::from(Addcmul { value: value.into() }));

        /// Heaviside step function: 0 for negative elements, 1 for positive ones, and the element of `values` for 0.
        /// Sizes are broadcast. The dtype is kept.
        ///
        /// # Errors
        /// If the dtypes differ, or if the sizes do not broadcast.
        heaviside heaviside_(values: &Tensor) |x, call| call(Op::Heaviside, &[x, values], &[]);

        /// Logit: `log(x / (1 - x))`. With `eps`, elements are clamped to `eps..=1 - eps` first. Sizes are kept.
        /// Integers become the default floating dtype.
        ///
        /// # Errors
        /// If there is not enough memory.
        logit logit_(eps: Option<f64>) |x, call| call(Op::Logit, &[x], &Attrs::from(Logit { eps }));

        /// Rounds to multiples of `10^-decimals`, with ties to even. Sizes and dtype are kept.
        ///
        /// # Errors
        /// If the dtype is bool.
        round_decimals round_decimals_(decimals: i64)
            |x, call| call(Op::RoundDecimals, &[x], &Attrs::from(RoundDecimals { decimals }));
    }

    /// A tensor filled with one number, with the dtype, sizes and memory order of `self`.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn fill(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        call(Op::FillScalar, &[self], &Attrs::from(Value { value: value.into() }))
    }

    /// `a` where `self`, a bool condition, is true, and `b` elsewhere. All sizes are broadcast, the dtypes of `a` and
    /// `b` promoted.
    ///
    /// # Errors
    /// If `self` is not bool, or if the sizes do not broadcast.
    #[track_caller]
    pub fn where_<'a, 'b>(&self, a: impl Into<Operand<'a>>, b: impl Into<Operand<'b>>) -> Result<Tensor> {
        call(Op::Where, &[self, &*a.into().tensor()?, &*b.into().tensor()?], &[])
    }

    /// Clamps elements to `min..=max`. A bound is a number, a tensor, or `None` for no bound. NaNs are kept. Numbers
    /// promote weakly. Sizes are broadcast with those of tensors.
    ///
    /// ```
    /// # fn main() -> opfuse::Result<()> {
    /// let x = opfuse::Tensor::try_from([-1.0, 0.5, 2.0])?;
    /// assert_eq!(x.clamp(0, 1)?.to_vec::<f64>()?, [0.0, 0.5, 1.0]);
    /// assert_eq!(x.clamp(None, &x.abs()?)?.to_vec::<f64>()?, [-1.0, 0.5, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If both bounds are `None`, if the dtype is bool, or if the sizes do not broadcast.
    #[track_caller]
    pub fn clamp<'a, 'b>(&self, min: impl Into<Bound<'a>>, max: impl Into<Bound<'b>>) -> Result<Tensor> {
        match Bounds::of(min.into(), max.into())? {
            Bounds::Numbers(bounds) => call(Op::Clamp, &[self], &Attrs::from(bounds)),
            Bounds::Tensors(min, max) => CLAMP.call((self, min.as_deref(), max.as_deref())),
        }
    }

    /// In-place form of [`Tensor::clamp`]: writes the result to this tensor. Views of the same elements change too.
    /// Sizes and dtype are kept.
    ///
    /// # Errors
    /// Same as [`Tensor::clamp`] and [`Tensor::copy_`]. Also if the result has other sizes or a dtype of a higher
    /// category.
    #[track_caller]
    pub fn clamp_<'a, 'b>(&self, min: impl Into<Bound<'a>>, max: impl Into<Bound<'b>>) -> Result<()> {
        match Bounds::of(min.into(), max.into())? {
            Bounds::Numbers(bounds) => call_in_place(Op::Clamp, &[self], &Attrs::from(bounds)),
            Bounds::Tensors(min, max) => CLAMP.call_in_place((self, min.as_deref(), max.as_deref())),
        }
    }

    /// Clamps elements from below. See [`Tensor::clamp`].
    ///
    /// # Errors
    /// If the dtype is bool.
    #[track_caller]
    pub fn clamp_min(&self, min: impl Into<Scalar>) -> Result<Tensor> {
        CLAMP_MIN.call((self, min.into()))
    }

    /// Clamps elements from above. See [`Tensor::clamp`].
    ///
    /// # Errors
    /// If the dtype is bool.
    #[track_caller]
    pub fn clamp_max(&self, max: impl Into<Scalar>) -> Result<Tensor> {
        CLAMP_MAX.call((self, max.into()))
    }

    in_place_methods! {
        clamp_min clamp_min_ CLAMP_MIN (min: impl Into<Scalar>) (self, min.into());
        clamp_max clamp_max_ CLAMP_MAX (max: impl Into<Scalar>) (self, max.into());
    }

    /// Each element to the power of `exponent`, a number or a tensor, computed in f64. The result is f64. Sizes are
    /// broadcast.
    ///
    /// # Errors
    /// If the sizes do not broadcast.
    #[track_caller]
    pub fn float_power<'a>(&self, exponent: impl Into<Operand<'a>>) -> Result<Tensor> {
        match exponent.into() {
            Operand::Number(exponent) => FLOAT_POWER_BY_NUMBER.call((self, exponent)),
            exponent => FLOAT_POWER.call((self, &*exponent.tensor()?)),
        }
    }

    /// In-place form of [`Tensor::float_power`]. Views of the same elements change too. The result is rounded to the
    /// dtype of `self`.
    ///
    /// # Errors
    /// Same as [`Tensor::float_power`] and [`Tensor::copy_`]. Also if the dtype is not floating.
    #[track_caller]
    pub fn float_power_<'a>(&self, exponent: impl Into<Operand<'a>>) -> Result<()> {
        match exponent.into() {
            Operand::Number(exponent) => FLOAT_POWER_BY_NUMBER.call_in_place((self, exponent)),
            exponent => FLOAT_POWER.call_in_place((self, &*exponent.tensor()?)),
        }
    }

    /// Replaces NaNs by `nan` (default 0), and infinities by `posinf` and `neginf` (default: the greatest and least
    /// finite numbers of the dtype). Sizes and dtype are kept.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn nan_to_num(&self, nan: Option<f64>, posinf: Option<f64>, neginf: Option<f64>) -> Result<Tensor> {
        NAN_TO_NUM.call((self, nan, posinf, neginf))
    }

    in_place_methods! {
        nan_to_num nan_to_num_ NAN_TO_NUM (nan: Option<f64>, posinf: Option<f64>, neginf: Option<f64>)
            (self, nan, posinf, neginf);
    }
}
pub(crate) fn register(library: &mut Library) -> Result<()> {
    choices(library)?;
    powers(library)?;
    numbers(library)?;
    library
        .def_kernel("rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", rsub)?
        .def_kernel(
            "rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
            |x: &Tensor, number: Scalar, alpha: Scalar| rsub(x, &Tensor::number(number)?, alpha),
        )?
        .composite(&DIV_NUMBER_ROUNDED, |x: &Tensor, number: Scalar, mode: Option<&str>| {
            x.div_rounded(number, mode.unwrap_or_default())
        })?
        .composite(&FLOOR_DIVIDE_NUMBER, |x: &Tensor, number: Scalar| x.floor_divide(number))?
        .def_kernel("__and__.Tensor(Tensor self, Tensor other) -> Tensor", |x: &Tensor, y: &Tensor| x.bitwise_and(y))?
        .def_kernel("__or__.Tensor(Tensor self, Tensor other) -> Tensor", |x: &Tensor, y: &Tensor| x.bitwise_or(y))?
        .def_kernel("__xor__.Tensor(Tensor self, Tensor other) -> Tensor", |x: &Tensor, y: &Tensor| x.bitwise_xor(y))?
        .def_kernel("__and__.Scalar(Tensor self, Scalar other) -> Tensor", |x: &Tensor, y: Scalar| x.bitwise_and(y))?
        .def_kernel("__or__.Scalar(Tensor self, Scalar other) -> Tensor", |x: &Tensor, y: Scalar| x.bitwise_or(y))?
        .def_kernel("__xor__.Scalar(Tensor self, Scalar other) -> Tensor", |x: &Tensor, y: Scalar| x.bitwise_xor(y))?
        .def_kernel("__lshift__.Tensor(Tensor self, Tensor other) -> Tensor", |x: &Tensor, y: &Tensor| {
            x.bitwise_left_shift(y)
        })?
        .def_kernel("__rshift__.Tensor(Tensor self, Tensor other) -> Tensor", |x: &Tensor, y: &Tensor| {
            x.bitwise_right_shift(y)
        })?
        .def_kernel("__lshift__.Scalar(Tensor self, Scalar other) -> Tensor", |x: &Tensor, y: Scalar| {
            x.bitwise_left_shift(y)
        })?
        .def_kernel("__rshift__.Scalar(Tensor self, Scalar other) -> Tensor", |x: &Tensor, y: Scalar| {
            x.bitwise_right_shift(y)
        })?
        .def_kernel("positive(Tensor(a) self) -> Tensor(a)", positive)?
        .composite(&NAN_TO_NUM, nan_to_num)?;
    Ok(())
}

/// Operators that select between operands.
fn choices(library: &mut Library) -> Result<()> {
    library
        .def_kernel(
            "where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor",
            |mask: &Tensor, yes: Scalar, no: &Tensor| mask.where_(yes, no),
        )?
        .def_kernel(
            "where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor",
            |mask: &Tensor, yes: &Tensor, no: Scalar| mask.where_(yes, no),
        )?
        .def_kernel(
            "where.Scalar(Tensor condition, Scalar self, Scalar other) -> Tensor",
            |mask: &Tensor, yes: Scalar, no: Scalar| mask.where_(yes, no),
        )?
        .def_kernel("max.other(Tensor self, Tensor other) -> Tensor", |x: &Tensor, other: &Tensor| x.maximum(other))?
        .def_kernel("min.other(Tensor self, Tensor other) -> Tensor", |x: &Tensor, other: &Tensor| x.minimum(other))?
        .composite(&CLAMP, clamp)?
        .composite_and_in_place(
            &CLAMP_MIN,
            |x: &Tensor, min: Scalar| x.clamp(Some(min), None),
            |x: &Tensor, min: Scalar| x.clamp_(Some(min), None).map(|()| x.clone()),
        )?
        .composite_and_in_place(
            &CLAMP_MAX,
            |x: &Tensor, max: Scalar| x.clamp(None, Some(max)),
            |x: &Tensor, max: Scalar| x.clamp_(None, Some(max)).map(|()| x.clone()),
        )?
        .composite(&CLAMP_MIN_TENSOR, |x: &Tensor, min: &Tensor| x.maximum(min))?
        .composite(&CLAMP_MAX_TENSOR, |x: &Tensor, max: &Tensor| x.minimum(max))?;
    Ok(())
}

/// Powers of a number, and powers in f64.
fn powers(library: &mut Library) -> Result<()> {
    library
        .def_kernel("pow.Scalar(Scalar self, Tensor exponent) -> Tensor", |base: Scalar, exponent: &Tensor| {
            call(Op::Pow, &[&Tensor::number(base)?, exponent], &[])
        })?
        .composite(&FLOAT_POWER, |x: &Tensor, exponent: &Tensor| {
            x.to_dtype(DType::F64)?.pow(exponent.to_dtype(DType::F64)?)
        })?
        .composite(&FLOAT_POWER_BY_NUMBER, |x: &Tensor, exponent: Scalar| x.to_dtype(DType::F64)?.pow(exponent))?
        .def_kernel(
            "float_power.Scalar(Scalar self, Tensor exponent) -> Tensor",
            |base: Scalar, exponent: &Tensor| {
                call(Op::Pow, &[&Tensor::number(base)?, &exponent.to_dtype(DType::F64)?], &[])
            },
        )?;
    Ok(())
}

fn rsub(x: &Tensor, other: &Tensor, alpha: Scalar) -> Result<Tensor> {
    other.sub_scaled(x, alpha)
}

fn positive(x: &Tensor) -> Result<Tensor> {
    if x.dtype() == DType::Bool {
        return Err(Error::dtype("positive", DType::Bool, "a number", "convert first"));
    }
    Ok(x.clone())
}

fn clamp(x: &Tensor, min: Option<&Tensor>, max: Option<&Tensor>) -> Result<Tensor> {
    match (min, max) {
        (Some(min), Some(max)) => x.maximum(min)?.minimum(max),
        (Some(min), None) => x.maximum(min),
        (None, Some(max)) => x.minimum(max),
        (None, None) => Err(Error::argument("clamp", "At least one of 'min' or 'max' must not be None")),
    }
}

fn nan_to_num(x: &Tensor, nan: Option<f64>, posinf: Option<f64>, neginf: Option<f64>) -> Result<Tensor> {
    let Some(greatest) = greatest_finite(x.dtype()) else { return x.copy() };
    let numbers = x.isnan()?.where_(nan.unwrap_or(0.0), x)?;
    let below = x.isposinf()?.where_(posinf.unwrap_or(greatest), &numbers)?;
    x.isneginf()?.where_(neginf.unwrap_or(-greatest), &below)
}

/// The greatest finite number of a floating dtype. `None` for other dtypes.
fn greatest_finite(dtype: DType) -> Option<f64> {
    match dtype {
        DType::F16 => Some(65504.0),
        // 2^128 minus half a unit in the last place.
        DType::BF16 => Some((2.0 - 1.0 / 128.0) * 2_f64.powi(127)),
        DType::F32 => Some(f64::from(f32::MAX)),
        DType::F64 => Some(f64::MAX),
        DType::Bool
        | DType::U8
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::Complex64
        | DType::Complex128 => None,
    }
}

/// Overloads with a number that have special names: the op, the overload with the number on the right, and the overload
/// with the number on the left. ATen's names are historical.
const OVERLOADS: [(Op, &str, Option<&str>); 7] = [
    (Op::BitwiseLeftShift, "Tensor_Scalar", Some("Scalar_Tensor")),
    (Op::BitwiseRightShift, "Tensor_Scalar", Some("Scalar_Tensor")),
    (Op::BitwiseAnd, "Scalar", Some("Scalar_Tensor")),
    (Op::BitwiseOr, "Scalar", Some("Scalar_Tensor")),
    (Op::BitwiseXor, "Scalar", Some("Scalar_Tensor")),
    (Op::Remainder, "Scalar", Some("Scalar_Tensor")),
    (Op::Xlogy, "Scalar_Other", Some("Scalar_Self")),
];

/// Registers the overloads with numbers for rows that have the overload `Tensor`.
fn numbers(library: &mut Library) -> Result<()> {
    for &op in Op::ALL {
        let Schema::Binary("Tensor") = op.row().schema else { continue };
        let (_, right, left) = OVERLOADS.into_iter().find(|row| row.0 == op).unwrap_or((op, "Scalar", None));
        let operator = library.def_composite(
            &format!("{}.{right}(Tensor self, Scalar other) -> Tensor", op.name()),
            Kernel::typed(move |x: &Tensor, number: Scalar| call(op, &[x, &Tensor::number(number)?], &[])),
        )?;
        // `xlogy` has no in-place overloads: its number may be on either side.
        if op != Op::Xlogy {
            written_forms::define(library, &operator, None, None)?;
        }
        if let Some(left) = left {
            library.def_kernel(
                &format!("{}.{left}(Scalar self, Tensor other) -> Tensor", op.name()),
                move |number: Scalar, x: &Tensor| call(op, &[&Tensor::number(number)?, x], &[]),
            )?;
        }
    }
    library
        .composite(&ADD_NUMBER, |x: &Tensor, number: Scalar, alpha: Scalar| x.add_scaled(number, alpha))?
        .composite(&SUB_NUMBER, |x: &Tensor, number: Scalar, alpha: Scalar| x.sub_scaled(number, alpha))?;
    Ok(())
}
