//! Products of 16-bit floats: the right operand is widened to f32 in blocks of columns, which stay in a cache.
//!
//! So the operand is read from memory once, at half the bytes of f32, and no widened copy of it lies there. A chain
//! over the inner dimension is never cut, so the bits are those of a product of widened operands.

#![allow(unsafe_code, reason = "blocks of operands and results are raw pointers")]

use super::piece::{ProductPiece, even};
use super::tile::Multiply;
use super::{TILE, WORTH_A_THREAD};
use crate::codegen::product::ProductShape;
use crate::codegen::vm::Isa;
use crate::device::pool;
use crate::ir::scalar::half_bits::{widen_bf16, widen_f16};
use crate::runtime::array::Array;
use std::cell::Cell;

/// Bytes of a widened block: a part of a second-level cache.
const BLOCK_BYTES: usize = 256 << 10;
/// Most bytes of a block of the fewest columns. A longer inner dimension is widened whole, in memory.
const MOST_BYTES: usize = 4 << 20;

/// A 16-bit format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    F16,
    BF16,
}

/// Whether blocks of so many steps fit a cache.
pub(super) fn fits(k: usize) -> bool {
    k > 0 && k.saturating_mul(TILE * size_of::<f32>()) <= MOST_BYTES
}

thread_local! {
    static BLOCK: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Multiplies `a`, which is f32, by `b` of 16-bit elements. `out` is new memory for the unrounded sums.
pub(super) fn multiply(format: Format, a: &Array, b: &Array, out: &Array, shape: ProductShape) {
    let ProductShape { batch, m, k, n, left, right, .. } = shape;
    let threads = (batch * m * n * k / WORTH_A_THREAD).clamp(1, pool::num_threads());
    let columns = even(n, (BLOCK_BYTES / (k * size_of::<f32>())).max(TILE), TILE);
    let across = n.div_ceil(columns);
    let widen = widening(format);
    let one = |index: usize| {
        let (matrix, column) = (index / across, index % across * columns);
        let here = columns.min(n - column);
        let mut block = BLOCK.take();
        block.resize(block.len().max(here * k), 0.0);
        let from = b.ptr().cast::<u16>().wrapping_add(matrix * right[0] + column * right[2]).cast_const();
        // The block has the order of memory, so that both are read and written in vectors.
        let is_by_column = right[1] == 1 && right[2] != 1;
        let (lines, line, pitch, step) =
            if is_by_column { (here, k, right[2], 1) } else { (k, here, right[1], right[2]) };
        for (nth, to) in block[..here * k].chunks_exact_mut(line).enumerate().take(lines) {
            // SAFETY: the elements of a line of the operand, whose storage the caller keeps and nothing writes. The
            // instructions are those of this processor.
            unsafe { widen(from.wrapping_add(nth * pitch), step, to) };
        }
        let at = |array: &Array, offset: usize| array.ptr().cast::<f32>().wrapping_add(offset);
        let piece = ProductPiece {
            m,
            k,
            n: here,
            a: at(a, matrix * left[0]).cast_const(),
            left: [left[1], left[2]],
            b: block.as_ptr(),
            right: if is_by_column { [1, k] } else { [here, 1] },
            gathered: None,
            c: at(out, matrix * m * n + column),
            c_row: n,
        };
        // SAFETY: as for products of f32: `a` is not written meanwhile, `out` is new memory, of which each index writes
        // its own columns, and the block belongs to this thread. The level is one of this processor.
        unsafe { piece.multiply(f32::kernels(Isa::best())) };
        BLOCK.set(block);
    };
    pool::run(batch * across, threads, &one);
}

/// Widens elements that are some elements apart.
///
/// # Safety
/// They may be read, and the processor has the level of the function.
type Widen = unsafe fn(from: *const u16, step: usize, to: &mut [f32]);

fn widening(format: Format) -> Widen {
    match (Isa::best(), format) {
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, Format::BF16) => avx512::bf16,
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, Format::F16) => avx512::f16,
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, Format::BF16) => avx2_bf16,
        (_, Format::BF16) => |from, step, to| {
            // SAFETY: passed on from the caller.
            unsafe { each(from, step, to, widen_bf16) }
        },
        (_, Format::F16) => |from, step, to| {
            // SAFETY: passed on from the caller.
            unsafe { each(from, step, to, widen_f16) }
        },
    }
}

/// # Safety
/// The elements may be read.
#[inline(always)]
unsafe fn each(from: *const u16, step: usize, to: &mut [f32], widen: impl Fn(u16) -> f32) {
    if step == 1 {
        // SAFETY: passed on from the caller.
        let from = unsafe { std::slice::from_raw_parts(from, to.len()) };
        to.iter_mut().zip(from).for_each(|(to, &from)| *to = widen(from));
        return;
    }
    for (at, to) in to.iter_mut().enumerate() {
        // SAFETY: passed on from the caller.
        *to = widen(unsafe { *from.wrapping_add(at * step) });
    }
}

/// # Safety
/// As for [`Widen`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2_bf16(from: *const u16, step: usize, to: &mut [f32]) {
    // SAFETY: passed on from the caller.
    unsafe { each(from, step, to, widen_bf16) };
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{each, widen_bf16, widen_f16};
    use std::arch::x86_64::{_mm256_loadu_si256, _mm512_cvtph_ps, _mm512_storeu_ps};

    /// # Safety
    /// As for [`super::Widen`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(super) unsafe fn bf16(from: *const u16, step: usize, to: &mut [f32]) {
        // SAFETY: passed on from the caller.
        unsafe { each(from, step, to, widen_bf16) };
    }

    /// # Safety
    /// As for [`super::Widen`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(super) unsafe fn f16(from: *const u16, step: usize, to: &mut [f32]) {
        let whole = if step == 1 { to.len() / 16 * 16 } else { 0 };
        let (vectors, rest) = to.split_at_mut(whole);
        for (nth, to) in vectors.chunks_exact_mut(16).enumerate() {
            // SAFETY: 16 neighbours of the caller's elements. A signalling NaN becomes a quiet one, which products do
            // not show.
            unsafe {
                _mm512_storeu_ps(to.as_mut_ptr(), _mm512_cvtph_ps(_mm256_loadu_si256(from.add(16 * nth).cast())))
            };
        }
        // SAFETY: passed on from the caller.
        unsafe { each(from.wrapping_add(whole * step), step, rest, widen_f16) };
    }
}
