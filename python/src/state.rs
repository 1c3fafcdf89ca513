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
use crate::key::{Key, Kind};
use crate::names::{PyDType, PyDevice};
use crate::tensor::PyTensor;
use opfuse::Scalar;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBytes, PyCFunction, PyCode, PyDict, PyFunction, PyList, PyModule, PySet, PyString, PyTuple, PyType,
};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

static METHOD: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static PARTIAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();

const MAX_DEPTH: usize = 16;
/// Words of a key have nine bytes.
const MAX_LEN: usize = 9 * MAX_VALUES;
const MAX_VALUES: usize = 4096;

/// Collects parts of a key.
#[derive(Default)]
pub struct State<'py> {
    pub key: Key<'py>,
    seen: HashSet<usize>,
    /// The globals of the first function; functions with other globals belong to other modules.
    globals: Option<Bound<'py, PyAny>>,
}

impl<'py> State<'py> {
    /// Adds what a call of `function` may read besides its arguments.
    pub fn add_function(&mut self, function: &Bound<'py, PyAny>) -> PyResult<()> {
        self.look(function, 0)
    }

    /// Adds what is seen of a plain value that is no number: the value itself, and the attributes of an object.
    pub fn add_value(&mut self, object: &Bound<'py, PyAny>) -> PyResult<()> {
        let py = object.py();
        if object.is_exact_instance_of::<PyString>() {
            self.key.typed(object);
            return Ok(());
        }
        if let Ok(set) = object.cast::<PySet>() {
            let frozen = py.import("builtins")?.getattr(intern!(py, "frozenset"))?.call1((set,))?;
            self.key.valued(object, frozen);
            return Ok(());
        }
        if attributes(object).is_none() {
            self.key.typed(object);
            return Ok(());
        }
        // Objects may be equal and have other attributes; and some have no hash.
        match object.hash() {
            Ok(_) => self.key.typed(object),
            Err(_) => self.key.same(object),
        }
        self.look(object, 0)
    }

    fn look(&mut self, object: &Bound<'py, PyAny>, depth: usize) -> PyResult<()> {
        let py = object.py();
        if depth > MAX_DEPTH || self.key.len() > MAX_LEN {
            return Ok(());
        }
        if let Ok(tensor) = object.cast::<PyTensor>() {
            self.key.word(Kind::Id, tensor.get().0.id());
            return Ok(());
        }
        if self.key.number(object) {
            return Ok(());
        }
        let is_plain = object.is_exact_instance_of::<PyString>()
            || object.is_exact_instance_of::<PyBytes>()
            || object.is_instance_of::<PyDType>()
            || object.is_instance_of::<PyDevice>();
        if is_plain {
            self.key.typed(object);
            return Ok(());
        }
        if object.is_instance_of::<PyCFunction>() {
            // Looked for first because operators are such functions, and have none of the attributes asked for below.
            self.key.same(object);
            return Ok(());
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
            self.key.word(Kind::Tuple, tuple.len() as u64);
            tuple.iter().try_for_each(|item| self.look(&item, depth + 1))?;
        } else if let Ok(list) = object.cast::<PyList>() {
            self.key.word(Kind::List, list.len() as u64);
            list.to_tuple().iter().try_for_each(|item| self.look(&item, depth + 1))?;
        } else if let Ok(dict) = object.cast::<PyDict>() {
            self.look_into_dict(dict, depth)?;
        } else if let Some(found) = attributes(object) {
            self.key.word(Kind::Attributes, 0);
            self.key.object(object.get_type().into_any());
            return self.look_into_dict(&found, depth);
        } else if let Ok(Some(number)) = number_of(object) {
            // A scalar of NumPy.
            let bits = match number {
                Scalar::Int(number) => number as u64,
                Scalar::Float(number) => number.to_bits(),
                Scalar::Bool(flag) => u64::from(flag),
            };
            self.key.word(Kind::Value, bits);
            self.key.object(object.get_type().into_any());
        } else {
            self.key.same(object);
        }
        Ok(())
    }

    fn look_into_dict(&mut self, dict: &Bound<'py, PyDict>, depth: usize) -> PyResult<()> {
        let dict = dict.copy()?;
        self.key.word(Kind::Dict, dict.len() as u64);
        for (name, item) in dict.iter() {
            match name.is_instance_of::<PyString>() {
                true => self.key.typed(&name),
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
