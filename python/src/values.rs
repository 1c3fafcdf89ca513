//! Python objects as values of boxed calls, and back.
//!
//! An object fits a type exactly, or after a conversion. A number fits as a tensor, a whole number as a float, and one
//! number as a list of fixed length. Overloads are tried without conversions first.

use crate::creation::number_of;
use crate::names::{PyDevice, device_of, dtype_object, dtype_of, memory_format_of};
use crate::random::PyGenerator;
use crate::tensor::PyTensor;
use opfuse::dispatch::{TensorLayout, Type, Value};
use opfuse::{Scalar, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::sync::Arc;

/// Which objects fit a type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// Objects of that type.
    Exact,
    /// Objects that convert to it, too.
    Converted,
}

/// The object as a value of type `ty`. `None` if it does not fit.
///
/// # Errors
/// If the object fits, but its value does not: a number beyond 64 bits, text that names no device.
#[inline]
pub fn value_of(object: &Bound<'_, PyAny>, ty: &Type, fit: Fit) -> PyResult<Option<Value>> {
    if let (Type::Tensor, Ok(tensor)) = (ty, object.cast::<PyTensor>()) {
        return Ok(Some(Value::Tensor(tensor.get().0.clone())));
    }
    other_value(object, ty, fit)
}

fn other_value(object: &Bound<'_, PyAny>, ty: &Type, fit: Fit) -> PyResult<Option<Value>> {
    Ok(match ty {
        Type::Optional(_) if object.is_none() => Some(Value::None),
        Type::Optional(inner) => return value_of(object, inner, fit),
        Type::Tensor if fit == Fit::Exact => None,
        Type::Tensor => number_of(object)?.and_then(|number| Tensor::number(number).ok()).map(Value::Tensor),
        Type::Int | Type::SymInt => integer_of(object, fit)?.map(Value::Int),
        Type::Float => float_of(object, fit)?.map(Value::Float),
        Type::Bool => object.cast::<PyBool>().ok().map(|flag| Value::Bool(flag.is_true())),
        Type::Str => object.cast::<PyString>().ok().map(|text| Value::Str(Arc::from(text.to_string()))),
        Type::Scalar => scalar_of(object, fit)?.map(Value::Scalar),
        Type::ScalarType => dtype_of(object)?.map(Value::DType),
        Type::Device => device_of(object)?.map(Value::Device),
        Type::Layout => object.cast::<PyString>().ok().and_then(|name| {
            let name = name.to_string();
            TensorLayout::from_name(name.rsplit('.').next().unwrap_or(&name)).map(Value::Layout)
        }),
        Type::MemoryFormat => memory_format_of(object)?.map(Value::MemoryFormat),
        Type::Generator => object.cast::<PyGenerator>().ok().map(|generator| Value::from(&generator.get().0)),
        Type::List(element, n) => return list_of(object, element, *n, fit),
    })
}

fn list_of(object: &Bound<'_, PyAny>, element: &Type, n: Option<usize>, fit: Fit) -> PyResult<Option<Value>> {
    let items = if let Ok(list) = object.cast::<PyList>() {
        list.to_tuple()
    } else if let Ok(tuple) = object.cast::<PyTuple>() {
        tuple.clone()
    } else {
        // One number stands for a list of fixed length.
        let (Some(n), false) = (n, element.holds_tensors()) else { return Ok(None) };
        return Ok(value_of(object, element, fit)?.and_then(|one| Value::list_of(element, vec![one; n])));
    };
    let mut values = Vec::with_capacity(items.len());
    for item in items.iter_borrowed() {
        match value_of(&item, element, fit)? {
            Some(value) => values.push(value),
            None => return Ok(None),
        }
    }
    Ok(Value::list_of(element, values))
}

/// A whole number.
///
/// # Errors
/// If it has more than 64 bits.
pub fn integer_of(object: &Bound<'_, PyAny>, fit: Fit) -> PyResult<Option<i64>> {
    if object.is_instance_of::<PyBool>() {
        return Ok(if fit == Fit::Converted { Some(i64::from(object.is_truthy()?)) } else { None });
    }
    if object.is_instance_of::<PyInt>() {
        return object.extract::<i64>().map(Some);
    }
    if fit == Fit::Exact || object.is_instance_of::<PyFloat>() || !object.hasattr("__index__")? {
        return Ok(None);
    }
    // A tensor has `__index__`, too, but is an index only if it is one whole number.
    if object.cast::<PyTensor>().is_ok_and(|tensor| tensor.get().0.dim() > 0 || tensor.get().0.dtype().is_float()) {
        return Ok(None);
    }
    object.extract::<i64>().map(Some)
}

fn float_of(object: &Bound<'_, PyAny>, fit: Fit) -> PyResult<Option<f64>> {
    if let Ok(number) = object.cast::<PyFloat>() {
        return Ok(Some(number.value()));
    }
    Ok(match fit {
        Fit::Exact => None,
        Fit::Converted => number_of(object)?.map(|number| number.as_f64()),
    })
}

fn scalar_of(object: &Bound<'_, PyAny>, fit: Fit) -> PyResult<Option<Scalar>> {
    if fit == Fit::Exact && object.cast::<PyTensor>().is_ok() {
        return Ok(None);
    }
    number_of(object)
}

/// The values of a type that a message names, in Python's words.
pub fn type_text(ty: &Type) -> String {
    match ty {
        Type::Tensor => "Tensor".into(),
        Type::Int | Type::SymInt => "int".into(),
        Type::Float => "float".into(),
        Type::Bool => "bool".into(),
        Type::Str | Type::Layout | Type::MemoryFormat => "str".into(),
        Type::Scalar => "float | int | bool".into(),
        Type::ScalarType => "DType".into(),
        Type::Device => "Device | str".into(),
        Type::Generator => "Generator".into(),
        Type::List(element, Some(_)) if !element.holds_tensors() => {
            let element = type_text(element);
            format!("{element} | Sequence[{element}]")
        }
        Type::List(element, _) => format!("Sequence[{}]", type_text(element)),
        Type::Optional(inner) => format!("{} | None", type_text(inner)),
    }
}

/// A result as an object.
pub fn object_of<'py>(py: Python<'py>, value: Value) -> PyResult<Bound<'py, PyAny>> {
    fn tuple<'py, T: IntoPyObject<'py>>(py: Python<'py>, items: Vec<T>) -> PyResult<Bound<'py, PyAny>> {
        PyTuple::new(py, items).map(Bound::into_any)
    }
    Ok(match value {
        Value::None => py.None().into_bound(py),
        Value::Tensor(tensor) => return PyTensor::object(py, tensor),
        Value::TensorList(tensors) => return tuple(py, tensors.into_iter().map(PyTensor).collect()),
        Value::OptionalTensorList(tensors) => {
            return tuple(py, tensors.into_iter().map(|tensor| tensor.map(PyTensor)).collect());
        }
        Value::Int(number) => number.into_pyobject(py)?.into_any(),
        Value::Float(number) => number.into_pyobject(py)?.into_any(),
        Value::Bool(flag) => PyBool::new(py, flag).to_owned().into_any(),
        Value::Str(text) => PyString::new(py, &text).into_any(),
        Value::IntList(numbers) => return tuple(py, numbers.into_vec()),
        Value::FloatList(numbers) => return tuple(py, numbers),
        Value::BoolList(flags) => return tuple(py, flags),
        Value::Scalar(number) => return scalar_object(py, number),
        Value::ScalarList(numbers) => {
            let objects = numbers.into_iter().map(|number| scalar_object(py, number)).collect::<PyResult<Vec<_>>>();
            return tuple(py, objects?);
        }
        Value::DType(dtype) => dtype_object(py, dtype)?.into_bound(py).into_any(),
        Value::Device(device) => Bound::new(py, PyDevice(device))?.into_any(),
        Value::Layout(layout) => PyString::new(py, &format!("{layout:?}").to_lowercase()).into_any(),
        Value::MemoryFormat(format) => PyString::new(py, &format!("{format:?}").to_lowercase()).into_any(),
        Value::Object(_) => py.None().into_bound(py),
    })
}

/// A number as an object.
pub fn scalar_object(py: Python<'_>, number: Scalar) -> PyResult<Bound<'_, PyAny>> {
    Ok(match number {
        Scalar::Int(number) => number.into_pyobject(py)?.into_any(),
        Scalar::Float(number) => number.into_pyobject(py)?.into_any(),
        Scalar::Bool(flag) => PyBool::new(py, flag).to_owned().into_any(),
    })
}
