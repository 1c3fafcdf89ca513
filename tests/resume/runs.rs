//! Checkpoints that continue by bits, or are refused.

use crate::same;
use opfuse::nn::*;
use opfuse::optim::{AdamW, Optimizer};
use opfuse::{DType, Result, Tensor, compile};
use std::path::PathBuf;

/// A file that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("opfuse-{name}-{}.safetensors", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn network() -> Result<(Sequential, Optimizer)> {
    let model = Sequential::new().with(Linear::new(4, 8)?).with(ReLU {}).with(Linear::new(8, 2)?);
    let optimizer = Optimizer::new(AdamW { lr: 0.05, ..Default::default() }, model.parameters())?;
    Ok((model, optimizer))
}

#[test]
fn a_resumed_run_continues_by_bits() -> Result<()> {
    let _draws = crate::draws();
    let scratch = Scratch::new("resume");
    opfuse::manual_seed(11);
    let train = |model: &Sequential, optimizer: &Optimizer, steps: usize| -> Result<Vec<Tensor>> {
        let step = compile(|x: &Tensor| {
            let loss = model.forward(&x.dropout(0.3, true)?)?.square()?.mean_all()?;
            optimizer.minimize(&loss)?;
            loss.detach()
        });
        (0..steps).map(|_| step.call(&Tensor::randn(&[5, 4], DType::F32)?)).collect()
    };
    let (model, optimizer) = network()?;
    train(&model, &optimizer, 7)?;
    let checkpoint = Checkpoint::new(&scratch.0).with("model", &model).with("optimizer", &optimizer);
    checkpoint.save()?;
    let losses = train(&model, &optimizer, 5)?;
    let (other, other_optimizer) = network()?;
    assert!(Checkpoint::new(&scratch.0).with("model", &other).with("optimizer", &other_optimizer).resume()?);
    for (found, expected) in train(&other, &other_optimizer, 5)?.iter().zip(&losses) {
        same("a loss", found, expected);
    }
    for ((name, found), expected) in other.named_parameters().into_iter().zip(model.parameters()) {
        same(&name, &found, &expected);
    }
    Ok(())
}

#[test]
fn damaged_and_other_checkpoints_are_refused_and_change_nothing() -> Result<()> {
    let _draws = crate::draws();
    let scratch = Scratch::new("damaged");
    let (model, optimizer) = network()?;
    let with = |name: &str| Checkpoint::new(&scratch.0).with(name, &model);
    assert!(!with("model").resume()?, "there is no file");
    with("model").with("optimizer", &optimizer).save()?;
    let error = with("net").resume().expect_err("names differ").to_string();
    assert!(error.contains("missing: net.0.bias") && error.contains("unexpected: model.0.bias"), "{error}");
    let before = model.parameters()[0].to_vec::<f32>()?;
    let bytes = std::fs::read(&scratch.0).expect("it was written");
    for end in [0, 4, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&scratch.0, &bytes[..end]).expect("it is ours");
        assert!(with("model").with("optimizer", &optimizer).resume().is_err(), "cut at {end}");
    }
    assert_eq!(model.parameters()[0].to_vec::<f32>()?, before);
    Ok(())
}
