//! What can be compiled or mapped: functions over tensors that return tensors.
//!
//! A marker type stands for the arguments, so that closures of one to six `&Tensor`, or of one `&[Tensor]`, all fit:
//! `compile(|a: &Tensor, b: &Tensor| (a * b)?.relu())`.

use super::tensor::Tensor;
use crate::error::{Error, Result};
use crate::ir::Scalar;

/// A function over tensors. `A` stands for its arguments: a tuple of [`Tensor`], or `Vec<Tensor>` for a slice.
pub trait Function<A>: Send + Sync {
    /// What it returns.
    type Output: Outputs;

    /// Calls it; `inputs` has as many tensors as it takes.
    fn apply(&self, inputs: &[Tensor]) -> Result<Self::Output>;
}

/// Arguments of one call of a function with arguments `A`: tensors, or numbers, which stay arguments.
pub trait Inputs<A> {
    /// As tensors.
    fn into_tensors(self) -> Result<Vec<Tensor>>;
}

/// One argument of a call.
pub trait Input {
    /// As a tensor; a number becomes a 0-dim tensor that promotes as a number.
    fn to_tensor(&self) -> Result<Tensor>;
}

impl Input for Tensor {
    fn to_tensor(&self) -> Result<Tensor> {
        Ok(self.clone())
    }
}

impl<T: Input> Input for &T {
    fn to_tensor(&self) -> Result<Tensor> {
        (**self).to_tensor()
    }
}

macro_rules! number_inputs {
    ($($ty:ty),*) => {$(
        impl Input for $ty {
            fn to_tensor(&self) -> Result<Tensor> {
                Tensor::number(Scalar::from(*self))
            }
        }
    )*};
}
number_inputs!(bool, i32, i64, f32, f64);

/// What a function may return: one or several tensors.
pub trait Outputs: Sized {
    /// The tensors, in order.
    fn tensors(&self) -> Vec<Tensor>;

    /// The same structure with other tensors; `None` if their number does not fit.
    fn from_tensors(tensors: Vec<Tensor>) -> Option<Self>;
}

impl Outputs for Tensor {
    fn tensors(&self) -> Vec<Tensor> {
        vec![self.clone()]
    }
    fn from_tensors(mut tensors: Vec<Tensor>) -> Option<Tensor> {
        tensors.pop().filter(|_| tensors.is_empty())
    }
}

impl Outputs for Vec<Tensor> {
    fn tensors(&self) -> Vec<Tensor> {
        self.clone()
    }
    fn from_tensors(tensors: Vec<Tensor>) -> Option<Vec<Tensor>> {
        Some(tensors)
    }
}

impl<const N: usize> Outputs for [Tensor; N] {
    fn tensors(&self) -> Vec<Tensor> {
        self.to_vec()
    }
    fn from_tensors(tensors: Vec<Tensor>) -> Option<[Tensor; N]> {
        tensors.try_into().ok()
    }
}

macro_rules! arities {
    ($($count:literal: $($name:ident $index:tt),+;)*) => {$(
        impl<F, R> Function<($(arities!(@tensor $name),)+)> for F
        where
            F: Fn($(&arities!(@tensor $name)),+) -> Result<R> + Send + Sync,
            R: Outputs,
        {
            type Output = R;
            fn apply(&self, inputs: &[Tensor]) -> Result<R> {
                check(inputs, $count)?;
                self($(&inputs[$index]),+)
            }
        }

        impl<$($name: Input),+> Inputs<($(arities!(@tensor $name),)+)> for ($($name,)+) {
            fn into_tensors(self) -> Result<Vec<Tensor>> {
                Ok(vec![$(self.$index.to_tensor()?),+])
            }
        }
    )*};
    (@tensor $name:ident) => { Tensor };
}
arities! {
    1: A 0;
    2: A 0, B 1;
    3: A 0, B 1, C 2;
    4: A 0, B 1, C 2, D 3;
    5: A 0, B 1, C 2, D 3, E 4;
    6: A 0, B 1, C 2, D 3, E 4, G 5;
}

macro_rules! tuples {
    ($($count:literal: [$($index:tt)+];)*) => {$(
        impl Outputs for ($(tuples!(@tensor $index),)+) {
            fn tensors(&self) -> Vec<Tensor> {
                vec![$(self.$index.clone()),+]
            }
            fn from_tensors(tensors: Vec<Tensor>) -> Option<Self> {
                let tensors: [Tensor; $count] = tensors.try_into().ok()?;
                Some(tensors.into())
            }
        }
    )*};
    (@tensor $index:tt) => { Tensor };
}
tuples! { 1: [0]; 2: [0 1]; 3: [0 1 2]; 4: [0 1 2 3]; }

impl Inputs<(Tensor,)> for &Tensor {
    fn into_tensors(self) -> Result<Vec<Tensor>> {
        Ok(vec![self.clone()])
    }
}

impl<F, R> Function<Vec<Tensor>> for F
where
    F: Fn(&[Tensor]) -> Result<R> + Send + Sync,
    R: Outputs,
{
    type Output = R;
    fn apply(&self, inputs: &[Tensor]) -> Result<R> {
        self(inputs)
    }
}

impl Inputs<Vec<Tensor>> for &[Tensor] {
    fn into_tensors(self) -> Result<Vec<Tensor>> {
        Ok(self.to_vec())
    }
}

impl Inputs<Vec<Tensor>> for &Vec<Tensor> {
    fn into_tensors(self) -> Result<Vec<Tensor>> {
        Ok(self.clone())
    }
}

impl<const N: usize> Inputs<Vec<Tensor>> for [&Tensor; N] {
    fn into_tensors(self) -> Result<Vec<Tensor>> {
        Ok(self.map(Tensor::clone).to_vec())
    }
}

impl Inputs<Vec<Tensor>> for &[&Tensor] {
    fn into_tensors(self) -> Result<Vec<Tensor>> {
        Ok(self.iter().map(|&tensor| tensor.clone()).collect())
    }
}

fn check(inputs: &[Tensor], expected: usize) -> Result<()> {
    if inputs.len() == expected {
        return Ok(());
    }
    Err(Error::argument("call", format!("the function takes {expected} tensors, but {} were given", inputs.len())))
}
