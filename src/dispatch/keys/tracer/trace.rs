//! Traces: what a recording gives when it is done.

use crate::device::{Generator, GeneratorState};
use crate::dispatch::Tensor;
use crate::dispatch::view_chain::{self, ViewStep};
use crate::error::{Error, Reason, Result};
use crate::ir::Graph;
use smallvec::SmallVec;
use std::borrow::Cow;

/// An input of a graph that the function was not given.
pub enum Lifted {
    /// A tensor that the function touched.
    Tensor(Tensor),
    /// The key of a random draw. Every call takes a new one, in the order in which the function drew.
    Draw {
        /// Whose counters are drawn.
        generator: Generator,
        /// How many of them.
        n_counters: u64,
    },
    /// Something that is handed in with each call, like the gradient of a result; see [`declare_input`](super::declare_input).
    Declared,
}

impl Lifted {
    /// Whether both are the same tensor, or hold the same bytes, or draw alike.
    pub fn is_same(&self, other: &Lifted) -> bool {
        match (self, other) {
            (Lifted::Tensor(one), Lifted::Tensor(other)) => {
                let bytes = |tensor: &Tensor| tensor.array().storage().read(<[u8]>::to_vec);
                one.id() == other.id() || (one.array().layout() == other.array().layout() && bytes(one) == bytes(other))
            }
            (Lifted::Draw { generator, n_counters }, Lifted::Draw { generator: other, n_counters: n_other }) => {
                generator.is_same(other) && n_counters == n_other
            }
            (Lifted::Declared, Lifted::Declared) => true,
            (Lifted::Tensor(_) | Lifted::Draw { .. } | Lifted::Declared, _) => false,
        }
    }

    /// The tensor for one call.
    ///
    /// # Errors
    /// If there is no memory for a key, or it is for the caller to hand in.
    pub fn tensor(&self) -> Result<Cow<'_, Tensor>> {
        match self {
            Lifted::Tensor(tensor) => Ok(Cow::Borrowed(tensor)),
            Lifted::Draw { generator, n_counters } => key(generator.draw(*n_counters)).map(Cow::Owned),
            Lifted::Declared => Err(Error::Internal { message: "a declared input was not handed in".into() }),
        }
    }
}

/// What a function did to the gradient of a leaf among its inputs.
#[derive(Debug, Clone, Copy)]
pub struct GradientChange {
    /// Which input.
    pub input: usize,
    /// Which output of the graph is added; `None` if the gradient was only forgotten.
    pub output: Option<usize>,
    /// Whether the gradient from before was forgotten.
    pub replaced: bool,
}

/// Adds `value`, if there is one, to the gradient of `leaf`, or puts it in its place.
///
/// # Errors
/// If there is no memory.
pub fn change_gradient(leaf: &Tensor, value: Option<&Tensor>, replaced: bool) -> Result<()> {
    let before = leaf.grad().filter(|_| !replaced);
    match (before, value) {
        (Some(before), Some(value)) => leaf.set_grad(Some(&before.add(value)?)),
        (Some(_), None) => Ok(()),
        (None, value) => leaf.set_grad(value),
    }
}

/// A trace: the calls a function made.
pub struct Trace {
    /// The calls. Inputs are those the function was given, then the lifted ones; outputs are the function's, then the
    /// values of inputs that it wrote to, then what it added to gradients.
    pub graph: Graph,
    /// What the function used without being given it.
    pub lifted: Vec<Lifted>,
    /// The inputs to which the outputs behind the function's are to be copied.
    pub written: Vec<usize>,
    /// What the function did to gradients of inputs.
    pub gradients: Vec<GradientChange>,
    /// Outputs of the function that are written inputs, or views of them.
    pub aliases: Vec<OutputAlias>,
    /// Who has the elements of each output of the function.
    pub owners: Vec<Owner>,
}

/// An output that shares its elements with an input that was written to: it is made of the input after the write.
pub struct OutputAlias {
    /// Which output.
    pub output: usize,
    /// Which input.
    pub input: usize,
    pub(super) chain: SmallVec<[ViewStep; 1]>,
}

/// Whose elements an output has. Outputs with equal owners share them in the function, others do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// That input.
    Input(usize),
    /// That output, the first one that has them.
    Output(usize),
    /// Nobody asks: it is only read, before anything is written.
    Anyone,
}

/// Who has the elements of the outputs of a function with these inputs.
pub(super) fn owners(inputs: &[Tensor], outputs: &[Tensor]) -> Vec<Owner> {
    let owner = |output: &Tensor| {
        let input = inputs.iter().position(|input| input.is_alias_of(output)).map(Owner::Input);
        let first = || outputs.iter().position(|first| first.is_alias_of(output)).map(Owner::Output);
        input.or_else(first).unwrap_or(Owner::Anyone)
    };
    outputs.iter().map(owner).collect()
}

impl OutputAlias {
    /// The output, once `input` was written to.
    ///
    /// # Errors
    /// If the input is of another type than the one that was traced.
    pub fn of(&self, input: &Tensor) -> Result<Tensor> {
        view_chain::apply(&mut view_chain::Tensors, input, &self.chain)
    }
}

impl Trace {
    /// Whether it does more than to return values.
    pub fn has_effects(&self) -> bool {
        !self.written.is_empty() || !self.gradients.is_empty()
    }
}

/// The calls a function made, or why they are not all there.
pub type Captured = Result<Trace, Reason>;

pub(super) fn key(start: GeneratorState) -> Result<Tensor> {
    Tensor::from_slice(&[start.seed as i64, start.counter as i64], &[2])
}
