//! What a compiled function runs for inputs of some types.

use super::program::Program;
use crate::error::{Error, Reason};

/// What runs for inputs of some types.
pub(super) enum Entry {
    /// Runs a compiled graph.
    Graph(Box<Program>),
    /// Runs the original function eagerly, for this reason.
    Eager(Reason),
    /// Runs the function in segments, for this reason.
    Deferred(Reason),
    /// Runs nothing: every call returns this error.
    Refused(Error),
}
