//! Runs that count the bytes they move.
//!
//! Every kernel runs in the reference interpreter, which reports each element that it reads or writes. A byte that a
//! kernel accesses several times counts once. For products and routines, the elements of their operands count. Inputs
//! are copied first, so the run has no side effects. It is slow, and the results have the bits of [`Executable::run`].
//! Arrays on a GPU are copied to the host, counted there with the kernels of the plan, and copied back.

use super::action::{Action, Slots};
use super::array::Array;
use super::blocks::{BlockRun, BlockStep, ValueLocation};
use super::executable::Executable;
use super::footprint::Marks;
use super::launch::{Launch, Slot};
use super::product::product;
use super::traffic::Traffic;
use crate::codegen::interp::{self, Watch};
use crate::codegen::{Faults, Kernel, parallel};
use crate::device::{Device, Shared, Storage};
use crate::error::Result;
use crate::ir::attrs::{Along, Attributes};
use crate::ir::routine::Write;
use crate::ir::{Attr, DType, Layout, Meaning, Op, Routine, TensorType};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::BTreeMap;

impl Executable {
    /// Like [`Executable::run`], and returns what each kernel moved.
    ///
    /// # Errors
    /// As for [`Executable::run`].
    pub fn run_counted(&self, inputs: &[&Array]) -> Result<(SmallVec<[Array; 2]>, Vec<Traffic>)> {
        match &self.on_device {
            Some(on_device) => on_device.check(&self.schedule, inputs)?,
            None => self.check(inputs)?,
        }
        let mut copies: Vec<Array> = Vec::with_capacity(inputs.len());
        for (index, &input) in inputs.iter().enumerate() {
            // Inputs that share memory still do.
            let shared = inputs[..index].iter().position(|other| Shared::ptr_eq(&other.storage, &input.storage));
            let storage = match shared {
                Some(index) => copies[index].storage.clone(),
                None => Shared::new(input.storage.copy_to(Device::CPU)?),
            };
            copies.push(Array { storage, ..input.clone() });
        }
        let given: Vec<&Array> = copies.iter().collect();
        let mut slots = self.schedule.slots(&given);
        let mut all = Vec::new();
        // What a kernel gets from its prologue stays in a cache. No other action has that memory before the kernel is
        // done.
        let mut from_prologue: Vec<(usize, usize)> = Vec::new();
        for (action, &kernel) in self.schedule.actions.iter().zip(&self.schedule.kernels) {
            let mut touched = Touched::default();
            match action {
                Action::Scratch(slot, _) => {
                    action.run(&mut slots)?;
                    from_prologue.push((kernel, memory(slots[*slot].array())));
                    continue;
                }
                Action::Allocate(..) | Action::Alias { .. } | Action::Release(_) => {
                    action.run(&mut slots)?;
                    continue;
                }
                Action::Launch(launch) => touched.launch(launch, &slots)?,
                Action::Product { left, right, to, .. } => {
                    action.run(&mut slots)?;
                    touched.product(slots[*left].array(), slots[*right].array(), slots[*to].array());
                }
                Action::Routine { op, attrs, args, to, .. } => {
                    action.run(&mut slots)?;
                    let in_place = args[0] == *to;
                    let args: SmallVec<[&Array; 3]> = args.iter().map(|&arg| slots[arg].array()).collect();
                    if let (true, Meaning::Routine(Routine::Scatter(write))) = (in_place, &op.row().meaning) {
                        touched.writes_by_index(*write, attrs, [args[0], args[1], args[2]]);
                    } else {
                        touched.routine(*op, &args, slots[*to].array());
                    }
                }
                Action::Blocks(blocks) => touched.blocks(blocks, &slots)?,
            }
            let is_moved = |memory: &usize| !from_prologue.contains(&(kernel, *memory));
            let count = |side: &BTreeMap<usize, Marks>| {
                side.iter().filter(|(memory, _)| is_moved(memory)).map(|(_, marks)| marks.count()).sum()
            };
            Traffic { kernel, read: count(&touched.read), written: count(&touched.written) }.add(&mut all);
        }
        let mut results = self.schedule.results(&mut slots);
        // The storages of results on the host, with their copies on the device.
        let mut there: Vec<[Shared<Storage>; 2]> = Vec::new();
        for result in &mut results {
            // An output that is an input is returned as the caller's.
            let given = copies.iter().position(|copy| Shared::ptr_eq(&copy.storage, &result.storage));
            // What was written in place was written to the copy.
            if let Some(index) = given.filter(|index| !self.schedule.rewritten.contains(index)) {
                result.storage = inputs[index].storage.clone();
                continue;
            }
            let Some(device) = self.device() else { continue };
            let existing = there.iter().find(|[here, _]| Shared::ptr_eq(here, &result.storage));
            let moved = match existing {
                Some([_, there]) => there.clone(),
                None => Shared::new(result.storage.copy_to(device)?),
            };
            there.push([std::mem::replace(&mut result.storage, moved.clone()), moved]);
        }
        Ok((results, all))
    }
}

/// The bytes that a kernel accessed, by memory.
#[derive(Default)]
struct Touched {
    read: BTreeMap<usize, Marks>,
    written: BTreeMap<usize, Marks>,
}

/// Identifies the memory of an array, by its address.
fn memory(array: &Array) -> usize {
    array.storage.ptr() as usize
}

/// The offset of an array's first byte in its memory.
fn first(array: &Array) -> usize {
    array.layout().offset * array.dtype().size()
}

/// Overwrites the memory of an array of this run.
fn put(array: &Array, bytes: &[u8]) -> Result<()> {
    array.storage.write(|to| to[..bytes.len()].copy_from_slice(bytes))
}

fn marks<'a>(side: &'a mut BTreeMap<usize, Marks>, array: &Array) -> &'a mut Marks {
    side.entry(memory(array)).or_insert_with(|| Marks::new(0, array.storage.len()))
}

/// Marks elements of `sizes` with the strides of an array.
fn mark(side: &mut BTreeMap<usize, Marks>, array: &Array, sizes: &[usize]) {
    let (layout, size) = (array.layout(), array.dtype().size());
    let marks = marks(side, array);
    for mut index in 0..sizes.iter().product() {
        let mut at = layout.offset;
        for (dim, &count) in sizes.iter().enumerate().rev() {
            at += index % count * layout.strides.get(dim).copied().unwrap_or(0);
            index /= count;
        }
        marks.mark(at * size, size);
    }
}

impl Touched {
    fn product(&mut self, left: &Array, right: &Array, to: &Array) {
        if to.layout().numel() > 0 {
            mark(&mut self.read, left, &left.layout().sizes);
            mark(&mut self.read, right, &right.layout().sizes);
            mark(&mut self.written, to, &to.layout().sizes);
        }
    }

    fn routine(&mut self, op: Op, args: &[&Array], to: &Array) {
        let scatters = matches!(op.row().meaning, Meaning::Routine(Routine::Scatter(_)));
        for (position, arg) in args.iter().enumerate() {
            // Only as much of a source as the index has elements.
            let of = if scatters && position == 2 { args[1] } else { arg };
            mark(&mut self.read, arg, &of.layout().sizes);
        }
        mark(&mut self.written, to, &to.layout().sizes);
    }

    /// Elements at the indices are written, and read if something is added to them.
    fn writes_by_index(&mut self, write: Write, attrs: &[Attr], [to, index, source]: [&Array; 3]) {
        mark(&mut self.read, index, &index.layout().sizes);
        mark(&mut self.read, source, &index.layout().sizes);
        let (layout, size) = (to.layout(), to.dtype().size());
        let dim = Along::read(attrs).dim.rem_euclid(layout.rank().max(1) as i64) as usize;
        let narrow = index.dtype() == DType::I32;
        let value = |at: usize| {
            index.storage.read(|bytes| match narrow {
                true => i64::from(bytemuck::pod_read_unaligned::<i32>(&bytes[at * 4..][..4])),
                false => bytemuck::pod_read_unaligned::<i64>(&bytes[at * 8..][..8]),
            })
        };
        let sizes = &index.layout().sizes;
        for number in 0..sizes.iter().product() {
            let (mut rest, mut from, mut at) = (number, index.layout().offset, layout.offset);
            for (along, &count) in sizes.iter().enumerate().rev() {
                from += rest % count * index.layout().strides[along];
                at += if along == dim { 0 } else { rest % count * layout.strides.get(along).copied().unwrap_or(0) };
                rest /= count;
            }
            at += value(from) as usize * layout.strides.get(dim).copied().unwrap_or(0);
            marks(&mut self.written, to).mark(at * size, size);
            if write != Write::Overwrite {
                marks(&mut self.read, to).mark(at * size, size);
            }
        }
    }

    fn launch(&mut self, launch: &Launch, slots: &Slots<'_>) -> Result<()> {
        let array = |slot: Slot| slots[slot].array().clone();
        let operands: Vec<Option<Array>> = launch.operands.iter().map(|slot| slot.map(array)).collect();
        let outputs: Vec<Array> = launch.outputs.iter().map(|&slot| array(slot)).collect();
        self.interpret(launch, &operands, &outputs)
    }

    /// Runs a kernel in the interpreter.
    fn interpret(&mut self, launch: &Launch, operands: &[Option<Array>], outputs: &[Array]) -> Result<()> {
        if launch.is_idle {
            return Ok(());
        }
        let (kernel, geometry) = (&launch.lowered.kernel, &launch.lowered.geometry);
        let bytes = |array: &Array| array.storage.read(<[u8]>::to_vec);
        let read: Vec<Vec<u8>> = operands.iter().map(|array| array.as_ref().map_or_else(Vec::new, bytes)).collect();
        // A value may be written part by part.
        let mut written: Vec<Vec<u8>> = outputs.iter().map(bytes).collect();
        let shares = |(at, array): (usize, &Array)| {
            outputs[..at].iter().any(|other| Shared::ptr_eq(other.storage(), array.storage()))
        };
        let before = if outputs.iter().enumerate().any(shares) { written.clone() } else { Vec::new() };
        // A view without elements may begin past its memory.
        let start = |array: &Option<Array>| array.as_ref().map_or(0, first);
        let starts = operands.iter().zip(&read).map(|(array, bytes)| bytes.get(start(array)..).unwrap_or_default());
        let starts: Vec<&[u8]> = starts.collect();
        let mut ends: Vec<&mut [u8]> =
            outputs.iter().zip(&mut written).map(|(array, bytes)| &mut bytes[first(array)..]).collect();
        let faults = Faults::new();
        let watcher = Watcher { touched: RefCell::new(self), kernel, operands, outputs };
        interp::run_watched(kernel, geometry, &starts, &mut ends, &faults, &watcher);
        parallel::outcome(&faults, geometry).map_err(|error| launch.blamed(error))?;
        for (at, (array, bytes)) in outputs.iter().zip(&mut written).enumerate() {
            if let Some(before) = before.get(at) {
                // An output for each part of a concatenation: the others stay as they are.
                let now = array.storage.read(<[u8]>::to_vec);
                let left = bytes.iter_mut().zip(before).zip(now).filter(|((byte, before), _)| *byte == *before);
                left.for_each(|((byte, _), now)| *byte = now);
            }
            put(array, bytes)?;
        }
        Ok(())
    }

    /// Runs a group in blocks as one block, whose inner values are arrays of their own.
    fn blocks(&mut self, run: &BlockRun, slots: &Slots<'_>) -> Result<()> {
        let mut scratch = Vec::new();
        for &bytes in &run.inner {
            let bytes = bytes * run.batches * run.rows;
            let storage = Shared::new(Storage::zeroed(Device::CPU, bytes)?);
            scratch.push(Array::from_storage(storage, DType::U8, Layout::contiguous(&[bytes]))?);
        }
        let array = |place: &ValueLocation| match place {
            ValueLocation::Memory(slot) => slots[*slot].array().clone(),
            ValueLocation::Scratch(inner) => scratch[*inner].clone(),
        };
        for work in &run.steps {
            match work {
                BlockStep::Product { left, is_view, right, to, k, n, dtype } => {
                    let is_own = *is_view || matches!(left, ValueLocation::Scratch(_));
                    let (left, right, to) = (array(left), slots[*right].array(), array(to));
                    let matrices = |columns: usize| {
                        let sizes = [run.batches, run.rows, columns];
                        TensorType::contiguous(*dtype, &sizes[3 - right.layout().rank()..])
                    };
                    // A value of the group is dense, and need not have the shape of a matrix.
                    let dense = Layout::contiguous(&matrices(*k).sizes);
                    let left = if is_own { Array { dtype: *dtype, layout: dense.into(), ..left } } else { left };
                    let result = product(&left, right, &matrices(*n))?;
                    self.product(&left, right, &to);
                    result.storage.read(|bytes| put(&to, bytes))?;
                }
                BlockStep::Kernel { launch, operands, outputs } => {
                    let operands: Vec<Option<Array>> = operands.iter().map(|place| place.as_ref().map(array)).collect();
                    let outputs: Vec<Array> = outputs.iter().map(array).collect();
                    self.interpret(launch, &operands, &outputs)?;
                }
            }
        }
        // What the group wrote is cached when it is read, and its inner values never leave the cache.
        self.read.retain(|memory, _| !self.written.contains_key(memory));
        let inner: Vec<usize> = scratch.iter().map(memory).collect();
        self.written.retain(|memory, _| !inner.contains(memory));
        Ok(())
    }
}

/// Marks what the interpreter accesses.
struct Watcher<'a> {
    touched: RefCell<&'a mut Touched>,
    kernel: &'a Kernel,
    operands: &'a [Option<Array>],
    outputs: &'a [Array],
}

impl Watch for Watcher<'_> {
    fn read(&self, slot: usize, at: usize) {
        if let Some(array) = &self.operands[slot] {
            let size = self.kernel.operands[slot].dtype.size();
            marks(&mut self.touched.borrow_mut().read, array).mark(first(array) + at, size);
        }
    }

    fn written(&self, slot: usize, at: usize) {
        let (array, size) = (&self.outputs[slot], self.kernel.outputs[slot].dtype.size());
        marks(&mut self.touched.borrow_mut().written, array).mark(first(array) + at, size);
    }
}
