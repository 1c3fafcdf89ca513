//! Routines between memory as a tensor has it and tiles: strides, narrow storage, gathers, iotas.

#![allow(unsafe_code, reason = "operands and outputs are raw memory with strides")]

use super::isa::Isa;
use super::operations as op;
use super::routine::{BLOCK, Place, Routine, Unary, map1};
use crate::ir::DType;

/// Reads `n` elements, `stride` bytes (or units) apart, into a tile.
///
/// Sound if every one of these elements is readable and aligned, and the tile has room.
pub(super) type Reader = unsafe fn(dst: *mut u8, src: *const u8, stride: usize, n: usize);

/// Writes `n` elements of a tile, `stride` bytes apart. Sound under the mirrored conditions.
pub(super) type Writer = unsafe fn(dst: *mut u8, stride: usize, src: Place, n: usize);

/// Reads elements at indices; returns one that was outside.
pub(super) type Gatherer = unsafe fn(&Gather) -> Option<i64>;

/// The arguments of a [`Gatherer`].
///
/// Sound if `dst` has room for `n` elements, `index` holds `n`, and the element of every lane at every index below
/// `size` is readable and aligned.
#[derive(Debug)]
pub(super) struct Gather {
    /// The tile.
    pub(super) dst: *mut u8,
    /// The element of the first lane at index 0.
    pub(super) src: *const u8,
    /// Bytes (or units) from lane to lane.
    pub(super) stride: usize,
    /// The indices, i64.
    pub(super) index: Place,
    /// The number of legal indices.
    pub(super) size: usize,
    /// Bytes (or units) from index to index.
    pub(super) index_stride: usize,
    /// The number of lanes.
    pub(super) n: usize,
}

/// Gives `$use` the operation that widens a dtype's storage.
macro_rules! widening {
    ($dtype:expr, $widen:ident => $use:expr) => {
        match $dtype {
            DType::Bool => {
                type $widen = op::Copied<u8>;
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
        }
    };
}

/// Gives `$use` the operation that makes a dtype's storage of an already rounded value.
macro_rules! narrowing {
    ($dtype:expr, $narrow:ident => $use:expr) => {
        match $dtype {
            DType::Bool => {
                type $narrow = op::Copied<u8>;
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
        }
    };
}

/// Widens contiguous elements.
pub(super) fn widen(isa: Isa, dtype: DType) -> Routine {
    widening!(dtype, Widen => map1::<Widen>(isa))
}

/// Narrows into contiguous elements.
pub(super) fn narrow(isa: Isa, dtype: DType) -> Routine {
    narrowing!(dtype, Narrow => map1::<Narrow>(isa))
}

/// Rounds and narrows into contiguous elements, for dtypes that have a rounding prim of their own.
pub(super) fn round_and_narrow(isa: Isa, dtype: DType) -> Option<Routine> {
    match dtype {
        DType::F16 => Some(map1::<op::StoreF16>(isa)),
        DType::BF16 => Some(map1::<op::StoreBF16>(isa)),
        // Narrowing keeps the low bits, and these are all that wrapping keeps.
        DType::U8 | DType::I8 | DType::I16 => Some(narrow(isa, dtype)),
        DType::Bool | DType::I32 | DType::I64 | DType::F32 | DType::F64 => None,
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

/// The values of an iota; the address of `src` is the first.
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
            // SAFETY: the index is legal, so the element is there.
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

/// # Safety
/// The gather's indices are there, see [`Gather`].
#[inline(always)]
unsafe fn index_of(gather: &Gather, lane: usize) -> i64 {
    let lane = if gather.index.step == 0 { lane % BLOCK } else { lane };
    // SAFETY: the caller vouches for it.
    unsafe { gather.index.ptr.cast::<i64>().add(lane).read() }
}

#[inline(always)]
fn place(gather: &Gather, lane: usize, index: i64) -> *const u8 {
    let offset = lane.wrapping_mul(gather.stride).wrapping_add((index as usize).wrapping_mul(gather.index_stride));
    gather.src.wrapping_add(offset)
}

/// # Safety
/// See [`Writer`].
unsafe fn write_strided<O: Unary>(dst: *mut u8, stride: usize, src: Place, n: usize) {
    let from = src.ptr.cast::<O::A>();
    for i in 0..n {
        let lane = if src.step == 0 { 0 } else { i };
        // SAFETY: the caller vouches for every element and for the tile.
        unsafe { dst.wrapping_add(i.wrapping_mul(stride)).cast::<O::Out>().write(O::apply(from.add(lane).read())) };
    }
}
