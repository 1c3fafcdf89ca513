//! Piecewise merging: merges elementwise kernels into concatenations and overlays.
//!
//! A concatenation reads the results of its producers, and its users read its result again. Both can be computed box by
//! box instead ([`super::parts`]). A producer is merged if its only user is in the unit. A user is merged if it is the
//! only one, and reads the result at the same elements. Kernels with folds are not merged.

use super::parts::place_parts;
use super::refusals::Refusals;
use super::role::{Role, role};
use super::union::accept;
use super::unit::{Unit, UnitId, UnitKind};
use super::units::Units;
use crate::error::Reason;
use crate::ir::NodeId;

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
    for producer in units.predecessors(unit) {
        if is_elementwise(units, producer) && is_used_only_by(units, producer, unit) {
            match union(units, producer, unit) {
                Ok(merged) => {
                    accept(units, producer, unit, merged, refusals);
                    return Some(unit);
                }
                Err(reason) => refusals.insert(producer, unit, reason),
            }
        }
    }
    let mut users: Vec<UnitId> = units.successors(unit).collect();
    users.sort_unstable();
    users.dedup();
    let &[user] = &users[..] else { return None };
    if !is_elementwise(units, user) || units.leaves_and_returns(&[unit, user]) {
        return None;
    }
    match union(units, unit, user) {
        Ok(merged) => {
            accept(units, unit, user, merged, refusals);
            Some(user)
        }
        Err(reason) => {
            refusals.insert(unit, user, reason);
            None
        }
    }
}

/// Whether a unit is a kernel without folds.
fn is_elementwise(units: &Units<'_>, unit: UnitId) -> bool {
    units.unit(unit).region().is_some_and(|region| !region.has_folds())
}

fn is_used_only_by(units: &Units<'_>, producer: UnitId, unit: UnitId) -> bool {
    let outputs = &units.unit(producer).outputs;
    let inside = |user: &NodeId| units.unit_of[*user] == Some(unit);
    outputs.iter().all(|&output| !units.is_output[output] && units.users[output].iter().all(inside))
}

fn union(units: &Units<'_>, first: UnitId, second: UnitId) -> Result<Unit, Reason> {
    let (a, b) = (units.unit(first), units.unit(second));
    let mut nodes: Vec<_> = a.nodes.iter().chain(&b.nodes).copied().collect();
    nodes.sort_unstable();
    if nodes.len() > units.max_nodes {
        return Err(Reason::GroupTooLarge);
    }
    let graph = units.graph;
    let of_parts = |node: &&NodeId| role(graph, **node) == Role::Parts;
    let whole = *nodes.iter().find(of_parts).expect("one of the two is piecewise");
    let outputs = units.outputs_of(&nodes);
    let contains = |node| nodes.binary_search(&node).is_ok();
    let regions = place_parts(graph, &contains, whole, &outputs)?;
    let merged = Unit { kind: UnitKind::Parts(regions), nodes, outputs };
    units.pays(&merged, first, second)?;
    Ok(merged)
}
