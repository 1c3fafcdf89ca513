//! Matrix products: one door to the `gemm` crate.
//!
//! f32 and f64 go there as they are, 16-bit floats through f32 with one rounding at the end, integers through a plain
//! loop that wraps. A compiled function makes the same calls with the same shapes as eager, so the bits agree; for
//! one shape they do not depend on the number of threads.

use super::array::Array;
use crate::device::{Device, pool};
use crate::error::{Error, Result};
use crate::ir::scalar::half_bits::{round_bf16, round_f16, widen_bf16, widen_f16};
use crate::ir::{DType, TensorType};

/// Multiply-adds from which a second thread pays.
const WORTH_A_THREAD: usize = 1 << 18;

/// The shape and strides of a product, in elements: batch, rows, inner, columns.
#[derive(Debug, Clone, Copy)]
struct Shape {
    batch: usize,
    m: usize,
    k: usize,
    n: usize,
    /// Strides of batch, row, column: left operand, right operand.
    left: [usize; 3],
    right: [usize; 3],
}

/// `a @ b` of 2-d operands, or of batches of them, into new memory of type `ty`.
///
/// # Errors
/// Out of memory. Shapes were checked by the op's inference.
pub(super) fn product(a: &Array, b: &Array, ty: &TensorType) -> Result<Array> {
    let mut out = Array::new(Device::CPU, ty)?;
    let shape = shape(a, b);
    match ty.dtype {
        DType::F32 => multiply::<f32>(a, b, &out, shape),
        DType::F64 => multiply::<f64>(a, b, &out, shape),
        DType::F16 | DType::BF16 => through_f32(a, b, ty, &mut out)?,
        DType::U8 => fill(&mut out, &wrapping(a, b, shape, u8::wrapping_mul, u8::wrapping_add)),
        DType::I8 => fill(&mut out, &wrapping(a, b, shape, i8::wrapping_mul, i8::wrapping_add)),
        DType::I16 => fill(&mut out, &wrapping(a, b, shape, i16::wrapping_mul, i16::wrapping_add)),
        DType::I32 => fill(&mut out, &wrapping(a, b, shape, i32::wrapping_mul, i32::wrapping_add)),
        DType::I64 => fill(&mut out, &wrapping(a, b, shape, i64::wrapping_mul, i64::wrapping_add)),
        DType::Bool => return Err(Error::unsupported("mm", DType::Bool, "a number", "convert first")),
    }
    Ok(out)
}

fn shape(a: &Array, b: &Array) -> Shape {
    let rank = a.layout.rank();
    let batch = if rank == 3 { a.layout.sizes[0] } else { 1 };
    let (m, k, n) = (a.layout.sizes[rank - 2], a.layout.sizes[rank - 1], b.layout.sizes[rank - 1]);
    Shape { batch, m, k, n, left: strides(a), right: strides(b) }
}

/// A float that the `gemm` crate multiplies.
trait Gemm: Copy + 'static {
    const ZERO: Self;
    const ONE: Self;
}
impl Gemm for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
}
impl Gemm for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
}

/// Strides of batch, row and column of an operand.
pub(super) fn strides(array: &Array) -> [usize; 3] {
    let (rank, strides) = (array.layout.rank(), &array.layout.strides);
    [if rank == 3 { strides[0] } else { 0 }, strides[rank - 2], strides[rank - 1]]
}

/// Some rows of a product of floats; strides of rows and columns count elements, those of the result are dense.
pub(super) struct Rows {
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) n: usize,
    pub(super) dst: *mut u8,
    pub(super) lhs: *mut u8,
    pub(super) strides: [usize; 2],
    pub(super) rhs: *mut u8,
    pub(super) right: [usize; 2],
}

impl Rows {
    /// Multiplies on this thread.
    ///
    /// # Safety
    /// The pointers are good for `m * k`, `k * n` and `m * n` elements of the dtype at the strides; nobody writes the
    /// operands and nobody else uses the result meanwhile.
    #[allow(unsafe_code, reason = "passes the contract of the pointers on to the library")]
    pub(super) unsafe fn run(&self, dtype: DType) {
        match dtype {
            // SAFETY: the caller's promise.
            DType::F32 => unsafe { self.multiply::<f32>(1) },
            // SAFETY: the same.
            DType::F64 => unsafe { self.multiply::<f64>(1) },
            DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F16 | DType::BF16 => {
                unreachable!("products of {dtype} are not computed in rows")
            }
        }
    }

    /// # Safety
    /// As for [`Rows::run`], of elements of type `T`.
    #[allow(unsafe_code, reason = "the library takes raw pointers")]
    unsafe fn multiply<T: Gemm>(&self, threads: usize) {
        let parallelism = if threads > 1 { gemm::Parallelism::Rayon(threads) } else { gemm::Parallelism::None };
        let &Rows { m, k, n, dst, lhs, strides: [left_row, left_column], rhs, right: [right_row, right_column] } = self;
        // SAFETY: the caller's promise; with `read_dst` false the result is not read.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                dst.cast::<T>(),
                1,
                n as isize,
                false,
                lhs.cast::<T>(),
                left_column as isize,
                left_row as isize,
                rhs.cast::<T>(),
                right_column as isize,
                right_row as isize,
                T::ZERO,
                T::ONE,
                false,
                false,
                false,
                parallelism,
            );
        }
    }
}

fn multiply<T: Gemm>(a: &Array, b: &Array, out: &Array, shape: Shape) {
    let Shape { batch, m, k, n, left, right } = shape;
    if batch * m * n == 0 {
        return;
    }
    let size = size_of::<T>();
    let one = |index: usize, threads: usize| {
        let rows = Rows {
            m,
            k,
            n,
            dst: out.ptr().wrapping_add(index * m * n * size),
            lhs: a.ptr().wrapping_add(index * left[0] * size),
            strides: [left[1], left[2]],
            rhs: b.ptr().wrapping_add(index * right[0] * size),
            right: [right[1], right[2]],
        };
        #[allow(unsafe_code, reason = "the library takes raw pointers")]
        // SAFETY: the layouts of `a` and `b` lie inside their storages, which they keep alive, and the run that calls
        // this holds the locks of shared ones, so nobody writes to them; `out` is new memory of `batch * m * n` elements
        // that only this call knows, and each index writes its own part.
        unsafe {
            rows.multiply::<T>(threads);
        }
    };
    let work = m * n * k.max(1);
    let threads = (batch * work / WORTH_A_THREAD).clamp(1, pool::num_threads());
    if batch >= threads && batch > 1 {
        pool::run(batch, threads, &|index| one(index, 1));
    } else {
        (0..batch).for_each(|index| one(index, threads));
    }
}

/// 16-bit floats: widened, multiplied in f32, rounded once.
fn through_f32(a: &Array, b: &Array, ty: &TensorType, out: &mut Array) -> Result<()> {
    let is_f16 = ty.dtype == DType::F16;
    let wide = |array: &Array| -> Result<Array> {
        let mut to = Array::new(Device::CPU, &TensorType::contiguous(DType::F32, &array.layout.sizes))?;
        let widen = if is_f16 { widen_f16 } else { widen_bf16 };
        fill(&mut to, &elements::<u16>(array).map(widen).collect::<Vec<f32>>());
        Ok(to)
    };
    let product = product(&wide(a)?, &wide(b)?, &TensorType { dtype: DType::F32, ..ty.clone() })?;
    let round = if is_f16 { round_f16 } else { round_bf16 };
    fill(out, &elements::<f32>(&product).map(round).collect::<Vec<u16>>());
    Ok(())
}

/// Integers, which wrap; row-major.
fn wrapping<T: bytemuck::Pod>(a: &Array, b: &Array, shape: Shape, mul: fn(T, T) -> T, add: fn(T, T) -> T) -> Vec<T> {
    let Shape { batch, m, k, n, .. } = shape;
    let (lhs, rhs): (Vec<T>, Vec<T>) = (elements(a).collect(), elements(b).collect());
    let mut values = vec![T::zeroed(); batch * m * n];
    for (row, to) in values.chunks_exact_mut(n.max(1)).enumerate() {
        for step in 0..k {
            let factor = lhs[row * k + step];
            let from = &rhs[(row / m * k + step) * n..][..n];
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = add(*to, mul(factor, from)));
        }
    }
    values
}

/// Overwrites new memory.
fn fill<T: bytemuck::NoUninit>(array: &mut Array, values: &[T]) {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    let storage = array.storage.get_mut().expect("new memory has one owner");
    storage.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
}

/// The elements in row-major order.
fn elements<T: bytemuck::AnyBitPattern>(array: &Array) -> impl Iterator<Item = T> + '_ {
    let layout = &array.layout;
    #[allow(unsafe_code, reason = "the lock is held by the caller")]
    // SAFETY: the run that calls this holds the locks of its inputs, and what it made itself nobody else knows.
    let bytes = unsafe { array.storage.bytes() };
    let all: &[T] = bytemuck::cast_slice(&bytes[..layout.extent() * size_of::<T>()]);
    (0..layout.numel()).map(move |mut index| {
        let mut at = layout.offset;
        for (&size, &stride) in layout.sizes.iter().zip(&layout.strides).rev() {
            at += index % size * stride;
            index /= size;
        }
        all[at]
    })
}
