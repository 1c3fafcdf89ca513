//! Hooks: user functions that run when a gradient is computed.

use crate::error::{Error, Result};
use crate::tensor::handle::Tensor;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Receives a gradient, and may return a replacement.
pub(super) type HookFn = dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync;

/// A registered hook.
#[derive(Clone)]
pub(crate) struct Hook {
    id: u64,
    pub(super) function: Arc<HookFn>,
    /// Stores the gradient for the user and does not change it, so it runs after the other hooks.
    pub(super) retains: bool,
}

impl Hook {
    pub(super) fn new(function: Arc<HookFn>, retains: bool) -> Hook {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Hook { id: NEXT.fetch_add(1, Ordering::Relaxed), function, retains }
    }

    pub(super) fn handle(&self) -> HookId {
        HookId(self.id)
    }

    pub(super) fn is(&self, id: &HookId) -> bool {
        self.id == id.0
    }
}

/// Identifies a registered hook, for [`Tensor::remove_hook`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookId(u64);

/// The gradient after all hooks, which run in the order of registration.
pub(super) fn run(hooks: Vec<Hook>, mut gradient: Tensor) -> Result<Tensor> {
    let (keepers, changers): (Vec<Hook>, Vec<Hook>) = hooks.into_iter().partition(|hook| hook.retains);
    for hook in changers.iter().chain(&keepers) {
        if let Some(other) = (hook.function)(&gradient)? {
            if other.sizes() != gradient.sizes() || other.dtype() != gradient.dtype() {
                let what = format!("a hook returned {} for a gradient of {}", other.ty(), gradient.ty());
                return Err(Error::shape("backward", what, "return a tensor of the gradient's shape and dtype"));
            }
            gradient = other;
        }
    }
    Ok(gradient)
}
