//! The form whose threads hold the elements of a row: how many warps share a row, and how many elements a thread holds.
//!
//! Values in memory that a later pass needs stay in registers, so every element is read once. They must fit the
//! registers of all threads that a multiprocessor needs in flight. A longer row is read again in each pass.

use super::variant::Form;
use super::writer::{self, is_ordered};
use crate::codegen::geometry::{Class, Geometry};
use crate::codegen::kernel::{FOLD_BLOCK, FOLD_LANES, Kernel, Source};
use crate::codegen::native::flat::{Flat, FlatNodeId};
use crate::codegen::native::passes::{Keep, Pass, Passes};

/// Most registers of a thread for held values. It has 128 at least, and needs some to compute in.
const MAX_REGISTERS: usize = 32;
/// Most warps of a thread block that computes a row.
const MAX_WARPS: usize = 16;
/// With fewer warps in a grid, a device has idle multiprocessors.
const FEW_WARPS: usize = 2048;
/// Most values of all elements of a thread, which bounds the time to compile. More warps share a row before there are
/// more.
const MAX_VALUES: usize = 512;
/// With fewer elements per thread, more threads do not help: they would wait for memory and for each other.
const MIN_HELD: usize = 4;

/// The passes of a kernel that holds rows.
pub(super) fn passes(kernel: &Kernel, flat: &Flat, once: impl Fn(usize) -> bool) -> Passes {
    let in_memory: Vec<bool> = kernel.operands.iter().map(|operand| operand.source == Source::Memory).collect();
    Passes::new(flat, once, Keep::Read(&in_memory))
}

/// The form that holds rows, if they are short enough.
pub(super) fn choose(kernel: &Kernel, geometry: &Geometry, classes: &[Class]) -> Option<Form> {
    let (rows, inner) = (geometry.n_rows(), geometry.n_inner());
    if inner > MAX_WARPS * FOLD_LANES * MAX_REGISTERS {
        return None;
    }
    let flat = Flat::new(kernel, classes);
    let passes = passes(kernel, &flat, |slot| classes[kernel.operands.len() + slot] == Class::Uniform);
    let most = |registers: usize| (MAX_REGISTERS / registers.max(1)).checked_ilog2().map(|power| 1usize << power);
    let of_lane = inner.div_ceil(FOLD_LANES).max(1);
    let registers = |sharing| registers(&flat, &passes, sharing);
    let (alone, shared) = (most(registers(Sharing::Alone))?, most(registers(Sharing::Several)));
    let values: usize = passes.passes.iter().map(|pass| pass.body.len()).sum();
    let quick = (1 << (MAX_VALUES / values.max(1)).max(1).ilog2()).max(MIN_HELD);
    let mut held = of_lane.next_power_of_two();
    let mut warps = 1;
    if held > alone.min(quick) {
        let most = shared?;
        held = most.min(quick);
        warps = of_lane.div_ceil(held).next_power_of_two();
        while warps > MAX_WARPS && held < most {
            (held, warps) = (held * 2, warps / 2);
        }
    }
    while warps < MAX_WARPS && rows * warps < FEW_WARPS && held > MIN_HELD {
        (held, warps) = (held / 2, warps * 2);
    }
    // A thread that has all its elements checks no bounds. In a row of several blocks, a warp's elements must not cross
    // blocks.
    let (full, rest) = (inner / (FOLD_LANES * warps), inner % (FOLD_LANES * warps));
    if rest == 0 && full > 0 && full.is_multiple_of(MIN_HELD) && inner <= FOLD_BLOCK {
        held = full;
    }
    (warps <= MAX_WARPS).then_some(Form::Held { held, warps })
}

/// Whether one warp or several compute a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Alone,
    Several,
}

/// The most registers per element that are held at once.
fn registers(flat: &Flat, passes: &Passes, sharing: Sharing) -> usize {
    let size = |id: FlatNodeId| writer::registers(flat.nodes[id].ty);
    let owner = |buffer: usize| passes.passes.iter().position(|pass| pass.keeps.iter().any(|keep| keep.1 == buffer));
    let last = |buffer: usize| passes.passes.iter().rposition(|pass| pass.kept.iter().any(|kept| kept.1 == buffer));
    let buffers: Vec<(FlatNodeId, Option<usize>, Option<usize>)> = passes
        .passes
        .iter()
        .flat_map(|pass| &pass.keeps)
        .map(|&(id, buffer)| (id, owner(buffer), last(buffer)))
        .collect();
    let held = |from: usize, to: usize| -> usize {
        let is_held = |&&(_, owner, last): &&(FlatNodeId, Option<usize>, Option<usize>)| {
            owner.is_some_and(|owner| owner < to) && last.is_some_and(|last| last > from)
        };
        buffers.iter().filter(is_held).map(|&(id, ..)| size(id)).sum()
    };
    let of_pass = |(number, pass): (usize, &Pass)| {
        // An element's value may take the register of the one that it is computed from.
        let kept = held(number, number + 1).max(if number == 0 { 0 } else { held(number - 1, number) });
        let waiting = waiting(flat, pass).iter().map(|&id| size(id)).sum::<usize>();
        kept + if sharing == Sharing::Several { waiting } else { 0 }
    };
    passes.passes.iter().enumerate().map(of_pass).max().unwrap_or(0)
}

/// The values that wait for their warp's turn to be folded, and are not held anyway.
pub(super) fn waiting(flat: &Flat, pass: &Pass) -> Vec<FlatNodeId> {
    let is_held = |id: &FlatNodeId| pass.keeps.iter().chain(&pass.kept).any(|kept| kept.0 == *id);
    let folded = pass.folds.iter().filter(|&&id| is_ordered(flat, id)).map(|&id| flat.nodes[id].args[0]);
    let mut waiting: Vec<FlatNodeId> = folded.filter(|id| !is_held(id)).collect();
    waiting.sort_unstable();
    waiting.dedup();
    waiting
}
