//! `+ - * /` and unary `-` on tensors.
//!
//! Every operator is the method of the same meaning and gives a `Result`, so a chain reads `((&a * &b)? + 1.0)?`. The
//! right side may itself be a `Result<Tensor>`, whose error comes out: `&a + &b * &c`. A `Result` on the left needs
//! `?`, because Rust lets nobody add operators to it.

use super::tensor::Tensor;
use crate::error::{Error, Result};
use crate::ir::Scalar;
use std::borrow::Cow;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The other operand of a binary method: a tensor or a plain number.
///
/// A number promotes weakly: it raises the category of the dtype (bool, integer, floating) but never the width.
#[derive(Clone)]
pub enum Operand<'a> {
    /// A borrowed tensor.
    Ref(&'a Tensor),
    /// An owned tensor.
    Owned(Tensor),
    /// A plain number.
    Number(Scalar),
    /// The error of the call that should have given the operand; the method returns it.
    Failed(Error),
}

impl<'a> Operand<'a> {
    /// The operand as a tensor; a number as [`Tensor::number`].
    ///
    /// # Errors
    /// The error that the operand is, or that memory cannot be had.
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
    ($($Trait:ident $method:ident;)*) => {$(
        impl<'a, R: Into<Operand<'a>>> $Trait<R> for &Tensor {
            type Output = Result<Tensor>;

            fn $method(self, other: R) -> Result<Tensor> {
                Tensor::$method(self, other)
            }
        }

        impl<'a, R: Into<Operand<'a>>> $Trait<R> for Tensor {
            type Output = Result<Tensor>;

            fn $method(self, other: R) -> Result<Tensor> {
                Tensor::$method(&self, other)
            }
        }
    )*};
}

operator! { Add add; Sub sub; Mul mul; Div div; }

macro_rules! number {
    ($($number:ty),*) => {$(
        impl From<$number> for Operand<'_> {
            fn from(number: $number) -> Self {
                Operand::Number(number.into())
            }
        }

        number!(@left $number: Add add, Sub sub, Mul mul, Div div);
    )*};
    (@left $number:ty: $($Trait:ident $method:ident),*) => {$(
        impl $Trait<&Tensor> for $number {
            type Output = Result<Tensor>;

            fn $method(self, other: &Tensor) -> Result<Tensor> {
                Tensor::$method(&Tensor::number(self)?, other)
            }
        }

        impl $Trait<Tensor> for $number {
            type Output = Result<Tensor>;

            fn $method(self, other: Tensor) -> Result<Tensor> {
                Tensor::$method(&Tensor::number(self)?, &other)
            }
        }
    )*};
}

number!(bool, i32, i64, f32, f64);

impl Neg for &Tensor {
    type Output = Result<Tensor>;

    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}

impl Neg for Tensor {
    type Output = Result<Tensor>;

    fn neg(self) -> Result<Tensor> {
        Tensor::neg(&self)
    }
}
