//! The report of a compiled function: its kernels, what they move, and a decision for every edge between two ops.
//!
//! [`Explain`] is plain data, made once from what the pipeline kept; every view of it is a function of that data: text
//! ([`Explain`] is `Display`), [`Explain::plan_text`] for version control, [`Explain::to_json`], [`Explain::to_html`],
//! [`Explain::to_dot`], and the answer to one question, [`Explain::why`]. Nothing here decides or measures anything:
//! times are those of compiling, and those of the cost model.

mod asserts;
mod dot;
mod facts;
mod html;
mod json;
mod layers;
mod picture;
mod plan_text;
mod text;
mod why;

pub use asserts::Limit;
pub use json::SCHEMA;
pub use why::{Answer, Why};

use crate::codegen::tier::Tier;
use crate::codegen::tier_up::TierUp;
use crate::compile::calibration::Calibration;
use crate::compile::pipeline::Timed;
use crate::device::Device;
use crate::error::Reason;
use crate::fusion::role::Role;
use crate::ir::{Node, NodeId, Op};
use std::fmt;
use std::time::Duration;

/// What was compiled, and why so.
///
/// Node names (`n7`) are those of the planned graph, which is printed by `OPFUSE_DUMP=graph`.
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
    /// The kernels, in the order in which they run.
    pub groups: Vec<Group>,
    /// Every node of the planned graph, operands first; the position is the node's number.
    pub nodes: Vec<NodeReport>,
    /// One decision for every edge between computed values. Views and plain numbers are looked through.
    pub edges: Vec<Edge>,
    /// The values that are returned, in order.
    pub outputs: Vec<NodeId>,
    /// Why the function runs eagerly, if it does; there are no kernels then.
    pub eager: Option<Reason>,
    /// What merges were weighed by, and where that is from.
    pub calibration: Calibration,
    /// After how many calls a GPU starts all kernels of a call as one CUDA graph, or why it never does; `None` on the CPU.
    pub replay: Option<Result<u32, Reason>>,
    /// Time for each pass, in order.
    pub passes: Vec<Timed>,
    /// Time for the base partition and each merge step that ran, in order.
    pub merges: Vec<Timed>,
    /// Time for passes and planning.
    pub plan_time: Duration,
    /// Time for lowering and compiling.
    pub compile_time: Duration,
    /// The report of the backward pass, where gradients flow through the function. The numbers above do not count it.
    pub backward: Option<Box<Explain>>,
}

/// One kernel of a compiled function.
#[derive(Debug, Clone)]
pub struct Group {
    /// Its position among the kernels.
    pub index: usize,
    /// What runs it.
    pub kind: GroupKind,
    /// Its nodes, operands first.
    pub nodes: Vec<NodeId>,
    /// What it reads from memory, each once.
    pub inputs: Vec<NodeId>,
    /// What it writes to memory.
    pub outputs: Vec<NodeId>,
    /// The calls that its nodes were made for, each once.
    pub sources: Vec<Source>,
    /// The tier that runs it; `None` for a library call and a routine.
    pub tier: Option<Tier>,
    /// The GPU that runs it; `None` if the CPU does.
    pub device: Option<Device>,
    /// The tier that will run it once it has been called often, where that is another one.
    pub tier_up: Option<TierUp>,
    /// Why another tier, the GPU, or what is faster there was not taken.
    pub declined: Option<Reason>,
    /// What it does otherwise than [`Numerics::Strict`](crate::Numerics::Strict) has it, each in a sentence.
    pub remarks: Vec<String>,
    /// The value whose memory it writes, of which only what changes: nobody reads it any more.
    pub in_place: Option<NodeId>,
    /// Bytes read, each operand once, and of a gathered one what is picked.
    pub bytes_read: usize,
    /// Bytes written.
    pub bytes_written: usize,
    /// How long it takes one thread, by the cost model.
    pub modelled_time: Duration,
    /// How long its code took to compile, now or earlier.
    pub compile_time: Duration,
    /// The generated loops as text, one kernel after the other; empty where nothing is generated.
    pub code: String,
}

impl Group {
    /// The tier that runs it and the one that will, for people.
    fn tiers(&self) -> String {
        if let Some(device) = self.device {
            return device.to_string();
        }
        let tier = self.tier.map_or("library", Tier::name);
        match self.tier_up {
            None => tier.to_string(),
            Some(TierUp { tier: later, calls }) => format!("{tier}, {later} after {}", counted(calls as usize, "call")),
        }
    }
}

/// What runs a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// One generated kernel.
    Kernel,
    /// A matrix product of the library.
    Product,
    /// Generated kernels that write a value part by part.
    Parts,
    /// A procedure on whole arrays.
    Routine,
    /// Matrix products and generated kernels, some rows at a time.
    Blocks,
}

/// A node of the planned graph.
#[derive(Debug, Clone)]
pub struct NodeReport {
    /// Its name.
    pub id: NodeId,
    /// What it computes.
    pub node: Node,
    /// What part it plays: views and numbers belong to a kernel only if it computes them.
    pub role: Role,
    /// The call that it was made for; `None` for inputs and numbers.
    pub source: Option<Source>,
    /// The kernel it is computed in.
    pub group: Option<usize>,
}

/// A call that the function made: an op of the traced graph, before composite ops were decomposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source {
    /// Its name in the traced graph.
    pub node: NodeId,
    /// The op that was called.
    pub op: Op,
}

/// An edge between two computed values, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// The node whose value is used.
    pub producer: NodeId,
    /// The node that uses it, itself or a view of it.
    pub consumer: NodeId,
    /// Whether both are in one kernel.
    pub decision: Decision,
}

/// What became of an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Both ends are in one kernel.
    Fused {
        /// The bytes that are not moved because of it.
        bytes: usize,
    },
    /// They are in two.
    Kept {
        /// Why.
        reason: Reason,
        /// The bytes that are moved because of it: a read, and a write unless somebody else needs the value too.
        bytes: usize,
        /// What to do about it.
        hint: &'static str,
    },
}

impl Explain {
    /// How long the kernels take one thread, by the cost model.
    pub fn modelled_time(&self) -> Duration {
        self.groups.iter().map(|group| group.modelled_time).sum()
    }

    /// The group that computes `node`, if one does.
    pub fn group_of(&self, node: NodeId) -> Option<&Group> {
        self.groups.get(self.nodes.get(node.index())?.group?)
    }

    /// The edges that were not fused.
    pub fn kept(&self) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(|edge| !edge.is_fused())
    }

    /// `n7 exp`.
    fn name(&self, node: NodeId) -> String {
        let op = self.nodes.get(node.index()).and_then(|report| report.node.op());
        format!("{node} {}", op.map_or("input", Op::name))
    }

    /// The reasons of kept edges, each once, in the order in which they occur.
    fn kept_reasons(&self) -> Vec<&Reason> {
        let mut reasons: Vec<&Reason> = Vec::new();
        for edge in &self.edges {
            if let Decision::Kept { reason, .. } = &edge.decision
                && !reasons.contains(&reason)
            {
                reasons.push(reason);
            }
        }
        reasons
    }
}

impl Group {
    /// Bytes read and written.
    pub fn bytes(&self) -> usize {
        self.bytes_read + self.bytes_written
    }
}

impl Edge {
    /// Whether both ends are in one kernel.
    pub fn is_fused(&self) -> bool {
        matches!(self.decision, Decision::Fused { .. })
    }

    /// The bytes that it saved or costs.
    pub fn bytes(&self) -> usize {
        match self.decision {
            Decision::Fused { bytes } | Decision::Kept { bytes, .. } => bytes,
        }
    }
}

impl GroupKind {
    /// Its name in texts.
    pub const fn name(self) -> &'static str {
        match self {
            GroupKind::Kernel => "kernel",
            GroupKind::Product => "product",
            GroupKind::Parts => "parts",
            GroupKind::Routine => "routine",
            GroupKind::Blocks => "blocks",
        }
    }
}

impl Source {
    /// The op's name as users know it.
    pub fn name(self) -> &'static str {
        plain(self.op)
    }
}

/// An op's name without the underscore of ATen's inner names.
fn plain(op: Op) -> &'static str {
    op.name().trim_start_matches('_')
}

/// `1 kernel`, `2 kernels`.
fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
