//! An LSTM learns to add: it reads pairs of a number and a mark, and gives the sum of the two marked numbers.
//!
//! `cargo run --release --example train_lstm` is the task of Hochreiter and Schmidhuber (1997) over 12 steps. It saves,
//! resumes with the same bits, and ends with a small error.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

#[path = "kit/chart.rs"]
mod chart;

use opfuse::nn::*;
use opfuse::optim::{Adam, Optimizer, clip_grad_norm};
use opfuse::{DType, Result, Tensor, compile, manual_seed};

const STEPS: i64 = 12;
const BATCH: usize = 64;
const CALLS: usize = 300;

/// An LSTM whose last output becomes a number.
#[derive(Clone, Module)]
struct Adder {
    lstm: LSTM,
    output: Linear,
}

impl Adder {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (outputs, _) = self.lstm.forward(x, None)?;
        self.output.forward(&outputs.select(0, -1)?)
    }
}

/// Sequences `(steps, batch, 2)` and their sums `(batch, 1)`.
fn batch() -> Result<(Tensor, Tensor)> {
    let numbers = Tensor::rand(&[STEPS as usize, BATCH], DType::F32)?;
    let half = STEPS / 2;
    let steps = Tensor::arange(0, STEPS, 1)?.unsqueeze(1)?;
    let (first, second) = (Tensor::randint(0, half, &[1, BATCH])?, Tensor::randint(half, STEPS, &[1, BATCH])?);
    let marks = steps.eq(&first)?.logical_or(&steps.eq(&second)?)?.to_dtype(DType::F32)?;
    let sums = numbers.mul(&marks)?.sum([0], false)?.unsqueeze(1)?;
    Ok((opfuse::stack(&[&numbers, &marks], 2)?, sums))
}

fn main() -> Result<()> {
    manual_seed(4);
    let model = Adder { lstm: LSTM::new(2, 32, RecurrentOptions::default())?, output: Linear::new(32, 1)? };
    let optimizer = Optimizer::new(Adam { lr: 0.01, ..Adam::default() }, model.parameters())?;
    let step = compile(|x: &Tensor, sums: &Tensor| {
        let loss = model.forward(x)?.mse_loss(sums, Reduction::Mean)?;
        loss.backward()?;
        clip_grad_norm(&model.parameters(), 1.0)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
        loss.detach()
    });
    let train = |calls: usize| -> Result<Vec<f32>> {
        let mut means = Vec::new();
        for _ in 0..calls {
            let (x, sums) = batch()?;
            let loss = step.call((&x, &sums))?.item::<f32>()?;
            means.push(means.last().map_or(loss, |mean| 0.95 * mean + 0.05 * loss));
        }
        Ok(means)
    };
    let last = |means: &[f32]| means.last().copied().unwrap_or(f32::NAN);
    let path = std::env::temp_dir().join(format!("opfuse-lstm-{}.safetensors", std::process::id()));
    let checkpoint = Checkpoint::new(&path).with("model", &model).with("optimizer", &optimizer);
    let mut errors = train(CALLS / 2)?;
    println!("after {} steps: error {:.4}", CALLS / 2, last(&errors));
    checkpoint.save()?;
    errors.extend(train(CALLS / 2)?);
    checkpoint.resume()?;
    let (error, again) = (last(&errors), last(&train(CALLS / 2)?));
    std::fs::remove_file(&path).ok();
    assert_eq!(error.to_bits(), again.to_bits(), "the resumed run has the same bits");
    println!("after {CALLS} steps: error {error:.4}; the resumed run has the same bits");
    println!("{}", step.explain());
    let path =
        chart::chart("train_lstm", "Mean square error", &[("training", errors.into_iter().enumerate().collect())])?;
    println!("the errors are in {}", path.display());
    // A network that ignores its input and gives the mean has an error of 1/6.
    assert!(error < 0.05, "the error should have fallen");
    Ok(())
}
