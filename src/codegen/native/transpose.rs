//! Transposes blocks of memory, with vectors where the processor has them.
//!
//! A vector takes the same 16 bytes of several lines, one line per 16 bytes of its width. Unpacking four such vectors
//! gives four rows of neighbouring lanes. Elements of eight bytes are unpacked two by two in the same way.

#![allow(unsafe_code, reason = "SIMD moves between raw addresses")]

use crate::codegen::vm::Isa;

/// Copies `lanes` lines of `rows` elements of `bytes` bytes, `stride` bytes apart, to rows that start `pitch` elements
/// apart.
///
/// # Safety
/// Every element of the lines is alive, and so is every element of the rows, which nothing else uses. `pitch` may be
/// negative, in two's complement.
pub(in crate::codegen) unsafe fn transpose(
    from: *const u8,
    stride: usize,
    to: *mut u8,
    pitch: usize,
    bytes: usize,
    rows: usize,
    lanes: usize,
) {
    // SAFETY: passed on from the caller. In each case a copy is one machine instruction, and a level is one of this
    // processor.
    unsafe {
        match (bytes, Isa::best()) {
            #[cfg(target_arch = "x86_64")]
            (4, Isa::Avx512) => x86::avx512_lines(from, stride, to.cast(), pitch, rows, lanes),
            #[cfg(target_arch = "x86_64")]
            (8, Isa::Avx512) => x86::avx512_doubles(from, stride, to.cast(), pitch, rows, lanes),
            #[cfg(target_arch = "x86_64")]
            (4, Isa::Avx2) => x86::avx2_words(from, stride, to.cast(), pitch, rows, lanes),
            #[cfg(target_arch = "x86_64")]
            (8, Isa::Avx2) => x86::avx2_doubles(from, stride, to.cast(), pitch, rows, lanes),
            (1, _) => one_by_one::<u8>(from, stride, to, pitch, 0..rows, 0..lanes),
            (2, _) => one_by_one::<u16>(from, stride, to.cast(), pitch, 0..rows, 0..lanes),
            (4, _) => one_by_one::<u32>(from, stride, to.cast(), pitch, 0..rows, 0..lanes),
            _ => one_by_one::<u64>(from, stride, to.cast(), pitch, 0..rows, 0..lanes),
        }
    }
}

/// # Safety
/// As for [`transpose`], for some rows and lanes of elements of type `T`.
#[inline(always)]
unsafe fn one_by_one<T: Copy>(
    from: *const u8,
    stride: usize,
    to: *mut T,
    pitch: usize,
    rows: std::ops::Range<usize>,
    lanes: std::ops::Range<usize>,
) {
    for lane in lanes {
        let line = from.wrapping_add(lane.wrapping_mul(stride)).cast::<T>();
        for row in rows.clone() {
            // SAFETY: passed on from the caller.
            unsafe {
                to.wrapping_add(row.wrapping_mul(pitch).wrapping_add(lane)).write(line.add(row).read_unaligned())
            };
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::one_by_one;
    use std::arch::x86_64::*;

    /// Defines a function that transposes blocks of `$lanes` lines by `$together` elements, and the rest one by one.
    macro_rules! transposer {
        ($name:ident, $features:literal, $element:ty, lanes $lanes:literal, together $together:literal,
         |$at:ident, $apart:ident| $take:expr, |$parts:ident| $transpose:expr, $store:ident) => {
            /// # Safety
            /// As for [`super::transpose`], for these elements; the processor has the features.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $name(
                from: *const u8,
                stride: usize,
                to: *mut $element,
                pitch: usize,
                rows: usize,
                lanes: usize,
            ) {
                let (whole_rows, whole_lanes) = (rows / $together * $together, lanes / $lanes * $lanes);
                // SAFETY: passed on from the caller. Vectors are within whole lanes and rows; the rest is copied one by
                // one.
                unsafe {
                    for lane in (0..whole_lanes).step_by($lanes) {
                        let lines = from.wrapping_add(lane.wrapping_mul(stride));
                        for row in (0..whole_rows).step_by($together) {
                            let start = lines.wrapping_add(row * size_of::<$element>());
                            let $apart = stride.wrapping_mul($together);
                            let part = |line: usize| {
                                let $at = start.wrapping_add(line.wrapping_mul(stride));
                                $take
                            };
                            let $parts: [_; $together] = std::array::from_fn(part);
                            for (index, values) in $transpose.into_iter().enumerate() {
                                $store(
                                    to.wrapping_add((row + index).wrapping_mul(pitch).wrapping_add(lane)).cast(),
                                    values,
                                );
                            }
                        }
                        one_by_one(from, stride, to, pitch, whole_rows..rows, lane..lane + $lanes);
                    }
                    one_by_one(from, stride, to, pitch, 0..rows, whole_lanes..lanes);
                }
            }
        };
    }

    /// Whole cache lines, and the rest of their rows four by four. More lines are in flight than with parts of lines,
    /// which takes 0.9 of the time where they come from memory (`scripts/peers.sh --rows W11t`).
    ///
    /// # Safety
    /// As for [`super::transpose`], for elements of four bytes; the processor has AVX-512.
    pub(super) unsafe fn avx512_lines(
        from: *const u8,
        stride: usize,
        to: *mut u32,
        pitch: usize,
        rows: usize,
        lanes: usize,
    ) {
        let whole = rows / 16 * 16;
        let rest =
            (from.wrapping_add(whole * size_of::<u32>()), to.wrapping_add(whole.wrapping_mul(pitch)), rows - whole);
        // SAFETY: passed on from the caller, for the first rows and for the others.
        unsafe {
            avx512_squares(from, stride, to, pitch, whole, lanes);
            avx512_words(rest.0, stride, rest.1, pitch, rest.2, lanes);
        }
    }

    transposer!(avx512_squares, "avx512f", u32, lanes 16, together 16, |at, apart| {
        // The same place of a line of the next square: the hardware does not foresee lines that are far apart.
        _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(apart).cast());
        _mm512_loadu_ps(at.cast())
    }, |lines| {
        // Interleaves pairs of lines, then fours, within every 16 bytes; then joins these to eights and sixteens.
        let pairs: [_; 16] = std::array::from_fn(|at| {
            let (a, b) = (lines[at / 2 * 2], lines[at / 2 * 2 + 1]);
            _mm512_castps_pd(if at % 2 == 0 { _mm512_unpacklo_ps(a, b) } else { _mm512_unpackhi_ps(a, b) })
        });
        let fours: [_; 16] = std::array::from_fn(|at| {
            let (a, b) = (pairs[at / 4 * 4 + at % 4 / 2], pairs[at / 4 * 4 + at % 4 / 2 + 2]);
            if at % 2 == 0 { _mm512_unpacklo_pd(a, b) } else { _mm512_unpackhi_pd(a, b) }
        });
        let eights: [_; 16] = std::array::from_fn(|at| {
            let (a, b) = (fours[at / 8 * 8 + at % 4], fours[at / 8 * 8 + at % 4 + 4]);
            if at % 8 < 4 { _mm512_shuffle_f64x2::<0x88>(a, b) } else { _mm512_shuffle_f64x2::<0xdd>(a, b) }
        });
        let rows: [_; 16] = std::array::from_fn(|at| {
            let (a, b) = (eights[at % 8], eights[at % 8 + 8]);
            if at < 8 { _mm512_shuffle_f64x2::<0x88>(a, b) } else { _mm512_shuffle_f64x2::<0xdd>(a, b) }
        });
        rows
    }, _mm512_storeu_pd);

    transposer!(avx512_words, "avx512f,avx512dq", u32, lanes 16, together 4, |at, apart| {
        let all = _mm512_castps128_ps512(_mm_loadu_ps(at.cast()));
        let all = _mm512_insertf32x4::<1>(all, _mm_loadu_ps(at.wrapping_add(apart).cast()));
        let all = _mm512_insertf32x4::<2>(all, _mm_loadu_ps(at.wrapping_add(apart.wrapping_mul(2)).cast()));
        _mm512_insertf32x4::<3>(all, _mm_loadu_ps(at.wrapping_add(apart.wrapping_mul(3)).cast()))
    }, |parts| {
        let [a, b] = [_mm512_unpacklo_ps(parts[0], parts[1]), _mm512_unpacklo_ps(parts[2], parts[3])].map(|x| _mm512_castps_pd(x));
        let [c, d] = [_mm512_unpackhi_ps(parts[0], parts[1]), _mm512_unpackhi_ps(parts[2], parts[3])].map(|x| _mm512_castps_pd(x));
        [_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b), _mm512_unpacklo_pd(c, d), _mm512_unpackhi_pd(c, d)]
    }, _mm512_storeu_pd);

    transposer!(avx512_doubles, "avx512f,avx512dq", u64, lanes 8, together 2, |at, apart| {
        let all = _mm512_castpd128_pd512(_mm_loadu_pd(at.cast()));
        let all = _mm512_insertf64x2::<1>(all, _mm_loadu_pd(at.wrapping_add(apart).cast()));
        let all = _mm512_insertf64x2::<2>(all, _mm_loadu_pd(at.wrapping_add(apart.wrapping_mul(2)).cast()));
        _mm512_insertf64x2::<3>(all, _mm_loadu_pd(at.wrapping_add(apart.wrapping_mul(3)).cast()))
    }, |parts| [_mm512_unpacklo_pd(parts[0], parts[1]), _mm512_unpackhi_pd(parts[0], parts[1])], _mm512_storeu_pd);

    transposer!(avx2_words, "avx2", u32, lanes 8, together 4, |at, apart| {
        let low = _mm256_castps128_ps256(_mm_loadu_ps(at.cast()));
        _mm256_insertf128_ps::<1>(low, _mm_loadu_ps(at.wrapping_add(apart).cast()))
    }, |parts| {
        let [a, b] = [_mm256_unpacklo_ps(parts[0], parts[1]), _mm256_unpacklo_ps(parts[2], parts[3])].map(|x| _mm256_castps_pd(x));
        let [c, d] = [_mm256_unpackhi_ps(parts[0], parts[1]), _mm256_unpackhi_ps(parts[2], parts[3])].map(|x| _mm256_castps_pd(x));
        [_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b), _mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d)]
    }, _mm256_storeu_pd);

    transposer!(avx2_doubles, "avx2", u64, lanes 4, together 2, |at, apart| {
        let low = _mm256_castpd128_pd256(_mm_loadu_pd(at.cast()));
        _mm256_insertf128_pd::<1>(low, _mm_loadu_pd(at.wrapping_add(apart).cast()))
    }, |parts| [_mm256_unpacklo_pd(parts[0], parts[1]), _mm256_unpackhi_pd(parts[0], parts[1])], _mm256_storeu_pd);
}
