//! What a deferred recording has besides its graph, and who runs its segments.

use crate::device::{Shared, Storage, WeakShared};
use crate::error::{Error, Reason, Result};
use crate::ir::Graph;
use crate::runtime::Array;
use std::collections::HashMap;
use std::sync::Arc;

/// Runs segments.
pub trait Runner: Send + Sync {
    /// The outputs of a graph. They lie in memory of their own: none shares any with another one or with an input.
    ///
    /// # Errors
    /// What the calls in it would have returned.
    fn run(&self, segment: Graph, inputs: &[&Array]) -> Result<Vec<Array>>;
}

/// What a deferred recording has besides its graph.
pub(super) struct Deferral {
    pub(super) runner: Arc<dyn Runner>,
    /// Why segments ended, but for the last.
    pub(super) breaks: Vec<Reason>,
    /// Whether a value was read.
    pub(super) has_read: bool,
    /// Elements of segments that were run, by the address of the storage that stood for theirs.
    pub(super) filled: HashMap<usize, (WeakShared<Storage>, Shared<Storage>)>,
    /// What a segment failed with; its values are lost.
    pub(super) failed: Option<Error>,
    /// Whether all calls of a function so far are recorded, and none was run.
    pub(super) is_whole: bool,
    /// Whether a call was recorded for gradients.
    pub(super) has_gradients: bool,
}

impl Deferral {
    pub(super) fn new(runner: Arc<dyn Runner>, is_whole: bool) -> Deferral {
        let (breaks, filled) = (Vec::new(), HashMap::new());
        Deferral { runner, breaks, has_read: false, filled, failed: None, is_whole, has_gradients: false }
    }

    /// Whether the recording may still become a trace.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether plain numbers are inputs: behind a read they may depend on what was read.
    pub(super) fn lifts_numbers(&self) -> bool {
        self.has_read
    }
}
