//! The methods of [`Tensor`] that are one row of the op table each.
//!
//! Methods of the regular rows (one or two operands, nothing else) are written by the table itself. The others are
//! here under the names and with the argument order that they have in PyTorch; views are in `views.rs`, what is made
//! of several rows is in `products.rs` and `joins.rs`. A method checks nothing: inference of the row does.
//! Element-wise methods come in two forms, `x.relu()` and in place `x.relu_()`; see `in_place.rs`.

use crate::dispatch::composite::Composite;
use crate::dispatch::rows::call;
use crate::error::Result;
use crate::ir::{Attr, DType, MemoryFormat, Op, Scalar};
use crate::ops::dims::Dims;
use crate::ops::in_place::row_methods;
use crate::ops::operators::Operand;
use crate::tensor::handle::Tensor;

/// The dtype of the result under a promotion rule, as a sentence for the documentation of a method.
macro_rules! dtypes {
    (Promote) => {
        "The result has the common dtype of the operands."
    };
    (Factor) => {
        "The result has the common dtype of the operands."
    };
    (PromoteNum) => {
        "The result has the common dtype of the operands, which must not be bool."
    };
    (PromoteCounting) => {
        "The result has the common dtype of the operands, or i64 for bools."
    };
    (PromoteFloat) => {
        "The result has the common dtype of the operands, or f32 if that is not floating."
    };
    (Division) => {
        "The result has the common dtype of the operands, or f32 if that is not floating."
    };
    (FloatOnly) => {
        "The result has the common dtype of the operands, which must be floating."
    };
    (Integral) => {
        "The result has the common dtype of the operands, which must be an integer or bool."
    };
    (Whole) => {
        "The result has the common dtype of the operands, which must be an integer."
    };
    (Compare) => {
        "Operands are converted to their common dtype. The result is bool."
    };
    (Predicate) => {
        "The result is bool."
    };
}

macro_rules! regular_methods {
    (
        unary { $($(#[$udoc:meta])* $Unary:ident $uname:ident $uwrite:ident $urule:ident |$ux:ident| $ubody:expr; $ud:tt;)* }
        binary { $($(#[$bdoc:meta])* $Binary:ident $bname:ident $bwrite:ident $boverload:literal $brule:ident |$ba:ident, $bb:ident| $bbody:expr; $bd:tt;)* }
        other { $($(#[$odoc:meta])* $Other:ident $(: $Shared:ident)? $({ $($field:tt)* })? = $row:expr;)* }
    ) => {
        /// Element by element: the methods of the op table's regular rows.
        impl Tensor {
            row_methods! {
                $(
                    $(#[$udoc])*
                    ///
                    /// Sizes are kept.
                    #[doc = dtypes!($urule)]
                    ///
                    /// # Errors
                    /// If the operator does not take the dtype.
                    $uname $uwrite() |x, call| call(Op::$Unary, &[x], &[]);
                )*
                $(
                    $(#[$bdoc])*
                    ///
                    /// Sizes are broadcast.
                    #[doc = dtypes!($brule)]
                    ///
                    /// # Errors
                    /// If the sizes do not broadcast, or the operator does not take a dtype.
                    $bname $bwrite<'a>(other: impl Into<Operand<'a>>)
                        |x, call| call(Op::$Binary, &[x, &*other.into().tensor()?], &[]);
                )*
            }
        }
    };
}

crate::for_each_op!(regular_methods);

fn optional(number: Option<Scalar>) -> Attr {
    number.map_or(Attr::None, Attr::Scalar)
}

/// Element by element: the irregular rows.
impl Tensor {
    row_methods! {
        /// `self + other`; logical or for bools. Sizes are broadcast, dtypes promoted.
        ///
        /// # Errors
        /// If the sizes do not broadcast.
        add add_<'a>(other: impl Into<Operand<'a>>)
            |x, call| call(Op::Add, &[x, &*other.into().tensor()?], &[Attr::int(1)]);

        /// `self + alpha * other`. Sizes are broadcast, dtypes promoted; `alpha` is converted to the common dtype.
        ///
        /// # Errors
        /// If the sizes do not broadcast.
        add_scaled add_scaled_<'a>(other: impl Into<Operand<'a>>, alpha: impl Into<Scalar>)
            |x, call| call(Op::Add, &[x, &*other.into().tensor()?], &[Attr::Scalar(alpha.into())]);

        /// `self - other`. Sizes are broadcast, dtypes promoted.
        ///
        /// # Errors
        /// If the sizes do not broadcast or both operands are bools.
        sub sub_<'a>(other: impl Into<Operand<'a>>)
            |x, call| call(Op::Sub, &[x, &*other.into().tensor()?], &[Attr::int(1)]);

        /// `self - alpha * other`; see [`Tensor::add_scaled`].
        ///
        /// # Errors
        /// If the sizes do not broadcast or both operands are bools.
        sub_scaled sub_scaled_<'a>(other: impl Into<Operand<'a>>, alpha: impl Into<Scalar>)
            |x, call| call(Op::Sub, &[x, &*other.into().tensor()?], &[Attr::Scalar(alpha.into())]);

        /// Each element raised to a power, a number or a tensor that is broadcast. Dtypes are promoted; a negative
        /// power of an integer is the whole part of the quotient if the exponent is a tensor.
        ///
        /// # Errors
        /// For bools, for integers with a negative number, or if the sizes do not broadcast.
        pow pow_<'a>(exponent: impl Into<Operand<'a>>) |x, call| match exponent.into() {
            Operand::Number(exponent) => call(Op::PowScalar, &[x], &[Attr::Scalar(exponent)]),
            exponent => call(Op::Pow, &[x, &*exponent.tensor()?], &[]),
        };

        /// The quotient rounded as the word says: `floor` or `trunc`. Sizes are broadcast, dtypes promoted; integers
        /// are divided as integers.
        ///
        /// # Errors
        /// If the word is another one, for bools, or if the sizes do not broadcast; dividing an integer by zero.
        div_rounded div_rounded_<'a>(other: impl Into<Operand<'a>>, rounding_mode: &str)
            |x, call| call(Op::DivMode, &[x, &*other.into().tensor()?], &[Attr::Str(rounding_mode.into())]);

        /// Between `self` and `end` by `weight`, a number or a tensor. Sizes are broadcast.
        ///
        /// # Errors
        /// If the dtypes are not one and the same floating one, or the sizes do not broadcast.
        lerp lerp_<'a>(end: &Tensor, weight: impl Into<Operand<'a>>) |x, call| match weight.into() {
            Operand::Number(weight) => call(Op::LerpScalar, &[x, end], &[Attr::Scalar(weight)]),
            weight => call(Op::Lerp, &[x, end, &*weight.tensor()?], &[]),
        };

        /// `self + value * a * b`. Sizes are broadcast, dtypes promoted.
        ///
        /// # Errors
        /// For bools, a fractional `value` of integers, or if the sizes do not broadcast.
        addcmul addcmul_(a: &Tensor, b: &Tensor, value: impl Into<Scalar>)
            |x, call| call(Op::Addcmul, &[x, a, b], &[Attr::Scalar(value.into())]);

        /// `self + value * a / b`. Sizes are broadcast, dtypes promoted.
        ///
        /// # Errors
        /// If the promoted dtype is not floating or the sizes do not broadcast.
        addcdiv addcdiv_(a: &Tensor, b: &Tensor, value: impl Into<Scalar>)
            |x, call| call(Op::Addcdiv, &[x, a, b], &[Attr::Scalar(value.into())]);

        /// 0 below 0, 1 above, and the element of `values` at 0. Sizes are broadcast, the dtype is kept.
        ///
        /// # Errors
        /// If the dtypes differ or the sizes do not broadcast.
        heaviside heaviside_(values: &Tensor) |x, call| call(Op::Heaviside, &[x, values], &[]);

        /// `log(x / (1 - x))`, of elements kept `eps` away from 0 and 1 if it is given. Sizes are kept, integers are
        /// raised to the default float.
        ///
        /// # Errors
        /// If there is no memory.
        logit logit_(eps: Option<f64>) |x, call| call(Op::Logit, &[x], &[eps.map_or(Attr::None, Attr::float)]);

        /// The nearest multiple of `10^-decimals`, ties to even. Sizes and dtype are kept.
        ///
        /// # Errors
        /// For bools.
        round_decimals round_decimals_(decimals: i64) |x, call| call(Op::RoundDecimals, &[x], &[Attr::int(decimals)]);
    }

    /// One number everywhere, in the dtype, sizes and memory order of `self`.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn fill(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        call(Op::FillScalar, &[self], &[Attr::Scalar(value.into())])
    }

    row_methods! {
        /// Gaussian error linear unit, `x Φ(x)`, by the error function. Sizes and dtype are kept.
        ///
        /// # Errors
        /// If the dtype is not floating.
        gelu gelu_() |x, call| call(Op::Gelu, &[x], &[Attr::Str("none".into())]);

        /// The tanh approximation of [`Tensor::gelu`].
        ///
        /// # Errors
        /// If the dtype is not floating.
        gelu_tanh gelu_tanh_() |x, call| call(Op::Gelu, &[x], &[Attr::Str("tanh".into())]);
    }

    /// `a` where `self`, a bool condition, holds, else `b`. All sizes are broadcast, `a` and `b` promoted.
    ///
    /// # Errors
    /// If `self` is not bool or the sizes do not broadcast.
    pub fn where_<'a, 'b>(&self, a: impl Into<Operand<'a>>, b: impl Into<Operand<'b>>) -> Result<Tensor> {
        call(Op::Where, &[self, &*a.into().tensor()?, &*b.into().tensor()?], &[])
    }

    row_methods! {
        /// `value`, converted to the dtype of `self`, where `mask` holds, else the element. Sizes are broadcast.
        ///
        /// # Errors
        /// If the mask is not bool or the sizes do not broadcast.
        masked_fill masked_fill_(mask: &Tensor, value: impl Into<Scalar>)
            |x, call| call(Op::MaskedFill, &[x, mask], &[Attr::Scalar(value.into())]);

        /// Elements limited to `min..=max`; a bound that is `None` does not limit, a NaN stays. Bounds promote like
        /// plain numbers.
        ///
        /// # Errors
        /// If both bounds are `None`, or for bools.
        clamp clamp_(min: Option<Scalar>, max: Option<Scalar>)
            |x, call| call(Op::Clamp, &[x], &[optional(min), optional(max)]);

        /// Elements not below `min`; see [`Tensor::clamp`].
        ///
        /// # Errors
        /// For bools.
        clamp_min clamp_min_(min: impl Into<Scalar>)
            |x, call| call(Op::Clamp, &[x], &[Attr::Scalar(min.into()), Attr::None]);

        /// Elements not above `max`; see [`Tensor::clamp`].
        ///
        /// # Errors
        /// For bools.
        clamp_max clamp_max_(max: impl Into<Scalar>)
            |x, call| call(Op::Clamp, &[x], &[Attr::None, Attr::Scalar(max.into())]);
    }

    /// Each element raised to a power, a number or a tensor that is broadcast, in f64 whatever the dtypes. Sizes are
    /// broadcast.
    ///
    /// # Errors
    /// If the sizes do not broadcast.
    pub fn float_power<'a>(&self, exponent: impl Into<Operand<'a>>) -> Result<Tensor> {
        static NUMBER: Composite = Composite::new("aten::float_power.Tensor_Scalar");
        static TENSOR: Composite = Composite::new("aten::float_power.Tensor_Tensor");
        match exponent.into() {
            Operand::Number(exponent) => NUMBER.call((self, exponent)),
            exponent => TENSOR.call((self, &*exponent.tensor()?)),
        }
    }

    /// `nan` (0 if it is `None`) for NaNs, `posinf` and `neginf` (the greatest and the least finite number of the dtype)
    /// for infinities. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn nan_to_num(&self, nan: Option<f64>, posinf: Option<f64>, neginf: Option<f64>) -> Result<Tensor> {
        static OPERATOR: Composite = Composite::new("aten::nan_to_num");
        OPERATOR.call((self, nan, posinf, neginf))
    }

    /// The same numbers in another dtype: the very same tensor if it has that dtype, else a converted copy. Sizes and
    /// order of memory are kept.
    ///
    /// Floats are cut off toward zero on their way to integers, and anything but zero is true.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        if self.dtype() == dtype && self.as_number().is_none() {
            return Ok(self.clone());
        }
        call(Op::ToCopy, &[self], &[Attr::DType(dtype)])
    }

    /// A row-major tensor of the same elements: the very same tensor if it is row-major, else a copy. Sizes and dtype
    /// are kept.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        call(Op::Clone, &[self], &[MemoryFormat::Contiguous.into()])
    }

    /// A dense copy with its own memory, dimensions in the same order in memory (`clone` only copies the handle). Sizes
    /// and dtype are kept.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn copy(&self) -> Result<Tensor> {
        call(Op::Clone, &[self], &[Attr::None])
    }

    /// The lower triangle of the last two dims up to `diagonal` (0 is the main one); the rest is 0. Sizes and dtype are
    /// kept.
    ///
    /// # Errors
    /// If there are fewer than two dims.
    pub fn tril(&self, diagonal: i64) -> Result<Tensor> {
        call(Op::Tril, &[self], &[Attr::int(diagonal)])
    }

    /// The upper triangle of the last two dims from `diagonal` (0 is the main one); the rest is 0. Sizes and dtype are
    /// kept.
    ///
    /// # Errors
    /// If there are fewer than two dims.
    pub fn triu(&self, diagonal: i64) -> Result<Tensor> {
        call(Op::Triu, &[self], &[Attr::int(diagonal)])
    }
}

/// Normalizations along dims.
impl Tensor {
    /// Exponentials over their sum along `dim`. Sizes and dtype are kept; 16-bit floats are computed in f32.
    ///
    /// # Errors
    /// If the dtype is not floating or the dim is out of range.
    pub fn softmax(&self, dim: i64) -> Result<Tensor> {
        call(Op::Softmax, &[self], &[Attr::int(dim), Attr::bool(false)])
    }

    /// The logarithm of [`Tensor::softmax`], computed without it. Sizes and dtype are kept; 16-bit floats are computed
    /// in f32.
    ///
    /// # Errors
    /// If the dtype is not floating or the dim is out of range.
    pub fn log_softmax(&self, dim: i64) -> Result<Tensor> {
        call(Op::LogSoftmax, &[self], &[Attr::int(dim), Attr::bool(false)])
    }

    /// `(x - mean) / sqrt(variance + eps) * weight + bias` over the trailing dims, whose sizes are `shape` and those
    /// of weight and bias. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If the dtype is not floating, `shape` is not the end of the sizes, or weight or bias has another shape or dtype.
    pub fn layer_norm(
        &self,
        shape: impl Into<Dims>,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let tensors: Vec<&Tensor> = [Some(self), weight, bias].into_iter().flatten().collect();
        let present = |operand: Option<&Tensor>| Attr::bool(operand.is_some());
        let shape = Attr::ints(shape.into().as_slice());
        call(Op::LayerNorm, &tensors, &[shape, present(weight), present(bias), Attr::float(eps), Attr::bool(true)])
    }
}

/// Elements by index.
impl Tensor {
    /// The slices of `dim` that the 1-dim integer tensor `index` names; `dim` gets the size of the index. The dtype is
    /// kept.
    ///
    /// # Errors
    /// If an index or the dim is out of range, or the index is not a 1-dim integer tensor.
    pub fn index_select(&self, dim: i64, index: &Tensor) -> Result<Tensor> {
        call(Op::IndexSelect, &[self, index], &[Attr::int(dim)])
    }

    /// Where `dim` is 0: `out[i, j] = self[index[i, j], j]`. The result has the sizes of `index`. The dtype is kept.
    ///
    /// # Errors
    /// If an index or the dim is out of range, the index is not an integer tensor of the same rank, or it is larger
    /// than `self` in another dim.
    pub fn gather(&self, dim: i64, index: &Tensor) -> Result<Tensor> {
        call(Op::Gather, &[self, index], &[Attr::int(dim), Attr::bool(false)])
    }
}
