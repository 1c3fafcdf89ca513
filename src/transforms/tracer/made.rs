//! Tensors that the function makes itself of values in Rust, as by `Tensor::from_slice`, and tensors that it keeps.
//!
//! A recording finds a tensor with elements that it has not computed, and lifts it. But a call that is compiled makes
//! none: it must give a new one where an eager call makes one, and write to that. So at the end of a recording a hidden
//! handle takes the place of such an input, with the elements that it was made with. The tensor itself becomes a value
//! of the graph like any other: a result is a copy, and a write to it is no write to an input.
//!
//! What outlives the call in another place is not the call's own. A function that keeps a tensor is captured after it
//! has kept it.

use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::tensor::handle::{Tensor, WeakTensor};
use crate::transforms::tracer::recording::{Made, Recording};
use crate::transforms::tracer::session::with_recording;
use crate::transforms::tracer::trace::{Lifted, Owner};
use std::collections::HashSet;

impl Recording {
    /// Hides the lifted tensors that the function has made.
    pub(super) fn hide_made(&mut self) {
        if !self.may_be_trace() {
            return;
        }
        let n_given = self.inputs.len() - self.lifted.len();
        for (index, lifted) in self.lifted.iter_mut().enumerate() {
            let (Lifted::Tensor(tensor), input) = (lifted, n_given + index) else { continue };
            let is_own = tensor.as_number().is_none() && self.start.is_before(tensor.id());
            if !is_own || self.made.iter().any(|made| made.input == input) {
                continue;
            }
            let hidden = tensor.fresh_handle();
            // A write may have given it a history since.
            let is_leaf = tensor.is_tape_leaf() && tensor.requires_grad();
            if is_leaf {
                hidden.require_grad_like(tensor);
            }
            let own = std::mem::replace(tensor, hidden.clone());
            self.inputs[input] = hidden;
            self.made.push(Made { input, id: own.id(), leaf: is_leaf.then_some(own) });
        }
    }

    /// The id of the tensor that is the input, or whose place it has taken.
    pub(super) fn id_of_input(&self, input: usize) -> u64 {
        let made = self.made.iter().find(|made| made.input == input);
        made.map_or_else(|| self.inputs[input].id(), |made| made.id)
    }

    /// The tensor at the position of a lifted one, which gradients flow to.
    pub(super) fn shown(&self, input: usize, tensor: &Tensor) -> Tensor {
        let made = self.made.iter().find(|made| made.input == input);
        made.and_then(|made| made.leaf.clone()).unwrap_or_else(|| tensor.clone())
    }

    /// Whether a hidden handle has taken the place of an input.
    pub(super) fn is_hidden(&self, input: usize) -> bool {
        self.made.iter().any(|made| made.input == input)
    }

    fn is_made(&self, id: u64) -> bool {
        self.made.iter().any(|made| made.id == id)
    }

    /// The owners of the outputs. Outputs that stay the same tensors in each call are inputs.
    pub(super) fn owners(&self, outputs: &[Tensor]) -> Vec<Owner> {
        let owner = |output: &Tensor| {
            let inputs = self.inputs.iter().enumerate();
            let mut behind = inputs.filter(|(input, tensor)| !self.is_hidden(*input) && tensor.has_storage_of(output));
            let input = behind.next().map(|(input, _)| Owner::Input(input));
            let first = || outputs.iter().position(|first| first.has_storage_of(output)).map(Owner::Output);
            input.or_else(first).unwrap_or(Owner::Anyone)
        };
        outputs.iter().map(owner).collect()
    }

    /// The values of the function that are alive. If one of them outlives the results, the function keeps it.
    pub(super) fn handles_to_drop(&self) -> Vec<WeakTensor> {
        let is_value = |tensor: &Tensor| {
            let leaf = self.made.iter().any(|made| made.id == tensor.id() && made.leaf.is_some());
            (!tensor.has_data() || self.is_made(tensor.id()))
                && !leaf
                && tensor.as_number().is_none()
                && self.given(tensor).is_none()
                && !(self.is_subgraph && self.is_input(tensor))
        };
        let all = self.storages.values().flat_map(|named| &named.tensors);
        all.filter(|handle| handle.upgrade().is_some_and(|tensor| is_value(&tensor))).cloned().collect()
    }

    /// Whether a deferred recording computed or made a tensor that lives elsewhere, too. The first `n_results` outputs
    /// are the results of the function, the others are bases of results.
    pub(super) fn is_kept_elsewhere(&self, outputs: &[Tensor], n_results: usize) -> bool {
        let inputs = self.inputs.iter().chain(self.given.iter().map(|given| &given.handle));
        let not_own: HashSet<u64> = inputs.map(Tensor::id).collect();
        let handles = self.storages.values().flat_map(|named| named.tensors.iter().filter_map(WeakTensor::upgrade));
        let live: Vec<Tensor> = handles.filter(|tensor| !not_own.contains(&tensor.id())).collect();
        let count = |of: &Tensor, all: &[Tensor]| all.iter().filter(|tensor| tensor.is_handle_of(of)).count();
        live.iter().any(|tensor| {
            // The result itself has a handle of each of its tensors, besides that among the outputs.
            let in_results = count(tensor, outputs) + count(tensor, &outputs[..n_results]);
            let known = 1 + in_results + self.n_noted(tensor, &live);
            (!tensor.has_data() || self.is_made(tensor.id())) && tensor.n_handles() > known
        })
    }

    /// Whether nothing but the caller refers to a gradient, in an abstract trace. Views refer to their bases there. An
    /// eager backward pass computes a tensor of its own.
    fn is_alone(&self, tensor: &Tensor) -> Option<bool> {
        let named = self.storages.get(&tensor.array().storage().as_ptr().addr())?;
        let live: Vec<Tensor> = named.tensors.iter().filter_map(WeakTensor::upgrade).collect();
        let is_known = |one: &Tensor| {
            let known = 1 + usize::from(one.is_handle_of(tensor)) + self.n_noted(one, &live);
            one.n_handles() <= known
        };
        Some(tensor.array().storage().n_strong() <= live.len() && live.iter().all(is_known))
    }

    /// How many handles of a tensor the recording has, and the views among these tensors.
    fn n_noted(&self, of: &Tensor, live: &[Tensor]) -> usize {
        let bases = live.iter().chain(&self.inputs).filter_map(Tensor::view_of).map(|view| &view.base);
        let noted = self.noted_bases().chain(self.counted.iter().map(|(tensor, _)| tensor));
        let effects = self.effects.writes.iter().filter_map(|write| write.counted.as_ref().map(|(tensor, _)| tensor));
        bases.chain(noted).chain(effects).filter(|tensor| tensor.is_handle_of(of)).count()
    }
}

/// Whether nothing but the caller refers to a gradient, if an abstract trace must decide it. A backward pass that is
/// recorded keeps views, eagerly too.
pub(crate) fn is_alone(gradient: &Tensor) -> Option<bool> {
    if is_grad_enabled() {
        return None;
    }
    with_recording(|recording| recording.is_alone(gradient)).flatten()
}
