//! How strictly the bits of results are determined.

use std::fmt;

/// Whether results have the same bits everywhere, or a device may sum in the order that it prefers.
///
/// With [`Strict`](Numerics::Strict), the default, a result has the same bits on every device, eagerly and compiled.
/// [`Fast`](Numerics::Fast) changes the bits of these, and of nothing else:
///
/// - Matrix products of f16 and bf16 on GPUs. Products of elements are exact, and are summed in f32 in the order of the
///   device or of cublasLt. Tensor cores may truncate a sum where IEEE arithmetic rounds. The sum is rounded once, to
///   the dtype of the result.
/// - Matrix products of f32 and f64 on GPUs, if cublasLt is found and expected to be faster. The order of the sums is
///   that of cublasLt. The precision is not reduced: f32 is summed in f32 (no TF32), and f64 in f64.
/// - A bias, `relu`, or `gelu(approximate="tanh")` that a compiled function applies to a product of cublasLt. It is
///   applied before the sum is rounded, so there is one rounding at the end instead of one after each op. The `relu` of
///   cublasLt may turn a NaN into 0.
///
/// Everything else has the bits of `Strict`: products of integers, which wrap; other pointwise epilogues of products on
/// tensor cores, which take the rounded sum; everything that is no matrix product; and everything on the CPU.
///
/// Infinities and NaN come out where `Strict` has them, with two exceptions: a sum may overflow in one order only, and
/// the `relu` of cublasLt may drop a NaN. A NaN is canonical unless cublasLt has made it.
///
/// On one device, the same call returns the same bits each time. For products of cublasLt this takes operands of equal
/// alignment, and enough memory for the algorithm that it prefers. `OPFUSE_CUDA_PRODUCTS=own` disables cublasLt.
///
/// Later versions may change more. The report of a compiled function says what was changed in it
/// ([`Group::remarks`](crate::compile::explain::Group::remarks)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Numerics {
    /// The bits of the CPU.
    #[default]
    Strict,
    /// The fastest order of the device, for the products above.
    Fast,
}

impl fmt::Display for Numerics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Numerics::Strict => "strict",
            Numerics::Fast => "fast",
        })
    }
}
