//! The line of Python that calls an operator, for errors that name it.
//!
//! It is looked for only while anomalies are detected, because that takes longer than a short call.

use opfuse::{autograd, profile};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::sync::Arc;

/// Calls `work`, whose operators stand at the line of Python that calls this module.
pub fn at_caller<R>(py: Python<'_>, work: impl FnOnce() -> R) -> R {
    if !autograd::is_anomaly_enabled() {
        return work();
    }
    match caller(py) {
        Ok(Some((file, line))) => profile::at_line(&file, line, work),
        // A thread may run no Python, and an interpreter may have no frames.
        Ok(None) | Err(_) => work(),
    }
}

/// File and line of the innermost function that is none of this package.
fn caller(py: Python<'_>) -> PyResult<Option<(Arc<str>, u32)>> {
    static PACKAGE: PyOnceLock<String> = PyOnceLock::new();
    let package = PACKAGE.get_or_try_init(py, || {
        let file: String = py.import("opfuse")?.getattr("__file__")?.extract()?;
        Ok::<_, PyErr>(file.strip_suffix("__init__.py").unwrap_or(&file).to_owned())
    })?;
    let mut frame = py.import("sys")?.call_method0("_getframe")?;
    while !frame.is_none() {
        let file: String = frame.getattr("f_code")?.getattr("co_filename")?.extract()?;
        if !file.starts_with(package) {
            return Ok(Some((file.into(), frame.getattr("f_lineno")?.extract()?)));
        }
        frame = frame.getattr("f_back")?;
    }
    Ok(None)
}
