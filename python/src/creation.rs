//! Tensors from Python's numbers and nested sequences, and from arrays of other libraries.

use crate::errors::{OrRaise, type_error, value_error};
use crate::exchange;
use crate::names::{device_argument, dtype_argument, dtype_name};
use crate::tensor::PyTensor;
use opfuse::device::Device;
use opfuse::{DType, Error, Result, Scalar, Tensor};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyList, PyRange, PyString, PyTuple};

/// The most levels of nested sequences.
const MAX_DEPTH: usize = 64;

/// The number that an object is: a Python number, a scalar of NumPy, or a tensor of no dims. `None` for other objects.
///
/// # Errors
/// If it is a whole number of more than 64 bits.
pub fn number_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    if let Ok(number) = object.cast::<PyFloat>() {
        return Ok(Some(Scalar::Float(number.value())));
    }
    if let Ok(flag) = object.cast::<PyBool>() {
        return Ok(Some(Scalar::Bool(flag.is_true())));
    }
    if object.is_instance_of::<PyInt>() {
        return object.extract::<i64>().map(|number| Some(Scalar::Int(number)));
    }
    if let Ok(tensor) = object.cast::<PyTensor>() {
        let tensor = &tensor.get().0;
        return if tensor.dim() == 0 { tensor.to_scalar().or_raise(object.py()).map(Some) } else { Ok(None) };
    }
    if object.is_instance_of::<PyString>() || object.is_none() || object.hasattr("__len__")? && object.len().is_ok() {
        return Ok(None);
    }
    if object.hasattr("__array_interface__")? {
        return numpy_number(object);
    }
    if object.hasattr("__index__")? {
        match object.extract::<i64>() {
            // What is one whole number only sometimes, such as an array of no dims.
            Err(failed) if failed.is_instance_of::<PyTypeError>(object.py()) => {}
            found => return found.map(|number| Some(Scalar::Int(number))),
        }
    }
    Ok(if object.hasattr("__float__")? { object.extract::<f64>().ok().map(Scalar::Float) } else { None })
}

/// The complex number that an object is: one of Python's, or a scalar of NumPy. `None` for other objects.
pub fn complex_of(object: &Bound<'_, PyAny>) -> Option<[f64; 2]> {
    let is_numpy = || object.get_type().name().is_ok_and(|name| name.to_string().starts_with("complex"));
    if object.cast_exact::<PyComplex>().is_err() && !is_numpy() {
        return None;
    }
    let part = |name: &str| object.getattr(name).and_then(|part| part.extract::<f64>()).ok();
    Some([part("real")?, part("imag")?])
}

/// A complex number as a tensor without dims.
///
/// # Errors
/// If there is not enough memory.
pub fn complex_number([re, im]: [f64; 2]) -> Result<Tensor> {
    Tensor::complex(&Tensor::scalar(re)?, &Tensor::scalar(im)?)
}

/// The number that a scalar of NumPy is, or an array of no dims.
fn numpy_number(object: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    let kind: String = object.getattr("dtype")?.getattr("kind")?.extract()?;
    Ok(match kind.as_str() {
        "b" => Some(Scalar::Bool(object.is_truthy()?)),
        "i" | "u" => Some(Scalar::Int(object.call_method0("__int__")?.extract()?)),
        "f" => Some(Scalar::Float(object.call_method0("__float__")?.extract()?)),
        _ => None,
    })
}

/// The numbers of a nested sequence, row-major, and its sizes.
#[derive(Default)]
struct Nested {
    sizes: Vec<usize>,
    numbers: Vec<Scalar>,
    /// Imaginary parts, up to that of the last complex number.
    imag: Vec<f64>,
    is_complete: bool,
}

impl Nested {
    fn read(&mut self, object: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        let py = object.py();
        let Some(items) = items_of(object)? else { return self.leaf(object, depth) };
        if depth == MAX_DEPTH {
            return Err(value_error(py, format!("sequences are nested in more than {MAX_DEPTH} levels")));
        }
        let expected = match self.sizes.get(depth) {
            Some(&size) => size,
            None if self.is_complete => return Err(ragged(py, depth)),
            None => {
                self.sizes.push(items.len());
                items.len()
            }
        };
        if items.len() != expected {
            let found = items.len();
            let text = format!("a sequence at level {depth} has {found} items, and one before it {expected}");
            return Err(value_error(py, format!("{text}; give all the same length")));
        }
        items.iter_borrowed().try_for_each(|item| self.read(&item, depth + 1))?;
        // An empty sequence has no numbers that would end the nesting.
        self.is_complete |= expected == 0;
        Ok(())
    }

    fn leaf(&mut self, object: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if depth != self.sizes.len() {
            return Err(ragged(object.py(), depth));
        }
        self.is_complete = true;
        let refused = || {
            let class = object.get_type().name().map_or_else(|_| "object".into(), |name| name.to_string());
            type_error(object.py(), format!("a tensor cannot be made of an object of type {class}; give numbers"))
        };
        if let Some([re, im]) = complex_of(object) {
            self.imag.resize(self.numbers.len(), 0.0);
            self.imag.push(im);
            self.numbers.push(Scalar::Float(re));
            return Ok(());
        }
        self.numbers.push(number_of(object)?.ok_or_else(refused)?);
        Ok(())
    }

    fn into_tensor(mut self, dtype: Option<DType>) -> Result<Tensor> {
        if !self.imag.is_empty() {
            self.imag.resize(self.numbers.len(), 0.0);
            let real = Tensor::from_vec(self.numbers.iter().map(|number| number.as_f64()).collect(), &self.sizes)?;
            let imag = Tensor::from_vec(self.imag, &self.sizes)?;
            return Tensor::complex(&real, &imag)?.to_dtype(dtype.unwrap_or(DType::Complex64));
        }
        let own = self.numbers.iter().map(|number| number.dtype()).max_by_key(|dtype| dtype.category());
        let own = own.map_or(DType::DEFAULT_FLOAT, |own| if own.is_float() { DType::DEFAULT_FLOAT } else { own });
        let dtype = dtype.unwrap_or(own);
        let sizes = &self.sizes[..];
        let numbers = self.numbers.iter();
        match dtype {
            DType::F32 => Tensor::from_vec(numbers.map(|number| number.as_f64() as f32).collect(), sizes),
            DType::F64 => Tensor::from_vec(numbers.map(|number| number.as_f64()).collect(), sizes),
            DType::Bool => Tensor::from_vec(numbers.map(|number| number.as_f64() != 0.0).collect(), sizes),
            DType::F16 | DType::BF16 | DType::Complex64 | DType::Complex128 => {
                Tensor::from_vec(numbers.map(|number| number.as_f64()).collect(), sizes)?.to_dtype(dtype)
            }
            DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
                let whole = numbers.map(|number| whole(*number, dtype)).collect::<Result<_>>()?;
                Tensor::from_vec(whole, sizes)?.to_dtype(dtype)
            }
        }
    }
}

/// A number as an element of a dtype of whole numbers.
fn whole(number: Scalar, dtype: DType) -> Result<i64> {
    let refused = || {
        let text = format!("{} is no {}; give another dtype", number.as_f64(), dtype_name(dtype));
        Err(Error::argument("tensor", text))
    };
    let found = match number {
        Scalar::Int(number) => number,
        Scalar::Float(number) if number.is_nan() || number.abs() >= 9.3e18 => return refused(),
        Scalar::Float(number) => number as i64,
        Scalar::Bool(flag) => i64::from(flag),
    };
    let bits = 8 * dtype.size() as u32 - 1;
    let fits = match dtype {
        DType::U8 => (0..256).contains(&found),
        _ => found >> bits == 0 || found >> bits == -1,
    };
    if fits { Ok(found) } else { refused() }
}

/// The items of a list, a tuple or a range.
pub fn items_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
    Ok(if let Ok(list) = object.cast::<PyList>() {
        Some(list.to_tuple())
    } else if let Ok(tuple) = object.cast::<PyTuple>() {
        Some(tuple.clone())
    } else if object.is_instance_of::<PyRange>() {
        Some(PyTuple::new(object.py(), object.try_iter()?.collect::<PyResult<Vec<_>>>()?)?)
    } else {
        None
    })
}

fn ragged(py: Python<'_>, depth: usize) -> PyErr {
    value_error(py, format!("numbers and sequences are mixed at level {depth}; nest all to the same depth"))
}

/// The first item of nested sequences that is none itself.
fn first_leaf<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let mut object = object.clone();
    for _ in 0..MAX_DEPTH {
        object = match (object.cast::<PyList>(), object.cast::<PyTuple>()) {
            (Ok(list), _) => list.get_item(0).ok()?,
            (_, Ok(tuple)) => tuple.get_item(0).ok()?,
            (Err(_), Err(_)) => return Some(object),
        };
    }
    None
}

/// An array whose elements are none of opfuse, such as unsigned or swapped ones, as NumPy converts them to `dtype`.
fn converted_by_numpy<'py>(object: &Bound<'py, PyAny>, dtype: DType) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !object.hasattr("__array_interface__")? || !object.hasattr("astype")? {
        return Ok(None);
    }
    let kind: String = object.getattr("dtype")?.getattr("kind")?.extract()?;
    let known = if dtype == DType::BF16 { DType::F32 } else { dtype };
    match matches!(kind.as_str(), "i" | "u" | "f" | "c") {
        true => object.call_method1("astype", (dtype_name(known),)).map(Some),
        false => Ok(None),
    }
}

/// Whether it is a tensor or an array with dims.
fn has_dims(object: &Bound<'_, PyAny>) -> bool {
    match object.cast::<PyTensor>() {
        Ok(tensor) => tensor.get().0.dim() > 0,
        Err(_) => object.hasattr("__array_interface__").unwrap_or(false) && object.len().is_ok(),
    }
}

/// A tensor of an object: over its memory where that is possible, and of its numbers otherwise.
pub fn tensor_of(object: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Tensor> {
    let py = object.py();
    if let Ok(tensor) = object.cast::<PyTensor>() {
        return Ok(tensor.get().0.clone());
    }
    let imported = match (exchange::imported(object), dtype) {
        (Err(failed), Some(dtype)) if failed.is_instance_of::<PyTypeError>(py) => {
            match converted_by_numpy(object, dtype)? {
                Some(array) => exchange::imported(&array),
                None => Err(failed),
            }
        }
        (imported, _) => imported,
    };
    if let Some(tensor) = imported? {
        return Ok(tensor);
    }
    if first_leaf(object).is_some_and(|leaf| has_dims(&leaf)) {
        let parts: Vec<Tensor> = object.try_iter()?.map(|part| tensor_of(&part?, dtype)).collect::<PyResult<_>>()?;
        let parts: Vec<&Tensor> = parts.iter().collect();
        return opfuse::stack(&parts, 0).or_raise(py);
    }
    let mut nested = Nested::default();
    nested.read(object, 0)?;
    nested.into_tensor(dtype).or_raise(py)
}

/// A tensor with a copy of the numbers or elements of `data`: nested sequences of numbers, a tensor, or an array of
/// another library.
///
/// Numbers with a point become float32, whole numbers int64, truth values bool, unless `dtype` says otherwise.
#[pyfunction]
#[pyo3(signature = (data, *, dtype=None, device=None, requires_grad=false))]
pub fn tensor(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
    requires_grad: bool,
) -> PyResult<PyTensor> {
    let (dtype, device) = options(dtype, device)?;
    let given = tensor_of(data, dtype)?;
    let is_shared =
        data.cast::<PyTensor>().is_ok() || data.hasattr("__array_interface__")? || data.hasattr("__dlpack__")?;
    let made = py.detach(|| {
        let converted = converted(&given.detach()?, dtype, device)?;
        let tensor = if is_shared || converted.is_alias_of(&given) { converted.copy()? } else { converted };
        tensor.set_requires_grad(requires_grad)?;
        Ok(tensor)
    });
    made.or_raise(py).map(PyTensor)
}

/// A tensor of `data`, over the same memory where dtype and device allow it. `copy=True` always copies; `copy=False`
/// raises `ValueError` where a copy would be needed.
#[pyfunction]
#[pyo3(signature = (data, /, *, dtype=None, device=None, copy=None))]
pub fn asarray(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
) -> PyResult<PyTensor> {
    let (dtype, device) = options(dtype, device)?;
    // NumPy converts by copies.
    let given = tensor_of(data, if copy == Some(false) { None } else { dtype })?;
    let made = py.detach(|| converted(&given, dtype, device)).or_raise(py)?;
    let is_number = || number_of(data).ok().flatten().is_some();
    let is_array =
        data.cast::<PyTensor>().is_ok() || first_leaf(data).is_some_and(|leaf| leaf.is(data)) && !is_number();
    if copy == Some(false) && !(is_array && made.is_alias_of(&given)) {
        return Err(value_error(py, "asarray: copy=False, but the data must be copied; leave copy out".into()));
    }
    match copy {
        Some(true) => py.detach(|| made.copy()).or_raise(py).map(PyTensor),
        Some(false) | None => Ok(PyTensor(made)),
    }
}

fn options(
    dtype: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Option<DType>, Option<Device>)> {
    Ok((dtype.map(dtype_argument).transpose()?, device.map(device_argument).transpose()?))
}

fn converted(given: &Tensor, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    let tensor = dtype.map_or_else(|| Ok(given.clone()), |dtype| given.to_dtype(dtype))?;
    device.map_or_else(|| Ok(tensor.clone()), |device| tensor.to_device(device))
}
