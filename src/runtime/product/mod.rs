//! Matrix products, and how they are distributed to threads.
//!
//! Products of f32 and f64 have one canonical order. An element is one chain of fused multiply-adds over the inner
//! dimension from its start, beginning with +0.0; a NaN has no sign and payload. So a row has the same bits whatever
//! the number of rows and columns, the strides, the threads and the processor. `tile` computes, `piece` orders the
//! accesses to memory, `pack` packs operands, and `vector` wraps instructions. 16-bit floats are computed in f32 with
//! one rounding at the end, integers in a plain wrapping loop.
//!
//! A product is cut into parts of its result. A chain is never cut: there are no sums of partial sums.

mod direct;
mod format;
mod gather;
mod narrow;
mod pack;
mod piece;
mod small;
mod tile;
mod vector;
mod windows;

#[cfg(test)]
mod tests;

use super::array::Array;
use crate::codegen::product::ProductShape;
use crate::codegen::vm::Isa;
use crate::device::{Device, pool};
use crate::error::{Error, Result};
use crate::ir::{DType, Layout, TensorType};
use direct::MultiplyDirectly;
use format::Format;
use piece::{ProductPiece, even};
use small::{Matrices, Small};
use std::ops::Range;
use tile::Multiply;
pub(super) use windows::of_windows;

/// Multiply-adds that pay for one more thread.
const WORTH_A_THREAD: usize = 1 << 18;
/// Columns per thread from which cutting along the columns pays.
const COLUMNS: usize = 128;
/// Parts have a multiple of this many columns, so that tiles are not cut.
const TILE: usize = 32;
/// Columns per thread from which it gets more than one part, so that a slow thread does not delay the others for long.
const WIDE: usize = 512;
/// Most parts per thread.
const PARTS: usize = 2;
/// Rows per thread from which rows are cut. Packing a right operand per thread, at most twice as large as the left one,
/// then takes less time than reading all of the left one. Mostly the thread has also made these rows, and will use the
/// result.
const ROWS: usize = 256;

/// Computes `a @ b` of 2-d operands, or of batches of them, into new memory of type `ty`.
///
/// # Errors
/// Out of memory. The op's inference has checked the shapes.
pub(super) fn product(a: &Array, b: &Array, ty: &TensorType) -> Result<Array> {
    if let Some(format) = Format::of(a.dtype()) {
        let out = Array::new(Device::CPU, ty)?;
        narrow::multiply(format, a, b, &out, shape([a.layout(), b.layout()], a.dtype(), ty.dtype));
        return Ok(out);
    }
    let mut out = Array::new(Device::CPU, ty)?;
    let shape = shape([a.layout(), b.layout()], ty.dtype, ty.dtype);
    match ty.dtype {
        DType::F32 => multiply::<f32>(a, b, &out, shape)?,
        DType::F64 => multiply::<f64>(a, b, &out, shape)?,
        DType::F16 | DType::BF16 => unreachable!("16-bit results have 16-bit operands"),
        DType::U8 => fill(&mut out, &wrapping(a, b, shape, u8::wrapping_mul, u8::wrapping_add)),
        DType::I8 => fill(&mut out, &wrapping(a, b, shape, i8::wrapping_mul, i8::wrapping_add)),
        DType::I16 => fill(&mut out, &wrapping(a, b, shape, i16::wrapping_mul, i16::wrapping_add)),
        DType::I32 => fill(&mut out, &wrapping(a, b, shape, i32::wrapping_mul, i32::wrapping_add)),
        DType::I64 => fill(&mut out, &wrapping(a, b, shape, i64::wrapping_mul, i64::wrapping_add)),
        DType::Bool => return Err(Error::unsupported("mm", DType::Bool, "a number", "convert first")),
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
    Ok(out)
}

/// The shape of a product of operands with these layouts. A result of f32 may be that of narrower operands.
pub(super) fn shape([a, b]: [&Layout; 2], dtype: DType, result: DType) -> ProductShape {
    let rank = a.rank();
    let batch = if rank == 3 { a.sizes[0] } else { 1 };
    let (m, k, n) = (a.sizes[rank - 2], a.sizes[rank - 1], b.sizes[rank - 1]);
    ProductShape { dtype, result, batch, m, k, n, left: strides(a), right: strides(b) }
}

/// Strides of batch, row and column of an operand.
pub(super) fn strides(layout: &Layout) -> [usize; 3] {
    let (rank, strides) = (layout.rank(), &layout.strides);
    [if rank == 3 { strides[0] } else { 0 }, strides[rank - 2], strides[rank - 1]]
}

/// Some rows of a product of floats. Strides of rows and columns are in elements; the result is dense.
pub(super) struct Rows {
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) n: usize,
    pub(super) dst: *mut u8,
    pub(super) lhs: *mut u8,
    pub(super) strides: [usize; 2],
    pub(super) rhs: *mut u8,
    pub(super) right: [usize; 2],
}

impl Rows {
    /// Multiplies on this thread.
    ///
    /// # Safety
    /// The pointers are valid for `m * k`, `k * n` and `m * n` elements of the dtype at the strides. Meanwhile nothing
    /// writes the operands, and nothing else uses the result.
    #[allow(unsafe_code, reason = "passes the contract of the pointers on")]
    pub(super) unsafe fn run(&self, dtype: DType) {
        match dtype {
            // SAFETY: passed on from the caller.
            DType::F32 => unsafe { self.multiply::<f32>() },
            // SAFETY: the same.
            DType::F64 => unsafe { self.multiply::<f64>() },
            DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F16 | DType::BF16 => {
                unreachable!("products of {dtype} are not computed in rows")
            }
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        }
    }

    /// # Safety
    /// As for [`Rows::run`], of elements of type `T`.
    #[allow(unsafe_code, reason = "passes the contract of the pointers on")]
    unsafe fn multiply<T: Multiply>(&self) {
        let &Rows { m, k, n, dst, lhs, strides: left, rhs, right } = self;
        let (a, b, c) = (lhs.cast(), rhs.cast(), dst.cast::<T>());
        let (gathered, c_row, is_first, is_last) = (None, n, true, true);
        let piece = ProductPiece { m, k, n, a, left, b, right, gathered, c, c_row, is_first, is_last };
        // SAFETY: passed on from the caller; the level is one of this processor.
        unsafe { piece.multiply(T::kernels(Isa::best())) };
    }
}

fn multiply<T: Small + MultiplyDirectly>(a: &Array, b: &Array, out: &Array, shape: ProductShape) -> Result<()> {
    let ProductShape { batch, m, k, n, left, right, .. } = shape;
    let cut = Cut::new([batch, m, k, n]);
    if let Some(run) = small::function::<T>(Isa::best(), &shape) {
        multiply_small(run, a, b, out, shape, &cut);
        return Ok(());
    }
    if windows::joins(&shape) {
        return windows::of_matrices::<T>(a, b, out, &shape);
    }
    let one = |index: usize| {
        let (matrix, rows, columns) = cut.part(index);
        let (row, column) = (rows.start, columns.start);
        let at = |array: &Array, offset: usize| array.ptr().cast::<T>().wrapping_add(offset);
        let piece = ProductPiece {
            m: rows.len(),
            k,
            n: columns.len(),
            a: at(a, matrix * left[0] + row * left[1]).cast_const(),
            left: [left[1], left[2]],
            b: at(b, matrix * right[0] + column * right[2]).cast_const(),
            right: [right[1], right[2]],
            gathered: None,
            c: at(out, (matrix * m + row) * n + column),
            c_row: n,
            is_first: true,
            is_last: true,
        };
        #[allow(unsafe_code, reason = "pieces are raw pointers")]
        // SAFETY: the layouts of `a` and `b` are inside their storages, which they keep alive. The run that calls this
        // holds the locks of shared ones, so nothing writes to them. `out` is new memory of `batch * m * n` elements
        // that only this call has, and each index writes its own part. The level is one of this processor.
        unsafe {
            piece.multiply(T::kernels(Isa::best()));
        }
    };
    pool::run(cut.parts(), cut.threads, &one);
    Ok(())
}

/// Computes all matrices of a batch, some per part.
fn multiply_small<T: Small>(run: small::Run<T>, a: &Array, b: &Array, out: &Array, shape: ProductShape, cut: &Cut) {
    let count = shape.batch.div_ceil(PARTS * cut.threads);
    let one = |index: usize| {
        let b_end = b.ptr().cast::<T>().wrapping_add(b.layout().extent() - b.layout().offset).cast_const();
        let [a, b, c] = [a, b, out].map(|array| array.ptr().cast::<T>());
        let all = Matrices { a, b, b_end, c, shape };
        let matrices = index * count..shape.batch.min((index + 1) * count);
        #[allow(unsafe_code, reason = "matrices are raw pointers")]
        // SAFETY: as for other products, operands and result are inside their storages, and each index writes its own
        // matrices. The function is for a level of this processor.
        unsafe {
            run(&all, matrices);
        }
    };
    pool::run(shape.batch.div_ceil(count), cut.threads, &one);
}

/// How the results of a batch of products are cut into parts for threads.
struct Cut {
    batch: usize,
    m: usize,
    n: usize,
    threads: usize,
    /// Rows and columns of a part.
    rows: usize,
    columns: usize,
}

impl Cut {
    fn new([batch, m, k, n]: [usize; 4]) -> Cut {
        let threads = (batch * m * n * k.max(1) / WORTH_A_THREAD).clamp(1, pool::num_threads());
        // Otherwise columns are cut: parts of few rows would each pack all of the right operand.
        let is_tall = m >= ROWS * threads && 2 * m >= n;
        let (rows, columns) = if threads == 1 || batch >= 2 * threads {
            (m.max(1), n.max(1))
        } else if !is_tall && (n >= COLUMNS * threads || n > m) {
            let parts = (n / (WIDE * threads)).clamp(1, PARTS) * threads;
            (m.max(1), even(n, n.div_ceil(parts), TILE))
        } else {
            (even(m, m.div_ceil(threads), 1), n.max(1))
        };
        Cut { batch, m, n, threads, rows, columns }
    }

    fn down(&self) -> usize {
        self.m.div_ceil(self.rows)
    }

    fn across(&self) -> usize {
        self.n.div_ceil(self.columns)
    }

    fn parts(&self) -> usize {
        self.batch * self.down() * self.across()
    }

    /// The matrix, rows and columns of a part.
    fn part(&self, index: usize) -> (usize, Range<usize>, Range<usize>) {
        let (down, across) = (self.down(), self.across());
        let (row, column) = (index / across % down * self.rows, index % across * self.columns);
        let (rows, columns) = (row..self.m.min(row + self.rows), column..self.n.min(column + self.columns));
        (index / (down * across), rows, columns)
    }
}

/// The same elements in f32, with the same layout if there are no gaps between them, else row-major.
fn widened(array: &Array, format: Format) -> Result<Array> {
    let layout = &array.layout;
    let rows = TensorType::contiguous(DType::F32, &layout.sizes);
    if stretch::<u16>(array).len() > layout.numel() {
        let mut to = Array::new(Device::CPU, &rows)?;
        fill(&mut to, &elements::<u16>(array).map(format.scalar()).collect::<Vec<f32>>());
        return Ok(to);
    }
    let mut to = Array::new(Device::CPU, &TensorType { strides: layout.strides.clone(), ..rows })?;
    let from: &[u16] = stretch(array);
    let storage = to.storage.get_mut().expect("new memory has one owner");
    format.widen(from, bytemuck::cast_slice_mut(&mut storage.bytes_mut()[..from.len() * size_of::<f32>()]));
    Ok(to)
}

/// Computes products of integers, which wrap; row-major.
fn wrapping<T: bytemuck::Pod>(
    a: &Array,
    b: &Array,
    shape: ProductShape,
    mul: fn(T, T) -> T,
    add: fn(T, T) -> T,
) -> Vec<T> {
    let ProductShape { batch, m, k, n, .. } = shape;
    let (lhs, rhs): (Vec<T>, Vec<T>) = (elements(a).collect(), elements(b).collect());
    let mut values = vec![T::zeroed(); batch * m * n];
    for (row, to) in values.chunks_exact_mut(n.max(1)).enumerate() {
        for step in 0..k {
            let factor = lhs[row * k + step];
            let from = &rhs[(row / m * k + step) * n..][..n];
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = add(*to, mul(factor, from)));
        }
    }
    values
}

/// Overwrites new memory.
fn fill<T: bytemuck::NoUninit>(array: &mut Array, values: &[T]) {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    let storage = array.storage.get_mut().expect("new memory has one owner");
    storage.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
}

/// The memory from the first to the last element.
fn stretch<T: bytemuck::AnyBitPattern>(array: &Array) -> &[T] {
    let (first, end) = (array.layout.offset, array.layout.extent());
    #[allow(unsafe_code, reason = "the lock is held by the caller")]
    // SAFETY: the run that calls this holds the locks of its inputs, and nothing else has what it made itself.
    let bytes = unsafe { array.storage.bytes() };
    bytemuck::cast_slice(&bytes[first.min(end) * size_of::<T>()..end * size_of::<T>()])
}

/// The elements in row-major order.
fn elements<T: bytemuck::AnyBitPattern>(array: &Array) -> impl Iterator<Item = T> + '_ {
    let (layout, all) = (&array.layout, stretch::<T>(array));
    (0..layout.numel()).map(move |mut index| {
        let mut at = 0;
        for (&size, &stride) in layout.sizes.iter().zip(&layout.strides).rev() {
            at += index % size * stride;
            index /= size;
        }
        all[at]
    })
}
