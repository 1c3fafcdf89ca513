#![allow(unsafe_code, reason = "Python calls functions that are made at import by pointers")]
//! The functions and methods that Python calls, one per name of an operator, made when the module is imported.
//!
//! Python's cheapest call passes a pointer to the arguments and no closure. A function finds its operator by the number
//! that it is bound to. A method is bound to its tensor, so each has an entry point of its own, which knows its number.

use crate::errors::{OrRaise, panicked};
use crate::operators::{Call, Operators};
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use std::ffi::{CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

type Entry = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    ffi::Py_ssize_t,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// Rows and columns of the table of methods.
const SIDE: usize = 32;

macro_rules! row {
    ($high:literal) => {
        row!($high; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    };
    ($high:literal; $($low:literal)*) => { [$(method::<{ $high * SIDE + $low }> as Entry),*] };
}

macro_rules! table {
    ($($high:literal)*) => { [$(row!($high)),*] };
}

/// The entry points of methods, by the number of the operator.
static METHODS: [[Entry; SIDE]; SIDE] =
    table!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);

unsafe extern "C" fn method<const NUMBER: usize>(
    receiver: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n_positional: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python calls with the GIL, and as `enter` asks.
    unsafe { enter(NUMBER, receiver, arguments, n_positional, names) }
}

unsafe extern "C" fn function(
    number: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n_positional: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the function is bound to an integer; Python calls with the GIL, and as `enter` asks.
    unsafe { enter(ffi::PyLong_AsSize_t(number), ptr::null_mut(), arguments, n_positional, names) }
}

/// Calls the operator of that number. On an exception it is set, and the result is null.
///
/// # Safety
/// The thread has the GIL. `arguments` are `n_positional` objects and then one for each of the `names`, which are a
/// tuple or null, as in Python's vectorcall protocol. `receiver` is an object or null. All live during the call.
unsafe fn enter(
    number: usize,
    receiver: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n_positional: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // This notes that the thread has the GIL, so that objects are freed at once.
    Python::attach(|py| {
        let work = AssertUnwindSafe(|| {
            let n_positional = n_positional as usize;
            // SAFETY: as the caller promises; borrowed pointers become bound ones with a count of their own.
            let (receiver, names) =
                unsafe { (Bound::from_borrowed_ptr_or_opt(py, receiver), Bound::from_borrowed_ptr_or_opt(py, names)) };
            let names = names.map(|names| names.cast_into::<PyTuple>()).transpose()?;
            let n_named = names.as_ref().map_or(0, |names| names.len());
            let objects: &[Bound<'_, PyAny>] = match n_positional + n_named {
                0 => &[],
                // SAFETY: as the caller promises. A bound object is a pointer to it.
                count => unsafe { std::slice::from_raw_parts(arguments.cast(), count) },
            };
            let (positional, by_name) = objects.split_at(n_positional);
            let named: Vec<_> = match &names {
                // `out=None` is as if it was not given.
                Some(names) => names.iter().zip(by_name.iter().cloned()).filter(|named| !is_no_out(named)).collect(),
                None => Vec::new(),
            };
            let operators = Operators::get().or_raise(py)?;
            operators.names()[number].call(py, &Call { receiver: receiver.as_ref(), positional, named: &named })
        });
        let result = catch_unwind(work).unwrap_or_else(|payload| Err(panicked(&*payload)));
        match result {
            Ok(object) => object.into_ptr(),
            Err(raised) => {
                raised.restore(py);
                ptr::null_mut()
            }
        }
    })
}

/// Whether it is `out=None`.
fn is_no_out((name, object): &(Bound<'_, PyAny>, Bound<'_, PyAny>)) -> bool {
    object.is_none() && name.extract::<&str>().is_ok_and(|name| name == "out")
}

/// Text for Python that lives as long as the process.
fn kept(text: &str) -> PyResult<&'static std::ffi::CStr> {
    Ok(Box::leak(CString::new(text)?.into_boxed_c_str()))
}

/// A definition that lives as long as the process, as functions of Python need.
fn definition(name: &'static std::ffi::CStr, doc: &'static std::ffi::CStr, entry: Entry) -> *mut ffi::PyMethodDef {
    Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: entry },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS as c_int,
        ml_doc: doc.as_ptr(),
    }))
}

/// Adds a function per operator to `module`, and a method per operator that takes a tensor first to `class`. What the
/// class defines itself stays.
pub fn register(module: &Bound<'_, PyModule>, class: &Bound<'_, PyType>) -> PyResult<()> {
    let py = module.py();
    let module_name = module.name()?;
    let operators = Operators::get().or_raise(py)?;
    if operators.names().len() > SIDE * SIDE {
        return Err(PyRuntimeError::new_err("there are more operators than entry points; raise SIDE in entry.rs"));
    }
    for (number, named) in operators.names().iter().enumerate() {
        let (name, doc) = (kept(&named.name)?, kept(&named.doc())?);
        let bound = number.into_pyobject(py)?;
        // SAFETY: the definition and its texts live as long as the process, and the entry point has the signature that
        // its flags promise. The result is a new object, or null with an exception.
        let made = unsafe {
            let function =
                ffi::PyCFunction_NewEx(definition(name, doc, function), bound.as_ptr(), module_name.as_ptr());
            Bound::from_owned_ptr_or_err(py, function)?
        };
        module.setattr(named.name.as_str(), made)?;
        let is_own = named.name.starts_with("__") || class.as_any().hasattr(named.name.as_str())?;
        if is_own || !named.overloads.iter().any(|overload| overload.is_method()) {
            continue;
        }
        let entry = METHODS[number / SIDE][number % SIDE];
        // SAFETY: as above. Python calls a method descriptor with an instance of the class only.
        let made = unsafe {
            let method = ffi::PyDescr_NewMethod(class.as_type_ptr(), definition(name, doc, entry));
            Bound::from_owned_ptr_or_err(py, method)?
        };
        class.setattr(named.name.as_str(), made)?;
    }
    Ok(())
}
