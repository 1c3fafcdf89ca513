//! Products of Jacobians with vectors: the reverse pass of the reverse pass.
//!
//! The gradients `u J` of a result are linear in `u`, with the slope `J t` in the direction `t`. So the value of `u`
//! does not matter, and zeros do.

use crate::autograd::{GradOptions, enable_grad};
use crate::error::{Error, Result};
use crate::func::reverse::{First, Recorded, Session, finished, gradients, structure};
use crate::profile::stands_for;
use crate::tensor::structure::{Flat, Tensors};
use crate::tensor::{Tensor, TensorStruct};
use crate::transforms::{Function, Inputs};
use std::fmt;
use std::marker::PhantomData;

/// What a function returns, and its Jacobian-vector product with a `tangent` of the first argument: how the result
/// changes in that direction.
///
/// ```
/// # use opfuse::{Result, Tensor, func::jvp};
/// # fn main() -> Result<()> {
/// let (x, tangent) = (Tensor::try_from([2.0, 3.0])?, Tensor::try_from([1.0, 0.0])?);
/// let (y, change) = jvp(|x: &Tensor| x.square(), &x, &tangent)?;
/// assert_eq!((y.to_vec::<f64>()?, change.to_vec::<f64>()?), (vec![4.0, 9.0], vec![4.0, 0.0]));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the function fails, or if the tangent does not have the shapes of the argument.
#[track_caller]
pub fn jvp<A: First, F: Function<A>>(
    function: F,
    inputs: impl Inputs<A>,
    tangent: &A::First,
) -> Result<(F::Output, F::Output)> {
    let (value, linear) = linearize(function, inputs)?;
    Ok((value, linear.call(tangent)?))
}

/// What a function returns, and its Jacobian at this argument as a linear function of tangents: [`jvp`] for many
/// tangents, with one call of the function.
///
/// # Errors
/// If the function fails.
#[allow(clippy::type_complexity, reason = "a pair of the value and its linear function")]
#[track_caller]
pub fn linearize<A: First, F: Function<A>>(
    function: F,
    inputs: impl Inputs<A>,
) -> Result<(F::Output, Linear<A::First, F::Output>)> {
    let _place = stands_for();
    let inputs = inputs.into_parts()?;
    let session = Session::enter(&inputs);
    let transposed = Transposed::of::<A, F>(&function, &inputs)?;
    let value = structure(&transposed.output, finished(transposed.output.tensors.clone(), session.is_recorded)?)?;
    Ok((value, Linear { transposed, is_recorded: session.is_recorded, types: PhantomData }))
}

/// The gradients of a call as a recorded linear function of those of its result.
pub(super) struct Transposed {
    pub(super) output: Flat,
    /// Gradients of the result.
    upstream: Tensors,
    /// Gradients of the first argument, which are recorded.
    gradients: Tensors,
}

impl Transposed {
    pub(super) fn of<A: First, F: Function<A>>(function: &F, inputs: &Flat) -> Result<Transposed> {
        let _recorded = enable_grad();
        let recorded = Recorded::of::<A, F>(function, inputs)?;
        let output = Flat::of(&recorded.output);
        let upstream: Tensors = output
            .tensors
            .iter()
            .map(|output| {
                let zeros = output.detach()?.zeros_like()?;
                if zeros.dtype().is_float() {
                    zeros.set_requires_grad(true)?;
                }
                Ok(zeros)
            })
            .collect::<Result<_>>()?;
        let given: Vec<Option<&Tensor>> = upstream.iter().map(Some).collect();
        let options = GradOptions { retain_graph: true, create_graph: true, allow_unused: true };
        let gradients = recorded.gradients(&output.tensors, &given, options)?;
        Ok(Transposed { output, upstream, gradients })
    }

    /// The product with tangents of the first argument.
    pub(super) fn apply(&self, tangents: &[Tensor], is_recorded: bool) -> Result<Tensors> {
        let _recorded = enable_grad();
        if tangents.len() != self.gradients.len() {
            let what = format!("{} tangents for {} tensors of the argument", tangents.len(), self.gradients.len());
            return Err(Error::argument("jvp", what));
        }
        if let Some((tangent, of)) =
            tangents.iter().zip(&self.gradients).find(|(one, other)| one.sizes() != other.sizes())
        {
            let what = format!("a tangent of shape {:?} for an argument of {:?}", tangent.sizes(), of.sizes());
            return Err(Error::shape("jvp", what, "tangents have the shapes of what they belong to"));
        }
        let given: Vec<Option<&Tensor>> = tangents.iter().map(Some).collect();
        let options = GradOptions { retain_graph: true, create_graph: is_recorded, allow_unused: true };
        finished(gradients(&self.gradients, &self.upstream, &given, options)?, is_recorded)
    }
}

/// A linear function of tangents. Made by [`linearize`].
pub struct Linear<T, R> {
    transposed: Transposed,
    is_recorded: bool,
    types: PhantomData<fn(&T) -> R>,
}

impl<T: TensorStruct, R: TensorStruct> Linear<T, R> {
    /// How the result changes in the direction of a tangent. It may be called several times.
    ///
    /// # Errors
    /// If the tangent does not have the shapes of the argument.
    #[track_caller]
    pub fn call(&self, tangent: &T) -> Result<R> {
        let _place = stands_for();
        let tangents = Flat::of(tangent).tensors;
        structure(&self.transposed.output, self.transposed.apply(&tangents, self.is_recorded)?)
    }
}

impl<T, R> fmt::Debug for Linear<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the jvp of {} results", self.transposed.output.tensors.len())
    }
}
