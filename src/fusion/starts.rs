//! How long it takes to start rows, runs of rows, and instructions of the vm.

use super::along_rows::{goes_along_rows, merged_columns, sweeps};
use super::rates::Nanos;
use super::region::{Region, Value, Walk};
use crate::ir::{Graph, Meaning, NodeId};
use smallvec::SmallVec;

/// How long it takes to start the rows of a kernel whose loops are kept in their order, if they are short: a kernel of
/// its own would take a longer loop for its vectors.
pub(super) fn short_rows(region: &Region) -> Nanos {
    let (runs, run) = runs(region);
    if run < SHORT_ROW { runs as Nanos * ROW_START } else { 0.0 }
}

/// How often the loops start their longest run of neighbours, and its length.
fn runs(region: &Region) -> (usize, usize) {
    let loops: SmallVec<[usize; 6]> = region.rows.iter().chain(&region.inner).copied().collect();
    let walks = || region.loads.entities().chain(region.outputs.iter().map(|(_, walk)| walk));
    let (before, run) = loops.split_at(first_of_run(&loops, walks));
    (before.iter().product(), run.iter().product())
}

/// The first of the last loops that are one run, because every walk goes through them as one.
fn first_of_run<'w, W: Iterator<Item = &'w Walk>>(loops: &[usize], walks: impl Fn() -> W) -> usize {
    let mut first = loops.len().saturating_sub(1);
    let follows = |at: usize, walk: &Walk| walk.strides[at - 1] == loops[at] * walk.strides[at];
    while first > 0 && walks().all(|walk| follows(first, walk)) {
        first -= 1;
    }
    first
}

/// How long machine code takes to start the rows of a kernel: runs of neighbours, or folded rows. Short ones are
/// transposed in vectors instead.
///
/// `picks` tells that elements are read at indices.
pub(super) fn rows(region: &Region, picks: bool) -> Nanos {
    if !region.has_folds() {
        return runs(region).0 as Nanos * if picks { GATHERED_RUN } else { PLAIN_RUN };
    }
    if goes_along_rows(region) {
        return 0.0;
    }
    let [rows, row] = [&region.rows, &region.inner].map(|loops| loops.iter().product::<usize>());
    if row < TRANSPOSED_ROW { (rows * row) as Nanos * TRANSPOSED } else { rows as Nanos * FOLDED_ROW }
}

/// How long it takes to start rows and instructions in a fold:
///
/// - along runs of rows, where memory goes along these and not along the fold. Machine code starts each run of each
///   element, and the vm each instruction there;
/// - for elements at indices along the fold, which the vm takes one by one.
pub(super) fn calls(region: &Region) -> Nanos {
    if !region.has_folds() || region.rows.is_empty() || region.inner.is_empty() {
        return 0.0;
    }
    let (walks, along_rows) = (|| region.loads.entities(), goes_along_rows(region));
    let elements: usize = region.rows.iter().chain(&region.inner).product();
    let lanes: usize = region.rows[first_of_run(&region.rows, walks)..].iter().product();
    let merged = merged_columns(region);
    if along_rows && (lanes >= LEAST_LANES || merged.is_some()) {
        let run = merged.map_or(lanes, |columns| MERGED * columns).max(1);
        let sweeps = sweeps(region);
        let n_inner: usize = region.inner.iter().product();
        // One sweep is unrolled instead, if the fold is short.
        let n_combined = if sweeps > 1 && n_inner <= MOST_UNROLLED { elements / n_inner.max(1) * PARTIALS } else { 0 };
        return (elements / run * sweeps) as Nanos * RUN + n_combined as Nanos * COMBINED;
    }
    let at_indices = elements as Nanos * walks().filter(|walk| walk.gather.is_some()).count() as Nanos * GATHER;
    if !along_rows || lanes >= LONG_LANES {
        return at_indices;
    }
    let calls = region.values.iter().filter(|&(id, _)| region.is_full[id]).count() + 1;
    let per_call = if is_one_matrix(region) { lanes * MERGED } else { lanes };
    at_indices + (elements / per_call.max(1) * calls) as Nanos * CALL
}

/// How long it takes to combine the partial results of folds of indices along runs of rows. Short folds without values
/// per element are unrolled instead (`codegen::unroll`).
pub(super) fn indices(graph: &Graph, region: &Region) -> Nanos {
    let is_index = |node: NodeId| {
        let meaning = graph[node].op().map(|op| &op.row().meaning);
        matches!(meaning, Some(Meaning::Fold(combine)) if combine.is_index())
    };
    let folds = region.values.entities().filter(|value| matches!(value, Value::Fold(node, _) if is_index(*node)));
    let n_folds = folds.count();
    let is_written = region.outputs.iter().any(|(id, _)| region.is_full[*id]);
    let is_long = region.inner.iter().product::<usize>() > MOST_UNROLLED;
    if n_folds == 0 || !goes_along_rows(region) || !(is_written || is_long) {
        return 0.0;
    }
    let (outer, _) = region.rows.split_at(first_of_run(&region.rows, || region.loads.entities()));
    (outer.iter().product::<usize>() * n_folds) as Nanos * INDICES
}

/// Whether all memory goes along the rows, and then along the only inner loop, so that one instruction of the vm takes
/// several inner elements.
fn is_one_matrix(region: &Region) -> bool {
    let n_rows = region.rows.len();
    let follows = |walk: &Walk| {
        let (rows, inner) = walk.strides.split_at(n_rows);
        // The loop that runs fastest comes first.
        let sizes = region.rows.iter().rev().chain(&region.inner);
        let mut expected = 1;
        let is_dense = sizes.zip(rows.iter().rev().chain(inner)).all(|(&size, &stride)| {
            let holds = stride == expected;
            expected = size.saturating_mul(expected);
            holds
        });
        is_dense || walk.strides.iter().all(|&stride| stride == 0)
    };
    region.inner.len() == 1 && region.loads.entities().all(follows)
}

/// How long machine code takes to start a row in blocks of rows.
const ROW_START: Nanos = 7.0;
/// Rows of fewer elements are short.
const SHORT_ROW: usize = 8;
/// How long machine code takes to start a run of neighbours without a fold, and one whose elements are at indices.
const PLAIN_RUN: Nanos = 0.6;
const GATHERED_RUN: Nanos = 5.0;
/// How long machine code takes to start a row that is folded. Shorter rows are transposed, each element in this time.
const FOLDED_ROW: Nanos = 5.0;
pub(super) const TRANSPOSED_ROW: usize = 16;
const TRANSPOSED: Nanos = 0.1;
/// How long the vm takes to start an instruction along rows (`python/benches/torch_compile.py --functions --models
/// "outer sums"`), and for an element at an index in a fold; and machine code to start a run of rows
/// (`cargo bench --bench cost_model`).
const CALL: Nanos = 15.0;
const GATHER: Nanos = 1.0;
const RUN: Nanos = 2.0;
/// The partial results of a row, and how long machine code takes to write one and to combine it with another.
const PARTIALS: usize = 32;
const COMBINED: Nanos = 0.1;
/// How long machine code takes to combine the partial results of a fold of indices, for a run of few rows
/// (`python/benches/torch_compile.py --other-functions --models viterbi`).
const INDICES: Nanos = 400.0;
/// Most elements of a fold that is unrolled: windows of 7 by 7 have 49.
pub const MOST_UNROLLED: usize = 64;
/// The inner elements that run at a time, if memory allows.
const MERGED: usize = 32;
/// Runs of fewer rows do not fill vectors of machine code.
const LEAST_LANES: usize = 16;
/// Runs of so many rows take longer to compute than to start.
const LONG_LANES: usize = 512;
