//! `opfuse bench`: eager and compiled calls in turns.

use crate::{Fallible, Outcome, data};
use indicatif::ProgressBar;
use opfuse::Tensor;
use opfuse::autograd::no_grad;
use opfuse::exported::Program;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program.
    model: PathBuf,
    /// Files of inputs, as for `run`. They are made up if none is given.
    #[arg(long = "input", short)]
    inputs: Vec<PathBuf>,
    /// Values of symbolic sizes of inputs that are made up.
    #[arg(long = "size", default_values_t = [1, 4, 16])]
    sizes: Vec<usize>,
    /// How long each way is run for each size, in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

/// Times of one way to call.
struct Times {
    first: Duration,
    all: Vec<Duration>,
}

pub(crate) fn run(arguments: &Arguments, json: bool) -> Fallible<Outcome> {
    let _unrecorded = no_grad();
    let mut rows = Vec::new();
    let cases: Vec<(String, Vec<Tensor>)> = {
        let program = Program::load(&arguments.model)?;
        match arguments.inputs.is_empty() {
            false => vec![("as given".to_owned(), data::inputs(&program, &arguments.inputs)?)],
            true => {
                let is_dynamic = program.inputs().iter().any(|input| input.sizes().contains(&None));
                let sizes = if is_dynamic { &arguments.sizes[..] } else { &arguments.sizes[..1] };
                let made = |&size: &usize| Ok((size.to_string(), data::made(&program, size)?));
                sizes.iter().map(made).collect::<Fallible<_>>()?
            }
        }
    };
    if !json {
        println!("{}", data::name(&arguments.model));
        println!(
            "{:>10} {:>12} {:>12} {:>12} {:>12} {:>9}",
            "size", "first eager", "eager", "first", "compiled", "speed-up"
        );
    }
    let progress = ProgressBar::new_spinner();
    for (size, inputs) in cases {
        let program = Program::load(&arguments.model)?;
        let budget = Duration::try_from_secs_f64(arguments.seconds)?;
        let [eager, compiled] = in_turns(&program, &inputs, budget, &progress)?;
        let speed_up = eager.best().as_secs_f64() / compiled.best().as_secs_f64();
        if json {
            let of = |times: &Times| {
                json!({"first_s": times.first.as_secs_f64(), "best_s": times.best().as_secs_f64(),
                       "median_s": times.median().as_secs_f64(), "calls": times.all.len()})
            };
            rows.push(json!({"size": size, "eager": of(&eager), "compiled": of(&compiled), "speed_up": speed_up}));
        } else {
            let ms = |time: Duration| format!("{:.3} ms", time.as_secs_f64() * 1e3);
            progress.suspend(|| {
                println!(
                    "{size:>10} {:>12} {:>12} {:>12} {:>12} {speed_up:>8.2}x",
                    ms(eager.first),
                    ms(eager.best()),
                    ms(compiled.first),
                    ms(compiled.best())
                );
            });
        }
    }
    progress.finish_and_clear();
    if json {
        println!("{:#}", json!({"threads": opfuse::device::pool::num_threads(), "rows": rows}));
    } else {
        println!("best of the calls in {} s each, {} threads", arguments.seconds, opfuse::device::pool::num_threads());
    }
    Ok(Outcome::Fine)
}

impl Times {
    fn best(&self) -> Duration {
        self.all.iter().copied().min().unwrap_or(self.first)
    }

    fn median(&self) -> Duration {
        let mut sorted = self.all.clone();
        sorted.sort();
        sorted.get(sorted.len() / 2).copied().unwrap_or(self.first)
    }
}

/// Calls both ways in turns until each had its time.
fn in_turns(program: &Program, inputs: &[Tensor], budget: Duration, progress: &ProgressBar) -> Fallible<[Times; 2]> {
    let timed = |call: fn(&Program, &[Tensor]) -> opfuse::Result<Vec<Tensor>>| -> Fallible<Duration> {
        let start = Instant::now();
        let outputs = call(program, inputs)?;
        let time = start.elapsed();
        drop(outputs);
        Ok(time)
    };
    let ways = [Program::call_eager, Program::call];
    let mut times = [Times { first: timed(ways[0])?, all: vec![] }, Times { first: timed(ways[1])?, all: vec![] }];
    let start = Instant::now();
    while start.elapsed() < budget * 2 {
        for (way, times) in ways.into_iter().zip(&mut times) {
            times.all.push(timed(way)?);
        }
        progress.tick();
    }
    Ok(times)
}
