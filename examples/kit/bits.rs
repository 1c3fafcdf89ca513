//! Whether two runs ended alike.

use opfuse::nn::Module;
use opfuse::{Result, Tensor};
#[cfg(test)]
use std::{fmt::Debug, path::Path};

/// Fails if a tensor of one model has other bits in the other.
pub(crate) fn assert_same_bits(one: &impl Module, other: &impl Module) -> Result<()> {
    let bits =
        |x: &Tensor| -> Result<Vec<u32>> { Ok(x.detach()?.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect()) };
    let (one, other) = (one.named_parameters(), other.named_parameters());
    assert_eq!(one.len(), other.len());
    for ((name, a), (_, b)) in one.iter().zip(&other) {
        assert_eq!(bits(a)?, bits(b)?, "{name} of the resumed run");
    }
    Ok(())
}

/// Fails if a run that stops after `done` losses and goes on from its checkpoint ends with other bits than one that
/// does not stop. `run` trains with a checkpoint in a file, which it saves after so many losses, or never for 0; it
/// returns the model, its losses, and a report.
#[cfg(test)]
#[allow(dead_code, reason = "train_digits resumes in its main function")]
pub(crate) fn assert_resumes<M: Module, L: PartialEq + Debug, R>(
    name: &str,
    done: usize,
    run: impl Fn(&Path, usize) -> Result<(M, Vec<L>, R)>,
) -> Result<()> {
    let path = std::env::temp_dir().join(format!("opfuse-{name}-test-{}.safetensors", std::process::id()));
    let (model, losses, _) = run(&path, done)?;
    let resumed = run(&path, 0);
    std::fs::remove_file(&path).ok();
    let (other, rest, _) = resumed?;
    assert_eq!(losses[done..], rest[..]);
    assert_same_bits(&model, &other)
}
