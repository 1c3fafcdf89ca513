//! Gradients of leaves from outside a function that is traced.
//!
//! The gradient that a leaf has before the call is an input of the trace as soon as the function reads it or adds to it:
//! a stand-in without elements takes its place, and each call looks up its own. Where there is none, that is taken for
//! granted. A gradient that is put aside first matters to nobody. In a deferred recording gradients are real.
//!
//! A function that was called first and is traced afterwards has changed gradients by then, so the call is watched: the
//! trace begins with what each leaf had before.

use crate::dispatch::key::local::is_tracing;
use crate::error::{NotCaptured, Reason, Result};
use crate::ir::NodeId;
use crate::tensor::handle::Tensor;
use crate::tensor::observer::Access;
use crate::transforms::tracer::condition::{Condition, GradientType, Outside, Property};
use crate::transforms::tracer::known_gradients::{GradientsBefore, WATCHED, before};
use crate::transforms::tracer::outside::{give_up, has};
use crate::transforms::tracer::recording::{LeafGradient, Recording};
use crate::transforms::tracer::session::with_recording;
use crate::transforms::tracer::trace::{GradientChange, Lifted, NewGradient};
use std::borrow::Cow;

/// Called before the gradient of a tensor is touched; which tensor has it.
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

/// Called before the hooks of a leaf run: a trace holds what they do.
pub(crate) fn on_hooks(leaf: &Tensor) {
    if !is_tracing() {
        return;
    }
    with_recording(|recording| {
        if let (false, Some(of)) = (recording.is_deferred(), recording.outside(leaf)) {
            let hooks = recording.original(&of).hooks();
            recording.grant(Condition::Hooks(of, hooks));
        }
    });
}

/// Called before a hook is registered; whether it is not to be: the trace of a function that registers one on a tensor from
/// outside is not used.
pub(crate) fn refuses_hook(tensor: &Tensor) -> bool {
    is_tracing()
        && with_recording(|recording| {
            let Some(of) = recording.outside(tensor) else { return false };
            recording.give_up(NotCaptured::HookRegistered { tensor: of.to_string().into() });
            !recording.is_deferred()
        }) == Some(true)
}

/// What became of a gradient that is about to be touched.
enum Touched {
    /// The tensor at hand has what the trace knows.
    Traced,
    /// It is the gradient of this tensor, or of the one at hand, outside the trace.
    Real(Option<Tensor>),
}

impl Recording {
    fn on_gradient(&mut self, leaf: &Tensor, access: Access) -> Touched {
        if self.is_deferred() {
            let original = self.given(leaf).map(|index| self.given[index].original.clone());
            let owner = original.as_ref().unwrap_or(leaf);
            if !self.gradients.iter().any(|known| known.leaf.id() == owner.id()) {
                let (leaf, kept) = (owner.clone(), owner.gradient());
                self.gradients.push(LeafGradient { leaf, of: None, kept, stand_in: None, is_replaced: false });
            }
            return Touched::Real(original);
        }
        let is_replaced = access == Access::Replace;
        if let Some(known) = self.gradients.iter_mut().find(|known| known.leaf.id() == leaf.id()) {
            known.is_replaced |= is_replaced;
            return Touched::Traced;
        }
        // The gradient of a value of the function is a value of the function.
        let Some(of) = self.outside(leaf) else { return Touched::Traced };
        let kept = leaf.gradient();
        let mut stand_in = None;
        if !is_replaced {
            let original = self.original(&of).clone();
            match self.before.0.remove(&original.id()).unwrap_or_else(|| before(&original)) {
                None => self.grant(Condition::NoGradient(of.clone())),
                Some(Ok(ty)) => stand_in = self.lift_gradient(&of, ty),
                Some(Err(why)) => self.give_up(why),
            }
        }
        leaf.put_gradient(stand_in.as_ref());
        let stand_in = stand_in.map(|stand_in| stand_in.id());
        self.gradients.push(LeafGradient { leaf: leaf.clone(), of: Some(of), kept, stand_in, is_replaced });
        Touched::Traced
    }

    /// What stands for the gradient that a leaf has before the call.
    fn lift_gradient(&mut self, of: &Outside, ty: GradientType) -> Option<Tensor> {
        match ty.stand_in() {
            Ok(stand_in) => {
                self.lifted.push(Lifted::Gradient(of.clone(), ty));
                self.add_input(&stand_in);
                Some(stand_in)
            }
            Err(error) => {
                self.give_up(Reason::of_error(error));
                None
            }
        }
    }

    /// What becomes of gradients at the end of each call; values that are no outputs yet are added to `nodes`.
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
                let is_kept = !known.is_replaced && value.as_ref().map(Tensor::id) == known.stand_in;
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
                    let is_value = |tensor: &Tensor| tensor.id() == value.id();
                    // A tensor that others have is left in the leaf as it is.
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
            changes.push(GradientChange { of, to });
        }
        Ok(changes)
    }
}
