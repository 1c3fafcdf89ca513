//! A small convolutional network learns to read digits of 8 by 8 pixels.
//!
//! `cargo run --release --example train_digits` draws the digits from a seed, shifted and noisy, and trains until the
//! network reads at least 98 % of unseen ones. Half-way it saves a checkpoint; a second network resumes it, and ends
//! with the same bits. The report of the compiled step ends the output, and `target/train_digits.svg` has the losses.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

#[path = "kit/bits.rs"]
mod bits;
#[path = "kit/chart.rs"]
mod chart;
#[path = "kit/digits.rs"]
mod digits;

use digits::digits;
use opfuse::data::{Accuracy, Loader};
use opfuse::nn::*;
use opfuse::optim::{AdamW, Optimizer, Schedule};
use opfuse::{Result, Tensor, compile, manual_seed};

fn network() -> Result<Sequential> {
    let padded = Convolution { padding: 1.into(), ..Convolution::default() };
    Ok(Sequential::new()
        .with(Conv2d::with(1, 16, 3, padded.clone())?)
        .with(ReLU {})
        .with(Conv2d::with(16, 32, 3, padded)?)
        .with(ReLU {})
        .with(MaxPool2d::new(2))
        .with(Flatten { start: 1, end: -1 })
        .with(Linear::new(32 * 16, 64)?)
        .with(ReLU {})
        .with(Linear::new(64, 10)?))
}

const EPOCHS: usize = 8;

/// What a run gives: the network, the part of unseen digits that it reads, and the loss of each step.
type Run = (Sequential, f64, Vec<(usize, f32)>);

/// Trains to the end. Saves a checkpoint half-way, or resumes from it.
fn train(path: &std::path::Path, resumes: bool) -> Result<Run> {
    let mut losses = Vec::new();
    let mut model = network()?;
    let optimizer = Optimizer::new(AdamW::default(), model.parameters())?;
    let loader = Loader::new(digits(3000, 1, 0.15)?).batch(25).drop_last().shuffle(2)?.workers(1);
    let schedule = Schedule::Cosine { lr: 5e-3, warmup: 30, steps: EPOCHS * loader.n_batches(), floor: 1e-5 };
    {
        let checkpoint =
            Checkpoint::new(path).with("model", &model).with("optimizer", &optimizer).with("data", &loader);
        if resumes {
            checkpoint.resume()?;
        }
        let step = compile(|x: &Tensor, digits: &Tensor| {
            let loss = model.forward(x)?.cross_entropy(digits, &CrossEntropy::default())?;
            optimizer.minimize(&loss)?;
            loss.detach()
        });
        for epoch in loader.epoch_number()?..EPOCHS {
            let mut loss = f32::NAN;
            for (at, batch) in loader.epoch()?.enumerate() {
                let (x, digits) = batch?;
                let done = epoch * loader.n_batches() + at;
                optimizer.set_lr(schedule.at(done))?;
                loss = step.call((&x, &digits))?.item::<f32>()?;
                losses.push((done, loss));
            }
            println!("epoch {epoch}: loss {loss:.4}");
            if !resumes && epoch + 1 == EPOCHS / 2 {
                checkpoint.save()?;
            }
        }
        if resumes {
            println!("{}", step.explain());
        }
    }
    model.eval();
    let accuracy = Accuracy::new()?;
    let _unrecorded = opfuse::autograd::no_grad();
    for batch in Loader::new(digits(1000, 3, 0.15)?).batch(250).epoch()? {
        let (x, digits) = batch?;
        accuracy.update(&model.forward(&x)?, &digits)?;
    }
    let read = accuracy.value()?;
    Ok((model, read, losses))
}

fn main() -> Result<()> {
    manual_seed(0);
    let path = std::env::temp_dir().join(format!("opfuse-digits-{}.safetensors", std::process::id()));
    let (model, read, losses) = train(&path, false)?;
    let resumed = train(&path, true);
    std::fs::remove_file(&path).ok();
    let (other, _, _) = resumed?;
    println!("{:.1} % of unseen digits are read", 100.0 * read);
    bits::assert_same_bits(&model, &other)?;
    println!("the resumed run has the same bits");
    let path = chart::chart("train_digits", "Cross entropy", &[("training", losses)])?;
    println!("the losses are in {}", path.display());
    assert!(read >= 0.98, "the network should read more");
    Ok(())
}
