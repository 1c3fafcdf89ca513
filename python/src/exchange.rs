#![allow(unsafe_code, reason = "exchanges memory with other libraries by DLPack's and Python's C structures")]
//! Memory that is shared with other libraries: DLPack in and out, buffers and `__array_interface__` in, buffers out.
//!
//! What always holds: memory from elsewhere goes back to its owner with the GIL. A thread without the GIL does not wait
//! for it, because it may hold locks that the thread with the GIL waits for.

use crate::errors::{OrRaise, raised, type_error, value_error};
use crate::names::{dtype_name, dtype_of};
use crate::tensor::PyTensor;
use opfuse::device::foreign::{Access, Foreign};
use opfuse::formats::dlpack::{Capsule, Description, Legacy, Versioned};
use opfuse::{DType, Tensor};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Mutex;

const LEGACY: &CStr = c"dltensor";
const USED_LEGACY: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

/// Keeps a managed tensor of another library. As an object of Python it is freed with the GIL: at once where the thread
/// has it, and otherwise when Python next calls this module.
#[pyclass(frozen, name = "_CapsuleOwner", module = "opfuse")]
struct CapsuleOwner(#[allow(dead_code, reason = "held, not used")] Mutex<Capsule>);

/// A tensor over the memory of an object that has `__dlpack__`, a buffer, or `__array_interface__`. `None` if it has
/// none of them.
pub fn imported(object: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    if object.hasattr("__array_interface__")? {
        return from_interface(object).map(Some);
    }
    if object.hasattr("__dlpack__")? {
        return from_capsule(object).map(Some);
    }
    // SAFETY: the check only looks at the type of the object.
    if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } != 0 {
        return from_buffer(object).map(Some);
    }
    Ok(None)
}

/// A tensor over the memory of an object that has `__dlpack__`, without a copy.
///
/// # Errors
/// `BufferError` if the memory cannot be shared; `TypeError` if the object is none of DLPack's.
#[pyfunction]
#[pyo3(signature = (x, /, *, device=None, copy=None))]
pub fn from_dlpack(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
) -> PyResult<PyTensor> {
    if !x.hasattr("__dlpack__")? {
        let class = x.get_type().name()?.to_string();
        return Err(type_error(py, format!("from_dlpack: an object of type {class} has no __dlpack__; use asarray")));
    }
    let tensor = from_capsule(x)?;
    let tensor = match device.map(crate::names::device_argument).transpose()? {
        Some(device) => py.detach(|| tensor.to_device(device)).or_raise(py)?,
        None => tensor,
    };
    match copy {
        Some(true) => py.detach(|| tensor.copy()).or_raise(py).map(PyTensor),
        Some(false) | None => Ok(PyTensor(tensor)),
    }
}

fn from_capsule(object: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let py = object.py();
    let named = PyDict::new(py);
    named.set_item("max_version", (1, 0))?;
    let capsule = match object.call_method("__dlpack__", (), Some(&named)) {
        // Older libraries take no version.
        Err(failed) if failed.is_instance_of::<pyo3::exceptions::PyTypeError>(py) => object.call_method0("__dlpack__"),
        result => result,
    }?;
    from_owned(&capsule)
}

/// A tensor over the memory that an unused capsule of DLPack describes.
#[pyfunction]
pub fn _from_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    from_owned(capsule).map(PyTensor)
}

fn from_owned(capsule: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let py = capsule.py();
    let pointer = |name: &CStr| {
        // SAFETY: the checks hold for any object. The pointer of a capsule of that name is what DLPack says, and the
        // new name tells its maker that it has a new owner.
        unsafe {
            if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 0 {
                return None;
            }
            NonNull::new(ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()))
        }
    };
    let used = |name: &'static CStr| {
        // SAFETY: it is a capsule, and the name lives forever.
        unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), name.as_ptr()) };
    };
    let owned = if let Some(managed) = pointer(VERSIONED) {
        used(USED_VERSIONED);
        // SAFETY: the capsule had the name of such a pointer, and was not used before. Its new name keeps others from
        // freeing it. Other users of the memory take turns with tensors, as the GIL and the user's threads do.
        unsafe { Capsule::from_versioned(managed.cast::<Versioned>()) }
    } else if let Some(managed) = pointer(LEGACY) {
        used(USED_LEGACY);
        // SAFETY: as above.
        unsafe { Capsule::from_legacy(managed.cast::<Legacy>()) }
    } else {
        let class = capsule.get_type().name()?.to_string();
        let what = format!("__dlpack__ gave an object of type {class}, which is no unused capsule of DLPack");
        return Err(type_error(py, format!("from_dlpack: {what}")));
    };
    adopted(py, owned)
}

/// A tensor over the memory of another library, which goes back to it with the GIL.
///
/// # Errors
/// `BufferError` if there is no such tensor here.
pub fn adopted(py: Python<'_>, capsule: Capsule) -> PyResult<Tensor> {
    Tensor::try_from(guarded(py, capsule)?).map_err(|error| PyBufferError::new_err(error.to_string()))
}

/// A managed tensor that describes the same memory as another, and gives that back with the GIL.
struct Guard {
    managed: Versioned,
    _owner: Py<CapsuleOwner>,
}

unsafe extern "C" fn delete_guard(managed: *mut Versioned) {
    // SAFETY: the context is the box that `guarded` gave up, and the owner of a capsule calls this once.
    drop(unsafe { Box::from_raw((*managed).context.cast::<Guard>()) });
}

/// The same tensor, with the owner in Python's care.
fn guarded(py: Python<'_>, capsule: Capsule) -> PyResult<Capsule> {
    let (version, flags, given, owner) = match capsule.into_versioned() {
        Ok(managed) => {
            // SAFETY: the structure is good until its deleter is called, which the owner does that is made of it here.
            let (given, owner) = unsafe { (managed.as_ref(), Capsule::from_versioned(managed)) };
            (given.version, given.flags, Description { ..given.tensor }, owner)
        }
        Err(capsule) => {
            let Ok(managed) = capsule.into_legacy() else { unreachable!("a capsule has a version or none") };
            // SAFETY: as above.
            let (given, owner) = unsafe { (managed.as_ref(), Capsule::from_legacy(managed)) };
            ([1, 0], 0, Description { ..given.tensor }, owner)
        }
    };
    let owner = Py::new(py, CapsuleOwner(Mutex::new(owner)))?;
    let managed = Versioned { version, context: ptr::null_mut(), deleter: Some(delete_guard), flags, tensor: given };
    let guard = Box::into_raw(Box::new(Guard { managed, _owner: owner }));
    // SAFETY: the pointer is that of the box just given up, and nothing else has it. The structure is as good as the
    // one that its owner keeps.
    Ok(unsafe {
        (*guard).managed.context = guard.cast();
        Capsule::from_versioned(NonNull::from(&mut (*guard).managed))
    })
}

/// Frees the tensor of a capsule of ours that no other library has taken.
unsafe extern "C" fn free_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule that `exported` made. A capsule of this name was not taken.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) != 0
            && let Some(managed) = NonNull::new(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()))
        {
            drop(Capsule::from_versioned(managed.cast()));
        }
    }
}

unsafe extern "C" fn free_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, LEGACY.as_ptr()) != 0
            && let Some(managed) = NonNull::new(ffi::PyCapsule_GetPointer(capsule, LEGACY.as_ptr()))
        {
            drop(Capsule::from_legacy(managed.cast()));
        }
    }
}

/// A capsule of DLPack over the tensor's memory. Memory that is read-only is marked as such, which takes a version.
pub fn exported<'py>(py: Python<'py>, tensor: &Tensor, is_versioned: bool) -> PyResult<Bound<'py, PyAny>> {
    let (pointer, name, free): (*mut c_void, &CStr, ffi::PyCapsule_Destructor) = if !is_versioned {
        let capsule = Capsule::writable_legacy(tensor).map_err(|error| PyBufferError::new_err(error.to_string()))?;
        let Ok(managed) = capsule.into_legacy() else { unreachable!("it was made without a version") };
        (managed.as_ptr().cast(), LEGACY, free_legacy)
    } else {
        (given_away(tensor)?.as_ptr().cast(), VERSIONED, free_versioned)
    };
    // SAFETY: the pointer is not null, the name lives forever, and the destructor fits the name.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, name.as_ptr(), Some(free))) }
}

/// The real tensor that holds the elements: the pairs of a complex tensor.
///
/// # Errors
/// If a kernel from outside fails.
pub fn memory_of(tensor: &Tensor) -> opfuse::Result<Tensor> {
    if tensor.is_complex() { tensor.view_as_real() } else { Ok(tensor.clone()) }
}

fn no_buffer(error: opfuse::Error) -> PyErr {
    PyBufferError::new_err(error.to_string())
}

/// A managed tensor with a version over the tensor's memory. Whoever gets it calls its deleter, once.
///
/// # Errors
/// `BufferError` if the memory cannot be shared.
pub fn given_away(tensor: &Tensor) -> PyResult<NonNull<Versioned>> {
    let is_read_only = memory_of(tensor).map_err(no_buffer)?.array().storage().read_only().is_some();
    let capsule = if is_read_only { Capsule::shared(tensor) } else { Capsule::writable(tensor) };
    let capsule = capsule.map_err(no_buffer)?;
    let Ok(managed) = capsule.into_versioned() else { unreachable!("it was made with a version") };
    Ok(managed)
}

/// A buffer of Python, which is given back with the object.
#[pyclass(frozen, name = "_BufferOwner", module = "opfuse")]
struct BufferOwner(Box<ffi::Py_buffer>);

// SAFETY: the structure is not changed after it was filled, and is released with the GIL, when the object is freed.
unsafe impl Send for BufferOwner {}
// SAFETY: as above.
unsafe impl Sync for BufferOwner {}

impl Drop for BufferOwner {
    fn drop(&mut self) {
        // SAFETY: Python filled the structure, and frees this object with the GIL.
        unsafe { ffi::PyBuffer_Release(&mut *self.0) };
    }
}

/// A tensor over the buffer of an object: a `memoryview`, `bytes`, an `array.array`.
fn from_buffer(object: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let py = object.py();
    let view = py.import("builtins")?.getattr("memoryview")?.call1((object,))?;
    let format: String = view.getattr("format")?.extract()?;
    let sizes: Vec<usize> = view.getattr("shape")?.extract()?;
    let dtype = dtype_of_format(&format).ok_or_else(|| {
        value_error(py, format!("elements of the format {format:?} are none of opfuse; convert them first"))
    })?;
    if !view.getattr("c_contiguous")?.extract::<bool>()? {
        let text = "the buffer is not row-major; make a row-major copy first";
        return Err(PyBufferError::new_err(text));
    }
    let mut buffer = Box::new(ffi::Py_buffer::new());
    // SAFETY: the object has a buffer, because a memory view could be made of it; an exception is checked.
    if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &mut *buffer, ffi::PyBUF_SIMPLE) } != 0 {
        return Err(PyErr::take(py).unwrap_or_else(|| PyBufferError::new_err("the object gave no buffer")));
    }
    let (start, len, read_only) = (buffer.buf.cast::<u8>(), buffer.len as usize, buffer.readonly != 0);
    let owner = Py::new(py, BufferOwner(buffer))?;
    let access = if read_only { Access::ReadOnly("a read-only buffer of Python".into()) } else { Access::Writable };
    let Some(start) = NonNull::new(start).filter(|_| len > 0) else {
        return Tensor::from_bytes(&[], dtype, &sizes).or_raise(py);
    };
    // SAFETY: the owner keeps the buffer, whose bytes stay in place until it is released.
    let memory = unsafe { Foreign::new(start, len, access, owner) };
    Tensor::from_foreign(memory, dtype, &sizes).or_raise(py)
}

fn dtype_of_format(format: &str) -> Option<DType> {
    let code = format.trim_start_matches(['@', '=', '<', '|']);
    Some(match code {
        "?" => DType::Bool,
        "B" | "c" => DType::U8,
        "b" => DType::I8,
        "h" => DType::I16,
        "i" => DType::I32,
        "l" | "q" => DType::I64,
        "e" => DType::F16,
        "f" => DType::F32,
        "d" => DType::F64,
        "Zf" => DType::Complex64,
        "Zd" => DType::Complex128,
        _ => return None,
    })
}

/// A tensor over an array with `__array_interface__`, as NumPy has it. Arrays with negative strides are copied.
fn from_interface(object: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let py = object.py();
    // Arrays of NumPy have a capsule, too, which says everything and keeps them alive.
    if object.hasattr("__dlpack__")? {
        match from_capsule(object) {
            // NumPy gives no capsule for dtypes that DLPack does not know.
            Err(failed) if failed.is_instance_of::<PyBufferError>(py) => {
                let dtype = object.getattr("dtype").and_then(|dtype| dtype_of(&dtype)).ok().flatten();
                if dtype.is_some() {
                    return Err(failed);
                }
                let name = object.getattr("dtype")?.str()?.to_string();
                let known: Vec<&str> = DType::real_and_complex().map(dtype_name).collect();
                let text = format!("elements of dtype {name} are none of opfuse; say dtype= to copy them as one of");
                return Err(type_error(py, format!("{text} {}", known.join(", "))));
            }
            result => return result,
        }
    }
    check_bytes(object)?;
    // The interface gives an address that nothing holds against a lie. So it is read by NumPy's rules: as a buffer.
    let array = py.import("numpy")?.call_method1("asarray", (object,))?;
    from_capsule(&array)
}

/// Refuses an interface whose memory is a buffer that is shorter than its elements, which NumPy does not look at.
fn check_bytes(object: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = object.py();
    let interface = object.getattr("__array_interface__")?;
    let Ok(interface) = interface.cast::<PyDict>() else { return Ok(()) };
    let (Some(data), Some(sizes), Some(kind)) =
        (interface.get_item("data")?, interface.get_item("shape")?, interface.get_item("typestr")?)
    else {
        return Ok(());
    };
    // SAFETY: the check only looks at the type of the object.
    if unsafe { ffi::PyObject_CheckBuffer(data.as_ptr()) } == 0 {
        return Ok(());
    }
    let len: u128 = py.import("builtins")?.getattr("memoryview")?.call1((&data,))?.getattr("nbytes")?.extract()?;
    let width: u128 = py.import("numpy")?.getattr("dtype")?.call1((kind,))?.getattr("itemsize")?.extract()?;
    let strides: Option<Vec<i64>> = interface.get_item("strides")?.map(|given| given.extract()).transpose()?.flatten();
    let sizes: Vec<u64> = sizes.extract()?;
    let dense = || sizes.iter().map(|&size| u128::from(size)).try_fold(width, u128::checked_mul);
    let spread = |strides: &[i64]| {
        let step = |(&size, &stride): (&u64, &i64)| i128::from(size.saturating_sub(1)) * i128::from(stride);
        let last = u128::try_from(sizes.iter().zip(strides).map(step).sum::<i128>()).ok();
        last.and_then(|last| last.checked_add(width))
    };
    let needed = strides.as_deref().map_or_else(dense, spread);
    match needed.is_some_and(|needed| needed <= len || sizes.contains(&0)) {
        true => Ok(()),
        false => Err(value_error(py, format!("an array interface of shape {sizes:?} has {len} bytes, and needs more"))),
    }
}

/// The codes of buffers, by dtype; bfloat16 has none.
fn format_of(dtype: DType) -> Option<&'static CStr> {
    Some(match dtype {
        DType::Bool => c"?",
        DType::U8 => c"B",
        DType::I8 => c"b",
        DType::I16 => c"h",
        DType::I32 => c"i",
        DType::I64 => c"q",
        DType::F16 => c"e",
        DType::BF16 => return None,
        DType::F32 => c"f",
        DType::F64 => c"d",
        DType::Complex64 => c"Zf",
        DType::Complex128 => c"Zd",
    })
}

/// What a buffer of ours needs while it is out.
struct Lent {
    shape: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
    _tensor: Tensor,
}

/// Fills `view` with the tensor's memory.
///
/// # Safety
/// `view` is a buffer to fill, as Python passes it to `bf_getbuffer`.
pub unsafe fn fill_buffer(slf: &Bound<'_, PyTensor>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
    let py = slf.py();
    let tensor = &slf.get().0;
    let refuse = |text: &str| Err(PyBufferError::new_err(text.to_owned()));
    if view.is_null() {
        return refuse("there is no buffer to fill");
    }
    // SAFETY: `view` is a buffer to fill; no object says that it is not filled yet.
    unsafe { (*view).obj = ptr::null_mut() };
    // This reads the tensor: traces, gradients and devices refuse it with their own text.
    drop(Capsule::shared(tensor).map_err(|error| PyBufferError::new_err(raised(py, error).value(py).to_string()))?);
    let Some(format) = format_of(tensor.dtype()) else {
        return refuse("buffers of Python know no bfloat16; convert to float32 first");
    };
    let memory = memory_of(tensor).map_err(no_buffer)?;
    let read_only = memory.array().storage().read_only().is_some();
    if read_only && flags & ffi::PyBUF_WRITABLE != 0 {
        return refuse("the tensor's memory is read-only; take a clone() first");
    }
    let needs_strides = flags & ffi::PyBUF_STRIDES != ffi::PyBUF_STRIDES;
    if needs_strides && !tensor.is_contiguous() {
        return refuse("the tensor is not contiguous; call contiguous() first");
    }
    let width = tensor.dtype().size();
    let lent = Box::into_raw(Box::new(Lent {
        shape: tensor.sizes().iter().map(|&size| size as ffi::Py_ssize_t).collect(),
        strides: tensor.strides().iter().map(|&stride| (stride * width) as ffi::Py_ssize_t).collect(),
        _tensor: tensor.clone(),
    }));
    // SAFETY: `view` is a buffer to fill. The lists live in the box that `release_buffer` frees, and the memory lives
    // with the tensor in it.
    unsafe {
        let view = &mut *view;
        view.obj = slf.clone().into_any().into_ptr();
        view.buf = memory.array().ptr().cast();
        view.len = (tensor.numel() * width) as ffi::Py_ssize_t;
        view.itemsize = width as ffi::Py_ssize_t;
        view.readonly = c_int::from(read_only);
        view.ndim = tensor.dim() as c_int;
        view.format = if flags & ffi::PyBUF_FORMAT != 0 { format.as_ptr().cast_mut() } else { ptr::null_mut() };
        view.shape = if flags & ffi::PyBUF_ND != 0 { (*lent).shape.as_mut_ptr() } else { ptr::null_mut() };
        view.strides = if needs_strides { ptr::null_mut() } else { (*lent).strides.as_mut_ptr() };
        view.suboffsets = ptr::null_mut();
        view.internal = lent.cast();
    }
    Ok(())
}

/// Frees what [`fill_buffer`] made.
///
/// # Safety
/// `view` was filled by [`fill_buffer`], and this is called once for it.
pub unsafe fn release_buffer(view: *mut ffi::Py_buffer) {
    // SAFETY: as the caller promises.
    unsafe { drop(Box::from_raw((*view).internal.cast::<Lent>())) };
}

/// `(kind, number)` of the tensor's device, by DLPack's numbers.
pub fn dlpack_device(py: Python<'_>, tensor: &Tensor) -> PyResult<Py<PyTuple>> {
    let device = tensor.device();
    let kind = match device.kind {
        opfuse::device::DeviceKind::Cpu => 1,
        opfuse::device::DeviceKind::Cuda => 2,
        opfuse::device::DeviceKind::Meta | opfuse::device::DeviceKind::PrivateUse1 => {
            return Err(PyBufferError::new_err(format!("a tensor on {device} cannot be shared by DLPack")));
        }
    };
    Ok((kind, i32::from(device.index.unwrap_or(0))).into_pyobject(py)?.unbind())
}
