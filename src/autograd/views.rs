//! Views and writes.
//!
//! A write through any alias gives the base a new history: what was there before, with the written part replaced. The
//! view that was written through, and every other view of the base, then comes from the base again; its edge is made
//! anew, by applying its chain of view ops to the base, when somebody asks for it.

use crate::autograd::meta::gradient_edge;
use crate::autograd::node::{Backward, BackwardCall, Edge, Node, ResultType};
use crate::dispatch::key::grad_mode::{enable_grad, is_grad_enabled};
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::{Attr, Op, Sizes};
use crate::ir::{DType, Scalar};
use crate::ops::factories::full_on;
use crate::tensor::handle::Tensor;
use crate::tensor::view_chain;
use crate::tensor::view_chain::{Values, ViewStep};
use smallvec::SmallVec;

/// Makes the edge of a view anew if its base was written to since.
pub(super) fn refresh(tensor: &Tensor) -> Result<()> {
    let Some(view) = tensor.view_of().filter(|view| view.is_differentiable) else { return Ok(()) };
    let version = tensor.version();
    let known = tensor.autograd().map_or(view.made_at, |meta| meta.known_version().max(view.made_at));
    if version == known || !view.base.autograd().is_some_and(crate::autograd::meta::Meta::requires_grad) {
        return Ok(());
    }
    let anew = {
        let _recorded = enable_grad();
        view_chain::apply(&mut Tensors, &view.base, &view.chain)?
    };
    if let Some(edge) = anew.autograd().and_then(crate::autograd::meta::Meta::edge) {
        tensor.set_edge(edge);
    }
    Ok(())
}

/// Whether `target` may be written to now.
///
/// # Errors
/// If gradients are recorded and it is a leaf or a view of one; if gradients are involved and it is a view that was
/// made while nothing was recorded; if several of its elements are one; outside inference mode, if it is an inference
/// tensor.
pub(crate) fn check_write(op: &str, target: &Tensor, value_requires_grad: bool) -> Result<()> {
    if !is_grad_enabled() {
        return Ok(());
    }
    let refuse = |what: &str| Err(Error::argument(op, what));
    if let Some(view) = target.view_of().filter(|view| view.is_differentiable) {
        let involved = value_requires_grad || view.base.requires_grad();
        if involved && !view.made_with_grad {
            return refuse(
                "a view was created in no_grad mode and is being modified inplace with grad mode enabled; make the view \
                 with grad mode enabled, or write to it in no_grad mode",
            );
        }
        if view.base.is_tape_leaf() && view.base.requires_grad() {
            return refuse(
                "a view of a leaf Variable that requires grad is being used in an in-place operation; write in no_grad \
                 mode, or to a clone",
            );
        }
    }
    if target.is_tape_leaf() && target.requires_grad() {
        return refuse(
            "a leaf Variable that requires grad is being used in an in-place operation; write in no_grad mode, or to a \
             clone",
        );
    }
    Ok(())
}

/// What `copy_(target, source)` does on the way back.
struct CopyBackward {
    dtype: DType,
    sizes: SmallVec<[usize; 6]>,
}

impl Backward for CopyBackward {
    fn name(&self) -> String {
        "CopyBackward".into()
    }

    fn apply(&self, gradients: Vec<Option<Tensor>>, _: &BackwardCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let gradient = gradients.into_iter().next().flatten();
        Ok(vec![gradient.map(|gradient| sum_to(&gradient, &self.sizes)?.to_dtype(self.dtype)).transpose()?])
    }
}

/// Broadcasting undone: the sum over the dims that were repeated.
fn sum_to(gradient: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    let lead = gradient.dim() - sizes.len();
    let repeated = |dim: &usize| *dim < lead || (sizes[dim - lead] == 1 && gradient.sizes()[*dim] != 1);
    let dims: Vec<i64> = (0..gradient.dim()).filter(repeated).map(|dim| dim as i64).collect();
    if dims.is_empty() {
        return Ok(gradient.clone());
    }
    gradient.sum(&dims[..], true)?.reshape(sizes)
}

/// A write through a view, seen from its base: the written part of the gradient goes to the value, the rest stays.
struct CopySlices {
    chain: SmallVec<[ViewStep; 1]>,
    copy: CopyBackward,
    view_sizes: SmallVec<[usize; 6]>,
}

impl Backward for CopySlices {
    fn name(&self) -> String {
        "CopySlices".into()
    }

    fn apply(&self, gradients: Vec<Option<Tensor>>, call: &BackwardCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let Some(gradient) = gradients.into_iter().next().flatten() else { return Ok(vec![None, None]) };
        let gradient = gradient.contiguous()?;
        let written = match call.needs[1] {
            true => self
                .copy
                .apply(vec![Some(view_chain::apply(&mut Tensors, &gradient, &self.chain)?)], call)?
                .pop()
                .flatten(),
            false => None,
        };
        let rest = match call.needs[0] {
            true => {
                let zeros = full_on(gradient.device(), &self.view_sizes, Scalar::Int(0), Some(gradient.dtype()))?;
                Some(view_chain::write_back(&mut Tensors, &gradient, &self.chain, &zeros)?)
            }
            false => None,
        };
        Ok(vec![rest, written])
    }
}

/// Gives `target` the history it has after `source` was copied into it; its version has moved already.
pub(crate) fn rebase(target: &Tensor, source: &Tensor, before: Option<Edge>) -> Result<()> {
    let copy = CopyBackward { dtype: source.dtype(), sizes: source.sizes().into() };
    let edge = gradient_edge(source)?;
    let Some(view) = target.view_of().filter(|view| view.is_differentiable) else {
        let node =
            Node::new(Box::new(copy), SmallVec::from_iter([edge]), SmallVec::from_iter([ResultType::of(target)]));
        target.set_edge(Edge::new(node, 0));
        return Ok(());
    };
    let function = CopySlices { chain: view.chain.clone(), copy, view_sizes: target.sizes().into() };
    let results = SmallVec::from_iter([ResultType::of(&view.base)]);
    let node = Node::new(Box::new(function), SmallVec::from_iter([before, edge]), results);
    view.base.set_edge(Edge::new(node, 0));
    refresh(target)
}

/// Values are tensors; ops are called.
pub(crate) struct Tensors;

impl Values for Tensors {
    type Value = Tensor;

    fn call(&mut self, op: Op, args: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
        call(op, args, attrs)
    }

    fn sizes(&self, value: &Tensor) -> Sizes {
        value.sizes().into()
    }
}
