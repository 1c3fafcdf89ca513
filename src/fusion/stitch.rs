//! Stitching: merges kernels along the edges between them.
//!
//! The base partition never fuses the result of a reduction with consumers over the same rows. Nor does it fuse a value
//! that has users in two groups. Both are fine in a kernel that has several folds over the same rows, and writes
//! several results. A merge is accepted under these conditions:
//!
//! - The union fits common loops ([`super::region`]).
//! - No path leaves the union and returns.
//! - Rows are not so few and long that threads would be idle ([`super::union`]).
//! - The union takes no longer than the two kernels ([`super::cost`]).
//!
//! Edges are tried in descending order of the time that they save, as in Kruskal's algorithm. Among equal ones the
//! order is that of their nodes, so planning is deterministic. Views on an edge must keep the order of elements.

use super::rates::Nanos;
use super::refusals::Refusals;
use super::role::same_elements;
use super::union::{accept, are_small_enough, union_with};
use super::unit::{Unit, UnitId, UnitKind};
use super::units::Units;
use crate::error::Reason;
use crate::ir::NodeId;

/// The most passes over all edges.
const MAX_PASSES: usize = 4;

/// Merges kernels along edges until no merge is possible, and records why for the edges that stay. Returns whether it
/// merged any.
///
/// There are several passes over the edges, because a merge may make another one possible.
pub(super) fn merge(units: &mut Units<'_>, refusals: &mut Refusals) -> bool {
    let edges = edges(units);
    let mut has_merged = false;
    for _ in 0..MAX_PASSES {
        let mut merged_any = false;
        for &Edge { producer, consumer, .. } in &edges {
            merged_any |= merge_ends(units, producer, consumer, refusals);
        }
        if !merged_any {
            break;
        }
        has_merged = true;
    }
    has_merged
}

/// An edge between two kernels.
struct Edge {
    saves: Nanos,
    consumer: NodeId,
    producer: NodeId,
}

/// The edges between kernels, in descending order of what they save.
fn edges(units: &Units<'_>) -> Vec<Edge> {
    let is_kernel = |unit: UnitId| matches!(units.unit(unit).kind, UnitKind::Kernel(_));
    let mut edges = Vec::new();
    for (consumer, node) in units.graph.nodes() {
        let Some(own) = units.unit_of[consumer].filter(|&own| is_kernel(own)) else { continue };
        for &arg in &node.args {
            // A consumer can compute the base of a view itself if the view keeps the order of all elements.
            let through = |arg: NodeId| same_elements(units.graph, arg).filter(|_| units.is_alias(arg));
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

/// Merges the kernels of two nodes, if they are different and can be one. Returns whether it did.
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

fn try_merge(units: &Units<'_>, producer: UnitId, consumer: UnitId) -> Result<Unit, Reason> {
    let views = views_between(units, producer, consumer);
    are_small_enough(units, producer, consumer, &views)?;
    // This check is cheaper than laying out the union, so it comes first.
    let members: Vec<UnitId> = [producer, consumer].into_iter().chain(views.iter().copied()).collect();
    if units.leaves_and_returns(&members) {
        return Err(Reason::WouldCycle);
    }
    let merged = union_with(units, producer, consumer, &views)?;
    units.pays(&merged, producer, consumer)?;
    Ok(merged)
}

/// The views of memory between `producer` and `consumer` that have no other readers and keep the order of all elements.
fn views_between(units: &Units<'_>, producer: UnitId, consumer: UnitId) -> Vec<UnitId> {
    let operands = units.unit(consumer).region().map_or(&[][..], |region| &region.operands[..]);
    let mut chains: Vec<Vec<NodeId>> = operands.iter().filter_map(|&view| chain_to(units, view, producer)).collect();
    // If a chain is dropped, those that share views with it are dropped too.
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
    let mut found: Vec<UnitId> = chains.iter().flatten().filter_map(|&view| units.unit_of[view]).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The chain of views from `view` to a result of `producer`, if all of them keep the order of all elements.
fn chain_to(units: &Units<'_>, view: NodeId, producer: UnitId) -> Option<Vec<NodeId>> {
    let (chain, node) = units.views(view);
    let reaches = !chain.is_empty() && units.unit_of[node] == Some(producer);
    (reaches && same_elements(units.graph, view) == Some(node)).then_some(chain)
}
