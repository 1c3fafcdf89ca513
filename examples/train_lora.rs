//! A model that was trained on one text learns another by small additions to its weights: LoRA (Hu et al. 2021).
//!
//! `cargo run --release --example train_lora` trains the transformer of `train_chars` on a license, and freezes it.
//! Then it learns a page of this folder by products of two narrow matrices, beside the layers of each block. They are a
//! small part of the model. The loss on the page is to fall by a third at least; the frozen weights keep their bits,
//! and may take over the additions in the end. Half-way it saves a checkpoint of the additions alone. The test inside
//! resumes one, and ends with the same bits. The losses are drawn to `target/train_lora.svg`.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

#[path = "kit/bits.rs"]
mod bits;
#[path = "kit/chars.rs"]
mod chars;
#[path = "kit/chart.rs"]
mod chart;
#[cfg(test)]
#[path = "kit/resumes.rs"]
mod resumes;

use chars::{Block, Transformer, Windows};
use opfuse::data::Loader;
use opfuse::nn::*;
use opfuse::optim::{AdamW, Optimizer};
use opfuse::{Explain, Result, StateDict, Tensor, compile, manual_seed};
use std::path::Path;

const FIRST: &str = include_str!("../LICENSE-APACHE");
const SECOND: &str = include_str!("../docs/glossary.md");
const RANK: usize = 8;
const FIRST_STEPS: usize = 300;
const STEPS: usize = 300;

/// A frozen layer, and what is added to it: `x A' B'`, where `A` has few rows.
#[derive(Clone, Module)]
struct LowRank {
    frozen: Linear,
    a: Linear,
    b: Linear,
}

impl LowRank {
    /// Adds nothing at first, because `B` is zero.
    fn around(frozen: &Linear) -> Result<LowRank> {
        let &[outputs, inputs] = frozen.weight.sizes() else { unreachable!("a linear layer has a matrix") };
        let frozen = frozen.deep_clone()?;
        let (a, b) = (Linear::new(inputs, RANK)?.without_bias(), Linear::new(RANK, outputs)?.without_bias());
        init::constant(&b.weight, 0.0)?;
        Ok(LowRank { frozen, a, b })
    }

    /// One layer that computes the same.
    fn merged(&self) -> Result<Linear> {
        let _unrecorded = opfuse::autograd::no_grad();
        let weight = self.frozen.weight.add(self.b.weight.mm(&self.a.weight)?)?;
        Ok(Linear { weight, bias: self.frozen.bias.clone() })
    }
}

impl Forward for LowRank {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.frozen.forward(x)?.add(self.b.forward(&self.a.forward(x)?)?)
    }
}

/// The model with other layers in its blocks.
fn mapped<P, Q>(model: &Transformer<P>, layer: impl Fn(&P) -> Result<Q>) -> Result<Transformer<Q>> {
    let block = |block: &Block<P>| -> Result<Block<Q>> {
        Ok(Block {
            attention_norm: block.attention_norm.clone(),
            query: layer(&block.query)?,
            key: block.key.clone(),
            value: layer(&block.value)?,
            output: block.output.clone(),
            norm: block.norm.clone(),
            up: layer(&block.up)?,
            down: layer(&block.down)?,
        })
    };
    Ok(Transformer {
        characters: model.characters.clone(),
        positions: model.positions.clone(),
        blocks: model.blocks.iter().map(block).collect::<Result<_>>()?,
        norm: model.norm.clone(),
        head: model.head.clone(),
    })
}

/// The additions, as the state of a run.
struct Additions(Vec<(String, Tensor)>);

impl State for Additions {
    fn state_tensors(&self) -> StateDict {
        self.0.iter().cloned().collect()
    }
}

/// Steps over a text. Returns the loss of each, and the report.
fn train<P: Forward + Clone + 'static>(
    model: &Transformer<P>,
    text: &str,
    optimizer: &Optimizer,
    checkpoint: Option<(&Path, &dyn State)>,
    (steps, saves_at): (usize, usize),
) -> Result<(Vec<(usize, f32)>, Explain)> {
    let loader = Loader::new(Windows::of(text)?).batch(16).drop_last().shuffle(1)?;
    let checkpoint = checkpoint.map(|(path, state)| {
        Checkpoint::new(path).with("model", state).with("optimizer", optimizer).with("data", &loader)
    });
    if let Some(checkpoint) = &checkpoint {
        checkpoint.resume()?;
    }
    let step = compile(|text: &Tensor, next: &Tensor| optimizer.minimize(&model.loss(text, next)?));
    let mut done = optimizer.state_dict()["0.step"].item::<f64>()? as usize;
    let mut losses = Vec::new();
    while done < steps {
        for batch in loader.epoch()?.take(steps - done) {
            let (text, next) = batch?;
            losses.push((done, step.call((&text, &next))?.item::<f32>()?));
            done += 1;
            if let Some(checkpoint) = checkpoint.as_ref().filter(|_| done == saves_at) {
                checkpoint.save()?;
            }
        }
    }
    Ok((losses, step.explain()))
}

/// The frozen model, trained for so many steps.
fn frozen(steps: usize) -> Result<Transformer<Linear>> {
    manual_seed(0);
    let model = Transformer::new()?;
    let optimizer = Optimizer::new(AdamW { lr: 3e-3, ..AdamW::default() }, model.parameters())?;
    train(&model, FIRST, &optimizer, None, (steps, 0))?;
    model.parameters().iter().try_for_each(|parameter| parameter.set_requires_grad(false))?;
    Ok(model)
}

/// The model with additions, trained for so many steps, or from the checkpoint on.
fn adapt(model: &Transformer<Linear>, path: &Path, steps: (usize, usize)) -> Result<Adapted> {
    manual_seed(1);
    let model = mapped(model, LowRank::around)?;
    let additions: Vec<(String, Tensor)> =
        model.named_parameters().into_iter().filter(|(_, parameter)| parameter.requires_grad()).collect();
    let parameters = additions.iter().map(|(_, parameter)| parameter.clone()).collect();
    let optimizer = Optimizer::new(AdamW { lr: 5e-3, weight_decay: 0.0, ..AdamW::default() }, parameters)?;
    let (losses, report) = train(&model, SECOND, &optimizer, Some((path, &Additions(additions))), steps)?;
    Ok((model, losses, report))
}

type Adapted = (Transformer<LowRank>, Vec<(usize, f32)>, Explain);

fn mean(losses: &[(usize, f32)]) -> f32 {
    losses.iter().map(|(_, loss)| loss).sum::<f32>() / losses.len() as f32
}

fn main() -> Result<()> {
    let base = frozen(FIRST_STEPS)?;
    let before = base.deep_clone()?;
    let path = std::env::temp_dir().join(format!("opfuse-lora-{}.safetensors", std::process::id()));
    let adapted = adapt(&base, &path, (STEPS, STEPS / 2));
    std::fs::remove_file(&path).ok();
    let (model, losses, report) = adapted?;
    println!("{report}");
    bits::assert_same_bits(&base, &before)?;
    let count = |parameters: Vec<Tensor>| parameters.iter().map(Tensor::numel).sum::<usize>();
    let added = count(model.parameters()) - count(base.parameters());
    println!("{added} numbers were trained beside {} frozen ones", count(base.parameters()));

    let merged = mapped(&model, LowRank::merged)?;
    let text = Tensor::try_from(chars::encode(&SECOND[..chars::WINDOW]))?.unsqueeze(0)?;
    let far = merged.forward(&text)?.closeness(&model.forward(&text)?.detach()?, 1e-3, 1e-3)?;
    assert_eq!(far.n_different, 0, "the merged model should compute the same");

    println!("{}", merged.write("A graph is ", 100)?);
    let (first, last) = (mean(&losses[..10]), mean(&losses[losses.len() - 30..]));
    let path = chart::chart("train_lora", "Nats per character of the second text", &[("additions", losses)])?;
    println!("{first:.3} nats per character at first, {last:.3} in the end; the losses are in {}", path.display());
    assert!(last < first * 0.67, "the additions should learn more");
    Ok(())
}

#[cfg(test)]
#[test]
fn a_resumed_run_has_the_same_bits() -> Result<()> {
    let base = frozen(4)?;
    resumes::assert_resumes("lora", 4, |path, saved| adapt(&base, path, (8, saved)))
}
