//! What a loop of `func::scan` costs: its first call, each step over its kernels, and its backward pass.
//!
//! The body is a damped oscillator of 64 values with seven ops. "Kernels alone" are the kernels of the body on the same
//! values, each timed by itself; the rest of a step is what the loop adds. The first call is measured with bodies of
//! other literals, so no cache has their code. The backward pass is measured at three lengths, whose times and bytes
//! show how both grow.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

#[allow(dead_code, reason = "this bench uses a part of the module")]
mod timing;

use opfuse::device::allocator::{reset_peak, stats};
use opfuse::func::scan;
use opfuse::internals::compile::pipeline;
use opfuse::internals::fusion::Options;
use opfuse::internals::transforms::tracer::trace;
use opfuse::{DType, Error, Result, Tensor, compile};
use std::time::{Duration, Instant};
use timing::time;

const N_STEPS: usize = 2000;

type State = (Tensor, Tensor);

fn step(damping: f64, (place, speed): &State, push: &Tensor) -> Result<(State, Tensor)> {
    let force = ((place * 0.5)? + (speed * damping)?)?;
    let speed = ((speed - (force * 0.01)?)? + push)?;
    let place = (place + (&speed * 0.01)?)?;
    Ok(((place.clone(), speed), place))
}

fn swing(damping: f64, place: &Tensor, pushes: &Tensor) -> Result<Tensor> {
    let body = |carry: &State, push: &Tensor| step(damping, carry, push);
    let ((_, speed), places) = scan(body, &(place.clone(), place.zeros_like()?), pushes)?;
    places.mean([0], false)? + speed
}

fn unrolled(damping: f64, place: &Tensor, pushes: &Tensor) -> Result<Tensor> {
    let (mut carry, mut sum) = ((place.clone(), place.zeros_like()?), place.zeros_like()?);
    for at in 0..pushes.sizes()[0] {
        let (next, place) = step(damping, &carry, &pushes.select(0, at as i64)?)?;
        (carry, sum) = (next, (sum + place)?);
    }
    (sum / pushes.sizes()[0] as f64)? + carry.1
}

fn arguments(n_steps: usize) -> Result<(Tensor, Tensor)> {
    Ok((Tensor::linspace(-1.0, 1.0, 64)?, Tensor::full(&[n_steps, 64], 1e-3, DType::F32)?))
}

fn least(n: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = Duration::MAX;
    for _ in 0..n {
        let start = Instant::now();
        work()?;
        best = best.min(start.elapsed());
    }
    Ok(best.as_secs_f64())
}

fn main() -> Result<()> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let n = if quick { 5 } else { 31 };
    let (place, pushes) = arguments(N_STEPS)?;
    let mut literal = 0.1;
    let mut first = |pushes: &Tensor| {
        literal += 1e-3;
        let damping = literal;
        let f = compile(move |place: &Tensor, pushes: &Tensor| swing(damping, place, pushes));
        f.call((&place, pushes)).map(|_| ())
    };
    for n_steps in [2, N_STEPS] {
        let pushes = arguments(n_steps)?.1;
        println!("first call, {n_steps} steps: {}", time(least(n, || first(&pushes))?));
    }
    let f = compile(|place: &Tensor, pushes: &Tensor| swing(0.1, place, pushes));
    let later = least(n, || f.call((&place, &pushes)).map(|_| ()))?;
    let eager = least(n, || swing(0.1, &place, &pushes).map(|_| ()))?;
    let by_hand = least(n.min(7), || unrolled(0.1, &place, &pushes).map(|_| ()))?;
    let per_step = later / N_STEPS as f64;
    let kernels = kernels(&place, &pushes)?;
    println!("a call, {N_STEPS} steps: {}; eagerly {}, as a plain loop {}", time(later), time(eager), time(by_hand));
    println!("a step: {}; kernels alone {}, over them {}", time(per_step), time(kernels), time(per_step - kernels));
    println!("plain loop over scan: {:.1}", by_hand / later);
    println!();
    let mut before: Option<(f64, usize)> = None;
    for n_steps in [N_STEPS / 4, N_STEPS / 2, N_STEPS] {
        let (place, pushes) = arguments(n_steps)?;
        place.set_requires_grad(true)?;
        pushes.set_requires_grad(true)?;
        let train = || -> Result<()> {
            f.call((&place, &pushes))?.sum_all()?.backward()?;
            [&place, &pushes].into_iter().try_for_each(|x| x.set_grad(None))
        };
        train()?;
        reset_peak();
        let held = stats().live_bytes;
        train()?;
        let bytes = stats().peak_bytes.saturating_sub(held);
        let seconds = least(n, train)?;
        let grown = before.map_or_else(String::new, |(time, size)| {
            format!("; {:.2} times the time, {:.2} times the bytes", seconds / time, bytes as f64 / size as f64)
        });
        println!("forward and backward, {n_steps} steps: {}, {} KiB{grown}", time(seconds), bytes >> 10);
        before = Some((seconds, bytes));
    }
    Ok(())
}

/// Seconds of the kernels of one step.
fn kernels(place: &Tensor, pushes: &Tensor) -> Result<f64> {
    let inputs = [place.clone(), place.zeros_like()?, pushes.select(0, 0)?];
    let body = |x: &[Tensor]| step(0.1, &(x[0].clone(), x[1].clone()), &x[2]);
    let results = |(carry, y): &(State, Tensor)| vec![carry.0.clone(), carry.1.clone(), y.clone()];
    let (_, traced) = trace(&inputs, body, results)?;
    let traced = traced.map_err(|reason| Error::argument("loops", reason.to_string()))?;
    let executable = pipeline::build(traced.graph, &Options::default(), None)?.executable;
    executable.warm();
    let arrays: Vec<_> = inputs.iter().map(Tensor::array).collect();
    let mut best = Duration::MAX;
    for _ in 0..20_000 {
        best = best.min(executable.run_timed(&arrays)?.iter().sum());
    }
    Ok(best.as_secs_f64())
}
