//! Traces: what a recording gives when it is done.

use crate::device::{Device, Generator};
use crate::error::{Error, Reason, Result};
use crate::ir::Graph;
use crate::ops::random::key_of;
use crate::tensor::handle::Tensor;
use crate::transforms::tracer::aliases::OutputAlias;
use crate::transforms::tracer::condition::{Condition, GradientType, Outside};
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
    /// The gradient that a tensor has before the call.
    Gradient(Outside, GradientType),
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
            (Lifted::Gradient(one, _), Lifted::Gradient(other, _)) => one.is_same(other),
            (Lifted::Declared, Lifted::Declared) => true,
            (Lifted::Tensor(_) | Lifted::Draw { .. } | Lifted::Gradient(..) | Lifted::Declared, _) => false,
        }
    }

    /// The device that it is known to be on.
    pub fn device(&self) -> Option<Device> {
        match self {
            // Plain numbers may be anywhere.
            Lifted::Tensor(tensor) => Some(tensor.device()).filter(|_| tensor.as_number().is_none()),
            Lifted::Gradient(_, ty) => Some(ty.device),
            Lifted::Draw { .. } | Lifted::Declared => None,
        }
    }

    /// Whether it is there for these inputs, as it was when it was traced.
    pub fn holds(&self, inputs: &[&Tensor]) -> bool {
        match self {
            Lifted::Gradient(of, ty) => of.of(inputs).gradient().is_some_and(|gradient| ty.holds(&gradient)),
            Lifted::Tensor(_) | Lifted::Draw { .. } | Lifted::Declared => true,
        }
    }

    /// The tensor for one call with these inputs.
    ///
    /// # Errors
    /// If there is no memory for a key, a gradient has changed since the call was found to fit, or it is for the caller to
    /// hand in.
    pub fn tensor(&self, inputs: &[&Tensor]) -> Result<Cow<'_, Tensor>> {
        match self {
            Lifted::Gradient(of, ty) => {
                let gradient = of.of(inputs).gradient().filter(|gradient| ty.holds(gradient));
                gradient.map(Cow::Owned).ok_or_else(|| {
                    let what = format!("the gradient of {of} was changed while the function was called");
                    Error::argument("compile", format!("{what}; let one thread at a time change it"))
                })
            }
            Lifted::Tensor(tensor) => Ok(Cow::Borrowed(tensor)),
            Lifted::Draw { generator, n_counters } => key_of(generator.draw(*n_counters)).map(Cow::Owned),
            Lifted::Declared => Err(Error::Internal { message: "a declared input was not handed in".into() }),
        }
    }
}

/// What a function leaves as the gradient of a tensor from outside.
#[derive(Clone)]
pub struct GradientChange {
    /// Which tensor.
    pub of: Outside,
    /// What takes the place of its gradient.
    pub to: NewGradient,
}

/// What takes the place of a gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewGradient {
    /// Nothing.
    Nothing,
    /// An output of the graph.
    Output(usize),
    /// An input of the graph, itself.
    Input(usize),
}

/// A trace: the calls a function made.
pub struct Trace {
    /// The calls. Inputs are those the function was given, then the lifted ones; outputs are the function's, then the
    /// values of inputs that it wrote to, then gradients that it leaves.
    pub graph: Graph,
    /// What the function used without being given it.
    pub lifted: Vec<Lifted>,
    /// The inputs to which the outputs behind the function's are to be copied.
    pub written: Vec<usize>,
    /// What the function did to gradients.
    pub gradients: Vec<GradientChange>,
    /// What is taken for granted of inputs and captured tensors, beyond the types of inputs.
    pub conditions: Vec<Condition>,
    /// Outputs of the function that are made of inputs or of other outputs.
    pub aliases: Vec<OutputAlias>,
    /// Who has the elements of each output of the function.
    pub owners: Vec<Owner>,
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
        let input = inputs.iter().position(|input| input.has_storage_of(output)).map(Owner::Input);
        let first = || outputs.iter().position(|first| first.has_storage_of(output)).map(Owner::Output);
        input.or_else(first).unwrap_or(Owner::Anyone)
    };
    outputs.iter().map(owner).collect()
}

impl Trace {
    /// Whether it does more than to return values.
    pub fn has_effects(&self) -> bool {
        !self.written.is_empty() || !self.gradients.is_empty()
    }
}

/// The calls a function made, or why they are not all there.
pub type Captured = Result<Trace, Reason>;
