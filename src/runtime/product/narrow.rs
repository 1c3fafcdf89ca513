//! Products of 16-bit floats: blocks of both operands are widened to f32, and blocks of the result rounded.
//!
//! Blocks stay in a cache, so operands are read from memory once, at half the bytes of f32, and no widened copy of them
//! lies there. A chain goes on from one block of the inner dimension to the next in f32. So the bits are those of a
//! product of widened operands, rounded once.

#![allow(unsafe_code, reason = "blocks of operands and results are raw pointers")]

use super::format::{Format, Split, Widen};
use super::piece::{ProductPiece, even};
use super::tile::Multiply;
use super::{Cut, pool};
use crate::codegen::product::ProductShape;
use crate::codegen::vm::Isa;
use crate::ir::DType;
use crate::runtime::array::Array;
use std::cell::Cell;

/// Elements of a left operand's rows that are widened once for all columns.
const WHOLE: usize = 64 << 10;
/// Columns of a block are padded to a multiple of this many, which is a whole number of vectors of each level.
const PADDED: usize = 16;

/// The extents of blocks.
#[derive(Debug, Clone, Copy)]
struct Extents {
    rows: usize,
    columns: usize,
    steps: usize,
}

impl Extents {
    /// For so many rows, by a right operand whose rows or columns are contiguous.
    ///
    /// A block of the right operand is a part of a second-level cache, or of a first-level cache if it is used once.
    /// Few rows wait for memory, so lines are long.
    fn new([m, k, n]: [usize; 3], by_column: bool) -> Extents {
        let (rows, columns, steps) = match (m, by_column) {
            (0..=1, false) => (1, 1024, 8),
            (0..=1, true) => (1, 2 * PADDED, 256),
            (2..=32, false) => (m, 1024, 64),
            (2..=32, true) => (m, 128, 512),
            _ => (192, 256, 256),
        };
        Extents { rows: even(m, rows, 1), columns: even(n, columns, PADDED), steps: even(k, steps, 8).min(k.max(1)) }
    }
}

/// A thread's memory for blocks.
#[derive(Default)]
struct Blocks {
    left: Vec<f32>,
    right: Vec<f32>,
    result: Vec<f32>,
}

thread_local! {
    static BLOCKS: Cell<Blocks> = Cell::new(Blocks::default());
}

/// Multiplies operands of 16-bit elements. `out` is new memory, of their format or of f32 for unrounded sums.
pub(super) fn multiply(format: Format, a: &Array, b: &Array, out: &Array, shape: ProductShape) {
    let ProductShape { m, n, left, right, .. } = shape;
    if n == 1 && m > 1 {
        // A single column is computed as a single row.
        let turned = |[batch, row, column]: [usize; 3]| [batch, column, row];
        let shape = ProductShape { m: n, n: m, left: turned(right), right: turned(left), ..shape };
        return multiply(format, b, a, out, shape);
    }
    let ProductShape { batch, k, result, .. } = shape;
    let cut = Cut::new([batch, m, k, n]);
    let from = |array: &Array| array.ptr().cast::<u16>().cast_const();
    let one = |index: usize| {
        let (matrix, rows, columns) = cut.part(index);
        let part = Part {
            widen: format.widening(),
            split: format.splitting(),
            a: from(a).wrapping_add(matrix * left[0] + rows.start * left[1]),
            left: [left[1], left[2]],
            b: from(b).wrapping_add(matrix * right[0] + columns.start * right[2]),
            right: [right[1], right[2]],
        };
        let first = (matrix * m + rows.start) * n + columns.start;
        let store = |[row, column]: [usize; 2], sums: &[f32]| {
            let at = first + row * n + column;
            // SAFETY: `out` is new memory of `batch * m * n` elements, of which each index writes its own part, and the
            // sums are some columns of it. The level is one of this processor.
            unsafe {
                if result == DType::F32 {
                    out.ptr().cast::<f32>().add(at).copy_from_nonoverlapping(sums.as_ptr(), sums.len());
                } else {
                    let to = std::slice::from_raw_parts_mut(out.ptr().cast::<u16>().add(at), sums.len());
                    format.rounding()(sums, to);
                }
            }
        };
        let mut blocks = BLOCKS.take();
        // SAFETY: the layouts of the operands are inside their storages, which they keep alive, and nothing writes them
        // while a product runs.
        unsafe { part.multiply([rows.len(), k, columns.len()], &mut blocks, store) };
        BLOCKS.set(blocks);
    };
    pool::run(cut.parts(), cut.threads, &one);
}

/// Some rows and columns of a product. Strides are in elements, of rows and of columns.
struct Part {
    widen: Widen,
    split: Option<Split>,
    a: *const u16,
    left: [usize; 2],
    b: *const u16,
    right: [usize; 2],
}

impl Part {
    /// Calls `store` with the place and the sums of pieces of rows.
    ///
    /// # Safety
    /// The pointers are valid for `m * k` and `k * n` elements at the strides, and nothing writes them meanwhile.
    unsafe fn multiply(&self, [m, k, n]: [usize; 3], blocks: &mut Blocks, store: impl Fn([usize; 2], &[f32])) {
        let &Part { a, left, b, right, .. } = self;
        let by_column = right[0] == 1 && right[1] != 1;
        // Pairs are read as one number, so columns are an even number of elements apart.
        let split = self.split.filter(|_| by_column && right[1].is_multiple_of(2));
        let most = Extents::new([m, k, n], by_column);
        let is_whole = most.rows.saturating_mul(k) <= WHOLE;
        let Blocks { left: rows_block, right: columns_block, result } = blocks;
        grow(rows_block, most.rows * if is_whole { k } else { most.steps });
        grow(columns_block, most.columns * most.steps);
        grow(result, most.rows * most.columns);
        let pitch = most.columns;
        for row in (0..m).step_by(most.rows) {
            let rows = most.rows.min(m - row);
            let a = a.wrapping_add(row * left[0]);
            // SAFETY: passed on from the caller, here and below.
            let mut lies = if is_whole { unsafe { self.block(a, left, [rows, k], rows_block) } } else { [0; 2] };
            for column in (0..n).step_by(most.columns) {
                let columns = most.columns.min(n - column);
                for step in (0..k.max(1)).step_by(most.steps) {
                    let steps = most.steps.min(k - step);
                    let from = b.wrapping_add(step * right[0] + column * right[1]);
                    // SAFETY: see above.
                    let right = unsafe {
                        match split {
                            Some(split) => self.turned(split, from, right[1], [steps, columns], columns_block),
                            None => self.block(from, right, [steps, columns], columns_block),
                        }
                    };
                    let start = if is_whole {
                        step * lies[1]
                    } else {
                        // SAFETY: see above.
                        lies = unsafe { self.block(a.wrapping_add(step * left[1]), left, [rows, steps], rows_block) };
                        0
                    };
                    let piece = ProductPiece {
                        m: rows,
                        k: steps,
                        // Whole vectors, whose other lanes are not stored.
                        n: if right[1] != 1 { columns.next_multiple_of(PADDED) } else { columns },
                        a: rows_block.as_ptr().wrapping_add(start),
                        left: lies,
                        b: columns_block.as_ptr(),
                        right,
                        gathered: None,
                        c: result.as_mut_ptr(),
                        c_row: pitch,
                        is_first: step == 0,
                        is_last: step + steps == k,
                    };
                    // SAFETY: the blocks have room for these rows, steps and padded columns, and belong to this thread.
                    // The level is one of this processor.
                    unsafe { piece.multiply(f32::kernels(Isa::best())) };
                }
                for (nth, sums) in result.chunks(pitch).take(rows).enumerate() {
                    store([row + nth, column], &sums[..columns]);
                }
            }
        }
    }

    /// Widens a matrix into a block in the order of memory, so that both are read and written in vectors. Returns the
    /// strides of its rows and columns.
    ///
    /// # Safety
    /// The elements may be read.
    unsafe fn block(
        &self,
        from: *const u16,
        [row, column]: [usize; 2],
        [rows, columns]: [usize; 2],
        to: &mut [f32],
    ) -> [usize; 2] {
        let by_column = row == 1 && column != 1;
        let (lines, line, pitch, step) =
            if by_column { (columns, rows, column, row) } else { (rows, columns, row, column) };
        for (nth, to) in to.chunks_exact_mut(line.max(1)).enumerate().take(lines) {
            // SAFETY: a line of the matrix. The level is one of this processor.
            unsafe { (self.widen)(from.wrapping_add(nth * pitch), step, &mut to[..line]) };
        }
        if by_column { [1, line] } else { [line, 1] }
    }

    /// Widens a matrix with contiguous columns, `pitch` elements apart, into a block with contiguous rows. Pairs of
    /// elements are transposed as numbers of 32 bits, and then split. Returns the strides of rows and columns.
    ///
    /// # Safety
    /// The elements may be read.
    unsafe fn turned(
        &self,
        split: Split,
        from: *const u16,
        pitch: usize,
        [steps, columns]: [usize; 2],
        to: &mut [f32],
    ) -> [usize; 2] {
        let kernels = f32::kernels(Isa::best());
        let pairs = steps / 2 / kernels.deep * kernels.deep;
        let whole = columns / kernels.lanes * kernels.lanes;
        for column in (0..whole).step_by(kernels.lanes) {
            let from = from.wrapping_add(column * pitch).cast();
            // SAFETY: these columns and steps may be read, and the block has room for them. The level is one of this
            // processor, and its vectors load from any address.
            unsafe { (kernels.transpose)(from, pitch / 2, to[column..].as_mut_ptr(), 2 * columns, pairs) };
        }
        for two in to.chunks_exact_mut(2 * columns).take(pairs) {
            let (first, second) = two.split_at_mut(columns);
            // SAFETY: the level is one of this processor.
            unsafe { split(&mut first[..whole], &mut second[..whole]) };
        }
        for (step, row) in to.chunks_exact_mut(columns).enumerate().take(steps) {
            let rest = if step < 2 * pairs { whole } else { 0 };
            for (column, to) in row.iter_mut().enumerate().skip(rest) {
                // SAFETY: an element of the matrix.
                unsafe { (self.widen)(from.wrapping_add(column * pitch + step), 1, std::slice::from_mut(to)) };
            }
        }
        [columns, 1]
    }
}

fn grow(block: &mut Vec<f32>, elements: usize) {
    if block.len() < elements {
        block.resize(elements, 0.0);
    }
}
