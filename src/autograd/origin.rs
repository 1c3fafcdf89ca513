//! What a recorded call remembers while its thread detects anomalies.

use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::grad_mode::no_grad;
use crate::dispatch::key::local::{exclude, is_tracing};
use crate::profile::{Place, place};
use crate::scope::{Replace, SettingGuard, ThreadSetting, thread_setting};
use crate::tensor::handle::Tensor;

thread_setting! {
    /// Whether this thread detects anomalies.
    struct Detects(bool, Replace<bool>) = false;
}

/// Keeps the detection on.
#[derive(Debug)]
pub(super) struct Detecting {
    _detects: SettingGuard<Detects>,
}

/// Makes recorded calls of this thread remember where they stand, or not, until the guard is dropped.
pub(super) fn detect(is_on: bool) -> Detecting {
    Detecting { _detects: Detects::change(Replace(is_on)) }
}

/// Whether this thread detects anomalies.
#[inline]
pub(crate) fn is_on() -> bool {
    Detects::get()
}

/// What is known of a call that was recorded while anomalies were detected.
pub(super) struct Origin {
    /// The line that made it.
    pub(super) place: Option<Place>,
    /// Whether a result has a NaN.
    pub(super) has_nan: bool,
}

impl Origin {
    /// The call in progress, with these results, if anomalies are detected.
    pub(super) fn of(results: &[&Tensor]) -> Option<Box<Origin>> {
        is_on().then(|| Box::new(Origin { place: place(), has_nan: results.iter().any(|result| has_nan(result)) }))
    }
}

/// Whether a value is known to have a NaN.
pub(super) fn has_nan(x: &Tensor) -> bool {
    if !x.dtype().is_float() || !x.has_data() || is_tracing() {
        return false;
    }
    let _unrecorded = no_grad();
    let _unseen = exclude(DispatchKey::PythonTLSSnapshot);
    // A value that cannot be read here, as in `vmap`, is not known to be NaN.
    x.detach().and_then(|x| x.isnan()?.any((), false)?.item::<bool>()).unwrap_or(false)
}
