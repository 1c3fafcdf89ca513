//! Makes the data of a report from the pipeline's results.

use super::{Decision, Edge, Explain, Group, GroupKind, NodeReport, Source};
use crate::compile::calibration::{Calibration, calibration};
use crate::compile::pipeline::Built;
use crate::error::Reason;
use crate::fusion::cost::CostModel;
use crate::fusion::role::{Role, role};
use crate::fusion::{self, EdgeDecision, Step, StepKind};
use crate::ir::{Graph, NodeId, Op};
use crate::runtime::Traffic;
use std::time::Duration;

impl Explain {
    /// The report of a function that is not compiled.
    pub fn eager(reason: Reason) -> Explain {
        Explain { eager: Some(reason), ..Explain::empty() }
    }

    /// A report that says nothing yet.
    pub(super) fn empty() -> Explain {
        Explain {
            kernels_before: 0,
            kernels_after: 0,
            bytes_before: 0,
            bytes_after: 0,
            peak_bytes: 0,
            groups: Vec::new(),
            copies: Vec::new(),
            nodes: Vec::new(),
            edges: Vec::new(),
            outputs: Vec::new(),
            eager: None,
            calibration: calibration().clone(),
            replay: None,
            passes: Vec::new(),
            merges: Vec::new(),
            plan_time: Duration::ZERO,
            compile_time: Duration::ZERO,
            changing_numbers: 0,
            calls: Vec::new(),
            segments: Vec::new(),
            other_segments: 0,
            backward: None,
        }
    }

    /// The report of a built graph.
    pub fn of(built: &Built) -> Explain {
        let graph = &built.graph;
        let computed =
            |node: NodeId| matches!(role(graph, node), Role::Loop | Role::Product | Role::Parts | Role::Routine);
        let single: Vec<NodeId> = graph.nodes().map(|(id, _)| id).filter(|&id| computed(id)).collect();
        let groups = groups(built);
        let mut nodes: Vec<NodeReport> = graph
            .nodes()
            .map(|(id, node)| NodeReport {
                id,
                node: node.clone(),
                role: role(graph, id),
                source: source(built, id),
                place: built.place(id).cloned(),
                group: None,
            })
            .collect();
        for group in &groups {
            for &node in &group.nodes {
                nodes[node.index()].group = Some(group.index);
            }
        }
        Explain {
            kernels_before: single.len(),
            kernels_after: groups.len(),
            bytes_before: single.iter().map(|&node| bytes_alone(graph, node)).sum(),
            bytes_after: groups.iter().map(|group| group.bytes_read + group.bytes_written).sum(),
            peak_bytes: built.executable.peak_bytes(),
            groups,
            copies: Vec::new(),
            nodes,
            edges: built.plan.edges.iter().map(edge).collect(),
            outputs: graph.outputs().to_vec(),
            eager: None,
            calibration: Calibration::of(built.rates),
            replay: built.executable.replay(),
            passes: built.passes.clone(),
            merges: built.merges.clone(),
            plan_time: built.plan_time,
            compile_time: built.compile_time,
            changing_numbers: 0,
            calls: Vec::new(),
            segments: Vec::new(),
            other_segments: 0,
            backward: None,
        }
    }
}

fn edge(edge: &EdgeDecision) -> Edge {
    let decision = match &edge.decision {
        fusion::Decision::Fused => Decision::Fused { bytes: edge.bytes },
        fusion::Decision::Kept(reason) => {
            Decision::Kept { reason: reason.clone(), bytes: edge.bytes, hint: reason.hint() }
        }
    };
    Edge { producer: edge.producer, consumer: edge.consumer, decision }
}

fn source(built: &Built, id: NodeId) -> Option<Source> {
    built.graph[id].op()?;
    let node = built.graph.origin(id)?;
    built.traced[node].op().map(|op| Source { node, op })
}

/// The bytes that an op moves when it runs alone. A gather reads the elements that it picks.
fn bytes_alone(graph: &Graph, node: NodeId) -> usize {
    let own = graph[node].ty.bytes();
    let gathers = graph[node].op().is_some_and(Op::is_gather);
    let mut args: Vec<NodeId> = graph[node].args.to_vec();
    let source = if gathers { Some(args.remove(0)) } else { None };
    args.sort_unstable();
    args.dedup();
    let read: usize = args.iter().map(|&arg| graph[arg].ty.bytes()).sum();
    read + source.map_or(0, |source| graph[source].ty.bytes().min(own)) + own
}

fn groups(built: &Built) -> Vec<Group> {
    let graph = &built.graph;
    let cost = CostModel::new(graph, built.rates);
    let mut launches = built.executable.launches_by_kernel().peekable();
    let declined = built.executable.declined_on_device();
    let choices = built.executable.choices_on_device();
    let mut groups = Vec::new();
    for step in &built.plan.steps {
        let kind = match &step.kind {
            StepKind::Alias => continue,
            StepKind::Kernel(_) => GroupKind::Kernel,
            StepKind::Product => GroupKind::Product,
            StepKind::Parts(_) => GroupKind::Parts,
            StepKind::Blocks(_) => GroupKind::Blocks,
            StepKind::Routine => GroupKind::Routine,
        };
        let mut group = empty(built, groups.len(), kind, step);
        group.modelled_time = Duration::from_nanos(cost.unit(step) as u64);
        group.operations = step.nodes.iter().map(|&node| cost.arithmetic(node).0).sum();
        while let Some((_, launch)) = launches.next_if(|(kernel, _)| *kernel == group.index) {
            // A result of the prologue is not an input of the group.
            let is_own = |node: &&NodeId| step.nodes.contains(node);
            group.inputs.extend(launch.lowered.operands.iter().flatten().filter(|node| !is_own(node)));
            let entry = &launch.code.now().entry;
            group.tier = Some(entry.compiled.tier());
            group.tier_up = group.tier_up.or_else(|| launch.code.tier_up());
            group.declined = group.declined.or_else(|| entry.declined.clone());
            group.compile_time += entry.compile_time;
            group.code += &launch.lowered.kernel.to_string();
        }
        if matches!(kind, GroupKind::Product | GroupKind::Routine | GroupKind::Blocks) {
            group.inputs = from_outside(graph, &step.nodes);
        }
        if let Some(device) = built.executable.device() {
            let why = declined.iter().find(|(kernel, _)| *kernel == group.index).map(|(_, reason)| reason.clone());
            if why.is_none() {
                (group.tier, group.device) = (None, Some(device));
            }
            (group.declined, group.tier_up) = (why, None);
            for (_, choice) in choices.iter().filter(|(kernel, _)| *kernel == group.index) {
                group.remarks.extend(choice.remark());
                group.declined = group.declined.or_else(|| choice.declined().cloned());
            }
        }
        group.inputs.sort_unstable();
        group.inputs.dedup();
        groups.push(group);
    }
    for (kernel, place) in &built.executable.in_place {
        groups[*kernel].in_place = Some(place.from);
    }
    for Traffic { kernel, read, written } in built.executable.traffic() {
        (groups[kernel].bytes_read, groups[kernel].bytes_written) = (read, written);
        if groups[kernel].in_place.is_some() && groups[kernel].kind != GroupKind::Kernel {
            // The cost of the step includes copies that it would make elsewhere.
            let nanos = f64::from(built.rates.launch) + cost.moving(read + written);
            groups[kernel].modelled_time = Duration::from_nanos(nanos as u64);
        }
    }
    groups
}

/// The values that nodes, if computed together, read from memory.
fn from_outside(graph: &Graph, nodes: &[NodeId]) -> Vec<NodeId> {
    let is_read = |arg: &NodeId| !nodes.contains(arg) && role(graph, *arg) != Role::Inline;
    let mut read: Vec<NodeId> = nodes.iter().flat_map(|&node| &graph[node].args).copied().filter(is_read).collect();
    read.sort_unstable();
    read.dedup();
    read
}

fn empty(built: &Built, index: usize, kind: GroupKind, step: &Step) -> Group {
    let mut sources: Vec<Source> = step.nodes.iter().filter_map(|&node| source(built, node)).collect();
    sources.sort_unstable_by_key(|source| source.node);
    sources.dedup();
    Group {
        index,
        kind,
        nodes: step.nodes.clone(),
        inputs: Vec::new(),
        outputs: step.outputs.clone(),
        sources,
        tier: None,
        device: None,
        tier_up: None,
        declined: None,
        remarks: Vec::new(),
        in_place: None,
        bytes_read: 0,
        bytes_written: 0,
        operations: 0.0,
        modelled_time: Duration::ZERO,
        measured: None,
        compile_time: Duration::ZERO,
        code: String::new(),
    }
}
