//! The pipeline: from a traced graph to an executable. Start reading here.
//!
//! A traced graph goes through the passes of [`PASSES`](crate::ir::passes::PASSES) in order and is planned. Each step
//! of the plan is lowered and compiled. `OPFUSE_DUMP` prints each form, and `passes_page` shows what each pass changed.

use super::passes_page::{self, Capture, Snapshot, Subject};
use crate::codegen::tier::Tier;
use crate::debug::{self, Stage};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::fusion::split::{Parts, split};
use crate::fusion::{MERGES, Options, Plan, Rates, Rewritten, plan_observed};
use crate::ir::passes::{PASSES, Target, passes_for};
use crate::ir::{Graph, NodeId, Numerics, verify};
use crate::profile::Place;
use crate::runtime::{Accepts, Executable, Failure};
use std::borrow::Cow;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The results of the pipeline, which are kept for reports.
pub struct Built {
    /// The traced graph.
    pub traced: Graph,
    /// The planned graph, after all passes.
    pub graph: Graph,
    /// Its steps, and a decision for every edge.
    pub plan: Plan,
    /// The steps as running code.
    pub executable: Executable,
    /// The rates of the cost model.
    pub rates: Rates,
    /// The time of each pass.
    pub passes: Vec<Timed>,
    /// The times of the base partition and of each merge step.
    pub merges: Vec<Timed>,
    /// The time of passes and planning.
    pub plan_time: Duration,
    /// The time of lowering and compilation.
    pub compile_time: Duration,
}

impl Built {
    /// Where in the program the call stands that a planned node comes from.
    pub fn place(&self, node: NodeId) -> Option<&Place> {
        self.traced.place(self.graph.origin(node)?)
    }
}

/// The time of one pass or merge step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed {
    /// Its name.
    pub name: &'static str,
    /// The time, without verification and printing.
    pub time: Duration,
}

/// Phases with their times, such as `decompose 3.1µs, simplify 12.0µs`.
pub(super) fn times(phases: &[Timed]) -> String {
    phases.iter().map(|phase| format!("{} {:.1?}", phase.name, phase.time)).collect::<Vec<_>>().join(", ")
}

/// Builds an executable from a traced graph. `tier` forces a code tier.
///
/// # Errors
/// If the graph breaks an invariant, which the message names.
pub fn build(traced: Graph, options: &Options, tier: Option<Tier>) -> Result<Built> {
    build_over(traced, Subject::Graph, Vec::new(), options, tier)
}

/// Like [`build`], but kernels that `accepts` rejects are not compiled. Their groups are split.
///
/// # Errors
/// Same as [`build`], and if a single op is rejected.
pub fn build_if(traced: Graph, options: &Options, tier: Option<Tier>, accepts: Accepts<'_>) -> Result<Built> {
    let make: Make<'_> = &|graph, plan| Executable::build_if(graph, plan, tier, accepts);
    build_by(traced, Subject::Graph, Vec::new(), options, Target::Cpu, make)
}

/// Like [`build`], for a caller that overwrites these inputs with their new values. These may be written in place.
/// `subject` says what was traced.
///
/// # Errors
/// Same as [`build`].
pub fn build_over(
    traced: Graph,
    subject: Subject,
    rewritten: Vec<Rewritten>,
    options: &Options,
    tier: Option<Tier>,
) -> Result<Built> {
    let make: Make<'_> = &|graph, plan| Executable::build_if(graph, plan, tier, &|_| Ok(()));
    build_by(traced, subject, rewritten, options, Target::Cpu, make)
}

/// Like [`build`], for a GPU and with these numerics. Steps without GPU code run on the CPU. `subject` says
/// what was traced.
///
/// # Errors
/// Same as [`build`].
pub fn build_on(
    device: Device,
    numerics: Numerics,
    traced: Graph,
    subject: Subject,
    options: &Options,
) -> Result<Built> {
    let make: Make<'_> = &|graph, plan| Executable::build_on(device, numerics, graph, plan);
    build_by(traced, subject, Vec::new(), options, Target::Gpu, make)
}

/// Builds an executable from a graph and its plan.
type Make<'a> = &'a dyn Fn(&Graph, &Plan) -> std::result::Result<Executable, Failure>;

fn build_by(
    traced: Graph,
    subject: Subject,
    rewritten: Vec<Rewritten>,
    options: &Options,
    target: Target,
    make: Make<'_>,
) -> Result<Built> {
    if debug::passes_page().is_none() {
        return build_seen(traced, rewritten, options, target, make, &mut |_, _| {});
    }
    let (before, mut snapshots) = (traced.clone(), Vec::new());
    let built = build_seen(traced, rewritten, options, target, make, &mut |timed, graph| {
        snapshots.push(Snapshot { name: timed.name, time: timed.time, graph: graph.clone() });
    });
    let plan = match &built {
        Ok(built) => Ok((built.plan.text(&built.graph), times(&built.merges))),
        Err(error) => Err(error.to_string()),
    };
    passes_page::add(&Capture { subject, traced: &before, snapshots: &snapshots, plan });
    built
}

fn build_seen(
    traced: Graph,
    rewritten: Vec<Rewritten>,
    options: &Options,
    target: Target,
    make: Make<'_>,
    after: After<'_>,
) -> Result<Built> {
    let start = Instant::now();
    let (graph, passes) = run_passes(&traced, target, after)?;
    let (plan, merges) = planned(&graph, options, rewritten);
    debug::dump(Stage::Plan, || plan.text(&graph));
    let plan_time = start.elapsed();
    let (plan, executable) = lower(&graph, options, plan, make)?;
    let compile_time = start.elapsed() - plan_time;
    Ok(Built { traced, graph, plan, executable, rates: options.rates, passes, merges, plan_time, compile_time })
}

/// Called with the graph after each pass, before it is verified.
type After<'a> = &'a mut dyn FnMut(Timed, &Graph);

/// Runs the passes for a target in order. Also returns the time of each.
fn run_passes(traced: &Graph, target: Target, after: After<'_>) -> Result<(Graph, Vec<Timed>)> {
    debug::check_dump(PASSES.iter().map(|pass| pass.name));
    debug::dump(Stage::Trace, || traced.to_string());
    verify(traced)?;
    let mut times = Vec::with_capacity(PASSES.len());
    let mut graph = Cow::Borrowed(traced);
    for pass in passes_for(target) {
        let start = Instant::now();
        graph = Cow::Owned((pass.run)(&graph)?);
        let timed = Timed { name: pass.name, time: start.elapsed() };
        times.push(timed);
        after(timed, &graph);
        if debug::verifies() {
            pass.verify(&graph)?;
        }
        debug::dump_pass(pass.name, || graph.to_string());
    }
    debug::dump(Stage::Graph, || graph.to_string());
    Ok((graph.into_owned(), times))
}

/// Plans a graph. Also returns the times of the base partition and of each merge step.
fn planned(graph: &Graph, options: &Options, rewritten: Vec<Rewritten>) -> (Plan, Vec<Timed>) {
    let mut times = Vec::with_capacity(1 + MERGES.len());
    let mut start = Instant::now();
    let plan = plan_observed(graph, options, rewritten, &mut |name| {
        let now = Instant::now();
        times.push(Timed { name, time: now - start });
        start = now;
    });
    (plan, times)
}

/// Lowers and compiles a plan. A step that fails is split into its base groups, and those that fail into single ops.
/// The edges between them get the reason. So a kernel that cannot be compiled loses only its own fusion.
fn lower(graph: &Graph, options: &Options, mut plan: Plan, make: Make<'_>) -> Result<(Plan, Executable)> {
    loop {
        let Failure { step, reason } = match make(graph, &plan) {
            Ok(executable) => return Ok((plan, executable)),
            Err(failure) => failure,
        };
        let reasons = HashMap::from([(step, reason.clone())]);
        let finer = [Parts::Base, Parts::Ops].map(|parts| split(graph, options, &plan, parts, &reasons));
        let Some(next) = finer.into_iter().find(|next| next.steps.len() > plan.steps.len()) else {
            let nodes: Vec<String> = plan.steps[step].nodes.iter().map(NodeId::to_string).collect();
            let what = format!("{} is not compiled: {reason}", nodes.join(", "));
            return Err(Error::invalid("plan", what));
        };
        debug::dump(Stage::Plan, || next.text(graph));
        plan = next;
    }
}
