//! One step of an executable, and how the CPU runs it.
//!
//! Values live in slots. Steps are ordered by their edges, so a slot is filled before it is read.

use super::array::Array;
use super::blocks::BlockRun;
use super::launch::{Launch, Slot};
use super::product::product;
use super::routine::{self, Operands};
use super::view::view;
use crate::device::Device;
use crate::error::Result;
use crate::ir::{Attrs, Op, TensorType};
use smallvec::{SmallVec, smallvec};
use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// One step.
pub(super) enum Action {
    /// Takes new memory for a value.
    Allocate(Slot, TensorType),
    /// The same for what a kernel's prologue hands to it, which is no traffic: it stays in a cache.
    Scratch(Slot, TensorType),
    Launch(Arc<Launch>),
    /// A view of memory.
    Alias {
        op: Op,
        attrs: Attrs,
        from: Slot,
        to: Slot,
    },
    Product {
        left: Slot,
        right: Slot,
        to: Slot,
        ty: TensorType,
    },
    /// One whose first argument is where it writes works in place.
    Routine {
        op: Op,
        attrs: Attrs,
        args: SmallVec<[Slot; 3]>,
        to: Slot,
    },
    /// Products and kernels, some rows at a time.
    Blocks(Box<BlockRun>),
    /// The value is not needed any more.
    Release(Slot),
}

impl Action {
    /// The kernels that it starts.
    pub(super) fn launches(&self) -> SmallVec<[&Launch; 1]> {
        match self {
            Action::Launch(launch) => smallvec![&**launch],
            Action::Blocks(blocks) => blocks.launches().collect(),
            Action::Allocate(..)
            | Action::Scratch(..)
            | Action::Alias { .. }
            | Action::Product { .. }
            | Action::Routine { .. }
            | Action::Release(_) => SmallVec::new(),
        }
    }

    /// Runs it on the CPU; the locks of the inputs are held, or nobody else knows them.
    #[inline]
    pub(super) fn run(&self, slots: &mut Slots<'_>) -> Result<()> {
        match self {
            // An output may have its place already.
            Action::Allocate(slot, _) if matches!(slots[*slot], SlotValue::Given(_)) => {}
            Action::Allocate(slot, ty) | Action::Scratch(slot, ty) => {
                slots[*slot] = SlotValue::Owned(Array::new(Device::CPU, ty)?)
            }
            Action::Launch(launch) => run(launch, slots)?,
            Action::Alias { op, attrs, from, to } => {
                slots[*to] = SlotValue::Owned(view(*op, attrs, slots[*from].array())?);
            }
            Action::Product { left, right, to, ty } => {
                slots[*to] = SlotValue::Owned(product(slots[*left].array(), slots[*right].array(), ty)?);
            }
            Action::Routine { op, attrs, args, to } => {
                let inputs: SmallVec<[&Array; 3]> = args.iter().map(|&slot| slots[slot].array()).collect();
                #[allow(unsafe_code, reason = "a routine writes memory that others will share")]
                // SAFETY: inputs are kept from being written while this runs, values of this run are known to
                // it alone, and the memory of the result was taken for this step and belongs to no operand, or is that
                // of the first, which is then the same array and has no other reader left.
                let operands = unsafe { Operands::new(&inputs, slots[*to].array()) };
                routine::run(*op, attrs, operands)?;
            }
            Action::Blocks(blocks) => {
                let slots = &*slots;
                #[allow(unsafe_code, reason = "blocks are written through raw pointers")]
                // SAFETY: inputs are kept from being written while this runs, and what the group writes was
                // allocated by this run for it alone, or is locked for writing.
                unsafe {
                    blocks.run(&|slot| slots[slot].array())?;
                }
            }
            Action::Release(slot) => slots[*slot] = SlotValue::Empty,
        }
        Ok(())
    }
}

/// Runs a kernel on what lies in its slots.
fn run(launch: &Launch, slots: &Slots<'_>) -> Result<()> {
    let array = |slot: Slot| slots[slot].array();
    let outputs: SmallVec<[*mut u8; 4]> = launch.outputs.iter().map(|&slot| array(slot).ptr()).collect();
    #[allow(unsafe_code, reason = "kernels work on raw pointers")]
    // SAFETY: operands are arrays of exactly the types the accesses were made from, inside storages that the
    // slots keep alive and the run has locked; outputs were allocated by this run for this launch and nobody else
    // knows them yet, or are locked for writing.
    unsafe {
        launch.start(array, &outputs)
    }
}

/// What lies in the slots of an executable while it runs.
pub(super) struct Slots<'a> {
    values: SmallVec<[SlotValue<'a>; 8]>,
}

impl Slots<'_> {
    /// Slots without values.
    pub(super) fn empty(n: usize) -> Self {
        Slots { values: (0..n).map(|_| SlotValue::Empty).collect() }
    }

    /// The number of slots.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

impl<'a> Index<Slot> for Slots<'a> {
    type Output = SlotValue<'a>;
    fn index(&self, slot: Slot) -> &SlotValue<'a> {
        &self.values[slot.index()]
    }
}

impl<'a> IndexMut<Slot> for Slots<'a> {
    fn index_mut(&mut self, slot: Slot) -> &mut SlotValue<'a> {
        &mut self.values[slot.index()]
    }
}

/// What a slot holds while an executable runs.
pub(super) enum SlotValue<'a> {
    /// Nothing yet, or nothing any more.
    Empty,
    /// An input, or memory for an output, which the caller keeps.
    Given(&'a Array),
    /// A value of this run.
    Owned(Array),
    /// The operands of a product that is computed where it is used.
    Factors(Box<[Array; 2]>),
}

impl SlotValue<'_> {
    pub(super) fn array(&self) -> &Array {
        match self {
            SlotValue::Given(array) => array,
            SlotValue::Owned(array) => array,
            SlotValue::Empty | SlotValue::Factors(_) => {
                unreachable!("steps are ordered by their edges, and released after the last use")
            }
        }
    }

    pub(super) fn into_array(self) -> Array {
        match self {
            SlotValue::Owned(array) => array,
            other @ (SlotValue::Given(_) | SlotValue::Empty | SlotValue::Factors(_)) => other.array().clone(),
        }
    }
}
