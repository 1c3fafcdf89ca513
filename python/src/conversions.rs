//! Methods of `Tensor` that PyTorch's users know and that are no operators: dtypes by name, places, hooks.

use crate::compiled::called;
use crate::errors::{OrRaise, type_error, value_error};
use crate::names::dtype_argument;
use crate::tensor::PyTensor;
use opfuse::autograd::HookId;
use opfuse::device::{Device, DeviceKind};
use opfuse::{DType, Tensor};
use pyo3::prelude::*;

type This<'a, 'py> = &'a Bound<'py, PyTensor>;

/// The tensor with another dtype; the tensor itself if it has that.
fn with_dtype(slf: This<'_, '_>, dtype: DType) -> PyResult<Py<PyTensor>> {
    let (py, tensor) = (slf.py(), &slf.get().0);
    if tensor.dtype() == dtype {
        return Ok(slf.clone().unbind());
    }
    Py::new(py, PyTensor(py.detach(|| tensor.to_dtype(dtype)).or_raise(py)?))
}

#[pymethods]
impl PyTensor {
    /// The tensor as float32.
    fn float(slf: This<'_, '_>) -> PyResult<Py<PyTensor>> {
        with_dtype(slf, DType::F32)
    }

    /// The tensor as float64.
    fn double(slf: This<'_, '_>) -> PyResult<Py<PyTensor>> {
        with_dtype(slf, DType::F64)
    }

    /// The tensor as float16.
    fn half(slf: This<'_, '_>) -> PyResult<Py<PyTensor>> {
        with_dtype(slf, DType::F16)
    }

    /// The tensor as bfloat16.
    fn bfloat16(slf: This<'_, '_>) -> PyResult<Py<PyTensor>> {
        with_dtype(slf, DType::BF16)
    }

    /// The tensor as int64.
    fn long(slf: This<'_, '_>) -> PyResult<Py<PyTensor>> {
        with_dtype(slf, DType::I64)
    }

    /// The tensor as int32.
    fn int(slf: This<'_, '_>) -> PyResult<Py<PyTensor>> {
        with_dtype(slf, DType::I32)
    }

    /// The tensor as int16.
    fn short(slf: This<'_, '_>) -> PyResult<Py<PyTensor>> {
        with_dtype(slf, DType::I16)
    }

    /// The tensor as uint8.
    fn byte(slf: This<'_, '_>) -> PyResult<Py<PyTensor>> {
        with_dtype(slf, DType::U8)
    }

    /// The tensor as truth values.
    fn bool(slf: This<'_, '_>) -> PyResult<Py<PyTensor>> {
        with_dtype(slf, DType::Bool)
    }

    /// A copy with that dtype, as NumPy's arrays give it; with `copy=False` the tensor itself if it has the dtype.
    #[pyo3(signature = (dtype, *, copy=true))]
    fn astype(slf: This<'_, '_>, dtype: &Bound<'_, PyAny>, copy: bool) -> PyResult<Py<PyTensor>> {
        let dtype = dtype_argument(dtype)?;
        let (py, tensor) = (slf.py(), &slf.get().0);
        match copy && tensor.dtype() == dtype {
            true => Py::new(py, PyTensor(py.detach(|| tensor.copy()).or_raise(py)?)),
            false => with_dtype(slf, dtype),
        }
    }

    /// The tensor on the CPU.
    fn cpu(slf: This<'_, '_>) -> PyResult<Py<PyTensor>> {
        let (py, tensor) = (slf.py(), &slf.get().0);
        if tensor.device().kind == DeviceKind::Cpu {
            return Ok(slf.clone().unbind());
        }
        Py::new(py, PyTensor(py.detach(|| tensor.to_device(Device::CPU)).or_raise(py)?))
    }

    /// The transpose of a matrix; of real numbers it is the adjoint, too.
    #[getter]
    #[pyo3(name = "H")]
    fn adjoint(&self, py: Python<'_>) -> PyResult<PyTensor> {
        match self.0.dim() {
            2 => self.0.transpose(0, 1).or_raise(py).map(PyTensor),
            n => Err(value_error(py, format!("H is of matrices, and this tensor has {n} dims; use mH"))),
        }
    }

    /// The transpose of the last two dims.
    #[getter]
    #[pyo3(name = "mH")]
    fn matrix_adjoint(&self, py: Python<'_>) -> PyResult<PyTensor> {
        self.0.transpose(-2, -1).or_raise(py).map(PyTensor)
    }

    /// Whether the elements are on a CUDA device.
    #[getter]
    fn is_cuda(&self) -> bool {
        self.0.device().kind == DeviceKind::Cuda
    }

    /// Whether the elements are floating-point numbers.
    fn is_floating_point(&self) -> bool {
        self.0.dtype().is_float()
    }

    /// Bytes per element.
    fn element_size(&self) -> usize {
        self.0.dtype().size()
    }

    /// The number of elements.
    fn nelement(&self) -> usize {
        self.0.numel()
    }

    /// The number of dims.
    fn ndimension(&self) -> usize {
        self.0.dim()
    }

    /// Makes a tensor that is no leaf keep its gradient in `grad`.
    fn retain_grad(&self, py: Python<'_>) -> PyResult<()> {
        self.0.retain_grad().or_raise(py)
    }

    /// Calls `hook` with the gradient of this tensor when it is computed. A tensor that it returns replaces the
    /// gradient. The result has a method `remove`.
    fn register_hook(&self, py: Python<'_>, hook: Py<PyAny>) -> PyResult<Hook> {
        if !hook.bind(py).is_callable() {
            return Err(type_error(py, "register_hook() takes a function of the gradient".into()));
        }
        let call = move |gradient: &Tensor| {
            called(|py| {
                let replaced = hook.bind(py).call1((PyTensor(gradient.clone()),))?;
                let replaced = replaced.extract::<Option<Py<PyTensor>>>()?;
                Ok(replaced.map(|replaced| replaced.get().0.clone()))
            })
        };
        let id = self.0.register_hook(call).or_raise(py)?;
        Ok(Hook { tensor: self.0.clone(), id })
    }

    /// The elements without history: writes to them are not recorded. To set it copies elements of the same shape and
    /// dtype.
    #[getter]
    fn data(&self, py: Python<'_>) -> PyResult<PyTensor> {
        self.0.detach().or_raise(py).map(PyTensor)
    }

    #[setter]
    fn set_data(&self, py: Python<'_>, data: Py<PyTensor>) -> PyResult<()> {
        let (own, data) = (&self.0, &data.get().0);
        if own.sizes() != data.sizes() || own.dtype() != data.dtype() {
            let text = format!("data of {} cannot become {}", own.ty(), data.ty());
            return Err(type_error(py, format!("{text}: a tensor keeps its shape and dtype; make a new tensor")));
        }
        let is_same =
            own.is_alias_of(data) && own.storage_offset() == data.storage_offset() && own.strides() == data.strides();
        if is_same {
            return Ok(());
        }
        py.detach(|| own.detach()?.copy_(&data.detach()?).map(drop)).or_raise(py)
    }
}

/// A hook that was registered.
#[pyclass(frozen, name = "_Hook", module = "opfuse")]
pub struct Hook {
    tensor: Tensor,
    id: HookId,
}

#[pymethods]
impl Hook {
    /// Removes the hook.
    fn remove(&self, py: Python<'_>) {
        // Without the GIL, so that what the function holds is freed after locks are given back.
        py.detach(|| self.tensor.remove_hook(self.id));
    }
}
