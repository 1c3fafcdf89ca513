//! The report of a compiled function: its kernels, their traffic, and a decision for every edge between two ops.
//!
//! [`Explain`] is plain data. Every view of it is a function of that data: text ([`Explain`] is `Display`),
//! [`Explain::plan_text`] for version control, [`Explain::to_json`], [`Explain::to_html`], [`Explain::to_dot`], and
//! [`Explain::why`] for one question. Nothing here decides or measures anything: times are those of compilation, or of
//! the cost model.

mod asserts;
mod charts;
mod copies;
mod dot;
mod facts;
mod html;
mod json;
mod layers;
mod picture;
mod plan_text;
mod segments;
mod source_lines;
mod text;
mod why;

pub use crate::transforms::tracer::SegmentEnd as BreakReport;
pub use asserts::Limit;
pub use copies::{CopyReason, CopyReport};
pub use json::SCHEMA;
pub use segments::SegmentReport;
pub use why::{Answer, Why};

use crate::codegen::tier::Tier;
use crate::codegen::tier_up::TierUp;
use crate::compile::calibration::Calibration;
use crate::compile::pipeline::Timed;
use crate::device::Device;
use crate::error::Reason;
use crate::fusion::role::Role;
use crate::ir::{Node, NodeId, Op, TensorType};
use crate::profile::Place;
use std::fmt;
use std::time::Duration;

/// The report of a compiled function. [`Compiled::explain`](crate::Compiled::explain) makes it.
///
/// Node names (`n7`) are those of the planned graph, which is printed by `OPFUSE_DUMP=graph`.
#[derive(Debug, Clone)]
pub struct Explain {
    /// The number of kernels if each op ran alone.
    pub kernels_before: usize,
    /// The number of kernels that run.
    pub kernels_after: usize,
    /// The bytes moved if each op ran alone.
    pub bytes_before: usize,
    /// The bytes that kernels and copies move.
    pub bytes_after: usize,
    /// The most bytes that values of a call take at a time: results count, inputs do not, nor does scratch memory of
    /// kernels. For a function in several segments, those of the greatest one.
    pub peak_bytes: usize,
    /// The kernels, in execution order.
    pub groups: Vec<Group>,
    /// The copies that a call makes after its kernels.
    pub copies: Vec<CopyReport>,
    /// The nodes of the planned graph, operands first. The position of a node is its number.
    pub nodes: Vec<NodeReport>,
    /// A decision for every edge between computed values. Edges lead through views and plain numbers.
    pub edges: Vec<Edge>,
    /// The returned values, in order.
    pub outputs: Vec<NodeId>,
    /// Why the function runs eagerly, if it does. Then there are no kernels.
    pub eager: Option<Reason>,
    /// The rates of the cost model, and their source.
    pub calibration: Calibration,
    /// After how many calls a GPU starts all kernels of a call as one CUDA graph, or why it never does. `None` on the
    /// CPU.
    pub replay: Option<Result<u32, Reason>>,
    /// The time of each pass, in order.
    pub passes: Vec<Timed>,
    /// The times of the base partition and of each merge step that ran, in order.
    pub merges: Vec<Timed>,
    /// The time of passes and planning.
    pub plan_time: Duration,
    /// The time of lowering and compilation.
    pub compile_time: Duration,
    /// How many plain numbers of structures are inputs, because they changed from call to call. Each call with new ones
    /// traces the function, and compiles nothing.
    pub changing_numbers: usize,
    /// The calls of operators that no graph describes, of loops and of branches, in order. The numbers above include
    /// neither what runs before them nor their bodies.
    pub calls: Vec<CallReport>,
    /// The segments of a function that runs in several, in the order in which the last call first ran them. Then counts
    /// and bytes above are those of that call, and lists above are empty: each segment has its own. A function that
    /// runs in one segment has none here, but the report of that one.
    pub segments: Vec<SegmentReport>,
    /// How often the last call ran segments that are not listed, because it ran more than 256. The numbers above do not
    /// include them.
    pub other_segments: u64,
    /// The report of the backward pass, if an input requires gradients. The numbers above do not include it.
    pub backward: Option<Box<Explain>>,
}

/// A call of an operator from outside, of a loop or of a branch, between two stages of a compiled function.
#[derive(Debug, Clone)]
pub struct CallReport {
    /// The operator.
    pub operator: String,
    /// The types of its results.
    pub results: Vec<TensorType>,
    /// Where the call stands in the program, if it is known.
    pub place: Option<Place>,
    /// Why it is a call of its own.
    pub reason: Reason,
    /// How many ops the bodies of a loop or branch have, each body once. An operator shows none.
    pub ops: usize,
    /// How many kernels these ops are.
    pub kernels: usize,
    /// The report of what is computed for it.
    pub before: Box<Explain>,
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
    /// The values that it reads from memory, each once.
    pub inputs: Vec<NodeId>,
    /// The values that it writes to memory.
    pub outputs: Vec<NodeId>,
    /// The traced calls that its nodes come from, each once.
    pub sources: Vec<Source>,
    /// The tier that runs it. `None` for a library call or a routine.
    pub tier: Option<Tier>,
    /// The GPU that runs it. `None` on the CPU.
    pub device: Option<Device>,
    /// The tier that will run it after more calls, if it is another one.
    pub tier_up: Option<TierUp>,
    /// Why another tier, the GPU, or a faster method there was declined.
    pub declined: Option<Reason>,
    /// How its results may differ from [`Numerics::Strict`](crate::Numerics::Strict), a sentence each.
    pub remarks: Vec<String>,
    /// The value in whose memory it writes. Only the changed elements are written. The value has no later reader.
    pub in_place: Option<NodeId>,
    /// The bytes read. Each operand counts once, and a gather counts the elements that it picks.
    pub bytes_read: usize,
    /// The bytes written.
    pub bytes_written: usize,
    /// The arithmetic operations, where the cost model knows them; 0 otherwise. A multiplication with an addition in a
    /// product counts as two.
    pub operations: f64,
    /// The time on one thread, by the cost model.
    pub modelled_time: Duration,
    /// What it took in profiles, on the threads that it runs on, or when [`Tuning::Measured`](crate::compile::Tuning)
    /// measured the function. `None` otherwise.
    pub measured: Option<Measured>,
    /// The time that its code took to compile, in this or an earlier call.
    pub compile_time: Duration,
    /// The generated loops as text, one kernel after the other. Empty if nothing is generated.
    pub code: String,
}

impl Group {
    /// How many times longer than modelled the fastest call took, if the model is wrong about it by more than 2. `None`
    /// if the function was neither profiled nor measured.
    ///
    /// The model counts one thread, so a kernel on several may be slower than it seems.
    pub fn times_slower(&self) -> Option<f64> {
        let measured = self.measured?.least.saturating_sub(CLOCK);
        let times = measured.as_secs_f64() / self.modelled_time.as_secs_f64().max(1e-9);
        Some(times).filter(|&times| times > 2.0)
    }
}

/// About what it takes to look at the clock twice.
const CLOCK: Duration = Duration::from_nanos(100);

/// What a kernel took in profiles, or when the function was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// How often it was timed.
    pub calls: u64,
    /// The time of the fastest call.
    pub least: Duration,
    /// The time of all calls.
    pub total: Duration,
}

impl Measured {
    /// Adds a call.
    pub(super) fn add(&mut self, time: Duration) {
        self.least = if self.calls == 0 { time } else { self.least.min(time) };
        self.calls += 1;
        self.total += time;
    }
}

impl Group {
    /// The tier that runs it, and the one that will, as text.
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

/// How a group runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// One generated kernel.
    Kernel,
    /// A matrix product by the library.
    Product,
    /// Generated kernels, one per part of a value.
    Parts,
    /// A procedure on whole arrays, such as a sort.
    Routine,
    /// Matrix products and generated kernels, computed in blocks of rows.
    Blocks,
}

/// A node of the planned graph.
#[derive(Debug, Clone)]
pub struct NodeReport {
    /// Its name.
    pub id: NodeId,
    /// What it computes.
    pub node: Node,
    /// Its role in fusion. A view or number belongs to a kernel only if the kernel computes it.
    pub role: Role,
    /// The traced call that it comes from. `None` for inputs and numbers.
    pub source: Option<Source>,
    /// Where that call stands in the program, if it is known.
    pub place: Option<Place>,
    /// The kernel that computes it.
    pub group: Option<usize>,
}

/// A call of the traced function: an op before composite ops were decomposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source {
    /// Its node in the traced graph.
    pub node: NodeId,
    /// The op that was called.
    pub op: Op,
}

/// An edge between two computed values, with its decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// The node that computes the value.
    pub producer: NodeId,
    /// The node that reads it, directly or through views.
    pub consumer: NodeId,
    /// The decision: fused or not.
    pub decision: Decision,
}

/// Whether an edge was fused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Both ends are in one kernel.
    Fused {
        /// The bytes that fusing saves.
        bytes: usize,
    },
    /// The ends are in two kernels.
    Kept {
        /// Why they are.
        reason: Reason,
        /// The bytes that this costs: a read, and a write unless another kernel needs the value too.
        bytes: usize,
        /// What the user can do about it.
        hint: &'static str,
    },
}

impl Explain {
    /// The time of all kernels on one thread, by the cost model.
    pub fn modelled_time(&self) -> Duration {
        let own: Duration = self.groups.iter().map(|group| group.modelled_time).sum();
        let of_segment = |segment: &SegmentReport| {
            segment.report.modelled_time().saturating_mul(u32::try_from(segment.runs).unwrap_or(u32::MAX))
        };
        own + self.segments.iter().map(of_segment).sum::<Duration>()
    }

    /// The group that computes `node`, if any.
    pub fn group_of(&self, node: NodeId) -> Option<&Group> {
        self.groups.get(self.nodes.get(node.index())?.group?)
    }

    /// The edges that were not fused.
    pub fn kept(&self) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(|edge| !edge.is_fused())
    }

    /// The name and op of a node, such as `n7 exp`.
    fn name(&self, node: NodeId) -> String {
        let op = self.nodes.get(node.index()).and_then(|report| report.node.op());
        format!("{node} {}", op.map_or("input", Op::name))
    }

    /// The reasons of the kept edges in order, each once.
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
    /// The bytes read and written.
    pub fn bytes(&self) -> usize {
        self.bytes_read + self.bytes_written
    }
}

impl Edge {
    /// Whether both ends are in one kernel.
    pub fn is_fused(&self) -> bool {
        matches!(self.decision, Decision::Fused { .. })
    }

    /// The bytes that fusing saves, or that not fusing costs.
    pub fn bytes(&self) -> usize {
        match self.decision {
            Decision::Fused { bytes } | Decision::Kept { bytes, .. } => bytes,
        }
    }
}

impl GroupKind {
    /// Its name in reports.
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
    /// The name of the op without a leading underscore.
    pub fn name(self) -> &'static str {
        plain(self.op)
    }
}

/// The name of an op without the leading underscore of ATen's internal operators.
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
