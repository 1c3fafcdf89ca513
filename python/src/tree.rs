//! Structures of Python objects (pytrees): what compiled and mapped functions take and return.
//!
//! A structure is flattened into its tensors and a description of the rest. Tuples, named tuples, lists and dicts are
//! structures; everything else is a plain value of the description. Two descriptions are the same if they have the
//! same shape and equal values of the same types. Descriptions are numbered, and the crate sees the numbers alone.

use crate::errors::{type_error, value_error};
use crate::tensor::PyTensor;
use opfuse::compile::{Flat, Inputs, Parts, TensorStruct};
use opfuse::{Result, Tensor};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyFloat, PyList, PyTuple, PyType};
use std::sync::{Mutex, PoisonError};

/// The most descriptions that are known at a time. The oldest half is forgotten then.
const CAPACITY: usize = 4096;
const MAX_DEPTH: usize = 64;

/// The tensors of a structure, and the number of its description.
pub struct Tree {
    pub tensors: Vec<Tensor>,
    pub description: u64,
}

impl TensorStruct for Tree {
    fn tree_flatten(&self, into: &mut Flat) {
        into.words.push(self.tensors.len() as u64);
        into.words.push(self.description);
        into.tensors.extend(self.tensors.iter().cloned());
    }

    fn tree_unflatten(from: &mut Parts<'_>) -> Option<Tree> {
        let (count, description) = (from.word()?, from.word()?);
        let tensors = (0..count).map(|_| from.tensor()).collect::<Option<_>>()?;
        Some(Tree { tensors, description })
    }
}

/// Marks the arguments of functions over [`Tree`]s.
pub struct Trees;

impl Inputs<Trees> for &Tree {
    fn into_parts(self) -> Result<Flat> {
        Ok(Flat::of(self))
    }
}

enum Node {
    Tensor,
    Value(Py<PyAny>),
    Tuple(usize),
    /// A named tuple, of that class.
    Named(Py<PyType>, usize),
    List(usize),
    Dict(Vec<Py<PyAny>>),
}

/// Descriptions by number, and numbers by description.
struct Descriptions {
    first: u64,
    nodes: Vec<std::sync::Arc<Vec<Node>>>,
    keys: Vec<Py<PyTuple>>,
    numbers: Py<PyDict>,
}

static DESCRIPTIONS: PyOnceLock<Mutex<Descriptions>> = PyOnceLock::new();

fn descriptions(py: Python<'_>) -> &Mutex<Descriptions> {
    DESCRIPTIONS.get_or_init(py, || {
        let numbers = PyDict::new(py).unbind();
        Mutex::new(Descriptions { first: 0, nodes: Vec::new(), keys: Vec::new(), numbers })
    })
}

/// Flattens a structure.
///
/// # Errors
/// If a plain value cannot be hashed, or if it is nested too deeply.
pub fn flatten(object: &Bound<'_, PyAny>) -> PyResult<Tree> {
    let py = object.py();
    let (mut tensors, mut nodes, mut key) = (Vec::new(), Vec::new(), Vec::new());
    walk(object, 0, &mut tensors, &mut nodes, &mut key)?;
    let key = PyTuple::new(py, key)?;
    let mut all = descriptions(py).lock().unwrap_or_else(PoisonError::into_inner);
    let known = all.numbers.bind(py).get_item(&key).map_err(|_| {
        type_error(
            py,
            "a plain value among the arguments cannot be hashed; pass tensors, numbers, text or tuples".into(),
        )
    })?;
    if let Some(number) = known {
        return Ok(Tree { tensors, description: number.extract()? });
    }
    if all.nodes.len() == CAPACITY {
        let numbers = all.numbers.bind(py);
        all.keys[..CAPACITY / 2].iter().try_for_each(|key| numbers.del_item(key))?;
        all.first += CAPACITY as u64 / 2;
        all.nodes.drain(..CAPACITY / 2);
        all.keys.drain(..CAPACITY / 2);
    }
    let number = all.first + all.nodes.len() as u64;
    all.numbers.bind(py).set_item(&key, number)?;
    all.nodes.push(std::sync::Arc::new(nodes));
    all.keys.push(key.unbind());
    Ok(Tree { tensors, description: number })
}

fn walk<'py>(
    object: &Bound<'py, PyAny>,
    depth: usize,
    tensors: &mut Vec<Tensor>,
    nodes: &mut Vec<Node>,
    key: &mut Vec<Bound<'py, PyAny>>,
) -> PyResult<()> {
    let py = object.py();
    if depth > MAX_DEPTH {
        return Err(value_error(py, format!("a structure is nested in more than {MAX_DEPTH} levels")));
    }
    // A word starts each part of the key, so that parts of different kinds are never equal.
    let mut start = |kind: &str, count: usize, nodes: &mut Vec<Node>, node: Node| {
        nodes.push(node);
        key.push(kind.into_pyobject(py)?.into_any());
        key.push(count.into_pyobject(py)?.into_any());
        Ok::<_, PyErr>(())
    };
    if let Ok(tensor) = object.cast::<PyTensor>() {
        tensors.push(tensor.get().0.clone());
        return start("tensor", 0, nodes, Node::Tensor);
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        let class = object.get_type();
        if tuple.is_exact_instance_of::<PyTuple>() {
            start("tuple", tuple.len(), nodes, Node::Tuple(tuple.len()))?;
        } else {
            start("named", tuple.len(), nodes, Node::Named(class.clone().unbind(), tuple.len()))?;
            key.push(class.into_any());
        }
        return tuple.iter().try_for_each(|item| walk(&item, depth + 1, tensors, nodes, key));
    }
    if let Ok(list) = object.cast::<PyList>() {
        start("list", list.len(), nodes, Node::List(list.len()))?;
        return list.iter().try_for_each(|item| walk(&item, depth + 1, tensors, nodes, key));
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        let names = dict.keys();
        start("dict", dict.len(), nodes, Node::Dict(names.iter().map(Bound::unbind).collect()))?;
        key.extend(names.iter());
        return dict.values().iter().try_for_each(|item| walk(&item, depth + 1, tensors, nodes, key));
    }
    start("value", 0, nodes, Node::Value(object.clone().unbind()))?;
    key.push(object.get_type().into_any());
    key.push(match object.cast_exact::<PyFloat>() {
        // By bits: 0.0 and -0.0 are equal to Python, and a NaN is not equal to itself.
        Ok(number) => number.value().to_bits().into_pyobject(py)?.into_any(),
        Err(_) => object.clone(),
    });
    Ok(())
}

/// The structure of these parts.
///
/// # Errors
/// If its description was forgotten, because there were too many others since.
pub fn unflatten<'py>(py: Python<'py>, tree: Tree) -> PyResult<Bound<'py, PyAny>> {
    let nodes = {
        let all = descriptions(py).lock().unwrap_or_else(PoisonError::into_inner);
        let at = tree.description.checked_sub(all.first).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| all.nodes.get(at).cloned())
    };
    let nodes = nodes.ok_or_else(|| {
        value_error(py, "a compiled function has returned too many different plain values; return tensors".into())
    })?;
    let (mut nodes, mut tensors) = (nodes.iter(), tree.tensors.into_iter());
    built(py, &mut nodes, &mut tensors)
}

fn built<'py>(
    py: Python<'py>,
    nodes: &mut std::slice::Iter<'_, Node>,
    tensors: &mut std::vec::IntoIter<Tensor>,
) -> PyResult<Bound<'py, PyAny>> {
    let missing = || value_error(py, "a structure has fewer parts than its description".into());
    let node = nodes.next().ok_or_else(missing)?;
    let mut items = |count: usize| (0..count).map(|_| built(py, nodes, tensors)).collect::<PyResult<Vec<_>>>();
    Ok(match node {
        Node::Tensor => {
            let tensor = tensors.next().ok_or_else(missing)?;
            return PyTensor::object(py, tensor);
        }
        Node::Value(object) => object.bind(py).clone(),
        Node::Tuple(count) => PyTuple::new(py, items(*count)?)?.into_any(),
        Node::Named(class, count) => {
            let items = items(*count)?;
            let class = class.bind(py);
            match class.hasattr("_make")? {
                true => class.call_method1("_make", (items,))?,
                false => class.call1((items,))?,
            }
        }
        Node::List(count) => PyList::new(py, items(*count)?)?.into_any(),
        Node::Dict(names) => {
            let dict = PyDict::new(py);
            for (name, item) in names.iter().zip(items(names.len())?) {
                dict.set_item(name, item)?;
            }
            dict.into_any()
        }
    })
}

/// The tensors of a structure and a number that stands for the rest, for code in Python.
#[pyfunction]
pub fn _flatten(object: &Bound<'_, PyAny>) -> PyResult<(Vec<PyTensor>, u64)> {
    let Tree { tensors, description } = flatten(object)?;
    Ok((tensors.into_iter().map(PyTensor).collect(), description))
}

/// The structure that [`_flatten`] flattened, with these tensors.
#[pyfunction]
pub fn _unflatten<'py>(py: Python<'py>, tensors: Vec<Py<PyTensor>>, description: u64) -> PyResult<Bound<'py, PyAny>> {
    let tensors = tensors.iter().map(|tensor| tensor.get().0.clone()).collect();
    unflatten(py, Tree { tensors, description })
}
