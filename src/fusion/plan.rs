//! The plan of a graph: its kernels in order, and a decision with a reason for every edge.

use super::partition::{Decision, Options};
use super::refusals::Refusals;
use super::role::{Role, role};
use super::schedule::{Merge, merge_all};
use super::unit::UnitId;
use super::units::Units;
use crate::error::Reason;
use crate::ir::text::NodeText;
use crate::ir::{Graph, NodeId, Op, SideTable};
use std::collections::BTreeSet;
use std::fmt;

/// A step of a plan is a unit that is no longer merged.
pub use super::unit::{Unit as Step, UnitKind as StepKind};

/// An input that its caller overwrites with an output after a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// The input.
    pub input: usize,
    /// Its new value.
    pub output: usize,
    /// Outputs that the caller derives from the input, and whose value it does not read.
    pub ignored: Vec<usize>,
}

/// The name of the phase before the merge steps.
pub const PARTITION: &str = "partition";

/// The decision about the edge between two nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeDecision {
    /// The node whose value is used.
    pub producer: NodeId,
    /// The node that uses it.
    pub consumer: NodeId,
    /// Whether both are in one kernel, and if not, why.
    pub decision: Decision,
    /// The bytes that the value moves for this edge if its ends are in two kernels. They are those of the consumer's
    /// read, and those of the producer's write unless another reader needs it too. A kept edge costs that much, and a
    /// fused one saved it. Edges of one value may share a write, so the bytes of several edges do not add up.
    pub bytes: usize,
}

/// The steps of a graph in an order that respects every edge.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
    /// One decision per edge between computed nodes.
    pub edges: Vec<EdgeDecision>,
    /// The inputs whose memory is free for their new values.
    pub rewritten: Vec<Rewritten>,
}

/// Plans a verified, decomposed graph: base partition, then the merge steps of [`MERGES`](super::schedule::MERGES).
pub fn plan(graph: &Graph, options: &Options) -> Plan {
    plan_observed(graph, options, Vec::new(), &mut |_| {})
}

/// Like [`plan`], for a caller that overwrites some inputs with their new values. `after` is called with the name of
/// each phase that ran: `partition`, then those of the merge steps.
pub fn plan_observed(
    graph: &Graph,
    options: &Options,
    rewritten: Vec<Rewritten>,
    after: &mut dyn FnMut(&'static str),
) -> Plan {
    let mut units = Units::base(graph, options);
    units.renewed.extend(rewritten.iter().map(|one| graph.outputs()[one.output]));
    after(PARTITION);
    let refusals = match options.opt_level {
        0 => Refusals::default(),
        _ => merge_all(&mut units, &mut |merge: &Merge| after(merge.name)),
    };
    let edges = decide(graph, &units, |producer, consumer| reason(graph, &units, &refusals, producer, consumer));
    Plan { steps: in_order(units), edges, rewritten: Vec::new() }.writing_over(graph, rewritten)
}

/// A decision for every edge between computed nodes. `reason` gives the reason for an edge between two units.
pub(super) fn decide(graph: &Graph, units: &Units<'_>, reason: impl Fn(NodeId, NodeId) -> Reason) -> Vec<EdgeDecision> {
    let computed = |node: NodeId| !matches!(role(graph, node), Role::Input | Role::Inline | Role::View);
    let mut pairs = Vec::new();
    for (consumer, node) in graph.nodes().filter(|(id, _)| computed(*id)) {
        let producers: BTreeSet<NodeId> = node.args.iter().map(|&arg| graph.view_base(arg)).collect();
        pairs.extend(producers.into_iter().filter(|&producer| computed(producer)).map(|producer| (producer, consumer)));
    }
    let readers = readers(graph, units, &pairs);
    let decision = |(producer, consumer): (NodeId, NodeId)| {
        let (own, other) = (units.unit_of[producer], units.unit_of[consumer]);
        let decision = match own == other {
            true => Decision::Fused,
            false => Decision::Kept(reason(producer, consumer)),
        };
        let is_written_anyway = readers[producer].iter().any(|reader| *reader != own && *reader != other);
        let size = graph[producer].ty.bytes();
        let gathered =
            graph[consumer].op().is_some_and(Op::is_gather) && graph.view_base(graph[consumer].args[0]) == producer;
        let read = if gathered { size.min(graph[consumer].ty.bytes()) } else { size };
        let bytes = read + if is_written_anyway { 0 } else { size };
        EdgeDecision { producer, consumer, decision, bytes }
    };
    pairs.into_iter().map(decision).collect()
}

/// The units that read each node, directly or through views. `None` stands for the graph's caller.
fn readers(graph: &Graph, units: &Units<'_>, pairs: &[(NodeId, NodeId)]) -> SideTable<NodeId, Vec<Option<UnitId>>> {
    let mut readers = SideTable::filled(graph, Vec::new);
    for &(producer, consumer) in pairs {
        let readers: &mut Vec<Option<UnitId>> = &mut readers[producer];
        if readers.last() != Some(&units.unit_of[consumer]) {
            readers.push(units.unit_of[consumer]);
        }
    }
    for &output in graph.outputs() {
        readers[graph.view_base(output)].push(None);
    }
    readers
}

fn reason(graph: &Graph, units: &Units<'_>, refusals: &Refusals, producer: NodeId, consumer: NodeId) -> Reason {
    let of_blocks = refusals.edge(producer, consumer).cloned();
    match (role(graph, producer), role(graph, consumer)) {
        (Role::Routine, _) | (_, Role::Routine) => return Reason::OpaqueOp,
        (Role::Product, Role::Product) => return of_blocks.unwrap_or(Reason::TwoAnchors),
        (Role::Product, _) => return of_blocks.unwrap_or(Reason::EpilogueOfAnchor),
        (_, Role::Product) => return of_blocks.unwrap_or(Reason::PrologueOfAnchor),
        (Role::Parts, _) | (_, Role::Parts) => return Reason::MovesElements,
        (
            Role::Input | Role::Inline | Role::Loop | Role::View,
            Role::Input | Role::Inline | Role::Loop | Role::View,
        ) => {}
    }
    // A base group that does not pay is split before any merge step, so this is the first reason.
    if let Some(slower @ Reason::ModelledSlower { .. }) = &units.splits[consumer] {
        return slower.clone();
    }
    let pair = units.unit_of[producer].zip(units.unit_of[consumer]);
    pair.and_then(|(producer, consumer)| refusals.get(producer, consumer).cloned())
        .or_else(|| units.splits[consumer].clone())
        .or(of_blocks)
        .or_else(|| units.base_reason(producer, consumer))
        // Both are in one base group, but a view of a computed value between them had to be in memory.
        .unwrap_or(Reason::MovesElements)
}

/// Orders units topologically. Of units that are ready, the one with the earliest node comes first.
pub(super) fn in_order(mut units: Units<'_>) -> Vec<Step> {
    let is_live = |&unit: &UnitId| units.units[unit].is_some();
    let live: Vec<UnitId> = units.units.ids().filter(is_live).collect();
    let n_waits = |unit: UnitId| if is_live(&unit) { units.predecessors(unit).len() } else { 0 };
    let mut waits: SideTable<UnitId, usize> = units.units.ids().map(n_waits).collect();
    let first = |units: &Units<'_>, unit: UnitId| units.unit(unit).nodes[0];
    let mut ready: BTreeSet<(NodeId, UnitId)> =
        live.iter().filter(|&&unit| waits[unit] == 0).map(|&unit| (first(&units, unit), unit)).collect();
    let mut order = Vec::with_capacity(live.len());
    while let Some((_, unit)) = ready.pop_first() {
        order.push(unit);
        let next: BTreeSet<UnitId> = units.successors(unit).collect();
        for next in next {
            waits[next] -= 1;
            if waits[next] == 0 {
                ready.insert((first(&units, next), next));
            }
        }
    }
    assert_eq!(order.len(), live.len(), "merging keeps the graph of units acyclic");
    order.into_iter().map(|unit| units.units[unit].take().expect("each unit is ordered once")).collect()
}

impl Plan {
    /// The number of steps without views.
    pub fn n_kernels(&self) -> usize {
        self.steps.iter().filter(|step| !matches!(step.kind, StepKind::Alias)).count()
    }

    /// The plan as text: one line per step with its ops, then one per edge that was not fused.
    pub fn text(&self, graph: &Graph) -> String {
        let mut out = String::from("plan {\n");
        for (index, step) in self.steps.iter().enumerate() {
            let kind = match step.kind {
                StepKind::Kernel(_) => "kernel",
                StepKind::Alias => "view",
                StepKind::Product => "product",
                StepKind::Parts(_) => "parts",
                StepKind::Routine => "routine",
                StepKind::Blocks(_) => "blocks",
            };
            let nodes: Vec<String> = step.nodes.iter().map(|&id| format!("{id} = {}", NodeText(&graph[id]))).collect();
            let outputs: Vec<String> = step.outputs.iter().map(NodeId::to_string).collect();
            out += &format!("  s{index} {kind} -> {}: {}\n", outputs.join(", "), nodes.join("; "));
        }
        for edge in &self.edges {
            if let Decision::Kept(reason) = &edge.decision {
                out += &format!("  {} -> {}: {reason} ({} bytes)\n", edge.producer, edge.consumer, edge.bytes);
            }
        }
        out + "}\n"
    }
}

impl fmt::Display for EdgeDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.decision {
            Decision::Fused => write!(f, "{} -> {}: fused", self.producer, self.consumer),
            Decision::Kept(reason) => {
                write!(f, "{} -> {}: {reason} ({} bytes)", self.producer, self.consumer, self.bytes)
            }
        }
    }
}
