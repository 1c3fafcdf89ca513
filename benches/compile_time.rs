//! How long compiling takes: kernels per tier, and whole functions.
//!
//! Every sample is a kernel with other literals, so no cache has it. Whole functions are compiled with an empty kernel
//! cache, and once more with a full one. Kernels of little work begin in the vm. "Machine code for the rest" is what it
//! takes to compile them once they are called often. What `OPFUSE_CACHE_DIR` saves is measured by storing kernels and
//! loading them again.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

#[allow(dead_code, reason = "this bench uses a part of the module")]
mod timing;
#[allow(dead_code, reason = "this bench uses a part of the module")]
mod workloads;

use opfuse::compile::disk;
use opfuse::internals::codegen::LoopOrder;
use opfuse::internals::codegen::cache;
use opfuse::internals::codegen::lower::{Lowered, lower};
use opfuse::internals::codegen::tier::{Compiled, Tier};
use opfuse::internals::compile::pipeline;
use opfuse::internals::compile::pipeline::Built;
use opfuse::internals::fusion::{Options, StepKind, plan};
use opfuse::internals::ir::passes::decompose;
use opfuse::internals::transforms::tracer::trace;
use opfuse::ir::Graph;
use opfuse::{Error, Result, Tensor};
use std::time::Instant;
use timing::{summary, time};
use workloads::{find, uniform};

fn main() -> Result<()> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let n_samples = if quick { 15 } else { 101 };
    println!("{:<44}{:>12}{:>12}{:>12}", format!("{n_samples} kernels each"), "median", "least", "most");
    for with_funcs in [false, true] {
        for n_ops in [5, 10, 20, 60] {
            kernels(n_ops, with_funcs, n_samples)?;
        }
    }
    println!();
    println!("{:<44}{:>12}{:>12}{:>12}", format!("{n_samples} whole functions each"), "median", "least", "most");
    for id in ["W02", "W07", "W16", "W22"] {
        let workload = find(id);
        whole(&format!("{id} {}", workload.what), &(workload.inputs)()?, workload.run, n_samples)?;
    }
    let few = (1..=3).map(|seed| uniform(seed, &[1000])).collect::<Result<Vec<Tensor>>>()?;
    whole("20 ops, with exp and tanh, 1e3", &few, |x| chain(x, 20, true, 0), n_samples)
}

fn print(name: &str, seconds: Vec<f64>) {
    let [median, least, most] = summary(seconds).map(time);
    println!("{name:<44}{median:>12}{least:>12}{most:>12}");
}

/// `n_ops` ops on three tensors, every fifth a transcendental function if asked for.
fn chain(x: &[Tensor], n_ops: usize, with_funcs: bool, sample: usize) -> Result<Vec<Tensor>> {
    let [a, b, c] = x else { unreachable!("three inputs") };
    let mut t = a.clone();
    for k in 0..n_ops {
        let literal = 0.5 + 1e-3 * sample as f64 + 1e-2 * k as f64;
        t = match k % 5 {
            0 => (t * literal)?,
            1 => (t + b)?,
            2 => (t - c)?,
            3 => t.minimum(literal)?,
            _ if with_funcs && k % 2 == 0 => t.tanh()?,
            _ if with_funcs => t.exp()?,
            _ => t.maximum(-literal)?,
        };
    }
    Ok(vec![t])
}

fn traced(inputs: &[Tensor], function: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>) -> Result<Graph> {
    let (_, captured) = trace(inputs, function, Vec::clone)?;
    captured.map(|trace| trace.graph).map_err(|reason| Error::argument("trace", reason.to_string()))
}

fn kernels(n_ops: usize, with_funcs: bool, n_samples: usize) -> Result<()> {
    let inputs: Vec<Tensor> = (1..=3).map(|seed| uniform(seed, &[4096])).collect::<Result<_>>()?;
    let mut lowered: Vec<Lowered> = Vec::with_capacity(n_samples);
    let mut lowering = Vec::with_capacity(n_samples);
    for sample in 0..n_samples {
        let graph = traced(&inputs, |x| chain(x, n_ops, with_funcs, sample))?;
        let start = Instant::now();
        let graph = decompose(&graph)?;
        let plan = plan(&graph, &Options::default());
        let [step] = &plan.steps[..] else { return Err(Error::invalid("plan", plan.text(&graph))) };
        let StepKind::Kernel(region) = &step.kind else { return Err(Error::invalid("plan", plan.text(&graph))) };
        lowered.push(lower(&graph, region, LoopOrder::OfMemory)?);
        lowering.push(start.elapsed().as_secs_f64());
    }
    let with = if with_funcs { "with exp and tanh" } else { "arithmetic" };
    print(&format!("{n_ops} ops, {with}: plan and lower"), lowering);
    for tier in Tier::ALL {
        let mut seconds = Vec::with_capacity(n_samples);
        let mut refused = None;
        for Lowered { kernel, geometry, .. } in &lowered {
            let classes = geometry.classes(kernel);
            let start = Instant::now();
            let (compiled, declined) = Compiled::new(tier, kernel, geometry.lanes, &classes)
                .map_err(|reason| Error::invalid("kernel", reason.to_string()))?;
            seconds.push(start.elapsed().as_secs_f64());
            refused = refused.or(declined);
            drop(compiled);
        }
        print(&format!("{n_ops} ops, {with}: {tier}"), seconds);
        if let Some(reason) = refused {
            println!("  declined: {reason}");
        }
    }
    let path = std::env::temp_dir().join(format!("opfuse-compile-time-{}", std::process::id()));
    disk::use_folder(Some(&path))?;
    for what in ["x64, put on disk", "x64, from disk"] {
        let mut seconds = Vec::with_capacity(n_samples);
        for Lowered { kernel, geometry, .. } in &lowered {
            let classes = geometry.classes(kernel);
            let start = Instant::now();
            let compiled = Compiled::new(Tier::X64, kernel, geometry.lanes, &classes)
                .map_err(|reason| Error::invalid("kernel", reason.to_string()))?;
            seconds.push(start.elapsed().as_secs_f64());
            drop(compiled);
        }
        print(&format!("{n_ops} ops, {with}: {what}"), seconds);
    }
    disk::use_folder(None)?;
    std::fs::remove_dir_all(&path).map_err(|error| Error::argument("compile_time", error.to_string()))
}

fn whole(
    what: &str,
    inputs: &[Tensor],
    run: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    n_samples: usize,
) -> Result<()> {
    let compiled = || -> Result<(f64, f64, Built)> {
        let start = Instant::now();
        let graph = traced(inputs, &run)?;
        let tracing = start.elapsed().as_secs_f64();
        let built = pipeline::build(graph, &Options::default(), None)?;
        Ok((tracing, start.elapsed().as_secs_f64(), built))
    };
    let (mut tracing, mut planning, mut compiling) = (vec![], vec![], vec![]);
    let (mut cold, mut warming, mut known) = (vec![], vec![], vec![]);
    for _ in 0..n_samples {
        cache::clear();
        let (traced, total, built) = compiled()?;
        tracing.push(traced);
        planning.push(built.plan_time.as_secs_f64());
        compiling.push(built.compile_time.as_secs_f64());
        cold.push(total);
        let start = Instant::now();
        built.executable.warm();
        warming.push(start.elapsed().as_secs_f64());
        known.push(compiled()?.1);
    }
    print(&format!("{what}: whole"), cold);
    print("  trace", tracing);
    print("  passes and plan", planning);
    print("  lower and compile", compiling);
    print("  machine code for the rest", warming);
    print("  whole, kernels known", known);
    Ok(())
}
