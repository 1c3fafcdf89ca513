//! 16-bit formats of floats: widened to f32 and rounded from it, in vectors.

#![allow(unsafe_code, reason = "elements of operands are raw pointers, and instructions are those of a level")]

use crate::codegen::vm::Isa;
use crate::ir::DType;
use crate::ir::scalar::half_bits::{round_bf16, round_f16, widen_bf16, widen_f16};

/// A 16-bit format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    F16,
    BF16,
}

impl Format {
    pub(super) fn of(dtype: DType) -> Option<Format> {
        match dtype {
            DType::F16 => Some(Format::F16),
            DType::BF16 => Some(Format::BF16),
            DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F32 | DType::F64 => {
                None
            }
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        }
    }

    /// Widens one element.
    pub(super) fn scalar(self) -> fn(u16) -> f32 {
        match self {
            Format::F16 => widen_f16,
            Format::BF16 => widen_bf16,
        }
    }

    /// Widens as many elements as both have.
    pub(super) fn widen(self, from: &[u16], to: &mut [f32]) {
        let n = from.len().min(to.len());
        // SAFETY: the elements are those of a slice, and the level is one of this processor.
        unsafe { self.widening()(from.as_ptr(), 1, &mut to[..n]) };
    }

    /// The best function of this processor that widens.
    pub(super) fn widening(self) -> Widen {
        match (Isa::best(), self) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, Format::BF16) => avx512::widen_bf16,
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, Format::F16) => avx512::widen_f16,
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, Format::BF16) => avx2::widen_bf16,
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, Format::F16) => avx2::widen_f16,
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

    /// The best function of this processor that splits pairs. Without vectors there is none.
    pub(super) fn splitting(self) -> Option<Split> {
        match (Isa::best(), self) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, Format::BF16) => Some(avx512::split_bf16),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, Format::F16) => Some(avx512::split_f16),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, Format::BF16) => Some(avx2::split_bf16),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, Format::F16) => Some(avx2::split_f16),
            (_, Format::BF16 | Format::F16) => None,
        }
    }

    /// The best function of this processor that rounds.
    pub(super) fn rounding(self) -> Round {
        match (Isa::best(), self) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, Format::BF16) => avx512::round_bf16,
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, Format::F16) => avx512::round_f16,
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, Format::BF16) => avx2::round_bf16,
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, Format::F16) => avx2::round_f16,
            (_, Format::BF16) => |from, to| rounded(from, to, round_bf16),
            (_, Format::F16) => |from, to| rounded(from, to, round_f16),
        }
    }
}

/// Widens elements that are some elements apart.
///
/// # Safety
/// They may be read, and the processor has the level of the function.
pub(super) type Widen = unsafe fn(from: *const u16, step: usize, to: &mut [f32]);

/// Widens pairs, which lie in the bits of `first`: the lower halves to `first`, and the upper halves to `second`.
///
/// # Safety
/// The processor has the level of the function.
pub(super) type Split = unsafe fn(first: &mut [f32], second: &mut [f32]);

/// Rounds as many elements as both have.
///
/// # Safety
/// The processor has the level of the function.
pub(super) type Round = unsafe fn(from: &[f32], to: &mut [u16]);

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

#[inline(always)]
fn split(first: &mut [f32], second: &mut [f32], widen: impl Fn(u16) -> f32) {
    for (first, second) in first.iter_mut().zip(second) {
        let pair = first.to_bits();
        (*first, *second) = (widen(pair as u16), widen((pair >> 16) as u16));
    }
}

#[inline(always)]
fn rounded(from: &[f32], to: &mut [u16], round: impl Fn(f32) -> u16) {
    to.iter_mut().zip(from).for_each(|(to, &from)| *to = round(from));
}

/// Instances of the functions above that may use the instructions of a level.
#[cfg(target_arch = "x86_64")]
macro_rules! level {
    ($level:ident $features:literal: $($widen:ident $split:ident $round:ident)*) => {
        mod $level {
            use crate::ir::scalar::half_bits;

            $(/// # Safety
            /// As for [`super::Widen`].
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $widen(from: *const u16, step: usize, to: &mut [f32]) {
                // SAFETY: passed on from the caller.
                unsafe { super::each(from, step, to, half_bits::$widen) };
            }

            /// # Safety
            /// As for [`super::Split`].
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $split(first: &mut [f32], second: &mut [f32]) {
                super::split(first, second, half_bits::$widen);
            }

            /// # Safety
            /// As for [`super::Round`].
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $round(from: &[f32], to: &mut [u16]) {
                super::rounded(from, to, half_bits::$round);
            })*
        }
    };
}
#[cfg(target_arch = "x86_64")]
level!(avx2 "avx2": widen_bf16 split_bf16 round_bf16 widen_f16 split_f16 round_f16);
#[cfg(target_arch = "x86_64")]
level!(avx512 "avx512f,avx512bw,avx512dq,avx512vl": widen_bf16 split_bf16 round_bf16 widen_f16 split_f16 round_f16);
