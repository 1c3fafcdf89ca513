//! Jacobians and Hessians of functions from one tensor to one tensor.
//!
//! One reverse pass is mapped over a basis, so all rows or columns are computed at once.

use crate::autograd::GradOptions;
use crate::error::Result;
use crate::func::forward::Transposed;
use crate::func::reverse::{First, Grad, Recorded, Session, callable, grad};
use crate::ir::DType;
use crate::profile::stands_for_maker;
use crate::tensor::Tensor;
use crate::tensor::structure::Flat;
use crate::transforms::vmap::vmap;
use crate::transforms::{Function, Inputs};
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

/// The Jacobian of a function by its first argument, row by row: element `(i.., j..)` is the derivative of result `i..`
/// by element `j..`. It costs one reverse pass per element of the result, all at once.
///
/// ```
/// # use opfuse::{Result, Tensor, func::jacrev};
/// # fn main() -> Result<()> {
/// let jacobian = jacrev(|x: &Tensor| x.square()).call(&Tensor::try_from([1.0, 2.0])?)?;
/// assert_eq!(jacobian.to_vec2::<f64>()?, [[2.0, 0.0], [0.0, 4.0]]);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn jacrev<A, F: Function<A, Output = Tensor>>(function: F) -> JacRev<F, A> {
    JacRev { function, made: Location::caller(), arguments: PhantomData }
}

/// The same as [`jacrev`], column by column: it costs one pass per element of the argument, which is less where the
/// result is larger.
#[track_caller]
pub fn jacfwd<A, F: Function<A, Output = Tensor>>(function: F) -> JacFwd<F, A> {
    JacFwd { function, made: Location::caller(), arguments: PhantomData }
}

/// The Hessian of a function that returns one number: the Jacobian of its gradient.
#[track_caller]
pub fn hessian<A: First<First = Tensor>, F: Function<A>>(function: F) -> JacRev<Grad<F, A>, A> {
    jacrev(grad(function))
}

/// A Jacobian. Made by [`jacrev`].
pub struct JacRev<F, A> {
    function: F,
    made: &'static Location<'static>,
    arguments: PhantomData<fn(A)>,
}

/// A Jacobian. Made by [`jacfwd`].
pub struct JacFwd<F, A> {
    function: F,
    made: &'static Location<'static>,
    arguments: PhantomData<fn(A)>,
}

callable! {
    JacRev "jacrev";
    JacFwd "jacfwd";
}

/// One tensor per element of `like`, which is 1 there and 0 elsewhere.
fn basis(like: &Tensor) -> Result<Tensor> {
    let n = like.numel();
    let dtype = if like.dtype().is_float() { like.dtype() } else { DType::F32 };
    let sizes = [&[n], like.sizes()].concat();
    Tensor::eye(n, dtype)?.to_device(like.device())?.reshape(&sizes[..])
}

impl<A: First<First = Tensor>, F: Function<A, Output = Tensor>> Function<A> for JacRev<F, A> {
    type Output = Tensor;

    fn apply(&self, inputs: &Flat) -> Result<Tensor> {
        let _place = stands_for_maker(self.made);
        let session = Session::enter(inputs);
        let recorded = Recorded::of::<A, F>(&self.function, inputs)?;
        let output = recorded.output.clone();
        let options = GradOptions { retain_graph: true, ..session.options() };
        let sizes = [output.sizes(), recorded.leaves[0].sizes()].concat();
        if output.numel() == 0 {
            return recorded.leaves[0].detach()?.reshape([-1])?.narrow(0, 0, 0)?.reshape(&sizes[..]);
        }
        let row = |upstream: &Tensor| -> Result<Tensor> {
            let gradients = recorded.gradients(std::slice::from_ref(&output), &[Some(upstream)], options)?;
            Ok(gradients[0].clone())
        };
        let rows = vmap(row).call(&basis(&output)?)?;
        let rows = session.finished([rows])?[0].reshape(&sizes[..])?;
        Ok(rows)
    }
}

impl<A: First<First = Tensor>, F: Function<A, Output = Tensor>> Function<A> for JacFwd<F, A> {
    type Output = Tensor;

    fn apply(&self, inputs: &Flat) -> Result<Tensor> {
        let _place = stands_for_maker(self.made);
        let session = Session::enter(inputs);
        let transposed = Transposed::of::<A, F>(&self.function, inputs)?;
        let (argument, output) = (&inputs.tensors[0], &transposed.output.tensors[0]);
        let sizes = [output.sizes(), argument.sizes()].concat();
        if argument.numel() == 0 {
            return output.detach()?.reshape([-1])?.narrow(0, 0, 0)?.reshape(&sizes[..]);
        }
        let column = |tangent: &Tensor| -> Result<Tensor> {
            Ok(transposed.apply(std::slice::from_ref(tangent), session.is_recorded)?[0].clone())
        };
        let columns = vmap(column).call(&basis(argument)?)?;
        // The number of the column becomes the dims of the argument, at the end.
        columns.reshape([argument.numel() as i64, -1])?.t()?.reshape(&sizes[..])
    }
}
