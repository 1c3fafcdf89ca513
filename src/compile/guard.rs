//! Guards: what a program requires of its inputs and of the thread.
//!
//! Sizes and strides are concrete in graphs, so a program serves exactly the types it was traced with. Autocast, grad
//! mode, inference mode and default dtype change what a trace records, and numerics change its kernels. So they are
//! part of the guard. Inputs of another size are traced abstractly and planned in microseconds, and their kernels are
//! found in the cache.

use crate::device::Device;
use crate::dispatch::key::default_dtype::default_dtype;
use crate::dispatch::key::grad_mode::{is_grad_enabled, is_inference_mode};
use crate::eager::current_numerics;
use crate::ir::{DType, Numerics};
use crate::runtime::SharedLayout;
use crate::tensor::handle::Tensor;
use crate::tensor::structure::{Flat, Words};
use crate::transforms::autocast::AutocastState;
use crate::transforms::function::TensorRefs;
use crate::transforms::tracer::{Repeats, repeats};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};

/// The guard on one input.
#[derive(Debug, Clone)]
struct InputGuard {
    dtype: DType,
    /// Sizes and strides. The offset is not part of the guard.
    layout: SharedLayout,
    device: Device,
    number: bool,
    /// Whether it requires gradients. This counts in no-grad mode too: the function may enable grad mode.
    requires_grad: bool,
    /// Whether it is an inference tensor, which may not be written or saved everywhere.
    inference: bool,
}

impl InputGuard {
    /// The fields that are compared.
    fn key(&self) -> (DType, &[usize], &[usize], Device, [bool; 3]) {
        let flags = [self.number, self.requires_grad, self.inference];
        (self.dtype, &self.layout.sizes, &self.layout.strides, self.device, flags)
    }
}

impl PartialEq for InputGuard {
    fn eq(&self, other: &InputGuard) -> bool {
        self.key() == other.key()
    }
}

impl Eq for InputGuard {}

impl Hash for InputGuard {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// The guard on all inputs and on the thread's state. Equal guards share programs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Guard {
    inputs: SmallVec<[InputGuard; 4]>,
    /// Which inputs are the same tensor.
    repeats: Repeats,
    /// The arguments besides their tensors.
    words: Words,
    autocast: AutocastState,
    grad_mode: bool,
    inference_mode: bool,
    numerics: Numerics,
    /// The default dtype.
    dtype: DType,
}

impl Guard {
    /// The guard that these inputs define.
    pub fn of(inputs: &Flat) -> Guard {
        Guard {
            inputs: inputs.tensors.iter().map(InputGuard::of).collect(),
            repeats: repeats(&inputs.tensors.iter().collect::<TensorRefs<'_>>()),
            words: inputs.words.clone(),
            autocast: AutocastState::current(),
            grad_mode: is_grad_enabled(),
            inference_mode: is_inference_mode(),
            numerics: current_numerics(),
            dtype: default_dtype(),
        }
    }

    /// The same guard for any plain values, as many as these.
    pub(super) fn of_any_words(self) -> Guard {
        Guard { words: self.words.counted(), ..self }
    }

    /// Whether these inputs satisfy the guard.
    pub fn holds(&self, inputs: &Flat) -> bool {
        self.words == inputs.words && self.holds_of(&inputs.tensors.iter().collect::<TensorRefs<'_>>())
    }

    /// Like [`Guard::holds`], for inputs that are single tensors.
    pub(super) fn holds_of_tensors(&self, inputs: &[&Tensor]) -> bool {
        self.words.is_empty() && self.holds_of(inputs)
    }

    fn holds_of(&self, inputs: &[&Tensor]) -> bool {
        self.inputs.len() == inputs.len()
            && self.grad_mode == is_grad_enabled()
            && self.inference_mode == is_inference_mode()
            && self.autocast == AutocastState::current()
            && self.numerics == current_numerics()
            && self.dtype == default_dtype()
            && self.inputs.iter().zip(inputs).all(|(guard, input)| guard.holds(input))
            && self.repeats == repeats(inputs)
    }

    /// The first difference between the guard and these inputs, in words. `None` if they satisfy it.
    pub fn violation(&self, flat: &Flat) -> Option<String> {
        let inputs = &flat.tensors;
        let differs = |(index, (guard, input)): (usize, (&InputGuard, &Tensor))| {
            let found = InputGuard::of(input);
            (*guard != found).then(|| match () {
                () if guard.dtype != found.dtype => {
                    format!("input {index} has dtype {}, not {}", found.dtype, guard.dtype)
                }
                () if guard.device != found.device => {
                    format!("input {index} is on {}, not {}", found.device, guard.device)
                }
                () if guard.layout.rank() != found.layout.rank() => {
                    format!("input {index} has {} dims, not {}", found.layout.rank(), guard.layout.rank())
                }
                () if guard.layout.sizes != found.layout.sizes => {
                    let [found, known] = [&found, guard].map(|guard| &guard.layout.sizes[..]);
                    format!("input {index} has shape {found:?}, not {known:?}")
                }
                () if guard.layout.strides != found.layout.strides => {
                    let [found, known] = [&found, guard].map(|guard| &guard.layout.strides[..]);
                    format!("input {index} has strides {found:?}, not {known:?}")
                }
                () if guard.requires_grad != found.requires_grad => {
                    format!("input {index} differs in requires_grad")
                }
                () if guard.inference != found.inference => {
                    format!("input {index} is an inference tensor where none was, or the other way round")
                }
                () => format!("input {index} is a number where a tensor was, or the other way round"),
            })
        };
        let input = self.inputs.iter().zip(inputs).enumerate().find_map(differs);
        let count = || {
            let (had, has) = (self.inputs.len(), inputs.len());
            (had != has).then(|| format!("there are {has} inputs, not {had}"))
        };
        let autocast = || (self.autocast != AutocastState::current()).then(|| "the autocast state differs".into());
        let grad_mode = || (self.grad_mode != is_grad_enabled()).then(|| "the grad mode differs".into());
        let inference = || (self.inference_mode != is_inference_mode()).then(|| "the inference mode differs".into());
        let numerics = || {
            let (had, has) = (self.numerics, current_numerics());
            (had != has).then(|| format!("numerics are {has}, not {had}"))
        };
        let dtype = || {
            let (had, has) = (self.dtype, default_dtype());
            (had != has).then(|| format!("the default dtype is {has}, not {had}"))
        };
        let same = || {
            let found = repeats(&inputs.iter().collect::<TensorRefs<'_>>());
            (self.repeats != found).then(|| "other inputs are the same tensor".into())
        };
        let words = || (self.words != flat.words).then(|| "a structure, or a plain value in one, differs".into());
        count()
            .or(input)
            .or_else(same)
            .or_else(words)
            .or_else(autocast)
            .or_else(grad_mode)
            .or_else(inference)
            .or_else(numerics)
            .or_else(dtype)
    }
}

impl InputGuard {
    fn of(input: &Tensor) -> InputGuard {
        InputGuard {
            dtype: input.dtype(),
            layout: input.shared_layout().clone(),
            device: input.device(),
            number: input.as_number().is_some(),
            requires_grad: input.requires_grad(),
            inference: input.is_inference(),
        }
    }

    fn holds(&self, input: &Tensor) -> bool {
        self.dtype == input.dtype()
            && self.layout.has_extents_of(input.shared_layout())
            && self.device == input.device()
            && self.number == input.as_number().is_some()
            && self.requires_grad == input.requires_grad()
            && self.inference == input.is_inference()
    }
}
