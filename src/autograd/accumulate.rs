//! The end of the backward pass: a leaf accumulates its gradients.
//!
//! A new gradient is added in place to the existing one, unless the backward pass is recorded.

use crate::autograd::hook;
use crate::autograd::node::{Backward, BackwardCall};
use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::dispatch::rows::call;
use crate::error::Result;
use crate::ir::{MemoryFormat, Op};
use crate::tensor::handle::{Tensor, WeakTensor};
use crate::tensor::observer::{Access, observer};
use std::borrow::Cow;

/// Adds gradients to a leaf. The leaf owns this node, and edges keep the leaf alive.
pub(super) struct Accumulate {
    leaf: WeakTensor,
}

impl Accumulate {
    pub(super) fn new(leaf: &Tensor) -> Accumulate {
        Accumulate { leaf: leaf.downgrade() }
    }
}

impl Backward for Accumulate {
    fn name(&self) -> String {
        "AccumulateGrad".into()
    }

    fn apply(&self, gradients: Vec<Option<Tensor>>, _: &BackwardCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (Some(Some(gradient)), Some(leaf)) = (gradients.into_iter().next(), self.leaf.upgrade()) else {
            return Ok(Vec::new());
        };
        if let Some(observer) = observer() {
            observer.on_hooks(&leaf);
        }
        let hooks = leaf.autograd_or_new().state().hooks.clone();
        let gradient = hook::run(hooks, gradient)?;
        let leaf = gradient_owner(&leaf, Access::Add);
        let sum = match leaf.gradient() {
            // A recorded backward pass may need the old gradient again, so it is not overwritten.
            Some(before) if is_grad_enabled() => before.add(&gradient)?,
            // In place: other handles of the gradient see the sum.
            Some(before) => return before.add_(&gradient).map(|()| Vec::new()),
            None if may_be_written(&gradient) => gradient,
            None => call(Op::Clone, &[&gradient], &[MemoryFormat::Contiguous.into()])?,
        };
        leaf.put_gradient(Some(&sum));
        Ok(Vec::new())
    }
}

/// Whether the leaf can adopt a gradient and later add to it in place: it is row-major and writable, and nothing else
/// refers to it.
fn may_be_written(gradient: &Tensor) -> bool {
    let is_alone = || !gradient.has_other_handles() && !gradient.array().storage().has_others();
    observer().and_then(|observer| observer.is_alone(gradient)).unwrap_or_else(is_alone)
        && gradient.array().storage().read_only().is_none()
        && gradient.is_contiguous()
}

/// The tensor that holds the gradient of a leaf, before an access to it. In a trace it is the tensor of the call.
pub(super) fn gradient_owner(leaf: &Tensor, access: Access) -> Cow<'_, Tensor> {
    observer().map_or(Cow::Borrowed(leaf), |observer| observer.on_gradient(leaf, access))
}
