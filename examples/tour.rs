//! Follows one function through every floor, and prints each form: `cargo run --release --example tour`.
//!
//! The function adds a residual, normalizes each row and applies gelu. That is thirteen loops over memory op by op, and
//! one when compiled. Each chapter below is one floor, and its code calls what `compile` calls.

#![allow(clippy::print_stdout, reason = "a tour talks")]

use opfuse::dispatch::operator;
use opfuse::internals::codegen::LoopOrder;
use opfuse::internals::codegen::cache;
use opfuse::internals::codegen::lower::{Lowered, lower};
use opfuse::internals::codegen::tier::Tier;
use opfuse::internals::codegen::{cranelift, x64};
use opfuse::internals::fusion::{Decision, Options, Plan, StepKind, plan};
use opfuse::internals::ir::passes::{Target, passes_for};
use opfuse::internals::transforms::tracer::{Trace, trace};
use opfuse::ir::{Graph, Op, verify};
use opfuse::{Error, Result, Tensor, compile};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The function that the tour follows.
fn block(x: &Tensor, residual: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let sum = (x + residual)?;
    let width = x.sizes()[1] as i64;
    sum.layer_norm(width, Some(weight), Some(bias), 1e-5)?.gelu_tanh()
}

fn main() -> Result<ExitCode> {
    let inputs = inputs(4, 1024)?;
    eager(&inputs)?;
    dispatch(&inputs)?;
    let traced = traced(&inputs)?;
    let graph = passes(&traced)?;
    let plan = planned(&graph);
    for step in &plan.steps {
        if let StepKind::Kernel(region) = &step.kind {
            kernel(&lower(&graph, region, LoopOrder::OfMemory)?);
        }
    }
    let small = equal_bits(&inputs)?;
    let large = run()?;
    println!("bits equal: {}", if small && large { "yes" } else { "no" });
    Ok(if small && large { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Numbers that look arbitrary and are the same in every run.
fn inputs(rows: usize, width: usize) -> Result<[Tensor; 4]> {
    let values = |seed: usize, sizes: &[usize]| {
        let value = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0;
        Tensor::from_slice(&(0..sizes.iter().product()).map(value).collect::<Vec<f32>>(), sizes)
    };
    Ok([values(1, &[rows, width])?, values(2, &[rows, width])?, values(3, &[width])?, values(4, &[width])?])
}

fn chapter(title: &str, text: &str) {
    println!("\n== {title} ==\n{text}\n");
}

fn eager(inputs: &[Tensor; 4]) -> Result<()> {
    chapter("1. The call", "A tensor's methods run at once. Everything below has to give this result, bit for bit.");
    let [x, residual, weight, bias] = inputs;
    let result = block(x, residual, weight, bias)?;
    println!(
        "block(x, residual, weight, bias) of {:?}, {:?}, {:?}, {:?}",
        x.sizes(),
        residual.sizes(),
        weight.sizes(),
        bias.sizes()
    );
    println!("  = {:?} of {}, starting {:?}", result.sizes(), result.dtype(), &result.to_vec::<f32>()?[..4]);
    Ok(())
}

fn dispatch(inputs: &[Tensor; 4]) -> Result<()> {
    let text = "What does `x + residual` mean right now? The keys of the operands are joined. The thread's \
                included keys are\nadded, and its excluded ones removed. Fallthrough keys are skipped. The \
                highest key left names the slot of the\noperator's table.";
    chapter("2. Dispatch", text);
    let operator = operator(Op::Add)?;
    let keys = inputs[0].key_set() | inputs[1].key_set();
    println!("{}", operator.name());
    println!("keys of the operands:  {keys}");
    println!("keys of the call:      {}", operator.call_key_set(keys));
    println!("which leads to:        {}", operator.call_key_set(keys).highest());
    let table = operator.dump_table();
    println!("{} slots of its table lead somewhere; those a CPU tensor can meet:", table.lines().count());
    for line in table
        .lines()
        .filter(|line| line.starts_with("CPU:") || line.starts_with("Tracer:") || line.starts_with("AutogradCPU:"))
    {
        println!("  {line}");
    }
    Ok(())
}

fn traced(inputs: &[Tensor; 4]) -> Result<Graph> {
    let text = "With the Tracer key included the same calls are recorded, one node each. Nothing was run for this \
                graph: it was\ntraced on shapes alone.";
    chapter("3. The traced graph", text);
    let function = |x: &[Tensor]| block(&x[0], &x[1], &x[2], &x[3]);
    let (_, captured) = trace(inputs, function, |output| vec![output.clone()])?;
    let Trace { graph, lifted, .. } = captured.map_err(|reason| Error::argument("trace", reason.to_string()))?;
    verify(&graph)?;
    print!("{graph}");
    println!("tensors used without being arguments: {}", lifted.len());
    Ok(graph)
}

/// The passes of `compile::pipeline::build`, which reads the same table.
fn passes(traced: &Graph) -> Result<Graph> {
    chapter("4. Passes", "A pass goes from graph to graph, and the result is verified. All passes keep every bit.");
    let mut graph = traced.clone();
    for pass in passes_for(Target::Cpu) {
        let next = (pass.run)(&graph)?;
        pass.verify(&next)?;
        if next.to_string() == graph.to_string() {
            println!("-- {}: nothing to do", pass.name);
        } else {
            print!("-- {}: {} nodes -> {}\n{next}", pass.name, graph.len(), next.len());
        }
        graph = next;
    }
    Ok(graph)
}

fn planned(graph: &Graph) -> Plan {
    let text = "Which nodes become one kernel? A reduction and what it is broadcast to share a loop over rows. \
                Edges that stay\nare listed with their reason and cost.";
    chapter("5. The plan", text);
    let plan = plan(graph, &Options::default());
    print!("{}", plan.text(graph));
    let fused = plan.edges.iter().filter(|edge| edge.decision == Decision::Fused);
    let (count, mut producers): (usize, Vec<_>) = (fused.clone().count(), fused.map(|edge| edge.producer).collect());
    producers.sort_unstable();
    producers.dedup();
    let bytes: usize = producers.iter().map(|&producer| graph[producer].ty.bytes()).sum();
    println!("{count} of {} edges are fused: {bytes} bytes are neither written nor read again", plan.edges.len());
    plan
}

fn kernel(lowered: &Lowered) {
    let text = "There is one loop form for every code tier: loads, registers per element or per row, folds, stores. \
                Functions such as\ntanh stay calls here; every tier expands them into the same list of \
                scalar primitives.";
    chapter("6. The kernel", text);
    let Lowered { kernel, geometry, .. } = lowered;
    print!("{kernel}");
    println!("run on rows {:?} of {:?} elements; neither is part of the kernel", geometry.rows, geometry.inner);

    chapter("7. Code", "A tier turns the kernel into something that runs.");
    println!("the tier for this kernel: {}", Tier::choose(kernel, geometry));
    let classes = geometry.classes(kernel);
    for (tier, name, text, sum) in [
        ("x64", "instructions", x64::emit_text(x64::Level::Avx512, kernel, &classes), "vaddps"),
        ("cranelift", "CLIF", cranelift::emit_text(kernel, &classes), "fadd"),
    ] {
        match text {
            Err(reason) => println!("{tier} declines: {reason}"),
            Ok(text) => {
                let lines: Vec<&str> = text.lines().collect();
                println!("{tier} makes {} lines of {name} of it; the first sum is in here:", lines.len());
                let start = lines.iter().position(|line| line.contains(sum)).unwrap_or(0).saturating_sub(6);
                lines.iter().skip(start).take(10).for_each(|line| println!("  {line}"));
            }
        }
    }
}

/// Whether the compiled function gives eager's bits, in the call that captures it and in a later one.
fn equal_bits(inputs: &[Tensor; 4]) -> Result<bool> {
    let bits =
        |tensor: Tensor| Ok::<_, Error>(tensor.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect::<Vec<u32>>());
    let [x, residual, weight, bias] = inputs;
    let compiled = compile(block);
    let expected = bits(block(x, residual, weight, bias)?)?;
    let calls = [compiled.call((x, residual, weight, bias))?, compiled.call((x, residual, weight, bias))?];
    Ok(calls.into_iter().map(bits).collect::<Result<Vec<_>>>()?.iter().all(|bits| *bits == expected))
}

fn run() -> Result<bool> {
    let text = "`compile(block)` does all of the above when it is first called. Kernels know no sizes, so nothing is \
                compiled\nagain for more rows.";
    chapter("8. The executable", text);
    let inputs = inputs(2048, 1024)?;
    let [x, residual, weight, bias] = &inputs;
    let equal = equal_bits(&inputs)?;
    let compiled = compile(block);
    compiled.call((x, residual, weight, bias))?;
    print!("{}", compiled.explain());
    let before = cache::stats().compilations;
    let [longer, other, ..] = &crate::inputs(4096, 1024)?;
    compiled.call((longer, other, weight, bias))?;
    println!("kernels compiled for more rows: {}", cache::stats().compilations - before);
    let (mut eager, mut fused) = (Duration::MAX, Duration::MAX);
    for _ in 0..50 {
        eager = eager.min(timed(|| block(x, residual, weight, bias))?);
        fused = fused.min(timed(|| compiled.call((x, residual, weight, bias)))?);
    }
    println!("eager {eager:.1?}, compiled {fused:.1?}: {:.1} times as fast", eager.as_secs_f64() / fused.as_secs_f64());
    Ok(equal)
}

fn timed(work: impl FnOnce() -> Result<Tensor>) -> Result<Duration> {
    let start = Instant::now();
    drop(work()?);
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use opfuse::internals::compile::pipeline;

    #[test]
    fn the_tour_takes_the_way_of_the_pipeline() -> Result<()> {
        let traced = traced(&inputs(4, 1024)?)?;
        let built = pipeline::build(traced.clone(), &Options::default(), None)?;
        let graph = passes(&traced)?;
        assert_eq!(graph.to_string(), built.graph.to_string());
        assert_eq!(planned(&graph).text(&graph), built.plan.text(&built.graph));
        let taken: Vec<&str> = built.passes.iter().map(|pass| pass.name).collect();
        assert_eq!(taken, passes_for(Target::Cpu).map(|pass| pass.name).collect::<Vec<_>>());
        Ok(())
    }
}
