//! How many elements of a kernel without folds a thread computes, and whether in squares.
//!
//! A multiprocessor needs some 64 KiB of loads in flight to keep memory busy, which is 32 to 64 bytes per thread. These
//! are vectors of 16 bytes if memory is aligned for them, and several of them where there are few operands. A thread
//! has no registers for more.

use super::variant::{Form, POINTWISE_THREADS, TILE};
use crate::codegen::geometry::{Access, Class, Geometry};
use crate::codegen::kernel::{Kernel, Source};
use crate::codegen::native::flat::Flat;
use smallvec::SmallVec;

/// Bytes of the widest access.
const ACCESS_BYTES: usize = 16;
/// Elements of the longest vector.
const MAX_WIDTH: usize = 8;
/// Most bytes of operands that a thread loads at once.
const THREAD_BYTES: usize = 64;
/// Most vectors of a thread.
const MAX_VECTORS: usize = 4;
/// Most elements of all operands that a thread holds.
const MAX_ELEMENTS: usize = 32;
/// Most values of all elements of a thread, which bounds the time to compile.
const MAX_VALUES: usize = 512;
/// With fewer blocks in a grid, threads should compute one vector each.
const FEW_BLOCKS: usize = 512;
/// Loop length from which squares pay, though the last ones may be partial.
const LONG_SIDE: usize = 16;
/// Most bytes of shared memory for squares: several blocks share a multiprocessor's.
const MAX_TILE_BYTES: usize = 24 << 10;

/// The form of a kernel without folds.
pub(super) fn choose(kernel: &Kernel, geometry: &Geometry, classes: &[Class], alignments: &[usize]) -> Form {
    if let Some(tiles) = tiles(kernel, geometry, classes) {
        return tiles;
    }
    let flat = Flat::new(kernel, classes);
    let width = width(kernel, geometry, classes, alignments, &flat);
    Form::Pointwise { width, vectors: vectors(kernel, geometry, classes, &flat, width) }
}

/// Squares, if some operands are transposed and the results are contiguous.
fn tiles(kernel: &Kernel, geometry: &Geometry, classes: &[Class]) -> Option<Form> {
    let gathered = kernel.gathered();
    let (operands, results) = classes.split_at(kernel.operands.len());
    if results.iter().any(|&class| class != Class::Contiguous) || geometry.n_inner() < LONG_SIDE {
        return None;
    }
    let is_across = |slot: usize, along: usize| {
        let operand = kernel.operands[slot];
        let strides = &geometry.operands[slot].rows;
        let is_far = operands[slot] == Class::Strided && !gathered.contains(&slot);
        operand.source == Source::Memory && is_far && strides[along] == operand.dtype.size()
    };
    let transposed = |along: usize| (0..operands.len().min(64)).filter(move |&slot| is_across(slot, along));
    let long = (0..geometry.rows.len()).filter(|&along| geometry.rows[along] >= LONG_SIDE);
    let along = long.max_by_key(|&along| transposed(along).count())?;
    let bytes: usize = transposed(along).map(|slot| kernel.operands[slot].dtype.size() * TILE * (TILE + 1)).sum();
    let bits = transposed(along).fold(0, |bits, slot| bits | 1 << slot);
    (bits != 0 && bytes <= MAX_TILE_BYTES).then_some(Form::Tiles { along, transposed: bits })
}

/// How many neighbours a thread computes at a time: 16 bytes of the narrowest access, if all are aligned for it. If an
/// access is strided, neighbouring threads should compute neighbouring elements instead.
fn width(kernel: &Kernel, geometry: &Geometry, classes: &[Class], alignments: &[usize], flat: &Flat) -> usize {
    let accesses = || geometry.operands.iter().chain(&geometry.outputs);
    // A vector is gathered at one index.
    let has_indices = |slot: usize| {
        let mut gathers = flat.nodes.entities().filter(|node| node.op.operand() == Some(slot));
        gathers.any(|node| node.args.iter().any(|&arg| !flat.nodes[arg].uniform))
    };
    let is_far = |slot: usize| match classes[slot] {
        Class::Strided => true,
        Class::Contiguous => slot < kernel.operands.len() && has_indices(slot),
        Class::Uniform => false,
    };
    if (0..classes.len()).any(|slot| is_memory(kernel, slot) && is_far(slot)) {
        return 1;
    }
    let sizes: SmallVec<[usize; 8]> = kernel.dtypes().map(|dtype| dtype.size()).collect();
    let wide = |slot: &usize| is_memory(kernel, *slot) && classes[*slot] == Class::Contiguous;
    let Some(narrowest) = (0..classes.len()).filter(wide).map(|slot| sizes[slot]).min() else { return 1 };
    let fits = |&width: &usize| {
        let aligned = |(slot, access): (usize, &Access)| {
            let bytes = (width * sizes[slot]).min(ACCESS_BYTES);
            let starts = [alignments[slot], access.base as usize, access.gather.map_or(0, |(_, stride)| stride)];
            !wide(&slot) || starts.iter().chain(&access.rows).all(|distance| distance % bytes == 0)
        };
        width <= geometry.n_inner().max(1) && accesses().enumerate().all(aligned)
    };
    let widest = (ACCESS_BYTES / narrowest).min(MAX_WIDTH);
    [8, 4, 2].into_iter().filter(|&width| width <= widest).find(fits).unwrap_or(1)
}

/// How many vectors a thread computes.
fn vectors(kernel: &Kernel, geometry: &Geometry, classes: &[Class], flat: &Flat, width: usize) -> usize {
    let read = |slot: &usize| is_memory(kernel, *slot) && classes[*slot] != Class::Uniform;
    let operands = || (0..kernel.operands.len()).filter(read);
    let bytes: usize = operands().map(|slot| width * kernel.operands[slot].dtype.size()).sum();
    let elements = width * operands().count().max(kernel.outputs.len());

    let values = width * flat.nodes.len();
    let items = geometry.n_rows() * geometry.n_inner().div_ceil(width);
    let pays = |&vectors: &usize| {
        let is_light =
            vectors * bytes <= THREAD_BYTES && vectors * elements <= MAX_ELEMENTS && vectors * values <= MAX_VALUES;
        is_light && items / (vectors * POINTWISE_THREADS as usize) >= FEW_BLOCKS
    };
    [MAX_VECTORS, 2].into_iter().find(pays).unwrap_or(1)
}

/// Whether an access is in memory.
fn is_memory(kernel: &Kernel, slot: usize) -> bool {
    kernel.operands.get(slot).is_none_or(|operand| operand.source == Source::Memory)
}
