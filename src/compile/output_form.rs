//! What a graph cannot say of an output: whether it stands for a plain number, and strides of dims of size 1.

use crate::error::Result;
use crate::ir::shape::{Layout, same_strides};
use crate::ir::{Graph, NodeId, Strides};
use crate::ops::element::scalar_in;
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;

/// What an output of the function is, and the output of the graph is not.
pub(super) enum OutputForm {
    /// It stands for a plain number.
    Number,
    /// Dims of size 1 have other strides, which nothing computed depends on.
    Strides(Strides),
}

impl OutputForm {
    /// Of the outputs of a function. `numbers` says which stand for plain numbers, `strides` which strides they have.
    pub(super) fn of_all(graph: &Graph, numbers: &[bool], strides: &[Strides]) -> SmallVec<[(usize, OutputForm); 1]> {
        let outputs = graph.outputs().iter().zip(numbers).zip(strides).enumerate();
        let form = |(output, ((&node, &is_number), strides)): (usize, ((&NodeId, &bool), &Strides))| {
            let ty = &graph[node].ty;
            let is_same = || same_strides(&ty.sizes, &ty.strides, strides);
            match is_number {
                true => Some((output, OutputForm::Number)),
                false => (ty.strides != *strides && is_same()).then(|| (output, OutputForm::Strides(strides.clone()))),
            }
        };
        outputs.filter_map(form).collect()
    }

    /// The output of the function, made of that of the graph.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(super) fn give(&self, result: &Tensor) -> Result<Tensor> {
        match self {
            OutputForm::Number => Tensor::number(scalar_in(result)?),
            OutputForm::Strides(strides) => {
                let before = result.array().layout();
                let layout = Layout { sizes: before.sizes.clone(), strides: strides.clone(), offset: before.offset };
                Ok(Tensor::from_array(result.array().with_layout(layout)))
            }
        }
    }
}
