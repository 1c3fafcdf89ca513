//! Objects that name things: dtypes, devices, memory formats.

use crate::errors::{OrRaise, type_error, value_error};
use opfuse::device::Device;
use opfuse::{DType, MemoryFormat};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString, PyType};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The names in Python, by dtype: those of NumPy and PyTorch.
const NAMES: [(DType, &str); 12] = [
    (DType::Bool, "bool"),
    (DType::U8, "uint8"),
    (DType::I8, "int8"),
    (DType::I16, "int16"),
    (DType::I32, "int32"),
    (DType::I64, "int64"),
    (DType::F16, "float16"),
    (DType::BF16, "bfloat16"),
    (DType::F32, "float32"),
    (DType::F64, "float64"),
    (DType::Complex64, "complex64"),
    (DType::Complex128, "complex128"),
];

/// Other names that PyTorch and NumPy know.
const ALIASES: [(&str, DType); 13] = [
    ("bool_", DType::Bool),
    ("byte", DType::U8),
    ("char", DType::I8),
    ("short", DType::I16),
    ("int", DType::I32),
    ("long", DType::I64),
    ("half", DType::F16),
    ("float", DType::F32),
    ("double", DType::F64),
    ("cfloat", DType::Complex64),
    ("cdouble", DType::Complex128),
    ("f32", DType::F32),
    ("f64", DType::F64),
];

/// The name of a dtype in Python.
pub fn dtype_name(dtype: DType) -> &'static str {
    NAMES[dtype as usize].1
}

/// The type of the elements of a tensor: `opfuse.float32`, `opfuse.int64`, ...
#[pyclass(frozen, eq, hash, name = "DType", module = "opfuse")]
#[derive(PartialEq, Eq, Hash)]
pub struct PyDType(pub DType);

#[pymethods]
impl PyDType {
    #[new]
    fn new(dtype: &Bound<'_, PyAny>) -> PyResult<Py<PyDType>> {
        let found = dtype_of(dtype)?;
        found.map_or_else(|| Err(no_dtype(dtype)), |found| dtype_object(dtype.py(), found))
    }

    /// The name: `float32`.
    #[getter]
    fn name(&self) -> &'static str {
        dtype_name(self.0)
    }

    /// Bytes per element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }

    /// Whether it holds floating-point numbers.
    #[getter]
    fn is_floating_point(&self) -> bool {
        self.0.is_float()
    }

    /// Whether it holds complex numbers.
    #[getter]
    fn is_complex(&self) -> bool {
        self.0.is_complex()
    }

    fn __repr__(&self) -> String {
        format!("opfuse.{}", dtype_name(self.0))
    }

    fn __str__(&self) -> &'static str {
        dtype_name(self.0)
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> (Py<PyType>, (&'static str,)) {
        (slf.get_type().unbind(), (dtype_name(slf.get().0),))
    }
}

static DTYPES: PyOnceLock<Vec<Py<PyDType>>> = PyOnceLock::new();

fn dtype_objects(py: Python<'_>) -> PyResult<&Vec<Py<PyDType>>> {
    DTYPES.get_or_try_init(py, || NAMES.iter().map(|(dtype, _)| Py::new(py, PyDType(*dtype))).collect())
}

/// The object of a dtype. There is one for each, so that `is` works.
pub fn dtype_object(py: Python<'_>, dtype: DType) -> PyResult<Py<PyDType>> {
    Ok(dtype_objects(py)?[dtype as usize].clone_ref(py))
}

/// The dtype that an object names: an `opfuse.DType`, a name, one of Python's `bool`, `int` and `float`, or a dtype of
/// NumPy or PyTorch. `None` if it names none.
pub fn dtype_of(object: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    if let Ok(dtype) = object.cast::<PyDType>() {
        return Ok(Some(dtype.get().0));
    }
    if let Ok(name) = object.cast::<PyString>() {
        return Ok(named(&name.to_string()));
    }
    if let Ok(class) = object.cast::<PyType>() {
        let py = object.py();
        for (built_in, dtype) in [
            (py.get_type::<PyBool>(), DType::Bool),
            (py.get_type::<PyInt>(), DType::I64),
            (py.get_type::<PyFloat>(), DType::DEFAULT_FLOAT),
        ] {
            if class.is(&built_in) {
                return Ok(Some(dtype));
            }
        }
        // A scalar class of NumPy: `numpy.float32`.
        return Ok(named(&class.name()?.to_string()));
    }
    let class = object.get_type().name()?.to_string();
    // `numpy.dtype("float32")` prints its name, `torch.float32` itself.
    Ok(if class.to_lowercase().contains("dtype") {
        let text = object.str()?.to_string();
        named(text.rsplit('.').next().unwrap_or(&text))
    } else {
        None
    })
}

fn named(name: &str) -> Option<DType> {
    let own = NAMES.iter().find(|(_, own)| *own == name).map(|(dtype, _)| *dtype);
    own.or_else(|| ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, dtype)| *dtype))
}

/// The dtype of an argument.
pub fn dtype_argument(object: &Bound<'_, PyAny>) -> PyResult<DType> {
    dtype_of(object)?.ok_or_else(|| no_dtype(object))
}

/// The error for an object that names no dtype.
pub fn no_dtype(object: &Bound<'_, PyAny>) -> PyErr {
    let all: Vec<&str> = NAMES.iter().map(|(_, name)| *name).collect();
    let text = object.repr().map_or_else(|_| "the object".into(), |text| text.to_string());
    type_error(object.py(), format!("{text} names no dtype of opfuse; use one of {}", all.join(", ")))
}

/// A device: `opfuse.Device("cpu")`, `opfuse.Device("cuda:0")`.
#[pyclass(frozen, name = "Device", module = "opfuse")]
pub struct PyDevice(pub Device);

#[pymethods]
impl PyDevice {
    #[new]
    fn new(name: &Bound<'_, PyAny>) -> PyResult<PyDevice> {
        let found = device_of(name)?;
        found.map(PyDevice).ok_or_else(|| type_error(name.py(), "a device is named by text, such as 'cpu'".into()))
    }

    /// The kind: `cpu` or `cuda`.
    #[getter]
    fn r#type(&self) -> &'static str {
        self.0.kind.name()
    }

    /// The number of the device, or `None` for the current one.
    #[getter]
    fn index(&self) -> Option<u16> {
        self.0.index
    }

    fn __repr__(&self) -> String {
        format!("opfuse.Device('{}')", self.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        device_of(other).ok().flatten() == Some(self.0)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> (Py<PyType>, (String,)) {
        (slf.get_type().unbind(), (slf.get().0.to_string(),))
    }
}

/// The device that an object names: an `opfuse.Device`, or text.
///
/// # Errors
/// If it is text that names no device.
pub fn device_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Device>> {
    if let Ok(device) = object.cast::<PyDevice>() {
        return Ok(Some(device.get().0));
    }
    match object.cast::<PyString>() {
        Ok(name) => name.to_string().parse::<Device>().or_raise(object.py()).map(Some),
        Err(_) => Ok(None),
    }
}

/// The device of an argument.
pub fn device_argument(object: &Bound<'_, PyAny>) -> PyResult<Device> {
    let refused = || type_error(object.py(), "a device is an opfuse.Device or text, such as 'cpu'".into());
    device_of(object)?.ok_or_else(refused)
}

/// The memory format that text names, as in `contiguous_format`.
///
/// # Errors
/// If there is none of that name.
pub fn memory_format_of(object: &Bound<'_, PyAny>) -> PyResult<Option<MemoryFormat>> {
    let Ok(name) = object.cast::<PyString>() else { return Ok(None) };
    let name = name.to_string();
    let found = MemoryFormat::from_name(name.rsplit('.').next().unwrap_or(&name));
    let refused = || value_error(object.py(), format!("{name:?} names no memory format; use 'contiguous_format'"));
    found.map(Some).ok_or_else(refused)
}

/// Adds the classes and the dtypes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyDType>()?;
    module.add_class::<PyDevice>()?;
    let py = module.py();
    NAMES.iter().try_for_each(|(dtype, name)| module.add(*name, dtype_object(py, *dtype)?))?;
    // NumPy's name, which does not hide Python's own `bool`.
    module.add("bool_", dtype_object(py, DType::Bool)?)
}
