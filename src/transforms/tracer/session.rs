//! The current recording of a thread.

use crate::error::Reason;
use crate::transforms::tracer::recording::Recording;
use std::cell::RefCell;

thread_local! {
    pub(super) static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
    /// The graph break of the last recording, if it ended by an error or a panic.
    pub(super) static BREAK: RefCell<Option<Reason>> = const { RefCell::new(None) };
}

/// The graph break of the last trace of this thread, if it ended by an error or a panic of the function.
pub fn take_break() -> Option<Reason> {
    BREAK.take()
}

/// Whether this thread makes a deferred recording.
pub(super) fn is_deferred() -> bool {
    with_recording(|recording| recording.is_deferred()).unwrap_or(false)
}

/// Calls `work` with the current recording, if there is one.
pub(super) fn with_recording<T>(work: impl FnOnce(&mut Recording) -> T) -> Option<T> {
    RECORDING.with_borrow_mut(|recording| recording.as_mut().map(work))
}

/// Ends the recording when dropped, even by a panic.
pub(super) struct Session;

impl Drop for Session {
    fn drop(&mut self) {
        let Some(mut recording) = RECORDING.take() else { return };
        if !recording.is_deferred() {
            recording.uncount_writes();
        }
        for (tensor, required) in recording.requirements.iter().rev() {
            tensor.autograd_or_new().set_requires_grad(*required);
        }
        for change in &recording.gradients {
            if recording.is_deferred() {
                change.restore_lost();
                continue;
            }
            change.leaf.put_gradient(change.kept.as_ref());
        }
        BREAK.set(recording.broken);
    }
}

/// Removes the recording while something runs eagerly.
pub(super) struct Paused(pub(super) Option<Recording>);

impl Paused {
    pub(super) fn new() -> Paused {
        Paused(RECORDING.take())
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        RECORDING.set(self.0.take());
    }
}
