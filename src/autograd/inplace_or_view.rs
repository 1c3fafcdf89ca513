//! The ADInplaceOrView key: views know their base, and writes are counted.
//!
//! All aliases of a storage count their writes together, so that a value saved for backward, and a view whose base
//! has changed, can tell.

use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::rows::redispatch;
use crate::error::Result;
use crate::ir::{Attr, Op};
use crate::ops::mutation::copy_operator;
use crate::tensor::handle::Tensor;
use crate::tensor::handle::ViewOf;
use crate::tensor::view_chain::ViewStep;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

/// The kernel of every view of the table.
pub(crate) fn view_kernel(op: Op, keys: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let result = redispatch(op, keys - KeySet::of(DispatchKey::ADInplaceOrView), tensors, attrs)?;
    Ok(marked(op, tensors[0], attrs, result))
}

/// `result` as the view of `operand` that a view op made.
pub(crate) fn marked(op: Op, operand: &Tensor, attrs: &[Attr], result: Tensor) -> Tensor {
    let step = ViewStep::new(op, attrs);
    let (base, mut chain) = match operand.view_of() {
        // A detached tensor is the base of its views as far as gradients go.
        Some(view) if view.is_differentiable => (view.base.clone(), view.chain.clone()),
        Some(_) | None => (operand.clone(), SmallVec::new()),
    };
    chain.push(step);
    let (made_at, is_differentiable) = (result.version(), op != Op::Detach);
    result.marked_as_view(ViewOf { base, chain, made_at, is_differentiable, made_with_grad: is_grad_enabled() })
}

/// The kernel of `copy_`.
pub(crate) fn copy_kernel(keys: KeySet, target: &Tensor, source: &Tensor, async_: bool) -> Result<Tensor> {
    let below = keys - KeySet::of(DispatchKey::ADInplaceOrView);
    let result: Tensor = copy_operator()?.redispatch(below, (target, source, async_))?;
    target.version_counter().fetch_add(1, Ordering::AcqRel);
    Ok(result)
}
