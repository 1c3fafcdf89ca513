//! Finding the call that gives NaN.
//!
//! While a thread detects anomalies, each recorded call keeps the line that made it, and whether its result has a NaN.
//! A backward pass then checks the loss, and the gradients that each recorded call gives. Values do not change.

use crate::autograd::node::{Edge, Node};
use crate::autograd::origin::{Detecting, detect, has_nan, is_on};
use crate::autograd::tape::follow;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::local::{IncludeGuard, include};
use crate::error::{Error, Result};
use crate::profile::{Located, Place, locate_in_file};
use crate::tensor::handle::Tensor;
use std::sync::Arc;

/// Keeps the detection of anomalies on. Made by [`detect_anomaly`].
#[derive(Debug)]
#[must_use = "anomalies are detected only while the guard lives"]
pub struct AnomalyGuard {
    _detects: Detecting,
    /// The key whose calls are told where they stand.
    _places: Option<IncludeGuard>,
}

/// Finds the first NaN of a training step, until the guard is dropped: for searching, because it is slow.
///
/// A backward pass on this thread is an error if its loss has a NaN, or if a recorded call gives a gradient with one.
/// The error names the operator, and the line that called it. It comes before a leaf gets its gradient. Make the guard
/// before the forward pass: calls recorded without it are not known by line. Compiled functions run eagerly meanwhile.
///
/// ```
/// # fn main() -> opfuse::Result<()> {
/// use opfuse::{Tensor, autograd};
/// let x = Tensor::try_from([0.0f32, 4.0])?;
/// x.set_requires_grad(true)?;
/// let _guard = autograd::detect_anomaly();
/// let loss = x.sqrt()?.mul(0.0)?.sum_all()?; // the slope of a root is infinite at 0, and 0 times that is NaN
/// let error = loss.backward().expect_err("there is a NaN").to_string();
/// assert!(error.contains("SqrtBackward") && error.contains(".rs:"), "{error}");
/// # Ok(())
/// # }
/// ```
pub fn detect_anomaly() -> AnomalyGuard {
    set_detect_anomaly(true)
}

/// Like [`detect_anomaly`] if `is_on`. Otherwise anomalies are not detected until the guard is dropped, also inside
/// another guard.
pub fn set_detect_anomaly(is_on: bool) -> AnomalyGuard {
    AnomalyGuard { _detects: detect(is_on), _places: is_on.then(|| include(DispatchKey::PythonTLSSnapshot)) }
}

/// Whether this thread detects anomalies.
pub fn is_anomaly_enabled() -> bool {
    is_on()
}

/// Notes the line of a recorded call for what its backward pass records.
pub(super) fn located(node: &Node) -> Option<Located> {
    let place = node.origin.as_deref().filter(|_| is_on())?.place.as_ref()?;
    Some(locate_in_file(&place.file.as_ref().into(), place.line, None))
}

/// Refuses a loss that has a NaN, and names the first call that gave one.
pub(super) fn check_root(output: &Tensor, edge: &Edge) -> Result<()> {
    if !is_on() || !has_nan(output) {
        return Ok(());
    }
    let mut first: Option<Arc<Node>> = None;
    follow(Some(edge.clone()), |edge| {
        let node = &edge.node;
        let has_nan = node.origin.as_deref().is_some_and(|origin| origin.has_nan);
        if has_nan && first.as_ref().is_none_or(|first| node.sequence < first.sequence) {
            first = Some(node.clone());
        }
        false
    });
    let Some(first) = first else { return Ok(()) };
    Err(anomaly(&first, "the loss is NaN, and the result of this call was the first with a NaN"))
}

/// Whether one of the gradients that a recorded call is about to get has a NaN, if anomalies are detected.
pub(super) fn is_given(gradients: &[Option<Tensor>]) -> bool {
    is_on() && gradients.iter().flatten().any(has_nan)
}

/// Refuses a NaN in the gradients that a recorded call gave. `is_given` says whether it got one.
pub(super) fn check_gradients(node: &Node, is_given: bool, gradients: &[Option<Tensor>]) -> Result<()> {
    if !is_on() {
        return Ok(());
    }
    let is_nan = |gradient: &Option<Tensor>| gradient.as_ref().is_some_and(has_nan);
    let Some(operand) = gradients.iter().position(is_nan) else { return Ok(()) };
    let what = match is_given {
        true => "it got a gradient with a NaN, from a hook or from the caller".into(),
        false => format!("the gradient of operand {operand} has a NaN"),
    };
    Err(anomaly(node, what))
}

fn anomaly(node: &Node, what: impl Into<String>) -> Error {
    let place = node.origin.as_deref().and_then(|origin| origin.place.as_ref());
    Error::Anomaly { op: node.function.name(), what: what.into(), place: place.map(Place::to_string) }
}
