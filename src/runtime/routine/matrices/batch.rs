//! Batches of matrices: where each lies, and how threads share them.

use super::errors::Trouble;
use crate::device::pool;
use crate::ir::Layout;
use bytemuck::Pod;
use opfuse_linalg::{Complex, Element};
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// Arithmetic operations that are worth a task: some tens of microseconds.
const TASK: usize = 100_000;
/// What a matrix costs beside its arithmetic.
const PER_MATRIX: usize = 100;

/// How a number lies in memory: as one part, or as two of which the first is the real one.
pub(super) trait Number: Element<Complex: Pod> + Pod {
    type Part: Pod + Send + Sync;

    /// The number whose first part is `parts[at]`, and the next, if there is one, `step` further on.
    fn read(parts: &[Self::Part], at: usize, step: usize) -> Self;
}

macro_rules! numbers {
    ($($ty:ident)*) => {$(
        impl Number for $ty {
            type Part = $ty;
            fn read(parts: &[$ty], at: usize, _: usize) -> $ty {
                parts[at]
            }
        }

        impl Number for Complex<$ty> {
            type Part = $ty;
            fn read(parts: &[$ty], at: usize, step: usize) -> Complex<$ty> {
                Complex { re: parts[at], im: parts[at + step] }
            }
        }
    )*};
}

numbers!(f32 f64);

/// The parts of a number.
pub(super) const fn n_parts<T: Number>() -> usize {
    size_of::<T>() / size_of::<T::Part>()
}

/// The matrices of an operand, in any layout.
pub(super) struct Matrices<'a, T: Number> {
    parts: &'a [T::Part],
    /// Sizes and strides of the dims before the matrix, of which those that lie as one are one.
    batch: SmallVec<[(usize, usize); 3]>,
    pub(super) rows: usize,
    pub(super) columns: usize,
    row_stride: usize,
    column_stride: usize,
    part_stride: usize,
}

impl<'a, T: Number> Matrices<'a, T> {
    /// The matrices of an operand of at least two dims, and one for the parts of numbers that have several.
    pub(super) fn new(parts: &'a [T::Part], layout: &Layout) -> Matrices<'a, T> {
        let rank = layout.rank() + 1 - n_parts::<T>();
        let (sizes, strides) = (&layout.sizes, &layout.strides);
        let mut batch: SmallVec<[(usize, usize); 3]> = SmallVec::new();
        for (&size, &stride) in sizes[..rank - 2].iter().zip(&strides[..rank - 2]) {
            match batch.last_mut() {
                Some((before, coarse)) if *coarse == size * stride => (*before, *coarse) = (*before * size, stride),
                Some(_) | None => batch.push((size, stride)),
            }
        }
        let ([rows, columns], [row_stride, column_stride]) =
            ([sizes[rank - 2], sizes[rank - 1]], [strides[rank - 2], strides[rank - 1]]);
        let part_stride = strides.get(rank).copied().unwrap_or(1);
        Matrices { parts, batch, rows, columns, row_stride, column_stride, part_stride }
    }

    /// The same matrices, transposed.
    pub(super) fn transposed(self) -> Matrices<'a, T> {
        Matrices {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// Where the first element of a matrix is.
    pub(super) fn start(&self, matrix: usize) -> usize {
        let (mut rest, mut at) = (matrix, 0);
        for (dim, &(size, stride)) in self.batch.iter().enumerate().rev() {
            let index = if dim == 0 { rest } else { rest % size };
            (rest, at) = (rest / size.max(1), at + index * stride);
        }
        at
    }

    /// The first element of a matrix.
    pub(super) fn first(&self, matrix: usize) -> T {
        T::read(self.parts, self.start(matrix), self.part_stride)
    }

    /// Copies the matrix that starts at `start` in column-major order.
    pub(super) fn copy(&self, start: usize, to: &mut [T]) {
        if self.rows == 0 || self.columns == 0 {
            return;
        }
        for (column, to) in to[..self.rows * self.columns].chunks_exact_mut(self.rows).enumerate() {
            let from = &self.parts[start + column * self.column_stride..];
            if self.row_stride == n_parts::<T>() && self.part_stride == 1 {
                let to: &mut [T::Part] = bytemuck::cast_slice_mut(to);
                to.copy_from_slice(&from[..to.len()]);
            } else {
                for (row, to) in to.iter_mut().enumerate() {
                    *to = T::read(from, row * self.row_stride, self.part_stride);
                }
            }
        }
    }
}

/// Calls `body` for every matrix with its part of the result, which has `length` elements. `cost` is the arithmetic of
/// one. A task has a scratch of its own.
///
/// # Errors
/// The first matrix for which `body` fails, and why.
pub(super) fn each<T: Send, S>(
    out: &mut [T],
    length: usize,
    cost: usize,
    scratch: impl Fn() -> S + Sync,
    body: impl Fn(&mut S, usize, &mut [T]) -> Result<(), Trouble> + Sync,
) -> Result<(), (usize, Trouble)> {
    let count = out.len() / length;
    let group = (TASK / cost.saturating_add(PER_MATRIX)).clamp(1, count.max(1));
    let work = |first: usize, part: &mut [T]| {
        let mut scratch = scratch();
        let parts = part.chunks_exact_mut(length).enumerate();
        for (at, part) in parts {
            // The library may panic on what it was not made for.
            let done = catch_unwind(AssertUnwindSafe(|| body(&mut scratch, first + at, part)));
            done.unwrap_or(Err(Trouble::Panicked)).map_err(|trouble| (first + at, trouble))?;
        }
        Ok(())
    };
    let threads = count.div_ceil(group).min(pool::num_threads());
    if threads <= 1 {
        return work(0, out);
    }
    let parts: Vec<Mutex<&mut [T]>> = out.chunks_mut(group * length).map(Mutex::new).collect();
    let failed: Mutex<Option<(usize, Trouble)>> = Mutex::new(None);
    pool::run(parts.len(), threads, &|task| {
        let mut part = parts[task].lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(found) = work(task * group, &mut part) {
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            if failed.is_none_or(|(first, _)| found.0 < first) {
                *failed = Some(found);
            }
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
