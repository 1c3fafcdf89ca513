//! One action of an executable, and how the CPU runs it.
//!
//! Values are in slots. Actions are ordered by their data dependences, so a slot is filled before it is read.

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

/// One action.
pub(super) enum Action {
    /// Allocates memory for a value.
    Allocate(Slot, TensorType),
    /// The same for a value that a kernel gets from its prologue. It stays in a cache, so it counts as no traffic.
    Scratch(Slot, TensorType),
    Launch(Arc<Launch>),
    /// Makes a view of memory.
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
    /// Runs a routine. If its first argument is also the result, it works in place.
    Routine {
        op: Op,
        attrs: Attrs,
        args: SmallVec<[Slot; 3]>,
        to: Slot,
        /// Whether the result has the memory of an input, which a failed run must not change.
        is_kept: bool,
    },
    /// Computes products and kernels, some rows at a time.
    Blocks(Box<BlockRun>),
    /// Drops a value after its last use.
    Release(Slot),
}

impl Action {
    /// The kernels that it launches.
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

    /// Runs it on the CPU. The locks of the inputs are held, or nothing else has the inputs.
    #[inline]
    pub(super) fn run(&self, slots: &mut Slots<'_>) -> Result<()> {
        match self {
            // An output may be given by the caller.
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
            Action::Routine { op, attrs, args, to, is_kept } => {
                let inputs: SmallVec<[&Array; 3]> = args.iter().map(|&slot| slots[slot].array()).collect();
                #[allow(unsafe_code, reason = "a routine writes memory that others will share")]
                // SAFETY: inputs are not written while this runs, and nothing else has values of this run. The memory
                // of the result was allocated for this action and belongs to no operand, or is that of the first, which
                // is then the same array and has no other reader left.
                let operands = unsafe { Operands::new(&inputs, slots[*to].array()) };
                let operands = if *is_kept { operands } else { operands.with_discarded_output() };
                routine::run(*op, attrs, operands)?;
            }
            Action::Blocks(blocks) => {
                let slots = &*slots;
                #[allow(unsafe_code, reason = "blocks are written through raw pointers")]
                // SAFETY: inputs are not written while this runs, and what the group writes was allocated by this run
                // for it alone, or is locked for writing.
                unsafe {
                    blocks.run(&|slot| slots[slot].array())?;
                }
            }
            Action::Release(slot) => slots[*slot] = SlotValue::Empty,
        }
        Ok(())
    }
}

/// Runs a kernel on the arrays in its slots.
fn run(launch: &Launch, slots: &Slots<'_>) -> Result<()> {
    let array = |slot: Slot| slots[slot].array();
    let outputs: SmallVec<[*mut u8; 4]> = launch.outputs.iter().map(|&slot| array(slot).ptr()).collect();
    #[allow(unsafe_code, reason = "kernels work on raw pointers")]
    // SAFETY: operands are arrays of exactly the types the accesses were made from, inside storages that the slots keep
    // alive and the run has locked. Outputs were allocated by this run for this launch, so nothing else has them yet,
    // or are locked for writing.
    unsafe {
        launch.start(array, &outputs)
    }
}

/// The slots of a running executable.
pub(super) struct Slots<'a> {
    values: SmallVec<[SlotValue<'a>; 8]>,
}

impl Slots<'_> {
    /// Empty slots.
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

/// The content of a slot while an executable runs.
pub(super) enum SlotValue<'a> {
    /// Nothing yet, or not any more.
    Empty,
    /// An input, or memory for an output; the caller owns it.
    Given(&'a Array),
    /// A value of this run.
    Owned(Array),
    /// The operands of a product that is computed in its epilogue.
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
