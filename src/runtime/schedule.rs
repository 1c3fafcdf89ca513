//! A planned graph as a list of actions: what runs in which order, and which slots hold inputs and outputs.
//!
//! It is data that the CPU and devices share. Its readers decide how and where an action runs.

use super::action::{Action, SlotValue, Slots};
use super::array::Array;
use super::launch::{Launch, Slot};
use crate::device::{Device, Shared};
use crate::error::{Error, Result};
use crate::ir::TensorType;
use smallvec::SmallVec;
use std::rc::Rc;

/// The actions of an executable.
pub(super) struct Schedule {
    pub(super) actions: Vec<Action>,
    /// Per action, the kernel of the plan that it belongs to. An action that only makes a view belongs to the next one.
    pub(super) kernels: Vec<usize>,
    pub(super) n_slots: usize,
    pub(super) inputs: Vec<Option<Slot>>,
    pub(super) input_types: Vec<TensorType>,
    /// The slots of the outputs, and whether no later output has the same slot.
    pub(super) outputs: Vec<(Slot, bool)>,
    /// The inputs that it writes to. Their new values are outputs.
    pub(super) rewritten: Vec<usize>,
}

impl Schedule {
    /// The number of kernels of the plan.
    pub(super) fn n_kernels(&self) -> usize {
        self.kernels.iter().max().map_or(0, |last| last + 1)
    }

    /// Every launch, in order.
    pub(super) fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.actions.iter().flat_map(Action::launches)
    }

    /// Every launch with the kernel of the plan that it belongs to, in order.
    pub(super) fn launches_by_kernel(&self) -> impl Iterator<Item = (usize, &Launch)> {
        let actions = self.actions.iter().zip(&self.kernels);
        actions.flat_map(|(action, &kernel)| action.launches().into_iter().map(move |launch| (kernel, launch)))
    }

    /// Whether it is one kernel that reads every element of an operand where it writes it, so that the output may be in
    /// the memory of an input.
    pub(super) fn works_in_place(&self) -> bool {
        if self
            .actions
            .iter()
            .any(|action| matches!(action, Action::Product { .. } | Action::Routine { .. } | Action::Blocks(_)))
        {
            return false;
        }
        let mut launches = self.launches();
        match (launches.next(), launches.next()) {
            // Several outputs may be columns of a result whose rows were folds.
            (Some(launch), None) => {
                launch.gathers.is_none() && launch.outputs.len() == 1 && !launch.lowered.kernel.has_folds()
            }
            _ => false,
        }
    }

    /// The slots at the start of a run, with its inputs.
    pub(super) fn slots<'a>(&self, inputs: &[&'a Array]) -> Slots<'a> {
        let mut slots = Slots::empty(self.n_slots);
        for (slot, &input) in self.inputs.iter().zip(inputs) {
            if let Some(slot) = *slot {
                slots[slot] = SlotValue::Given(input);
            }
        }
        slots
    }

    /// The outputs, taken from their slots.
    pub(super) fn results(&self, slots: &mut Slots<'_>) -> SmallVec<[Array; 2]> {
        let take = |&(slot, is_last): &(Slot, bool)| match is_last {
            true => std::mem::replace(&mut slots[slot], SlotValue::Empty).into_array(),
            false => slots[slot].array().clone(),
        };
        self.outputs.iter().map(take).collect()
    }

    /// The most bytes that values of a run take at a time: outputs count, inputs do not. Scratch memory of a step for
    /// itself is not known here.
    pub(super) fn peak_bytes(&self) -> usize {
        // The memory in each slot, with the number of slots that hold it.
        let mut held: Vec<Option<Rc<usize>>> = vec![None; self.n_slots];
        let (mut live, mut peak) = (0, 0);
        for action in &self.actions {
            match action {
                Action::Allocate(slot, ty) | Action::Scratch(slot, ty) | Action::Product { to: slot, ty, .. } => {
                    held[slot.index()] = Some(Rc::new(ty.bytes()));
                    live += ty.bytes();
                    peak = peak.max(live);
                }
                Action::Alias { from, to, .. } => held[to.index()] = held[from.index()].clone(),
                Action::Release(slot) => {
                    live -= held[slot.index()].take().and_then(Rc::into_inner).unwrap_or(0);
                }
                Action::Launch(_) | Action::Routine { .. } | Action::Blocks(_) => {}
            }
        }
        peak
    }

    /// The inputs, with copies of those that it writes to.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(super) fn with_copies(&self, inputs: &[&Array]) -> Result<SmallVec<[Array; 4]>> {
        let mut apart: SmallVec<[Array; 4]> = inputs.iter().map(|&input| input.clone()).collect();
        for &input in &self.rewritten {
            apart[input].storage = Shared::new(inputs[input].storage.copy_to(Device::CPU)?);
        }
        Ok(apart)
    }

    /// The error of a run on `device` with inputs of other types.
    #[cold]
    pub(super) fn other_types(&self, device: Device, inputs: &[&Array]) -> Error {
        let expected: Vec<String> = self.input_types.iter().map(TensorType::to_string).collect();
        let found: Vec<String> = inputs.iter().map(|array| array.ty().to_string()).collect();
        let what =
            format!("inputs on {device} of types ({}) are needed, not ({})", expected.join(", "), found.join(", "));
        Error::argument("executable", what)
    }
}
