//! The pipeline: from a traced graph to an executable. Start reading here.
//!
//! A traced graph goes through the passes of [`PASSES`](crate::ir::passes::PASSES) in order, is planned, and each step of
//! the plan is lowered and compiled. Each form is printed if `OPFUSE_DUMP` names it.

use crate::codegen::tier::Tier;
use crate::debug::{self, Stage};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::fusion::split::{Parts, split};
use crate::fusion::{MERGES, Options, Plan, Rates, Rewritten, plan_observed};
use crate::ir::passes::{PASSES, Target, passes_for};
use crate::ir::{Graph, NodeId, Numerics, verify};
use crate::runtime::{Accepts, Executable, Failure};
use std::borrow::Cow;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Everything that the pipeline made, kept for reports.
pub struct Built {
    /// The graph as it was traced.
    pub traced: Graph,
    /// The graph that was planned.
    pub graph: Graph,
    /// Its steps, and a decision per edge.
    pub plan: Plan,
    /// The steps as running code.
    pub executable: Executable,
    /// What its merges were weighed by.
    pub rates: Rates,
    /// How long each pass took.
    pub passes: Vec<Timed>,
    /// How long the base partition and each merge step took.
    pub merges: Vec<Timed>,
    /// How long passes and planning took.
    pub plan_time: Duration,
    /// How long lowering and compiling took.
    pub compile_time: Duration,
}

/// How long one pass or merge step took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed {
    /// Its name.
    pub name: &'static str,
    /// The time, without that of verifying and printing.
    pub time: Duration,
}

/// Builds an executable from a traced graph, pass by pass. `tier` forces a code tier.
///
/// # Errors
/// A graph that breaks an invariant, naming which.
pub fn build(traced: Graph, options: &Options, tier: Option<Tier>) -> Result<Built> {
    build_over(traced, Vec::new(), options, tier)
}

/// As [`build`], where kernels that `accepts` refuses are not compiled: their groups are split.
///
/// # Errors
/// A graph that breaks an invariant, naming which, or a single op that is refused.
pub fn build_if(traced: Graph, options: &Options, tier: Option<Tier>, accepts: Accepts<'_>) -> Result<Built> {
    build_by(traced, Vec::new(), options, Target::Cpu, &|graph, plan| Executable::build_if(graph, plan, tier, accepts))
}

/// As [`build`], for a caller that overwrites these inputs with their new values: what is written to them may be written in
/// place.
///
/// # Errors
/// As [`build`].
pub fn build_over(traced: Graph, rewritten: Vec<Rewritten>, options: &Options, tier: Option<Tier>) -> Result<Built> {
    build_by(traced, rewritten, options, Target::Cpu, &|graph, plan| {
        Executable::build_if(graph, plan, tier, &|_| Ok(()))
    })
}

/// As [`build`], for a GPU and with these numerics: what it has no code for runs on the CPU.
///
/// # Errors
/// As [`build`].
pub fn build_on(device: Device, numerics: Numerics, traced: Graph, options: &Options) -> Result<Built> {
    build_by(traced, Vec::new(), options, Target::Gpu, &|graph, plan| {
        Executable::build_on(device, numerics, graph, plan)
    })
}

/// Makes an executable of a graph and its plan.
type Make<'a> = &'a dyn Fn(&Graph, &Plan) -> std::result::Result<Executable, Failure>;

fn build_by(
    traced: Graph,
    rewritten: Vec<Rewritten>,
    options: &Options,
    target: Target,
    make: Make<'_>,
) -> Result<Built> {
    let start = Instant::now();
    let (graph, passes) = run_passes(&traced, target)?;
    let (plan, merges) = planned(&graph, options);
    let plan = plan.writing_over(&graph, rewritten);
    debug::dump(Stage::Plan, || plan.text(&graph));
    let plan_time = start.elapsed();
    let (plan, executable) = lower(&graph, options, plan, make)?;
    let compile_time = start.elapsed() - plan_time;
    Ok(Built { traced, graph, plan, executable, rates: options.rates, passes, merges, plan_time, compile_time })
}

/// Runs the passes for a target, each on the result of the one before it; says how long each took.
fn run_passes(traced: &Graph, target: Target) -> Result<(Graph, Vec<Timed>)> {
    debug::check_dump(PASSES.iter().map(|pass| pass.name));
    debug::dump(Stage::Trace, || traced.to_string());
    verify(traced)?;
    let mut times = Vec::with_capacity(PASSES.len());
    let mut graph = Cow::Borrowed(traced);
    for pass in passes_for(target) {
        let start = Instant::now();
        graph = Cow::Owned((pass.run)(&graph)?);
        times.push(Timed { name: pass.name, time: start.elapsed() });
        if debug::verifies() {
            pass.verify(&graph)?;
        }
        debug::dump_pass(pass.name, || graph.to_string());
    }
    debug::dump(Stage::Graph, || graph.to_string());
    Ok((graph.into_owned(), times))
}

/// Plans a graph; says how long the base partition and each merge step took.
fn planned(graph: &Graph, options: &Options) -> (Plan, Vec<Timed>) {
    let mut times = Vec::with_capacity(1 + MERGES.len());
    let mut start = Instant::now();
    let plan = plan_observed(graph, options, &mut |name| {
        let now = Instant::now();
        times.push(Timed { name, time: now - start });
        start = now;
    });
    (plan, times)
}

/// Lowers and compiles a plan. A step that fails is split into base groups, and these into single ops if they fail too;
/// the edges between them get the reason. So one kernel that cannot be compiled costs its own fusion and no other.
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
