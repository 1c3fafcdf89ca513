//! Products whose windows are read where they lie, without packing.
//!
//! Some sums stay in registers over all steps of their chains. There are four ways:
//!
//! - *Rows*: lanes are neighbouring columns, and each vector of them is used for several rows.
//! - *Along*: lanes are neighbouring columns. It is for few rows, as those of a depthwise convolution. These use an
//!   element only as often as windows have taps, so packing it would take longer than multiplying it.
//! - *Across*: lanes are neighbouring groups of one row, where they lie next to each other in memory.
//! - *Down*: lanes are rows, and each element of a window is a number for all of them. It is for windows with channels
//!   last, whose neighbouring columns are far apart.
//!
//! An element is the chain of `tile`, so no bits depend on the choice.

#![allow(unsafe_code, reason = "operands and results are raw pointers")]

use super::gather::Segment;
use super::tile::{Multiply, of_level};
use super::vector::{Plain, Vector};
use crate::codegen::vm::Isa;
use crate::device::roomy;
use crate::error::Result;
use smallvec::SmallVec;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

/// Most columns, or segments of columns, of a function.
const SUMS: usize = 8;

/// Where the factors of a chain lie, step by step: runs of steps at equal distances.
pub(super) struct Steps {
    /// Where each run starts in the left and in the right operand.
    pub(super) starts: Vec<[usize; 2]>,
    /// Steps of a run.
    pub(super) run: usize,
    /// The distances of its steps in both operands.
    pub(super) apart: [usize; 2],
}

impl Steps {
    /// Of inner dims, given by sizes and by strides in both operands.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn new(dims: impl Iterator<Item = (usize, [usize; 2])>) -> Result<Steps> {
        let mut merged: SmallVec<[(usize, [usize; 2]); 6]> = SmallVec::new();
        for (size, strides) in dims.filter(|(size, _)| *size != 1) {
            match merged.last_mut() {
                Some(last) if last.1 == strides.map(|stride| size * stride) => *last = (last.0 * size, strides),
                Some(_) | None => merged.push((size, strides)),
            }
        }
        let (run, apart) = merged.pop().unwrap_or((1, [0, 0]));
        let mut starts = vec![[0, 0]];
        for (size, [left, right]) in merged {
            let mut next = roomy(starts.len().saturating_mul(size))?;
            next.extend(
                starts.iter().flat_map(|start| (0..size).map(move |at| [start[0] + at * left, start[1] + at * right])),
            );
            starts = next;
        }
        Ok(Steps { starts, run, apart })
    }

    /// The same where the factors of the left operand follow each other, this far apart.
    pub(super) fn packed(&self, apart: usize) -> Steps {
        let starts = self.starts.iter().enumerate().map(|(nth, start)| [nth * self.run * apart, start[1]]).collect();
        Steps { starts, run: self.run, apart: [apart, self.apart[1]] }
    }

    /// Where each factor of the left operand lies.
    pub(super) fn left(&self) -> impl Iterator<Item = usize> + '_ {
        self.starts.iter().flat_map(|start| (0..self.run).map(|at| start[0] + at * self.apart[0]))
    }

    /// The number of steps.
    pub(super) fn count(&self) -> usize {
        self.starts.len() * self.run
    }
}

/// Some columns of one row, whose lanes are neighbouring columns.
pub(super) struct Along<'a, T> {
    pub(super) steps: &'a Steps,
    pub(super) a: *const T,
    pub(super) b: *const T,
    /// As many as the function has sums.
    pub(super) segments: &'a [Segment],
    /// The distance of the columns of a segment.
    pub(super) stride: usize,
    /// The row of the result.
    pub(super) c: *mut T,
}

/// Some columns of neighbouring groups or rows, which are the lanes.
pub(super) struct Across<'a, T> {
    pub(super) steps: &'a Steps,
    /// The lanes of a factor follow each other. Those of rows are whole vectors.
    pub(super) a: *const T,
    pub(super) b: *const T,
    /// Where the columns lie, as many as the function has sums.
    pub(super) columns: &'a [usize],
    pub(super) c: *mut T,
    /// The distance of columns in the result.
    pub(super) apart: usize,
    /// The number of groups or rows.
    pub(super) lanes: usize,
}

/// Some rows of two vectors of neighbouring columns.
pub(super) struct ByRows<'a, T> {
    /// Where the factors of a chain lie in the right operand, step by step.
    pub(super) steps: &'a [usize],
    /// The left operand, with its strides of rows and steps.
    pub(super) a: *const T,
    pub(super) left: [usize; 2],
    pub(super) b: *const T,
    pub(super) segments: [Segment; 2],
    /// The result, and the stride of its rows.
    pub(super) c: *mut T,
    pub(super) c_row: usize,
}

/// Computes the chains of so many rows.
///
/// # Safety
/// As for [`RunAlong`].
pub(super) type RunRows<T> = unsafe fn(&ByRows<'_, T>);

/// Computes the chains of so many vectors.
///
/// # Safety
/// The processor has the level of the function. `a` and `b` are valid for all steps, columns and lanes, and `c` for all
/// columns and lanes, which nothing else uses.
pub(super) type RunAlong<T> = unsafe fn(&Along<'_, T>);

/// The same for neighbouring groups or rows.
///
/// # Safety
/// As for [`RunAlong`].
pub(super) type RunAcross<T> = unsafe fn(&Across<'_, T>);

/// Whole vectors of columns that follow each other.
pub(super) const WHOLE: usize = 0;
/// The same, and parts of vectors.
pub(super) const PARTS: usize = 1;
/// Columns that are further apart.
pub(super) const APART: usize = 2;

/// Vectors of rows.
const ONE: usize = 1;
const TWO: usize = 2;

/// The functions of an instruction set for one element type. The last index is the number of columns, or of their
/// segments, minus one.
pub(super) struct Direct<T: 'static> {
    /// Elements of a vector.
    pub(super) lanes: usize,
    /// Indexed by the number of rows, minus one.
    pub(super) rows: &'static [RunRows<T>],
    /// Indexed by how vectors are read.
    pub(super) along: [[RunAlong<T>; SUMS]; 3],
    /// Of whole vectors, and of parts.
    pub(super) across: [[RunAcross<T>; SUMS]; 2],
    /// Of one vector of rows, and of two.
    pub(super) down: [[RunAcross<T>; SUMS]; 2],
    /// Most columns for two vectors of rows, whose sums must fit the registers.
    pub(super) most: usize,
}

impl<T> Direct<T> {
    /// Equal parts, of which each has its own sums.
    pub(super) fn chunks<'a, P>(&self, all: &'a [P], most: usize) -> std::slice::Chunks<'a, P> {
        let most = most.min(SUMS);
        all.chunks(all.len().div_ceil(all.len().div_ceil(most).max(1)).max(1))
    }
}

/// An element type that has such functions.
pub(super) trait MultiplyDirectly: Multiply {
    /// The functions of a level that this processor has.
    fn direct(isa: Isa) -> &'static Direct<Self>;
}

#[inline(always)]
unsafe fn rows<V: Vector, const ROWS: usize>(call: &ByRows<'_, V::Element>) {
    let &ByRows { steps, a, left: [a_row, a_step], b, segments, c, c_row } = call;
    // SAFETY: passed on from the caller, see `RunRows`. Only columns of the segments are loaded and stored.
    unsafe {
        let mut sums = [[V::zero(); 2]; ROWS];
        let masks = segments.map(|segment| V::mask(segment.length));
        let from = segments.map(|segment| b.wrapping_add(segment.offset));
        // Three rows share one pointer, so that all pointers fit the registers.
        let mut a = [a, a.wrapping_add(3 * a_row), a.wrapping_add(6 * a_row), a.wrapping_add(9 * a_row)];
        for &step in steps {
            let right = [0, 1].map(|at: usize| V::load_masked(from[at].wrapping_add(step), masks[at]));
            for (row, sums) in sums.iter_mut().enumerate() {
                let left = V::splat(a[row / 3].wrapping_add(row % 3 * a_row));
                for (sum, &right) in sums.iter_mut().zip(&right) {
                    *sum = left.mul_add(right, *sum);
                }
            }
            for a in &mut a {
                *a = a.wrapping_add(a_step);
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (sum, segment) in sums.iter().zip(&segments) {
                let c = c.wrapping_add(row * c_row + segment.column);
                sum.canonical().store_first(c, segment.length);
            }
        }
    }
}

#[inline(always)]
unsafe fn along<V: Vector, const N: usize, const HOW: usize>(call: &Along<'_, V::Element>) {
    let &Along { steps, a, b, segments, stride, c } = call;
    // SAFETY: passed on from the caller, see `RunAlong`. Only columns of the segments are loaded and stored.
    unsafe {
        let mut sums = [V::zero(); N];
        let mut parts = [(0, 0, V::mask(0)); N];
        for (part, segment) in parts.iter_mut().zip(segments) {
            *part = (segment.offset, segment.length, V::mask(segment.length));
        }
        for &[left, right] in &steps.starts {
            let (mut a, mut b) = (a.wrapping_add(left), b.wrapping_add(right));
            for _ in 0..steps.run {
                let factor = V::splat(a);
                for (sum, &(offset, length, mask)) in sums.iter_mut().zip(&parts) {
                    let from = b.wrapping_add(offset);
                    let lanes = match HOW {
                        WHOLE => V::load(from),
                        PARTS => V::load_masked(from, mask),
                        _ => V::load_every(from, stride, length),
                    };
                    *sum = factor.mul_add(lanes, *sum);
                }
                a = a.wrapping_add(steps.apart[0]);
                b = b.wrapping_add(steps.apart[1]);
            }
        }
        for (sum, segment) in sums.iter().zip(segments) {
            sum.canonical().store_first(c.wrapping_add(segment.column), segment.length);
        }
    }
}

#[inline(always)]
unsafe fn across<V: Vector, const N: usize, const HOW: usize>(call: &Across<'_, V::Element>) {
    let &Across { steps, a, b, columns, c, apart, lanes } = call;
    // SAFETY: passed on from the caller, see `RunAcross`. Only lanes of groups are loaded and stored.
    unsafe {
        let mask = V::mask(lanes);
        let mut sums = [V::zero(); N];
        let mut offsets = [0; N];
        offsets.iter_mut().zip(columns).for_each(|(offset, &column)| *offset = column);
        for &[left, right] in &steps.starts {
            let (mut a, mut b) = (a.wrapping_add(left), b.wrapping_add(right));
            for _ in 0..steps.run {
                let factor = load::<V, HOW>(a, mask);
                for (sum, &offset) in sums.iter_mut().zip(&offsets) {
                    *sum = factor.mul_add(load::<V, HOW>(b.wrapping_add(offset), mask), *sum);
                }
                a = a.wrapping_add(steps.apart[0]);
                b = b.wrapping_add(steps.apart[1]);
            }
        }
        for (nth, sum) in sums.iter().enumerate() {
            sum.canonical().store_first(c.wrapping_add(nth * apart), lanes);
        }
    }
}

#[inline(always)]
unsafe fn down<V: Vector, const N: usize, const WIDTH: usize>(call: &Across<'_, V::Element>) {
    let &Across { steps, a, b, columns, c, apart, lanes } = call;
    // SAFETY: passed on from the caller, see `RunAcross`. Only rows are stored.
    unsafe {
        let mut sums = [[V::zero(); WIDTH]; N];
        let mut from = [b; N];
        from.iter_mut().zip(columns).for_each(|(from, &column)| *from = from.wrapping_add(column));
        for &[left, mut right] in &steps.starts {
            let mut a = a.wrapping_add(left);
            for _ in 0..steps.run {
                let mut factors = [V::zero(); WIDTH];
                for (at, factor) in factors.iter_mut().enumerate() {
                    *factor = V::load(a.wrapping_add(at * V::LANES));
                }
                for (sums, from) in sums.iter_mut().zip(&from) {
                    let element = V::splat(from.wrapping_add(right));
                    for (sum, &factor) in sums.iter_mut().zip(&factors) {
                        *sum = element.mul_add(factor, *sum);
                    }
                }
                a = a.wrapping_add(steps.apart[0]);
                right = right.wrapping_add(steps.apart[1]);
            }
        }
        for (nth, sums) in sums.iter().enumerate() {
            for (at, sum) in sums.iter().enumerate() {
                let c = c.wrapping_add(nth * apart + at * V::LANES);
                sum.canonical().store_first(c, lanes.saturating_sub(at * V::LANES));
            }
        }
    }
}

/// # Safety
/// As for [`RunAcross`].
#[inline(always)]
unsafe fn load<V: Vector, const HOW: usize>(from: *const V::Element, mask: V::Mask) -> V {
    // SAFETY: passed on from the caller.
    unsafe { if HOW == WHOLE { V::load(from) } else { V::load_masked(from, mask) } }
}

/// An instruction set: instances of the functions above that may use its instructions.
macro_rules! level {
    ($level:ident $($features:literal)?: $($vector:ty, $name:ident)*; $n:tt; $($rows:literal)*; $most:literal) => {
        mod $level {
            use super::*;

            $(#[target_feature(enable = $features)])?
            unsafe fn rows<V: Vector, const ROWS: usize>(call: &ByRows<'_, V::Element>) {
                // SAFETY: the caller's promise.
                unsafe { super::rows::<V, ROWS>(call) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn along<V: Vector, const N: usize, const HOW: usize>(call: &Along<'_, V::Element>) {
                // SAFETY: the caller's promise.
                unsafe { super::along::<V, N, HOW>(call) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn across<V: Vector, const N: usize, const HOW: usize>(call: &Across<'_, V::Element>) {
                // SAFETY: the caller's promise.
                unsafe { super::across::<V, N, HOW>(call) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn down<V: Vector, const N: usize, const WIDTH: usize>(call: &Across<'_, V::Element>) {
                // SAFETY: the caller's promise.
                unsafe { super::down::<V, N, WIDTH>(call) }
            }

            struct Of<V>(std::marker::PhantomData<V>);
            impl<V: Vector> Of<V> {
                const DIRECT: Direct<V::Element> = Direct {
                    lanes: V::LANES,
                    rows: &[$(rows::<V, $rows>),*],
                    along: [sums!(along V WHOLE $n), sums!(along V PARTS $n), sums!(along V APART $n)],
                    across: [sums!(across V WHOLE $n), sums!(across V PARTS $n)],
                    down: [sums!(down V ONE $n), sums!(down V TWO $n)],
                    most: $most,
                };
            }
            $(pub(super) static $name: Direct<<$vector as Vector>::Element> = Of::<$vector>::DIRECT;)*
        }
    };
}

/// A function for each number of sums.
macro_rules! sums {
    ($function:ident $vector:ident $how:ident ($($n:literal)*)) => { [$($function::<$vector, $n, $how>),*] };
}

type PlainF32 = Plain<f32>;
type PlainF64 = Plain<f64>;
level!(baseline: PlainF32, F32 PlainF64, F64; (1 2 3 4 5 6 7 8); 1 2 3 4 5 6; 4);
#[cfg(target_arch = "x86_64")]
level!(avx2 "avx2,fma": __m256, F32 __m256d, F64; (1 2 3 4 5 6 7 8); 1 2 3 4 5 6; 6);
#[cfg(target_arch = "x86_64")]
level!(avx512 "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma": __m512, F32 __m512d, F64; (1 2 3 4 5 6 7 8);
    1 2 3 4 5 6 7 8 9 10 11 12; 8);

macro_rules! multiply_directly {
    ($($element:ident $name:ident)*) => {$(
        impl MultiplyDirectly for $element {
            fn direct(isa: Isa) -> &'static Direct<$element> {
                of_level!(isa, $name)
            }
        }
    )*};
}
multiply_directly! { f32 F32 f64 F64 }
