//! States: tensors by name that are saved and loaded, and files that hold those of a whole run.
//!
//! What loads a state writes to the tensors that are there, so that everyone who holds them sees it. Everything is
//! checked before the first write.

use super::module::Module;
use crate::autograd::no_grad;
use crate::device::{Device, Generator, GeneratorState};
use crate::error::{Error, Result};
use crate::formats::{StateDict, safetensors};
use crate::tensor::Tensor;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a run needs to go on: a model, an optimizer, a loader.
pub trait State {
    /// The tensors of the state by name. They are the state itself, not copies: writing to them changes it.
    fn state_tensors(&self) -> StateDict;
}

impl<M: Module + ?Sized> State for M {
    fn state_tensors(&self) -> StateDict {
        self.state_dict()
    }
}

/// A file with all that a run needs to go on, so that it continues by bits: named states, and the random numbers of the
/// CPU.
///
/// ```
/// use opfuse::Result;
/// use opfuse::nn::{Checkpoint, Linear};
///
/// # fn main() -> Result<()> {
/// let path = std::env::temp_dir().join(format!("opfuse-run-{}.safetensors", std::process::id()));
/// let model = Linear::new(4, 2)?;
/// let checkpoint = Checkpoint::new(&path).with("model", &model);
/// assert!(!checkpoint.resume()?); // there is no file yet, so the run starts
/// checkpoint.save()?;
/// assert!(checkpoint.resume()?);
/// # std::fs::remove_file(path).ok();
/// # Ok(())
/// # }
/// ```
pub struct Checkpoint<'a> {
    path: PathBuf,
    states: Vec<(String, &'a dyn State)>,
}

/// The name of the state of the generator of the CPU.
const RANDOM: &str = "random.cpu";

impl<'a> Checkpoint<'a> {
    /// A checkpoint in this file, which need not be there.
    pub fn new(path: impl Into<PathBuf>) -> Checkpoint<'a> {
        Checkpoint { path: path.into(), states: Vec::new() }
    }

    /// Adds a state under a name.
    #[must_use]
    pub fn with(mut self, name: &str, state: &'a dyn State) -> Checkpoint<'a> {
        self.states.push((name.to_owned(), state));
        self
    }

    fn tensors(&self) -> StateDict {
        let parts = self.states.iter().map(|(name, state)| (name, state.state_tensors()));
        parts
            .flat_map(|(name, part)| part.into_iter().map(move |(key, tensor)| (format!("{name}.{key}"), tensor)))
            .collect()
    }

    /// Saves the states. A file that was there is replaced as a whole, or stays as it was.
    ///
    /// # Errors
    /// If a tensor cannot be read, or the file cannot be written.
    pub fn save(&self) -> Result<()> {
        let mut tensors = self.tensors();
        let GeneratorState { seed, counter } = Generator::default_of(Device::CPU)?.state();
        tensors.insert(RANDOM.to_owned(), Tensor::from_slice(&[seed as i64, counter as i64], &[2])?);
        safetensors::save(&self.path, &tensors, &BTreeMap::new())
    }

    /// Loads the states, if the file is there. Returns whether it is.
    ///
    /// # Errors
    /// If the file is damaged, or if it holds other states: all names and sizes that do not fit are in one message.
    /// Nothing is written then.
    pub fn resume(&self) -> Result<bool> {
        if !self.path.exists() {
            return Ok(false);
        }
        let mut found = crate::formats::load(&self.path)?;
        let random = found.remove(RANDOM).map(|tensor| tensor.to_vec::<i64>()).transpose()?;
        let Some([seed, counter]) = random.as_deref() else {
            let what = format!("{} has no {RANDOM} of two numbers; it is no checkpoint", self.path.display());
            return Err(Error::argument("resume", what));
        };
        load("resume", &self.tensors(), &found)?;
        let state = GeneratorState { seed: *seed as u64, counter: *counter as u64 };
        Generator::default_of(Device::CPU)?.set_state(state);
        Ok(true)
    }
}

/// How many names a message lists of a kind.
const MOST_LISTED: usize = 100;

/// A count of batches, which only PyTorch saves. Files without it are accepted.
const OPTIONAL: &str = "num_batches_tracked";

/// Copies the tensors of `from` into those of `own`, after all names and sizes were checked.
pub(crate) fn load(op: &str, own: &StateDict, from: &StateDict) -> Result<()> {
    let (mut missing, mut unexpected, mut other) = (Vec::new(), Vec::new(), Vec::new());
    for (name, tensor) in own {
        match from.get(name) {
            None if name.ends_with(OPTIONAL) => {}
            None => missing.push(name.clone()),
            Some(new) if new.sizes() != tensor.sizes() => {
                other.push(format!("{name} is {:?} instead of {:?}", new.sizes(), tensor.sizes()));
            }
            Some(new) if new.dtype().is_float() != tensor.dtype().is_float() => {
                other.push(format!("{name} is {} instead of {}", new.dtype(), tensor.dtype()));
            }
            Some(_) => {}
        }
    }
    unexpected.extend(from.keys().filter(|name| !own.contains_key(*name)).cloned());
    let kinds = [("missing", missing), ("unexpected", unexpected), ("of other sizes or dtypes", other)];
    let wrong: Vec<String> = kinds.iter().filter_map(|(kind, names)| listed(kind, names)).collect();
    if !wrong.is_empty() {
        let what = format!("{}; nothing was loaded; load a state of the same modules and options", wrong.join("; "));
        return Err(Error::argument(op, what));
    }
    let _unrecorded = no_grad();
    for (name, tensor) in own {
        if let Some(new) = from.get(name) {
            tensor.copy_(&new.to_device(tensor.device())?)?;
        }
    }
    Ok(())
}

/// A part of a message.
fn listed(kind: &str, names: &[String]) -> Option<String> {
    let shown = names.len().min(MOST_LISTED);
    let more = if names.len() > shown { format!(" and {} more", names.len() - shown) } else { String::new() };
    (shown > 0).then(|| format!("{} {kind}: {}{more}", names.len(), names[..shown].join(", ")))
}
