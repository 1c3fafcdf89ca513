//! Hooks: what a user wants done with a gradient when it is ready.

use crate::error::Result;
use crate::tensor::handle::Tensor;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sees a gradient, and may put another in its place.
pub(super) type HookFn = dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync;

/// A registered hook.
#[derive(Clone)]
pub(crate) struct Hook {
    id: u64,
    pub(super) function: Arc<HookFn>,
    /// Keeps the gradient for the user rather than changing it, so it comes after the others.
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

/// Names a registered hook, for [`Tensor::remove_hook`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookId(u64);

/// The gradient after all hooks, in the order they were registered.
pub(super) fn run(hooks: Vec<Hook>, mut gradient: Tensor) -> Result<Tensor> {
    let (keepers, changers): (Vec<Hook>, Vec<Hook>) = hooks.into_iter().partition(|hook| hook.retains);
    for hook in changers.iter().chain(&keepers) {
        if let Some(other) = (hook.function)(&gradient)? {
            gradient = other;
        }
    }
    Ok(gradient)
}
