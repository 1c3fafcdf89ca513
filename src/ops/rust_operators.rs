//! The Rust operators `+ - * / %`, `& | ^`, `-` and `!` on tensors, numbers and results of calls.
//!
//! Every operator calls the method of the same meaning and returns a `Result`, so a chain reads `((&a * &b)? + 1.0)?`.
//! One side may itself be a `Result<Tensor>`, whose error is returned: `&a + &b * &c` and `&a * &b + &c`. Rust's orphan
//! rules forbid operators between a `Result` and a number or another `Result`. There the left side needs `?`, and so
//! does a `Result` to the right of a number. On the right, numbers of every type are allowed. On the left, literals,
//! f64, i64, bool, f16 and bf16 are. Comparisons are methods (`x.lt(0.5)?`), because Rust's operators return a `bool`.

use crate::error::{Error, Result};
use crate::ir::Scalar;
use crate::tensor::handle::Tensor;
use half::{bf16, f16};
use std::borrow::Cow;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Sub};

/// The second operand of a binary method: a tensor or a plain number.
///
/// A number promotes weakly: it raises the category of the dtype (bool, integer, floating), but never the width.
#[derive(Clone)]
pub enum Operand<'a> {
    /// A borrowed tensor.
    Ref(&'a Tensor),
    /// An owned tensor.
    Owned(Tensor),
    /// A plain number.
    Number(Scalar),
    /// The error of the call that should have computed the operand. The method returns it.
    Failed(Error),
}

impl<'a> Operand<'a> {
    /// The operand as a tensor. A number becomes a [`Tensor::number`].
    ///
    /// # Errors
    /// The operand's own error, or if there is not enough memory.
    #[inline]
    pub fn tensor(self) -> Result<Cow<'a, Tensor>> {
        match self {
            Operand::Ref(tensor) => Ok(Cow::Borrowed(tensor)),
            Operand::Owned(tensor) => Ok(Cow::Owned(tensor)),
            Operand::Number(number) => Tensor::number(number).map(Cow::Owned),
            Operand::Failed(error) => Err(error),
        }
    }
}

impl<'a> From<&'a Tensor> for Operand<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Operand::Ref(tensor)
    }
}

impl From<Tensor> for Operand<'_> {
    fn from(tensor: Tensor) -> Self {
        Operand::Owned(tensor)
    }
}

impl From<Result<Tensor>> for Operand<'_> {
    fn from(result: Result<Tensor>) -> Self {
        result.map_or_else(Operand::Failed, Operand::Owned)
    }
}

impl From<Scalar> for Operand<'_> {
    fn from(number: Scalar) -> Self {
        Operand::Number(number)
    }
}

macro_rules! operator {
    ($($Trait:ident $operator:ident $method:ident;)*) => {$(
        impl<'a, R: Into<Operand<'a>>> $Trait<R> for &Tensor {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $operator(self, other: R) -> Result<Tensor> {
                Tensor::$method(self, other)
            }
        }

        impl<'a, R: Into<Operand<'a>>> $Trait<R> for Tensor {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $operator(self, other: R) -> Result<Tensor> {
                Tensor::$method(&self, other)
            }
        }

        impl $Trait<&Tensor> for Result<Tensor> {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $operator(self, other: &Tensor) -> Result<Tensor> {
                Tensor::$method(&self?, other)
            }
        }

        impl $Trait<Tensor> for Result<Tensor> {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $operator(self, other: Tensor) -> Result<Tensor> {
                Tensor::$method(&self?, &other)
            }
        }
    )*};
}

operator! {
    Add add add;
    Sub sub sub;
    Mul mul mul;
    Div div div;
    Rem rem remainder;
    BitAnd bitand bitwise_and;
    BitOr bitor bitwise_or;
    BitXor bitxor bitwise_xor;
}

/// Operators with a number on the left.
macro_rules! number_first {
    ($($number:ty: $($Trait:ident $operator:ident $method:ident),*;)*) => {$($(
        impl $Trait<&Tensor> for $number {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $operator(self, other: &Tensor) -> Result<Tensor> {
                Tensor::$method(&Tensor::number(self)?, other)
            }
        }

        impl $Trait<Tensor> for $number {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $operator(self, other: Tensor) -> Result<Tensor> {
                Tensor::$method(&Tensor::number(self)?, &other)
            }
        }
    )*)*};
}

macro_rules! number {
    ($($number:ty),*) => {$(
        impl From<$number> for Operand<'_> {
            fn from(number: $number) -> Self {
                Operand::Number(number.into())
            }
        }
    )*};
}

macro_rules! arithmetic_first {
    ($($number:ty),*) => {
        number_first!($($number: Add add add, Sub sub sub, Mul mul mul, Div div div, Rem rem remainder;)*);
    };
}

macro_rules! bits_first {
    ($($number:ty),*) => {
        number_first!($($number: BitAnd bitand bitwise_and, BitOr bitor bitwise_or, BitXor bitxor bitwise_xor;)*);
    };
}

number!(bool, u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f16, bf16, f32, f64);
// Only one floating and one integer type. With two, the type of 2.0 in `(2.0 * &x)?.exp()` would be ambiguous.
arithmetic_first!(bool, i64, f16, bf16, f64);
bits_first!(bool, i64);

macro_rules! unary {
    ($($Trait:ident $operator:ident $method:ident;)*) => {$(
        impl $Trait for &Tensor {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $operator(self) -> Result<Tensor> {
                Tensor::$method(self)
            }
        }

        impl $Trait for Tensor {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $operator(self) -> Result<Tensor> {
                Tensor::$method(&self)
            }
        }
    )*};
}

unary! {
    Neg neg neg;
    Not not bitwise_not;
}
