//! Whether functions that could compute values again in the backward pass keep them instead.
//!
//! Computing again adds to gradients of parameters on the way, which the backward pass of a graph cannot. So a function
//! whose backward pass is to be a graph is captured with its values kept.

use std::cell::Cell;

thread_local! {
    static KEEPS: Cell<bool> = const { Cell::new(false) };
}

/// Keeps values while it lives.
pub(crate) struct KeepsValues {
    before: bool,
}

/// Makes functions of this thread keep their values until the guard is dropped.
pub(crate) fn keep_values() -> KeepsValues {
    KeepsValues { before: KEEPS.replace(true) }
}

/// Whether a guard of [`keep_values`] lives.
pub(crate) fn keeps_values() -> bool {
    KEEPS.get()
}

impl Drop for KeepsValues {
    fn drop(&mut self) {
        KEEPS.set(self.before);
    }
}
