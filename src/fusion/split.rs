//! Splitting: plans whose steps are taken apart again.
//!
//! The model decides what is merged; a measurement, or a kernel that no tier compiles, may prove it wrong for a step.
//! The rest of the plan stays as it is.

use super::partition::{Decision, Options};
use super::plan::{Plan, Step, StepKind, decide, in_order};
use super::units::{Unit, UnitKind, Units};
use crate::error::Reason;
use crate::ir::{Graph, NodeId};
use std::collections::HashMap;

/// How far a step is taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// A group in blocks into its products and kernels, a kernel into base groups.
    Base,
    /// Into single ops.
    Ops,
}

/// `plan`, made of `graph` with `options`, with some steps taken apart, each for a reason.
pub fn split(graph: &Graph, options: &Options, plan: &Plan, parts: Parts, reasons: &HashMap<usize, Reason>) -> Plan {
    let single = Options { opt_level: 0, ..*options };
    let mut units = Units::base(graph, if parts == Parts::Base { options } else { &single });
    for (index, step) in plan.steps.iter().enumerate() {
        match (&step.kind, reasons.contains_key(&index), parts) {
            (_, false, _) => put(&mut units, unit(step)),
            (StepKind::Blocks(blocks), true, Parts::Base) => {
                for member in &blocks.members {
                    let kind = member.region.clone().map_or(UnitKind::Product, UnitKind::Kernel);
                    put(&mut units, Unit { kind, nodes: member.nodes.clone(), outputs: member.outputs.clone() });
                }
            }
            (_, true, _) => {}
        }
    }
    let mut step_of: HashMap<NodeId, usize> = HashMap::new();
    for (index, step) in plan.steps.iter().enumerate() {
        step_of.extend(step.nodes.iter().map(|&node| (node, index)));
    }
    let known: HashMap<(NodeId, NodeId), &Decision> =
        plan.edges.iter().map(|edge| ((edge.producer, edge.consumer), &edge.decision)).collect();
    let edges = decide(graph, &units, |producer, consumer| match known.get(&(producer, consumer)) {
        Some(Decision::Kept(reason)) => reason.clone(),
        Some(Decision::Fused) | None => {
            let step = step_of.get(&consumer);
            step.and_then(|step| reasons.get(step)).cloned().unwrap_or(Reason::Disabled)
        }
    });
    Plan { steps: in_order(units), edges }
}

fn unit(step: &Step) -> Unit {
    let kind = match &step.kind {
        StepKind::Kernel(region) => UnitKind::Kernel(region.clone()),
        StepKind::Alias => UnitKind::Alias,
        StepKind::Product => UnitKind::Product,
        StepKind::Parts(regions) => UnitKind::Parts(regions.clone()),
        StepKind::Routine => UnitKind::Routine,
        StepKind::Blocks(blocks) => UnitKind::Blocks(blocks.clone()),
    };
    Unit { kind, nodes: step.nodes.clone(), outputs: step.outputs.clone() }
}

/// Puts a unit in the place of those that its nodes are in: they are in no other one.
fn put(units: &mut Units<'_>, unit: Unit) {
    let mut place = None;
    for &node in &unit.nodes {
        if let Some(old) = units.unit_of[node] {
            units.units[old as usize] = None;
            place = place.max(Some(old));
        }
    }
    let Some(place) = place else { return };
    for &node in &unit.nodes {
        units.unit_of[node] = Some(place);
    }
    units.units[place as usize] = Some(unit);
}
