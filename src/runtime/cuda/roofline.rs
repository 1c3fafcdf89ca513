//! A roofline model of products: time is that of the arithmetic or of the bytes, whichever is longer.
//!
//! It only chooses what computes a product with `Numerics::Fast`, and compares its own estimates. So only ratios
//! matter: of arithmetic to memory, and of the two implementations. The device is the H200 of NVIDIA's data sheet;
//! those of compute capability 8.0 and later have similar ratios. **None of the shares was measured**: `scripts/gpu`
//! measures both implementations by `OPFUSE_CUDA_PRODUCTS`.

use crate::codegen::kernel::Source;
use crate::codegen::lower::Lowered;
use crate::codegen::product::ProductShape;
use crate::ir::DType;

/// Bytes per second of memory (data sheet).
const BANDWIDTH: f64 = 4.8e12;
/// Operations per second on 16-bit floats, on tensor cores (data sheet).
const HALF_PEAK: f64 = 989e12;
/// The same on f32, without TF32 (data sheet).
const F32_PEAK: f64 = 67e12;
/// The same on f64, on tensor cores and without (data sheet).
const F64_TENSOR_PEAK: f64 = 67e12;
const F64_PEAK: f64 = 34e12;

/// The share of that peak that cublasLt reaches (expected: 780 of 989 for large products of 16-bit floats).
const OF_CUBLASLT: f64 = 0.8;
/// The share that the kernels of `codegen::cuda` reach. Expected: `mma.sync` feeds the tensor cores of compute
/// capability 9.0 at six tenths of the speed of `wgmma`, and shared memory limits canonical chains.
const OF_OWN: f64 = 0.5;

/// Seconds of the host for a call of cublasLt (expected). Kernels of a CUDA graph take almost none, and a run with such
/// a call is no graph.
const CALL: f64 = 3e-6;

/// What computes a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Own,
    CublasLt,
}

/// The memory traffic of an epilogue candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EpilogueTraffic {
    /// Bytes of a separate pass: the product, and everything else that it reads or writes.
    pub(super) bytes: usize,
    /// Whether it is fused with the product.
    pub(super) is_fused: bool,
}

/// Seconds of a product, with its epilogue candidate if there is one.
pub(super) fn seconds(who: Who, shape: &ProductShape, epilogue: Option<EpilogueTraffic>) -> f64 {
    let &ProductShape { dtype, result, batch, m, k, n, .. } = shape;
    let [batch, m, k, n] = [batch, m, k, n].map(|size| size as f64);
    let [size, result_size] = [dtype, result].map(|dtype| dtype.size() as f64);
    let (operands, result) = (batch * (m * k + k * n) * size, batch * m * n * result_size);
    let (peak, call) = match who {
        Who::Own => (OF_OWN * own_peak(dtype), 0.0),
        Who::CublasLt => (OF_CUBLASLT * peak(dtype), CALL),
    };
    let arithmetic = 2.0 * batch * m * k * n / peak;
    let (with_product, pass) = match epilogue {
        None => (operands + result, 0.0),
        // A product that is not stored is not read either.
        Some(EpilogueTraffic { bytes, is_fused: true }) => (operands + (bytes as f64 - result).max(0.0), 0.0),
        Some(EpilogueTraffic { bytes, is_fused: false }) => (operands + result, bytes as f64 / BANDWIDTH),
    };
    arithmetic.max(with_product / BANDWIDTH) + pass + call
}

fn peak(dtype: DType) -> f64 {
    match dtype {
        DType::F16 | DType::BF16 => HALF_PEAK,
        DType::F64 => F64_TENSOR_PEAK,
        DType::F32 | DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => F32_PEAK,
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
}

fn own_peak(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => F64_PEAK,
        DType::F16
        | DType::BF16
        | DType::F32
        | DType::Bool
        | DType::U8
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64 => peak(dtype),
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
}

/// Bytes that a kernel moves as a separate pass; broadcast elements count once.
pub(super) fn bytes_of(lowered: &Lowered) -> usize {
    let (kernel, geometry) = (&lowered.kernel, &lowered.geometry);
    let sizes = || geometry.rows.iter().chain(&geometry.inner);
    let accesses = geometry.operands.iter().chain(&geometry.outputs);
    let is_memory = |access: usize| kernel.operands.get(access).is_none_or(|operand| operand.source == Source::Memory);
    let accesses = accesses.zip(kernel.dtypes()).enumerate().filter(|(access, _)| is_memory(*access));
    let bytes = accesses.map(|(_, (access, dtype))| {
        let strides = access.rows.iter().chain(&access.inner);
        let moved = sizes().zip(strides).filter(|(_, stride)| **stride != 0).map(|(size, _)| size);
        moved.product::<usize>() * dtype.size()
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square(dtype: DType, size: usize, k: usize) -> ProductShape {
        ProductShape { dtype, result: dtype, batch: 1, m: size, k, n: size, left: [0, k, 1], right: [0, size, 1] }
    }

    /// The time of our kernel relative to that of cublasLt.
    fn ratio(shape: &ProductShape, own: Option<EpilogueTraffic>, other: Option<EpilogueTraffic>) -> f64 {
        seconds(Who::Own, shape, own) / seconds(Who::CublasLt, shape, other)
    }

    #[test]
    fn large_products_are_arithmetic_and_small_ones_calls() {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            assert!(ratio(&square(dtype, 4096, 4096), None, None) > 1.5, "{dtype}");
            assert!(ratio(&square(dtype, 64, 64), None, None) < 0.1, "{dtype}");
        }
    }

    #[test]
    fn a_pass_is_saved_where_memory_is_waited_for() {
        let epilogue =
            |shape: &ProductShape, is_fused| Some(EpilogueTraffic { bytes: 3 * shape.m * shape.n * 2, is_fused });
        let thin = square(DType::BF16, 8192, 128);
        assert!(ratio(&thin, epilogue(&thin, true), epilogue(&thin, false)) < 1.0);
        let deep = square(DType::BF16, 8192, 8192);
        assert!(ratio(&deep, epilogue(&deep, true), epilogue(&deep, false)) > 1.0);
        // Both as separate passes, or both fused: cublasLt again.
        for is_fused in [false, true] {
            assert!(ratio(&deep, epilogue(&deep, is_fused), epilogue(&deep, is_fused)) > 1.0);
        }
    }
}
