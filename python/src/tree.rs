//! Structures of Python objects (pytrees): what compiled and mapped functions take and return.
//!
//! A structure is flattened into its tensors and a description of the rest. Tuples, named tuples, lists, dicts, their
//! subclasses and dataclasses are structures; everything else is a plain value of the description. Two descriptions are
//! the same if they have the same shape and equal values of the same types. Descriptions are numbered, and the crate
//! sees the numbers alone.

use crate::errors::{type_error, value_error};
use crate::key::Kind;
use crate::state::State;
use crate::tensor::PyTensor;
use opfuse::compile::{Flat, Inputs, Parts, TensorStruct};
use opfuse::{Result, Tensor};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
        self.tensors.iter().for_each(|tensor| tensor.tree_flatten(into));
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
    /// A named tuple, or another subclass of tuples or lists.
    Named(Py<PyType>, usize),
    List(usize),
    Dict(Vec<Py<PyAny>>),
    /// A subclass of dicts: what makes an empty one, and the keys.
    Mapping(Py<PyAny>, Vec<Py<PyAny>>),
    /// A dataclass, and the names of its fields.
    Fields(Py<PyType>, Vec<Py<PyAny>>),
}

/// Descriptions by number, and numbers by key.
struct Descriptions {
    first: u64,
    known: Vec<Description>,
    numbers: Py<PyDict>,
}

struct Description {
    nodes: Arc<Vec<Node>>,
    /// `None` for one that cannot be found again.
    key: Option<Py<PyAny>>,
    _kept: Vec<Py<PyAny>>,
}

static DESCRIPTIONS: PyOnceLock<Mutex<Descriptions>> = PyOnceLock::new();

fn descriptions(py: Python<'_>) -> &Mutex<Descriptions> {
    DESCRIPTIONS.get_or_init(py, || {
        let numbers = PyDict::new(py).unbind();
        Mutex::new(Descriptions { first: 0, known: Vec::new(), numbers })
    })
}

/// Flattens a structure.
///
/// # Errors
/// If a plain value cannot be hashed, or if it is nested too deeply.
pub fn flatten(object: &Bound<'_, PyAny>) -> PyResult<Tree> {
    let mut walk = Walk::default();
    walk.add(object, 0)?;
    walk.described(object.py(), without_hash)
}

/// Flattens the arguments of a call, a tuple and a dict, of which `state` is what else the call may read.
///
/// # Errors
/// As [`flatten`].
pub fn flatten_call<'py>(
    positional: &Bound<'py, PyTuple>,
    named: Option<&Bound<'py, PyDict>>,
    state: State<'py>,
) -> PyResult<Tree> {
    let mut walk = Walk { state, ..Walk::default() };
    walk.state.key.word(Kind::Arguments, 0);
    walk.start(Kind::Tuple, 2, Node::Tuple(2));
    walk.add(positional, 1)?;
    match named {
        Some(named) => walk.add(named, 1)?,
        None => walk.start(Kind::Dict, 0, Node::Dict(Vec::new())),
    }
    walk.described(positional.py(), without_hash)
}

/// The error for a plain value without a hash.
fn without_hash(value: &Bound<'_, PyAny>) -> Option<PyErr> {
    let class = value.get_type().name().map_or_else(|_| "object".into(), |name| name.to_string());
    let hint = match value.hasattr("__array_interface__").unwrap_or(false) {
        true => "wrap arrays with opfuse.asarray, which does not copy them",
        false => "pass tensors, numbers, text, or tuples, lists, dicts and dataclasses of these",
    };
    Some(type_error(value.py(), format!("a value of type {class} cannot be hashed; {hint}")))
}

/// Flattens a structure that is used once. Its plain values need no hash.
///
/// # Errors
/// If it is nested too deeply.
pub fn flatten_once(object: &Bound<'_, PyAny>) -> PyResult<Tree> {
    let mut walk = Walk::default();
    walk.add(object, 0)?;
    walk.described(object.py(), |_| None)
}

/// The tensors of a structure.
///
/// # Errors
/// If it is nested too deeply.
pub fn tensors_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
    let mut walk = Walk::default();
    walk.add(object, 0)?;
    Ok(walk.tensors)
}

/// What the lists and dicts among arguments hold before a call: a program cannot repeat what a function does to them.
pub struct Containers(Vec<u64>);

impl Containers {
    pub fn of(given: &Bound<'_, PyAny>) -> PyResult<Containers> {
        let mut walk = Walk::default();
        walk.add(given, 0)?;
        let counts = walk.nodes.iter().map(|node| match node {
            Node::Tensor => 0,
            Node::Value(object) => object.as_ptr().addr() as u64,
            Node::Tuple(count) | Node::Named(_, count) | Node::List(count) => 1 + *count as u64,
            Node::Dict(names) | Node::Mapping(_, names) | Node::Fields(_, names) => 1 + names.len() as u64,
        });
        Ok(Containers(counts.chain(walk.tensors.iter().map(Tensor::id)).collect()))
    }

    /// # Errors
    /// If they hold other objects now.
    pub fn check(&self, given: &Bound<'_, PyAny>) -> PyResult<()> {
        if Containers::of(given)?.0 == self.0 {
            return Ok(());
        }
        let text = "compile: the function changed a list, a dict or an object that it was given";
        Err(value_error(given.py(), format!("{text}; return the new items instead, or write to tensors in place")))
    }
}

/// A walk over a structure.
#[derive(Default)]
struct Walk<'py> {
    tensors: Vec<Tensor>,
    nodes: Vec<Node>,
    state: State<'py>,
}

impl<'py> Walk<'py> {
    /// The tree of what was walked over. Where a plain value has no hash, `refused` gives an error, or `None` to go on.
    fn described(self, py: Python<'py>, refused: fn(&Bound<'py, PyAny>) -> Option<PyErr>) -> PyResult<Tree> {
        let Walk { tensors, nodes, state } = self;
        let key = state.key.to_object(py)?;
        // Hashes, comparisons and finalizers are Python's, which may call this module again or wait for other threads.
        // So no lock is held while they run.
        let numbers = lock(py).numbers.clone_ref(py).into_bound(py);
        let is_hashable = match numbers.get_item(&key) {
            Ok(Some(number)) => return Ok(Tree { tensors, description: number.extract()? }),
            Ok(None) => true,
            Err(failed) => match state.key.objects().iter().find(|value| value.hash().is_err()) {
                Some(value) => match refused(value) {
                    Some(text) => return Err(text),
                    None => false,
                },
                None => return Err(failed),
            },
        };
        let found = Description {
            nodes: Arc::new(nodes),
            key: is_hashable.then(|| key.clone().unbind()),
            _kept: state.key.into_kept(),
        };
        let (number, forgotten) = {
            let mut all = lock(py);
            let mut forgotten = Vec::new();
            if all.known.len() == CAPACITY {
                all.first += CAPACITY as u64 / 2;
                forgotten = all.known.drain(..CAPACITY / 2).collect();
            }
            let number = all.first + all.known.len() as u64;
            all.known.push(found);
            (number, forgotten)
        };
        for key in forgotten.iter().filter_map(|description| description.key.as_ref()) {
            // Another thread may have described the same structure at the same time, and forgotten it first.
            numbers.del_item(key).or_else(|failed| match failed.is_instance_of::<PyKeyError>(py) {
                true => Ok(()),
                false => Err(failed),
            })?;
        }
        if is_hashable {
            numbers.set_item(&key, number)?;
        }
        Ok(Tree { tensors, description: number })
    }

    fn start(&mut self, kind: Kind, count: usize, node: Node) {
        self.nodes.push(node);
        self.state.key.word(kind, count as u64);
    }

    fn add(&mut self, object: &Bound<'py, PyAny>, depth: usize) -> PyResult<()> {
        if depth > MAX_DEPTH {
            let text = format!("a structure is nested in more than {MAX_DEPTH} levels");
            return Err(value_error(object.py(), text));
        }
        if let Ok(tensor) = object.cast::<PyTensor>() {
            self.tensors.push(tensor.get().0.clone());
            self.start(Kind::Tensor, 0, Node::Tensor);
            return Ok(());
        }
        if self.state.key.number(object) {
            self.nodes.push(Node::Value(object.clone().unbind()));
            return Ok(());
        }
        if let Ok(tuple) = object.cast::<PyTuple>() {
            match tuple.is_exact_instance_of::<PyTuple>() {
                true => self.start(Kind::Tuple, tuple.len(), Node::Tuple(tuple.len())),
                false => self.start_named(object, tuple.len()),
            }
            return tuple.iter().try_for_each(|item| self.add(&item, depth + 1));
        }
        if let Ok(list) = object.cast::<PyList>() {
            // A copy: what the list holds may change while its items are looked at.
            let items = list.to_tuple();
            match list.is_exact_instance_of::<PyList>() {
                true => self.start(Kind::List, items.len(), Node::List(items.len())),
                false => self.start_named(object, items.len()),
            }
            return items.iter().try_for_each(|item| self.add(&item, depth + 1));
        }
        if let Ok(dict) = object.cast::<PyDict>() {
            let (names, values) = (dict.keys(), dict.values());
            let kept = names.iter().map(Bound::unbind).collect();
            if dict.is_exact_instance_of::<PyDict>() {
                self.start(Kind::Dict, names.len(), Node::Dict(kept));
            } else {
                let maker = empty_like(dict)?;
                self.start(Kind::Mapping, names.len(), Node::Mapping(maker.clone().unbind(), kept));
                self.state.key.object(maker);
            }
            names.iter().for_each(|name| self.state.key.object(name));
            return values.iter().try_for_each(|item| self.add(&item, depth + 1));
        }
        if let Some(names) = fields_of(object)? {
            let class = object.get_type();
            let kept = names.iter().map(|name| name.clone().unbind()).collect();
            self.start(Kind::Fields, names.len(), Node::Fields(class.clone().unbind(), kept));
            self.state.key.object(class.into_any());
            names.iter().for_each(|name| self.state.key.object(name.clone()));
            let part = |name: &Bound<'py, PyAny>| object.getattr(name.cast::<PyString>()?);
            return names.iter().try_for_each(|name| self.add(&part(name)?, depth + 1));
        }
        self.start(Kind::Value, 0, Node::Value(object.clone().unbind()));
        self.state.add_value(object)
    }

    /// Starts an object of a subclass of tuples or lists.
    fn start_named(&mut self, object: &Bound<'py, PyAny>, count: usize) {
        let class = object.get_type();
        self.start(Kind::Named, count, Node::Named(class.clone().unbind(), count));
        self.state.key.object(class.into_any());
    }
}

fn lock(py: Python<'_>) -> MutexGuard<'_, Descriptions> {
    descriptions(py).lock().unwrap_or_else(PoisonError::into_inner)
}

/// What makes an empty dict like this one, of a subclass. Calls of it take no arguments.
fn empty_like<'py>(dict: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
    let (py, class) = (dict.py(), dict.get_type());
    if dict.hasattr("default_factory")? {
        let partial = py.import("opfuse._functional")?.getattr("_EmptyDefault")?;
        return partial.call1((class, dict.getattr("default_factory")?));
    }
    Ok(class.into_any())
}

/// The names of the fields that an instance of a dataclass has.
fn fields_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let class = object.get_type();
    if !class.hasattr("__dataclass_fields__")? {
        return Ok(None);
    }
    let fields = class.getattr("__dataclass_fields__")?.cast_into::<PyDict>()?;
    Ok(Some(fields.keys().iter().filter(|name| has_field(object, name)).collect()))
}

fn has_field(object: &Bound<'_, PyAny>, name: &Bound<'_, PyAny>) -> bool {
    name.cast::<PyString>().is_ok_and(|name| object.hasattr(name).unwrap_or(false))
}

/// The structure of these parts.
///
/// # Errors
/// If its description was forgotten, because there were too many others since.
pub fn unflatten<'py>(py: Python<'py>, tree: Tree) -> PyResult<Bound<'py, PyAny>> {
    let nodes = {
        let all = lock(py);
        let at = tree.description.checked_sub(all.first).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| all.known.get(at)).map(|description| description.nodes.clone())
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
        Node::Mapping(maker, names) => {
            let dict = maker.bind(py).call0()?;
            for (name, item) in names.iter().zip(items(names.len())?) {
                dict.set_item(name, item)?;
            }
            dict
        }
        Node::Fields(class, names) => {
            // Not by its `__init__`, which may take other arguments or do more.
            let made = py.get_type::<PyAny>().call_method1("__new__", (class.bind(py),))?;
            let set = py.get_type::<PyAny>().getattr("__setattr__")?;
            for (name, item) in names.iter().zip(items(names.len())?) {
                set.call1((&made, name, item))?;
            }
            made
        }
    })
}

/// The tensors of a structure and a number that stands for the rest, for code in Python.
#[pyfunction]
pub fn _flatten(object: &Bound<'_, PyAny>) -> PyResult<(Vec<PyTensor>, u64)> {
    let Tree { tensors, description } = flatten_once(object)?;
    Ok((tensors.into_iter().map(PyTensor).collect(), description))
}

/// The structure that [`_flatten`] flattened, with these tensors.
#[pyfunction]
pub fn _unflatten<'py>(py: Python<'py>, tensors: Vec<Py<PyTensor>>, description: u64) -> PyResult<Bound<'py, PyAny>> {
    let tensors = tensors.iter().map(|tensor| tensor.get().0.clone()).collect();
    unflatten(py, Tree { tensors, description })
}
