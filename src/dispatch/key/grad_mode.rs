//! Grad mode and inference mode of a thread.
//!
//! Grad mode is on in a new thread. Guards switch it while they live: the youngest live guard decides, whatever the
//! order in which guards are dropped. A guard belongs to the thread that made it. In inference mode new tensors have
//! neither the autograd keys nor the key that counts writes, so they stay outside autograd for good.

use crate::dispatch::key::local::{ExcludeGuard, below_autograd};
use crate::scope::{Replace, SettingGuard, ThreadSetting, thread_setting};

thread_setting! {
    /// Grad mode.
    struct GradMode(bool, Replace<bool>) = true;
}

thread_setting! {
    /// Inference mode.
    struct InferenceMode(bool, Replace<bool>) = false;
}

/// Whether this thread records calls for gradients (grad mode).
#[inline]
pub fn is_grad_enabled() -> bool {
    GradMode::get()
}

/// Whether this thread is in inference mode, so that new tensors are inference tensors.
#[inline]
pub fn is_inference_mode() -> bool {
    InferenceMode::get()
}

/// Keeps grad mode on or off. Made by [`no_grad`], [`enable_grad`] and [`set_grad_enabled`].
#[derive(Debug)]
#[must_use = "grad mode is switched only while the guard lives"]
pub struct GradGuard {
    _mode: SettingGuard<GradMode>,
}

/// Disables grad mode on this thread until the guard is dropped: results do not require gradients.
///
/// ```
/// # fn main() -> opfuse::Result<()> {
/// use opfuse::{Tensor, autograd};
/// let w = Tensor::from_slice(&[1.0f32], &[1])?;
/// w.set_requires_grad(true)?;
/// let quiet = autograd::no_grad();
/// assert!(!(&w * 2.0)?.requires_grad());
/// drop(quiet);
/// assert!((&w * 2.0)?.requires_grad());
/// # Ok(())
/// # }
/// ```
pub fn no_grad() -> GradGuard {
    set_grad_enabled(false)
}

/// Enables grad mode on this thread until the guard is dropped, for instance inside [`no_grad`].
pub fn enable_grad() -> GradGuard {
    set_grad_enabled(true)
}

/// Sets grad mode on this thread until the guard is dropped.
pub fn set_grad_enabled(enabled: bool) -> GradGuard {
    GradGuard { _mode: GradMode::change(Replace(enabled)) }
}

/// Keeps inference mode on. Made by [`inference_mode`].
#[derive(Debug)]
#[must_use = "inference mode is on only while the guard lives"]
pub struct InferenceGuard {
    _mode: SettingGuard<InferenceMode>,
    _grad: GradGuard,
    _below: ExcludeGuard,
}

/// Enables inference mode on this thread until the guard is dropped. Calls are not recorded, and new tensors can never
/// take part in autograd: they track neither views nor writes. Other tensors still do. It costs less than [`no_grad`].
pub fn inference_mode() -> InferenceGuard {
    InferenceGuard { _mode: InferenceMode::change(Replace(true)), _grad: no_grad(), _below: below_autograd() }
}
