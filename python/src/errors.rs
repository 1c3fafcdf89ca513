//! Exceptions: errors of the crate as Python's own classes, with the text of the crate.
//!
//! Each class is an `opfuse.Error` and one of Python's built-in classes, so that callers may catch either.

use pyo3::exceptions::{
    PyException, PyFileNotFoundError, PyIndexError, PyMemoryError, PyNotImplementedError, PyOSError, PyRuntimeError,
    PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::cell::RefCell;
use std::path::Path;

thread_local! {
    /// The exception that a Python function raised while the crate called it.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// The exception classes of the module.
pub struct Classes {
    error: Py<PyType>,
    value: Py<PyType>,
    dtype: Py<PyType>,
    index: Py<PyType>,
    memory: Py<PyType>,
    unsupported: Py<PyType>,
    file: Py<PyType>,
    missing_file: Py<PyType>,
}

static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();

impl Classes {
    fn get(py: Python<'_>) -> PyResult<&Classes> {
        CLASSES.get_or_try_init(py, || Classes::new(py))
    }

    fn new(py: Python<'_>) -> PyResult<Classes> {
        let make = |name: &str, doc: &str, bases: Bound<'_, PyTuple>| {
            let named = PyDict::new(py);
            named.set_item("__doc__", doc)?;
            named.set_item("__module__", "opfuse")?;
            let class = py.get_type::<PyType>().call1((name, bases, named))?;
            Ok::<_, PyErr>(class.cast_into::<PyType>()?.unbind())
        };
        let root = PyTuple::new(py, [py.get_type::<PyException>()])?;
        let error = make("Error", "An error of opfuse. Every exception of the package is one.", root)?;
        let derived =
            |name, doc, built_in: Bound<'_, PyType>| make(name, doc, PyTuple::new(py, [error.bind(py), &built_in])?);
        Ok(Classes {
            value: derived(
                "ArgumentError",
                "Shapes, devices or arguments that do not fit the operator.",
                py.get_type::<PyValueError>(),
            )?,
            dtype: derived(
                "DTypeError",
                "A dtype, or a type of argument, that does not fit the operator.",
                py.get_type::<PyTypeError>(),
            )?,
            index: derived("RangeError", "A dimension or an index out of its range.", py.get_type::<PyIndexError>())?,
            memory: derived(
                "OutOfMemoryError",
                "An allocation that failed or would exceed a limit.",
                py.get_type::<PyMemoryError>(),
            )?,
            unsupported: derived(
                "UnsupportedError",
                "An operator without a kernel for the call.",
                py.get_type::<PyNotImplementedError>(),
            )?,
            file: derived(
                "FileError",
                "A file that cannot be read or is of the wrong form.",
                py.get_type::<PyOSError>(),
            )?,
            missing_file: derived(
                "MissingFileError",
                "A file that is not there.",
                py.get_type::<PyFileNotFoundError>(),
            )?,
            error,
        })
    }

    fn of(&self, error: &opfuse::Error) -> &Py<PyType> {
        use opfuse::Error as E;
        match error {
            E::Broadcast { .. } | E::Shape { .. } | E::Device { .. } | E::Argument { .. } | E::Parse { .. } => {
                &self.value
            }
            E::OutOfRange { .. } | E::Index { .. } => &self.index,
            E::DType { .. } => &self.dtype,
            E::NotImplemented { .. } => &self.unsupported,
            E::OutOfMemory { .. } => &self.memory,
            E::File { path, .. } if !Path::new(path).exists() => &self.missing_file,
            E::File { .. } => &self.file,
            E::Called { error, .. } => self.of(error),
            // Errors of other kinds are rare, and none has a class of its own.
            _ => &self.error,
        }
    }
}

/// Adds the exception classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let classes = Classes::get(py)?;
    let all = [
        &classes.error,
        &classes.value,
        &classes.dtype,
        &classes.index,
        &classes.memory,
        &classes.unsupported,
        &classes.file,
        &classes.missing_file,
    ];
    all.into_iter().try_for_each(|class| module.add(class.bind(py).name()?.extract::<String>()?.as_str(), class))
}

/// The exception for an error of the crate. If a Python function raised one inside the call, it is that exception.
#[cold]
pub fn raised(py: Python<'_>, error: opfuse::Error) -> PyErr {
    if let Some(inner) = RAISED.take() {
        return inner;
    }
    match Classes::get(py) {
        Ok(classes) => PyErr::from_type(classes.of(&error).bind(py).clone(), error.to_string()),
        Err(failed) => failed,
    }
}

/// An `opfuse.DTypeError`, which is a `TypeError`.
#[cold]
pub fn type_error(py: Python<'_>, text: String) -> PyErr {
    Classes::get(py).map_or_else(|failed| failed, |classes| PyErr::from_type(classes.dtype.bind(py).clone(), text))
}

/// An `opfuse.ArgumentError`, which is a `ValueError`.
#[cold]
pub fn value_error(py: Python<'_>, text: String) -> PyErr {
    Classes::get(py).map_or_else(|failed| failed, |classes| PyErr::from_type(classes.value.bind(py).clone(), text))
}

/// Keeps the exception of a Python function, which [`raised`] finds when the crate has returned the error given here.
pub fn kept(raised: PyErr) -> opfuse::Error {
    let text = raised.to_string();
    RAISED.set(Some(raised));
    opfuse::Error::argument("function", text)
}

/// Forgets a kept exception, where a call starts that may raise one.
pub fn forget_kept() {
    RAISED.set(None);
}

/// Turns results of the crate into results of Python.
pub trait OrRaise<T> {
    /// The value, or the exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for opfuse::Result<T> {
    #[inline]
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raised(py, error))
    }
}

/// The exception for a panic of the crate, which is a bug.
#[cold]
pub fn panicked(payload: &(dyn std::any::Any + Send)) -> PyErr {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
    PyRuntimeError::new_err(format!("internal error: {text}; this is a bug in opfuse, please report it"))
}
