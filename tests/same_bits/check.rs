//! Compares a compiled graph with its nodes run one by one.
//!
//! The reference is eager: every node of the original graph, run alone. It uses nothing of the pipeline but the ops.

use super::build::Case;
use super::guarded;
use super::legality::{broken_by_groups, broken_by_plan};
use super::reference::{reference, same};
use crate::panics::message;
use opfuse::device::{Device, Shared, Storage, pool};
use opfuse::dispatch::Array;
use opfuse::error::Reason;
use opfuse::internals::codegen::kernel::{Inst, Kernel, Kind};
use opfuse::internals::codegen::tier::Tier;
use opfuse::internals::codegen::{Faults, interp};
use opfuse::internals::compile::pipeline::{Built, build, build_if};
use opfuse::internals::fusion::blocks::DOUBT;
use opfuse::internals::fusion::cost::CostModel;
use opfuse::internals::fusion::split::{Parts, split};
use opfuse::internals::fusion::units::pattern_graph;
use opfuse::internals::fusion::{Decision, Options, Order, Plan, StepKind, partition, plan};
use opfuse::internals::ir::passes::PASSES;
use opfuse::internals::runtime::{Executable, Traffic};
use opfuse::ir::{Graph, Layout, NodeId, verify};
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Instructions of the longest kernel that [`refused`] accepts: many single ops have fewer, many groups have more.
const MOST_INSTS: usize = 12;

/// What is checked besides the tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// The tiers alone.
    Tiers,
    /// Also the slow interpreter on every launched kernel, and the bytes counted in it.
    Interpreter,
}

/// The first failure of a case, if there is one.
pub(crate) fn failure(case: &Case, effort: Effort) -> Option<String> {
    catch_unwind(AssertUnwindSafe(|| check(case, effort).err()))
        .unwrap_or_else(|payload| Some(format!("panic: {}", message(&*payload))))
}

fn check(case: &Case, effort: Effort) -> Result<(), String> {
    let text = case.graph.to_string();
    let parsed: Graph = text.parse().map_err(|error| format!("the text does not parse: {error}"))?;
    // NaN numbers print without their payload, so texts are compared.
    if parsed.to_string() != text {
        return Err(format!("the text parses to another graph:\n{parsed}"));
    }
    passes(&case.graph)?;
    let expected = reference(&case.graph, &case.inputs)?;
    // Eager reads memory of the allocator, and what is compiled reads memory that ends at a guard.
    let inputs: Vec<Array> = case.inputs.iter().map(guarded::array).collect();
    let large = case.graph.nodes().any(|(_, node)| node.ty.numel() > 4096);
    for tier in Tier::ALL.map(Some).into_iter().chain([None]) {
        let name = tier.map_or("chosen", Tier::name);
        let options = options(case, tier);
        let built = build(case.graph.clone(), &options, tier).map_err(|error| format!("{name}: {error}"))?;
        legal(&built, &options)
            .map_err(|what| format!("{name}, {options:?}: {what}\n{}{}", built.graph, built.plan.text(&built.graph)))?;
        let runs: &[usize] = if large { &[1, 2] } else { &[2] };
        for &threads in runs {
            let (graph, label) = (&case.graph, format!("tier {name}, {threads} threads"));
            pool::with_threads(threads, || outputs(graph, &built, &inputs, &expected))
                .map_err(|what| format!("{label}: {what}\n{}{}", built.graph, built.plan.text(&built.graph)))?;
        }
        worth(&built, &options)?;
        if effort == Effort::Interpreter && tier == Some(Tier::Vm) {
            refused(case, &options, &expected)?;
            for parts in [Parts::Base, Parts::Ops] {
                split_plan(case, &built, &options, parts, &expected)?;
            }
            interpreted(&built, &case.inputs)?;
            counted(&case.graph, &built, &case.inputs, &expected)?;
        }
    }
    Ok(())
}

/// The limits of a case's plan. Where the tier is chosen, they differ from graph to graph.
fn options(case: &Case, tier: Option<Tier>) -> Options {
    let default = Options::default();
    let others = [
        default,
        Options { max_fuse_depth: 2, ..default },
        default,
        Options { max_fuse_depth: 5, ..default },
        default,
        Options { max_function_args: 4, ..default },
        Options { order: Order::Strict, ..default },
        Options { opt_level: 0, ..default },
    ];
    if tier.is_none() { others[case.graph.len() % others.len()] } else { default }
}

/// Checks that the groups of the base partitioner and the kernels of the plan are legal.
fn legal(built: &Built, options: &Options) -> Result<(), String> {
    let pattern_graph = pattern_graph(&built.graph);
    let groups = partition(&pattern_graph, options).groups;
    let broken = broken_by_groups(&pattern_graph, options, &groups).map(|rule| format!("base groups: {rule}"));
    broken.or_else(|| broken_by_plan(&built.graph, options, &built.plan)).map_or(Ok(()), Err)
}

/// Checks that a plan takes no longer than op by op, by the cost model.
fn worth(built: &Built, options: &Options) -> Result<(), String> {
    let cost = CostModel::new(&built.graph, options.rates);
    let time = |plan: &Plan| plan.steps.iter().map(|step| cost.unit(step)).sum::<f64>();
    let ops = plan(&built.graph, &Options { opt_level: 0, ..*options });
    let (fused, apart) = (time(&built.plan), time(&ops));
    let has_blocks = built.plan.steps.iter().any(|step| matches!(step.kind, StepKind::Blocks(_)));
    if fused <= apart * if has_blocks { DOUBT } else { 1.000_001 } {
        return Ok(());
    }
    Err(format!(
        "{fused} ns modelled, op by op {apart}\n{}{}{}",
        built.graph,
        built.plan.text(&built.graph),
        ops.text(&built.graph)
    ))
}

/// Checks that a plan whose groups are all split has the same bits, and a reason for each cut edge.
fn split_plan(case: &Case, built: &Built, options: &Options, parts: Parts, expected: &[Array]) -> Result<(), String> {
    let reason = Reason::MeasuredSlower { together: Duration::from_nanos(417), apart: Duration::ZERO };
    let all: HashMap<usize, Reason> = (0..built.plan.steps.len()).map(|step| (step, reason.clone())).collect();
    let plan = split(&built.graph, options, &built.plan, parts, &all);
    let label = |what: &dyn std::fmt::Display| format!("{parts:?}: {what}\n{}{}", built.graph, plan.text(&built.graph));
    if plan.n_kernels() < built.plan.n_kernels() {
        return Err(label(&"there are fewer kernels"));
    }
    let executable = Executable::build(&built.graph, &plan, None).map_err(|error| label(&error))?;
    let inputs: Vec<&Array> = case.inputs.iter().collect();
    let got = executable.run(&inputs).map_err(|error| label(&error))?;
    all_same(&case.graph, &got, expected).map_err(|what| label(&what))?;
    for (before, after) in built.plan.edges.iter().zip(&plan.edges) {
        let is_cut = before.decision == Decision::Fused && after.decision != Decision::Fused;
        if is_cut && after.decision != Decision::Kept(reason.clone()) {
            return Err(label(&format!("{after} instead of the reason for the split")));
        }
    }
    Ok(())
}

/// Checks that groups whose kernels are refused are split, with the same bits. It is an error only if single ops are
/// refused, too.
fn refused(case: &Case, options: &Options, expected: &[Array]) -> Result<(), String> {
    let reason = Reason::GroupTooLarge;
    let accepts = |kernel: &Kernel| if kernel.insts.len() > MOST_INSTS { Err(reason.clone()) } else { Ok(()) };
    let built = match build_if(case.graph.clone(), options, None, &accepts) {
        Ok(built) => built,
        Err(error) => {
            let built = build(case.graph.clone(), options, None).map_err(|error| error.to_string())?;
            let ops = plan(&built.graph, &Options { opt_level: 0, ..*options });
            return match Executable::build_if(&built.graph, &ops, None, &accepts) {
                Err(failure) if failure.reason == reason && error.to_string().contains(&reason.to_string()) => Ok(()),
                Err(_) | Ok(_) => Err(format!("refused: {error}\n{}", ops.text(&built.graph))),
            };
        }
    };
    let lengths = built.executable.launches().map(|launch| launch.lowered.kernel.insts.len());
    if lengths.max().unwrap_or(0) > MOST_INSTS {
        return Err("a refused kernel was compiled".into());
    }
    let inputs: Vec<&Array> = case.inputs.iter().collect();
    let got = built.executable.run(&inputs).map_err(|error| format!("refused: {error}"))?;
    all_same(&case.graph, &got, expected).map_err(|what| format!("refused: {what}"))
}

/// Checks that every pass leaves a graph that verifies.
fn passes(graph: &Graph) -> Result<(), String> {
    verify(graph).map_err(|error| format!("before all passes: {error}\n{graph}"))?;
    let mut graph = graph.clone();
    for pass in PASSES {
        graph = (pass.run)(&graph).map_err(|error| format!("{}: {error}\n{graph}", pass.name))?;
        pass.verify(&graph).map_err(|error| format!("{error}\n{graph}"))?;
    }
    Ok(())
}

fn outputs(graph: &Graph, built: &Built, inputs: &[Array], expected: &[Array]) -> Result<(), String> {
    let inputs: Vec<&Array> = inputs.iter().collect();
    let got = built.executable.run(&inputs).map_err(|error| error.to_string())?;
    all_same(graph, &got, expected)
}

fn all_same(graph: &Graph, got: &[Array], expected: &[Array]) -> Result<(), String> {
    if got.len() != graph.outputs().len() {
        return Err(format!("{} outputs instead of {}", got.len(), graph.outputs().len()));
    }
    for (position, (got, id)) in got.iter().zip(graph.outputs()).enumerate() {
        same(got, &expected[id.index()]).map_err(|what| format!("output {position}, {id}: {what}"))?;
    }
    Ok(())
}

/// The bytes of memory that no kernel has written.
const UNWRITTEN: u8 = 0xa5;

/// Runs every launched kernel in the interpreter, on eager's values of its operands.
fn interpreted(built: &Built, inputs: &[Array]) -> Result<(), String> {
    let values = reference(&built.graph, inputs).map_err(|what| format!("the planned graph: {what}"))?;
    let mut made: BTreeMap<NodeId, Vec<u8>> = BTreeMap::new();
    for (kernel, launch) in built.executable.launches_by_kernel() {
        let lowered = &launch.lowered;
        // The memory of a value that is written in place holds the old value.
        let places = || built.executable.in_place.iter().filter(|(other, _)| *other == kernel).map(|(_, place)| place);
        let operands: Vec<Vec<u8>> = lowered
            .operands
            .iter()
            .map(|node| match node {
                &Some(node) => {
                    let handed_on = made.get(&node).filter(|_| is_handed_on(&built.plan, node));
                    handed_on.cloned().unwrap_or_else(|| from(&values[node.index()]))
                }
                None => Vec::new(),
            })
            .collect();
        let operands: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
        let mut buffers: Vec<Vec<u8>> = Vec::new();
        for &node in &lowered.outputs {
            let ty = &built.graph[node].ty;
            let layout = Layout { sizes: ty.sizes.clone(), strides: ty.strides.clone(), offset: 0 };
            // A concatenation is written part by part.
            let start = || match places().find(|place| place.to == node) {
                Some(place) => from(&values[place.from.index()]),
                None => vec![UNWRITTEN; layout.extent() * ty.dtype.size()],
            };
            buffers.push(made.remove(&node).unwrap_or_else(start));
        }
        let mut slices: Vec<&mut [u8]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
        interp::run(&lowered.kernel, &lowered.geometry, &operands, &mut slices, &Faults::new());
        for (&node, buffer) in lowered.outputs.iter().zip(buffers) {
            match made.get_mut(&node) {
                // A kernel that writes a concatenation has an output for each part.
                Some(whole) => {
                    let open = whole.iter_mut().zip(buffer).filter(|(byte, _)| **byte == UNWRITTEN);
                    open.for_each(|(byte, written)| *byte = written);
                }
                None => drop(made.insert(node, buffer)),
            }
        }
    }
    made.retain(|&node, _| !is_handed_on(&built.plan, node));
    for (node, bytes) in made {
        let value = &values[node.index()];
        let storage = Storage::copy_of(Device::CPU, &bytes).map_err(|error| error.to_string())?;
        let layout = Layout { offset: 0, ..value.layout().clone() };
        let got =
            Array::from_storage(Shared::new(storage), value.dtype(), layout).map_err(|error| error.to_string())?;
        same(&got, value).map_err(|what| {
            let kernels: Vec<String> =
                built.executable.launches().map(|launch| launch.lowered.kernel.to_string()).collect();
            format!("interpreter, {node}: {what}\n{}{}", built.graph, kernels.concat())
        })?;
    }
    Ok(())
}

/// Whether a value stays inside its kernel: the prologue hands it on, in an order of its own.
fn is_handed_on(plan: &Plan, node: NodeId) -> bool {
    plan.steps.iter().any(|step| step.nodes.contains(&node) && !step.outputs.contains(&node))
}

/// Checks that the bytes counted in a run are those of the plan, and that the run has eager's bits.
fn counted(graph: &Graph, built: &Built, inputs: &[Array], expected: &[Array]) -> Result<(), String> {
    let inputs: Vec<&Array> = inputs.iter().collect();
    let (got, counted) = built.executable.run_counted(&inputs).map_err(|error| format!("counted: {error}"))?;
    all_same(graph, &got, expected).map_err(|what| format!("counted run: {what}"))?;
    let modelled = built.executable.traffic();
    // An element that an index picks twice counts once, which only the run shows.
    let is_gather = |inst: &Inst| matches!(inst.kind, Kind::Gather(_));
    let picks = built.executable.launches().any(|launch| launch.lowered.kernel.insts.iter().any(is_gather));
    let places = &built.executable.in_place;
    let fits = |(counted, modelled): (&Traffic, &Traffic)| {
        let writes_by_index = places.iter().any(|(kernel, _)| *kernel == modelled.kernel);
        let at_most =
            |picks: bool, counted: usize, modelled: usize| counted == modelled || (picks && counted < modelled);
        counted.kernel == modelled.kernel
            && at_most(writes_by_index, counted.written, modelled.written)
            && at_most(picks || writes_by_index, counted.read, modelled.read)
    };
    if counted.len() == modelled.len() && counted.iter().zip(&modelled).all(fits) {
        return Ok(());
    }
    let (graph, plan) = (&built.graph, built.plan.text(&built.graph));
    Err(format!("counted {counted:?}\nmodelled {modelled:?}\n{graph}{plan}"))
}

/// The bytes from an array's first element on.
fn from(array: &Array) -> Vec<u8> {
    array.storage().read(|bytes| bytes.get(array.layout().offset * array.dtype().size()..).unwrap_or(&[]).to_vec())
}
