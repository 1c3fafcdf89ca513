//! Element-wise methods under ATen's other names, and the functions of its `special` namespace.
//!
//! `other_names.rs`, `special.rs` and `bessel.rs` define the operators.

use crate::error::Result;
use crate::ir::{DType, Scalar};
use crate::ops::dims::Dims;
use crate::ops::named::{Named, named_methods};
use crate::ops::rust_operators::Operand;
use crate::tensor::handle::Tensor;

/// Other names of methods of one tensor, with their in-place forms.
macro_rules! other_names_of_one {
    ($($name:ident $in_place:ident $method:ident $written:literal;)*) => {$(
        #[doc = concat!("Another name of [`Tensor::", stringify!($method), "`].")]
        ///
        /// # Errors
        #[doc = concat!("Same as [`Tensor::", stringify!($method), "`].")]
        #[track_caller]
        pub fn $name(&self) -> Result<Tensor> {
            static OPERATOR: Named = Named::new(stringify!($name));
            OPERATOR.call((self,))
        }

        #[doc = concat!("In-place form of [`Tensor::", stringify!($name), "`]. Views of the same elements change too.")]
        ///
        /// # Errors
        #[doc = concat!("Same as [`Tensor::", stringify!($method), "`] and [`Tensor::copy_`].")]
        #[track_caller]
        pub fn $in_place(&self) -> Result<()> {
            static OPERATOR: Named = Named::new($written);
            OPERATOR.call::<_, Tensor>((self,)).map(drop)
        }
    )*};
}

/// Other names of methods of two operands, with their in-place forms. Some take one argument more.
macro_rules! other_names_of_two {
    ($($name:ident $in_place:ident $method:ident $operator:literal $written:literal ($($more:expr),*);)*) => {$(
        #[doc = concat!("Another name of [`Tensor::", stringify!($method), "`]. Sizes are broadcast.")]
        ///
        /// # Errors
        #[doc = concat!("Same as [`Tensor::", stringify!($method), "`].")]
        #[track_caller]
        pub fn $name<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
            static OPERATOR: Named = Named::new($operator);
            OPERATOR.call((self, &*other.into().tensor()?, $($more,)*))
        }

        #[doc = concat!("In-place form of [`Tensor::", stringify!($name), "`]. Views of the same elements change too.")]
        ///
        /// # Errors
        #[doc = concat!("Same as [`Tensor::", stringify!($method), "`] and [`Tensor::copy_`].")]
        #[track_caller]
        pub fn $in_place<'a>(&self, other: impl Into<Operand<'a>>) -> Result<()> {
            static OPERATOR: Named = Named::new($written);
            OPERATOR.call::<_, Tensor>((self, &*other.into().tensor()?, $($more,)*)).map(drop)
        }
    )*};
}

/// Other names of methods of one tensor, without in-place forms.
macro_rules! special_names {
    ($($name:ident $method:ident;)*) => {$(
        #[doc = concat!("Another name of [`Tensor::", stringify!($method), "`].")]
        ///
        /// # Errors
        #[doc = concat!("Same as [`Tensor::", stringify!($method), "`].")]
        #[track_caller]
        pub fn $name(&self) -> Result<Tensor> {
            static OPERATOR: Named = Named::new(stringify!($name));
            OPERATOR.call((self,))
        }
    )*};
}

/// ATen's other names of element-wise methods.
impl Tensor {
    other_names_of_one! {
        absolute absolute_ abs "absolute_";
        arccos arccos_ acos "arccos_";
        arccosh arccosh_ acosh "arccosh_";
        arcsin arcsin_ asin "arcsin_";
        arcsinh arcsinh_ asinh "arcsinh_";
        arctan arctan_ atan "arctan_";
        arctanh arctanh_ atanh "arctanh_";
        fix fix_ trunc "fix_";
        negative negative_ neg "negative_";
    }

    other_names_of_two! {
        arctan2 arctan2_ atan2 "arctan2" "arctan2_" ();
        divide divide_ div "divide.Tensor" "divide_.Tensor" ();
        greater greater_ gt "greater.Tensor" "greater_.Tensor" ();
        greater_equal greater_equal_ ge "greater_equal.Tensor" "greater_equal_.Tensor" ();
        less less_ lt "less.Tensor" "less_.Tensor" ();
        less_equal less_equal_ le "less_equal.Tensor" "less_equal_.Tensor" ();
        multiply multiply_ mul "multiply.Tensor" "multiply_.Tensor" ();
        not_equal not_equal_ ne "not_equal.Tensor" "not_equal_.Tensor" ();
        subtract subtract_ sub "subtract.Tensor" "subtract_.Tensor" (Scalar::Int(1));
    }

    special_names! {
        special_digamma digamma;
        special_erf erf;
        special_erfc erfc;
        special_erfinv erfinv;
        special_exp2 exp2;
        special_expit sigmoid;
        special_expm1 expm1;
        special_gammaln lgamma;
        special_i0 i0;
        special_log1p log1p;
        special_psi digamma;
        special_sinc sinc;
    }

    /// Another name of [`Tensor::div`]. Sizes are broadcast.
    ///
    /// # Errors
    /// Same as [`Tensor::div`].
    #[track_caller]
    pub fn true_divide<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        static OPERATOR: Named = Named::new("true_divide.Tensor");
        OPERATOR.call((self, &*other.into().tensor()?))
    }

    /// `other - alpha * self`: subtraction with the operands swapped. Sizes are broadcast and dtypes promoted.
    ///
    /// # Errors
    /// If the sizes do not broadcast, or if the common dtype is bool.
    #[track_caller]
    pub fn rsub<'a>(&self, other: impl Into<Operand<'a>>, alpha: impl Into<Scalar>) -> Result<Tensor> {
        static OPERATOR: Named = Named::new("rsub.Tensor");
        OPERATOR.call((self, &*other.into().tensor()?, alpha.into()))
    }

    /// Another name of [`Tensor::clamp`] with numbers as bounds.
    ///
    /// # Errors
    /// Same as [`Tensor::clamp`].
    #[track_caller]
    pub fn clip(&self, min: Option<Scalar>, max: Option<Scalar>) -> Result<Tensor> {
        static OPERATOR: Named = Named::new("clip");
        OPERATOR.call((self, min, max))
    }

    /// In-place form of [`Tensor::clip`]. Views of the same elements change too.
    ///
    /// # Errors
    /// Same as [`Tensor::clamp`] and [`Tensor::copy_`].
    #[track_caller]
    pub fn clip_(&self, min: Option<Scalar>, max: Option<Scalar>) -> Result<()> {
        static OPERATOR: Named = Named::new("clip_");
        OPERATOR.call::<_, Tensor>((self, min, max)).map(drop)
    }

    named_methods! {
        /// `self * 2^power` for each element. Sizes are broadcast. A power that is not floating counts as f32.
        ///
        /// # Errors
        /// If the sizes do not broadcast, or if the operator does not accept a dtype.
        ldexp(self, power: &Tensor) -> Tensor, "ldexp.Tensor" (self, power);

        /// The sign of each element, as [`Tensor::sign`] has it. For a complex number it is `z / |z|`, and 0 at 0.
        ///
        /// # Errors
        /// If the operator does not accept the dtype.
        sgn(self) -> Tensor, "sgn" (self);

        /// The tensor itself, as a unary `+`.
        ///
        /// # Errors
        /// If the dtype is bool.
        positive(self) -> Tensor, "positive" (self);

        /// Whether each element is a real number. The result is bool, and true for every element of a real tensor.
        ///
        /// # Errors
        /// If there is not enough memory.
        isreal(self) -> Tensor, "isreal" (self);

        /// The conjugate of each element. A real tensor is returned as it is.
        ///
        /// # Errors
        /// If there is not enough memory.
        conj_physical(self) -> Tensor, "conj_physical" (self);

        /// The tensor itself: conjugation is never put off here.
        ///
        /// # Errors
        /// If a kernel from outside fails.
        resolve_conj(self) -> Tensor, "resolve_conj" (self);

        /// The tensor itself: negation is never put off here.
        ///
        /// # Errors
        /// If a kernel from outside fails.
        resolve_neg(self) -> Tensor, "resolve_neg" (self);

        /// This tensor in the dtype and on the device of `other`.
        ///
        /// # Errors
        /// Same as [`Tensor::to_dtype`] and [`Tensor::to_device`].
        type_as(self, other: &Tensor) -> Tensor, "type_as" (self, other);
    }
}

/// Functions of ATen's `special` namespace. Sizes are kept, or broadcast.
impl Tensor {
    named_methods! {
        /// The Bessel function of the first kind, of order 0. It is computed in f64 and rounded once.
        ///
        /// # Errors
        /// If the operator does not accept the dtype.
        special_bessel_j0(self) -> Tensor, "special_bessel_j0" (self);

        /// The Bessel function of the first kind, of order 1. See [`Tensor::special_bessel_j0`].
        ///
        /// # Errors
        /// If the operator does not accept the dtype.
        special_bessel_j1(self) -> Tensor, "special_bessel_j1" (self);

        /// `exp(-|x|) i0(x)`: the modified Bessel function of order 0, scaled so that it does not overflow.
        ///
        /// # Errors
        /// If the operator does not accept the dtype.
        special_i0e(self) -> Tensor, "special_i0e" (self);

        /// The modified Bessel function of the first kind, of order 1.
        ///
        /// # Errors
        /// If the operator does not accept the dtype.
        special_i1(self) -> Tensor, "special_i1" (self);

        /// `exp(-|x|) i1(x)`. See [`Tensor::special_i1`].
        ///
        /// # Errors
        /// If the operator does not accept the dtype.
        special_i1e(self) -> Tensor, "special_i1e" (self);

        /// `exp(x^2) erfc(x)`, which does not underflow for large `x`.
        ///
        /// # Errors
        /// If the operator does not accept the dtype.
        special_erfcx(self) -> Tensor, "special_erfcx" (self);

        /// The entropy `-x log(x)` of each element: 0 at 0, and minus infinity below.
        ///
        /// # Errors
        /// If the dtype is not floating.
        special_entr(self) -> Tensor, "special_entr" (self);

        /// The distribution function of the standard normal distribution.
        ///
        /// # Errors
        /// If the operator does not accept the dtype.
        special_ndtr(self) -> Tensor, "special_ndtr" (self);

        /// The quantile function of the standard normal distribution, the inverse of [`Tensor::special_ndtr`].
        ///
        /// # Errors
        /// If the operator does not accept the dtype.
        special_ndtri(self) -> Tensor, "special_ndtri" (self);

        /// The logarithm of [`Tensor::special_ndtr`], accurate where that is small.
        ///
        /// # Errors
        /// If the operator does not accept the dtype.
        special_log_ndtr(self) -> Tensor, "special_log_ndtr" (self);

        /// Another name of [`Tensor::igamma`].
        ///
        /// # Errors
        /// Same as [`Tensor::igamma`].
        special_gammainc(self, x: &Tensor) -> Tensor, "special_gammainc" (self, x);

        /// Another name of [`Tensor::igammac`].
        ///
        /// # Errors
        /// Same as [`Tensor::igammac`].
        special_gammaincc(self, x: &Tensor) -> Tensor, "special_gammaincc" (self, x);

        /// Another name of [`Tensor::polygamma`].
        ///
        /// # Errors
        /// Same as [`Tensor::polygamma`].
        special_polygamma(self, n: i64) -> Tensor, "special_polygamma" (n, self);

        /// Another name of [`Tensor::mvlgamma`].
        ///
        /// # Errors
        /// Same as [`Tensor::mvlgamma`].
        special_multigammaln(self, p: i64) -> Tensor, "special_multigammaln" (self, p);

        /// Another name of [`Tensor::logit`].
        ///
        /// # Errors
        /// Same as [`Tensor::logit`].
        special_logit(self, eps: Option<f64>) -> Tensor, "special_logit" (self, eps);

        /// Another name of [`Tensor::logsumexp`].
        ///
        /// # Errors
        /// Same as [`Tensor::logsumexp`].
        special_logsumexp(self, dims: impl Into<Dims>, keepdim: bool) -> Tensor, "special_logsumexp"
            (self, dims.into().as_slice(), keepdim);

        /// Rounds to a number of decimals, as [`Tensor::round_decimals`] does.
        ///
        /// # Errors
        /// Same as [`Tensor::round_decimals`].
        special_round(self, decimals: i64) -> Tensor, "special_round" (self, decimals);

        /// [`Tensor::softmax`] in another dtype, if there is one.
        ///
        /// # Errors
        /// Same as [`Tensor::softmax`].
        special_softmax(self, dim: i64, dtype: Option<DType>) -> Tensor, "special_softmax" (self, dim, dtype);

        /// [`Tensor::log_softmax`] in another dtype, if there is one.
        ///
        /// # Errors
        /// Same as [`Tensor::log_softmax`].
        special_log_softmax(self, dim: i64, dtype: Option<DType>) -> Tensor, "special_log_softmax" (self, dim, dtype);
    }

    /// Another name of [`Tensor::xlogy`].
    ///
    /// # Errors
    /// Same as [`Tensor::xlogy`].
    #[track_caller]
    pub fn special_xlogy<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        static OPERATOR: Named = Named::new("special_xlogy");
        OPERATOR.call((self, &*other.into().tensor()?))
    }

    /// `self * log1p(other)`, and 0 where `self` is 0 and `other` is no NaN.
    ///
    /// # Errors
    /// If the sizes do not broadcast, or if the operator does not accept a dtype.
    #[track_caller]
    pub fn special_xlog1py<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        static OPERATOR: Named = Named::new("special_xlog1py");
        OPERATOR.call((self, &*other.into().tensor()?))
    }

    /// The Hurwitz zeta function of `self` with the second argument `q`.
    ///
    /// # Errors
    /// If the sizes do not broadcast, or if the operator does not accept a dtype.
    #[track_caller]
    pub fn special_zeta<'a>(&self, q: impl Into<Operand<'a>>) -> Result<Tensor> {
        static OPERATOR: Named = Named::new("special_zeta");
        OPERATOR.call((self, &*q.into().tensor()?))
    }
}
