//! The gradients that leaves had before a call: a trace that is made after the call begins with them.

use crate::error::NotCaptured;
use crate::tensor::handle::Tensor;
use crate::transforms::tracer::condition::GradientType;
use std::cell::RefCell;
use std::collections::HashMap;

/// What a leaf had before; of a gradient that cannot be an input, why.
pub(super) type Before = Option<std::result::Result<GradientType, NotCaptured>>;

/// The gradients that leaves had before a call, by the numbers of the leaves.
#[derive(Clone, Default)]
pub struct GradientsBefore(pub(super) HashMap<u64, Before>);

thread_local! {
    pub(super) static WATCHED: RefCell<Option<GradientsBefore>> = const { RefCell::new(None) };
}

/// Notes what gradients are before they are touched, as long as it lives; made by [`watch_gradients`].
#[must_use = "gradients are watched only while it lives"]
pub struct GradientWatch {
    around: Option<GradientsBefore>,
}

/// Notes what gradients were before something on this thread touched them.
pub fn watch_gradients() -> GradientWatch {
    // A library that cannot be loaded is the error of every call.
    let _ = crate::dispatch::load();
    GradientWatch { around: WATCHED.replace(Some(GradientsBefore::default())) }
}

impl GradientWatch {
    /// What was noted.
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

/// What a leaf has now.
pub(super) fn before(leaf: &Tensor) -> Before {
    leaf.gradient().map(|gradient| GradientType::of(&gradient))
}
