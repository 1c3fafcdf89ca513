//! Gradients, Jacobians and their products with vectors, as functions of Python functions.
//!
//! The package calls these with a function of what is differentiated by.

use crate::compiled::called;
use crate::errors::{OrRaise, forget_kept};
use crate::tensor::PyTensor;
use crate::tree::{Tree, flatten_once, tensors_of, unflatten};
use opfuse::compile::{Flat, Function, Inputs, Parts, TensorStruct};
use opfuse::func::{self, First, Pullback};
use opfuse::{Result, Tensor};
use pyo3::prelude::*;
use std::marker::PhantomData;

/// Marks functions of a `T`. What else they use is given beside it, because tensors that require gradients among that
/// say that the result is differentiated again.
pub struct By<T>(PhantomData<fn(T)>);

impl<T: TensorStruct> First for By<T> {
    type First = T;
}

struct Given<T> {
    first: T,
    others: Vec<Tensor>,
}

impl<T: TensorStruct> Inputs<By<T>> for &Given<T> {
    fn into_parts(self) -> Result<Flat> {
        let mut flat = Flat::of(&self.first);
        self.others.iter().for_each(|tensor| tensor.tree_flatten(&mut flat));
        Ok(flat)
    }
}

/// A Python function of a structure, which returns a structure.
struct OfTree<'a>(&'a Py<PyAny>);

impl Function<By<Tree>> for OfTree<'_> {
    type Output = Tree;

    fn apply(&self, inputs: &Flat) -> Result<Tree> {
        let first = first::<Tree>(inputs)?;
        called(|py| flatten_once(&self.0.bind(py).call1((unflatten(py, first)?,))?))
    }
}

/// A Python function of a tensor, which returns a tensor.
struct OfTensor<'a>(&'a Py<PyAny>);

impl Function<By<Tensor>> for OfTensor<'_> {
    type Output = Tensor;

    fn apply(&self, inputs: &Flat) -> Result<Tensor> {
        let first = first::<Tensor>(inputs)?;
        called(|py| {
            let result = self.0.bind(py).call1((PyTensor(first),))?;
            Ok(result.extract::<Py<PyTensor>>()?.get().0.clone())
        })
    }
}

fn first<T: TensorStruct>(inputs: &Flat) -> Result<T> {
    let found = inputs.clone().tree_unflatten::<(T, AnyTensors)>();
    let (first, _) = found.ok_or_else(|| opfuse::Error::argument("grad", "the arguments have other parts"))?;
    Ok(first)
}

/// The tensors that are left.
struct AnyTensors;

impl TensorStruct for AnyTensors {
    fn tree_flatten(&self, _: &mut Flat) {}

    fn tree_unflatten(from: &mut Parts<'_>) -> Option<AnyTensors> {
        std::iter::from_fn(|| from.tensor()).for_each(drop);
        Some(AnyTensors)
    }
}

fn given(first: &Bound<'_, PyAny>, others: &Bound<'_, PyAny>) -> PyResult<Given<Tree>> {
    Ok(Given { first: flatten_once(first)?, others: tensors_of(others)? })
}

/// What the function returns, whose first tensor is a number, and the gradients of that number by `first`. Of `others`
/// the function may use tensors.
#[pyfunction]
pub fn _value_and_grad<'py>(
    py: Python<'py>,
    function: Py<PyAny>,
    first: &Bound<'py, PyAny>,
    others: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let given = given(first, others)?;
    forget_kept();
    let found = py.detach(|| func::value_and_grad::<By<Tree>, _>(OfTree(&function)).call(&given));
    let (value, gradient) = found.or_raise(py)?;
    Ok((unflatten(py, value)?, unflatten(py, gradient)?))
}

/// What the function returns, and the derivative of that along a tangent of `first`.
#[pyfunction]
pub fn _jvp<'py>(
    py: Python<'py>,
    function: Py<PyAny>,
    first: &Bound<'py, PyAny>,
    others: &Bound<'py, PyAny>,
    tangent: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let (given, tangent) = (given(first, others)?, flatten_once(tangent)?);
    forget_kept();
    let (value, along) = py.detach(|| func::jvp(OfTree(&function), &given, &tangent)).or_raise(py)?;
    Ok((unflatten(py, value)?, unflatten(py, along)?))
}

/// A function from gradients of a result to those of the arguments, made by `opfuse.vjp`.
#[pyclass(frozen, name = "_Pullback", module = "opfuse")]
pub struct PyPullback(Pullback<Tree>);

#[pymethods]
impl PyPullback {
    fn __call__<'py>(&self, py: Python<'py>, upstream: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let upstream = flatten_once(upstream)?;
        let found = py.detach(|| self.0.call(&upstream)).or_raise(py)?;
        unflatten(py, found)
    }
}

/// What the function returns, and its vector-Jacobian product.
#[pyfunction]
pub fn _vjp<'py>(
    py: Python<'py>,
    function: Py<PyAny>,
    first: &Bound<'py, PyAny>,
    others: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, PyPullback)> {
    let given = given(first, others)?;
    forget_kept();
    let (value, pullback) = py.detach(|| func::vjp(OfTree(&function), &given)).or_raise(py)?;
    Ok((unflatten(py, value)?, PyPullback(pullback)))
}

/// The matrix of derivatives of a function of a tensor: by rows (`jacrev`), by columns (`jacfwd`), or that of its
/// gradient (`hessian`).
#[pyfunction]
pub fn _jacobian<'py>(
    py: Python<'py>,
    kind: &str,
    function: Py<PyAny>,
    first: Py<PyTensor>,
    others: &Bound<'py, PyAny>,
) -> PyResult<PyTensor> {
    let given = Given { first: first.get().0.clone(), others: tensors_of(others)? };
    forget_kept();
    let found = py.detach(|| match kind {
        "jacrev" => func::jacrev(OfTensor(&function)).call(&given),
        "jacfwd" => func::jacfwd(OfTensor(&function)).call(&given),
        _ => func::hessian(OfTensor(&function)).call(&given),
    });
    found.or_raise(py).map(PyTensor)
}
