//! The cache of compiled segments, which deferred calls run.
//!
//! A segment is looked up by its graph, so two calls share one exactly if they computed the same. Concurrent first runs
//! compile it once. The cache has LRU eviction. A function whose segments differ at every call gains nothing, and after
//! a while runs eagerly.

use super::copies::{Writes, copies};
use super::explain::{Explain, SegmentReport};
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
use crate::transforms::tracer::{DeferredSegment, Runner, SegmentEnd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The number of segments per set of input types.
const PER_ENTRY: usize = 8;

/// One miss counts as many hits.
const COST_OF_MISS: usize = 4;

/// If misses outweigh hits by more than this, the function runs eagerly.
const MAX_BALANCE: usize = 64 * COST_OF_MISS;

/// The most segments of a call that are kept for its report.
const MOST_REPORTED: usize = 256;

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
    /// What the last call ran.
    last: RanSegments,
}

/// A segment, empty until it is compiled.
type LazySegment = OnceLock<Result<Segment>>;

struct Segment {
    tuned: Tuned,
    separation: Separation,
}

/// What a call ran, by first run. A segment that ends in the same way again is there once.
#[derive(Default)]
struct RanSegments {
    kept: Vec<Ran>,
    /// How often the call ran other segments, because there were too many to keep.
    others: u64,
}

/// A segment that a call ran, and what ended it.
struct Ran {
    segment: Arc<LazySegment>,
    /// The inputs that were overwritten, and the output that is the new value of the first one.
    written: (Vec<usize>, usize),
    end: Option<SegmentEnd>,
    runs: u64,
}

/// Runs the segments of one call.
pub(super) struct SegmentedCall {
    cache: Arc<Segments>,
    /// What ran so far.
    ran: Mutex<RanSegments>,
}

impl Segments {
    pub(super) fn new(options: &CompileOptions, function: &'static str) -> Segments {
        let capacity = options.capacity.saturating_mul(PER_ENTRY).max(1);
        let known = Known { by_graph: Lru::new(capacity), balance: 0, n_compiled: 0, last: RanSegments::default() };
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

    /// A runner for the segments of one call.
    pub(super) fn call(self: &Arc<Segments>) -> Arc<SegmentedCall> {
        Arc::new(SegmentedCall { cache: self.clone(), ran: Mutex::default() })
    }

    /// The report of the last call. `None` if it ran no segment.
    pub(super) fn explain_last(&self) -> Option<Explain> {
        let known = self.lock();
        let (mut segments, mut graphs) = (Vec::new(), Vec::new());
        let (mut plan_time, mut compile_time) = (Duration::ZERO, Duration::ZERO);
        for Ran { segment, written: (inputs, first), end, runs } in &known.last.kept {
            let Some(Ok(built)) = segment.get() else { continue };
            let copies = copies(built.tuned.built(), &built.separation, Writes { inputs, first: *first });
            let report = Box::new(built.tuned.explain().with_copies(copies));
            // Two segments may have one graph.
            if !graphs.contains(&built.tuned.id) {
                graphs.push(built.tuned.id);
                plan_time += report.plan_time;
                compile_time += report.compile_time;
            }
            segments.push(SegmentReport { runs: *runs, report, end: end.clone() });
        }
        Explain::of_segments(segments, known.last.others, [plan_time, compile_time])
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

impl SegmentedCall {
    /// Keeps what the call ran for its report.
    pub(super) fn end(&self) {
        let ran = std::mem::take(&mut *self.ran.lock().unwrap_or_else(PoisonError::into_inner));
        self.cache.lock().last = ran;
    }

    fn note(&self, segment: &Arc<LazySegment>, run: DeferredSegment<'_>) {
        let mut ran = self.ran.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |one: &&mut Ran| {
            let writes = (&one.written.0[..], one.written.1);
            Arc::ptr_eq(&one.segment, segment)
                && writes == (run.written, run.first_written)
                && one.end.as_ref() == run.end
        };
        let is_full = ran.kept.len() == MOST_REPORTED;
        match ran.kept.iter_mut().find(is_it) {
            Some(one) => one.runs += 1,
            None if is_full => ran.others += 1,
            None => {
                let written = (run.written.to_vec(), run.first_written);
                ran.kept.push(Ran { segment: segment.clone(), written, end: run.end.cloned(), runs: 1 });
            }
        }
    }
}

impl Runner for SegmentedCall {
    fn run(&self, run: DeferredSegment<'_>) -> Result<Vec<Array>> {
        let segment = self.cache.find(run.graph);
        self.note(&segment, run);
        let built = segment.get_or_init(|| self.cache.build(run.graph.clone())).as_ref().map_err(Clone::clone)?;
        let mut results = built.tuned.run(run.inputs)?.into_vec();
        built.separation.apply(&mut results)?;
        Ok(results)
    }
}
