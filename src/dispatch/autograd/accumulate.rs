//! The end of the way back: a leaf, which adds up its gradients.

use super::hook;
use super::node::{Backward, BackwardCall};
use crate::dispatch::keys::tracer::{self, Access};
use crate::dispatch::register::call;
use crate::dispatch::tensor::{Tensor, WeakTensor};
use crate::error::Result;
use crate::ir::{Attr, Op};

/// Adds gradients to a leaf, which owns it; edges keep the leaf.
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
        tracer::on_hooks(&leaf);
        let hooks = leaf.autograd_or_new().state().hooks.clone();
        let gradient = hook::run(hooks, gradient)?;
        let leaf = tracer::on_gradient(&leaf, Access::Add);
        let sum = match leaf.gradient() {
            Some(before) => before.add(&gradient)?,
            // What others know too must not be written through later on.
            None if gradient.array().storage().has_others() && !tracer::is_tracing() => {
                call(Op::Clone, &[&gradient], &[Attr::Str("contiguous".into())])?
            }
            None => gradient,
        };
        leaf.put_gradient(Some(&sum));
        Ok(Vec::new())
    }
}
