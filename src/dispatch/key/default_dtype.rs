//! The default dtype of a thread.
//!
//! It is f32 in a new thread. Another one holds while a guard lives, and includes the key whose kernel makes calls
//! explicit that depend on it. So a thread with the usual default pays nothing.

use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::local::{IncludeGuard, include};
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::scope::{Replace, SettingGuard, ThreadSetting, thread_setting};

thread_setting! {
    /// The default dtype.
    struct DefaultDType(DType, Replace<DType>) = DType::DEFAULT_FLOAT;
}

/// The dtype of this thread's factories that are given none, and of its integers that become floating point.
#[inline]
pub fn default_dtype() -> DType {
    DefaultDType::get()
}

/// Keeps a default dtype. Made by [`set_default_dtype`].
#[derive(Debug)]
#[must_use = "the default dtype is set only while the guard lives"]
pub struct DefaultDTypeGuard {
    _dtype: SettingGuard<DefaultDType>,
    _explicit: IncludeGuard,
}

/// Sets the default dtype of this thread until the guard is dropped, as PyTorch's `torch.set_default_dtype` does for a
/// process. Factories that are given no dtype use it. Integers and bools are converted to it where a call needs
/// floating point, or where the only floating operand is a plain number.
///
/// ```
/// # fn main() -> opfuse::Result<()> {
/// use opfuse::{DType, Tensor, set_default_dtype};
/// let whole = Tensor::from_slice(&[1i64, 2], &[2])?;
/// let guard = set_default_dtype(DType::F64)?;
/// assert_eq!(whole.mul(0.1)?.to_vec::<f64>()?, [0.1, 0.2]);
/// drop(guard);
/// assert_eq!(whole.mul(0.1)?.dtype(), DType::F32);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the dtype is not floating.
pub fn set_default_dtype(dtype: DType) -> Result<DefaultDTypeGuard> {
    if !dtype.is_float() {
        let hint = "integers need no default: pass a dtype to the factory";
        return Err(Error::dtype("set_default_dtype", dtype, "a floating dtype", hint));
    }
    let _explicit = include(DispatchKey::PreDispatch);
    Ok(DefaultDTypeGuard { _dtype: DefaultDType::change(Replace(dtype)), _explicit })
}
