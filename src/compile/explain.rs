//! The report of a compiled function: its kernels, their traffic, and a reason for every edge that was not fused.

use super::pipeline::Built;
use crate::codegen::lower::traffic;
use crate::codegen::tier::Tier;
use crate::error::Reason;
use crate::fusion::units::{Role, role};
use crate::fusion::{Decision, EdgeDecision, StepKind};
use crate::ir::{Graph, NodeId, Op};
use std::fmt;
use std::time::Duration;

/// One kernel of a compiled function.
#[derive(Debug, Clone)]
pub struct KernelReport {
    /// `kernel`, `product` or `concat`.
    pub kind: &'static str,
    /// The ops in it, in order.
    pub ops: Vec<String>,
    /// The tier that runs it; `None` for a library call.
    pub tier: Option<Tier>,
    /// Why another tier was not taken.
    pub declined: Option<Reason>,
    /// Bytes read, each operand once.
    pub bytes_read: usize,
    /// Bytes written.
    pub bytes_written: usize,
    /// How long its code took to compile, now or earlier.
    pub compile_time: Duration,
}

/// What was compiled, and why so.
#[derive(Debug, Clone)]
pub struct Explain {
    /// Kernels that the same ops take one by one.
    pub kernels_before: usize,
    /// Kernels that run.
    pub kernels_after: usize,
    /// Bytes that the ops move one by one.
    pub bytes_before: usize,
    /// Bytes that the kernels move.
    pub bytes_after: usize,
    /// The kernels, in order.
    pub kernels: Vec<KernelReport>,
    /// Every edge between computed values.
    pub edges: Vec<EdgeDecision>,
    /// Why the function runs eagerly, if it does.
    pub eager: Option<Reason>,
    /// Time for passes and planning.
    pub plan_time: Duration,
    /// Time for lowering and compiling.
    pub compile_time: Duration,
    /// Graphviz text.
    pub dot: String,
    names: Vec<String>,
}

impl Explain {
    /// The report of a function that is not compiled.
    pub fn eager(reason: Reason) -> Explain {
        Explain {
            kernels_before: 0,
            kernels_after: 0,
            bytes_before: 0,
            bytes_after: 0,
            kernels: Vec::new(),
            edges: Vec::new(),
            eager: Some(reason),
            plan_time: Duration::ZERO,
            compile_time: Duration::ZERO,
            dot: String::new(),
            names: Vec::new(),
        }
    }

    /// The report of a built graph.
    pub fn of(built: &Built) -> Explain {
        let graph = &built.graph;
        let computed =
            |node: NodeId| matches!(role(graph, node), Role::Loop | Role::Product | Role::Parts | Role::Routine);
        let single: Vec<NodeId> = graph.nodes().map(|(id, _)| id).filter(|&id| computed(id)).collect();
        let kernels = kernels(built);
        Explain {
            kernels_before: single.len(),
            kernels_after: built.plan.n_kernels(),
            bytes_before: single.iter().map(|&node| bytes_alone(graph, node)).sum(),
            bytes_after: kernels.iter().map(|kernel| kernel.bytes_read + kernel.bytes_written).sum(),
            kernels,
            edges: built.plan.edges.clone(),
            eager: None,
            plan_time: built.plan_time,
            compile_time: built.compile_time,
            dot: dot(built),
            names: graph
                .nodes()
                .map(|(id, node)| format!("{id} {}", node.op().map_or("input", |op| op.name())))
                .collect(),
        }
    }

    fn name(&self, node: NodeId) -> &str {
        self.names.get(node.index()).map_or("", String::as_str)
    }
}

/// Bytes that an op moves when it runs alone; a gather reads of its source what it picks.
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

fn kernels(built: &Built) -> Vec<KernelReport> {
    let graph = &built.graph;
    let mut launches = built.executable.launches();
    let mut reports = Vec::new();
    for step in &built.plan.steps {
        let ops = step.nodes.iter().filter_map(|&node| graph[node].op()).map(|op| op.name().to_string()).collect();
        let n_launches = match &step.kind {
            StepKind::Alias => continue,
            StepKind::Product | StepKind::Routine => 0,
            StepKind::Kernel(_) => 1,
            StepKind::Parts(regions) => regions.len(),
            StepKind::Blocks(blocks) => blocks.members.iter().filter(|member| member.region.is_some()).count(),
        };
        let kind = match step.kind {
            StepKind::Kernel(_) | StepKind::Alias => "kernel",
            StepKind::Product => "product",
            StepKind::Parts(_) => "parts",
            StepKind::Blocks(_) => "blocks",
            StepKind::Routine => "routine",
        };
        let mut report = KernelReport {
            kind,
            ops,
            tier: None,
            declined: None,
            bytes_read: 0,
            bytes_written: 0,
            compile_time: Duration::ZERO,
        };
        for launch in launches.by_ref().take(n_launches) {
            let (read, _) = traffic(graph, &launch.lowered);
            report.bytes_read += read;
            report.tier = Some(launch.entry.compiled.tier());
            report.declined = report.declined.or_else(|| launch.entry.declined.clone());
            report.compile_time += launch.entry.compile_time;
        }
        if n_launches == 0 {
            report.bytes_read = graph[step.nodes[0]].args.iter().map(|&arg| graph[arg].ty.bytes()).sum();
        }
        if let StepKind::Blocks(_) = step.kind {
            report.bytes_read = from_outside(graph, &step.nodes).iter().map(|&node| graph[node].ty.bytes()).sum();
        }
        report.bytes_written = step.outputs.iter().map(|&node| graph[node].ty.bytes()).sum();
        reports.push(report);
    }
    reports
}

/// What nodes that are computed together read from memory.
fn from_outside(graph: &Graph, nodes: &[NodeId]) -> Vec<NodeId> {
    let is_read = |arg: &NodeId| !nodes.contains(arg) && role(graph, *arg) != Role::Inline;
    let mut read: Vec<NodeId> = nodes.iter().flat_map(|&node| &graph[node].args).copied().filter(is_read).collect();
    read.sort_unstable();
    read.dedup();
    read
}

/// One cluster per step, so that fused ops lie in one box.
fn dot(built: &Built) -> String {
    let graph = &built.graph;
    let mut out = String::from("digraph {\n  node [shape=box];\n");
    for (index, step) in built.plan.steps.iter().enumerate() {
        let boxed = !matches!(step.kind, StepKind::Alias);
        if boxed {
            out += &format!("  subgraph cluster_{index} {{\n    label = \"kernel {index}\";\n");
        }
        for &node in &step.nodes {
            let op = graph[node].op().map_or("input", |op| op.name());
            out += &format!("    {node} [label=\"{node} {op}\\n{}\"];\n", graph[node].ty);
        }
        if boxed {
            out += "  }\n";
        }
    }
    for (id, node) in graph.nodes() {
        for arg in &node.args {
            out += &format!("  {arg} -> {id};\n");
        }
    }
    out + "}\n"
}

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.eager {
            return writeln!(f, "runs eagerly: {reason}");
        }
        let percent = 100.0 * self.bytes_after as f64 / self.bytes_before.max(1) as f64;
        writeln!(f, "{} ops in {} kernels", self.kernels_before, self.kernels_after)?;
        writeln!(f, "{} bytes unfused, {} fused ({percent:.0} %)", self.bytes_before, self.bytes_after)?;
        writeln!(f, "planned in {:.1?}, compiled in {:.1?}", self.plan_time, self.compile_time)?;
        for (index, kernel) in self.kernels.iter().enumerate() {
            let tier = kernel.tier.map_or("library", Tier::name);
            write!(
                f,
                "{} {index} [{tier}] reads {}, writes {} bytes:",
                kernel.kind, kernel.bytes_read, kernel.bytes_written
            )?;
            writeln!(f, " {}", kernel.ops.join(", "))?;
            if let Some(reason) = &kernel.declined {
                writeln!(f, "  declined: {reason}")?;
            }
        }
        for edge in &self.edges {
            if let Decision::Kept(reason) = &edge.decision {
                let (producer, consumer) = (self.name(edge.producer), self.name(edge.consumer));
                writeln!(f, "not fused: {producer} -> {consumer} ({} bytes): {reason}", edge.bytes)?;
            }
        }
        Ok(())
    }
}
