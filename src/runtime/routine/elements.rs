#![allow(unsafe_code, reason = "a routine reads and writes memory that tensors share")]
//! The operands of a routine as slices.
//!
//! The maker of [`Operands`] vouches for the memory, once; then the borrow checker does. A slice starts at the first
//! element of an array and ends at the last that its strides reach, so offsets start at 0.

use crate::device::{Access, DeviceKind, Shared};
use crate::error::Result;
use crate::runtime::array::Array;
use bytemuck::AnyBitPattern;
use std::marker::PhantomData;

/// The inputs of a routine.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    arrays: &'a [&'a Array],
    /// Whether the first input is the output.
    in_place: bool,
}

/// The output of a routine.
pub(super) struct Output<'a> {
    array: &'a Array,
    memory: PhantomData<&'a mut [u8]>,
}

/// The operands of one run of a routine.
pub(crate) struct Operands<'a> {
    pub(super) inputs: Inputs<'a>,
    pub(super) output: Output<'a>,
    /// Whether a failure must leave the output as it was.
    is_kept: bool,
}

impl<'a> Operands<'a> {
    /// The operands of a run.
    ///
    /// # Safety
    /// While the value lives, nothing writes the memory of the inputs, and nothing else uses that of the output. The
    /// output's memory is that of no input, except for a write by index whose first input is the same array. All have
    /// bytes.
    pub(crate) unsafe fn new(inputs: &'a [&'a Array], output: &'a Array) -> Operands<'a> {
        let in_place = inputs.first().is_some_and(|first| std::ptr::eq(*first, output));
        let inputs = Inputs { arrays: inputs, in_place };
        Operands { inputs, output: Output { array: output, memory: PhantomData }, is_kept: in_place }
    }

    /// The same operands, where the output is discarded if the routine fails.
    pub(crate) fn with_discarded_output(self) -> Operands<'a> {
        Operands { is_kept: false, ..self }
    }
}

impl Operands<'_> {
    /// Whether the first input is the output. Its elements are those of the output then, and must not be read as an
    /// input.
    pub(super) fn is_in_place(&self) -> bool {
        self.inputs.in_place
    }

    /// Whether the output has elements that a failure must not change.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }
}

/// Runs a write by index on operands of which the first is written, in its own layout; the others have other memory.
///
/// # Errors
/// If a slice of it is borrowed, or those of `work`.
pub(super) fn write_by_index(inputs: [&Array; 3], work: impl FnOnce(Operands<'_>) -> Result<()>) -> Result<()> {
    let [target, others @ ..] = inputs;
    let is_apart = |array: &Array| !Shared::ptr_eq(array.storage(), target.storage());
    assert!(others.into_iter().all(is_apart), "a source that is written to has no value");
    let is_here = |array: &Array| array.device().kind == DeviceKind::Cpu;
    assert!(inputs.into_iter().all(is_here), "the host has the bytes of what it writes");
    let reads = others.iter().map(|array| &**array.storage());
    let _access = Access::to_write(reads, [&**target.storage()])?;
    // SAFETY: the locks are held: nothing else writes what is read or uses what is written. The written memory belongs
    // to no other input, which was checked, and all are on the host.
    work(unsafe { Operands::new(&inputs, target) })
}

impl<'a> Inputs<'a> {
    /// The array of an operand, for its type and layout.
    pub(super) fn array(self, index: usize) -> &'a Array {
        self.arrays[index]
    }

    /// How many operands there are.
    pub(super) fn len(self) -> usize {
        self.arrays.len()
    }

    /// The elements of an operand.
    pub(super) fn elements<T: AnyBitPattern>(self, index: usize) -> &'a [T] {
        let array = self.arrays[index];
        assert!(index > 0 || !self.in_place, "what is written in place is the output's");
        // SAFETY: `reach` elements from the first one are inside the array's storage. The array keeps it alive and
        // nothing writes to it, see `Operands::new`; the input that is written was rejected above.
        unsafe { std::slice::from_raw_parts(first::<T>(array), reach(array)) }
    }
}

impl Output<'_> {
    /// The array, for its type and layout.
    pub(super) fn array(&self) -> &Array {
        self.array
    }

    /// The elements.
    pub(super) fn elements<T: AnyBitPattern>(&mut self) -> &mut [T] {
        // SAFETY: as for inputs, and nothing else uses the memory, see `Operands::new`; the value itself is borrowed
        // for as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(first::<T>(self.array), reach(self.array)) }
    }
}

fn first<T: AnyBitPattern>(array: &Array) -> *mut T {
    assert_eq!(size_of::<T>(), array.dtype().size(), "elements are read as what they are");
    let first = array.ptr().cast::<T>();
    assert!(first.is_aligned(), "storages are aligned for every element");
    first
}

/// The end of the last element that the layout reaches, relative to its first.
fn reach(array: &Array) -> usize {
    let layout = array.layout();
    layout.extent().saturating_sub(layout.offset)
}

/// A bool of a tensor. Every byte except 0 is true.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(super) struct Truth(u8);

// SAFETY: every byte is valid.
unsafe impl bytemuck::Zeroable for Truth {}
// SAFETY: as above; it is one byte.
unsafe impl AnyBitPattern for Truth {}

impl Truth {
    /// The value as an element.
    pub(super) const fn new(value: bool) -> Truth {
        Truth(value as u8)
    }

    /// Whether the byte is what [`Truth::new`] makes.
    pub(super) const fn is_zero_or_one(self) -> bool {
        self.0 <= 1
    }

    /// The value.
    pub(super) const fn get(self) -> bool {
        self.0 != 0
    }
}

impl PartialEq for Truth {
    fn eq(&self, other: &Truth) -> bool {
        self.get() == other.get()
    }
}

impl PartialOrd for Truth {
    fn partial_cmp(&self, other: &Truth) -> Option<std::cmp::Ordering> {
        self.get().partial_cmp(&other.get())
    }
}
