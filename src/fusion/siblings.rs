//! Siblings: merges kernels that read the same memory, without an edge between them.
//!
//! Three sums over the rows of one matrix read it three times; one kernel with three folds reads it once. A merge is
//! accepted under these conditions:
//!
//! - The union fits common loops.
//! - There is no path between the two kernels.
//! - The shared bytes are a large enough part of all bytes that the two move.
//! - The union takes no longer than the two kernels.
//!
//! Each reader of a value is tried with the reader before it only, so planning is linear in the number of readers.

use super::refusals::Refusals;
use super::region::{Region, Walk};
use super::role::{Role, role};
use super::union::{accept, union};
use super::unit::{Unit, UnitId, UnitKind};
use super::units::Units;
use crate::ir::{Graph, NodeId};

/// The saved bytes must be at least one part in so many of all bytes that the two kernels move.
const SAVED_PART: usize = 8;

/// Merges siblings. Returns whether it merged any.
pub(super) fn merge(units: &mut Units<'_>, refusals: &mut Refusals) -> bool {
    let mut merged_any = false;
    for index in 0..units.graph.len() {
        let mut latest: Option<UnitId> = None;
        for reader in readers(units, NodeId::new(index)) {
            // An earlier merge may have absorbed it.
            if units.units[reader].is_none() || latest == Some(reader) {
                continue;
            }
            if let Some(sibling) = latest
                && let Some(merged) = try_merge(units, sibling, reader)
            {
                accept(units, sibling, reader, merged, refusals);
                merged_any = true;
            }
            latest = Some(reader);
        }
    }
    merged_any
}

/// The kernels that read a value from memory, directly or through views, in the order of their first nodes.
fn readers(units: &Units<'_>, node: NodeId) -> Vec<UnitId> {
    if matches!(role(units.graph, node), Role::Inline | Role::View) {
        return Vec::new();
    }
    let own = units.unit_of[node];
    let mut readers = Vec::new();
    let mut stack = vec![node];
    while let Some(value) = stack.pop() {
        for &user in &units.users[value] {
            match units.unit_of[user].map(|unit| (unit, &units.unit(unit).kind)) {
                Some((unit, UnitKind::Kernel(_))) if Some(unit) != own => readers.push(unit),
                Some((_, UnitKind::Alias)) => stack.push(user),
                Some((
                    _,
                    UnitKind::Kernel(_)
                    | UnitKind::Product
                    | UnitKind::Parts(_)
                    | UnitKind::Routine
                    | UnitKind::Blocks(_),
                ))
                | None => {}
            }
        }
    }
    readers.sort_unstable_by_key(|&unit| (units.unit(unit).nodes[0], unit));
    readers.dedup();
    readers
}

fn try_merge(units: &Units<'_>, a: UnitId, b: UnitId) -> Option<Unit> {
    let (first, second) = (units.unit(a).region()?, units.unit(b).region()?);
    let graph = units.graph;
    let total = bytes(graph, first) + bytes(graph, second);
    if shared(graph, first, second) * SAVED_PART < total {
        return None;
    }
    if !units.are_independent(a, b) {
        return None;
    }
    let merged = union(units, a, b).ok()?;
    units.pays(&merged, a, b).ok()?;
    Some(merged)
}

/// Bytes that a kernel moves, each memory once.
fn bytes(graph: &Graph, region: &Region) -> usize {
    let written: usize = region.outputs.iter().map(|(_, walk)| graph[walk.node].ty.bytes()).sum();
    sources(region).iter().map(|&node| graph[node].ty.bytes()).sum::<usize>() + written
}

/// Bytes of the memory that both read.
fn shared(graph: &Graph, a: &Region, b: &Region) -> usize {
    let others = sources(b);
    sources(a).iter().filter(|node| others.contains(node)).map(|&node| graph[node].ty.bytes()).sum()
}

/// The nodes that a kernel reads from memory, without those that it gathers from.
fn sources(region: &Region) -> Vec<NodeId> {
    let whole = |walk: &&Walk| walk.gather.is_none() && walk.strides.iter().any(|&stride| stride != 0);
    let mut nodes: Vec<NodeId> = region.loads.entities().filter(whole).map(|walk| walk.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}
