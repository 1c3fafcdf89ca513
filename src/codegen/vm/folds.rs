//! Routines of folds: along the lanes of one row, and across rows with partial results per lane.

#![allow(unsafe_code, reason = "tiles are raw memory, and vector instructions are chosen at run time")]

use super::isa::Isa;
use super::routine::{TileOperand, pick};
use crate::codegen::FOLD_LANES;
use crate::codegen::fold::{self, Element, FoldOp, FoldValue, IndexFold, Visitor};
use crate::ir::Combine;
use crate::ir::scalar::Ty;

/// The arguments of a fold's routine.
///
/// A call is sound under these conditions. The partial results are [`FOLD_LANES`] values for `feed`, and `n` rounded up
/// to whole blocks for `into`; an index fold has as many indices. The operands are as in [`super::routine::Call`] and
/// overlap no partial result. The processor has the routine's instructions.
#[derive(Debug)]
pub(super) struct Feed {
    /// Partial results.
    pub(super) acc: *mut u8,
    /// Their indices; unused by folds without indices.
    pub(super) acc_index: *mut i64,
    /// The values.
    pub(super) value: TileOperand,
    /// Their indices.
    pub(super) index: TileOperand,
    /// The number of values.
    pub(super) n: usize,
    /// Position of the first value in the sequence, modulo [`FOLD_LANES`].
    pub(super) phase: usize,
}

/// The routines of one fold.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoldRoutines {
    /// Sets `n` partial results to the identity.
    pub(super) init: unsafe fn(acc: *mut u8, acc_index: *mut i64, n: usize),
    /// Combines consecutive elements of one sequence into its partial results.
    pub(super) feed: unsafe fn(&Feed),
    /// Combines one value per lane into one partial result per lane.
    pub(super) into: unsafe fn(&Feed),
    /// The combined result of [`FOLD_LANES`] partial results.
    pub(super) finish: unsafe fn(acc: *const u8, acc_index: *const i64) -> FoldValue,
}

/// The routines of a fold over values of type `ty`.
pub(super) fn routines(isa: Isa, combine: Combine, ty: Ty) -> FoldRoutines {
    struct Pick(Isa);
    impl Visitor for Pick {
        type Out = FoldRoutines;
        fn value<F: FoldOp + 'static>(self) -> FoldRoutines {
            FoldRoutines {
                init: init::<F>,
                feed: level::pick_feed::<F>(self.0),
                into: level::pick_into::<F>(self.0),
                finish: finish::<F>,
            }
        }
        fn index<F: IndexFold + 'static>(self) -> FoldRoutines {
            FoldRoutines {
                init: init_index::<F>,
                feed: level::pick_feed_index::<F>(self.0),
                into: level::pick_into_index::<F>(self.0),
                finish: finish_index::<F>,
            }
        }
    }
    fold::visit(combine, ty, Pick(isa))
}

/// # Safety
/// `acc` points to [`FOLD_LANES`] values.
unsafe fn finish<F: FoldOp>(acc: *const u8, _acc_index: *const i64) -> FoldValue {
    // SAFETY: see above.
    let mut partial = unsafe { acc.cast::<[F::Value; FOLD_LANES]>().read() };
    let mut half = FOLD_LANES / 2;
    while half > 0 {
        for lane in 0..half {
            partial[lane] = F::combine(partial[lane], partial[lane + half]);
        }
        half /= 2;
    }
    FoldValue { bits: partial[0].to_bits64(), index: 0 }
}

/// # Safety
/// `acc` and `acc_index` point to [`FOLD_LANES`] values and indices.
unsafe fn finish_index<F: IndexFold>(acc: *const u8, acc_index: *const i64) -> FoldValue {
    // SAFETY: see above.
    let (mut partial, mut index) =
        unsafe { (acc.cast::<[F::Value; FOLD_LANES]>().read(), acc_index.cast::<[i64; FOLD_LANES]>().read()) };
    let mut half = FOLD_LANES / 2;
    while half > 0 {
        for lane in 0..half {
            let other = lane + half;
            if F::wins(partial[other], index[other], partial[lane], index[lane]) {
                (partial[lane], index[lane]) = (partial[other], index[other]);
            }
        }
        half /= 2;
    }
    FoldValue { bits: partial[0].to_bits64(), index: index[0] }
}

/// # Safety
/// `acc` has room for `n` values.
unsafe fn init<F: FoldOp>(acc: *mut u8, _acc_index: *mut i64, n: usize) {
    // SAFETY: see above.
    unsafe { std::slice::from_raw_parts_mut(acc.cast::<F::Value>(), n) }.fill(F::IDENTITY);
}

/// # Safety
/// `acc` and `acc_index` have room for `n` values.
unsafe fn init_index<F: IndexFold>(acc: *mut u8, acc_index: *mut i64, n: usize) {
    // SAFETY: see above.
    unsafe {
        std::slice::from_raw_parts_mut(acc.cast::<F::Value>(), n).fill(F::WORST);
        std::slice::from_raw_parts_mut(acc_index, n).fill(i64::MAX);
    }
}

/// The element of an operand at a position. A single block holds the same element everywhere.
///
/// # Safety
/// The operand holds that element.
#[inline(always)]
unsafe fn at<T: Element>(place: TileOperand, i: usize) -> T {
    // SAFETY: see above.
    unsafe { place.ptr.cast::<T>().add(if place.step == 0 { 0 } else { i }).read() }
}

/// `LEN` elements of an operand, starting at a position.
///
/// # Safety
/// The operand holds them; `LEN` is at most a block.
#[inline(always)]
unsafe fn chunk<'a, T: Element, const LEN: usize>(place: TileOperand, i: usize) -> &'a [T; LEN] {
    // SAFETY: see above.
    unsafe { &*place.ptr.cast::<T>().add(if place.step == 0 { 0 } else { i }).cast() }
}

/// Keeps the compiler from vectorizing the loop that this is called in. Integer folds may be reordered, so it would
/// walk the chunks of a lane, which are far apart, instead of the lanes of a chunk.
#[inline(always)]
fn keep_order() {
    // SAFETY: no instruction, no memory and no register.
    unsafe { std::arch::asm!("", options(nomem, nostack, preserves_flags)) }
}

/// Instantiates the loops for one instruction set.
macro_rules! level {
    ($level:ident $(, $feature:literal)?) => {
        pub(super) mod $level {
            use crate::codegen::vm::routine::BLOCK;
            use super::super::*;

            /// # Safety
            /// See [`Feed`].
            $(#[target_feature(enable = $feature)])?
            pub(in super::super) unsafe fn feed<F: FoldOp>(call: &Feed) {
                // SAFETY: the partial results are `FOLD_LANES` values that nothing else refers to.
                let acc = unsafe { &mut *call.acc.cast::<[F::Value; FOLD_LANES]>() };
                let head = ((FOLD_LANES - call.phase) % FOLD_LANES).min(call.n);
                let chunks = (call.n - head) / FOLD_LANES;
                for i in 0..head {
                    // SAFETY: `i < n`.
                    acc[call.phase + i] = F::combine(acc[call.phase + i], unsafe { at(call.value, i) });
                }
                let mut lanes = *acc;
                for i in 0..chunks {
                    keep_order();
                    // SAFETY: the chunk ends at or before `n`.
                    let x: &[F::Value; FOLD_LANES] = unsafe { chunk(call.value, head + i * FOLD_LANES) };
                    for lane in 0..FOLD_LANES {
                        lanes[lane] = F::combine(lanes[lane], x[lane]);
                    }
                }
                *acc = lanes;
                let done = head + chunks * FOLD_LANES;
                for i in done..call.n {
                    // SAFETY: `i < n`.
                    acc[i - done] = F::combine(acc[i - done], unsafe { at(call.value, i) });
                }
            }

            /// # Safety
            /// See [`Feed`].
            $(#[target_feature(enable = $feature)])?
            pub(in super::super) unsafe fn feed_index<F: IndexFold>(call: &Feed) {
                // SAFETY: the partial results are `FOLD_LANES` values and indices that nothing else refers to.
                let (acc, acc_index) = unsafe {
                    (&mut *call.acc.cast::<[F::Value; FOLD_LANES]>(), &mut *call.acc_index.cast::<[i64; FOLD_LANES]>())
                };
                let one = |i: usize, lane: usize, acc: &mut [F::Value; FOLD_LANES], acc_index: &mut [i64; FOLD_LANES]| {
                    // SAFETY: only called for `i < n`.
                    let (value, index): (F::Value, i64) = unsafe { (at(call.value, i), at(call.index, i)) };
                    if F::wins(value, index, acc[lane], acc_index[lane]) {
                        (acc[lane], acc_index[lane]) = (value, index);
                    }
                };
                let head = ((FOLD_LANES - call.phase) % FOLD_LANES).min(call.n);
                let chunks = (call.n - head) / FOLD_LANES;
                for i in 0..head {
                    one(i, call.phase + i, acc, acc_index);
                }
                let (mut lanes, mut lanes_index) = (*acc, *acc_index);
                for i in 0..chunks {
                    // SAFETY: the chunk ends at or before `n`.
                    let (x, x_index): (&[F::Value; FOLD_LANES], &[i64; FOLD_LANES]) = unsafe {
                        (chunk(call.value, head + i * FOLD_LANES), chunk(call.index, head + i * FOLD_LANES))
                    };
                    for lane in 0..FOLD_LANES {
                        let wins = F::wins(x[lane], x_index[lane], lanes[lane], lanes_index[lane]);
                        lanes[lane] = if wins { x[lane] } else { lanes[lane] };
                        lanes_index[lane] = if wins { x_index[lane] } else { lanes_index[lane] };
                    }
                }
                (*acc, *acc_index) = (lanes, lanes_index);
                let done = head + chunks * FOLD_LANES;
                for i in done..call.n {
                    one(i, i - done, acc, acc_index);
                }
            }

            /// # Safety
            /// See [`Feed`].
            $(#[target_feature(enable = $feature)])?
            pub(in super::super) unsafe fn into<F: FoldOp>(call: &Feed) {
                for start in (0..call.n).step_by(BLOCK) {
                    let n = BLOCK.min(call.n - start);
                    // SAFETY: partial results come in whole blocks that nothing else refers to.
                    let acc = unsafe { &mut *call.acc.cast::<F::Value>().add(start).cast::<[F::Value; BLOCK]>() };
                    if n == BLOCK {
                        // SAFETY: a whole block is left.
                        let x: &[F::Value; BLOCK] = unsafe { chunk(call.value, start) };
                        for i in 0..BLOCK {
                            acc[i] = F::combine(acc[i], x[i]);
                        }
                    } else {
                        for i in 0..n {
                            // SAFETY: `start + i < n`.
                            acc[i] = F::combine(acc[i], unsafe { at(call.value, start + i) });
                        }
                    }
                }
            }

            /// # Safety
            /// See [`Feed`].
            $(#[target_feature(enable = $feature)])?
            pub(in super::super) unsafe fn into_index<F: IndexFold>(call: &Feed) {
                // SAFETY: the partial results are `n` values and indices that nothing else refers to.
                let (acc, acc_index) = unsafe {
                    (
                        std::slice::from_raw_parts_mut(call.acc.cast::<F::Value>(), call.n),
                        std::slice::from_raw_parts_mut(call.acc_index, call.n),
                    )
                };
                for i in 0..call.n {
                    // SAFETY: `i < n`.
                    let (value, index): (F::Value, i64) = unsafe { (at(call.value, i), at(call.index, i)) };
                    let wins = F::wins(value, index, acc[i], acc_index[i]);
                    acc[i] = if wins { value } else { acc[i] };
                    acc_index[i] = if wins { index } else { acc_index[i] };
                }
            }
        }
    };
}

mod level {
    use super::*;
    level!(baseline);
    #[cfg(target_arch = "x86_64")]
    level!(avx2, "avx2,fma");
    #[cfg(target_arch = "x86_64")]
    level!(avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma");

    macro_rules! pickers {
        ($($picker:ident $map:ident $bound:ident;)*) => {$(
            pub(super) fn $picker<F: $bound>(isa: Isa) -> unsafe fn(&Feed) {
                pick!(self, isa, $map::<F>)
            }
        )*};
    }
    pickers! {
        pick_feed feed FoldOp;
        pick_feed_index feed_index IndexFold;
        pick_into into FoldOp;
        pick_into_index into_index IndexFold;
    }
}
