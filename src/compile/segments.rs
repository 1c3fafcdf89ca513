//! The segments of a compiled function: what its deferred calls ran, by what they computed.
//!
//! A segment is found by its graph, so two calls share one exactly if they computed the same; concurrent first runs
//! compile it once. There is room for a number of them, the one used longest ago going first. A function whose segments
//! differ at every call gains nothing: after a while it is told to run eagerly.

use super::explain::Explain;
use super::lru::Lru;
use super::options::CompileOptions;
use super::separation::Separation;
use super::tuning::{Settings, Tuned};
use crate::debug;
use crate::error::{NotCaptured, Reason, Result};
use crate::ir::Graph;
use crate::runtime::Array;
use crate::transforms::tracer::Owner;
use crate::transforms::tracer::Runner;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Segments that are kept per set of input types.
const PER_ENTRY: usize = 8;

/// A miss counts as much as so many hits.
const COST_OF_MISS: usize = 4;

/// The function runs eagerly once misses outweigh hits by so much.
const PATIENCE: usize = 64 * COST_OF_MISS;

/// The segments that a compiled function keeps.
pub(super) struct Segments {
    settings: Settings,
    capacity: usize,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_graph: Lru<Graph, Arc<Place>>,
    /// How much misses outweigh hits.
    balance: usize,
    n_compiled: u64,
}

/// Where a segment is, once it is compiled.
type Place = OnceLock<Result<Segment>>;

struct Segment {
    tuned: Tuned,
    separation: Separation,
}

impl Segments {
    pub(super) fn new(options: &CompileOptions) -> Segments {
        let capacity = options.capacity.saturating_mul(PER_ENTRY).max(1);
        Segments { settings: Settings::of(options), capacity, known: Mutex::default() }
    }

    /// Why running the function in segments is not worth it, if it turned out so.
    pub(super) fn hopeless(&self) -> Option<Reason> {
        (self.lock().balance > PATIENCE).then(|| NotCaptured::SegmentsDiffer.into())
    }

    /// How many are held, and how many were compiled so far.
    pub(super) fn counts(&self) -> (usize, u64) {
        let known = self.lock();
        (known.by_graph.len(), known.n_compiled)
    }

    /// The reports of all that are held, those used last first.
    pub(super) fn explain(&self) -> Vec<Explain> {
        let places: Vec<Arc<Place>> =
            self.lock().by_graph.by_use().into_iter().map(|(_, place)| place.clone()).collect();
        let built = places.iter().filter_map(|place| place.get()?.as_ref().ok());
        built.map(|segment| Explain::of(segment.tuned.built())).collect()
    }

    fn place(&self, graph: &Graph) -> Arc<Place> {
        let mut known = self.lock();
        if let Some(place) = known.by_graph.get(graph).cloned() {
            known.balance = known.balance.saturating_sub(1);
            return place;
        }
        known.balance += COST_OF_MISS;
        known.n_compiled += 1;
        let place = Arc::new(Place::new());
        known.by_graph.put(graph.clone(), place.clone(), self.capacity);
        place
    }

    fn build(&self, graph: Graph) -> Result<Segment> {
        let owners: Vec<Owner> = (0..graph.outputs().len()).map(Owner::Output).collect();
        let tuned = Tuned::build(graph, Vec::new(), &self.settings)?;
        let built = tuned.built();
        if debug::explains() {
            debug::print(&Explain::of(built).to_string());
        }
        Ok(Segment { separation: Separation::of(&built.graph, &owners), tuned })
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Each change is one step.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runner for Segments {
    fn run(&self, graph: Graph, inputs: &[&Array]) -> Result<Vec<Array>> {
        let place = self.place(&graph);
        let segment = place.get_or_init(|| self.build(graph)).as_ref().map_err(Clone::clone)?;
        let mut results = segment.tuned.run(inputs)?.into_vec();
        segment.separation.apply(&mut results)?;
        Ok(results)
    }
}
