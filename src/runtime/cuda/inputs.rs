//! Inputs on the host: numbers, and keys of random draws.
//!
//! A single element is passed in the argument buffers of the kernels that read it, and a key in that of the random
//! routine. What only the host reads stays there. Everything else is copied to the device before each run.

use super::device_action::DeviceAction;
use crate::ir::{Layout, Meaning, Routine, SideTable};
use crate::runtime::Array;
use crate::runtime::action::Action;
use crate::runtime::launch::Slot;
use crate::runtime::schedule::Schedule;
use smallvec::SmallVec;

/// The number of elements in memory from the first to the last one of a layout.
pub(super) fn n_places(layout: &Layout) -> usize {
    layout.extent().saturating_sub(layout.offset)
}

/// What the device needs of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// Nothing.
    Nothing,
    /// The two elements of a key.
    Key,
    /// Its only element, which kernels read.
    Element,
    /// Its memory.
    Memory,
}

impl Need {
    /// What an executable with these device actions needs of each input.
    pub(super) fn of_inputs(schedule: &Schedule, device_actions: &[DeviceAction]) -> SmallVec<[Need; 4]> {
        let mut needs: SmallVec<[Need; 4]> = schedule.inputs.iter().map(|_| Need::Nothing).collect();
        // By slot, the input whose memory it has.
        let mut shows: SideTable<Slot, Option<usize>> = SideTable::with_len(schedule.n_slots, || None);
        for (input, slot) in schedule.inputs.iter().enumerate() {
            if let Some(slot) = *slot {
                shows[slot] = Some(input);
            }
        }
        let mut raise = |input: Option<usize>, need: Need| {
            if let Some(input) = input {
                needs[input] = needs[input].max(need);
            }
        };
        for (action, device_action) in schedule.actions.iter().zip(device_actions) {
            match (action, device_action) {
                (Action::Launch(launch), DeviceAction::Launch(_) | DeviceAction::Epilogue(_)) => {
                    launch.operands.iter().flatten().for_each(|&slot| raise(shows[slot], Need::Element));
                }
                (Action::Launch(launch), DeviceAction::LibraryEpilogue(epilogue)) => {
                    let bias = epilogue.bias.and_then(|bias| launch.operands[bias]);
                    bias.into_iter().for_each(|slot| raise(shows[slot], Need::Memory));
                }
                (Action::Product { left, right, to, .. }, device_action) => {
                    if let DeviceAction::Product(_) | DeviceAction::Deferred(_) = device_action {
                        [*left, *right].into_iter().for_each(|slot| raise(shows[slot], Need::Memory));
                    }
                    shows[*to] = None;
                }
                (Action::Alias { from, to, .. }, _) => shows[*to] = shows[*from],
                (Action::Allocate(slot, _) | Action::Scratch(slot, _) | Action::Release(slot), _) => {
                    shows[*slot] = None
                }
                (Action::Routine { op, args, .. }, DeviceAction::Routine(_)) => {
                    let is_key = matches!(op.row().meaning, Meaning::Routine(Routine::Bits));
                    let need = if is_key { Need::Key } else { Need::Memory };
                    args.iter().for_each(|&slot| raise(shows[slot], need));
                }
                (Action::Launch(_) | Action::Routine { .. } | Action::Blocks(_), _) => {}
            }
        }
        schedule.outputs.iter().for_each(|&(slot, _): &(Slot, bool)| raise(shows[slot], Need::Memory));
        needs
    }

    /// Whether an array on the host must be copied for this.
    pub(super) fn copies(self, array: &Array) -> bool {
        match self {
            Need::Nothing => false,
            Need::Key => array.layout().sizes[..] != [2],
            Need::Element => n_places(array.layout()) != 1,
            Need::Memory => true,
        }
    }
}
