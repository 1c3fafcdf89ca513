//! Stitching: merging kernels along the edges between them.
//!
//! The base partition never lets a reduction's result back into the rows it came from, nor a value with two uses into
//! either. Both are fine for a kernel that holds several folds over the same rows and writes several results. A
//! merge is accepted if the union fits common loops ([`super::region`]), if no path leaves the union and comes back, if it
//! leaves no thread idle, and if it takes no longer than the two apart ([`super::cost`]). Edges are tried in the order of
//! what they save, also those that lead through views of all elements in their order, as Kruskal's algorithm takes the edges of a spanning tree; equal ones in that of their nodes, so planning
//! is deterministic.

use super::cost::Nanos;
use super::order::{UnitOrder, contract, leaves_and_returns};
use super::region::{Region, Value};
use super::units::{Unit, UnitKind, Units};
use super::{blocks, horizontal, piecewise, siblings};
use crate::error::Reason;
use crate::ir::NodeId;
use rustc_hash::FxHashMap;

/// Most nodes of one kernel, unless the options say fewer.
pub const MAX_NODES: usize = 256;
/// How often all edges are tried at most.
const MAX_PASSES: usize = 4;
/// Rows that are longer than this, in elements, are only stitched if there are enough of them for every thread.
pub const LONG_ROW: usize = 32 * 1024;
/// Rows that are always enough.
pub const MANY_ROWS: usize = 16;

/// Why two units stayed apart, for the edges between them.
#[derive(Debug, Default)]
pub struct Refusals {
    reasons: FxHashMap<(u32, u32), Reason>,
    /// The pairs that each unit is part of, so that they are found when it changes.
    pairs: FxHashMap<u32, Vec<(u32, u32)>>,
    /// Why two nodes are not in one group of blocks.
    edges: FxHashMap<(NodeId, NodeId), Reason>,
}

impl Refusals {
    /// The reason why `producer` was not merged into `consumer`, if that was tried.
    pub fn get(&self, producer: u32, consumer: u32) -> Option<&Reason> {
        self.reasons.get(&(producer, consumer))
    }

    /// The reason why two nodes are not in one group of blocks, if one of them is in such a group or is a product.
    pub fn edge(&self, producer: NodeId, consumer: NodeId) -> Option<&Reason> {
        self.edges.get(&(producer, consumer))
    }

    pub(super) fn insert_edge(&mut self, producer: NodeId, consumer: NodeId, reason: &Reason) {
        self.edges.entry((producer, consumer)).or_insert_with(|| reason.clone());
    }

    pub(super) fn insert(&mut self, producer: u32, consumer: u32, reason: Reason) {
        self.reasons.insert((producer, consumer), reason);
        for unit in [producer, consumer] {
            self.pairs.entry(unit).or_default().push((producer, consumer));
        }
    }

    /// Forgets everything about a unit that has changed: it is another partner for everyone now.
    fn forget(&mut self, unit: u32) {
        for pair in self.pairs.remove(&unit).unwrap_or_default() {
            self.reasons.remove(&pair);
        }
    }
}

/// Merges units until no edge between kernels can be removed, and kernels that read the same memory; says why for the
/// edges that stay.
pub fn stitch(units: &mut Units<'_>) -> Refusals {
    let mut refusals = Refusals::default();
    units.order = UnitOrder::of(units);
    merge_all(units, &mut refusals);
    if siblings::merge(units, &mut refusals) {
        // A kernel that has a sibling's results may now take in what reads both.
        merge_all(units, &mut refusals);
    }
    piecewise::merge(units, &mut refusals);
    blocks::merge(units, &mut refusals);
    horizontal::merge(units, &mut refusals);
    refusals
}

/// Tries edges in the order of the time that they save, those of the earliest nodes first among equals, over and over
/// until none can be merged: a merge may make room for one that was refused.
fn merge_all(units: &mut Units<'_>, refusals: &mut Refusals) {
    let edges = edges(units);
    for _ in 0..MAX_PASSES {
        let mut merged_any = false;
        for &Edge { producer, consumer, .. } in &edges {
            merged_any |= merge_ends(units, producer, consumer, refusals);
        }
        if !merged_any {
            break;
        }
    }
}

/// An edge between two kernels.
struct Edge {
    saves: Nanos,
    consumer: NodeId,
    producer: NodeId,
}

/// The edges between kernels, those first that save most.
fn edges(units: &Units<'_>) -> Vec<Edge> {
    let is_kernel = |unit: u32| matches!(units.unit(unit).kind, UnitKind::Kernel(_));
    let mut edges = Vec::new();
    for (consumer, node) in units.graph.nodes() {
        let Some(own) = units.unit_of[consumer].filter(|&own| is_kernel(own)) else { continue };
        for &arg in &node.args {
            // What is seen through a view of all elements in their order may be computed in the view's place.
            let through = |arg: NodeId| blocks::same_elements(units.graph, arg).filter(|_| units.is_alias(arg));
            let producer = through(arg).unwrap_or(arg);
            let Some(other) = units.unit_of[producer].filter(|&other| other != own && is_kernel(other)) else {
                continue;
            };
            let is_needed = |user: &NodeId| units.unit_of[*user].is_none_or(|of| of != own && of != other);
            let is_written = units.is_output[producer] || units.users[producer].iter().any(is_needed);
            let bytes = units.graph[producer].ty.bytes() * if is_written { 1 } else { 2 };
            edges.push(Edge { saves: units.cost.moving(bytes), consumer, producer });
        }
    }
    edges.sort_by(|a, b| b.saves.total_cmp(&a.saves).then((a.consumer, a.producer).cmp(&(b.consumer, b.producer))));
    edges
}

/// Merges the kernels of two nodes, if they are two and can be one; whether it did.
fn merge_ends(units: &mut Units<'_>, producer: NodeId, consumer: NodeId, refusals: &mut Refusals) -> bool {
    let Some((producer, consumer)) = units.unit_of[producer].zip(units.unit_of[consumer]) else { return false };
    if producer == consumer || refusals.get(producer, consumer).is_some() {
        return false;
    }
    match try_merge(units, producer, consumer) {
        Ok(merged) => {
            accept(units, producer, consumer, merged, refusals);
            true
        }
        Err(reason) => {
            refusals.insert(producer, consumer, reason);
            false
        }
    }
}

fn try_merge(units: &Units<'_>, producer: u32, consumer: u32) -> Result<Unit, Reason> {
    let views = views_between(units, producer, consumer);
    are_small_enough(units, producer, consumer, &views)?;
    // Before the union is laid out: that takes longer.
    let members: Vec<u32> = [producer, consumer].into_iter().chain(views.iter().copied()).collect();
    if leaves_and_returns(units, &members) {
        return Err(Reason::WouldCycle);
    }
    let merged = union_with(units, producer, consumer, &views)?;
    units.pays(&merged, producer, consumer)?;
    Ok(merged)
}

/// What is known of the union of two kernels without laying it out.
fn are_small_enough(units: &Units<'_>, a: u32, b: u32, views: &[u32]) -> Result<(), Reason> {
    let n_nodes = units.unit(a).nodes.len() + units.unit(b).nodes.len() + views.len();
    match () {
        () if n_nodes > units.max_nodes => Err(Reason::GroupTooLarge),
        () if units.are_too_many_arguments(a, b, views) => Err(Reason::TooManyArguments),
        () => Ok(()),
    }
}

/// The views of memory through which `consumer` alone sees what `producer` writes, all elements in their order.
fn views_between(units: &Units<'_>, producer: u32, consumer: u32) -> Vec<u32> {
    let operands = units.unit(consumer).region().map_or(&[][..], |region| &region.operands[..]);
    let mut chains: Vec<Vec<NodeId>> = operands.iter().filter_map(|&view| chain_to(units, view, producer)).collect();
    // A chain that ends in another one stays only if that one does.
    loop {
        let is_inside =
            |user: &NodeId| units.unit_of[*user] == Some(consumer) || chains.iter().any(|chain| chain.contains(user));
        let is_free = |view: &NodeId| !units.is_output[*view] && units.users[*view].iter().all(is_inside);
        let free: Vec<Vec<NodeId>> = chains.iter().filter(|chain| chain.iter().all(is_free)).cloned().collect();
        if free.len() == chains.len() {
            break;
        }
        chains = free;
    }
    let mut found: Vec<u32> = chains.iter().flatten().filter_map(|&view| units.unit_of[view]).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The views of memory from `view` to what `producer` writes, if it is seen through them with all elements in order.
fn chain_to(units: &Units<'_>, view: NodeId, producer: u32) -> Option<Vec<NodeId>> {
    let (mut node, mut chain) = (view, Vec::new());
    while units.is_alias(node) {
        chain.push(node);
        node = units.graph[node].args[0];
    }
    let reaches = !chain.is_empty() && units.unit_of[node] == Some(producer);
    (reaches && blocks::same_elements(units.graph, view) == Some(node)).then_some(chain)
}

/// Two kernels as one, whether or not paths lead around them.
pub(super) fn union(units: &Units<'_>, a: u32, b: u32) -> Result<Unit, Reason> {
    are_small_enough(units, a, b, &[])?;
    union_with(units, a, b, &[])
}

/// The same with views between the two.
fn union_with(units: &Units<'_>, a: u32, b: u32, views: &[u32]) -> Result<Unit, Reason> {
    let parts = [a, b].into_iter().chain(views.iter().copied());
    let mut nodes: Vec<NodeId> = parts.flat_map(|unit| units.unit(unit).nodes.iter().copied()).collect();
    // Sorted runs: the stable sort merges those.
    nodes.sort();
    let (region, outputs) = units.lay_out(&nodes)?;
    // What is stored per row need not follow from a fold over nothing, and a loop of no turns would never store it.
    if region.inner.contains(&0) && !region.rows.contains(&0) {
        return Err(Reason::DifferentRows);
    }
    if is_too_long(&region) {
        return Err(Reason::RowsTooLong);
    }
    Ok(Unit { kind: UnitKind::Kernel(Box::new(region)), nodes, outputs })
}

/// Few long rows with more than one pass: a row is one thread's work.
fn is_too_long(region: &Region) -> bool {
    let (rows, inner) = (region.rows.iter().product::<usize>(), region.inner.iter().product::<usize>());
    let is_fold = |value: &Value| matches!(value, Value::Fold(..));
    let full_output = region.outputs.iter().any(|(value, _)| region.is_full[*value]);
    let folds = region.values.iter().filter(|value| is_fold(value)).count();
    inner > LONG_ROW && rows < MANY_ROWS && folds > 0 && (full_output || folds > 1)
}

/// Puts the union of two units, and of views between them, in the place of the second, and forgets what was said of either.
pub(super) fn accept(units: &mut Units<'_>, producer: u32, consumer: u32, merged: Unit, refusals: &mut Refusals) {
    refusals.forget(producer);
    refusals.forget(consumer);
    let mut members: Vec<u32> = merged.nodes.iter().filter_map(|&node| units.unit_of[node]).collect();
    members.sort_unstable();
    members.dedup();
    contract(units, &members, consumer);
    members.iter().for_each(|&gone| units.units[gone as usize] = None);
    merged.nodes.iter().for_each(|&node| units.unit_of[node] = Some(consumer));
    units.units[consumer as usize] = Some(merged);
}
