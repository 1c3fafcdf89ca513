//! What a Python function reads besides its arguments, as far as that can be seen: attributes of objects, variables of
//! enclosing functions, and globals.
//!
//! A program is captured for one such state. A changed number or a replaced tensor is another state, for which the
//! function is captured again. So the state of each call becomes part of the key of its program: numbers and text by
//! value, tensors by their number, and what is neither by identity.
//!
//! Not looked at are modules, classes, functions of other modules, and what lies deeper than [`MAX_DEPTH`] or beyond
//! [`MAX_VALUES`].

use crate::compiled::PyCompiled;
use crate::creation::number_of;
use crate::names::{PyDType, PyDevice};
use crate::tensor::PyTensor;
use opfuse::Scalar;
use pyo3::IntoPyObjectExt;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyBytes, PyCode, PyDict, PyFloat, PyFunction, PyInt, PyList, PyModule, PySet, PyString, PyTuple, PyType,
};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

static METHOD: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static PARTIAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();

const MAX_DEPTH: usize = 16;
const MAX_VALUES: usize = 4096;

/// An object that equals itself alone. It is kept alive, so that no other object gets its address.
#[pyclass(frozen, name = "_Same", module = "opfuse")]
pub struct Same(Py<PyAny>);

#[pymethods]
impl Same {
    fn __hash__(&self) -> usize {
        self.0.as_ptr().addr()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Same>().is_ok_and(|other| other.get().0.is(&self.0))
    }
}

/// Collects parts of a key.
pub struct State<'py> {
    pub key: Vec<Bound<'py, PyAny>>,
    seen: HashSet<usize>,
    /// The globals of the first function; functions with other globals belong to other modules.
    globals: Option<Bound<'py, PyAny>>,
}

impl<'py> State<'py> {
    pub fn new() -> State<'py> {
        State { key: Vec::new(), seen: HashSet::new(), globals: None }
    }

    fn push(&mut self, py: Python<'py>, part: impl IntoPyObjectExt<'py>) -> PyResult<()> {
        self.key.push(part.into_bound_py_any(py)?);
        Ok(())
    }

    /// Adds what a call of `function` may read besides its arguments.
    pub fn add_function(&mut self, function: &Bound<'py, PyAny>) -> PyResult<()> {
        self.look(function, 0)
    }

    /// Adds what is seen of a plain value: the value itself, and the attributes of an object.
    pub fn add_value(&mut self, object: &Bound<'py, PyAny>) -> PyResult<()> {
        let py = object.py();
        self.key.push(object.get_type().into_any());
        if let Ok(number) = object.cast_exact::<PyFloat>() {
            // By bits: 0.0 and -0.0 are equal to Python, and a NaN is not equal to itself.
            return self.push(py, number.value().to_bits());
        }
        if let Ok(set) = object.cast::<PySet>() {
            self.key.push(py.import("builtins")?.getattr(intern!(py, "frozenset"))?.call1((set,))?);
            return Ok(());
        }
        match attributes(object) {
            None => self.key.push(object.clone()),
            Some(_) => {
                // Objects may be equal and have other attributes; and some have no hash.
                match object.hash() {
                    Ok(_) => self.key.push(object.clone()),
                    Err(_) => self.push(py, Same(object.clone().unbind()))?,
                }
                self.look(object, 0)?;
            }
        }
        Ok(())
    }

    fn look(&mut self, object: &Bound<'py, PyAny>, depth: usize) -> PyResult<()> {
        let py = object.py();
        if depth > MAX_DEPTH || self.key.len() > MAX_VALUES {
            return Ok(());
        }
        if let Ok(tensor) = object.cast::<PyTensor>() {
            self.key.push(intern!(py, "tensor").clone().into_any());
            return self.push(py, tensor.get().0.id());
        }
        let is_plain = object.is_none()
            || object.is_exact_instance_of::<PyInt>()
            || object.is_exact_instance_of::<PyBool>()
            || object.is_exact_instance_of::<PyString>()
            || object.is_exact_instance_of::<PyBytes>()
            || object.is_instance_of::<PyDType>()
            || object.is_instance_of::<PyDevice>();
        if is_plain {
            self.key.push(object.get_type().into_any());
            self.key.push(object.clone());
            return Ok(());
        }
        if let Ok(number) = object.cast_exact::<PyFloat>() {
            self.key.push(intern!(py, "float").clone().into_any());
            return self.push(py, number.value().to_bits());
        }
        if object.is_instance_of::<PyModule>() || object.is_instance_of::<PyType>() {
            return Ok(());
        }
        if !self.seen.insert(object.as_ptr().addr()) {
            return Ok(());
        }
        if let Ok(function) = object.cast::<PyFunction>() {
            return self.look_into_function(function, depth);
        }
        if let Ok(compiled) = object.cast::<PyCompiled>() {
            return self.look(&compiled.get().function.get(py)?, depth + 1);
        }
        // Before attributes: these show those of the function, too.
        if object.is_instance(METHOD.import(py, "types", "MethodType")?)? {
            self.look(&object.getattr(intern!(py, "__func__"))?, depth + 1)?;
            return self.look(&object.getattr(intern!(py, "__self__"))?, depth + 1);
        }
        if object.is_instance(PARTIAL.import(py, "functools", "partial")?)? {
            self.look(&object.getattr(intern!(py, "func"))?, depth + 1)?;
            self.look(&object.getattr(intern!(py, "args"))?, depth + 1)?;
            return self.look(&object.getattr(intern!(py, "keywords"))?, depth + 1);
        }
        if let Ok(tuple) = object.cast::<PyTuple>() {
            self.key.push(intern!(py, "tuple").clone().into_any());
            self.push(py, tuple.len())?;
            tuple.iter().try_for_each(|item| self.look(&item, depth + 1))?;
        } else if let Ok(list) = object.cast::<PyList>() {
            self.key.push(intern!(py, "list").clone().into_any());
            self.push(py, list.len())?;
            list.to_tuple().iter().try_for_each(|item| self.look(&item, depth + 1))?;
        } else if let Ok(dict) = object.cast::<PyDict>() {
            self.look_into_dict(dict, depth)?;
        } else if let Some(found) = attributes(object) {
            self.key.push(object.get_type().into_any());
            return self.look_into_dict(&found, depth);
        } else if let Ok(Some(number)) = number_of(object) {
            // A scalar of NumPy.
            let bits = match number {
                Scalar::Int(number) => number as u64,
                Scalar::Float(number) => number.to_bits(),
                Scalar::Bool(flag) => u64::from(flag),
            };
            self.key.push(object.get_type().into_any());
            self.push(py, bits)?;
        } else {
            self.push(py, Same(object.clone().unbind()))?;
        }
        Ok(())
    }

    fn look_into_dict(&mut self, dict: &Bound<'py, PyDict>, depth: usize) -> PyResult<()> {
        self.key.push(intern!(dict.py(), "dict").clone().into_any());
        self.push(dict.py(), dict.len())?;
        for (name, item) in dict.copy()?.iter() {
            match name.is_instance_of::<PyString>() {
                true => self.key.push(name),
                false => self.look(&name, depth + 1)?,
            }
            self.look(&item, depth + 1)?;
        }
        Ok(())
    }

    fn look_into_function(&mut self, function: &Bound<'py, PyFunction>, depth: usize) -> PyResult<()> {
        let py = function.py();
        self.look(&function.getattr(intern!(py, "__defaults__"))?, depth + 1)?;
        self.look(&function.getattr(intern!(py, "__kwdefaults__"))?, depth + 1)?;
        if let Ok(cells) = function.getattr(intern!(py, "__closure__"))?.cast::<PyTuple>() {
            for cell in cells.iter() {
                // A cell may be empty still.
                if let Ok(value) = cell.getattr(intern!(py, "cell_contents")) {
                    self.look(&value, depth + 1)?;
                }
            }
        }
        let globals = function.getattr(intern!(py, "__globals__"))?;
        if !self.has_own(function, &globals)? {
            return Ok(());
        }
        let globals = globals.cast_into::<PyDict>()?;
        let code = function.getattr(intern!(py, "__code__"))?.cast_into::<PyCode>()?;
        for name in names_of(&code)? {
            if let Some(value) = globals.get_item(name.bind(py))? {
                self.look(&value, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Whether the globals of a function are looked at: those of the first one that is no wrapper of this package.
    fn has_own(&mut self, function: &Bound<'py, PyFunction>, globals: &Bound<'py, PyAny>) -> PyResult<bool> {
        if let Some(own) = &self.globals {
            return Ok(own.is(globals));
        }
        let py = function.py();
        let module = function.getattr(intern!(py, "__module__"))?;
        let is_wrapper =
            module.extract::<String>().is_ok_and(|name| name == "functools" || name.starts_with("opfuse."));
        if !is_wrapper {
            self.globals = Some(globals.clone());
        }
        Ok(!is_wrapper)
    }
}

/// The attributes of an instance of a class of Python.
fn attributes<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyDict>> {
    let py = object.py();
    object.getattr(intern!(py, "__dict__")).ok()?.cast_into::<PyDict>().ok()
}

type Names = HashMap<usize, (Py<PyCode>, Vec<Py<PyAny>>)>;

static NAMES: PyOnceLock<Mutex<Names>> = PyOnceLock::new();

/// The global names that code uses, with those of the functions in it.
fn names_of(code: &Bound<'_, PyCode>) -> PyResult<Vec<Py<PyAny>>> {
    let py = code.py();
    let known = NAMES.get_or_init(py, Mutex::default);
    let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
    let copied = |names: &Vec<Py<PyAny>>| names.iter().map(|name| name.clone_ref(py)).collect::<Vec<_>>();
    if let Some((_, names)) = lock().get(&code.as_ptr().addr()) {
        return Ok(copied(names));
    }
    let (mut names, mut left) = (Vec::new(), vec![code.clone()]);
    while let Some(code) = left.pop() {
        let found = code.getattr(intern!(py, "co_names"))?.cast_into::<PyTuple>()?;
        names.extend(found.iter().map(Bound::unbind));
        let constants = code.getattr(intern!(py, "co_consts"))?.cast_into::<PyTuple>()?;
        left.extend(constants.iter().filter_map(|constant| constant.cast_into::<PyCode>().ok()));
    }
    let found = copied(&names);
    let mut all = lock();
    // Code is kept, so that no other gets its address; what is forgotten is freed without the lock.
    let forgotten = if all.len() >= MAX_VALUES { std::mem::take(&mut *all) } else { Names::new() };
    all.insert(code.as_ptr().addr(), (code.clone().unbind(), names));
    drop(all);
    drop(forgotten);
    Ok(found)
}
