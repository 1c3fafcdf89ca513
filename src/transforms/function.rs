//! What can be compiled or mapped: functions over structures of tensors that return such.
//!
//! A marker type stands for the arguments, so that closures of one to six references, or of one `&[Tensor]`, all fit:
//! `compile(|a: &Tensor, b: &Tensor| (a * b)?.relu())`.

use crate::error::{Error, Result};
use crate::ir::Scalar;
use crate::tensor::handle::Tensor;
use crate::tensor::structure::{Flat, Parts, TensorStruct, Words};
use smallvec::SmallVec;

/// A function over tensors. `A` stands for its arguments: a tuple of structures, or `Vec<Tensor>` for a slice.
pub trait Function<A>: Send + Sync {
    /// What it returns.
    type Output: TensorStruct;

    /// Calls it; `inputs` are its arguments, flattened.
    ///
    /// # Errors
    /// What the function returns, or if the inputs are those of another function.
    fn apply(&self, inputs: &Flat) -> Result<Self::Output>;
}

/// Arguments of one call of a function with arguments `A`.
pub trait Inputs<A> {
    /// Flattens the arguments.
    ///
    /// # Errors
    /// If there is no memory for a number.
    fn into_parts(self) -> Result<Flat>;

    /// All of them, if they are tensors and nothing else: handles need not be copied then.
    fn as_tensors(&self) -> Option<TensorRefs<'_>> {
        None
    }
}

/// Tensors that are looked at.
pub type TensorRefs<'a> = SmallVec<[&'a Tensor; 6]>;

/// One argument of a call of a function that takes `&T`. A number is a tensor, too: it becomes a 0-dim tensor that
/// promotes as a number, and stays an argument.
pub trait Input<T> {
    /// Adds its parts.
    ///
    /// # Errors
    /// If there is no memory for a number.
    fn add_parts(&self, into: &mut Flat) -> Result<()>;

    /// The tensor that it is, if it is nothing else.
    fn as_tensor(&self) -> Option<&Tensor> {
        None
    }
}

impl Input<Tensor> for Tensor {
    fn add_parts(&self, into: &mut Flat) -> Result<()> {
        into.tensors.push(self.clone());
        Ok(())
    }
    fn as_tensor(&self) -> Option<&Tensor> {
        Some(self)
    }
}

impl<T: TensorStruct> Input<T> for &T {
    fn add_parts(&self, into: &mut Flat) -> Result<()> {
        self.tree_flatten(into);
        Ok(())
    }
    #[inline]
    fn as_tensor(&self) -> Option<&Tensor> {
        (**self).as_tensor()
    }
}

impl<T: TensorStruct> Input<T> for &&T {
    fn add_parts(&self, into: &mut Flat) -> Result<()> {
        self.tree_flatten(into);
        Ok(())
    }
}

macro_rules! number_inputs {
    ($($ty:ty),*) => {$(
        impl Input<Tensor> for $ty {
            fn add_parts(&self, into: &mut Flat) -> Result<()> {
                into.tensors.push(Tensor::number(Scalar::from(*self))?);
                Ok(())
            }
        }

        impl Input<Tensor> for &$ty {
            fn add_parts(&self, into: &mut Flat) -> Result<()> {
                Input::<Tensor>::add_parts(*self, into)
            }
        }
    )*};
}
number_inputs!(bool, i32, i64, f32, f64);

macro_rules! arities {
    ($($($name:ident $input:ident $index:tt),+;)*) => {$(
        impl<F, R, $($name: TensorStruct),+> Function<($($name,)+)> for F
        where
            F: Fn($(&$name),+) -> Result<R> + Send + Sync,
            R: TensorStruct,
        {
            type Output = R;
            fn apply(&self, inputs: &Flat) -> Result<R> {
                let mut parts = Parts::of(inputs);
                let arguments = ($($name::tree_unflatten(&mut parts).ok_or_else(|| other(inputs))?,)+);
                if !parts.is_empty() {
                    return Err(other(inputs));
                }
                self($(&arguments.$index),+)
            }
        }

        impl<$($name, $input: Input<$name>),+> Inputs<($($name,)+)> for ($($input,)+) {
            fn into_parts(self) -> Result<Flat> {
                let mut parts = Flat::default();
                $(self.$index.add_parts(&mut parts)?;)+
                Ok(parts)
            }
            #[inline]
            fn as_tensors(&self) -> Option<TensorRefs<'_>> {
                let mut tensors = TensorRefs::new();
                $(tensors.push(self.$index.as_tensor()?);)+
                Some(tensors)
            }
        }
    )*};
}
arities! {
    A X 0;
    A X 0, B Y 1;
    A X 0, B Y 1, C Z 2;
    A X 0, B Y 1, C Z 2, D U 3;
    A X 0, B Y 1, C Z 2, D U 3, E V 4;
    A X 0, B Y 1, C Z 2, D U 3, E V 4, G W 5;
}

impl<T: TensorStruct> Inputs<(T,)> for &T {
    fn into_parts(self) -> Result<Flat> {
        Ok(Flat::of(self))
    }
    #[inline]
    fn as_tensors(&self) -> Option<TensorRefs<'_>> {
        let mut tensors = TensorRefs::new();
        tensors.push((**self).as_tensor()?);
        Some(tensors)
    }
}

impl<F, R> Function<Vec<Tensor>> for F
where
    F: Fn(&[Tensor]) -> Result<R> + Send + Sync,
    R: TensorStruct,
{
    type Output = R;
    fn apply(&self, inputs: &Flat) -> Result<R> {
        self(&inputs.tensors)
    }
}

macro_rules! slices {
    ($([$($generic:tt)*] $ty:ty: |$tensors:ident| $vec:expr;)*) => {$(
        impl<$($generic)*> Inputs<Vec<Tensor>> for $ty {
            fn into_parts(self) -> Result<Flat> {
                let $tensors = self;
                Ok(Flat { tensors: $vec, words: Words::new() })
            }
            fn as_tensors(&self) -> Option<TensorRefs<'_>> {
                let mut refs = TensorRefs::new();
                for tensor in self.iter() {
                    refs.push(tensor);
                }
                Some(refs)
            }
        }
    )*};
}
slices! {
    [] &[Tensor]: |tensors| tensors.into();
    [] &Vec<Tensor>: |tensors| tensors[..].into();
    [] &[&Tensor]: |tensors| tensors.iter().map(|&tensor| tensor.clone()).collect();
    [const N: usize] [&Tensor; N]: |tensors| tensors.iter().map(|&tensor| tensor.clone()).collect();
}

fn other(inputs: &Flat) -> Error {
    let given = inputs.tensors.len();
    Error::argument("call", format!("the function takes other arguments than these, which hold {given} tensors"))
}
