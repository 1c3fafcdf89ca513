//! What the numbers of a program may depend on.

use std::fmt;

/// Whether results are the same bits everywhere, or may be sums in an order that a device prefers.
///
/// With [`Strict`](Numerics::Strict), the default, a result has the same bits on every device, eagerly and compiled. What
/// [`Fast`](Numerics::Fast) gives up, and where:
///
/// | what | `Fast` |
/// |---|---|
/// | matrix products of f16 and bf16 on GPUs of compute capability 8.0 or later | products are exact and summed in f32, in an order of the device's own; tensor cores may cut off bits of a sum where IEEE arithmetic rounds. The sum is rounded once, to the result's dtype |
/// | matrix products of other dtypes | nothing: f32 stays f32 (no TF32), integers wrap |
/// | everything else: pointwise ops, functions, reductions, random numbers, moves of elements | nothing: the bits of `Strict` |
/// | anything on the CPU | nothing: the bits of `Strict` |
///
/// Infinities and NaN come out where `Strict` has them, unless a sum overflows in one order only; a NaN has its canonical
/// form. On the same device, the same call has the same bits each time. What `Fast` changes may grow with versions; a report of
/// a compiled function ([`Group::remarks`](crate::compile::explain::Group::remarks)) says what it changed in it.
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
