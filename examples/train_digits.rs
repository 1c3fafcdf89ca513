//! A small convolutional network learns to read digits of 8 by 8 pixels.
//!
//! `cargo run --release --example train_digits` draws the digits from a seed, shifted and noisy, and trains until the
//! network reads at least 98 % of unseen ones. Half-way it saves a checkpoint; a second network resumes it, and ends
//! with the same bits. The report of the compiled step ends the output.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use opfuse::data::{Accuracy, Loader, TensorDataset};
use opfuse::nn::*;
use opfuse::optim::{AdamW, Optimizer, Schedule};
use opfuse::{DType, Generator, Result, Tensor, compile, manual_seed};

/// Digits in 5 by 3 pixels, a row of three bits per line.
const GLYPHS: [[u8; 5]; 10] = [
    [7, 5, 5, 5, 7],
    [2, 6, 2, 2, 7],
    [7, 1, 7, 4, 7],
    [7, 1, 3, 1, 7],
    [5, 5, 7, 1, 1],
    [7, 4, 7, 1, 7],
    [7, 4, 7, 5, 7],
    [7, 1, 2, 2, 2],
    [7, 5, 7, 5, 7],
    [7, 5, 7, 1, 7],
];

/// So many images `(n, 1, 8, 8)` and their digits.
fn digits(n: usize, seed: u64) -> Result<TensorDataset> {
    let generator = Generator::new(opfuse::Device::CPU);
    generator.manual_seed(seed);
    let places = generator.randint(0, 10 * 4 * 6, &[n])?.to_vec::<i64>()?;
    let mut pixels = vec![0.0f32; n * 64];
    for (image, &place) in pixels.chunks_mut(64).zip(&places) {
        let (digit, top, left) = (place % 10, (place / 10) % 4, place / 40);
        for (row, bits) in GLYPHS[digit as usize].iter().enumerate() {
            for column in (0..3).filter(|column| bits >> (2 - column) & 1 == 1) {
                image[(row + top as usize) * 8 + column + left as usize] = 1.0;
            }
        }
    }
    let noise = generator.randn(&[n, 1, 8, 8], DType::F32)?.mul(0.15)?;
    let labels: Vec<i64> = places.iter().map(|place| place % 10).collect();
    TensorDataset::new(Tensor::from_slice(&pixels, &[n, 1, 8, 8])?.add(&noise)?, Tensor::from_slice(&labels, &[n])?)
}

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

/// Trains to the end. Saves a checkpoint half-way, or resumes from it. Returns the part of unseen digits that are read.
fn train(path: &std::path::Path, resumes: bool) -> Result<(Sequential, f64)> {
    let mut model = network()?;
    let optimizer = Optimizer::new(AdamW::default(), model.parameters())?;
    let loader = Loader::new(digits(3000, 1)?).batch(25).drop_last().shuffle(2)?.workers(1);
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
                optimizer.set_lr(schedule.at(epoch * loader.n_batches() + at))?;
                loss = step.call((&x, &digits))?.item::<f32>()?;
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
    for batch in Loader::new(digits(1000, 3)?).batch(250).epoch()? {
        let (x, digits) = batch?;
        accuracy.update(&model.forward(&x)?, &digits)?;
    }
    let read = accuracy.value()?;
    Ok((model, read))
}

fn main() -> Result<()> {
    manual_seed(0);
    let path = std::env::temp_dir().join(format!("opfuse-digits-{}.safetensors", std::process::id()));
    let (model, read) = train(&path, false)?;
    let resumed = train(&path, true);
    std::fs::remove_file(&path).ok();
    let (other, _) = resumed?;
    println!("{:.1} % of unseen digits are read", 100.0 * read);
    for ((name, a), b) in model.named_parameters().into_iter().zip(other.parameters()) {
        let bits = |x: &Tensor| -> Result<Vec<u32>> {
            Ok(x.detach()?.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect())
        };
        assert_eq!(bits(&a)?, bits(&b)?, "{name} of the resumed run");
    }
    println!("the resumed run has the same bits");
    assert!(read >= 0.98, "the network should read more");
    Ok(())
}
