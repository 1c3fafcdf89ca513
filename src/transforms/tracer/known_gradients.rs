//! The gradients that leaves had before a call. A trace that is made after the call starts from them.

use crate::error::NotCaptured;
use crate::tensor::handle::Tensor;
use crate::transforms::tracer::condition::GradientType;
use std::cell::RefCell;
use std::collections::HashMap;

/// The gradient before a call: none, its type, or why it cannot be an input.
pub(super) type Before = Option<std::result::Result<GradientType, NotCaptured>>;

/// The gradients that leaves had before a call, by the id of the leaf.
#[derive(Clone, Default)]
pub struct GradientsBefore(pub(super) HashMap<u64, Before>);

thread_local! {
    pub(super) static WATCHED: RefCell<Option<GradientsBefore>> = const { RefCell::new(None) };
}

/// Records gradients before they change, until it is dropped. Made by [`watch_gradients`].
#[must_use = "gradients are watched only while it lives"]
pub struct GradientWatch {
    around: Option<GradientsBefore>,
}

/// Starts to record the gradients of this thread before they change.
pub fn watch_gradients() -> GradientWatch {
    // If loading fails, every call returns the error.
    let _ = crate::dispatch::load();
    GradientWatch { around: WATCHED.replace(Some(GradientsBefore::default())) }
}

impl GradientWatch {
    /// The recorded gradients.
    pub fn end(self) -> GradientsBefore {
        WATCHED.with_borrow(Clone::clone).unwrap_or_default()
    }
}

impl Drop for GradientWatch {
    fn drop(&mut self) {
        let seen = WATCHED.replace(self.around.take());
        WATCHED.with_borrow_mut(|around| {
            if let (Some(GradientsBefore(around)), Some(GradientsBefore(seen))) = (around, seen) {
                seen.into_iter().for_each(|(leaf, before)| {
                    around.entry(leaf).or_insert(before);
                });
            }
        });
    }
}

/// The current gradient of a leaf.
pub(super) fn before(leaf: &Tensor) -> Before {
    leaf.gradient().map(|gradient| GradientType::of(&gradient))
}
