//! The state of deferred recordings, and the trait that runs their segments.

use crate::device::{Shared, Storage, WeakShared};
use crate::error::{Error, Reason, Result};
use crate::ir::Graph;
use crate::profile::Place;
use crate::runtime::Array;
use std::collections::HashMap;
use std::sync::Arc;

/// What ended a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentEnd {
    /// Why the graph broke.
    pub reason: Reason,
    /// Where in the program the call stands that broke it, if that is known.
    pub place: Option<Place>,
}

/// A segment about to run.
#[derive(Clone, Copy)]
pub struct DeferredSegment<'a> {
    /// Its calls.
    pub graph: &'a Graph,
    /// The inputs of the graph.
    pub inputs: &'a [&'a Array],
    /// The inputs that are overwritten after the run. Their new values are the outputs from `first_written` on.
    pub written: &'a [usize],
    /// The output that is the new value of the first written input.
    pub first_written: usize,
    /// What ended it, unless it is the last one.
    pub end: Option<&'a SegmentEnd>,
}

/// Runs segments of deferred calls.
pub trait Runner: Send + Sync {
    /// Runs a graph and returns its outputs. Each output has memory of its own, which no other output or input shares.
    ///
    /// # Errors
    /// The error that a call of the segment would return if it ran eagerly.
    fn run(&self, segment: DeferredSegment<'_>) -> Result<Vec<Array>>;
}

/// The state of a deferred recording.
pub(super) struct Deferral {
    pub(super) runner: Arc<dyn Runner>,
    /// What ended each segment, except the last.
    pub(super) breaks: Vec<SegmentEnd>,
    /// Whether a value was read.
    pub(super) has_read: bool,
    /// The computed elements, by the address of the storage without bytes that stands for them.
    pub(super) filled: HashMap<usize, (WeakShared<Storage>, Shared<Storage>)>,
    /// The error of a failed segment, whose values are lost.
    pub(super) failed: Option<Error>,
    /// Whether all calls of the function so far are recorded, and none was run.
    pub(super) is_whole: bool,
    /// Whether a call was recorded for gradients.
    pub(super) has_gradients: bool,
}

impl Deferral {
    pub(super) fn new(runner: Arc<dyn Runner>, is_whole: bool) -> Deferral {
        let (breaks, filled) = (Vec::new(), HashMap::new());
        Deferral { runner, breaks, has_read: false, filled, failed: None, is_whole, has_gradients: false }
    }

    /// Whether the recording can still become a trace.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether plain numbers become inputs. After a read they may depend on the value.
    pub(super) fn lifts_numbers(&self) -> bool {
        self.has_read
    }
}
