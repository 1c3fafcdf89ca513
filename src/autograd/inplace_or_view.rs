//! The ADInplaceOrView key: records the base of views, and counts writes.
//!
//! All aliases of a storage share one version counter. A value saved for backward can so detect a later write, and a
//! view can detect a write to its base.

use crate::dispatch::builtins::copy_operator;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::rows::redispatch;
use crate::error::Result;
use crate::ir::{Attr, Op};
use crate::tensor::handle::Tensor;
use crate::tensor::handle::ViewOf;
use crate::tensor::view_chain::{ViewChain, ViewStep};

/// The kernel of every view op of the table. The operand of `_unsafe_view` has no other owner, and a plain number has
/// no memory to share, so their results are not marked.
pub(crate) fn view_kernel(op: Op, keys: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let result = redispatch(op, keys - KeySet::of(DispatchKey::ADInplaceOrView), tensors, attrs)?;
    let is_marked = op != Op::UnsafeView && tensors[0].as_number().is_none();
    Ok(if is_marked { marked(op, tensors[0], attrs, result) } else { result })
}

/// Marks `result` as a view of `operand`, made by a view op.
pub(crate) fn marked(op: Op, operand: &Tensor, attrs: &[Attr], result: Tensor) -> Tensor {
    let step = ViewStep::new(op, attrs);
    let (base, chain, has_history) = match operand.view_of() {
        // The result of `detach` is the base of its views as far as gradients are concerned.
        Some(view) if view.is_differentiable => (view.base.clone(), view.chain.then(step), view.made_with_grad),
        Some(_) | None => (operand.clone(), ViewChain::of(step), true),
    };
    let (made_at, is_differentiable) = (result.version(), op != Op::Detach);
    // A view of a view that was made in no-grad mode has no history either.
    let made_with_grad = has_history && is_grad_enabled();
    result.marked_as_view(ViewOf { base, chain, made_at, is_differentiable, made_with_grad })
}

/// The kernel of `copy_`.
pub(crate) fn copy_kernel(keys: KeySet, target: &Tensor, source: &Tensor, async_: bool) -> Result<Tensor> {
    let below = keys - KeySet::of(DispatchKey::ADInplaceOrView);
    let result: Tensor = copy_operator()?.redispatch(below, (target, source, async_))?;
    // Inference tensors count no writes, whichever way they are written.
    target.note_write();
    Ok(result)
}
