//! Makes the tensors that a program is given.

use super::calls::{inferred, leaf, over, over_pairs};
use super::program::{Feed, Given, Memory, Place, Role, Tensors, Values};
use super::random::Random;
use super::values::{Fill, array};
use opfuse::{Result, Tensor};

/// Memories, and the tensors in them.
#[derive(Default)]
pub(crate) struct Made {
    pub(crate) memories: Vec<Tensor>,
    pub(crate) tensors: Vec<Tensor>,
    /// The leaves that tensors were computed from or are views of.
    pub(crate) leaves: Vec<Tensor>,
}

/// The call before: its inputs and results.
#[derive(Default)]
pub(crate) struct Before {
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) results: Vec<Tensor>,
}

impl Before {
    /// A tensor of the call before, if there is one.
    pub(crate) fn get(&self, feed: Feed) -> Option<Tensor> {
        match feed {
            Feed::Fresh => None,
            Feed::Input(index) => self.inputs.get(index).cloned(),
            Feed::Result(index) => self.results.get(index).cloned(),
        }
    }
}

impl Made {
    /// Makes a tensor a leaf that is not given itself.
    pub(crate) fn leaf(&mut self, tensor: Tensor) -> Result<Tensor> {
        let leaf = leaf(tensor)?;
        self.leaves.push(leaf.clone());
        Ok(leaf)
    }
}

/// Makes tensors anew; `captured` are there already.
pub(crate) fn make(tensors: &Tensors, captured: &[Tensor], before: &Before) -> Result<Made> {
    let memories = tensors.memories.iter().map(memory).collect::<Result<Vec<_>>>()?;
    let mut made = Made { memories, tensors: Vec::new(), leaves: Vec::new() };
    for given in &tensors.given {
        let tensor = match before.get(given.feed) {
            Some(tensor) => tensor,
            None => one(given, tensors, &mut made, captured)?,
        };
        made.tensors.push(tensor);
    }
    Ok(made)
}

fn one(given: &Given, all: &Tensors, made: &mut Made, captured: &[Tensor]) -> Result<Tensor> {
    let (memory, place) = match given.place {
        Place::Memory(index) => {
            (&made.memories[index], if all.memories[index].is_complex() { over_pairs } else { over })
        }
        Place::Input(index) => return Ok(made.tensors[index].clone()),
        Place::Captured(index) => return Ok(captured[index].clone()),
        Place::Number(number) => return Tensor::number(number),
    };
    let plain = place(memory, &given.sizes, &given.strides, given.offset)?;
    let may_flow = memory.dtype().is_float() || given.role == Role::Inference;
    let role = if may_flow { given.role } else { Role::Plain };
    Ok(match role {
        Role::Plain => plain,
        Role::Leaf => leaf(plain)?,
        Role::Inference => inferred(&plain)?,
        Role::Computed | Role::View => {
            let leaf = made.leaf(plain)?;
            if role == Role::View { leaf.alias()? } else { leaf.mul(1.5)? }
        }
    })
}

/// The elements of a memory.
pub(crate) fn memory(memory: &Memory) -> Result<Tensor> {
    let fill = match memory.values {
        Values::Normal => Fill::Normal,
        Values::Wild => Fill::Wild,
        Values::Positive => Fill::Positive,
        Values::Below(size) => Fill::Index(size),
    };
    let ty = Tensor::zeros(&[memory.len], memory.dtype)?.ty();
    Ok(Tensor::from_array(array(&mut Random::new(memory.seed), &ty, fill)))
}
