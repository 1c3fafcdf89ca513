//! Keys: what tells two structures, or two states of a function, apart.
//!
//! A key has words and objects. Words are kinds with numbers: counts, values, and addresses of objects that equal
//! themselves alone. They are compared as bytes, and say what each object is, so keys of other kinds are never equal.
//! Objects are compared as Python compares them, which takes longer.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyTuple};

/// What a word stands for. Its number is a count, a value or an address, or 0.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Kind {
    /// What the function reads ends, and its arguments begin.
    Arguments,
    Tensor,
    Tuple,
    /// A subclass of tuples or lists, whose class follows.
    Named,
    List,
    /// The names follow.
    Dict,
    /// A subclass of dicts: what makes an empty one and the names follow.
    Mapping,
    /// A dataclass: class and names of fields follow.
    Fields,
    /// A plain value follows, or the class of a number of NumPy with these bits.
    Value,
    /// The class of an object follows, and what is compared by its value.
    Object,
    /// An object with attributes: its class and they follow.
    Attributes,
    /// The number of a tensor.
    Id,
    /// An object that equals itself alone, by its address.
    Same,
    None,
    Bool,
    Int,
    /// The bits of a number: 0.0 and -0.0 are equal to Python, and a NaN is not equal to itself.
    Float,
}

/// Collects words and objects.
#[derive(Default)]
pub struct Key<'py> {
    words: Vec<u8>,
    objects: Vec<Bound<'py, PyAny>>,
    /// Objects known by their addresses, which no other object may get while the key is known.
    kept: Vec<Py<PyAny>>,
}

impl<'py> Key<'py> {
    /// Adds a word.
    pub fn word(&mut self, kind: Kind, number: u64) {
        self.words.push(kind as u8);
        self.words.extend(number.to_ne_bytes());
    }

    /// Adds an object that belongs to the word before.
    pub fn object(&mut self, object: Bound<'py, PyAny>) {
        self.objects.push(object);
    }

    /// Adds an object that equals itself alone.
    pub fn same(&mut self, object: &Bound<'py, PyAny>) {
        self.word(Kind::Same, object.as_ptr().addr() as u64);
        self.kept.push(object.clone().unbind());
    }

    /// Adds `None`, a truth value or a number of Python. Returns whether it is one.
    pub fn number(&mut self, object: &Bound<'py, PyAny>) -> bool {
        if object.is_none() {
            self.word(Kind::None, 0);
        } else if let Ok(flag) = object.cast_exact::<PyBool>() {
            self.word(Kind::Bool, u64::from(flag.is_true()));
        } else if let Ok(number) = object.cast_exact::<PyFloat>() {
            self.word(Kind::Float, number.value().to_bits());
        } else if let Ok(number) = object.cast_exact::<PyInt>() {
            match number.extract::<i64>() {
                Ok(number) => self.word(Kind::Int, number as u64),
                Err(_) => self.typed(object),
            }
        } else {
            return false;
        }
        true
    }

    /// Adds an object that is compared by its type and its value.
    pub fn typed(&mut self, object: &Bound<'py, PyAny>) {
        self.valued(object, object.clone());
    }

    /// Adds an object that is compared by its type and by another object that stands for its value.
    pub fn valued(&mut self, object: &Bound<'py, PyAny>, value: Bound<'py, PyAny>) {
        self.word(Kind::Object, 0);
        self.objects.push(object.get_type().into_any());
        self.objects.push(value);
    }

    /// Bytes of words so far, and objects.
    pub fn len(&self) -> usize {
        self.words.len() + self.objects.len()
    }

    /// The objects, of which each must have a hash.
    pub fn objects(&self) -> &[Bound<'py, PyAny>] {
        &self.objects
    }

    /// The key as an object of Python.
    pub fn to_object(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let words = PyBytes::new(py, &self.words).into_any();
        if self.objects.is_empty() {
            return Ok(words);
        }
        let parts: Vec<_> = std::iter::once(&words).chain(&self.objects).collect();
        PyTuple::new(py, parts).map(Bound::into_any)
    }

    /// What has to live as long as the key is known.
    pub fn into_kept(self) -> Vec<Py<PyAny>> {
        self.kept
    }
}
