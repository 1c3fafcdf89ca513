//! What a trace takes for granted of tensors from outside its function, beyond the types of inputs.
//!
//! A function may ask where in its memory an input begins, whether two tensors are one, whether a leaf has a gradient.
//! The answer is that of the call which is traced, and it is noted: a program runs only where all answers are the same.
//! Of what nobody asked nothing is noted, so nobody else pays.

use crate::autograd::gradient_edge;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::local::exclude;
use crate::dispatch::key::local::is_tracing;
use crate::error::{NotCaptured, Result};
use crate::tensor::handle::Tensor;
use crate::transforms::tracer::condition::{Condition, Given, Outside, Property, Relation};
use crate::transforms::tracer::recording::Recording;
use crate::transforms::tracer::session::with_recording;

impl Recording {
    /// The position of an input of the function.
    pub(super) fn given(&self, tensor: &Tensor) -> Option<usize> {
        self.given.iter().position(|given| given.handle.id() == tensor.id())
    }

    /// A tensor as what the function has from outside, if it is no value of the function.
    pub(super) fn outside(&self, tensor: &Tensor) -> Option<Outside> {
        if let Some(index) = self.given(tensor) {
            return Some(Outside::Given(index));
        }
        let is_outside = tensor.has_data() && tensor.as_number().is_none() && !tensor.is_made_since(self.first_id);
        is_outside.then(|| Outside::Captured(tensor.clone()))
    }

    /// As [`Recording::outside`], where a value of the function stands for what has its storage.
    fn outside_with_storage(&self, tensor: &Tensor) -> Option<Outside> {
        let is_lifted = || self.inputs.iter().skip(self.given.len()).any(|input| input.id() == tensor.id());
        // Values of the function are views of what they share a storage with; a captured tensor may be an alias of an
        // input, which another call need not have.
        if self.nodes.contains_key(&tensor.id()) && !is_lifted() {
            let given = self.given.iter().position(|given| given.handle.has_storage_of(tensor)).map(Outside::Given);
            let lifted = || self.inputs.iter().skip(self.given.len()).find(|input| input.has_storage_of(tensor));
            return given.or_else(|| lifted().cloned().map(Outside::Captured));
        }
        self.outside(tensor)
    }

    /// What the call that is traced was given, or what its function holds.
    pub(super) fn original<'a>(&'a self, of: &'a Outside) -> &'a Tensor {
        match of {
            Outside::Given(index) => &self.given[*index].original,
            Outside::Captured(tensor) => tensor,
        }
    }

    /// Notes what is taken for granted, once.
    pub(super) fn grant(&mut self, condition: Condition) {
        if !self.conditions.iter().any(|known| known.is_same(&condition)) {
            self.conditions.push(condition);
        }
    }

    /// Whether two tensors are related, if that is not the same in each call.
    fn relates(&mut self, relation: Relation, one: &Tensor, other: &Tensor) -> Option<bool> {
        let outside = |tensor: &Tensor| match relation {
            Relation::Same => self.outside(tensor),
            Relation::Alias => self.outside_with_storage(tensor),
        };
        let (one, other) = (outside(one)?, outside(other)?);
        if let (Outside::Captured(_), Outside::Captured(_)) = (&one, &other) {
            return None;
        }
        if one.is_same(&other) {
            return None;
        }
        let answer = relation.of(self.original(&one), self.original(&other));
        self.grant(Condition::Are(relation, one, other, answer));
        Some(answer)
    }

    /// Where a tensor begins that lies in an input, if it does: in the memory of what the call was given.
    fn begins(&mut self, tensor: &Tensor) -> Option<usize> {
        if !self.may_be_trace() {
            return None;
        }
        let Some(Outside::Given(index)) = self.outside_with_storage(tensor) else { return None };
        let start = |tensor: &Tensor| tensor.array().layout().offset;
        let Given { handle, original } = &self.given[index];
        let (in_handle, in_original) = (start(handle), start(original));
        self.grant(Condition::Begins(index, in_original));
        Some((start(tensor) + in_original).saturating_sub(in_handle))
    }
}

/// Whether two tensors are related, if a function that is traced asks and the answer may differ between calls.
pub(crate) fn relates(relation: Relation, one: &Tensor, other: &Tensor) -> Option<bool> {
    if !is_tracing() || one.is_handle_of(other) {
        return None;
    }
    with_recording(|recording| recording.relates(relation, one, other)).flatten()
}

/// Which element of its memory a tensor begins at, as an input of the call does: its handle may begin elsewhere.
pub(crate) fn memory_start(tensor: &Tensor) -> usize {
    // Also below the Tracer key: that is where calls are recorded for gradients.
    let start = with_recording(|recording| recording.begins(tensor)).flatten();
    start.unwrap_or_else(|| tensor.array().layout().offset)
}

/// Whether a tensor has a property, if a function that is traced asks and the answer may differ between calls.
pub(crate) fn has(property: Property, tensor: &Tensor) -> Option<bool> {
    if !is_tracing() {
        return None;
    }
    let found = with_recording(|recording| {
        let of = recording.outside(tensor)?;
        Some((recording.original(&of).clone(), of))
    });
    let (original, of) = found.flatten()?;
    let answer = {
        // Views may have their history made anew, which is no part of the function.
        let _outside = exclude(DispatchKey::Tracer);
        property.of(&original)
    };
    with_recording(|recording| recording.grant(Condition::Is(property, of, answer)));
    Some(answer)
}

/// Called where a function asks how a tensor came about. A handle of an input does not know, so if there is something to know
/// the trace is not used.
pub(crate) fn on_history(tensor: &Tensor, what: &str) {
    if !is_tracing() || with_recording(|recording| recording.given(tensor)).flatten().is_none() {
        return;
    }
    if has(Property::Leaf, tensor) == Some(false) || has(Property::View, tensor) == Some(true) {
        give_up(NotCaptured::InputHistory { method: what.into() });
    }
}

/// Called before `requires_grad` of a tensor is set. A program does not set it for its inputs.
///
/// # Errors
/// If the history of an input cannot be made anew.
pub(crate) fn on_requires_grad(tensor: &Tensor, requires_grad: bool) -> Result<()> {
    if !is_tracing() || tensor.may_require_grad() == requires_grad {
        return Ok(());
    }
    let original = with_recording(|recording| {
        let index = recording.given(tensor)?;
        recording.give_up(NotCaptured::RequiresGradSet { input: index, value: requires_grad });
        recording.is_deferred().then(|| recording.given[index].original.clone())
    });
    // In a deferred recording it is done, and gradients flow through the handle to what the call was given.
    let Some(original) = original.flatten() else { return Ok(()) };
    let _outside = exclude(DispatchKey::Tracer);
    original.autograd_or_new().set_requires_grad(requires_grad);
    if let Some(edge) = gradient_edge(&original)? {
        tensor.set_edge(edge);
    }
    Ok(())
}

pub(super) fn give_up(why: NotCaptured) {
    with_recording(|recording| recording.give_up(why));
}
