//! The pipeline: from a traced graph to an executable. Start reading here.

use crate::codegen::tier::Tier;
use crate::debug::{self, Stage};
use crate::eager::Executable;
use crate::error::Result;
use crate::fusion::{Options, Plan, Rates, plan};
use crate::ir::passes::{decompose, eliminate_common, eliminate_dead, fold_constants, simplify};
use crate::ir::{Graph, verify};
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
    let start = Instant::now();
    debug::dump(Stage::Trace, || traced.to_string());
    verify(&traced)?;
    let graph = checked(decompose(&traced)?)?;
    let graph = checked(eliminate_common(&graph))?;
    let graph = checked(fold_constants(&graph))?;
    let graph = checked(simplify(&graph))?;
    let graph = checked(eliminate_dead(&graph))?;
    debug::dump(Stage::Simplify, || graph.to_string());
    let plan = plan(&graph, options);
    debug::dump(Stage::Plan, || plan.text(&graph));
    let plan_time = start.elapsed();
    let executable = Executable::build(&graph, &plan, tier)?;
    let compile_time = start.elapsed() - plan_time;
    Ok(Built { traced, graph, plan, executable, rates: options.rates, plan_time, compile_time })
}

/// Verifies after a pass, in debug builds and on request.
fn checked(graph: Graph) -> Result<Graph> {
    if debug::verifies() {
        verify(&graph)?;
    }
    Ok(graph)
}
