#![allow(unsafe_code, reason = "calls and gives away functions by DLPack's C structures")]
//! DLPack's C exchange interface, `__dlpack_c_exchange_api__`: tensors go to and from other libraries by functions of
//! C, without capsules and calls of Python.
//!
//! A class of tensors has a table of such functions. Ours is [`OWN`]; those of other libraries are called by
//! [`from_table`] and [`to_table`]. The GIL is held in all of them.

use crate::errors::panicked;
use crate::exchange::{adopted, given_away};
use crate::tensor::PyTensor;
use opfuse::Tensor;
use opfuse::formats::dlpack::{Capsule, Description, Versioned};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

const NAME: &CStr = c"dlpack_exchange_api";

/// The version of DLPack whose table this is.
const VERSION: [u32; 2] = [1, 3];

type SetError = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);

/// A table of functions: `DLPackExchangeAPI`. Each returns 0, or -1 with an exception.
#[repr(C)]
pub struct Table {
    version: [u32; 2],
    /// A table for older versions, or null.
    previous: *const c_void,
    allocate: Option<unsafe extern "C" fn(*mut Description, *mut *mut Versioned, *mut c_void, SetError) -> c_int>,
    from_object: Option<unsafe extern "C" fn(*mut c_void, *mut *mut Versioned) -> c_int>,
    to_object: Option<unsafe extern "C" fn(*mut Versioned, *mut *mut c_void) -> c_int>,
    /// Describes a tensor without an owner. It may be missing.
    pub describe: Option<unsafe extern "C" fn(*mut c_void, *mut Description) -> c_int>,
    stream: Option<unsafe extern "C" fn(c_int, i32, *mut *mut c_void) -> c_int>,
}

// SAFETY: the table is not changed after it was made.
unsafe impl Sync for Table {}

static OWN: Table = Table {
    version: VERSION,
    previous: ptr::null(),
    allocate: Some(allocate),
    from_object: Some(from_object),
    to_object: Some(to_object),
    describe: None,
    stream: Some(stream),
};

/// A new tensor like a prototype, as [`Capsule::allocated`] makes it.
unsafe extern "C" fn allocate(
    prototype: *mut Description,
    out: *mut *mut Versioned,
    context: *mut c_void,
    set_error: SetError,
) -> c_int {
    // SAFETY: the caller gives a prototype as DLPack says.
    let made = catch_unwind(|| unsafe { Capsule::allocated(&*prototype) }.map_err(|error| error.to_string()));
    let made = made.unwrap_or_else(|payload| Err(panicked(&*payload).to_string()));
    match made.map(Capsule::into_versioned) {
        Ok(Ok(managed)) => {
            // SAFETY: the caller gives a place for the result.
            unsafe { *out = managed.as_ptr() };
            0
        }
        failed => {
            let text = failed.err().unwrap_or_else(|| "the new tensor has no version".into());
            let text = CString::new(text).unwrap_or_default();
            // SAFETY: the caller gives a function for errors with its context, and copies what it is given.
            unsafe { set_error(context, c"BufferError".as_ptr(), text.as_ptr()) };
            -1
        }
    }
}

/// A managed tensor over the memory of an `opfuse.Tensor`.
unsafe extern "C" fn from_object(object: *mut c_void, out: *mut *mut Versioned) -> c_int {
    answer(|py| {
        // SAFETY: the caller gives an object of the class that the table belongs to, or of another.
        let object = unsafe { Bound::from_borrowed_ptr(py, object.cast()) };
        let managed = given_away(&object.cast::<PyTensor>()?.get().0)?;
        // SAFETY: the caller gives a place for the result.
        unsafe { *out = managed.as_ptr() };
        Ok(())
    })
}

/// An `opfuse.Tensor` that takes over a managed tensor.
unsafe extern "C" fn to_object(managed: *mut Versioned, out: *mut *mut c_void) -> c_int {
    answer(|py| {
        let managed = NonNull::new(managed).ok_or_else(|| PyBufferError::new_err("there is no tensor to take over"))?;
        // SAFETY: the caller gives up a managed tensor, as DLPack says, whose memory is used in turns under the GIL.
        let tensor = adopted(py, unsafe { Capsule::from_versioned(managed) })?;
        let object = PyTensor::object(py, tensor)?;
        // SAFETY: the caller gives a place for the result.
        unsafe { *out = object.into_ptr().cast() };
        Ok(())
    })
}

/// The stream of a device: there is none on the CPU.
unsafe extern "C" fn stream(_kind: c_int, _number: i32, out: *mut *mut c_void) -> c_int {
    // SAFETY: the caller gives a place for the result.
    unsafe { *out = ptr::null_mut() };
    0
}

/// The answer of a function of the table. On an error the exception is set.
fn answer(work: impl FnOnce(Python<'_>) -> PyResult<()>) -> c_int {
    Python::attach(|py| {
        let result = catch_unwind(AssertUnwindSafe(|| work(py))).unwrap_or_else(|payload| Err(panicked(&*payload)));
        match result {
            Ok(()) => 0,
            Err(raised) => {
                raised.restore(py);
                -1
            }
        }
    })
}

/// Gives the class of tensors its table.
pub fn register(class: &Bound<'_, PyType>) -> PyResult<()> {
    let py = class.py();
    // SAFETY: table and name live as long as the process, and are only read.
    let capsule = unsafe {
        let table = ptr::from_ref(&OWN).cast_mut().cast();
        Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(table, NAME.as_ptr(), None))?
    };
    class.setattr("__dlpack_c_exchange_api__", capsule)
}

/// The table of a class of another library.
pub fn table_of<'a>(class: &'a Bound<'_, PyType>) -> PyResult<&'a Table> {
    let py = class.py();
    let refused = |what: &str| PyBufferError::new_err(format!("the exchange interface of {class:?} {what}"));
    let capsule = class.getattr(intern!(py, "__dlpack_c_exchange_api__"))?;
    // SAFETY: Python checks that it is a capsule of that name, which holds such a table. The class keeps the capsule.
    let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()).cast::<Table>().as_ref() };
    let Some(table) = table else { return Err(PyErr::take(py).unwrap_or_else(|| refused("is empty"))) };
    match table.version[0] == VERSION[0] {
        true => Ok(table),
        false => Err(refused(&format!("has version {}; 1.x is known", table.version[0]))),
    }
}

/// A tensor over the memory of a tensor of another library, by the table of its class. Such a table does not look at
/// devices and gradients, so the caller does.
#[pyfunction]
pub fn _from_exchange(object: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    from_table(object, table_of(&object.get_type())?).map(PyTensor)
}

/// A tensor over the memory of a tensor of a class with this table.
pub fn from_table(object: &Bound<'_, PyAny>, table: &Table) -> PyResult<Tensor> {
    let py = object.py();
    let call = table.from_object.ok_or_else(|| PyBufferError::new_err("the table has no from_py_object"))?;
    let mut managed = ptr::null_mut();
    // SAFETY: the function is called as DLPack says: with an object of its class, a place for the result and the GIL.
    let status = unsafe { call(object.as_ptr().cast(), &mut managed) };
    let failed = || PyErr::take(py).unwrap_or_else(|| PyBufferError::new_err("the library gave no tensor"));
    let managed = NonNull::new(managed).filter(|_| status == 0).ok_or_else(failed)?;
    // SAFETY: the library gave up a managed tensor, as DLPack says, whose memory is used in turns under the GIL.
    adopted(py, unsafe { Capsule::from_versioned(managed) })
}

/// A tensor of a class with this table over the memory of one of ours.
pub fn to_table<'py>(tensor: &Bound<'py, PyTensor>, table: &Table) -> PyResult<Bound<'py, PyAny>> {
    let py = tensor.py();
    let call = table.to_object.ok_or_else(|| PyBufferError::new_err("the table has no to_py_object"))?;
    let managed = given_away(&tensor.get().0)?;
    let mut made = ptr::null_mut();
    // SAFETY: the function is called as DLPack says: with a managed tensor that is given up, a place for the result and
    // the GIL. Where it succeeds, the result is a new object.
    unsafe {
        let status = call(managed.as_ptr(), &mut made);
        let made = if status == 0 { made } else { ptr::null_mut() };
        Bound::from_owned_ptr_or_err(py, made.cast())
    }
}
