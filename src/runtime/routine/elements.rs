#![allow(unsafe_code, reason = "a routine reads and writes memory that tensors share")]
//! The operands of a routine as slices.
//!
//! Whoever makes [`Operands`] vouches for the memory, once; from then on the borrow checker does. A slice starts at
//! the first element of an array and ends at the last that its strides reach, so walks start at 0.

use crate::device::{Access, DeviceKind, Shared};
use crate::error::Result;
use crate::runtime::array::Array;
use bytemuck::AnyBitPattern;
use std::marker::PhantomData;

/// What a routine reads.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    arrays: &'a [&'a Array],
    /// Whether the first one is the output.
    in_place: bool,
}

/// What a routine writes.
pub(super) struct Output<'a> {
    array: &'a Array,
    memory: PhantomData<&'a mut [u8]>,
}

/// The operands of one run of a routine.
pub(crate) struct Operands<'a> {
    pub(super) inputs: Inputs<'a>,
    pub(super) output: Output<'a>,
}

impl<'a> Operands<'a> {
    /// The operands of a run.
    ///
    /// # Safety
    /// While the value lives nobody writes to the memory of the inputs, and nobody else uses that of the output, which
    /// is not that of an input, unless it is the very array of the first, of a write by index. All have bytes.
    pub(crate) unsafe fn new(inputs: &'a [&'a Array], output: &'a Array) -> Operands<'a> {
        let in_place = inputs.first().is_some_and(|first| std::ptr::eq(*first, output));
        Operands { inputs: Inputs { arrays: inputs, in_place }, output: Output { array: output, memory: PhantomData } }
    }
}

impl Operands<'_> {
    /// Whether the first input is where the output is: its elements are those of the output then, and are not to be asked
    /// for.
    pub(super) fn is_in_place(&self) -> bool {
        self.inputs.in_place
    }
}

/// Runs a write by index on operands the first of which is written, in its own layout; the others have other memory.
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
    // SAFETY: the locks are held: others do not write to what is read, and do not use what is written, which is no memory
    // of the other inputs, as was checked; all lie on the host.
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
        // SAFETY: `reach` elements from the first on are inside the array's storage, which the array keeps alive and
        // which nobody writes to, see `Operands::new`; the one that is written was refused above.
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
        // SAFETY: as for inputs, and nobody else uses the memory, see `Operands::new`; the value itself is borrowed
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

/// One past the last element that the layout reaches, counted from its first.
fn reach(array: &Array) -> usize {
    let layout = array.layout();
    layout.extent().saturating_sub(layout.offset)
}

/// A truth value of a tensor. Whatever is not 0 is true.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(super) struct Truth(u8);

// SAFETY: every byte is one.
unsafe impl bytemuck::Zeroable for Truth {}
// SAFETY: as above; it is a byte and nothing else.
unsafe impl AnyBitPattern for Truth {}

impl Truth {
    /// The value as an element.
    pub(super) const fn new(value: bool) -> Truth {
        Truth(value as u8)
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
