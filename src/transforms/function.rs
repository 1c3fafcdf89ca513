//! Functions over structures of tensors: what `compile` and `vmap` accept.
//!
//! A marker type stands for the arguments. So closures of one to six references, or of one `&[Tensor]`, all fit:
//! `compile(|a: &Tensor, b: &Tensor| (a * b)?.relu())`.

use crate::error::{Error, Result};
use crate::ir::Scalar;
use crate::tensor::handle::Tensor;
use crate::tensor::structure::{Flat, Parts, TensorStruct};
use smallvec::SmallVec;
use std::any::type_name;

/// A function over tensors. `A` marks its arguments: a tuple of structures, or `Vec<Tensor>` for a slice.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no function that can be compiled or mapped",
    label = "not a function of up to six `&T`, or of `&[Tensor]`",
    note = "each argument is `&Tensor`, or a reference to a type with `#[derive(TensorStruct)]`; pack more than six \
            into a structure",
    note = "it returns `opfuse::Result` of tensors or of such types, and is `Send` and `Sync`"
)]
pub trait Function<A>: Send + Sync {
    /// The type of its result.
    type Output: TensorStruct;

    /// Calls the function with flattened arguments.
    ///
    /// # Errors
    /// If the function fails, or if the inputs do not fit its arguments.
    fn apply(&self, inputs: &Flat) -> Result<Self::Output>;

    /// What reports and profiles call it: the name of its type, unless it has one of its own.
    fn name(&self) -> &'static str {
        type_name::<Self>()
    }
}

/// Arguments of one call of a function with arguments `A`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not fit the arguments of the function",
    label = "not the arguments that the function takes",
    note = "pass one argument as it is, and several as a tuple of references"
)]
pub trait Inputs<A> {
    /// Flattens the arguments.
    ///
    /// # Errors
    /// If there is not enough memory.
    fn into_parts(self) -> Result<Flat>;

    /// The arguments, if all of them are single tensors. Then no handle is cloned.
    fn as_tensors(&self) -> Option<TensorRefs<'_>> {
        None
    }
}

/// Borrowed tensors.
pub type TensorRefs<'a> = SmallVec<[&'a Tensor; 6]>;

/// An argument for a parameter `&T`. A number fits `&Tensor`: it becomes a 0-dim tensor that promotes as a number, and
/// stays an argument.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not fit an argument `&{T}`",
    note = "pass a reference to a `{T}`; a plain number fits `&Tensor` alone"
)]
pub trait Input<T> {
    /// Appends the tensors and words of the argument.
    ///
    /// # Errors
    /// If there is not enough memory.
    fn add_parts(&self, into: &mut Flat) -> Result<()>;

    /// The tensor, if the argument is a single tensor.
    fn as_tensor(&self) -> Option<&Tensor> {
        None
    }
}

impl Input<Tensor> for Tensor {
    fn add_parts(&self, into: &mut Flat) -> Result<()> {
        into.push(self);
        Ok(())
    }
    fn as_tensor(&self) -> Option<&Tensor> {
        TensorStruct::as_tensor(self)
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
        self(&inputs.to_tensors().ok_or_else(|| other(inputs))?)
    }
}

macro_rules! slices {
    ($([$($generic:tt)*] $ty:ty;)*) => {$(
        impl<$($generic)*> Inputs<Vec<Tensor>> for $ty {
            fn into_parts(self) -> Result<Flat> {
                let mut flat = Flat::default();
                self.iter().for_each(|tensor| flat.push(tensor));
                Ok(flat)
            }
            fn as_tensors(&self) -> Option<TensorRefs<'_>> {
                let mut refs = TensorRefs::new();
                for tensor in self.iter() {
                    refs.push(<Tensor as TensorStruct>::as_tensor(tensor)?);
                }
                Some(refs)
            }
        }
    )*};
}
slices! {
    [] &[Tensor];
    [] &Vec<Tensor>;
    [] &[&Tensor];
    [const N: usize] [&Tensor; N];
}

fn other(inputs: &Flat) -> Error {
    let given = inputs.tensors.len();
    Error::argument("call", format!("the function takes other arguments than these, which hold {given} tensors"))
}
