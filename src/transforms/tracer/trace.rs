//! Traces: the results of recordings.

use crate::device::{Device, Generator, GeneratorState};
use crate::error::{Error, Reason, Result};
use crate::ir::{Graph, Scalar, Strides};
use crate::ops::draws::next_key;
use crate::ops::random::{key_of, start_of};
use crate::tensor::handle::{Tensor, WeakTensor};
use crate::transforms::tracer::aliases::OutputAlias;
use crate::transforms::tracer::condition::{Condition, GradientType, Outside};
use crate::transforms::tracer::opaque_call::OpaqueCall;
use std::borrow::Cow;

/// An input of a graph that the function was not given.
pub enum Lifted {
    /// A tensor from outside that the function used.
    Tensor(Tensor),
    /// A plain number of the function, which is another one in each call.
    Number(Tensor),
    /// The key of a random draw. Every call draws a new one, in the order in which the function drew.
    Draw {
        /// The generator.
        generator: Generator,
        /// The number of counters that the draw takes.
        n_counters: u64,
    },
    /// The gradient of a tensor before the call.
    Gradient(Outside, GradientType),
    /// An input that the caller passes with each call, such as the gradient of a result; see
    /// [`declare_input`](super::declare_input).
    Declared,
    /// A result of a call that the graph does not contain.
    Result {
        /// The position of the call among [`Trace::calls`].
        call: usize,
        /// Which of its results.
        result: usize,
    },
}

/// The random draws of a call, in order.
pub struct Draws(Vec<(Generator, GeneratorState, u64)>);

impl Draws {
    /// The draws among lifted inputs, whose keys these are.
    pub fn of<'a>(lifted: &[Lifted], keys: impl IntoIterator<Item = &'a Tensor>) -> Draws {
        let drawn = lifted.iter().filter_map(|one| match one {
            Lifted::Draw { generator, n_counters } => Some((generator, *n_counters)),
            Lifted::Tensor(_) | Lifted::Number(_) | Lifted::Gradient(..) | Lifted::Declared | Lifted::Result { .. } => {
                None
            }
        });
        let started = drawn.zip(keys).filter_map(|((generator, n), key)| Some((generator.clone(), start_of(key)?, n)));
        Draws(started.collect())
    }

    /// Gives the counters back, unless others were drawn since.
    pub fn take_back(&self) {
        self.0.iter().rev().for_each(|(generator, start, n_counters)| generator.take_back(*start, *n_counters));
    }
}

impl Lifted {
    /// Whether both are the same tensor, have the same bytes, or draw alike.
    pub fn is_same(&self, other: &Lifted) -> bool {
        match (self, other) {
            (Lifted::Tensor(one), Lifted::Tensor(other)) => {
                let bytes = |tensor: &Tensor| tensor.array().storage().read(<[u8]>::to_vec);
                one.id() == other.id() || (one.array().layout() == other.array().layout() && bytes(one) == bytes(other))
            }
            (Lifted::Number(one), Lifted::Number(other)) => one.dtype() == other.dtype(),
            (Lifted::Draw { generator, n_counters }, Lifted::Draw { generator: other, n_counters: n_other }) => {
                generator.is_same(other) && n_counters == n_other
            }
            (Lifted::Gradient(one, _), Lifted::Gradient(other, _)) => one.is_same(other),
            (Lifted::Declared, Lifted::Declared) => true,
            (Lifted::Result { call, result }, Lifted::Result { call: of, result: other }) => {
                call == of && result == other
            }
            (
                Lifted::Tensor(_)
                | Lifted::Number(_)
                | Lifted::Draw { .. }
                | Lifted::Gradient(..)
                | Lifted::Declared
                | Lifted::Result { .. },
                _,
            ) => false,
        }
    }

    /// The device, if it is known.
    pub fn device(&self) -> Option<Device> {
        match self {
            // Plain numbers have no fixed device.
            Lifted::Tensor(tensor) => Some(tensor.device()).filter(|_| tensor.as_number().is_none()),
            Lifted::Gradient(_, ty) => Some(ty.device),
            Lifted::Number(_) | Lifted::Draw { .. } | Lifted::Declared | Lifted::Result { .. } => None,
        }
    }

    /// Whether the input exists in a call with these inputs, with the traced type.
    pub fn holds(&self, inputs: &[&Tensor]) -> bool {
        match self {
            Lifted::Gradient(of, ty) => of.of(inputs).gradient().is_some_and(|gradient| ty.holds(&gradient)),
            Lifted::Tensor(_) | Lifted::Number(_) | Lifted::Draw { .. } | Lifted::Declared | Lifted::Result { .. } => {
                true
            }
        }
    }

    /// The tensor for one call with these inputs.
    ///
    /// # Errors
    /// If there is not enough memory for a key, if a gradient has changed since the conditions were checked, or if the
    /// caller must pass the input.
    pub fn tensor(&self, inputs: &[&Tensor]) -> Result<Cow<'_, Tensor>> {
        match self {
            Lifted::Gradient(of, ty) => {
                let gradient = of.of(inputs).gradient().filter(|gradient| ty.holds(gradient));
                gradient.map(Cow::Owned).ok_or_else(|| {
                    let what = format!("the gradient of {of} was changed while the function was called");
                    Error::argument("compile", format!("{what}; let one thread at a time change it"))
                })
            }
            Lifted::Tensor(tensor) | Lifted::Number(tensor) => Ok(Cow::Borrowed(tensor)),
            Lifted::Draw { generator, n_counters } => next_key(|| key_of(generator.draw(*n_counters))).map(Cow::Owned),
            Lifted::Declared | Lifted::Result { .. } => {
                Err(Error::Internal { message: "a declared input was not handed in".into() })
            }
        }
    }
}

/// A gradient that a function leaves on a tensor from outside.
#[derive(Clone)]
pub struct GradientChange {
    /// The tensor.
    pub of: Outside,
    /// Its new gradient.
    pub to: NewGradient,
    /// Whether it is an inference tensor.
    pub is_inference: bool,
}

/// The new gradient of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewGradient {
    /// The gradient is cleared.
    Nothing,
    /// An output of the graph.
    Output(usize),
    /// An input of the graph.
    Input(usize),
}

/// A trace: the recorded calls of a function.
pub struct Trace {
    /// The calls. Inputs are those that the function was given, then the lifted ones. Outputs are those of the
    /// function, then the new values of written inputs, then new gradients.
    pub graph: Graph,
    /// The lifted inputs.
    pub lifted: Vec<Lifted>,
    /// The calls that the graph does not contain, in order.
    pub calls: Vec<OpaqueCall>,
    /// The calls that compute gradients. Their results are declared inputs, after the gradients of results.
    pub backward_calls: Vec<OpaqueCall>,
    /// The written inputs. The outputs that follow the function's own are copied into them.
    pub written: Vec<usize>,
    /// How often the function wrote to each of them, which their versions count.
    pub n_writes: Vec<u64>,
    /// The changes of gradients.
    pub gradients: Vec<GradientChange>,
    /// Guards on inputs and captured tensors, beyond the types of inputs.
    pub conditions: Vec<Condition>,
    /// Outputs of the function that are rebuilt from inputs or other outputs.
    pub aliases: Vec<OutputAlias>,
    /// The owner of each output's memory.
    pub owners: Vec<Owner>,
    /// The values of the function that were alive when the trace ended, results among them.
    pub(crate) kept: Vec<WeakTensor>,
    /// The strides of each output.
    pub strides: Vec<Strides>,
    /// The outputs that are inference tensors where the mode of the call makes none, or the other way round.
    pub inference: Vec<usize>,
    /// Whether some input is the same tensor as another one.
    pub has_repeats: bool,
    /// The plain numbers of the function, in the order in which calls used them.
    pub numbers: Vec<Scalar>,
}

/// The owner of an output's memory. Outputs share memory in the function exactly if their owners are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// This input.
    Input(usize),
    /// This output, the first in this memory.
    Output(usize),
    /// Not decided, because it is only read before any write.
    Anyone,
}

impl Trace {
    /// Whether the function does more than return values.
    pub fn has_effects(&self) -> bool {
        !self.written.is_empty() || !self.gradients.is_empty() || !self.calls.is_empty()
    }

    /// Whether the function keeps a value. To be asked when its results are gone.
    pub(crate) fn keeps_values(&self) -> bool {
        self.kept.iter().any(|value| value.upgrade().is_some())
    }
}

/// A trace, or why there is none.
pub type Captured = Result<Trace, Reason>;
