//! Profiles: where the time of a Python function goes.

use crate::compiled::iframe;
use crate::errors::OrRaise;
use opfuse::profile::Profile;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// What a part of a program cost. It prints as a table, and shows itself as a page in a notebook.
#[pyclass(frozen, name = "Profile", module = "opfuse")]
pub struct PyProfile(Profile);

#[pymethods]
impl PyProfile {
    /// The seconds from beginning to end.
    #[getter]
    fn wall(&self) -> f64 {
        self.0.wall.as_secs_f64()
    }

    /// The seconds of operators, kernels, captures and compilation. The rest is Python's.
    #[getter]
    fn covered(&self) -> f64 {
        self.0.covered.as_secs_f64()
    }

    /// The profile as JSON text, whose fields are in docs/profiling.md.
    fn to_json(&self) -> String {
        self.0.to_json()
    }

    /// The profile as a page.
    fn to_html(&self) -> String {
        self.0.to_html()
    }

    /// The spans as JSON text for `chrome://tracing` and Perfetto.
    fn to_chrome_trace(&self) -> String {
        self.0.to_chrome_trace()
    }

    fn _repr_html_(&self) -> String {
        iframe(&self.0.to_html())
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}

/// Calls a function, and measures what it runs on this thread: `result, profile = opfuse.profile(step, x)`.
#[pyfunction]
#[pyo3(signature = (function, /, *args, **kwargs))]
pub fn profile<'py>(
    py: Python<'py>,
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<(Bound<'py, PyAny>, PyProfile)> {
    let (result, profile) = opfuse::profile(|| function.call(args, kwargs)).or_raise(py)?;
    Ok((result?, PyProfile(profile)))
}
