//! Tiles: some rows by a few vectors of a product's result, held in registers over all steps of the inner dimension.
//!
//! Products are computed only in tiles. Each element of the result is one chain: it starts with +0.0, and for every
//! step of the inner dimension, first to last, `left * right + sum` is rounded once. If the inner dimension is cut into
//! blocks, the chain continues from the result in memory. So bits depend neither on the size of the tile nor on the
//! instruction set. A NaN is stored without sign and payload, which hardware does not define.
//!
//! The left operand is read element by element, at any strides; the right one in vectors, from rows at any distance.

#![allow(unsafe_code, reason = "SIMD primitives on raw memory")]

use super::gather::Segment;
use super::vector::{Element, Plain, Vector};
use crate::codegen::vm::Isa;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

/// The operands and result of a tile. Strides are in elements.
pub(super) struct Tile<T> {
    /// Steps of the inner dimension.
    pub(super) k: usize,
    /// The left operand, with its strides of rows and steps.
    pub(super) a: *const T,
    pub(super) a_row: usize,
    pub(super) a_step: usize,
    /// The right operand: whole vectors, one row per step.
    pub(super) b: *const T,
    pub(super) b_step: usize,
    /// Where a tile that packs writes the right operand's vectors, step by step.
    pub(super) panel: *mut T,
    /// The result, of which these columns are stored.
    pub(super) c: *mut T,
    pub(super) c_row: usize,
    pub(super) columns: usize,
    /// Whether chains start in this tile, and whether they end in it.
    pub(super) is_first: bool,
    pub(super) is_last: bool,
}

/// Computes a tile of a fixed height and width.
///
/// # Safety
/// The processor has the level of the function. `a` is valid for each row of the tile's height and each step; `b` for
/// as many vectors as the tile is wide at each step; `c` for `columns` elements of each row, which nothing else uses;
/// and `panel`, if the tile packs, for all that it reads of `b`.
pub(super) type Run<T> = unsafe fn(&Tile<T>);

/// Transposes some rows, which are `pitch` elements apart, into a panel where they are columns.
///
/// # Safety
/// The processor has the level of the function, and the pointers are valid for all that is copied.
pub(super) type Transpose<T> = unsafe fn(from: *const T, pitch: usize, to: *mut T, step: usize, depth: usize);

/// Copies rows, which are `pitch` elements apart, to panels of whole vectors, padded with zeros.
///
/// # Safety
/// As for [`Transpose`].
pub(super) type CopyPanel<T> = unsafe fn(from: *const T, pitch: usize, columns: usize, to: &Panels<T>);

/// Copies segments of columns, for each step, to rows that are `width` elements apart. The first column lies at `to`.
///
/// # Safety
/// As for [`Transpose`]. Whole vectors are stored, from the first column of each segment.
pub(super) type Gather<T> =
    unsafe fn(from: *const T, steps: &[usize], segments: &Segments<'_>, to: *mut T, width: usize);

/// Columns of windows.
pub(super) struct Segments<'a> {
    pub(super) all: &'a [Segment],
    /// The distance of the columns of a segment.
    pub(super) stride: usize,
}

/// Memory for columns of a right operand: panels of some columns, each with all steps of the inner dimension.
pub(super) struct Panels<T> {
    pub(super) to: *mut T,
    /// Columns of a panel, a multiple of a vector.
    pub(super) width: usize,
    /// Steps.
    pub(super) k: usize,
}

impl<T> Panels<T> {
    /// The start of a column.
    pub(super) fn column(&self, column: usize) -> *mut T {
        self.to.wrapping_add(column / self.width * self.width * self.k + column % self.width)
    }
}

/// The functions of an instruction set for one element type.
pub(super) struct Kernels<T: 'static> {
    /// Elements of a vector.
    pub(super) lanes: usize,
    /// Indexed by rows minus one: tiles that are two vectors wide, and tiles that are one.
    pub(super) pairs: &'static [Run<T>],
    pub(super) singles: &'static [Run<T>],
    /// The last of `pairs`, which also packs what it reads of the right operand.
    pub(super) packing: Run<T>,
    /// A single row of all columns: for a right operand with contiguous rows, and for one with
    /// contiguous columns, at the distance `b_step`. The latter needs a vector of columns at
    /// least, and only whole vectors if chains go on from the result.
    pub(super) stream: Run<T>,
    pub(super) transposed: Run<T>,
    /// Transposes a vector's lanes of rows; the depth is a multiple of `deep`.
    pub(super) transpose: Transpose<T>,
    pub(super) deep: usize,
    pub(super) copy: CopyPanel<T>,
    pub(super) gather: Gather<T>,
}

/// An element type that has kernels.
pub(super) trait Multiply: Element {
    /// The kernels of a level that this processor has.
    fn kernels(isa: Isa) -> &'static Kernels<Self>;
}

/// How many steps ahead packing prefetches.
const AHEAD: usize = 8;

#[inline(always)]
unsafe fn tile<V: Vector, const ROWS: usize, const WIDTH: usize, const PACKS: bool>(tile: &Tile<V::Element>) {
    let &Tile { k, a, a_row, a_step, mut b, b_step, mut panel, c, c_row, columns, is_first, is_last } = tile;
    // SAFETY: passed on from the caller, see `Run`. Only columns of the tile are loaded and stored.
    unsafe {
        let mut sums = [[V::zero(); WIDTH]; ROWS];
        if !is_first {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (at, sum) in sums.iter_mut().enumerate() {
                    let c = c.wrapping_add(row * c_row + at * V::LANES);
                    *sum = V::load_first(c, columns.saturating_sub(at * V::LANES));
                }
            }
        }
        // Three rows share one pointer, so that all pointers fit the registers.
        let mut a = [a, a.wrapping_add(3 * a_row), a.wrapping_add(6 * a_row), a.wrapping_add(9 * a_row)];
        for _ in 0..k {
            let mut right = [V::zero(); WIDTH];
            for (at, right) in right.iter_mut().enumerate() {
                *right = V::load(b.add(at * V::LANES));
                if PACKS {
                    V::prefetch(b.wrapping_add(AHEAD * b_step + at * V::LANES));
                    right.store(panel.add(at * V::LANES));
                }
            }
            if PACKS {
                panel = panel.wrapping_add(WIDTH * V::LANES);
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let left = V::splat(a[row / 3].wrapping_add(row % 3 * a_row));
                for (sum, &right) in sums.iter_mut().zip(&right) {
                    *sum = left.mul_add(right, *sum);
                }
            }
            for a in &mut a {
                *a = a.wrapping_add(a_step);
            }
            b = b.wrapping_add(b_step);
        }
        let mut has_nan = false;
        for sums in &sums {
            has_nan |= sums[0].has_nan(sums[WIDTH - 1]);
        }
        if is_last && has_nan {
            for sums in &mut sums {
                for sum in sums {
                    *sum = sum.canonical();
                }
            }
        }
        for (row, sums) in sums.into_iter().enumerate() {
            for (at, sum) in sums.into_iter().enumerate() {
                let c = c.wrapping_add(row * c_row + at * V::LANES);
                sum.store_first(c, columns.saturating_sub(at * V::LANES));
            }
        }
    }
}

/// Steps of the inner dimension that [`stream`] computes at a time.
const STEPS: usize = 8;

/// Goes through some rows of the right operand side by side, so that memory is read in its order.
#[inline(always)]
unsafe fn stream<V: Vector>(tile: &Tile<V::Element>) {
    let &Tile { k, a, a_step, b, b_step, c, columns, is_first, is_last, .. } = tile;
    for from in (0..k.max(1)).step_by(STEPS) {
        // SAFETY: passed on from the caller, see `Kernels`. Steps past the last are not read, and their factors are
        // unused.
        unsafe {
            let n_steps = STEPS.min(k - from);
            let mut left = [V::zero(); STEPS];
            for (step, left) in left.iter_mut().enumerate().take(n_steps) {
                *left = V::splat(a.wrapping_add((from + step) * a_step));
            }
            let b = b.wrapping_add(from * b_step);
            for column in (0..columns).step_by(V::LANES) {
                let n = columns - column;
                let starts = is_first && from == 0;
                let mut sum = if starts { V::zero() } else { V::load_first(c.wrapping_add(column), n) };
                let b = b.wrapping_add(column);
                if n_steps == STEPS && n >= V::LANES {
                    for (step, left) in left.iter().enumerate() {
                        sum = left.mul_add(V::load(b.wrapping_add(step * b_step)), sum);
                    }
                } else {
                    for (step, left) in left.iter().enumerate() {
                        if step < n_steps {
                            sum = left.mul_add(V::load_first(b.wrapping_add(step * b_step), n), sum);
                        }
                    }
                }
                if is_last && from + n_steps == k {
                    sum = sum.canonical();
                }
                sum.store_first(c.wrapping_add(column), n);
            }
        }
    }
}

/// By how many bytes of its rows the second of two chains follows the first, where rows are a multiple of [`SAME_SET`]
/// apart. Their elements at one place share a set of the cache, which has room for the rows of one chain.
const LAG: usize = 1024;
/// Bytes between lines that share a set of a first-level cache.
const SAME_SET: usize = 4096;

/// Transposes some elements of a vector of columns at a time. If chains go on from the result, there are only whole
/// vectors of columns.
#[inline(always)]
unsafe fn transposed<V: Vector>(tile: &Tile<V::Element>) {
    let columns = tile.columns;
    let mut next = 0;
    // SAFETY: passed on from the caller, see `Kernels`.
    unsafe {
        while V::CHAINS > 1 && next + 2 * V::LANES <= columns {
            chains::<V, 2>(tile, next);
            next += 2 * V::LANES;
        }
        while next < columns {
            // The last columns are computed together with some of those before.
            chains::<V, 1>(tile, next.min(columns - V::LANES));
            next += V::LANES;
        }
    }
}

/// Multiplies `N` vectors of columns, the first of which begins at `column`.
#[inline(always)]
unsafe fn chains<V: Vector, const N: usize>(tile: &Tile<V::Element>, column: usize) {
    let &Tile { k, a, a_step, b, b_step, c, is_first, is_last, .. } = tile;
    let size = size_of::<V::Element>();
    let (n_blocks, lag) = (k / V::TURNED, LAG / (V::TURNED * size));
    let lag = if (b_step * size).is_multiple_of(SAME_SET) && n_blocks > 2 * lag { lag } else { 0 };
    // SAFETY: passed on from the caller, see `Kernels`.
    unsafe {
        let mut sums = [V::zero(); N];
        let operand = |chain: usize| b.wrapping_add((column + chain * V::LANES) * b_step);
        let result = |chain: usize| c.wrapping_add(column + chain * V::LANES);
        if !is_first {
            for (chain, sum) in sums.iter_mut().enumerate() {
                *sum = V::load(result(chain));
            }
        }
        for turn in 0..n_blocks + (N - 1) * lag {
            for (chain, sum) in sums.iter_mut().enumerate() {
                let block = turn.wrapping_sub(chain * lag);
                if block < n_blocks {
                    let step = block * V::TURNED;
                    let columns = V::turn(operand(chain).wrapping_add(step), b_step);
                    for (nth, &column) in columns.as_ref().iter().enumerate() {
                        *sum = V::splat(a.wrapping_add((step + nth) * a_step)).mul_add(column, *sum);
                    }
                }
            }
        }
        let mut rows = [V::zero(); 4];
        let to = rows.as_mut_ptr().cast::<V::Element>();
        for (chain, sum) in sums.iter_mut().enumerate() {
            let turned = n_blocks * V::TURNED;
            let transposed = turned + (k - turned) / V::DEPTH * V::DEPTH;
            for step in (turned..transposed).step_by(V::DEPTH) {
                V::transpose(operand(chain).wrapping_add(step), b_step, to, V::LANES);
                for row in 0..V::DEPTH {
                    *sum = V::splat(a.wrapping_add((step + row) * a_step))
                        .mul_add(V::load(to.wrapping_add(row * V::LANES)), *sum);
                }
            }
            for step in transposed..k {
                for lane in 0..V::LANES {
                    *to.add(lane) = *operand(chain).wrapping_add(lane * b_step + step);
                }
                *sum = V::splat(a.wrapping_add(step * a_step)).mul_add(V::load(to), *sum);
            }
            let sum = if is_last { sum.canonical() } else { *sum };
            sum.store(result(chain));
        }
    }
}

#[inline(always)]
unsafe fn transpose<V: Vector>(from: *const V::Element, pitch: usize, to: *mut V::Element, step: usize, depth: usize) {
    for at in (0..depth).step_by(V::DEPTH) {
        // SAFETY: passed on from the caller, see `Transpose`.
        unsafe { V::transpose(from.add(at), pitch, to.add(at * step), step) };
    }
}

#[inline(always)]
unsafe fn copy<V: Vector>(from: *const V::Element, pitch: usize, columns: usize, panels: &Panels<V::Element>) {
    for first in (0..columns).step_by(V::BESIDE * panels.width) {
        let end = columns.min(first + V::BESIDE * panels.width);
        for step in 0..panels.k {
            let from = from.wrapping_add(step * pitch);
            for panel in (first..end).step_by(panels.width) {
                let to = panels.to.wrapping_add(panel * panels.k + step * panels.width);
                for column in (panel..end.min(panel + panels.width)).step_by(V::LANES) {
                    let from = from.wrapping_add(column);
                    V::prefetch(from.wrapping_add(AHEAD * pitch));
                    // SAFETY: passed on from the caller, see `CopyPanel`. Panels have whole vectors.
                    unsafe { V::load_first(from, end - column).store(to.wrapping_add(column - panel)) };
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn gather<V: Vector>(
    from: *const V::Element,
    steps: &[usize],
    segments: &Segments<'_>,
    to: *mut V::Element,
    width: usize,
) {
    let stride = segments.stride;
    for (row, &step) in steps.iter().enumerate() {
        let (from, to) = (from.wrapping_add(step), to.wrapping_add(row * width));
        for &Segment { column, length, offset } in segments.all {
            let from = from.wrapping_add(offset);
            // SAFETY: passed on from the caller, see `Gather`.
            unsafe {
                let lanes = if stride == 1 { V::load_first(from, length) } else { V::load_every(from, stride, length) };
                lanes.store(to.wrapping_add(column));
            }
        }
    }
}

/// An instruction set: instances of the functions above that may use its instructions.
macro_rules! level {
    ($level:ident $($features:literal)?: $($vector:ident $name:ident)*; $($rows:literal)* to $most:literal) => {
        mod $level {
            use super::*;

            $(#[target_feature(enable = $features)])?
            unsafe fn tile<V: Vector, const ROWS: usize, const WIDTH: usize, const PACKS: bool>(call: &Tile<V::Element>) {
                // SAFETY: the caller's promise.
                unsafe { super::tile::<V, ROWS, WIDTH, PACKS>(call) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn transpose<V: Vector>(from: *const V::Element, pitch: usize, to: *mut V::Element, step: usize, depth: usize) {
                // SAFETY: the caller's promise.
                unsafe { super::transpose::<V>(from, pitch, to, step, depth) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn copy<V: Vector>(from: *const V::Element, pitch: usize, columns: usize, to: &Panels<V::Element>) {
                // SAFETY: the caller's promise.
                unsafe { super::copy::<V>(from, pitch, columns, to) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn gather<V: Vector>(from: *const V::Element, steps: &[usize], segments: &Segments<'_>, to: *mut V::Element, width: usize) {
                // SAFETY: the caller's promise.
                unsafe { super::gather::<V>(from, steps, segments, to, width) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn stream<V: Vector>(call: &Tile<V::Element>) {
                // SAFETY: the caller's promise.
                unsafe { super::stream::<V>(call) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn transposed<V: Vector>(call: &Tile<V::Element>) {
                // SAFETY: the caller's promise.
                unsafe { super::transposed::<V>(call) }
            }

            struct Of<V>(std::marker::PhantomData<V>);
            impl<V: Vector> Of<V> {
                const KERNELS: Kernels<V::Element> = Kernels {
                    lanes: V::LANES,
                    pairs: &[$(tile::<V, $rows, 2, false>,)* tile::<V, $most, 2, false>],
                    singles: &[$(tile::<V, $rows, 1, false>,)* tile::<V, $most, 1, false>],
                    packing: tile::<V, $most, 2, true>,
                    stream: stream::<V>,
                    transposed: transposed::<V>,
                    transpose: transpose::<V>,
                    deep: V::DEPTH,
                    copy: copy::<V>,
                    gather: gather::<V>,
                };
            }
            $(pub(super) static $name: Kernels<<$vector as Vector>::Element> = Of::<$vector>::KERNELS;)*
        }
    };
}

type PlainF32 = Plain<f32>;
type PlainF64 = Plain<f64>;
level!(baseline: PlainF32 F32 PlainF64 F64; 1 2 3 4 5 to 6);
#[cfg(target_arch = "x86_64")]
level!(avx2 "avx2,fma": __m256 F32 __m256d F64; 1 2 3 4 5 to 6);
#[cfg(target_arch = "x86_64")]
level!(avx512 "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma": __m512 F32 __m512d F64; 1 2 3 4 5 6 7 8 9 10 11 to 12);

/// The static of this name in the module of an instruction set.
macro_rules! of_level {
    ($isa:expr, $name:ident) => {
        match $isa {
            Isa::Baseline => &baseline::$name,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &avx2::$name,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => &avx512::$name,
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => &baseline::$name,
        }
    };
}
pub(super) use of_level;

macro_rules! multiply {
    ($($element:ident $name:ident)*) => {$(
        impl Multiply for $element {
            fn kernels(isa: Isa) -> &'static Kernels<$element> {
                of_level!(isa, $name)
            }
        }
    )*};
}
multiply! { f32 F32 f64 F64 }
