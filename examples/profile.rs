//! Profiles an encoder of the size of MiniLM, called eagerly and compiled, and training steps of it.
//!
//! `cargo run --release --example profile [FOLDER]` prints the tables, says what profiling costs, and writes traces
//! for Perfetto and pages to the folder.

#![allow(clippy::print_stdout, reason = "an example prints")]

use opfuse::autograd::no_grad;
use opfuse::nn::{Forward, Module, TransformerEncoder, TransformerOptions};
use opfuse::profile::Profile;
use opfuse::{DType, Result, Tensor, compile, profile, scope};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Calls that are profiled.
const CALLS: usize = 10;

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).map(PathBuf::from);
    let options =
        TransformerOptions { feedforward: 1536, dropout: 0.0, gelu: true, batch_first: true, ..Default::default() };
    let encoder = TransformerEncoder::new(384, 12, 6, options)?;
    let x = Tensor::randn(&[4, 64, 384], DType::F32)?;

    let eager = || no_grad_call(|| encoder.forward(&x).map(drop));
    shown("eager calls", folder.as_ref(), &eager)?;

    let compiled = compile(|x: &Tensor| encoder.forward(x));
    let compiled_call = || no_grad_call(|| compiled.call(&x).map(drop));
    shown("compiled calls", folder.as_ref(), &compiled_call)?;

    let step = || {
        let loss = scope("forward", || encoder.forward(&x)?.square()?.mean_all())?;
        loss.backward()?;
        encoder.zero_grad()
    };
    shown("training steps", folder.as_ref(), &step)
}

fn no_grad_call(call: impl FnOnce() -> Result<()>) -> Result<()> {
    let _unrecorded = no_grad();
    call()
}

/// Calls without and with a profile in turns, and prints the last profile.
fn shown(name: &str, folder: Option<&PathBuf>, call: &dyn Fn() -> Result<()>) -> Result<()> {
    let calls = || (0..CALLS).try_for_each(|_| call());
    calls()?;
    let mut best = [Duration::MAX; 2];
    let mut last: Option<Profile> = None;
    for _ in 0..5 {
        let start = Instant::now();
        calls()?;
        best[0] = best[0].min(start.elapsed());
        let (called, profile) = profile(calls)?;
        called?;
        best[1] = best[1].min(profile.wall);
        last = Some(profile);
    }
    let cost = 100.0 * (best[1].as_secs_f64() / best[0].as_secs_f64() - 1.0);
    println!("== {CALLS} {name}: {:.1?} without a profile, {:.1?} with one ({cost:+.1} %)\n", best[0], best[1]);
    if let Some(profile) = last {
        println!("{profile}");
        if let Some(folder) = folder {
            for (ending, text) in [("json", profile.to_chrome_trace()), ("html", profile.to_html())] {
                let path = folder.join(format!("{}.{ending}", name.replace(' ', "_")));
                std::fs::write(&path, text).expect("the folder can be written to");
            }
        }
    }
    Ok(())
}
