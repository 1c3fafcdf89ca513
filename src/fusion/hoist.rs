//! Hoisting: computes values that depend on few of a kernel's loops once, and not in every iteration of the other
//! loops.
//!
//! For example, batch normalization takes the root of a variance per channel, and uses it for every element of a batch.
//! Code tiers hoist values that do not depend on the innermost loop. This file hoists values that depend on the
//! innermost loop, but not on some loops around it. They get a kernel of their own before the main one, the *prologue*.
//! It writes them to memory that is small enough to stay in a cache.

use super::region::{LoadId, Region, Value, ValueId, Walk};
use super::work::{NodeWork, Work};
use crate::ir::entity::Arena;
use crate::ir::shape::Sizes;
use crate::ir::{NodeId, SideTable};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// The most bytes of hoisted values.
const MAX_BYTES: usize = 256 << 10;
/// The least number of times that a hoisted value would be computed otherwise.
const MIN_TURNS: usize = 8;
/// The number of plain instructions that cost as much as a read from a cache.
const MIN_WORK: f64 = 8.0;
/// The number of plain instructions that a function counts as.
const FUNCTION: f64 = 12.0;

/// A kernel in two parts.
#[derive(Debug)]
pub struct Hoisted {
    /// The region that runs first.
    pub prologue: Region,
    /// The region that reads its results.
    pub main: Region,
    /// The values between the two, and their sizes: row-major over the loops of the prologue.
    pub between: Vec<(NodeId, Sizes)>,
}

/// The loops that each value of a region depends on, as a bit set with rows first.
pub(super) fn loops_of_values(region: &Region) -> SideTable<ValueId, u64> {
    let n_rows = region.rows.len();
    let walked = |walk: &Walk| {
        let bits = walk.strides.iter().enumerate().filter(|&(_, &stride)| stride != 0);
        bits.fold(0u64, |bits, (index, _)| bits | 1 << index)
    };
    let mut loops: SideTable<ValueId, u64> = SideTable::new();
    for value in region.values.entities() {
        loops.push(match value {
            Value::Load(load) | Value::Position(load, _) => walked(&region.loads[*load]),
            Value::Gather(load, at) => walked(&region.loads[*load]) | loops[*at],
            Value::Number(..) | Value::Extent(_) => 0,
            Value::Body(_, args) => args.iter().fold(0, |bits, &arg| bits | loops[arg]),
            // A fold has one value per row.
            Value::Fold(_, value) => loops[*value] & ((1 << n_rows) - 1) | FOLD,
        });
    }
    loops
}

/// The bit of values that depend on a fold.
const FOLD: u64 = 1 << 63;

/// Whether a region has more than one op. A single op has to be computed for each element.
pub fn may_hoist(region: &Region) -> bool {
    region.values.entities().filter(|value| matches!(value, Value::Body(..))).nth(1).is_some()
}

/// The product of the sizes of some loops.
pub(super) fn elements(region: &Region, loops: u64) -> usize {
    let sizes = region.rows.iter().chain(&region.inner).enumerate();
    sizes.filter(|(index, _)| loops >> index & 1 == 1).map(|(_, &size)| size).product()
}

/// The values of a region that are worth hoisting.
pub(super) struct Candidates {
    /// The loops of the prologue.
    loops: u64,
    /// The values that the main kernel reads.
    roots: Vec<ValueId>,
    /// For each value, whether it is a root or one depends on it.
    cone: SideTable<ValueId, bool>,
}

impl Candidates {
    /// The candidates of a region, if there are any.
    pub(super) fn of(node_work: &NodeWork, region: &Region) -> Option<Candidates> {
        let sizes: SmallVec<[usize; 6]> = region.rows.iter().chain(&region.inner).copied().collect();
        let total: usize = sizes.iter().product();
        if !may_hoist(region) || sizes.len() < 2 || sizes.len() > 32 || total == 0 {
            return None;
        }
        let loops = loops_of_values(region);
        let innermost = 1u64 << (sizes.len() - 1);
        let is_small = |value: ValueId| {
            let own = loops[value];
            own & FOLD == 0 && own & innermost != 0 && elements(region, own).saturating_mul(MIN_TURNS) <= total
        };
        let work = |value: ValueId| match &region.values[value] {
            Value::Body(node, _) => Candidates::instructions(node_work[*node]),
            Value::Gather(..) => Work::PICK.plain,
            Value::Load(_) | Value::Number(..) | Value::Position(..) | Value::Extent(_) | Value::Fold(..) => 0.0,
        };
        // The set of loops that saves most. Nearly always there is only one.
        let mut best: Option<(f64, Candidates)> = None;
        let small = region.values.ids().filter(|&value| is_small(value));
        let mut masks: Vec<u64> = small.map(|value| loops[value]).collect();
        masks.sort_unstable();
        masks.dedup();
        for mask in masks {
            let roots = roots(region, &loops, mask);
            let cone = cone(region, &roots);
            let instructions: f64 = region.values.ids().filter(|&value| cone[value]).map(work).sum();
            if roots.is_empty() || instructions < MIN_WORK * roots.len() as f64 {
                continue;
            }
            let saved = instructions * (total - elements(region, mask)) as f64;
            if best.as_ref().is_none_or(|(most, _)| saved > *most) {
                best = Some((saved, Candidates { loops: mask, roots, cone }));
            }
        }
        let (_, found) = best?;
        let bytes = found.roots.len() * elements(region, found.loops) * size_of::<f64>();
        (bytes <= MAX_BYTES).then_some(found)
    }

    fn instructions(work: Work) -> f64 {
        work.plain + FUNCTION * work.functions
    }

    /// Whether a value is computed in the prologue.
    pub(super) fn contains(&self, value: ValueId) -> bool {
        self.cone[value]
    }

    /// The number of elements of the prologue.
    pub(super) fn elements(&self, region: &Region) -> usize {
        elements(region, self.loops)
    }
}

/// The pointwise values over exactly the loops `mask` that values over other loops read, one per node.
fn roots(region: &Region, loops: &SideTable<ValueId, u64>, mask: u64) -> Vec<ValueId> {
    let mut roots: Vec<ValueId> = Vec::new();
    let mut take = |value: ValueId| {
        if let Value::Body(node, _) = region.values[value]
            && loops[value] == mask
            && !roots.contains(&value)
            && region.outputs.iter().all(|(_, walk)| walk.node != node)
        {
            // A node that is computed at two maps has only one place in memory, and an output has its own.
            let is_same = |&other: &ValueId| matches!(region.values[other], Value::Body(root, _) if root == node);
            if !roots.iter().any(is_same) {
                roots.push(value);
            }
        }
    };
    for (_, value) in region.values.iter().filter(|&(user, _)| loops[user] != mask) {
        match value {
            Value::Body(_, args) => args.iter().for_each(|&arg| take(arg)),
            Value::Gather(_, at) => take(*at),
            Value::Fold(_, folded) => take(*folded),
            Value::Load(_) | Value::Number(..) | Value::Position(..) | Value::Extent(_) => {}
        }
    }
    roots.sort_unstable();
    roots
}

/// For each value, whether it is one of the roots or one depends on it.
fn cone(region: &Region, roots: &[ValueId]) -> SideTable<ValueId, bool> {
    let mut cone = SideTable::with_len(region.values.len(), || false);
    roots.iter().for_each(|&root| cone[root] = true);
    for value in region.values.ids().rev() {
        if cone[value] {
            args(&region.values[value], |arg| cone[arg] = true);
        }
    }
    cone
}

fn args(value: &Value, mut each: impl FnMut(ValueId)) {
    match value {
        Value::Body(_, args) => args.iter().for_each(|&arg| each(arg)),
        Value::Gather(_, at) => each(*at),
        Value::Fold(_, folded) => each(*folded),
        Value::Load(_) | Value::Number(..) | Value::Position(..) | Value::Extent(_) => {}
    }
}

/// Splits a region into a prologue and the main region, if there is anything worth hoisting.
pub fn hoist(node_work: &NodeWork, region: &Region) -> Option<Hoisted> {
    let found = Candidates::of(node_work, region)?;
    let sizes: SmallVec<[usize; 6]> = region.rows.iter().chain(&region.inner).copied().collect();
    let kept: SmallVec<[usize; 6]> = (0..sizes.len()).filter(|index| found.loops >> index & 1 == 1).collect();
    let own: Sizes = kept.iter().map(|&index| sizes[index]).collect();
    let row_major: SmallVec<[usize; 6]> = (0..own.len()).map(|index| own[index + 1..].iter().product()).collect();
    let node_of = |root: ValueId| match region.values[root] {
        Value::Body(node, _) => node,
        _ => unreachable!("roots are pointwise"),
    };

    let mut prologue = Copy::new(region);
    prologue.region.rows = own.clone();
    for value in region.values.ids().filter(|&value| found.cone[value]) {
        prologue.take(value, |walk| kept.iter().map(|&index| walk.strides[index]).collect());
    }
    for &root in &found.roots {
        let walk = Walk { node: node_of(root), strides: row_major.clone(), base: 0, gather: None };
        let value = prologue.new_of[root].expect("the cone has its roots");
        prologue.region.outputs.push((value, walk));
    }
    prologue.region.is_full = SideTable::with_len(prologue.region.values.len(), || true);

    let mut main = Copy::new(region);
    (main.region.rows, main.region.inner) = (region.rows.clone(), region.inner.clone());
    let needed = needed(region, &found.roots);
    for value in region.values.ids().filter(|&value| needed[value]) {
        if found.roots.contains(&value) {
            let mut strides = SmallVec::from_elem(0, sizes.len());
            kept.iter().zip(&row_major).for_each(|(&index, &stride)| strides[index] = stride);
            main.load(value, Walk { node: node_of(value), strides, base: 0, gather: None });
        } else {
            main.take(value, |walk| walk.strides.clone());
        }
        main.region.is_full.push(region.is_full[value]);
    }
    let outputs = region
        .outputs
        .iter()
        .map(|(value, walk)| (main.new_of[*value].expect("what is written is needed"), walk.clone()));
    main.region.outputs = outputs.collect();
    let between = found.roots.iter().map(|&root| (node_of(root), own.clone())).collect();
    Some(Hoisted { prologue: prologue.finish(), main: main.finish(), between })
}

/// For each value, whether the outputs depend on it, without what only the roots depend on.
fn needed(region: &Region, roots: &[ValueId]) -> SideTable<ValueId, bool> {
    let mut needed = SideTable::with_len(region.values.len(), || false);
    region.outputs.iter().for_each(|(value, _)| needed[*value] = true);
    for value in region.values.ids().rev() {
        if needed[value] && !roots.contains(&value) {
            args(&region.values[value], |arg| needed[arg] = true);
        }
    }
    needed
}

/// A part of a region that is being copied.
struct Copy<'r> {
    from: &'r Region,
    region: Region,
    new_of: SideTable<ValueId, Option<ValueId>>,
}

impl<'r> Copy<'r> {
    fn new(from: &'r Region) -> Copy<'r> {
        Copy { from, region: Region::default(), new_of: SideTable::with_len(from.values.len(), || None) }
    }

    /// Collects the nodes that the region reads from memory, and returns the region.
    fn finish(mut self) -> Region {
        let read = self.region.values.entities().filter_map(|value| match value {
            Value::Load(load) | Value::Gather(load, _) => Some(self.region.loads[*load].node),
            Value::Number(..) | Value::Body(..) | Value::Fold(..) | Value::Position(..) | Value::Extent(_) => None,
        });
        let nodes: BTreeSet<NodeId> = read.collect();
        self.region.operands = nodes.into_iter().collect();
        self.region
    }

    fn load(&mut self, value: ValueId, walk: Walk) {
        let load = self.region.loads.push(walk);
        self.push(value, Value::Load(load));
    }

    fn push(&mut self, old: ValueId, value: Value) {
        self.new_of[old] = Some(self.region.values.push(value));
    }

    /// Copies a value whose operands are copied already, with other strides of its walk.
    fn take(&mut self, value: ValueId, strides: impl Fn(&Walk) -> SmallVec<[usize; 6]>) {
        let new = |arg: &ValueId| self.new_of[*arg].expect("operands come first");
        let from = self.from;
        let walk = |load: LoadId, loads: &mut Arena<LoadId, Walk>| {
            let old = &from.loads[load];
            loads.push(Walk { strides: strides(old), ..old.clone() })
        };
        let copied = match &from.values[value] {
            Value::Load(load) => Value::Load(walk(*load, &mut self.region.loads)),
            Value::Number(number, dtype) => Value::Number(*number, *dtype),
            Value::Body(node, args) => Value::Body(*node, args.iter().map(new).collect()),
            Value::Fold(node, folded) => Value::Fold(*node, new(folded)),
            Value::Gather(load, at) => {
                let at = new(at);
                Value::Gather(walk(*load, &mut self.region.loads), at)
            }
            Value::Position(load, node) => Value::Position(walk(*load, &mut self.region.loads), *node),
            Value::Extent(load) => Value::Extent(walk(*load, &mut self.region.loads)),
        };
        self.push(value, copied);
    }
}
