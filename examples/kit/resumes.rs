//! Whether training goes on from a checkpoint as if it had not stopped, for the tests of examples.

use crate::bits::assert_same_bits;
use opfuse::Result;
use opfuse::nn::Module;
use std::fmt::Debug;
use std::path::Path;

/// Fails if a run that stops after `done` losses and goes on from its checkpoint ends with other bits than one that
/// does not stop. `run` trains with a checkpoint in a file, which it saves after so many losses, or never for 0; it
/// returns the model, its losses, and a report.
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
