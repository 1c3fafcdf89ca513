#![allow(unsafe_code, reason = "the buffer protocol passes pointers")]
//! The class `opfuse.Tensor`: what it has besides the operators, whose methods `entry.rs` adds.

use crate::arrow;
use crate::errors::{OrRaise, raised, type_error, value_error};
use crate::exchange::{self, memory_of};
use crate::indexing;
use crate::names::{PyDevice, device_of, dtype_argument, dtype_name, dtype_object, dtype_of};
use crate::operators::call_by_name;
use crate::places::at_caller;
use crate::values::scalar_object;
use opfuse::autograd::{self, GradOptions};
use opfuse::formats::dlpack::Capsule;
use opfuse::{DType, Scalar, Tensor};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyComplex, PyDict, PyList, PyTuple, PyType};
use std::ffi::c_int;

/// An n-dimensional array of one dtype.
///
/// Operators run at once, as in PyTorch. `opfuse.compile` fuses functions of tensors into few kernels, with the same
/// bits. Make tensors with `opfuse.tensor`, `opfuse.zeros` and their kin, or over the memory of other libraries with
/// `opfuse.asarray` and `opfuse.from_dlpack`.
#[pyclass(frozen, weakref, name = "Tensor", module = "opfuse")]
pub struct PyTensor(pub Tensor);

impl PyTensor {
    /// A new object for a tensor.
    #[inline]
    pub fn object(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, PyAny>> {
        Bound::new(py, PyTensor(tensor)).map(Bound::into_any)
    }
}

#[pymethods]
impl PyTensor {
    fn __hash__(&self) -> u64 {
        self.0.id()
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        let number = self.number(py, "the truth of a tensor is ambiguous; use any() or all()")?;
        Ok(number.as_f64() != 0.0)
    }

    fn __complex__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.0.is_complex() && self.0.numel() == 1 {
            return self.item(py);
        }
        let number = self.number(py, "use tolist()")?;
        Ok(PyComplex::from_doubles(py, number.as_f64(), 0.0).into_any())
    }

    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        self.number(py, "use tolist() or item()").map(Scalar::as_f64)
    }

    fn __int__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let number = scalar_object(py, self.number(py, "use tolist() or item()")?)?;
        py.import("builtins")?.getattr("int")?.call1((number,))
    }

    fn __index__(&self, py: Python<'_>) -> PyResult<i64> {
        if self.0.numel() != 1 {
            // `bytes` and NumPy look for another protocol after a `TypeError` alone.
            let n = self.0.numel();
            return Err(type_error(py, format!("a tensor of {n} elements is no index; one whole number is")));
        }
        match self.number(py, "use one whole number")? {
            Scalar::Int(number) => Ok(number),
            Scalar::Bool(_) | Scalar::Float(_) => Err(type_error(
                py,
                format!("a tensor of {} is no index; convert it to int64", dtype_name(self.0.dtype())),
            )),
        }
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let refused = || type_error(py, "a tensor of no dims has no len()".into());
        self.0.sizes().first().copied().ok_or_else(refused)
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if slf.get().0.dim() == 0 {
            return Err(type_error(slf.py(), "a tensor of no dims cannot be iterated over".into()));
        }
        let zero = 0i64.into_pyobject(slf.py())?.into_any();
        Ok(call_by_name(slf.py(), "unbind", &[slf.as_any().clone(), zero])?.try_iter()?.into_any())
    }

    /// The elements of the first dim in the opposite order, as a tensor.
    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let dims = PyList::new(slf.py(), if slf.get().0.dim() == 0 { &[][..] } else { &[0i64] })?;
        call_by_name(slf.py(), "flip", &[slf.as_any().clone(), dims.into_any()])
    }

    fn __contains__(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let equal = call_by_name(slf.py(), "eq", &[slf.as_any().clone(), value.clone()])?;
        equal.call_method0("any")?.is_truthy()
    }

    fn __getitem__(&self, py: Python<'_>, subscript: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        at_caller(py, || indexing::get(py, &self.0, subscript)).map(PyTensor)
    }

    fn __setitem__(&self, py: Python<'_>, subscript: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        at_caller(py, || indexing::set(py, &self.0, subscript, value))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let (dtype, device) = (dtype_name(self.0.dtype()), self.0.device());
        let mut after = format!(", dtype={dtype}");
        if device != opfuse::device::Device::CPU {
            after.push_str(&format!(", device='{device}'"));
        }
        if self.0.requires_grad() {
            after.push_str(", requires_grad=True");
        }
        if self.0.numel() == 0 {
            after = format!(", shape={:?}{after}", self.0.sizes());
        }
        format!("tensor({}{after})", self.__str__(py).replace('\n', "\n       "))
    }

    fn __str__(&self, py: Python<'_>) -> String {
        let text = py.detach(|| self.0.to_string());
        // Truth values are written as Python writes them, which is as wide.
        match self.0.dtype() {
            DType::Bool => text.replace("true", "True").replace("false", "False"),
            _ => text,
        }
    }

    fn __format__<'py>(slf: &Bound<'py, Self>, spec: &str) -> PyResult<String> {
        if spec.is_empty() || slf.get().0.dim() > 0 {
            return Ok(slf.str()?.to_string());
        }
        let number = slf.get().item(slf.py())?;
        number.call_method1("__format__", (spec,))?.extract()
    }

    /// Sizes, outermost first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.sizes())
    }

    /// The type of the elements.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<Py<crate::names::PyDType>> {
        dtype_object(py, self.0.dtype())
    }

    /// Where the elements are.
    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.0.device())
    }

    /// The number of dims.
    #[getter]
    fn ndim(&self) -> usize {
        self.0.dim()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.0.numel()
    }

    /// NumPy leaves operators of its arrays and a tensor to the tensor.
    #[classattr]
    fn __array_priority__() -> f64 {
        1000.0
    }

    /// Bytes per element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.dtype().size()
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.numel() * self.0.dtype().size()
    }

    /// The transpose of a matrix.
    #[getter]
    #[pyo3(name = "T")]
    fn transpose_all(&self, py: Python<'_>) -> PyResult<PyTensor> {
        let dims: Vec<i64> = (0..self.0.dim() as i64).rev().collect();
        self.0.permute(&dims).or_raise(py).map(PyTensor)
    }

    /// The transpose of the last two dims.
    #[getter]
    #[pyo3(name = "mT")]
    fn matrix_transpose(&self, py: Python<'_>) -> PyResult<PyTensor> {
        self.0.transpose(-2, -1).or_raise(py).map(PyTensor)
    }

    /// The real parts, as a view. A real tensor is its own real part.
    #[getter]
    fn real(&self, py: Python<'_>) -> PyResult<PyTensor> {
        self.0.real().or_raise(py).map(PyTensor)
    }

    /// The imaginary parts of a complex tensor, as a view.
    #[getter]
    fn imag(&self, py: Python<'_>) -> PyResult<PyTensor> {
        self.0.imag().or_raise(py).map(PyTensor)
    }

    /// Whether the elements are complex numbers.
    fn is_complex(&self) -> bool {
        self.0.is_complex()
    }

    /// The number of elements.
    fn numel(&self) -> usize {
        self.0.numel()
    }

    /// The number of dims.
    fn dim(&self) -> usize {
        self.0.dim()
    }

    /// Strides in elements.
    fn stride<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.strides())
    }

    /// The position of the first element in the memory that views share.
    fn storage_offset(&self) -> usize {
        self.0.storage_offset()
    }

    /// Whether the elements are dense and row-major.
    fn is_contiguous(&self) -> bool {
        self.0.is_contiguous()
    }

    /// The address of the first element.
    fn data_ptr(&self, py: Python<'_>) -> PyResult<usize> {
        memory_of(&self.0).map(|memory| memory.array().ptr().addr()).or_raise(py)
    }

    /// The number of a tensor of one element, as a Python number.
    fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.0.is_complex() && self.0.numel() == 1 {
            let parts = py.detach(|| parts_of(&self.0)).or_raise(py)?;
            return Ok(PyComplex::from_doubles(py, parts[0], parts[1]).into_any());
        }
        scalar_object(py, self.number(py, "use tolist()")?)
    }

    /// The elements as nested lists of Python numbers.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.0.is_complex() {
            let parts = py.detach(|| parts_of(&self.0)).or_raise(py)?;
            let objects = parts.chunks_exact(2).map(|part| PyComplex::from_doubles(py, part[0], part[1]).into_any());
            return nested(py, self.0.sizes(), &mut objects.map(Ok));
        }
        let numbers = py.detach(|| numbers_of(&self.0)).or_raise(py)?;
        nested(py, self.0.sizes(), &mut numbers.into_iter().map(|number| scalar_object(py, number)))
    }

    /// The tensor with another dtype or on another device; the tensor itself if nothing changes.
    #[pyo3(signature = (*targets, dtype=None, device=None, copy=false))]
    fn to(
        slf: &Bound<'_, Self>,
        targets: &Bound<'_, PyTuple>,
        dtype: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
        copy: bool,
    ) -> PyResult<Py<Self>> {
        let py = slf.py();
        let tensor = &slf.get().0;
        let (mut to_dtype, mut to_device) = (None, None);
        for target in targets.iter().chain(dtype.cloned()).chain(device.cloned()) {
            if let Some(dtype) = dtype_of(&target)? {
                to_dtype = Some(dtype);
            } else if let Ok(other) = target.cast::<PyTensor>() {
                (to_dtype, to_device) = (Some(other.get().0.dtype()), Some(other.get().0.device()));
            } else {
                to_device =
                    Some(device_of(&target)?.ok_or_else(|| {
                        type_error(py, "to() takes a dtype, a device, or a tensor that has both".into())
                    })?);
            }
        }
        let is_same = to_dtype.is_none_or(|dtype| dtype == tensor.dtype())
            && to_device.is_none_or(|device| device == tensor.device());
        if is_same && !copy {
            return Ok(slf.clone().unbind());
        }
        let change = || {
            let made = to_dtype.map_or_else(|| Ok(tensor.clone()), |dtype| tensor.to_dtype(dtype))?;
            let made = to_device.map_or_else(|| Ok(made.clone()), |device| made.to_device(device))?;
            if copy && made.is_alias_of(tensor) { made.copy() } else { Ok(made) }
        };
        let made = at_caller(py, || py.detach(change));
        Py::new(py, PyTensor(made.or_raise(py)?))
    }

    /// The tensor on another device, as the array API standard names it. There are no streams to wait for.
    #[pyo3(signature = (device, /, *, stream=None))]
    fn to_device(
        slf: &Bound<'_, Self>,
        device: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Self>> {
        let py = slf.py();
        if stream.is_some() {
            return Err(type_error(
                py,
                "to_device() takes no stream: copies are ordered by opfuse; leave it out".into(),
            ));
        }
        if device_of(device)?.is_none() {
            return Err(type_error(py, "to_device() takes a device, such as opfuse.Device(\"cpu\")".into()));
        }
        Self::to(slf, &PyTuple::empty(py), None, Some(device), false)
    }

    /// The functions of the array API standard: the module `opfuse.array_api`.
    #[pyo3(signature = (*, api_version=None))]
    fn __array_namespace__<'py>(&self, py: Python<'py>, api_version: Option<&str>) -> PyResult<Bound<'py, PyModule>> {
        let module = py.import("opfuse.array_api")?;
        let offered: String = module.getattr("__array_api_version__")?.extract()?;
        match api_version {
            Some(asked) if asked > offered.as_str() => {
                Err(value_error(py, format!("version {asked} of the array API was asked for; {offered} is here")))
            }
            Some(_) | None => Ok(module),
        }
    }

    /// The elements as an array of NumPy over the same memory.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::__array__(slf, None, None)
    }

    /// The elements as an array of NumPy, over the same memory if the dtype stays.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let numpy = py.import("numpy")?;
        let view = py.import("builtins")?.getattr("memoryview")?.call1((slf,));
        let view = view.map_err(|failed| match failed.is_instance_of::<PyBufferError>(py) {
            true => PyTypeError::new_err(failed.value(py).to_string()),
            false => failed,
        })?;
        let named = PyDict::new(py);
        if let Some(dtype) = dtype {
            named.set_item("dtype", dtype)?;
        }
        if copy == Some(true) {
            numpy.call_method("array", (view,), Some(&named))
        } else {
            numpy.call_method("asarray", (view,), Some(&named))
        }
    }

    /// A capsule of DLPack over the tensor's memory.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let tensor = &slf.get().0;
        if stream.is_some() && tensor.device().kind == opfuse::device::DeviceKind::Cpu {
            return Err(value_error(py, "a tensor on the cpu has no stream; leave stream out".into()));
        }
        if dl_device.is_some_and(|device| device != (1, 0)) {
            return Err(PyBufferError::new_err("the tensor can be given on the cpu alone; dl_device must be (1, 0)"));
        }
        let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
        match copy {
            Some(true) => exchange::exported(py, &py.detach(|| tensor.copy()).or_raise(py)?, is_versioned),
            Some(false) | None => exchange::exported(py, tensor, is_versioned),
        }
    }

    /// Capsules of Arrow: the type, and an array over the tensor's memory. Dims after the first are lists.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        // Who asks for another type casts what it gets, as the interface says.
        let _ = requested_schema;
        arrow::to_arrow(py, &self.0)
    }

    /// `(kind, number)` of the device, by DLPack's numbers.
    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        exchange::dlpack_device(py, &self.0)
    }

    // SAFETY: Python calls it with a buffer to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: as above.
        unsafe { exchange::fill_buffer(&slf, view, flags) }
    }

    // SAFETY: Python calls it once for each buffer that was filled.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: as above.
        unsafe { exchange::release_buffer(view) }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let tensor = &slf.get().0;
        let dense = py.detach(|| tensor.detach()?.contiguous()).or_raise(py)?;
        // Elements as bytes: the memory of a row-major tensor, whatever its dtype.
        let bytes = py.detach(|| bytes_of(&dense)).or_raise(py)?;
        let arguments = (
            PyBytes::new(py, &bytes),
            dtype_name(tensor.dtype()),
            PyTuple::new(py, tensor.sizes())?,
            tensor.requires_grad(),
        );
        Ok((py.import("opfuse._opfuse")?.getattr("_rebuild")?, arguments.into_pyobject(py)?))
    }

    fn __copy__(&self, py: Python<'_>) -> PyResult<PyTensor> {
        py.detach(|| self.0.copy()).or_raise(py).map(PyTensor)
    }

    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        let copied = py.detach(|| {
            let copy = self.0.detach()?.copy()?;
            copy.set_requires_grad(self.0.requires_grad() && self.0.is_leaf())?;
            Ok(copy)
        });
        copied.or_raise(py).map(PyTensor)
    }

    /// Whether operators record how gradients flow to this tensor.
    #[getter]
    fn requires_grad(&self) -> bool {
        self.0.requires_grad()
    }

    #[setter]
    fn set_requires_grad(&self, py: Python<'_>, requires_grad: bool) -> PyResult<()> {
        self.0.set_requires_grad(requires_grad).or_raise(py)
    }

    /// Sets `requires_grad`, and returns the tensor.
    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_<'py>(slf: Bound<'py, Self>, requires_grad: bool) -> PyResult<Bound<'py, Self>> {
        slf.get().0.set_requires_grad(requires_grad).or_raise(slf.py())?;
        Ok(slf)
    }

    /// The gradient that `backward` has added up, or `None`.
    #[getter]
    fn grad(&self) -> Option<PyTensor> {
        self.0.grad().map(PyTensor)
    }

    #[setter]
    fn set_grad(&self, py: Python<'_>, gradient: Option<Py<PyTensor>>) -> PyResult<()> {
        self.0.set_grad(gradient.as_ref().map(|gradient| &gradient.get().0)).or_raise(py)
    }

    /// Whether no operator with gradients made the tensor.
    #[getter]
    fn is_leaf(&self) -> bool {
        self.0.is_leaf()
    }

    /// The tensor without its history, over the same memory.
    fn detach(&self, py: Python<'_>) -> PyResult<PyTensor> {
        self.0.detach().or_raise(py).map(PyTensor)
    }

    /// Adds the gradients of this tensor to the leaves that it depends on.
    #[pyo3(signature = (gradient=None, *, retain_graph=false, create_graph=false))]
    fn backward(
        &self,
        py: Python<'_>,
        gradient: Option<Py<PyTensor>>,
        retain_graph: bool,
        create_graph: bool,
    ) -> PyResult<()> {
        let options = GradOptions { retain_graph, create_graph, ..GradOptions::default() };
        let given = [gradient.as_ref().map(|gradient| &gradient.get().0)];
        py.detach(|| autograd::backward(&[&self.0], &given, options)).or_raise(py)
    }

    /// How often the elements were written to.
    #[getter]
    fn _version(&self) -> u64 {
        self.0.version()
    }

    #[classmethod]
    fn __class_getitem__<'py>(class: &Bound<'py, PyType>, _item: &Bound<'py, PyAny>) -> Bound<'py, PyType> {
        class.clone()
    }
}

impl PyTensor {
    /// The number of a tensor of one element.
    fn number(&self, py: Python<'_>, hint: &str) -> PyResult<Scalar> {
        let one = || if self.0.dim() == 0 { Ok(self.0.clone()) } else { self.0.reshape([]) };
        if self.0.numel() != 1 {
            return Err(value_error(py, format!("a tensor of {} elements is not one number; {hint}", self.0.numel())));
        }
        py.detach(|| one()?.to_scalar()).map_err(|error| raised(py, error))
    }
}

/// The bytes of a row-major tensor.
fn bytes_of(dense: &Tensor) -> opfuse::Result<Vec<u8>> {
    // Traces and tensors without elements refuse to be read.
    drop(Capsule::shared(dense)?);
    let width = dense.dtype().size();
    let mut bytes = vec![0; dense.numel() * width];
    if !bytes.is_empty() {
        memory_of(dense)?.array().storage().fetch(dense.storage_offset() * width, &mut bytes)?;
    }
    Ok(bytes)
}

/// The parts of complex numbers, row-major.
fn parts_of(tensor: &Tensor) -> opfuse::Result<Vec<f64>> {
    tensor.detach()?.to_dtype(DType::Complex128)?.view_as_real()?.to_vec()
}

/// The elements, row-major.
fn numbers_of(tensor: &Tensor) -> opfuse::Result<Vec<Scalar>> {
    let tensor = tensor.detach()?;
    Ok(match tensor.dtype() {
        DType::Bool => tensor.to_vec::<bool>()?.into_iter().map(Scalar::Bool).collect(),
        DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            tensor.to_dtype(DType::I64)?.to_vec::<i64>()?.into_iter().map(Scalar::Int).collect()
        }
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::Complex64 | DType::Complex128 => {
            tensor.to_dtype(DType::F64)?.to_vec::<f64>()?.into_iter().map(Scalar::Float).collect()
        }
    })
}

fn nested<'py>(
    py: Python<'py>,
    sizes: &[usize],
    numbers: &mut dyn Iterator<Item = PyResult<Bound<'py, PyAny>>>,
) -> PyResult<Bound<'py, PyAny>> {
    let Some((&size, inner)) = sizes.split_first() else {
        return numbers.next().ok_or_else(|| value_error(py, "a tensor has too few elements".into()))?;
    };
    let items = (0..size).map(|_| nested(py, inner, numbers)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyList::new(py, items)?.into_any())
}

/// A tensor of the parts that a pickle holds.
#[pyfunction]
pub fn _rebuild(
    py: Python<'_>,
    bytes: &[u8],
    dtype: &Bound<'_, PyAny>,
    sizes: Vec<usize>,
    requires_grad: bool,
) -> PyResult<PyTensor> {
    let tensor = Tensor::from_bytes(bytes, dtype_argument(dtype)?, &sizes).or_raise(py)?;
    tensor.set_requires_grad(requires_grad).or_raise(py)?;
    Ok(PyTensor(tensor))
}
