//! Python functions under `compile` and `vmap`, and the reports of compiled functions.

use crate::errors::{OrRaise, forget_kept, kept, value_error};
use crate::state::State;
use crate::tree::{Containers, Tree, Trees, flatten, flatten_call, flatten_once, unflatten};
use opfuse::compile::{BreakPolicy, Compiled, Explain, Flat, Function, Stance};
use opfuse::{CompileOptions, MapDims, Numerics, Randomness, Result, compile_with};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// A function that a compiled one and its programs share. Python's collector takes it away from a cycle.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<Option<Py<PyAny>>>>);

impl Shared {
    fn new(function: Py<PyAny>) -> Shared {
        Shared(Arc::new(Mutex::new(Some(function))))
    }

    pub fn get<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = || PyRuntimeError::new_err("the function was freed with a cycle of objects that it belonged to");
        kept.as_ref().map(|function| function.bind(py).clone()).ok_or_else(gone)
    }
}

/// A Python function. Its arguments are a tuple of the positional ones and a dict of the others.
pub struct PyFunction {
    function: Shared,
    name: &'static str,
    /// How results are flattened.
    flatten: fn(&Bound<'_, PyAny>) -> PyResult<Tree>,
}

impl Function<Trees> for PyFunction {
    type Output = Tree;

    fn apply(&self, inputs: &Flat) -> Result<Tree> {
        let inputs = inputs.clone().tree_unflatten::<Tree>();
        let inputs = inputs.ok_or_else(|| opfuse::Error::argument("compile", "the arguments have other parts"))?;
        called(|py| {
            let given = unflatten(py, inputs)?;
            let (positional, named) = given.extract::<(Bound<'_, PyTuple>, Bound<'_, PyDict>)>()?;
            let before = Containers::of(&given)?;
            let result = self.function.get(py)?.call(positional, Some(&named))?;
            before.check(&given)?;
            (self.flatten)(&result)
        })
    }

    fn name(&self) -> &'static str {
        self.name
    }
}

/// The name that a function has in its module. Names live as long as the process; each is kept once.
fn name_of(function: &Bound<'_, PyAny>) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let name = function.getattr("__qualname__").and_then(|name| name.extract::<String>());
    let name = name.unwrap_or_else(|_| function.get_type().to_string());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(&*name) {
        return known;
    }
    let name: &'static str = name.leak();
    names.insert(name);
    name
}

/// Runs Python inside a call of the crate. An exception is kept until that call has returned.
pub fn called<T>(call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
    Python::attach(|py| call(py).map_err(kept))
}

/// A compiled function, made by `opfuse.compile`.
#[pyclass(frozen, weakref, name = "Compiled", module = "opfuse")]
pub struct PyCompiled {
    compiled: Compiled<PyFunction, Trees>,
    pub(crate) function: Shared,
    /// Whether what the function reads besides its arguments is looked at in each call.
    is_watched: bool,
}

#[pymethods]
impl PyCompiled {
    #[new]
    #[pyo3(signature = (function, *, breaks="allow", stance="default", numerics=None, capacity=None, watch=true))]
    fn new(
        py: Python<'_>,
        function: Py<PyAny>,
        breaks: &str,
        stance: &str,
        numerics: Option<&str>,
        capacity: Option<usize>,
        watch: bool,
    ) -> PyResult<PyCompiled> {
        let mut options = CompileOptions {
            breaks: chosen(
                py,
                "breaks",
                breaks,
                &[("allow", BreakPolicy::Allow), ("error", BreakPolicy::Error), ("eager", BreakPolicy::Eager)],
            )?,
            stance: chosen(
                py,
                "stance",
                stance,
                &[
                    ("default", Stance::Default),
                    ("eager", Stance::Eager),
                    ("deferred", Stance::Deferred),
                    ("fail_on_recompile", Stance::FailOnRecompile),
                ],
            )?,
            ..CompileOptions::default()
        };
        let numbers = [("strict", Numerics::Strict), ("fast", Numerics::Fast)];
        options.numerics = numerics.map(|name| chosen(py, "numerics", name, &numbers)).transpose()?;
        options.capacity = capacity.unwrap_or(options.capacity);
        let name = name_of(function.bind(py));
        let function = Shared::new(function);
        let compiled = compile_with(PyFunction { function: function.clone(), name, flatten }, options);
        Ok(PyCompiled { compiled, function, is_watched: watch })
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut state = State::default();
        if self.is_watched {
            state.add_function(&self.function.get(py)?)?;
        }
        let inputs = flatten_call(args, kwargs, state)?;
        forget_kept();
        let output = py.detach(|| self.compiled.call(&inputs)).or_raise(py)?;
        unflatten(py, output)
    }

    /// The function that was compiled.
    #[getter]
    fn __wrapped__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.function.get(py)
    }

    /// The name of the function.
    #[getter]
    fn __name__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.function.get(py)?.getattr("__name__")
    }

    /// The name of the function in its module.
    #[getter]
    fn __qualname__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.function.get(py)?.getattr("__qualname__")
    }

    /// The report of what was compiled for the types seen last.
    fn explain(&self, py: Python<'_>) -> PyExplain {
        PyExplain(py.detach(|| self.compiled.explain()))
    }

    /// Compares the compiled graph for these arguments with its eager calls. The smallest graph that still differs, as
    /// text with the values of its inputs, or None if all bits are equal.
    #[pyo3(signature = (*args, **kwargs))]
    fn minimize(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<String>> {
        let mut state = State::default();
        if self.is_watched {
            state.add_function(&self.function.get(py)?)?;
        }
        let inputs = flatten_call(args, kwargs, state)?;
        forget_kept();
        let found = py.detach(|| self.compiled.minimize(&inputs)).or_raise(py)?;
        Ok(found.map(|repro| repro.to_string()))
    }

    /// The graph breaks so far: `(reason, count)` each.
    fn breaks(&self) -> Vec<(String, u64)> {
        self.compiled.breaks().iter().map(|found| (found.reason.to_string(), found.count)).collect()
    }

    /// How often the function was called, captured, and run eagerly or in segments.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.compiled.counts();
        let dict = PyDict::new(py);
        dict.set_item("calls", counts.calls)?;
        dict.set_item("captures", counts.captures)?;
        dict.set_item("eager", counts.eager)?;
        dict.set_item("deferred", counts.deferred)?;
        Ok(dict)
    }

    /// As a method of a class, the function is bound to its instance.
    fn __get__<'py>(
        slf: Bound<'py, Self>,
        instance: Option<Bound<'py, PyAny>>,
        _class: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match instance {
            Some(instance) if !instance.is_none() => {
                slf.py().import("types")?.getattr("MethodType")?.call1((slf, instance))
            }
            Some(_) | None => Ok(slf.into_any()),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        // A lock that is held is held by a call, so that the function is in use.
        match self.function.0.try_lock() {
            Ok(function) => visit.call(&*function),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        let function = self.function.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(function);
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("opfuse.compile({})", self.function.get(py)?.repr()?))
    }

    /// Pickled without what was compiled: another process compiles it again. A function that its module knows by name
    /// is pickled by that name, as functions are. Any other, and what a program defines itself, is pickled with the
    /// function.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        if let Some((module, name)) = slf.get().global_name(slf)? {
            let named = py.import("opfuse._functional")?.getattr("_named")?;
            return Ok((named, PyTuple::new(py, [module, name])?));
        }
        let function = slf.get().function.get(py)?;
        Ok((py.get_type::<PyCompiled>().into_any(), PyTuple::new(py, [function])?))
    }
}

impl PyCompiled {
    /// The module and the qualified name that this object is found under, if there are such. Another process has
    /// another main module.
    fn global_name<'py>(&self, slf: &Bound<'py, Self>) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let py = slf.py();
        let function = self.function.get(py)?;
        let (Ok(module), Ok(name)) = (function.getattr("__module__"), function.getattr("__qualname__")) else {
            return Ok(None);
        };
        if module.eq("__main__")? {
            return Ok(None);
        }
        let named = py.import("opfuse._functional")?.getattr("_named")?;
        let is_this = named.call1((&module, &name)).is_ok_and(|found| found.is(slf));
        Ok(is_this.then_some((module, name)))
    }
}

/// A page inside a notebook.
pub fn iframe(page: &str) -> String {
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    format!("<iframe srcdoc=\"{page}\" style=\"width: 100%; height: 480px; border: 0\"></iframe>")
}

/// The value of a name among `choices`.
fn chosen<T: Copy>(py: Python<'_>, what: &str, name: &str, choices: &[(&str, T)]) -> PyResult<T> {
    let found = choices.iter().find(|(own, _)| *own == name).map(|(_, choice)| *choice);
    found.ok_or_else(|| {
        let all: Vec<String> = choices.iter().map(|(own, _)| format!("{own:?}")).collect();
        value_error(py, format!("{what}={name:?} is none of {}", all.join(", ")))
    })
}

/// The report of a compiled function. It prints as text, and shows itself as a page in a notebook.
#[pyclass(frozen, name = "Explain", module = "opfuse")]
pub struct PyExplain(pub Explain);

#[pymethods]
impl PyExplain {
    /// The number of kernels if each operator ran alone.
    #[getter]
    fn kernels_before(&self) -> usize {
        self.0.kernels_before
    }

    /// The number of kernels that run.
    #[getter]
    fn kernels_after(&self) -> usize {
        self.0.kernels_after
    }

    /// The bytes moved if each operator ran alone.
    #[getter]
    fn bytes_before(&self) -> usize {
        self.0.bytes_before
    }

    /// The bytes that the kernels move.
    #[getter]
    fn bytes_after(&self) -> usize {
        self.0.bytes_after
    }

    /// The most bytes that values of a call take at a time. Results count, inputs do not.
    #[getter]
    fn peak_bytes(&self) -> usize {
        self.0.peak_bytes
    }

    /// Why the function runs eagerly, or `None`.
    #[getter]
    fn eager(&self) -> Option<String> {
        self.0.eager.as_ref().map(ToString::to_string)
    }

    /// The report as JSON text.
    fn to_json(&self) -> String {
        self.0.to_json()
    }

    /// The report as a page.
    fn to_html(&self) -> String {
        self.0.to_html()
    }

    /// The graph as text of Graphviz.
    fn to_dot(&self) -> String {
        self.0.to_dot()
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

/// Calls a function once for all slices of its arguments. `in_dims` and `out_dims` say where the slices are, one entry
/// per tensor.
#[pyfunction]
pub fn _vmap<'py>(
    py: Python<'py>,
    function: Py<PyAny>,
    in_dims: Vec<Option<i64>>,
    out_dims: Option<Vec<Option<i64>>>,
    randomness: &str,
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let randomness = chosen(
        py,
        "randomness",
        randomness,
        &[("error", Randomness::Error), ("same", Randomness::Same), ("different", Randomness::Different)],
    )?;
    let inputs = flatten_once((args, kwargs).into_pyobject(py)?.as_any())?;
    forget_kept();
    let out_dims = out_dims.map_or(MapDims::All(Some(0)), MapDims::Each);
    let name = name_of(function.bind(py));
    let function = PyFunction { function: Shared::new(function), name, flatten: flatten_once };
    let mapped = opfuse::vmap::<Trees, _>(function).in_dims(in_dims).out_dims(out_dims);
    let output = py.detach(|| mapped.randomness(randomness).call(&inputs)).or_raise(py)?;
    unflatten(py, output)
}
