//! Comparisons beside the table: `stream`, `parts`, `sizes` and `overhead` on the command line.

use crate::Request;
use crate::timing::{Effort, Timing, in_turns, summary, time, with_triad};
use crate::workloads::{Workload, find, uniform};
use opfuse::device::{Device, pool};
use opfuse::dispatch::Array;
use opfuse::internals::codegen::cache;
use opfuse::internals::codegen::{Faults, Part, Pointers};
use opfuse::internals::compile::pipeline;
use opfuse::internals::fusion::Options;
use opfuse::internals::runtime::Launch;
use opfuse::internals::transforms::tracer::trace;
use opfuse::ir::TensorType;
use opfuse::{DType, Error, Result, Tensor, compile};
use std::hint::black_box;
use std::time::Instant;

/// One line per comparison that is asked for.
pub(crate) fn lines(request: &Request) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for &threads in &request.threads {
        pool::with_threads(threads, || -> Result<()> {
            if request.wants("stream") {
                lines.push(stream(request.effort, threads)?);
            }
            if request.wants("parts") {
                lines.push(parts(request.effort, threads, &find("W04p"), &find("W04"))?);
                lines.push(parts(request.effort, threads, &find("W05p"), &find("W05"))?);
            }
            Ok(())
        })?;
    }
    if request.wants("sizes") {
        lines.extend(new_sizes(if request.quick { 100 } else { 1000 })?);
    }
    if request.wants("overhead") {
        for n in [1, 64] {
            lines.push(overhead(request.effort, n)?);
        }
    }
    Ok(lines)
}

/// How close the compiled `relu(a*b+c)` comes to the memory's speed.
fn stream(effort: Effort, threads: usize) -> Result<String> {
    let workload = find("W02");
    let inputs = (workload.inputs)()?;
    let function = compile::<Vec<Tensor>, _>(workload.run);
    function.call(&inputs[..])?;
    let bytes = function.explain().bytes_after as f64;
    let (rate, triad) = with_triad(bytes as usize, threads, |triad, triad_bytes| {
        let mut call = || drop(function.call(&inputs[..]).expect("it ran before"));
        let [compiled, triad] = in_turns(effort, [&mut call, triad]);
        (bytes / compiled.best / 1e9, triad_bytes / triad.best / 1e9)
    });
    let share = rate / triad;
    Ok(format!(
        "stream, {threads} thr: relu(a*b+c) at 1e7 into warm buffers {rate:.1} GB/s, triad {triad:.1}: {share:.2} of it"
    ))
}

/// A function written in parts against the same as one op.
fn parts(effort: Effort, threads: usize, parts: &Workload, whole: &Workload) -> Result<String> {
    let inputs = (whole.inputs)()?;
    let (in_parts, in_one) = (compile::<Vec<Tensor>, _>(parts.run), compile::<Vec<Tensor>, _>(whole.run));
    in_parts.call(&inputs[..])?;
    in_one.call(&inputs[..])?;
    let [eager_parts, eager_whole, parts_time, whole_time] = in_turns(
        effort,
        [
            &mut || drop((parts.run)(&inputs).expect("it ran before")),
            &mut || drop((whole.run)(&inputs).expect("it ran before")),
            &mut || drop(in_parts.call(&inputs[..]).expect("it ran before")),
            &mut || drop(in_one.call(&inputs[..]).expect("it ran before")),
        ],
    );
    Ok(format!(
        "parts, {threads} thr: {} compiled {}, as one op {}: ratio {:.2}; eager in parts {}, as one op {}",
        parts.what,
        time(parts_time.best),
        time(whole_time.best),
        parts_time.best / whole_time.best,
        time(eager_parts.best),
        time(eager_whole.best),
    ))
}

/// Twenty ops on `[batch, 32]`, with a row of 32 and a sum.
fn twenty_ops(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut t = x[0].clone();
    for k in 0..6 {
        t = ((t * (1.0 + 0.01 * f64::from(k)))? + &x[1])?.relu()?;
    }
    let total = t.sum(-1, true)?;
    Ok(vec![(t / (total + 1.0)?)?])
}

/// What a size that was never seen before costs.
fn new_sizes(n_sizes: usize) -> Result<Vec<String>> {
    let function = compile::<Vec<Tensor>, _>(twenty_ops);
    let row = uniform(2, &[32])?;
    let input = |batch: usize| Ok(vec![uniform(1, &[batch, 32])?, row.clone()]);
    function.call(&input(n_sizes + 2)?[..])?;
    let n_kernels = function.explain().kernels_after.max(1);
    let before = cache::stats();
    let mut costs = Vec::with_capacity(n_sizes);
    for batch in 2..n_sizes + 2 {
        let inputs: Vec<Tensor> = input(batch)?;
        let start = Instant::now();
        let first = function.call(&inputs[..])?;
        let first_call = start.elapsed();
        drop(first);
        // A later call is the part of the first one that is no news.
        let mut later = f64::MAX;
        for _ in 0..3 {
            let start = Instant::now();
            drop(function.call(&inputs[..])?);
            later = later.min(start.elapsed().as_secs_f64());
        }
        costs.push((first_call.as_secs_f64() - later).max(0.0));
    }
    let after = cache::stats();
    let compilations = (after.compilations - before.compilations) as f64 / n_kernels as f64;
    let [median, least, most] = summary(costs);
    Ok(vec![format!(
        "sizes: {n_sizes} new batch sizes of a 20-op function of {n_kernels} kernels: {compilations:.3} compilations \
         per kernel; a new size costs {} (median; {} to {})",
        time(median),
        time(least),
        time(most)
    )])
}

/// `relu(a*b+c)` of `n` elements: three eager ops, a call of the compiled function, its executable, and its kernel.
fn small_call(effort: Effort, n: usize) -> Result<[Timing; 4]> {
    let eager = find("W20c").run;
    let inputs: Vec<Tensor> = (1..=3).map(|seed| uniform(seed, &[n])).collect::<Result<_>>()?;
    let function = compile(|a: &Tensor, b: &Tensor, c: &Tensor| ((a * b)? + c)?.relu());
    let [a, b, c] = &inputs[..] else { unreachable!("three inputs") };
    function.call((a, b, c))?;
    let (_, captured) = trace(&inputs, eager, Vec::clone)?;
    let graph = captured.map_err(|reason| Error::argument("trace", reason.to_string()))?.graph;
    let built = pipeline::build(graph, &Options::default(), None)?;
    let arrays: Vec<&Array> = inputs.iter().map(Tensor::array).collect();
    built.executable.warm();
    let launch = built.executable.launches().next().expect("the function has one kernel");
    let mut kernel = kernel_alone(launch, &arrays, n)?;
    Ok(in_turns(
        effort,
        [
            &mut || drop(black_box(eager(&inputs).expect("it ran before"))),
            &mut || drop(black_box(function.call((a, b, c)).expect("it ran before"))),
            &mut || drop(black_box(built.executable.run(&arrays).expect("it ran before"))),
            &mut kernel,
        ],
    ))
}

/// Seconds that a call of a compiled function takes beside its kernel.
pub(crate) fn call_cost(effort: Effort) -> Result<f64> {
    let [_, call, _, kernel] = small_call(effort, 64)?;
    Ok(call.best - kernel.best)
}

/// What a call of a compiled function costs beside its kernel.
fn overhead(effort: Effort, n: usize) -> Result<String> {
    let [three_ops, call, executable, kernel] = small_call(effort, n)?;
    Ok(format!(
        "overhead: relu(a*b+c) of {n}: compiled call {:.0} ns (three eager ops {:.0}); its executable {:.0}, its \
         kernel alone {:.0}; so a call costs {:.0} ns over its kernel",
        call.nanos(),
        three_ops.nanos(),
        executable.nanos(),
        kernel.nanos(),
        call.nanos() - kernel.nanos(),
    ))
}

/// The only kernel of a function of f32 tensors of `n` elements, as a bare run on fixed memory.
fn kernel_alone<'a>(launch: &'a Launch, inputs: &'a [&Array], n: usize) -> Result<impl FnMut() + 'a> {
    let out = Array::new(Device::CPU, &TensorType::contiguous(DType::F32, &[n]))?;
    let geometry = &launch.lowered.geometry;
    // Inputs are the first nodes of a graph.
    let node = |operand: &Option<_>| operand.map_or(0, |node: opfuse::ir::NodeId| node.index());
    let operands: Vec<*const u8> =
        launch.lowered.operands.iter().map(|operand| inputs[node(operand)].ptr().cast_const()).collect();
    let part = Part { outer: 0..geometry.n_rows(), lanes: 0..geometry.inner.last().copied().unwrap_or(1) };
    Ok(move || {
        let faults = Faults::new();
        let pointers = Pointers { operands: &operands, outputs: &[out.ptr()] };
        #[allow(unsafe_code, reason = "the bare kernel takes pointers")]
        // SAFETY: the operands are the arrays that the kernel was lowered for, alive by `inputs`; `out` has the type of
        // its output and is known here alone.
        unsafe {
            launch.code.now().entry.compiled.run(geometry, pointers, &part, &faults);
        }
    })
}
