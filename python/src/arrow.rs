#![allow(unsafe_code, reason = "exchanges memory with other libraries by Arrow's C structures, in capsules of Python")]
//! Arrow's arrays in capsules of Python: `from_arrow`, and `Tensor.__arrow_c_array__`.
//!
//! What always holds: an array from elsewhere is released with the GIL, when no tensor is over its memory any more.

use crate::errors::{OrRaise, type_error};
use crate::tensor::PyTensor;
use opfuse::Tensor;
use opfuse::formats::arrow::{self, Column, Schema};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::CStr;
use std::mem::replace;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// Keeps an array of another library. As an object of Python it is freed with the GIL, and so is the array.
#[pyclass(frozen, name = "_ColumnOwner", module = "opfuse")]
struct ColumnOwner(Mutex<Column>);

/// A read-only tensor over the memory of an array of Arrow: an object that has `__arrow_c_array__`.
///
/// Lists of fixed length are the dims after the first. Truth values are bits there, and are copied.
///
/// # Errors
/// `ArgumentError` if there are nulls, or values that are no numbers here. `DTypeError` if the object is no array.
#[pyfunction]
#[pyo3(signature = (array, /))]
pub fn from_arrow(py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    let refuse = |what: &str| {
        let class = array.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
        type_error(py, format!("from_arrow: an object of type {class} {what}"))
    };
    if !array.hasattr("__arrow_c_array__")? {
        let is_chunked = array.hasattr("__arrow_c_stream__")?;
        return Err(refuse(match is_chunked {
            true => "may have several chunks; pass one, or combine_chunks() first",
            false => "has no __arrow_c_array__; pass an array of Arrow",
        }));
    }
    let given = array.call_method0("__arrow_c_array__")?;
    let taken = || refuse("gave no unused capsules of Arrow");
    let (schema, column): (Bound<'_, PyAny>, Bound<'_, PyAny>) = given.extract().map_err(|_| taken())?;
    let (schema, column) =
        (pointer::<Schema>(&schema, SCHEMA).ok_or_else(taken)?, pointer::<Column>(&column, ARRAY).ok_or_else(taken)?);
    // SAFETY: capsules of these names point to such structures. An empty structure in its place tells the capsule's
    // maker that the structure has a new owner. Nothing else has the pointers, because this thread has the GIL.
    let (schema, column) =
        unsafe { (replace(&mut *schema.as_ptr(), Schema::empty()), replace(&mut *column.as_ptr(), Column::empty())) };
    let owner = Py::new(py, ColumnOwner(Mutex::new(column)))?;
    let kept = owner.clone_ref(py);
    let column = owner.get().0.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: who makes such capsules promises what Arrow's interface says, and the owner keeps the column.
    unsafe { arrow::from_kept_arrow(&column, &schema, kept) }.or_raise(py).map(PyTensor)
}

/// The pointer of a capsule of that name.
fn pointer<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> Option<NonNull<T>> {
    // SAFETY: the check holds for any object, and the name is that of the capsule.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 0 {
            return None;
        }
        NonNull::new(ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()).cast())
    }
}

/// Capsules of the tensor's type and of its memory. A write to the tensor is an error while the array is in use.
///
/// # Errors
/// `ArgumentError` if Arrow has no such array.
pub fn to_arrow<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyTuple>> {
    let (column, schema) = py.detach(|| arrow::to_arrow(tensor)).or_raise(py)?;
    PyTuple::new(py, [capsule(py, schema, SCHEMA, free_schema)?, capsule(py, column, ARRAY, free_column)?])
}

fn capsule<'py, T>(
    py: Python<'py>,
    structure: T,
    name: &'static CStr,
    free: ffi::PyCapsule_Destructor,
) -> PyResult<Bound<'py, PyAny>> {
    let structure = Box::into_raw(Box::new(structure));
    // SAFETY: the pointer is not null, the name lives forever, and the destructor fits the name. A capsule that was not
    // made has not taken the box.
    unsafe {
        let capsule = ffi::PyCapsule_New(structure.cast(), name.as_ptr(), Some(free));
        if capsule.is_null() {
            drop(Box::from_raw(structure));
        }
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

unsafe extern "C" fn free_schema(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this once, with the capsule that `to_arrow` made.
    drop(unsafe { Box::from_raw(ffi::PyCapsule_GetPointer(capsule, SCHEMA.as_ptr()).cast::<Schema>()) });
}

unsafe extern "C" fn free_column(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(ffi::PyCapsule_GetPointer(capsule, ARRAY.as_ptr()).cast::<Column>()) });
}
