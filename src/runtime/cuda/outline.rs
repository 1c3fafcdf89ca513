//! What a run of an executable does on a device, known before it runs: its launches, and the memory of each value.
//!
//! Values are followed through views from the action that makes them. Memory of the run is known from its first to its
//! last use. A result has memory of its own, because it outlives the run. Nothing here knows an address.
//!
//! A run has no outline if the host takes part in it: with actions that it computes, or with views that check the size
//! of memory.

use super::device_action::DeviceAction;
use super::epilogue::DeviceEpilogue;
use super::launch::DeviceLaunch;
use super::library::LibraryEpilogue;
use super::product::DeviceProduct;
use super::routine::DeviceRoutine;
use crate::codegen::lower::Lowered;
use crate::error::{NoReplay, Reason};
use crate::ir::{DType, Layout, Meaning, SideTable, TensorType};
use crate::runtime::action::Action;
use crate::runtime::launch::Slot;
use crate::runtime::schedule::Schedule;
use crate::runtime::view::view_layout;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// The memory that a value is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    /// That of an input.
    Input(usize),
    /// Memory of the run, by its number.
    Own(usize),
}

/// A value in memory.
#[derive(Debug, Clone)]
pub(super) struct LocatedValue {
    pub(super) location: Location,
    pub(super) dtype: DType,
    /// In elements from the first element of an input, or from the first byte of other memory.
    pub(super) layout: Layout,
}

impl LocatedValue {
    /// Bytes from the start of its location to its first element.
    pub(super) fn distance(&self) -> usize {
        self.layout.offset * self.dtype.size()
    }
}

/// Memory that a run allocates.
#[derive(Debug, Clone)]
pub(super) struct Allocation {
    pub(super) bytes: usize,
    /// The first and the last action that use it.
    pub(super) used: [usize; 2],
    /// Whether it holds a result.
    pub(super) is_kept: bool,
}

/// A kernel, a product or a routine that is started.
pub(super) struct Start {
    /// The number of its action.
    pub(super) action: usize,
    /// An operand that is not in memory is `None`.
    pub(super) operands: SmallVec<[Option<LocatedValue>; 6]>,
    pub(super) outputs: SmallVec<[LocatedValue; 2]>,
}

/// The work of an action, and how the device runs it.
pub(super) enum DeviceWork<'a> {
    Kernel(&'a DeviceLaunch, &'a Lowered),
    Product(&'a DeviceProduct, &'a TensorType),
    /// Operands are those of the kernel, then the two of its product.
    Epilogue(&'a DeviceEpilogue),
    /// Operands are the two of the product, then the bias if there is one.
    LibraryEpilogue(&'a LibraryEpilogue),
    Routine(&'a DeviceRoutine),
}

/// The outline of a run.
pub(super) struct Outline {
    pub(super) starts: Vec<Start>,
    pub(super) memories: Vec<Allocation>,
    pub(super) outputs: Vec<LocatedValue>,
}

impl Outline {
    /// The outline of a run of these actions.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(super) fn new(schedule: &Schedule, device_actions: &[DeviceAction]) -> Result<Outline, Reason> {
        let mut walk = ScheduleWalk {
            slots: SideTable::with_len(schedule.n_slots, || None),
            factors: SideTable::with_len(schedule.n_slots, || None),
            outline: Outline { starts: Vec::new(), memories: Vec::new(), outputs: Vec::new() },
        };
        for (index, (slot, ty)) in schedule.inputs.iter().zip(&schedule.input_types).enumerate() {
            if let Some(slot) = *slot {
                walk.slots[slot] = Some(value(Location::Input(index), ty));
            }
        }
        for (index, (action, device_action)) in schedule.actions.iter().zip(device_actions).enumerate() {
            walk.step(index, action, device_action)?;
        }
        let ScheduleWalk { slots, mut outline, .. } = walk;
        outline.outputs = schedule.outputs.iter().map(|&(slot, _)| value_in(&slots, slot).clone()).collect();
        for output in &outline.outputs {
            if let Location::Own(number) = output.location {
                outline.memories[number].is_kept = true;
            }
        }
        Ok(outline)
    }

    /// Whether the only result may be written to a target.
    pub(super) fn has_place_for_target(&self) -> bool {
        matches!(&self.outputs[..], [LocatedValue { location: Location::Own(_), layout, .. }] if layout.offset == 0)
    }

    /// The work of a start.
    pub(super) fn work<'a>(
        schedule: &'a Schedule,
        device_actions: &'a [DeviceAction],
        start: &Start,
    ) -> DeviceWork<'a> {
        match (&schedule.actions[start.action], &device_actions[start.action]) {
            (Action::Launch(launch), DeviceAction::Launch(on_device)) => DeviceWork::Kernel(on_device, &launch.lowered),
            (Action::Product { ty, .. }, DeviceAction::Product(on_device)) => DeviceWork::Product(on_device, ty),
            (Action::Launch(_), DeviceAction::Epilogue(on_device)) => DeviceWork::Epilogue(on_device),
            (Action::Launch(_), DeviceAction::LibraryEpilogue(epilogue)) => DeviceWork::LibraryEpilogue(epilogue),
            (Action::Routine { .. }, DeviceAction::Routine(on_device)) => DeviceWork::Routine(on_device),
            _ => unreachable!("launches, products and routines start, each in its way"),
        }
    }
}

/// Follows the actions in order.
struct ScheduleWalk {
    slots: SideTable<Slot, Option<LocatedValue>>,
    /// By slot, the operands of a product that its epilogue computes.
    factors: SideTable<Slot, Option<[LocatedValue; 2]>>,
    outline: Outline,
}

impl ScheduleWalk {
    fn step(&mut self, index: usize, action: &Action, device_action: &DeviceAction) -> Result<(), Reason> {
        match (action, device_action) {
            (Action::Allocate(slot, ty) | Action::Scratch(slot, ty), _) => self.take(index, *slot, ty),
            (Action::Product { left, right, to, .. }, DeviceAction::Deferred(_)) => {
                self.factors[*to] = Some([*left, *right].map(|slot| value_in(&self.slots, slot).clone()));
            }
            (Action::Alias { from, to, .. }, DeviceAction::Forward) => self.factors[*to] = self.factors[*from].take(),
            (Action::Launch(launch), DeviceAction::Epilogue(on_device)) => {
                let product = launch.operands[on_device.slot()].expect("the product is a value");
                let factors = self.factors[product].take().expect("the product's action comes first");
                let value = |(operand, slot): (usize, &Option<Slot>)| {
                    let slot = slot.filter(|_| operand != on_device.slot());
                    slot.map(|slot| value_in(&self.slots, slot).clone())
                };
                let own = launch.operands.iter().enumerate().map(value);
                let operands = own.chain(factors.map(Some)).collect();
                let outputs = launch.outputs.iter().map(|&slot| value_in(&self.slots, slot).clone()).collect();
                self.start(Start { action: index, operands, outputs });
            }
            (Action::Launch(launch), DeviceAction::LibraryEpilogue(epilogue)) => {
                let slot = |operand: usize| launch.operands[operand].expect("what cublasLt reads is memory");
                let factors = self.factors[slot(epilogue.slot)].take().expect("the product's action comes first");
                let bias = epilogue.bias.map(|bias| value_in(&self.slots, slot(bias)).clone());
                let operands = factors.into_iter().chain(bias).map(Some).collect();
                let outputs = smallvec![value_in(&self.slots, launch.outputs[0]).clone()];
                self.start(Start { action: index, operands, outputs });
            }
            (Action::Alias { op, attrs, from, to }, _) => {
                if matches!(op.row().meaning, Meaning::Window(_)) {
                    return Err(NoReplay::ViewOfMemory { op: op.name() }.into());
                }
                let from = value_in(&self.slots, *from);
                let of = |error| NoReplay::ViewFailed { error: Arc::new(error) };
                let (layout, dtype) = view_layout(*op, attrs, &from.layout, from.dtype).map_err(of)?;
                self.slots[*to] = Some(LocatedValue { location: from.location, dtype, layout });
            }
            (Action::Release(slot), _) => self.slots[*slot] = None,
            (Action::Launch(launch), _) if launch.is_idle => {}
            (Action::Launch(launch), DeviceAction::Launch(_)) => {
                let operands = launch.operands.iter().map(|slot| slot.map(|slot| value_in(&self.slots, slot).clone()));
                let outputs = launch.outputs.iter().map(|&slot| value_in(&self.slots, slot).clone());
                let start = Start { action: index, operands: operands.collect(), outputs: outputs.collect() };
                self.start(start);
            }
            (Action::Product { left, right, to, ty }, DeviceAction::Product(_)) => {
                self.take(index, *to, ty);
                let [left, right, to] = [*left, *right, *to].map(|slot| value_in(&self.slots, slot).clone());
                self.start(Start {
                    action: index,
                    operands: smallvec![Some(left), Some(right)],
                    outputs: smallvec![to],
                });
            }
            (Action::Routine { args, to, .. }, DeviceAction::Routine(_)) => {
                let operands = args.iter().map(|&slot| Some(value_in(&self.slots, slot).clone())).collect();
                let outputs = smallvec![value_in(&self.slots, *to).clone()];
                self.start(Start { action: index, operands, outputs });
            }
            (_, DeviceAction::Host(_)) => return Err(NoReplay::HostStep.into()),
            (
                _,
                DeviceAction::Launch(_)
                | DeviceAction::Product(_)
                | DeviceAction::Deferred(_)
                | DeviceAction::Forward
                | DeviceAction::Epilogue(_)
                | DeviceAction::LibraryEpilogue(_)
                | DeviceAction::Routine(_)
                | DeviceAction::Nothing,
            ) => {
                unreachable!("every action has the way that was made for it")
            }
        }
        Ok(())
    }

    fn take(&mut self, index: usize, slot: Slot, ty: &TensorType) {
        let value = value(Location::Own(self.outline.memories.len()), ty);
        let bytes = value.layout.extent() * ty.dtype.size();
        self.outline.memories.push(Allocation { bytes, used: [index, index], is_kept: false });
        self.slots[slot] = Some(value);
    }

    fn start(&mut self, start: Start) {
        for value in start.operands.iter().flatten().chain(&start.outputs) {
            if let Location::Own(number) = value.location {
                self.outline.memories[number].used[1] = start.action;
            }
        }
        self.outline.starts.push(start);
    }
}

fn value_in(slots: &SideTable<Slot, Option<LocatedValue>>, slot: Slot) -> &LocatedValue {
    slots[slot].as_ref().expect("steps are ordered by their edges, and released after the last use")
}

/// A dense value of a type at the start of its location.
fn value(location: Location, ty: &TensorType) -> LocatedValue {
    let layout = Layout { sizes: ty.sizes.clone(), strides: ty.strides.clone(), offset: 0 };
    LocatedValue { location, dtype: ty.dtype, layout }
}

/// Arranges allocations in one piece of memory, given the size of each and the steps during which it is in use. Returns
/// their offsets, and the total size. Allocations in use at the same time do not overlap, and each is aligned to
/// [`ALIGNMENT`]. They are ordered by their first steps.
pub(super) fn arrange(pieces: &[(usize, [usize; 2])]) -> (Vec<usize>, usize) {
    let (mut places, mut whole) = (Vec::with_capacity(pieces.len()), 0);
    // Those in use, by offset.
    let mut taken: Vec<[usize; 3]> = Vec::new();
    for &(bytes, [first, last]) in pieces {
        taken.retain(|&[_, _, last]| last >= first);
        let size = bytes.next_multiple_of(ALIGNMENT);
        let mut at = 0;
        let gap = taken.iter().position(|&[start, end, _]| {
            let fits = at + size <= start;
            at = if fits { at } else { end };
            fits
        });
        taken.insert(gap.unwrap_or(taken.len()), [at, at + size, last]);
        places.push(at);
        whole = whole.max(at + size);
    }
    (places, whole)
}

/// The alignment of allocations.
const ALIGNMENT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_are_in_use_at_once_lie_apart() {
        type Case<'a> = (&'a str, &'a [(usize, [usize; 2])], &'a [usize], usize);
        let cases: &[Case<'_>] = &[
            ("none", &[], &[], 0),
            ("one after the other", &[(10, [0, 1]), (300, [2, 3]), (5, [4, 4])], &[0, 0, 0], 512),
            ("a step in common", &[(10, [0, 2]), (10, [2, 3])], &[0, 256], 512),
            (
                "a gap is filled",
                &[(256, [0, 9]), (512, [0, 1]), (1, [0, 9]), (200, [2, 3]), (256, [3, 4])],
                &[0, 256, 768, 256, 512],
                1024,
            ),
            ("a gap is too small", &[(256, [0, 1]), (1, [0, 9]), (300, [2, 3])], &[0, 256, 512], 1024),
            ("nothing", &[(0, [0, 9]), (1, [1, 2])], &[0, 0], 256),
        ];
        for (name, pieces, places, whole) in cases {
            assert_eq!(arrange(pieces), (places.to_vec(), *whole), "{name}");
        }
    }
}
