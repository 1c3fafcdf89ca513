//! Routines between a tensor's memory and tiles: strides, narrow dtypes, gathers, iotas; and f16.

#![allow(unsafe_code, reason = "operands and outputs are raw memory with strides")]

use super::isa::Isa;
use super::operations as op;
use super::routine::{BLOCK, Routine, TileOperand, Unary, map1};
use crate::ir::DType;

/// Reads `n` elements, `stride` bytes (or units) apart, into a tile.
///
/// Sound if each of these elements is readable and aligned, and the tile has room.
pub(super) type Reader = unsafe fn(dst: *mut u8, src: *const u8, stride: usize, n: usize);

/// Writes `n` elements of a tile, `stride` bytes apart. Sound under the mirrored conditions.
pub(super) type Writer = unsafe fn(dst: *mut u8, stride: usize, src: TileOperand, n: usize);

/// Reads elements at indices. Returns an index that was out of range, if any was.
pub(super) type Gatherer = unsafe fn(&Gather) -> Option<i64>;

/// Whether one of `n` integers of an operand is zero.
pub(super) type ZeroFinder = unsafe fn(TileOperand, usize) -> bool;

/// Repeats the last of `n` elements of a tile up to the end of its block.
///
/// Sound if `n` is not 0, that many elements exist, and the tile has room for whole blocks.
pub(super) type Repeater = unsafe fn(tile: *mut u8, n: usize);

/// The arguments of a [`Gatherer`].
///
/// Sound if `dst` has room for `n` elements, `index` holds `n`, and the element of every lane is readable and aligned
/// at every index below `size`.
#[derive(Debug)]
pub(super) struct Gather {
    /// The tile.
    pub(super) dst: *mut u8,
    /// The element of the first lane at index 0.
    pub(super) src: *const u8,
    /// Bytes (or units) between lanes.
    pub(super) stride: usize,
    /// The indices, i64.
    pub(super) index: TileOperand,
    /// The number of valid indices.
    pub(super) size: usize,
    /// Bytes (or units) between indices.
    pub(super) index_stride: usize,
    /// The number of lanes.
    pub(super) n: usize,
}

/// Passes `$use` the operation that widens a dtype's storage.
macro_rules! widening {
    ($dtype:expr, $widen:ident => $use:expr) => {
        match $dtype {
            DType::Bool => {
                type $widen = op::Truth;
                $use
            }
            DType::U8 => {
                type $widen = op::WidenU8;
                $use
            }
            DType::I8 => {
                type $widen = op::WidenI8;
                $use
            }
            DType::I16 => {
                type $widen = op::WidenI16;
                $use
            }
            DType::F16 => {
                type $widen = op::WidenF16;
                $use
            }
            DType::BF16 => {
                type $widen = op::WidenBF16;
                $use
            }
            DType::I32 | DType::F32 => {
                type $widen = op::Copied<i32>;
                $use
            }
            DType::I64 | DType::F64 => {
                type $widen = op::Copied<i64>;
                $use
            }
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        }
    };
}

/// Passes `$use` the operation that converts an already rounded value to a dtype's storage.
macro_rules! narrowing {
    ($dtype:expr, $narrow:ident => $use:expr) => {
        match $dtype {
            DType::Bool => {
                type $narrow = op::Truth;
                $use
            }
            DType::U8 | DType::I8 => {
                type $narrow = op::Narrow8;
                $use
            }
            DType::I16 => {
                type $narrow = op::Narrow16;
                $use
            }
            DType::F16 => {
                type $narrow = op::NarrowF16;
                $use
            }
            DType::BF16 => {
                type $narrow = op::NarrowBF16;
                $use
            }
            DType::I32 | DType::F32 => {
                type $narrow = op::Copied<i32>;
                $use
            }
            DType::I64 | DType::F64 => {
                type $narrow = op::Copied<i64>;
                $use
            }
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        }
    };
}

/// The routines of f16: conversion instructions where the processor has them for whole vectors, else the operation.
macro_rules! halves {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {$(
        $(#[$doc])*
        pub(super) fn $name(isa: Isa) -> Routine {
            #[cfg(target_arch = "x86_64")]
            if isa == Isa::Avx512 {
                return f16_vectors::$name;
            }
            map1::<op::$op>(isa)
        }
    )*};
}
halves! {
    /// Widens f16.
    widen_f16 WidenF16;
    /// Narrows f16 values.
    narrow_f16 NarrowF16;
    /// Rounds to f16, and narrows.
    store_f16 StoreF16;
    /// Rounds to f16.
    round_f16 RoundF16;
}

/// Conversions of f16 by instructions. These quiet every NaN, so NaNs are corrected afterwards. The bits are those of
/// [`crate::ir::scalar::half_bits`].
#[cfg(target_arch = "x86_64")]
mod f16_vectors {
    use crate::codegen::vm::routine::{BLOCK, Call, TileOperand, edge};
    use crate::ir::scalar::half_bits::F16_NAN;
    use std::arch::x86_64::*;

    /// Elements of a vector.
    const WIDTH: usize = 16;
    /// The rounding mode of the instructions: to nearest, ties to even.
    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn widened(bits: __m256i) -> __m512 {
        let wide = _mm512_cvtph_ps(bits);
        let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(wide, wide);
        let bits = _mm512_cvtepu16_epi32(bits);
        let sign = _mm512_slli_epi32::<16>(_mm512_and_si512(bits, _mm512_set1_epi32(0x8000)));
        let payload = _mm512_slli_epi32::<13>(_mm512_and_si512(bits, _mm512_set1_epi32(0x7fff)));
        let infinity = _mm512_set1_epi32(0x7f80_0000);
        let nan = _mm512_or_si512(_mm512_or_si512(sign, payload), infinity);
        _mm512_mask_mov_ps(wide, is_nan, _mm512_castsi512_ps(nan))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn stored(value: __m512) -> __m256i {
        let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
        _mm256_mask_mov_epi16(_mm512_cvtps_ph::<NEAREST>(value), is_nan, _mm256_set1_epi16(F16_NAN as i16))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn narrowed(value: __m512) -> __m256i {
        let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
        let bits = _mm512_castps_si512(value);
        let sign = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(0x8000));
        let payload = _mm512_and_si512(_mm512_srli_epi32::<13>(bits), _mm512_set1_epi32(0x3ff));
        let infinity = _mm512_set1_epi32(0x7c00);
        let nan = _mm512_cvtepi32_epi16(_mm512_or_si512(_mm512_or_si512(sign, payload), infinity));
        _mm256_mask_mov_epi16(_mm512_cvtps_ph::<NEAREST>(value), is_nan, nan)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn rounded(value: __m512) -> __m512 {
        let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
        let wide = _mm512_cvtph_ps(_mm512_cvtps_ph::<NEAREST>(value));
        _mm512_mask_mov_ps(wide, is_nan, _mm512_set1_ps(f32::from_bits(0x7fc0_0000)))
    }

    macro_rules! loops {
        ($($name:ident $from:ident $load:ident $convert:ident $store:ident $to:ident;)*) => {$(
            /// # Safety
            /// See [`Call`].
            #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
            pub(super) unsafe fn $name(call: &Call) {
                let (mut out, mut a, step) = (call.dst.cast::<$to>(), call.src[0].ptr.cast::<$from>(), call.src[0].step);
                for _ in 0..call.n / BLOCK {
                    // SAFETY: a whole block exists; loads and stores need no alignment.
                    unsafe {
                        for i in (0..BLOCK).step_by(WIDTH) {
                            $store(out.add(i).cast(), $convert($load(a.add(i).cast())));
                        }
                        (out, a) = (out.add(BLOCK), a.add(step));
                    }
                }
                let n = call.n % BLOCK;
                if n > 0 {
                    let rest = Call { dst: out.cast(), src: [TileOperand { ptr: a.cast(), step }; 3], n };
                    // SAFETY: `n` elements are left in `a` and in `out`.
                    unsafe { edge(&rest, [size_of::<$from>(), 0, 0], size_of::<$to>(), $name) }
                }
            }
        )*};
    }
    loops! {
        widen_f16 u16 _mm256_loadu_si256 widened _mm512_storeu_ps f32;
        narrow_f16 f32 _mm512_loadu_ps narrowed _mm256_storeu_si256 u16;
        store_f16 f32 _mm512_loadu_ps stored _mm256_storeu_si256 u16;
        round_f16 f32 _mm512_loadu_ps rounded _mm512_storeu_ps f32;
    }
}

/// Widens contiguous elements.
pub(super) fn widen(isa: Isa, dtype: DType) -> Routine {
    if dtype == DType::F16 {
        return widen_f16(isa);
    }
    widening!(dtype, Widen => map1::<Widen>(isa))
}

/// Narrows into contiguous elements.
pub(super) fn narrow(isa: Isa, dtype: DType) -> Routine {
    if dtype == DType::F16 {
        return narrow_f16(isa);
    }
    narrowing!(dtype, Narrow => map1::<Narrow>(isa))
}

/// Rounds and narrows into contiguous elements, for dtypes with a rounding prim of their own.
pub(super) fn round_and_narrow(isa: Isa, dtype: DType) -> Option<Routine> {
    match dtype {
        DType::F16 => Some(store_f16(isa)),
        DType::BF16 => Some(map1::<op::StoreBF16>(isa)),
        // Narrowing keeps the low bits, and so does wrapping.
        DType::U8 | DType::I8 | DType::I16 => Some(narrow(isa, dtype)),
        DType::Bool | DType::I32 | DType::I64 | DType::F32 | DType::F64 => None,
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
}

/// Reads strided elements.
pub(super) fn strided(dtype: DType) -> Reader {
    widening!(dtype, Widen => read_strided::<Widen>)
}

/// Reads one element `n` times.
pub(super) fn splat(dtype: DType) -> Reader {
    widening!(dtype, Widen => read_splat::<Widen>)
}

/// Reads elements at indices.
pub(super) fn gather(dtype: DType) -> Gatherer {
    widening!(dtype, Widen => read_at::<Widen>)
}

/// Writes strided elements.
pub(super) fn scatter(dtype: DType) -> Writer {
    narrowing!(dtype, Narrow => write_strided::<Narrow>)
}

/// # Safety
/// See [`Reader`].
unsafe fn read_strided<O: Unary>(dst: *mut u8, src: *const u8, stride: usize, n: usize) {
    let dst = dst.cast::<O::Out>();
    // Copies of operands are contiguous, though the class is strided.
    if stride == size_of::<O::A>() {
        // SAFETY: the caller vouches for every element and for the tile, which nothing else refers to.
        let (dst, src) =
            unsafe { (std::slice::from_raw_parts_mut(dst, n), std::slice::from_raw_parts(src.cast::<O::A>(), n)) };
        return dst.iter_mut().zip(src).for_each(|(to, &from)| *to = O::apply(from));
    }
    // Backwards: the elements are contiguous from the last one on.
    if stride == size_of::<O::A>().wrapping_neg() && n > 0 {
        let first = src.wrapping_sub((n - 1) * size_of::<O::A>()).cast::<O::A>();
        // SAFETY: as above.
        let (dst, src) = unsafe { (std::slice::from_raw_parts_mut(dst, n), std::slice::from_raw_parts(first, n)) };
        return dst.iter_mut().zip(src.iter().rev()).for_each(|(to, &from)| *to = O::apply(from));
    }
    for i in 0..n {
        let at = src.wrapping_add(i.wrapping_mul(stride));
        // SAFETY: the caller vouches for every element and for the tile.
        unsafe { dst.add(i).write(O::apply(at.cast::<O::A>().read())) };
    }
}

/// # Safety
/// See [`Reader`]; only the first element is read.
unsafe fn read_splat<O: Unary>(dst: *mut u8, src: *const u8, _stride: usize, n: usize) {
    // SAFETY: the caller vouches for the element and for the tile.
    let (value, dst) = unsafe { (O::apply(src.cast::<O::A>().read()), std::slice::from_raw_parts_mut(dst.cast(), n)) };
    dst.fill(value);
}

/// The values of an iota; the address of `src` is the first value.
///
/// # Safety
/// The tile has room for `n` i64.
pub(super) unsafe fn read_iota(dst: *mut u8, src: *const u8, stride: usize, n: usize) {
    // SAFETY: the caller vouches for the tile.
    let dst = unsafe { std::slice::from_raw_parts_mut(dst.cast::<i64>(), n) };
    for (i, value) in dst.iter_mut().enumerate() {
        *value = src.addr().wrapping_add(i.wrapping_mul(stride)) as i64;
    }
}

/// # Safety
/// See [`Gather`].
unsafe fn read_at<O: Unary>(gather: &Gather) -> Option<i64> {
    let mut outside = None;
    let dst = gather.dst.cast::<O::Out>();
    for lane in 0..gather.n {
        // SAFETY: the caller vouches for `n` indices; a single block of them holds `BLOCK`.
        let index = unsafe { index_of(gather, lane) };
        let value = if index < 0 || index >= gather.size as i64 {
            outside = Some(index);
            O::Out::default()
        } else {
            // SAFETY: the index is valid, so the element exists.
            unsafe { O::apply(place(gather, lane, index).cast::<O::A>().read()) }
        };
        // SAFETY: the tile has room.
        unsafe { dst.add(lane).write(value) };
    }
    outside
}

/// Values of an iota at indices.
///
/// # Safety
/// See [`Gather`]; `src` is not read.
pub(super) unsafe fn iota_at(gather: &Gather) -> Option<i64> {
    let mut outside = None;
    for lane in 0..gather.n {
        // SAFETY: the caller vouches for `n` indices.
        let index = unsafe { index_of(gather, lane) };
        let is_outside = index < 0 || index >= gather.size as i64;
        if is_outside {
            outside = Some(index);
        }
        let value = if is_outside { 0 } else { place(gather, lane, index).addr() as i64 };
        // SAFETY: the tile has room.
        unsafe { gather.dst.cast::<i64>().add(lane).write(value) };
    }
    outside
}

/// Repeats the last element of a tile, for elements of `size` bytes.
pub(super) fn repeater(size: usize) -> Repeater {
    match size {
        1 => repeat_last::<u8>,
        4 => repeat_last::<u32>,
        _ => repeat_last::<u64>,
    }
}

/// # Safety
/// See [`Repeater`].
unsafe fn repeat_last<T: Copy>(tile: *mut u8, n: usize) {
    // SAFETY: the caller vouches for the elements, and for the room up to the end of their block.
    unsafe {
        let end = tile.cast::<T>().add(n);
        let last = end.sub(1).read();
        (0..n.next_multiple_of(BLOCK) - n).for_each(|at| end.add(at).write(last));
    }
}

/// # Safety
/// The operand holds `n` elements, or a block that stands for all.
pub(super) unsafe fn has_zero<T: Copy + Default + PartialEq>(place: TileOperand, n: usize) -> bool {
    let n = if place.step == 0 { n.min(1) } else { n };
    // SAFETY: the caller vouches for the elements.
    (0..n).any(|lane| unsafe { place.ptr.cast::<T>().add(lane).read() } == T::default())
}

/// # Safety
/// The gather's indices exist, see [`Gather`].
#[inline(always)]
unsafe fn index_of(gather: &Gather, lane: usize) -> i64 {
    let lane = if gather.index.step == 0 { lane % BLOCK } else { lane };
    // SAFETY: passed on from the caller.
    unsafe { gather.index.ptr.cast::<i64>().add(lane).read() }
}

#[inline(always)]
fn place(gather: &Gather, lane: usize, index: i64) -> *const u8 {
    let offset = lane.wrapping_mul(gather.stride).wrapping_add((index as usize).wrapping_mul(gather.index_stride));
    gather.src.wrapping_add(offset)
}

/// # Safety
/// See [`Writer`].
unsafe fn write_strided<O: Unary>(dst: *mut u8, stride: usize, src: TileOperand, n: usize) {
    let from = src.ptr.cast::<O::A>();
    for i in 0..n {
        let lane = if src.step == 0 { 0 } else { i };
        // SAFETY: the caller vouches for every element and for the tile.
        unsafe { dst.wrapping_add(i.wrapping_mul(stride)).cast::<O::Out>().write(O::apply(from.add(lane).read())) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::vm::routine::Call;
    use crate::ir::scalar::half_bits;

    /// Runs a routine of one operand.
    fn run<A, B: Copy>(routine: Routine, a: &[A], out: B) -> Vec<B> {
        let mut out = vec![out; a.len()];
        let src = [TileOperand { ptr: a.as_ptr().cast_mut().cast(), step: BLOCK }; 3];
        // SAFETY: both hold that many elements, and the level is available.
        unsafe { routine(&Call { dst: out.as_mut_ptr().cast(), src, n: a.len() }) };
        out
    }

    #[test]
    fn f16_has_the_bits_of_its_definition() {
        let halves: Vec<u16> = (0..=u16::MAX).chain(0..7).collect();
        // Every f16, values between two f16, and NaNs of all kinds.
        let between = (0..=u32::MAX / 1021).map(|step| step * 1021);
        let near = halves.iter().flat_map(|&half| {
            let bits = half_bits::widen_f16(half).to_bits();
            [bits, bits.wrapping_add(0xfff), bits.wrapping_add(0x1000), bits.wrapping_add(0x1001)]
        });
        let floats: Vec<u32> = near.chain(between).collect();
        let of = |f: fn(f32) -> u16| floats.iter().map(|&bits| f(f32::from_bits(bits))).collect::<Vec<u16>>();
        let wide =
            |halves: &[u16]| halves.iter().map(|&half| half_bits::widen_f16(half).to_bits()).collect::<Vec<u32>>();
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            assert!(run(widen_f16(isa), &halves, 0u32) == wide(&halves), "{isa:?}");
            assert!(run(store_f16(isa), &floats, 0u16) == of(half_bits::round_f16), "{isa:?}");
            assert!(run(narrow_f16(isa), &floats, 0u16) == of(half_bits::narrow_f16), "{isa:?}");
            assert!(run(round_f16(isa), &floats, 0u32) == wide(&of(half_bits::round_f16)), "{isa:?}");
        }
    }
}
