//! The [`Numerics`] of this thread's calls.
//!
//! A thread starts with [`Numerics::Strict`]. The choice is part of the key of executables for devices, so that none
//! built for one choice runs for the other.

use crate::ir::Numerics;
use crate::scope::{Replace, SettingGuard, ThreadSetting, thread_setting};

thread_setting! {
    /// The choice of this thread.
    struct ThreadNumerics(Numerics, Replace<Numerics>) = Numerics::Strict;
}

/// The current choice of this thread.
#[inline]
pub fn current_numerics() -> Numerics {
    ThreadNumerics::get()
}

/// Keeps a choice while it lives; made by [`numerics`].
#[derive(Debug)]
#[must_use = "the choice holds only while the guard lives"]
pub struct NumericsGuard {
    _choice: SettingGuard<ThreadNumerics>,
}

/// Chooses the numerics of this thread. It applies to eager calls, to compiled functions without a choice of their own
/// ([`CompileOptions::numerics`](crate::CompileOptions::numerics)), and to backward passes that this thread starts. See
/// [`Numerics`] for what changes.
///
/// ```
/// # fn main() -> opfuse::Result<()> {
/// use opfuse::{DType, Numerics, Tensor, numerics};
/// let x = Tensor::ones(&[2, 2], DType::BF16)?;
/// let strict = x.matmul(&x)?;
/// let guard = numerics(Numerics::Fast);
/// // On a GPU, tensor cores compute this; sums of ones are exact in any order.
/// let fast = x.matmul(&x)?;
/// drop(guard);
/// assert_eq!(fast.to_dtype(DType::F32)?.to_vec::<f32>()?, strict.to_dtype(DType::F32)?.to_vec::<f32>()?);
/// # Ok(())
/// # }
/// ```
pub fn numerics(numerics: Numerics) -> NumericsGuard {
    NumericsGuard { _choice: ThreadNumerics::change(Replace(numerics)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_nest_and_belong_to_a_thread() {
        assert_eq!(current_numerics(), Numerics::Strict);
        let fast = numerics(Numerics::Fast);
        {
            let _strict = numerics(Numerics::Strict);
            assert_eq!(current_numerics(), Numerics::Strict);
        }
        assert_eq!(current_numerics(), Numerics::Fast);
        let other = std::thread::spawn(current_numerics).join().expect("it only asks");
        assert_eq!(other, Numerics::Strict);
        drop(fast);
        assert_eq!(current_numerics(), Numerics::Strict);
    }
}
