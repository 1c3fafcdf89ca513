//! Whether calls of this thread are recorded for gradients.
//!
//! Grad mode is on in a fresh thread. Guards switch it and put it back when dropped, so they nest; they belong to the
//! thread that made them. Inference mode also keeps new tensors out of autograd for good: they have neither its keys
//! nor the one that counts writes.

use crate::dispatch::key::local::{ExcludeGuard, below_ad_inplace_or_view};
use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;

thread_local! {
    static GRAD_MODE: Cell<bool> = const { Cell::new(true) };
    static INFERENCE_MODE: Cell<bool> = const { Cell::new(false) };
}

/// Whether calls are recorded.
#[inline]
pub fn is_grad_enabled() -> bool {
    GRAD_MODE.get()
}

/// Whether new tensors are inference tensors.
#[inline]
pub fn is_inference_mode() -> bool {
    INFERENCE_MODE.get()
}

/// Keeps grad mode on or off; made by [`no_grad`] and [`enable_grad`].
#[derive(Debug)]
#[must_use = "grad mode is switched only while the guard lives"]
pub struct GradGuard {
    before: bool,
    not_send: PhantomData<Rc<()>>,
}

/// Switches recording off: results do not require gradients.
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

/// Switches recording on again inside [`no_grad`].
pub fn enable_grad() -> GradGuard {
    set_grad_enabled(true)
}

/// Switches recording on or off, as a program computed it.
pub fn set_grad_enabled(enabled: bool) -> GradGuard {
    GradGuard { before: GRAD_MODE.replace(enabled), not_send: PhantomData }
}

impl Drop for GradGuard {
    fn drop(&mut self) {
        GRAD_MODE.set(self.before);
    }
}

/// Keeps inference mode on; made by [`inference_mode`].
#[derive(Debug)]
#[must_use = "inference mode is on only while the guard lives"]
pub struct InferenceGuard {
    before: bool,
    _grad: GradGuard,
    _below: ExcludeGuard,
}

/// Switches autograd off altogether: nothing is recorded, writes are not counted, and tensors made meanwhile stay out
/// of autograd. Cheaper than [`no_grad`].
pub fn inference_mode() -> InferenceGuard {
    let before = INFERENCE_MODE.replace(true);
    InferenceGuard { before, _grad: no_grad(), _below: below_ad_inplace_or_view() }
}

impl Drop for InferenceGuard {
    fn drop(&mut self) {
        INFERENCE_MODE.set(self.before);
    }
}
