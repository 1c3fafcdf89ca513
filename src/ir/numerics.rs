//! What the numbers of a program may depend on.

use std::fmt;

/// Whether results are the same bits everywhere, or may be sums in an order that a device prefers.
///
/// With [`Strict`](Numerics::Strict), the default, a result has the same bits on every device, eagerly and compiled. What
/// [`Fast`](Numerics::Fast) gives up, and where:
///
/// | what | `Fast` |
/// |---|---|
/// | matrix products of f16 and bf16 on GPUs | products are exact and summed in f32, in an order of the device's or cublasLt's own; tensor cores may cut off bits of a sum where IEEE arithmetic rounds. The sum is rounded once, to the result's dtype |
/// | matrix products of f32 and f64 on GPUs, where cublasLt is found and expected to be faster | sums have an order of its own, no fewer bits: f32 is multiplied and summed in f32 (no TF32), f64 in f64 |
/// | a bias, `relu`, or `gelu(approximate="tanh")` behind a product of cublasLt in a compiled function | computed of the sum before it is rounded, so there is one rounding, at the end, and not one after each op. A `relu` that cublasLt computes may make 0 of a NaN |
/// | any other pointwise ops behind a product on tensor cores | nothing: the sum is rounded first, and they have their bits |
/// | matrix products of integers | nothing: they wrap |
/// | everything else: pointwise ops, functions, reductions, random numbers, moves of elements | nothing: the bits of `Strict` |
/// | anything on the CPU | nothing: the bits of `Strict` |
///
/// Infinities and NaN come out where `Strict` has them, unless a sum overflows in one order only, or cublasLt's `relu` takes a
/// NaN; a NaN has its canonical form but where cublasLt has made it. On the same device, the same call has the same bits each
/// time; where cublasLt computes a product, that holds for memory that is aligned alike, as it has several algorithms, and while
/// there is memory for the one it prefers. `OPFUSE_CUDA_PRODUCTS=own` keeps it from all products.
///
/// What `Fast` changes may grow with versions; a report of a compiled function
/// ([`Group::remarks`](crate::compile::explain::Group::remarks)) says what it changed in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Numerics {
    /// The bits of the CPU.
    #[default]
    Strict,
    /// What the device does fastest within the table above.
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
