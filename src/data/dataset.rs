//! Data sets: samples by number.

use crate::error::{Error, Result};
use crate::ops::stack;
use crate::tensor::{Flat, Tensor, TensorStruct};

/// Samples by number. Loaders ask for them from several threads.
pub trait Dataset: Send + Sync + 'static {
    /// A sample. A batch has the same type, with one more dim in front of each tensor.
    type Item: TensorStruct + Send;

    /// The number of samples.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sample with this number.
    ///
    /// # Errors
    /// Any error is returned for the batch of the sample.
    fn get(&self, index: usize) -> Result<Self::Item>;

    /// A batch of samples. Without a body they are stacked.
    ///
    /// # Errors
    /// If sizes, dtypes or plain values of samples differ.
    fn collate(&self, samples: Vec<Self::Item>) -> Result<Self::Item> {
        let flats: Vec<Flat> = samples.iter().map(Flat::of).collect();
        let Some(first) = flats.first() else {
            return Err(Error::argument("collate", "there are no samples; a batch has at least one"));
        };
        if flats.iter().any(|flat| flat.words != first.words || flat.tensors.len() != first.tensors.len()) {
            let what = "samples of a batch have different plain values or numbers of tensors; write Dataset::collate";
            return Err(Error::argument("collate", what));
        }
        let mut tensors = Vec::with_capacity(first.tensors.len());
        for at in 0..first.tensors.len() {
            let parts: Vec<&Tensor> = flats.iter().map(|flat| &flat.tensors[at]).collect();
            tensors.push(stack(&parts, 0)?);
        }
        let batch = Flat { tensors: tensors.into(), words: first.words.clone() };
        let none = || Error::argument("collate", "tree_unflatten refuses the parts of tree_flatten; write both alike");
        batch.tree_unflatten().ok_or_else(none)
    }
}

/// Inputs and targets in memory: sample `i` is row `i` of both.
#[derive(Debug, Clone)]
pub struct TensorDataset {
    inputs: Tensor,
    targets: Tensor,
}

impl TensorDataset {
    /// The rows of two tensors.
    ///
    /// # Errors
    /// If their numbers of rows differ.
    pub fn new(inputs: Tensor, targets: Tensor) -> Result<TensorDataset> {
        if inputs.dim() == 0 || inputs.sizes().first() != targets.sizes().first() {
            let what = format!("inputs have sizes {:?}, targets {:?}", inputs.sizes(), targets.sizes());
            return Err(Error::shape("TensorDataset", what, "both need the same number of rows"));
        }
        Ok(TensorDataset { inputs, targets })
    }
}

impl Dataset for TensorDataset {
    type Item = (Tensor, Tensor);

    fn len(&self) -> usize {
        self.inputs.sizes()[0]
    }

    fn get(&self, index: usize) -> Result<(Tensor, Tensor)> {
        Ok((self.inputs.select(0, index as i64)?, self.targets.select(0, index as i64)?))
    }
}
