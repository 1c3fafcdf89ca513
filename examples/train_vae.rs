//! A variational autoencoder (Kingma, Welling 2013) learns to draw digits.
//!
//! `cargo run --release --example train_vae` trains on images of a digit at one of 24 places. All 240 images are
//! equally likely, so no model can need less than ln 240 = 5.5 nats per image on average. An untrained one needs about
//! 45; this one is to need less than 10. It draws digits of its own in the end. Half-way it saves a checkpoint. The
//! test inside resumes one, random numbers included, and ends with the same bits. The losses are drawn to
//! `target/train_vae.svg`.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

#[cfg(test)]
#[path = "kit/bits.rs"]
mod bits;
#[path = "kit/chart.rs"]
mod chart;
#[path = "kit/digits.rs"]
mod digits;
#[cfg(test)]
#[path = "kit/resumes.rs"]
mod resumes;

use opfuse::data::Loader;
use opfuse::nn::*;
use opfuse::optim::{Adam, Optimizer, Schedule};
use opfuse::{DType, Explain, Result, Tensor, compile, manual_seed};
use std::path::Path;

const HIDDEN: usize = 256;
const LATENT: usize = 8;
const EPOCHS: usize = 40;
const IMAGES: usize = 2400;

/// Two networks: from an image to a distribution of codes, and from a code to an image.
#[derive(Clone, Module)]
struct Autoencoder {
    encoder: Sequential,
    mean: Linear,
    log_variance: Linear,
    decoder: Sequential,
}

impl Autoencoder {
    fn new() -> Result<Autoencoder> {
        let encoder = Sequential::new().with(Flatten { start: 1, end: -1 }).with(Linear::new(64, HIDDEN)?);
        let decoder = Sequential::new().with(Linear::new(LATENT, HIDDEN)?).with(SiLU {});
        Ok(Autoencoder {
            encoder: encoder.with(SiLU {}).with(Linear::new(HIDDEN, HIDDEN)?).with(SiLU {}),
            mean: Linear::new(HIDDEN, LATENT)?,
            log_variance: Linear::new(HIDDEN, LATENT)?,
            decoder: decoder.with(Linear::new(HIDDEN, HIDDEN)?).with(SiLU {}).with(Linear::new(HIDDEN, 64)?),
        })
    }

    /// The nats that an image takes: of its code, and of its pixels given the code. Both are means over the batch.
    fn loss(&self, images: &Tensor) -> Result<(Tensor, Tensor)> {
        let x = self.encoder.forward(images)?;
        let (mean, log_variance) = (self.mean.forward(&x)?, self.log_variance.forward(&x)?);
        let noise = mean.randn_like()?;
        let code = mean.add(log_variance.mul(0.5)?.exp()?.mul(noise)?)?;
        let pixels = self.decoder.forward(&code)?;
        let target = images.flatten(1, -1)?;
        let of_pixels = pixels.binary_cross_entropy_with_logits(&target, None, None, Reduction::Sum)?;
        let divergence = mean.square()?.add(log_variance.exp()?)?.sub(&log_variance)?.sub(1.0)?;
        let n = images.sizes()[0] as f64;
        Ok((divergence.sum_all()?.mul(0.5 / n)?, of_pixels.div(n)?))
    }
}

/// What a run gives: the model, the nats per image of codes and of pixels, and the report of the compiled step.
type Run = (Autoencoder, Vec<[f32; 2]>, Explain);

/// Trains up to so many epochs, from the checkpoint if there is one. Saves one after `saves_at` epochs.
fn train(checkpoint: &Path, epochs: usize, saves_at: usize) -> Result<Run> {
    manual_seed(0);
    let model = Autoencoder::new()?;
    let loader = Loader::new(digits::digits(IMAGES, 1, 0.0)?).batch(60).shuffle(2)?;
    let optimizer = Optimizer::new(Adam::default(), model.parameters())?;
    let schedule = Schedule::Cosine { lr: 3e-3, warmup: 1, steps: EPOCHS, floor: 1e-4 };
    let checkpoint =
        Checkpoint::new(checkpoint).with("model", &model).with("optimizer", &optimizer).with("data", &loader);
    checkpoint.resume()?;
    let step = compile(|images: &Tensor| {
        let (code, pixels) = model.loss(images)?;
        optimizer.minimize(&code.add(&pixels)?)?;
        Ok((code.detach()?, pixels.detach()?))
    });
    let mut losses = Vec::new();
    for epoch in loader.epoch_number()?..epochs {
        optimizer.set_lr(schedule.at(epoch))?;
        let mut sums = [0.0; 2];
        for batch in loader.epoch()? {
            let (code, pixels) = step.call(&batch?.0)?;
            sums = [sums[0] + code.item::<f32>()?, sums[1] + pixels.item::<f32>()?];
        }
        losses.push(sums.map(|sum| sum / loader.n_batches() as f32));
        if epoch + 1 == saves_at {
            checkpoint.save()?;
        }
    }
    let report = step.explain();
    drop(step);
    Ok((model, losses, report))
}

/// Images of codes that are drawn, side by side as text.
fn draw(model: &Autoencoder, n: usize) -> Result<String> {
    let _unrecorded = opfuse::autograd::no_grad();
    let pixels = model.decoder.forward(&Tensor::randn(&[n, LATENT], DType::F32)?)?.sigmoid()?.to_vec::<f32>()?;
    let line = |row: usize| {
        let image = |image: &[f32]| -> String {
            image[row * 8..][..8].iter().map(|&pixel| if pixel > 0.5 { '#' } else { '.' }).collect()
        };
        pixels.chunks(64).map(image).collect::<Vec<_>>().join("  ")
    };
    Ok((0..8).map(line).collect::<Vec<_>>().join("\n"))
}

fn main() -> Result<()> {
    let path = std::env::temp_dir().join(format!("opfuse-vae-{}.safetensors", std::process::id()));
    let run = train(&path, EPOCHS, EPOCHS / 2);
    std::fs::remove_file(&path).ok();
    let (model, losses, report) = run?;
    println!("{report}");
    for (epoch, [code, pixels]) in losses.iter().enumerate().step_by(5) {
        println!("epoch {epoch}: {code:.2} nats of codes, {pixels:.2} of pixels");
    }
    println!("{}", draw(&model, 10)?);
    let of = |at: usize| losses.iter().map(|loss| loss[at]).enumerate().collect::<Vec<_>>();
    let path = chart::chart("train_vae", "Nats per image, by epoch", &[("codes", of(0)), ("pixels", of(1))])?;
    let nats = losses.last().map_or(f32::NAN, |loss| loss[0] + loss[1]);
    println!("{nats:.2} nats per image in the end; the losses are in {}", path.display());
    assert!(nats < 10.0, "the model should need less");
    Ok(())
}

#[cfg(test)]
#[test]
fn a_resumed_run_has_the_same_bits() -> Result<()> {
    resumes::assert_resumes("vae", 1, |path, saved| train(path, 2, saved))
}
