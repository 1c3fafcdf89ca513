//! Gradients of leaves from outside the traced function.
//!
//! If the function reads the gradient of a leaf, or adds to it, the gradient becomes an input of the trace: a
//! placeholder without elements. Each call passes its own gradient. If the leaf has no gradient, that is a guard. A
//! gradient that the function clears or replaces first needs no guard. In a deferred recording gradients are real.
//!
//! A function that is traced after its first call has already changed gradients. So that call is watched, and the trace
//! starts from the gradients before it.

use crate::dispatch::key::local::is_tracing;
use crate::error::{NotCaptured, Reason, Result};
use crate::ir::NodeId;
use crate::tensor::handle::Tensor;
use crate::tensor::observer::{Access, Question};
use crate::transforms::tracer::condition::{Condition, GradientType, Outside, Property};
use crate::transforms::tracer::known_gradients::{GradientsBefore, WATCHED, before};
use crate::transforms::tracer::outside::{give_up, has};
use crate::transforms::tracer::recording::{LeafGradient, Recording};
use crate::transforms::tracer::session::with_recording;
use crate::transforms::tracer::trace::{GradientChange, Lifted, NewGradient};
use std::borrow::Cow;

/// Called before an access to the gradient of a tensor. Returns the tensor that holds the gradient.
pub(crate) fn on_gradient(leaf: &Tensor, access: Access) -> Cow<'_, Tensor> {
    let mut owner = Cow::Borrowed(leaf);
    if is_tracing() {
        if access == Access::Add
            && with_recording(|recording| recording.given(leaf)).flatten().is_some()
            && has(Property::Leaf, leaf) == Some(false)
        {
            give_up(NotCaptured::BackwardThroughInput);
        }
        match with_recording(|recording| recording.on_gradient(leaf, access)) {
            Some(Touched::Traced) => return owner,
            Some(Touched::Real(original)) => owner = original.map_or(owner, Cow::Owned),
            None => {}
        }
    }
    WATCHED.with_borrow_mut(|watched| {
        if let Some(GradientsBefore(watched)) = watched {
            watched.entry(owner.id()).or_insert_with(|| before(&owner));
        }
    });
    owner
}

/// Called before the hooks of a leaf run. A trace contains what they do, so they are a guard.
pub(crate) fn on_hooks(leaf: &Tensor) {
    if !is_tracing() {
        return;
    }
    with_recording(|recording| {
        if let (false, Some(of)) = (recording.is_deferred(), recording.outside(leaf)) {
            let hooks = recording.original(&of).hooks();
            recording.add_condition(Condition::Hooks(of, hooks));
        }
    });
}

/// Called when a backward pass of the function runs through a call that was recorded before the trace. A hook of that
/// call would run in each call of the function, whatever the trace contains. So it must have none.
pub(crate) fn on_older_call(call: u64, has_no_hooks: Question) {
    with_recording(|recording| match has_no_hooks() {
        true => recording.add_condition(Condition::Unhooked(call, has_no_hooks)),
        false => recording.give_up(NotCaptured::HookPassed),
    });
}

/// Called before a hook is registered. Returns whether it must not be. A function that registers a hook on a tensor
/// from outside is not traced.
pub(crate) fn refuses_hook(tensor: &Tensor) -> bool {
    is_tracing()
        && with_recording(|recording| {
            let Some(of) = recording.outside(tensor) else { return false };
            recording.give_up(NotCaptured::HookRegistered { tensor: of.to_string().into() });
            !recording.is_deferred()
        }) == Some(true)
}

/// Where an accessed gradient is.
enum Touched {
    /// The tensor itself holds the traced gradient.
    Traced,
    /// This tensor, or else the accessed one, holds a real gradient.
    Real(Option<Tensor>),
}

impl Recording {
    fn on_gradient(&mut self, leaf: &Tensor, access: Access) -> Touched {
        if self.is_deferred() {
            let original = self.given(leaf).map(|index| self.given[index].original.clone());
            let owner = original.as_ref().unwrap_or(leaf);
            if access != Access::Read {
                self.note_gradient(owner);
            }
            if !self.gradients.iter().any(|known| known.leaf.id() == owner.id()) {
                let (leaf, kept) = (owner.clone(), owner.gradient());
                self.gradients.push(LeafGradient { leaf, of: None, kept, placeholder: None, is_replaced: false });
            }
            return Touched::Real(original);
        }
        let is_replaced = access == Access::Replace;
        self.n_effects += u64::from(access != Access::Read && self.outside(leaf).is_some());
        if let Some(known) = self.gradients.iter_mut().find(|known| known.leaf.id() == leaf.id()) {
            known.is_replaced |= is_replaced;
            return Touched::Traced;
        }
        // The gradient of a value of the function is itself such a value.
        let Some(of) = self.outside(leaf) else {
            self.made_leaves.push(leaf.downgrade());
            return Touched::Traced;
        };
        let kept = leaf.gradient();
        let mut placeholder = None;
        if !is_replaced {
            let original = self.original(&of).clone();
            match self.before.0.remove(&original.id()).unwrap_or_else(|| before(&original)) {
                None => self.add_condition(Condition::NoGradient(of.clone())),
                Some(Ok(ty)) => placeholder = self.lift_gradient(&of, ty),
                Some(Err(why)) => self.give_up(why),
            }
        }
        leaf.put_gradient(placeholder.as_ref());
        let placeholder = placeholder.map(|placeholder| placeholder.id());
        self.gradients.push(LeafGradient { leaf: leaf.clone(), of: Some(of), kept, placeholder, is_replaced });
        Touched::Traced
    }

    /// Makes the gradient that a leaf has before the call an input of the trace. Returns its placeholder.
    fn lift_gradient(&mut self, of: &Outside, ty: GradientType) -> Option<Tensor> {
        match ty.placeholder() {
            Ok(placeholder) => {
                self.lifted.push(Lifted::Gradient(of.clone(), ty));
                self.add_input(&placeholder);
                Some(placeholder)
            }
            Err(error) => {
                self.give_up(Reason::of_error(error));
                None
            }
        }
    }

    /// The changes of gradients at the end of each call. Values that are no outputs yet are appended to `nodes`.
    pub(super) fn gradient_changes(
        &mut self,
        outputs: &[Tensor],
        nodes: &mut Vec<NodeId>,
    ) -> Result<Vec<GradientChange>> {
        let mut changes = Vec::new();
        let touched: Vec<(Outside, Option<Tensor>)> = self
            .gradients
            .iter()
            .filter_map(|known| {
                let value = known.leaf.gradient();
                let is_kept = !known.is_replaced && value.as_ref().map(Tensor::id) == known.placeholder;
                known.of.clone().filter(|_| !is_kept).map(|of| (of, value))
            })
            .collect();
        for (of, value) in touched {
            let to = match &value {
                None => NewGradient::Nothing,
                Some(value) => {
                    if value.may_require_grad() {
                        self.give_up(NotCaptured::GradientLeft { leaf: of.to_string().into() });
                    }
                    let node = self.node(value)?;
                    self.hide_made();
                    let is_value = |tensor: &Tensor| tensor.id() == value.id();
                    // If the gradient is an input or output, the leaf gets that very tensor.
                    match (self.inputs.iter().position(is_value), outputs.iter().position(is_value)) {
                        (Some(input), _) => NewGradient::Input(input),
                        (None, Some(output)) => NewGradient::Output(output),
                        (None, None) => {
                            nodes.push(node);
                            NewGradient::Output(nodes.len() - 1)
                        }
                    }
                }
            };
            let is_inference = value.as_ref().is_some_and(Tensor::is_inference);
            changes.push(GradientChange { of, to, is_inference });
        }
        Ok(changes)
    }
}
