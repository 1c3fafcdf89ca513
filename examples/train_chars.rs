//! A small transformer learns to write like a license, one character after the other.
//!
//! `cargo run --release --example train_chars` reads the text of a license that is in this folder. It starts at 4.6
//! nats per character, the logarithm of the number of characters, and is to end below 1.45. Half-way it saves a
//! checkpoint. The test inside resumes one, and ends with the same bits. The losses are drawn to
//! `target/train_chars.svg`.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

#[cfg(test)]
#[path = "kit/bits.rs"]
mod bits;
#[path = "kit/chars.rs"]
mod chars;
#[path = "kit/chart.rs"]
mod chart;
#[cfg(test)]
#[path = "kit/resumes.rs"]
mod resumes;

use chars::{Transformer, Windows};
use indicatif::ProgressBar;
use opfuse::data::Loader;
use opfuse::nn::{Checkpoint, Linear, Module};
use opfuse::optim::{AdamW, Optimizer, Schedule, clip_grad_norm};
use opfuse::{Explain, Result, Tensor, compile, manual_seed};
use std::path::Path;

const TEXT: &str = include_str!("../LICENSE-APACHE");
const STEPS: usize = 600;

/// What a run gives: the model, the loss of each step, and the report of the compiled step.
type Run = (Transformer<Linear>, Vec<(usize, f32)>, Explain);

/// Trains up to so many steps, from the checkpoint if there is one. Saves one after `saves_at` steps.
fn train(checkpoint: &Path, steps: usize, saves_at: usize) -> Result<Run> {
    manual_seed(0);
    let model = Transformer::new()?;
    let loader = Loader::new(Windows::of(TEXT)?).batch(16).drop_last().shuffle(1)?;
    let optimizer = Optimizer::new(AdamW::default(), model.parameters())?;
    let schedule = Schedule::Cosine { lr: 4e-3, warmup: 40, steps: STEPS, floor: 1e-4 };
    let checkpoint =
        Checkpoint::new(checkpoint).with("model", &model).with("optimizer", &optimizer).with("data", &loader);
    checkpoint.resume()?;
    let step = compile(|text: &Tensor, next: &Tensor| {
        let loss = model.loss(text, next)?;
        loss.backward()?;
        clip_grad_norm(&model.parameters(), 1.0)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
        loss.detach()
    });
    let mut done = optimizer.state_dict()["0.step"].item::<f64>()? as usize;
    let mut losses = Vec::new();
    // It is drawn where standard error is a terminal.
    let bar = ProgressBar::new(steps as u64);
    while done < steps {
        for batch in loader.epoch()?.take(steps - done) {
            let (text, next) = batch?;
            optimizer.set_lr(schedule.at(done))?;
            losses.push((done, step.call((&text, &next))?.item::<f32>()?));
            done += 1;
            bar.set_position(done as u64);
            if done == saves_at {
                checkpoint.save()?;
            }
        }
    }
    bar.finish_and_clear();
    let report = step.explain();
    drop(step);
    Ok((model, losses, report))
}

/// The mean of the last losses.
fn end(losses: &[(usize, f32)]) -> f32 {
    let last = &losses[losses.len().saturating_sub(50)..];
    last.iter().map(|(_, loss)| loss).sum::<f32>() / last.len() as f32
}

fn main() -> Result<()> {
    let path = std::env::temp_dir().join(format!("opfuse-chars-{}.safetensors", std::process::id()));
    let run = train(&path, STEPS, STEPS / 2);
    std::fs::remove_file(&path).ok();
    let (model, losses, report) = run?;
    for (step, loss) in losses.iter().step_by(100) {
        println!("step {step}: {loss:.3} nats per character");
    }
    println!("{report}");
    println!("{}", model.write("Unless required by ", 120)?);
    let loss = end(&losses);
    let path = chart::chart("train_chars", "Nats per character", &[("training", losses)])?;
    println!("{loss:.3} nats per character in the end; the losses are in {}", path.display());
    assert!(loss < 1.45, "the model should write better");
    Ok(())
}

#[cfg(test)]
#[test]
fn a_resumed_run_has_the_same_bits() -> Result<()> {
    resumes::assert_resumes("chars", 6, |path, saved| train(path, 12, saved))
}
