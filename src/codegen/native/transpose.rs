//! Transposes blocks of memory, with vectors where the processor has them.
//!
//! A vector takes the same 16 bytes of several lines, one line per 16 bytes of its width. Unpacking four such vectors
//! gives four rows of neighbouring lanes. Elements of eight bytes are unpacked two by two in the same way. Elements of
//! one and two bytes are unpacked from 8 bytes of each line.

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
            #[cfg(target_arch = "x86_64")]
            (2, Isa::Avx512 | Isa::Avx2) => x86::avx2_halves(from, stride, to.cast(), pitch, rows, lanes),
            #[cfg(target_arch = "x86_64")]
            (1, Isa::Avx512 | Isa::Avx2) => x86::avx2_bytes(from, stride, to, pitch, rows, lanes),
            (1, _) => one_by_one::<u8>(from, stride, to, pitch, 0..rows, 0..lanes),
            (2, _) => one_by_one::<u16>(from, stride, to.cast(), pitch, 0..rows, 0..lanes),
            (4, _) => one_by_one::<u32>(from, stride, to.cast(), pitch, 0..rows, 0..lanes),
            _ => one_by_one::<u64>(from, stride, to.cast(), pitch, 0..rows, 0..lanes),
        }
    }
}

/// The reverse of [`transpose`]: copies `columns` lines of `lanes` elements, `pitch` elements apart, to the columns of
/// rows that are `stride` bytes apart. There are at least four columns.
///
/// # Safety
/// Every element of the lines is alive, and so is every element of the rows, which nothing else uses.
pub(in crate::codegen) unsafe fn join(
    from: *const u8,
    pitch: usize,
    to: *mut u8,
    stride: usize,
    bytes: usize,
    columns: usize,
    lanes: usize,
) {
    for at in steps(columns, 4) {
        let (from, to) = (from.wrapping_add(at * pitch * bytes), to.wrapping_add(at * bytes));
        // SAFETY: passed on from the caller; the level is one of this processor.
        unsafe {
            match (bytes, Isa::best()) {
                #[cfg(target_arch = "x86_64")]
                (4, Isa::Avx512) => x86::join_words(from.cast(), pitch, to, stride, lanes),
                #[cfg(target_arch = "x86_64")]
                (8, Isa::Avx512) => x86::join_doubles(from.cast(), pitch, to, stride, lanes),
                #[cfg(target_arch = "x86_64")]
                (2, Isa::Avx512 | Isa::Avx2) => x86::join_halves(from.cast(), pitch, to, stride, lanes),
                (1, _) => join_four::<u8>(from, pitch, to, stride, 0..lanes),
                (2, _) => join_four::<u16>(from.cast(), pitch, to, stride, 0..lanes),
                (4, _) => join_four::<u32>(from.cast(), pitch, to, stride, 0..lanes),
                _ => join_four::<u64>(from.cast(), pitch, to, stride, 0..lanes),
            }
        }
    }
}

/// Where blocks of `size` elements begin that cover `n`, at least as many. The last one may overlap the one before:
/// both copies of an element are the same.
fn steps(n: usize, size: usize) -> impl Iterator<Item = usize> {
    (0..n).step_by(size).map(move |at| at.min(n - size))
}

/// # Safety
/// As for [`join`], for four columns of type `T` and some lanes.
#[inline(always)]
unsafe fn join_four<T: Copy>(from: *const T, pitch: usize, to: *mut u8, stride: usize, lanes: std::ops::Range<usize>) {
    for lane in lanes {
        // SAFETY: passed on from the caller.
        unsafe {
            let row: [T; 4] = std::array::from_fn(|column| from.add(column * pitch + lane).read_unaligned());
            to.wrapping_add(lane.wrapping_mul(stride)).cast::<[T; 4]>().write_unaligned(row);
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
    use super::{join_four, one_by_one, steps};
    use std::arch::x86_64::*;

    /// Four lines as columns of sixteen rows at a time.
    ///
    /// # Safety
    /// As for [`super::join`], for four columns of four bytes; the processor has the features.
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(super) unsafe fn join_words(from: *const u32, pitch: usize, to: *mut u8, stride: usize, lanes: usize) {
        let whole = lanes / 16 * 16;
        // SAFETY: passed on from the caller. Vectors are within whole lanes.
        unsafe {
            for lane in (0..whole).step_by(16) {
                let [a, b, c, d]: [__m512; 4] =
                    std::array::from_fn(|column| _mm512_loadu_ps(from.add(column * pitch + lane).cast()));
                let low = [_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d)].map(|x| _mm512_castps_pd(x));
                let high = [_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d)].map(|x| _mm512_castps_pd(x));
                // Every 16 bytes are a row: those of the first vector are the rows 0, 4, 8 and 12.
                let rows = [
                    _mm512_unpacklo_pd(low[0], low[1]),
                    _mm512_unpackhi_pd(low[0], low[1]),
                    _mm512_unpacklo_pd(high[0], high[1]),
                    _mm512_unpackhi_pd(high[0], high[1]),
                ];
                for (first, rows) in rows.into_iter().enumerate() {
                    let row = |nth: usize| to.wrapping_add((lane + first + 4 * nth).wrapping_mul(stride)).cast();
                    _mm_storeu_pd(row(0), _mm512_castpd512_pd128(rows));
                    _mm_storeu_pd(row(1), _mm512_extractf64x2_pd::<1>(rows));
                    _mm_storeu_pd(row(2), _mm512_extractf64x2_pd::<2>(rows));
                    _mm_storeu_pd(row(3), _mm512_extractf64x2_pd::<3>(rows));
                }
            }
            join_four(from, pitch, to, stride, whole..lanes);
        }
    }

    /// Four lines as columns of eight rows at a time.
    ///
    /// # Safety
    /// As for [`super::join`], for four columns of eight bytes; the processor has the features.
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(super) unsafe fn join_doubles(from: *const u64, pitch: usize, to: *mut u8, stride: usize, lanes: usize) {
        let whole = lanes / 8 * 8;
        // SAFETY: passed on from the caller. Vectors are within whole lanes.
        unsafe {
            for lane in (0..whole).step_by(8) {
                let [a, b, c, d]: [__m512d; 4] =
                    std::array::from_fn(|column| _mm512_loadu_pd(from.add(column * pitch + lane).cast()));
                // Every 16 bytes are half a row.
                let halves = [
                    [_mm512_unpacklo_pd(a, b), _mm512_unpacklo_pd(c, d)],
                    [_mm512_unpackhi_pd(a, b), _mm512_unpackhi_pd(c, d)],
                ];
                for (first, [low, high]) in halves.into_iter().enumerate() {
                    for (at, half) in [low, high].into_iter().enumerate() {
                        let row = |nth: usize| to.wrapping_add((lane + first + 2 * nth).wrapping_mul(stride));
                        let place = |nth: usize| row(nth).cast::<f64>().wrapping_add(2 * at);
                        _mm_storeu_pd(place(0), _mm512_castpd512_pd128(half));
                        _mm_storeu_pd(place(1), _mm512_extractf64x2_pd::<1>(half));
                        _mm_storeu_pd(place(2), _mm512_extractf64x2_pd::<2>(half));
                        _mm_storeu_pd(place(3), _mm512_extractf64x2_pd::<3>(half));
                    }
                }
            }
            join_four(from, pitch, to, stride, whole..lanes);
        }
    }

    /// Four lines as columns of sixteen rows at a time.
    ///
    /// # Safety
    /// As for [`super::join`], for four columns of two bytes; the processor has the features.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn join_halves(from: *const u16, pitch: usize, to: *mut u8, stride: usize, lanes: usize) {
        let whole = lanes / 16 * 16;
        // SAFETY: passed on from the caller. Vectors are within whole lanes.
        unsafe {
            for lane in (0..whole).step_by(16) {
                let [a, b, c, d]: [__m256i; 4] =
                    std::array::from_fn(|column| _mm256_loadu_si256(from.add(column * pitch + lane).cast()));
                let low = [_mm256_unpacklo_epi16(a, b), _mm256_unpacklo_epi16(c, d)];
                let high = [_mm256_unpackhi_epi16(a, b), _mm256_unpackhi_epi16(c, d)];
                // Every 8 bytes are a row: those of the first vector are the rows 0, 1, 8 and 9.
                let rows = [
                    _mm256_unpacklo_epi32(low[0], low[1]),
                    _mm256_unpackhi_epi32(low[0], low[1]),
                    _mm256_unpacklo_epi32(high[0], high[1]),
                    _mm256_unpackhi_epi32(high[0], high[1]),
                ];
                for (pair, rows) in rows.into_iter().enumerate() {
                    let halves = [_mm256_castsi256_si128(rows), _mm256_extracti128_si256::<1>(rows)];
                    for (half, rows) in halves.into_iter().enumerate() {
                        let row = |nth: usize| {
                            to.wrapping_add((lane + 8 * half + 2 * pair + nth).wrapping_mul(stride)).cast::<f64>()
                        };
                        _mm_storel_pd(row(0), _mm_castsi128_pd(rows));
                        _mm_storeh_pd(row(1), _mm_castsi128_pd(rows));
                    }
                }
            }
            join_four(from, pitch, to, stride, whole..lanes);
        }
    }

    /// The first 8 bytes of four lines.
    ///
    /// # Safety
    /// They are alive, and the processor has AVX2.
    #[target_feature(enable = "avx2")]
    unsafe fn eights(at: *const u8, apart: usize) -> __m256i {
        let line = |nth: usize| at.wrapping_add(apart.wrapping_mul(nth)).cast();
        // SAFETY: passed on from the caller.
        let [a, b, c, d] = unsafe { [0, 1, 2, 3].map(|nth| _mm_loadl_epi64(line(nth))) };
        _mm256_set_m128i(_mm_unpacklo_epi64(c, d), _mm_unpacklo_epi64(a, b))
    }

    /// Defines a function that transposes blocks of `$lanes` lines by `$together` elements, which may overlap. Fewer
    /// are copied one by one.
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
                // SAFETY: passed on from the caller. Vectors are within the rows and lanes.
                unsafe {
                    if rows < $together || lanes < $lanes {
                        return one_by_one(from, stride, to, pitch, 0..rows, 0..lanes);
                    }
                    for lane in steps(lanes, $lanes) {
                        let lines = from.wrapping_add(lane.wrapping_mul(stride));
                        for row in steps(rows, $together) {
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
                    }
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
        // Fewer than four are copied together with some of the rows before.
        let first = whole.min(rows.saturating_sub(4));
        let rest = (from.wrapping_add(first * size_of::<u32>()), to.wrapping_add(first.wrapping_mul(pitch)));
        // SAFETY: passed on from the caller, for the first rows and for the others.
        unsafe {
            if whole > 0 {
                avx512_squares(from, stride, to, pitch, whole, lanes);
            }
            if whole < rows {
                avx512_words(rest.0, stride, rest.1, pitch, rows - first, lanes);
            }
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

    transposer!(avx2_halves, "avx2", u16, lanes 16, together 4, |at, apart| eights(at, apart), |parts| {
        let pairs = [
            _mm256_unpacklo_epi16(parts[0], parts[1]),
            _mm256_unpacklo_epi16(parts[2], parts[3]),
            _mm256_unpackhi_epi16(parts[0], parts[1]),
            _mm256_unpackhi_epi16(parts[2], parts[3]),
        ];
        let [a, b] = [_mm256_unpacklo_epi32(pairs[0], pairs[1]), _mm256_unpacklo_epi32(pairs[2], pairs[3])];
        let [c, d] = [_mm256_unpackhi_epi32(pairs[0], pairs[1]), _mm256_unpackhi_epi32(pairs[2], pairs[3])];
        let low = [_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)];
        [low[0], low[1], _mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d)]
    }, _mm256_storeu_si256);

    transposer!(avx2_bytes, "avx2", u8, lanes 32, together 8, |at, apart| eights(at, apart), |parts| {
        // Interleaves pairs of lines, then fours, then eights; the second eight of lines is in the upper halves.
        let pairs: [_; 8] = std::array::from_fn(|at| {
            let (a, b) = (parts[at / 2 * 2], parts[at / 2 * 2 + 1]);
            if at % 2 == 0 { _mm256_unpacklo_epi8(a, b) } else { _mm256_unpackhi_epi8(a, b) }
        });
        // For lines 0 to 3 and 4 to 7 of the first eight: elements 0 to 3, and 4 to 7; then the same of the next eight.
        let fours: [_; 8] = std::array::from_fn(|at| {
            let (a, b) = (pairs[at / 4 + at / 2 % 2 * 4], pairs[at / 4 + at / 2 % 2 * 4 + 2]);
            if at % 2 == 0 { _mm256_unpacklo_epi16(a, b) } else { _mm256_unpackhi_epi16(a, b) }
        });
        // Elements 0 and 1, 2 and 3, 4 and 5, 6 and 7 of the first eight lines, and of the next ones.
        let eights: [_; 8] = std::array::from_fn(|at| {
            let (a, b) = (fours[at / 4 * 4 + at / 2 % 2], fours[at / 4 * 4 + at / 2 % 2 + 2]);
            if at % 2 == 0 { _mm256_unpacklo_epi32(a, b) } else { _mm256_unpackhi_epi32(a, b) }
        });
        let rows: [_; 8] = std::array::from_fn(|at| {
            let (a, b) = (eights[at / 2], eights[at / 2 + 4]);
            if at % 2 == 0 { _mm256_unpacklo_epi64(a, b) } else { _mm256_unpackhi_epi64(a, b) }
        });
        rows
    }, _mm256_storeu_si256);

    transposer!(avx2_doubles, "avx2", u64, lanes 4, together 2, |at, apart| {
        let low = _mm256_castpd128_pd256(_mm_loadu_pd(at.cast()));
        _mm256_insertf128_pd::<1>(low, _mm_loadu_pd(at.wrapping_add(apart).cast()))
    }, |parts| [_mm256_unpacklo_pd(parts[0], parts[1]), _mm256_unpackhi_pd(parts[0], parts[1])], _mm256_storeu_pd);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of rows and lanes around those of blocks.
    const SIZES: [usize; 12] = [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33, 50];

    /// Lines of some elements, as bytes, and the bytes from one to the next.
    fn lines(bytes: usize, rows: usize, lanes: usize) -> (Vec<u8>, usize) {
        let stride = (rows + 3) * bytes;
        ((0..lanes * stride).map(|at| (at * 31 % 251) as u8).collect(), stride)
    }

    #[test]
    fn every_size_is_transposed_and_joined_again() {
        for bytes in [1, 2, 4, 8] {
            for rows in SIZES {
                for lanes in SIZES {
                    let (from, stride) = lines(bytes, rows, lanes);
                    let pitch = lanes + 1;
                    let mut to = vec![0; rows * pitch * bytes];
                    // SAFETY: the lines have so many elements, and so have the rows.
                    unsafe { transpose(from.as_ptr(), stride, to.as_mut_ptr(), pitch, bytes, rows, lanes) };
                    let element = |row: usize, lane: usize| &from[lane * stride + row * bytes..][..bytes];
                    for (row, lane) in (0..rows).flat_map(|row| (0..lanes).map(move |lane| (row, lane))) {
                        assert_eq!(
                            &to[(row * pitch + lane) * bytes..][..bytes],
                            element(row, lane),
                            "{bytes} bytes, {rows} rows, {lanes} lanes, at {row}, {lane}"
                        );
                    }
                    if rows < 4 {
                        continue;
                    }
                    let mut again = vec![0; from.len()];
                    // SAFETY: the same, the other way round.
                    unsafe { join(to.as_ptr(), pitch, again.as_mut_ptr(), stride, bytes, rows, lanes) };
                    for lane in 0..lanes {
                        let line = lane * stride..lane * stride + rows * bytes;
                        assert_eq!(again[line.clone()], from[line.clone()], "{bytes} bytes, {rows} rows, lane {lane}");
                        assert!(again[line.end..(lane + 1) * stride].iter().all(|&byte| byte == 0), "past a line");
                    }
                }
            }
        }
    }
}
