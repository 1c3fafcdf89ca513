//! Batches of small matrices, as the rotations of points or the covariances of filters.
//!
//! A piece takes longer to start than such a product takes. Here many matrices are one call. With the fewest columns,
//! the compiler knows how many there are, so a row of the result stays in registers. With a few more, each matrix is
//! some tiles of one or two vectors. Each element is the chain of `tile`: from +0.0, over the steps in order, each
//! rounded once.

#![allow(unsafe_code, reason = "operands and results are raw pointers, and instructions are those of a level")]

use super::pack::Scratch;
use super::tile::{Kernels, Multiply, Panels, Tile};
use crate::codegen::product::ProductShape;
use crate::codegen::vm::Isa;
use std::ops::Range;

/// Fewest matrices of a batch.
const FEWEST: usize = 8;
/// Most columns of a result whose number the compiler knows.
const COLUMNS: usize = 8;
/// Most rows and most steps of such a product.
const LONGEST: usize = 16;
/// From so many elements of a right operand with distant columns, packing them pays.
const PACKED: usize = 32;
/// Most rows and steps of products in tiles. Larger ones have the caches' blocks in `piece`.
const ROWS: usize = 64;
const STEPS: usize = 256;

/// An element of small matrices.
pub(super) trait Small: Multiply {
    /// `self * factor + sum`, rounded once.
    fn fused(self, factor: Self, sum: Self) -> Self;
    /// The element, with one NaN for all.
    fn settled(self) -> Self;
}

macro_rules! small {
    ($($float:ident)*) => {$(
        impl Small for $float {
            #[inline(always)]
            fn fused(self, factor: $float, sum: $float) -> $float {
                self.mul_add(factor, sum)
            }
            #[inline(always)]
            fn settled(self) -> $float {
                // In integers: for floats, the compiler treats all NaNs as equal.
                let bits = if self.is_nan() { $float::NAN.to_bits() } else { self.to_bits() };
                $float::from_bits(bits)
            }
        }
    )*};
}
small!(f32 f64);

/// A batch of products. Results are dense, and follow each other.
#[derive(Clone, Copy)]
pub(super) struct Matrices<T> {
    pub(super) a: *mut T,
    pub(super) b: *mut T,
    /// Where the memory of the right operands ends. What lies between their elements may be read.
    pub(super) b_end: *const T,
    pub(super) c: *mut T,
    pub(super) shape: ProductShape,
}

/// Computes some matrices of a batch.
///
/// # Safety
/// The processor has the level of the function. The pointers are valid for these matrices at the strides of the shape.
/// Meanwhile nothing writes the operands, and nothing else uses the results.
pub(super) type Run<T> = unsafe fn(&Matrices<T>, Range<usize>);

/// The function for a shape, if its matrices are small and many.
pub(super) fn function<T: Small>(isa: Isa, shape: &ProductShape) -> Option<Run<T>> {
    let &ProductShape { batch, m, k, n, right, .. } = shape;
    if batch < FEWEST || n == 0 {
        return None;
    }
    let is_apart = right[2] != 1 && k * n >= PACKED;
    if n <= COLUMNS && m.max(k) <= LONGEST && !is_apart {
        return level(isa);
    }
    let fits = n <= 2 * T::kernels(isa).lanes && m <= ROWS && k <= STEPS;
    fits.then_some(tiles::<T> as Run<T>)
}

/// Computes each matrix in tiles of the best level.
///
/// # Safety
/// See [`Run`].
unsafe fn tiles<T: Multiply>(all: &Matrices<T>, range: Range<usize>) {
    let ProductShape { m, k, n, left, right, .. } = all.shape;
    let kernels: &Kernels<T> = T::kernels(Isa::best());
    let width = n.next_multiple_of(kernels.lanes);
    let functions = if width > kernels.lanes { kernels.pairs } else { kernels.singles };
    let slivers = m.div_ceil(functions.len());
    Scratch::with(width * k, |panel: *mut T| {
        for matrix in range.clone() {
            let a = all.a.wrapping_add(matrix * left[0]).cast_const();
            let b = all.b.wrapping_add(matrix * right[0]).cast_const();
            let c = all.c.wrapping_add(matrix * m * n);
            let (b, b_step) = if right[2] == 1 && b.wrapping_add(k.max(1) * right[1] - right[1] + width) <= all.b_end {
                (b, right[1])
            } else {
                // SAFETY: passed on from the caller. The panel has room for whole vectors of each step.
                unsafe { pack_columns(kernels, all, b, &Panels { to: panel, width, k }) };
                (panel.cast_const(), width)
            };
            for sliver in 0..slivers {
                let (row, end) = (sliver * m / slivers, (sliver + 1) * m / slivers);
                let tile = Tile {
                    k,
                    a: a.wrapping_add(row * left[1]),
                    a_row: left[1],
                    a_step: left[2],
                    b,
                    b_step,
                    panel: std::ptr::null_mut(),
                    c: c.wrapping_add(row * n),
                    c_row: n,
                    columns: n,
                    is_first: true,
                    is_last: true,
                };
                // SAFETY: passed on from the caller. Whole vectors of columns are in the panel or in memory.
                unsafe { functions[end - row - 1](&tile) };
            }
        }
    });
}

/// Packs a right operand. Lanes after the last column get arbitrary elements.
///
/// # Safety
/// See [`Run`]; the panel has room for whole vectors of each step.
unsafe fn pack_columns<T: Multiply>(kernels: &Kernels<T>, all: &Matrices<T>, b: *const T, panels: &Panels<T>) {
    let ProductShape { k, n, right: [_, row, column], .. } = all.shape;
    let last = b.wrapping_add((panels.width - 1) * column + k);
    let transposed = if row == 1 && last <= all.b_end { k / kernels.deep * kernels.deep } else { 0 };
    // SAFETY: passed on from the caller. Columns after the last one are transposed only where there is memory.
    unsafe {
        for lane in (0..panels.width).step_by(kernels.lanes) {
            let from = b.wrapping_add(lane * column);
            (kernels.transpose)(from, column, panels.to.add(lane), panels.width, transposed);
        }
        for nth in 0..n {
            for step in transposed..k {
                *panels.to.add(step * panels.width + nth) = *b.wrapping_add(nth * column + step * row);
            }
        }
    }
}

fn level<T: Small>(isa: Isa) -> Option<Run<T>> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => Some(x86::avx512::<T>),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => Some(x86::avx2::<T>),
        _others => None,
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;

    /// # Safety
    /// See [`Run`].
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2<T: Small>(all: &Matrices<T>, range: Range<usize>) {
        // SAFETY: passed on from the caller.
        unsafe { of_columns(all, range) }
    }

    /// # Safety
    /// See [`Run`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    pub(super) unsafe fn avx512<T: Small>(all: &Matrices<T>, range: Range<usize>) {
        // SAFETY: passed on from the caller.
        unsafe { of_columns(all, range) }
    }
}

/// # Safety
/// See [`Run`].
#[inline(always)]
unsafe fn of_columns<T: Small>(all: &Matrices<T>, range: Range<usize>) {
    // SAFETY: passed on from the caller; the number of columns is that of the shape.
    unsafe {
        match all.shape.n {
            1 => matrices::<T, 1>(all, range),
            2 => matrices::<T, 2>(all, range),
            3 => matrices::<T, 3>(all, range),
            4 => matrices::<T, 4>(all, range),
            5 => matrices::<T, 5>(all, range),
            6 => matrices::<T, 6>(all, range),
            7 => matrices::<T, 7>(all, range),
            8 => matrices::<T, 8>(all, range),
            n => unreachable!("{n} columns are not small"),
        }
    }
}

/// # Safety
/// See [`Run`]; the results have `N` columns.
#[inline(always)]
unsafe fn matrices<T: Small, const N: usize>(all: &Matrices<T>, range: Range<usize>) {
    let ProductShape { m, k, left, right, .. } = all.shape;
    for matrix in range {
        let a = all.a.wrapping_add(matrix * left[0]);
        let b = all.b.wrapping_add(matrix * right[0]);
        let mut c = all.c.wrapping_add(matrix * m * N);
        for row in 0..m {
            let a = a.wrapping_add(row * left[1]);
            let mut sums = [T::ZERO; N];
            for step in 0..k {
                let b = b.wrapping_add(step * right[1]);
                // SAFETY: the operands have these elements.
                let (factor, others): (T, [T; N]) = unsafe {
                    let others = match right[2] {
                        1 => b.cast::<[T; N]>().read(),
                        apart => std::array::from_fn(|column| *b.wrapping_add(column * apart)),
                    };
                    (*a.wrapping_add(step * left[2]), others)
                };
                for (sum, other) in sums.iter_mut().zip(others) {
                    *sum = factor.fused(other, *sum);
                }
            }
            // SAFETY: the result has this row, and nothing else uses it.
            unsafe { c.cast::<[T; N]>().write(sums.map(T::settled)) };
            c = c.wrapping_add(N);
        }
    }
}
