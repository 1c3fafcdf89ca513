//! Questions about tensors from outside the traced function.
//!
//! A function may ask for the storage offset of an input, whether two tensors are the same, or whether a leaf has a
//! gradient. The answer for the traced call becomes a condition: a program runs only if all answers are the same. A
//! function that asks nothing gets no conditions.

use crate::autograd::gradient_edge;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::local::exclude;
use crate::dispatch::key::local::is_tracing;
use crate::error::{NotCaptured, Result};
use crate::tensor::handle::Tensor;
use crate::transforms::tracer::condition::{Condition, Given, Outside, Property, Relation};
use crate::transforms::tracer::deferred::flush;
use crate::transforms::tracer::recording::Recording;
use crate::transforms::tracer::session::{is_deferred, with_recording};
use crate::transforms::tracer::trace::Lifted;

impl Recording {
    /// The position of an input of the function.
    pub(super) fn given(&self, tensor: &Tensor) -> Option<usize> {
        self.given.iter().position(|given| given.handle.id() == tensor.id())
    }

    /// The tensor as one from outside, if it is not a value of the function.
    pub(super) fn outside(&self, tensor: &Tensor) -> Option<Outside> {
        if let Some(index) = self.given(tensor) {
            return Some(Outside::Given(index));
        }
        let is_outside = tensor.has_data() && tensor.as_number().is_none() && !self.start.is_before(tensor.id());
        is_outside.then(|| Outside::Captured(tensor.clone()))
    }

    /// Like [`Recording::outside`]. A value of the function stands for the outside tensor whose storage it shares.
    fn outside_with_storage(&self, tensor: &Tensor) -> Option<Outside> {
        let is_lifted = || self.inputs.iter().skip(self.given.len()).any(|input| input.id() == tensor.id());
        // A value of the function is a view of the outside tensor with its storage. A captured tensor may be an alias
        // of an input only in this call.
        if self.nodes.contains_key(&tensor.id()) && !is_lifted() {
            let given = self.given.iter().position(|given| given.handle.has_storage_of(tensor)).map(Outside::Given);
            let lifted = || self.inputs.iter().skip(self.given.len()).find(|input| input.has_storage_of(tensor));
            return given.or_else(|| lifted().cloned().map(Outside::Captured));
        }
        self.outside(tensor)
    }

    /// The tensor that the caller passed, or the captured tensor.
    pub(super) fn original<'a>(&'a self, of: &'a Outside) -> &'a Tensor {
        match of {
            Outside::Given(index) => &self.given[*index].original,
            Outside::Captured(tensor) => tensor,
        }
    }

    /// Adds a condition, unless there is one on the same question.
    pub(super) fn add_condition(&mut self, condition: Condition) {
        if !self.conditions.iter().any(|known| known.is_same(&condition)) {
            self.conditions.push(condition);
        }
    }

    /// The answer to a question about two tensors, if it may differ between calls.
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
        self.add_condition(Condition::Are(relation, one, other, answer));
        Some(answer)
    }

    /// The storage offset of a tensor that shares memory with an input. It is that of the caller's tensor.
    fn begins(&mut self, tensor: &Tensor) -> Option<usize> {
        if !self.may_be_trace() {
            return None;
        }
        let Some(Outside::Given(index)) = self.outside_with_storage(tensor) else { return None };
        let start = |tensor: &Tensor| tensor.array().layout().offset;
        let Given { handle, original } = &self.given[index];
        let (in_handle, in_original) = (start(handle), start(original));
        self.add_condition(Condition::Begins(index, in_original));
        Some((start(tensor) + in_original).saturating_sub(in_handle))
    }

    /// Adds the conditions that no input is a captured tensor, where it would matter: where the captured tensor is
    /// returned, or gradients flow to it. An input of another type can be none.
    ///
    /// # Errors
    /// If an input is one in this call.
    pub(super) fn compare_captured(&mut self, outputs: &[Tensor]) -> Result<(), NotCaptured> {
        let is_seen = |tensor: &Tensor| {
            let is_returned = |output: &Tensor| output.shares(tensor);
            tensor.may_require_grad() || outputs.iter().any(is_returned)
        };
        let n_given = self.inputs.len() - self.lifted.len();
        let lifted = self.lifted.iter().enumerate().filter_map(|(index, lifted)| match lifted {
            Lifted::Tensor(tensor) if !self.is_hidden(n_given + index) && is_seen(tensor) => Some(tensor.clone()),
            Lifted::Tensor(_)
            | Lifted::Number(_)
            | Lifted::Draw { .. }
            | Lifted::Gradient(..)
            | Lifted::Declared
            | Lifted::Result { .. } => None,
        });
        let seen: Vec<Tensor> = lifted.chain(self.wanted.iter().cloned()).collect();
        self.wanted.clear();
        for tensor in seen {
            for input in 0..self.given.len() {
                let original = &self.given[input].original;
                if original.dtype() != tensor.dtype() || original.sizes() != tensor.sizes() {
                    continue;
                }
                if original.is_handle_of(&tensor) {
                    return Err(NotCaptured::InputIsCaptured { input });
                }
                let of = Outside::Captured(tensor.clone());
                self.add_condition(Condition::Are(Relation::Same, Outside::Given(input), of, false));
            }
        }
        Ok(())
    }

    /// Adds the conditions that no written input is a view that gradients flow through. The history of such a view is
    /// computed anew after a write, and contributions to it arrive in another order.
    ///
    /// # Errors
    /// If an input is one in this call.
    pub(super) fn check_written_views(&mut self, outputs: &[Tensor]) -> Result<(), NotCaptured> {
        if self.is_deferred() || !outputs.iter().any(Tensor::may_require_grad) {
            return Ok(());
        }
        for input in self.written.clone() {
            let Some(of) = self.outside(&self.inputs[input]).filter(|_| self.inputs[input].may_require_grad()) else {
                continue;
            };
            if Property::View.of(self.original(&of)) {
                return Err(NotCaptured::ViewWritten { tensor: of.to_string().into() });
            }
            self.add_condition(Condition::Is(Property::View, of, false));
        }
        Ok(())
    }
}

/// The answer to a question about two tensors, if a function is traced and the answer may differ between calls.
pub(crate) fn relates(relation: Relation, one: &Tensor, other: &Tensor) -> Option<bool> {
    if !is_tracing() || one.is_handle_of(other) {
        return None;
    }
    with_recording(|recording| recording.relates(relation, one, other)).flatten()
}

/// The storage offset of a tensor. While tracing, handles may have another offset than the caller's tensor: the latter
/// counts.
pub(crate) fn memory_start(tensor: &Tensor) -> usize {
    // Also below the Tracer key, where calls are recorded for gradients.
    let start = with_recording(|recording| recording.begins(tensor)).flatten();
    start.unwrap_or_else(|| tensor.array().layout().offset)
}

/// The answer to a question about one tensor, if a function is traced and the answer may differ between calls.
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
        // A view may recompute its history, which is not part of the function.
        let _outside = exclude(DispatchKey::Tracer);
        property.of(&original)
    };
    with_recording(|recording| recording.add_condition(Condition::Is(property, of, answer)));
    Some(answer)
}

/// Called for a tensor whose gradient a function asks for. It may be used in no other way.
pub(crate) fn on_wanted(tensor: &Tensor) {
    if is_tracing() {
        with_recording(|recording| {
            if let Some(Outside::Captured(of)) = recording.outside(tensor) {
                recording.wanted.push(of);
            }
        });
    }
}

/// Called for a leaf that a backward pass for other tensors reaches. If it stands for an input with a history,
/// gradients would flow on through it.
pub(crate) fn on_reached(leaf: &Tensor) {
    if is_tracing()
        && with_recording(|recording| recording.given(leaf)).flatten().is_some()
        && has(Property::Leaf, leaf) == Some(false)
    {
        give_up(NotCaptured::BackwardThroughInput);
    }
}

/// Called when a function asks about the history of a tensor. The handle of an input has none. If the caller's tensor
/// has a history, the trace is not used.
pub(crate) fn on_history(tensor: &Tensor, what: &str) {
    if !is_tracing() || with_recording(|recording| recording.given(tensor)).flatten().is_none() {
        return;
    }
    if has(Property::Leaf, tensor) == Some(false) || has(Property::View, tensor) == Some(true) {
        give_up(NotCaptured::InputHistory { method: what.into() });
    }
}

/// Called before `requires_grad` of a tensor is set. Programs cannot do that to their inputs. In a deferred recording,
/// the calls before it run first.
///
/// # Errors
/// If one of them fails, or the history of an input cannot be recomputed.
pub(crate) fn on_requires_grad(tensor: &Tensor, requires_grad: bool) -> Result<()> {
    if !is_tracing() {
        return Ok(());
    }
    if tensor.may_require_grad() == requires_grad {
        // Another call may change it.
        with_recording(|recording| {
            if let Some(of @ Outside::Captured(_)) = recording.outside(tensor) {
                recording.add_condition(Condition::Is(Property::RequiresGrad, of, requires_grad));
            }
        });
        return Ok(());
    }
    let reason = with_recording(|recording| match recording.given(tensor) {
        Some(input) => Some(NotCaptured::RequiresGradSet { input, value: requires_grad }),
        None => recording.outside(tensor).map(|of| NotCaptured::RequiresGradChanged { tensor: of.to_string().into() }),
    });
    let reason = reason.flatten();
    let is_outside = reason.is_some();
    match reason {
        // A call before this one may fail, and then the flag stays as it was.
        Some(reason) if is_deferred() => flush(Some(reason.into()))?,
        Some(reason) => give_up(reason),
        None => {}
    }
    let handles = with_recording(|recording| {
        let original = match recording.given(tensor) {
            Some(index) => recording.given[index].original.clone(),
            None => {
                if is_outside && !recording.is_deferred() {
                    recording.requirements.push((tensor.clone(), !requires_grad));
                }
                // Later calls are recorded for gradients.
                recording.deferral.iter_mut().for_each(|deferral| deferral.has_gradients = true);
                tensor.clone()
            }
        };
        let is_handle = |given: &&Given| recording.is_deferred() && given.original.id() == original.id();
        let handles: Vec<Tensor> = recording.given.iter().filter(is_handle).map(|given| given.handle.clone()).collect();
        (!handles.is_empty()).then_some((original, handles))
    });
    // In a deferred recording it takes effect: gradients flow through the handles to the caller's tensor, which the
    // function may reach by both.
    let Some((original, handles)) = handles.flatten() else { return Ok(()) };
    let _outside = exclude(DispatchKey::Tracer);
    original.autograd_or_new().set_requires_grad(requires_grad);
    for handle in handles {
        match gradient_edge(&original)? {
            Some(edge) => handle.set_edge(edge),
            None => handle.autograd_or_new().set_requires_grad(requires_grad),
        }
    }
    Ok(())
}

pub(super) fn give_up(why: NotCaptured) {
    with_recording(|recording| recording.give_up(why));
}
