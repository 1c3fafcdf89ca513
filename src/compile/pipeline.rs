//! The pipeline: from a traced graph to an executable. Start reading here.

use crate::codegen::tier::Tier;
use crate::debug::{self, Stage};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::fusion::split::{Parts, split};
use crate::fusion::{Options, Plan, Rates, Rewritten, plan};
use crate::ir::passes::{
    decompose, eliminate_common, eliminate_dead, fold_constants, narrow_products, simplify, unroll,
};
use crate::ir::{Graph, NodeId, Numerics, verify};
use crate::runtime::{Accepts, Executable, Failure};
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
    /// How long passes and planning took.
    pub plan_time: Duration,
    /// How long lowering and compiling took.
    pub compile_time: Duration,
}

/// Builds an executable from a traced graph, pass by pass. `tier` forces a code tier.
///
/// # Errors
/// A graph that breaks an invariant, naming which.
pub fn build(traced: Graph, options: &Options, tier: Option<Tier>) -> Result<Built> {
    build_over(traced, Vec::new(), options, tier)
}

/// As [`build`], where kernels that `accepts` refuses are not compiled: their groups are taken apart.
///
/// # Errors
/// A graph that breaks an invariant, naming which, or a single op that is refused.
pub fn build_if(traced: Graph, options: &Options, tier: Option<Tier>, accepts: Accepts<'_>) -> Result<Built> {
    build_by(traced, Vec::new(), options, |graph| graph, &|graph, plan| {
        Executable::build_if(graph, plan, tier, accepts)
    })
}

/// As [`build`], for a caller that overwrites these inputs with their new values: what is written to them may be written in
/// place.
///
/// # Errors
/// As [`build`].
pub fn build_over(traced: Graph, rewritten: Vec<Rewritten>, options: &Options, tier: Option<Tier>) -> Result<Built> {
    build_by(traced, rewritten, options, |graph| graph, &|graph, plan| {
        Executable::build_if(graph, plan, tier, &|_| Ok(()))
    })
}

/// As [`build`], for a GPU and with these numerics: what it has no code for runs on the CPU.
///
/// # Errors
/// As [`build`].
pub fn build_on(device: Device, numerics: Numerics, traced: Graph, options: &Options) -> Result<Built> {
    build_by(traced, Vec::new(), options, narrow_products, &|graph, plan| {
        Executable::build_on(device, numerics, graph, plan)
    })
}

/// Makes an executable of a graph and its plan.
type Make<'a> = &'a dyn Fn(&Graph, &Plan) -> std::result::Result<Executable, Failure>;

/// Builds an executable; `adapt` is the last pass, for where it will run.
fn build_by(
    traced: Graph,
    rewritten: Vec<Rewritten>,
    options: &Options,
    adapt: fn(Graph) -> Graph,
    make: Make<'_>,
) -> Result<Built> {
    let start = Instant::now();
    debug::dump(Stage::Trace, || traced.to_string());
    verify(&traced)?;
    let graph = checked(decompose(&traced)?)?;
    let graph = checked(eliminate_common(&graph))?;
    let graph = checked(fold_constants(&graph))?;
    let graph = checked(simplify(&graph))?;
    let graph = checked(unroll(&graph)?)?;
    let graph = checked(eliminate_dead(&graph))?;
    let graph = checked(adapt(graph))?;
    debug::dump(Stage::Simplify, || graph.to_string());
    let plan = plan(&graph, options).writing_over(&graph, rewritten);
    debug::dump(Stage::Plan, || plan.text(&graph));
    let plan_time = start.elapsed();
    let (plan, executable) = lower(&graph, options, plan, make)?;
    let compile_time = start.elapsed() - plan_time;
    Ok(Built { traced, graph, plan, executable, rates: options.rates, plan_time, compile_time })
}

/// Lowers and compiles a plan. A step that fails is taken apart into base groups, and these into single ops if they fail
/// too; the edges between them get the reason. So one kernel that cannot be compiled costs its own fusion and no other.
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

/// Verifies after a pass, in debug builds and on request.
fn checked(graph: Graph) -> Result<Graph> {
    if debug::verifies() {
        verify(&graph)?;
    }
    Ok(graph)
}
