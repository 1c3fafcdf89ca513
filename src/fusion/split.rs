//! Splitting: replaces steps of a plan by smaller ones.
//!
//! The cost model decides about merges. A measurement, or a kernel that no tier compiles, may show that a step was
//! merged wrongly. The other steps of the plan do not change.

use super::partition::{Decision, Options};
use super::plan::{Plan, Step, StepKind, decide, in_order};
use super::region::{Region, Value};
use super::unit::{Unit, UnitId, UnitKind};
use super::units::Units;
use crate::error::Reason;
use crate::ir::{Graph, NodeId};
use std::collections::{BTreeSet, HashMap};

/// How far a step is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// By one level. Blocks of rows become products and kernels. A kernel becomes base groups. A base group becomes two
    /// kernels: what is computed for few elements or more than once, and the rest.
    Base,
    /// To single ops.
    Ops,
}

/// Splits the steps of `plan` that `reasons` has, each for its reason. `plan` was made of `graph` with `options`.
pub fn split(graph: &Graph, options: &Options, plan: &Plan, parts: Parts, reasons: &HashMap<usize, Reason>) -> Plan {
    let mut units = Units::base(graph, &Options { opt_level: 0, ..*options });
    let base = Units::base(graph, options);
    for (index, step) in plan.steps.iter().enumerate() {
        match (&step.kind, reasons.contains_key(&index), parts) {
            (_, false, _) => put(&mut units, step.clone()),
            (_, true, Parts::Ops) => {}
            (StepKind::Blocks(blocks), true, Parts::Base) => {
                for member in &blocks.members {
                    let kind = member.region.clone().map_or(UnitKind::Product, UnitKind::Kernel);
                    put(&mut units, Unit { kind, nodes: member.nodes.clone(), outputs: member.outputs.clone() });
                }
            }
            (StepKind::Kernel(region), true, Parts::Base) if base_groups(&base, step) == [step.nodes.clone()] => {
                cut(&mut units, step, region);
            }
            (_, true, Parts::Base) => {
                for nodes in base_groups(&base, step) {
                    if let Some(group) = base.unit_of[nodes[0]] {
                        put(&mut units, base.unit(group).clone());
                    }
                }
            }
        }
    }
    let mut step_of: HashMap<NodeId, usize> = HashMap::new();
    for (index, step) in plan.steps.iter().enumerate() {
        step_of.extend(step.nodes.iter().map(|&node| (node, index)));
    }
    let decisions: HashMap<(NodeId, NodeId), &Decision> =
        plan.edges.iter().map(|edge| ((edge.producer, edge.consumer), &edge.decision)).collect();
    let edges = decide(graph, &units, |producer, consumer| match decisions.get(&(producer, consumer)) {
        Some(Decision::Kept(reason)) => reason.clone(),
        Some(Decision::Fused) | None => {
            let step = step_of.get(&consumer);
            step.and_then(|step| reasons.get(step)).cloned().unwrap_or(Reason::Disabled)
        }
    });
    Plan { steps: in_order(units), edges, rewritten: Vec::new() }.writing_over(graph, plan.rewritten.clone())
}

/// The nodes of each base group that is entirely in a step.
fn base_groups(base: &Units<'_>, step: &Step) -> Vec<Vec<NodeId>> {
    let groups: BTreeSet<UnitId> = step.nodes.iter().filter_map(|&node| base.unit_of[node]).collect();
    let nodes = groups.into_iter().map(|group| base.unit(group).nodes.clone());
    nodes.filter(|nodes| nodes.iter().all(|node| step.nodes.contains(node))).collect()
}

/// Splits a base group in two. The first part has the nodes that have few elements or are computed at several index
/// maps, if all they depend on is in it. The second part is the rest. If one is empty, the group is not split.
fn cut(units: &mut Units<'_>, step: &Step, region: &Region) {
    let (graph, nodes) = (units.graph, &step.nodes);
    let most = nodes.iter().map(|&node| graph[node].ty.numel()).max().unwrap_or(0);
    let mut times: HashMap<NodeId, usize> = HashMap::new();
    for value in region.values.entities() {
        if let Value::Body(node, _) = value {
            *times.entry(*node).or_default() += 1;
        }
    }
    let mut first: Vec<NodeId> = Vec::new();
    for &node in nodes {
        let is_ready = |arg: &NodeId| !nodes.contains(arg) || first.contains(arg);
        let is_small = graph[node].ty.numel() < most || times.get(&node).is_some_and(|&times| times > 1);
        if is_small && graph[node].args.iter().all(is_ready) {
            first.push(node);
        }
    }
    let second: Vec<NodeId> = nodes.iter().copied().filter(|node| !first.contains(node)).collect();
    if first.is_empty() || second.is_empty() {
        return put(units, step.clone());
    }
    let parts = [first, second].map(|nodes| units.region(&nodes).map(|(region, outputs)| (nodes, region, outputs)));
    match parts {
        [Ok(first), Ok(second)] => {
            for (nodes, region, outputs) in [first, second] {
                put(units, Unit { kind: UnitKind::Kernel(Box::new(region)), nodes, outputs });
            }
        }
        [_, _] => put(units, step.clone()),
    }
}

/// Replaces the units of its nodes by `unit`. These units have no other nodes.
fn put(units: &mut Units<'_>, unit: Unit) {
    let mut place = None;
    for &node in &unit.nodes {
        if let Some(old) = units.unit_of[node] {
            units.units[old] = None;
            place = place.max(Some(old));
        }
    }
    let Some(place) = place else { return };
    for &node in &unit.nodes {
        units.unit_of[node] = Some(place);
    }
    units.units[place] = Some(unit);
}
