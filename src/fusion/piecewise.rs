//! Piecewise merging: merges elementwise kernels into concatenations and overlays.
//!
//! A concatenation reads the results of its producers, and its users read its result again. Both can be computed box by
//! box instead ([`super::parts`]). A producer is merged if its only user is in the unit. A user is merged if it is the
//! only one, and reads the result at the same elements. Kernels with folds are not merged.
//!
//! A kernel that computes all operands of a concatenation, with folds or without, may write the result itself
//! ([`super::concatenation`]). That comes first, unless a user may be merged.
//!
//! Several piecewise values, such as the neighbours of a stencil by `roll`, are one unit. It has a kernel for each box
//! in which every value is one operand. A concatenation may be made of another one, through views, as where a matrix is
//! rolled along both dims. An overlay may not: it hides elements, whose computation may fail, and it may be in place.

use super::concatenation;
use super::parts::{place_chain, place_parts};
use super::refusals::Refusals;
use super::role::{Role, role};
use super::union::accept;
use super::unit::{Unit, UnitId, UnitKind};
use super::units::Units;
use crate::error::Reason;
use crate::ir::{Graph, Meaning, NodeId};

/// Merges producers and users into every piecewise unit. Returns whether it merged any.
pub(super) fn merge(units: &mut Units<'_>, refusals: &mut Refusals) -> bool {
    let mut has_merged = false;
    for unit in units.units.ids() {
        let mut at = unit;
        while is_piecewise(units, at) {
            let Some(next) = merge_one(units, at, refusals) else { break };
            at = next;
            has_merged = true;
        }
    }
    has_merged
}

fn is_piecewise(units: &Units<'_>, unit: UnitId) -> bool {
    units.units[unit].as_ref().is_some_and(|unit| matches!(unit.kind, UnitKind::Parts(_)))
}

/// Merges one neighbour into a unit. Returns the merged unit.
fn merge_one(units: &mut Units<'_>, unit: UnitId, refusals: &mut Refusals) -> Option<UnitId> {
    let mut users: Vec<UnitId> = units.successors(unit).collect();
    users.sort_unstable();
    users.dedup();
    let user = if let &[user] = &users[..] { Some(user).filter(|&user| may_join(units, user)) } else { None };
    if user.is_none()
        && let Some(merged) = write_directly(units, unit, refusals)
    {
        return Some(merged);
    }
    for producer in units.predecessors(unit) {
        if may_join(units, producer) && is_used_only_by(units, producer, unit) {
            match union(units, producer, unit) {
                Ok(merged) => {
                    accept(units, producer, unit, merged, refusals);
                    return Some(unit);
                }
                Err(reason) => refusals.insert(producer, unit, reason),
            }
        }
    }
    if let Some((producer, merged)) = chained(units, unit) {
        accept(units, producer, unit, merged, refusals);
        return Some(unit);
    }
    let user = user?;
    if !units.leaves_and_returns(&[unit, user]) {
        match union(units, unit, user) {
            Ok(merged) => {
                accept(units, unit, user, merged, refusals);
                return Some(user);
            }
            Err(reason) => refusals.insert(unit, user, reason),
        }
    }
    write_directly(units, unit, refusals)
}

/// Merges a concatenation into the kernel that computes all of its operands.
fn write_directly(units: &mut Units<'_>, unit: UnitId, refusals: &mut Refusals) -> Option<UnitId> {
    let (producer, merged) = concatenation::written_directly(units, unit)?;
    accept(units, producer, unit, merged, refusals);
    Some(unit)
}

/// Whether a unit is a kernel without folds, or piecewise.
fn may_join(units: &Units<'_>, unit: UnitId) -> bool {
    is_piecewise(units, unit) || units.unit(unit).region().is_some_and(|region| !region.has_folds())
}

fn is_used_only_by(units: &Units<'_>, producer: UnitId, unit: UnitId) -> bool {
    let outputs = &units.unit(producer).outputs;
    let inside = |user: &NodeId| units.unit_of[*user] == Some(unit);
    outputs.iter().all(|&output| !units.is_output[output] && units.users[output].iter().all(inside))
}

/// A unit of concatenations whose results are read by this one alone, through views, and the union of both.
fn chained(units: &Units<'_>, unit: UnitId) -> Option<(UnitId, Unit)> {
    let args = units.unit(unit).nodes.iter().flat_map(|&node| &units.graph[node].args);
    let chains: Vec<(Vec<NodeId>, UnitId)> = args
        .map(|&arg| units.views(arg))
        .filter_map(|(views, node)| Some((views, units.unit_of[node]?)))
        .filter(|(views, producer)| !views.is_empty() && *producer != unit && is_piecewise(units, *producer))
        .collect();
    let mut producers: Vec<UnitId> = chains.iter().map(|&(_, producer)| producer).collect();
    producers.sort_unstable();
    producers.dedup();
    producers.into_iter().find_map(|producer| {
        let of_producer = chains.iter().filter(|(_, other)| *other == producer);
        let mut views: Vec<NodeId> = of_producer.flat_map(|(views, _)| views).copied().collect();
        views.sort_unstable();
        views.dedup();
        let inside = |user: &NodeId| units.unit_of[*user] == Some(unit) || views.contains(user);
        let mut read = units.unit(producer).outputs.iter().chain(&views);
        let is_read_inside = read.all(|&node| !units.is_output[node] && units.users[node].iter().all(inside));
        let merged = is_read_inside.then(|| union_with(units, producer, unit, &views).ok())??;
        Some((producer, merged))
    })
}

fn union(units: &Units<'_>, first: UnitId, second: UnitId) -> Result<Unit, Reason> {
    union_with(units, first, second, &[])
}

/// The union of two units, at least one of them piecewise, and of views between the two.
fn union_with(units: &Units<'_>, first: UnitId, second: UnitId, views: &[NodeId]) -> Result<Unit, Reason> {
    let (a, b) = (units.unit(first), units.unit(second));
    let mut nodes: Vec<_> = a.nodes.iter().chain(&b.nodes).chain(views).copied().collect();
    nodes.sort_unstable();
    if nodes.len() > units.max_nodes {
        return Err(Reason::GroupTooLarge);
    }
    let graph = units.graph;
    let of_parts = |node: &NodeId| role(graph, *node) == Role::Parts;
    let parts: Vec<NodeId> = nodes.iter().copied().filter(of_parts).collect();
    let outputs = units.outputs_of(&nodes);
    let contains = |node| nodes.binary_search(&node).is_ok();
    let is_joined = |node: &NodeId| graph[*node].op().is_some_and(|op| matches!(op.row().meaning, Meaning::Concat));
    let regions = if parts.len() > 1 && has_chain(graph, &nodes, &parts) {
        if !parts.iter().all(is_joined) {
            return Err(Reason::MovesElements);
        }
        place_chain(graph, &contains, &parts, &outputs)?
    } else {
        if parts.windows(2).any(|two| graph[two[0]].ty.sizes != graph[two[1]].ty.sizes) {
            return Err(Reason::DifferentRows);
        }
        place_parts(graph, &contains, &parts, &outputs)?
    };
    let merged = Unit { kind: UnitKind::Parts(regions), nodes, outputs };
    units.pays(&merged, first, second)?;
    Ok(merged)
}

/// Whether one of `parts` is made of another, through any of these nodes, which are sorted.
fn has_chain(graph: &Graph, nodes: &[NodeId], parts: &[NodeId]) -> bool {
    // Operands come before users.
    let mut made_of_parts = vec![false; nodes.len()];
    for (at, &node) in nodes.iter().enumerate() {
        let is_made = |arg: &NodeId| nodes.binary_search(arg).is_ok_and(|at| made_of_parts[at]);
        let reads = graph[node].args.iter().any(is_made);
        let is_part = parts.contains(&node);
        if is_part && reads {
            return true;
        }
        made_of_parts[at] = is_part || reads;
    }
    false
}
