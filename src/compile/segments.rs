//! The cache of compiled segments, which deferred calls run.
//!
//! A segment is looked up by its graph, so two calls share one exactly if they computed the same. Concurrent first runs
//! compile it once. The cache has LRU eviction. A function whose segments differ at every call gains nothing, and after
//! a while runs eagerly.

use super::explain::Explain;
use super::options::CompileOptions;
use super::passes_page::Subject;
use super::separation::Separation;
use super::tuning::{Settings, Tuned};
use crate::debug;
use crate::error::{NotCaptured, Reason, Result};
use crate::ir::Graph;
use crate::lru::Lru;
use crate::runtime::Array;
use crate::transforms::tracer::Owner;
use crate::transforms::tracer::Runner;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The number of segments per set of input types.
const PER_ENTRY: usize = 8;

/// One miss counts as many hits.
const COST_OF_MISS: usize = 4;

/// If misses outweigh hits by more than this, the function runs eagerly.
const MAX_BALANCE: usize = 64 * COST_OF_MISS;

/// The cached segments of a compiled function.
pub(super) struct Segments {
    settings: Settings,
    known: Mutex<Known>,
}

struct Known {
    by_graph: Lru<Graph, Arc<LazySegment>>,
    /// How much misses outweigh hits so far.
    balance: usize,
    n_compiled: u64,
}

/// A segment, empty until it is compiled.
type LazySegment = OnceLock<Result<Segment>>;

struct Segment {
    tuned: Tuned,
    separation: Separation,
}

impl Segments {
    pub(super) fn new(options: &CompileOptions, function: &'static str) -> Segments {
        let capacity = options.capacity.saturating_mul(PER_ENTRY).max(1);
        let known = Known { by_graph: Lru::new(capacity), balance: 0, n_compiled: 0 };
        Segments { settings: Settings::of(options, function), known: Mutex::new(known) }
    }

    /// Why the function should no longer run in segments, if that does not pay.
    pub(super) fn reason_to_stop(&self) -> Option<Reason> {
        (self.lock().balance > MAX_BALANCE).then(|| NotCaptured::SegmentsDiffer.into())
    }

    /// The number of cached segments, and of those compiled so far.
    pub(super) fn counts(&self) -> (usize, u64) {
        let known = self.lock();
        (known.by_graph.len(), known.n_compiled)
    }

    /// The reports of all cached segments, the most recently used first.
    pub(super) fn explain(&self) -> Vec<Explain> {
        let segments: Vec<Arc<LazySegment>> =
            self.lock().by_graph.by_use().map(|(_, segment)| segment.clone()).collect();
        let built = segments.iter().filter_map(|segment| segment.get()?.as_ref().ok());
        built.map(|segment| segment.tuned.explain()).collect()
    }

    fn find(&self, graph: &Graph) -> Arc<LazySegment> {
        let mut known = self.lock();
        if let Some(segment) = known.by_graph.get(graph).cloned() {
            known.balance = known.balance.saturating_sub(1);
            return segment;
        }
        known.balance += COST_OF_MISS;
        known.n_compiled += 1;
        let segment = Arc::new(LazySegment::new());
        known.by_graph.put(graph.clone(), segment.clone());
        segment
    }

    fn build(&self, graph: Graph) -> Result<Segment> {
        let owners: Vec<Owner> = (0..graph.outputs().len()).map(Owner::Output).collect();
        let tuned = Tuned::build(graph, Subject::Segment, Vec::new(), &self.settings)?;
        let built = tuned.built();
        if debug::explains() {
            debug::print(&Explain::of(built).to_string());
        }
        Ok(Segment { separation: Separation::of(&built.graph, &owners, &[]), tuned })
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // No change has a half-made state, so a panic does no harm.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runner for Segments {
    fn run(&self, graph: &Graph, inputs: &[&Array]) -> Result<Vec<Array>> {
        let segment = self.find(graph);
        let segment = segment.get_or_init(|| self.build(graph.clone())).as_ref().map_err(Clone::clone)?;
        let mut results = segment.tuned.run(inputs)?.into_vec();
        segment.separation.apply(&mut results)?;
        Ok(results)
    }
}
