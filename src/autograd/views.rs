//! Views and writes.
//!
//! A write through any alias gives the base a new history: its old value, with the written part replaced. From then on
//! all views of the base come from this new base. The edge of a view is recomputed when it is needed, by applying its
//! view chain to the base.

use crate::autograd::meta::gradient_edge;
use crate::autograd::node::{Backward, BackwardCall, Edge, Node};
use crate::autograd::tape::Places;
use crate::dispatch::key::grad_mode::{enable_grad, is_grad_enabled};
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::{Attr, Op, Sizes};
use crate::ir::{DType, Scalar};
use crate::ops::factories::full_on;
use crate::tensor::handle::{Tensor, ViewOf};
use crate::tensor::view_chain;
use crate::tensor::view_chain::{Values, ViewStep};
use smallvec::SmallVec;

/// Recomputes the edge of a view if its base was written to since. A view that was made in no-grad mode has no history,
/// whatever is written.
pub(super) fn refresh(tensor: &Tensor) -> Result<()> {
    let has_history = |view: &&ViewOf| view.is_differentiable && view.made_with_grad;
    let Some(view) = tensor.view_of().filter(has_history) else { return Ok(()) };
    let version = tensor.version();
    let known = tensor.autograd().map_or(view.made_at, |meta| meta.known_version().max(view.made_at));
    if version == known || !view.base.autograd().is_some_and(crate::autograd::meta::Meta::requires_grad) {
        return Ok(());
    }
    let recomputed = {
        let _recorded = enable_grad();
        view_chain::apply(&mut Tensors, &view.base, &view.chain.steps())?
    };
    if let Some(edge) = recomputed.autograd().and_then(crate::autograd::meta::Meta::edge) {
        tensor.set_edge(edge);
    }
    Ok(())
}

/// Checks that `target` may be written to.
///
/// # Errors
/// If gradients are recorded and it is a leaf that requires them, or a view of one. If gradients are involved and it is
/// a view that was made in no-grad mode. If several of its elements share memory. If it is an inference tensor outside
/// inference mode.
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
        if view.base.stands_for_leaf() && view.base.requires_grad() {
            return refuse(
                "a view of a leaf Variable that requires grad is being used in an in-place operation; write in no_grad \
                 mode, or to a clone",
            );
        }
    }
    if target.stands_for_leaf() && target.requires_grad() {
        return refuse(
            "a leaf Variable that requires grad is being used in an in-place operation; write in no_grad mode, or to a \
             clone",
        );
    }
    Ok(())
}

/// Whether [`check_write`] refuses every write, because the tensor is a view without history of one that requires
/// gradients.
pub(crate) fn is_unrecorded_view(target: &Tensor) -> bool {
    let is_unrecorded = |view: &ViewOf| view.is_differentiable && !view.made_with_grad && view.base.requires_grad();
    target.view_of().is_some_and(is_unrecorded) && is_grad_enabled()
}

/// The backward formula of `copy_(target, source)`.
#[derive(Clone)]
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

    fn is_copyable(&self) -> bool {
        true
    }

    fn copy(&self, _: &Places<'_>) -> Result<Box<dyn Backward>> {
        Ok(Box::new(self.clone()))
    }
}

/// Reverses broadcasting: sums over the repeated dims.
fn sum_to(gradient: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    let lead = gradient.dim() - sizes.len();
    let repeated = |dim: &usize| *dim < lead || (sizes[dim - lead] == 1 && gradient.sizes()[*dim] != 1);
    let dims: Vec<i64> = (0..gradient.dim()).filter(repeated).map(|dim| dim as i64).collect();
    if dims.is_empty() {
        return Ok(gradient.clone());
    }
    gradient.sum(&dims[..], true)?.reshape(sizes)
}

/// A write through a view, as its base records it. The written part of the gradient flows to the value, the rest to the
/// old base.
#[derive(Clone)]
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

    fn is_copyable(&self) -> bool {
        true
    }

    fn copy(&self, _: &Places<'_>) -> Result<Box<dyn Backward>> {
        Ok(Box::new(self.clone()))
    }
}

/// Gives `target` its history after `source` was copied into it. The version was increased already.
pub(crate) fn rebase(target: &Tensor, source: &Tensor, before: Option<Edge>) -> Result<()> {
    let copy = CopyBackward { dtype: source.dtype(), sizes: source.sizes().into() };
    let edge = gradient_edge(source)?;
    let Some(view) = target.view_of().filter(|view| view.is_differentiable) else {
        let node = Node::new(Box::new(copy), SmallVec::from_iter([edge]), &[target]);
        target.set_edge(Edge::new(node, 0));
        return Ok(());
    };
    let function = CopySlices { chain: view.chain.steps(), copy, view_sizes: target.sizes().into() };
    let node = Node::new(Box::new(function), SmallVec::from_iter([before, edge]), &[&view.base]);
    view.base.set_edge(Edge::new(node, 0));
    refresh(target)
}

/// View chains on tensors: each step calls an op.
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
