//! Profiles: what a thread runs, kernel by kernel.
//!
//! [`profile`] turns on the recorder of the thread (`crate::profile`), and the dispatch key that times operators. A
//! graph that runs meanwhile is observed kernel by kernel. It computes the same bits, because the kernels are the same.

use super::calibration::calibration;
use super::passes_page::Subject as Traced;
use super::pipeline::Built;
use super::tuning::Tuned;
use crate::device::{allocator, pool};
use crate::error::{Reason, Result};
use crate::fusion::cost::CostModel;
use crate::fusion::{Step, StepKind};
use crate::ir::Op;
use crate::profile::{self, Conditions, EventKind, Kind, MemorySample, Profile, Span, Subject, Work};
use crate::runtime::{Array, Traffic};
use crate::transforms::profiled::watch_calls;
use smallvec::SmallVec;

/// Multiplications with additions that pay for one more thread, as in `runtime::product`.
const WORTH_A_THREAD: usize = 1 << 18;

/// Runs `what`, and says what took how long: each operator that is called eagerly, each kernel of compiled functions,
/// captures, backward passes, and the memory in use.
///
/// It sees what the calling thread runs. A kernel that runs on several threads is one span of it. Results are the same
/// bits as without a profile. If `what` panics, the profile ends, and the panic goes on.
///
/// ```
/// use opfuse::profile::Kind;
/// use opfuse::{Result, Tensor, profile};
///
/// # fn main() -> Result<()> {
/// let x = Tensor::from_slice(&[1.0f32, -2.0], &[2])?;
/// let (result, profile) = profile(|| x.mul(&x)?.relu())?;
/// assert_eq!(result?.to_vec::<f32>()?, [1.0, 4.0]);
/// assert_eq!(profile.row(Kind::Operator, "aten::relu").map(|row| row.calls), Some(1));
/// println!("{profile}");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If this thread is being profiled already. Then `what` does not run.
pub fn profile<R>(what: impl FnOnce() -> R) -> Result<(R, Profile)> {
    crate::dispatch::load()?;
    let calibration = calibration();
    let conditions = Conditions { rates: calibration.source.to_string(), threads: pool::num_threads() };
    let recording = profile::begin(memory)?;
    let calls = watch_calls(calibration.rates);
    let result = what();
    drop(calls);
    Ok((result, recording.finish(conditions)?))
}

fn memory() -> MemorySample {
    let stats = allocator::stats();
    MemorySample { live: stats.live_bytes, fresh: stats.fresh }
}

/// The span of a capture of a function.
pub(super) fn captures(function: &'static str) -> Span {
    profile::open(Kind::Capture, (profile::key_of(function), 0), || named(function.to_string()))
}

/// The span of passes, planning and compilation.
pub(super) fn compiles(traced: Traced) -> Span {
    let key = if profile::is_on() { profile::key_of(&traced.to_string()) } else { 0 };
    profile::open(Kind::Compile, (key, 0), || named(traced.to_string()))
}

/// Records why a function runs in segments or eagerly.
pub(super) fn breaks(reason: &Reason) {
    profile::event(EventKind::GraphBreak, || reason.to_string());
}

fn named(name: String) -> Subject {
    Subject { name, ..Subject::default() }
}

/// Runs a graph on a thread that is profiled.
///
/// # Errors
/// Same as [`Executable::run`](crate::runtime::Executable::run).
#[cold]
pub(super) fn run(tuned: &Tuned, inputs: &[&Array]) -> Result<SmallVec<[Array; 2]>> {
    let (built, key) = (tuned.built(), 2 * tuned.id + u64::from(tuned.is_better()));
    let _call = profile::open(Kind::Call, (key, 0), || named(tuned.subject.to_string()));
    // Kernels are described before the first runs, which sees all of the plan.
    let mut described: Option<Vec<Subject>> = None;
    built.executable.run_observed(inputs, &mut |kernel, run| {
        let describe = || {
            let all = described.get_or_insert_with(|| subjects(built, &tuned.subject));
            all.get_mut(kernel).map(std::mem::take).unwrap_or_default()
        };
        let span = profile::open(Kind::Kernel, (key, kernel as u64), describe);
        run()?;
        tuned.note(kernel, span.end());
        Ok(())
    })
}

/// What a profile says of each kernel.
fn subjects(built: &Built, traced: &Traced) -> Vec<Subject> {
    let cost = CostModel::new(&built.graph, built.rates);
    let available = pool::num_threads();
    let steps = built.plan.steps.iter().filter(|step| !matches!(step.kind, StepKind::Alias));
    let mut subjects: Vec<Subject> = steps
        .enumerate()
        .map(|(kernel, step)| {
            let arithmetic = step.nodes.iter().map(|&node| cost.arithmetic(node));
            let (operations, roof) = arithmetic.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            let multiplies = matches!(step.kind, StepKind::Product | StepKind::Blocks(_));
            Subject {
                name: format!("{} {kernel} of {traced}", kind(step)),
                detail: ops(built, step),
                place: step.nodes.iter().find_map(|&node| built.place(node).cloned()),
                threads: multiplies.then(|| (operations as usize / (2 * WORTH_A_THREAD)).clamp(1, available)),
                work: Work { bytes: 0, operations, roof },
                ..Subject::default()
            }
        })
        .collect();
    for (kernel, launch) in built.executable.launches_by_kernel() {
        let Some(subject) = subjects.get_mut(kernel) else { continue };
        let running = launch.code.now();
        subject.tier = Some(running.entry.compiled.tier().name());
        let threads = running.cut.threads(available);
        subject.threads = Some(subject.threads.map_or(threads, |other| other.max(threads)));
    }
    for Traffic { kernel, read, written } in built.executable.traffic() {
        let Some(subject) = subjects.get_mut(kernel) else { continue };
        let work = Work { bytes: (read + written) as u64, ..subject.work };
        subject.work = work.moving(built.rates.moving_time(read + written));
    }
    for subject in &mut subjects {
        subject.work.roof /= subject.threads.unwrap_or(1) as f64;
    }
    subjects
}

fn kind(step: &Step) -> &'static str {
    match &step.kind {
        StepKind::Alias => "view",
        StepKind::Kernel(_) => "kernel",
        StepKind::Product => "product",
        StepKind::Parts(_) => "parts",
        StepKind::Blocks(_) => "blocks",
        StepKind::Routine => "routine",
    }
}

/// The ops of a step, in order.
fn ops(built: &Built, step: &Step) -> String {
    let ops = step.nodes.iter().filter_map(|&node| built.graph[node].op()).filter(|op| !op.is_view());
    ops.map(Op::name).collect::<Vec<_>>().join(", ")
}
