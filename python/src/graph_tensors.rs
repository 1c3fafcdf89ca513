#![allow(unsafe_code, reason = "asks another library for the address of a tensor by DLPack's C structures")]
//! The tensors of a graph of another library, all at once. A call from Python for each would take as long as a small
//! kernel.

use crate::exchange_api::{Table, from_table, table_of, to_table};
use crate::tensor::PyTensor;
use opfuse::formats::dlpack::Description;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyList, PyTuple, PyType, PyWeakrefMethods, PyWeakrefReference};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A parameter of a model, and the tensor over its memory. Its storage is the same from call to call, so packed copies
/// of it are kept.
struct Known {
    given: Py<PyWeakrefReference>,
    address: usize,
    own: Py<PyTensor>,
}

/// The parameters by the number of the input.
type Slots = Arc<Mutex<Vec<Option<Known>>>>;

fn locked(slots: &Slots) -> MutexGuard<'_, Vec<Option<Known>>> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The inputs of a graph: which of them it reads, and the parameters among them.
#[pyclass(frozen, name = "_Inputs", module = "opfuse")]
pub struct Inputs {
    tensors: Py<PyType>,
    parameters: Py<PyType>,
    is_read: Vec<bool>,
    slots: Slots,
}

#[pymethods]
impl Inputs {
    /// Of the other library's classes of tensors and of parameters.
    #[new]
    fn new(tensors: Py<PyType>, parameters: Py<PyType>, is_read: Vec<bool>) -> Inputs {
        let slots = is_read.iter().map(|_| None).collect();
        Inputs { tensors, parameters, is_read, slots: Arc::new(Mutex::new(slots)) }
    }

    /// Tensors over the memory of a call's inputs, and `None` for those that the graph does not read. `convert` is
    /// called with what is no plain tensor on the CPU.
    fn own<'py>(&self, inputs: &Bound<'py, PyTuple>, convert: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        let py = inputs.py();
        let (tensors, parameters) = (self.tensors.bind(py), self.parameters.bind(py));
        // Older versions of a library have no table.
        let (of_tensors, of_parameters) = (table_of(tensors).ok(), table_of(parameters).ok());
        let own = inputs.iter().zip(&self.is_read).enumerate().map(|(at, (value, is_read))| {
            let class = value.get_type();
            match is_read {
                false => Ok(py.None().into_bound(py)),
                true if class.is(parameters) => self.parameter(at, &value, of_parameters, convert),
                true if class.is(tensors) => converted(&value, of_tensors, convert),
                true => convert.call1((value,)),
            }
        });
        PyTuple::new(py, own.collect::<PyResult<Vec<_>>>()?)
    }
}

impl Inputs {
    fn parameter<'py>(
        &self,
        at: usize,
        value: &Bound<'py, PyAny>,
        table: Option<&Table>,
        convert: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = value.py();
        let address = address(value, table)?;
        if let Some(known) = &locked(&self.slots)[at]
            && known.address == address
            && known.given.bind(py).upgrade().is_some_and(|given| given.is(value))
        {
            return Ok(known.own.bind(py).clone().into_any());
        }
        let own = converted(value, table, convert)?;
        let Ok(tensor) = own.cast::<PyTensor>() else { return Ok(own) };
        // The memory is given back with the parameter.
        let slots = Arc::downgrade(&self.slots);
        let forget = move |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
            let known = slots.upgrade().and_then(|slots| locked(&slots)[at].take());
            // It is freed without the lock.
            drop(known);
        };
        let forget = PyCFunction::new_closure(py, None, None, forget)?;
        let given = PyWeakrefReference::new_with(value, forget)?.unbind();
        let known = Known { given, address, own: tensor.clone().unbind() };
        let before = locked(&self.slots)[at].replace(known);
        drop(before);
        Ok(own)
    }
}

/// Where the first element of a tensor lies.
fn address(value: &Bound<'_, PyAny>, table: Option<&Table>) -> PyResult<usize> {
    let Some(describe) = table.and_then(|table| table.describe) else {
        return value.call_method0(intern!(value.py(), "data_ptr"))?.extract();
    };
    let mut description = MaybeUninit::<Description>::uninit();
    // SAFETY: the function is called as DLPack says: with an object of its class, a place for the result and the GIL.
    // It fills the place where it succeeds.
    unsafe {
        match describe(value.as_ptr().cast(), description.as_mut_ptr()) {
            0 => Ok(description.assume_init_ref().data as usize),
            _ => Err(PyErr::fetch(value.py())),
        }
    }
}

/// A tensor over the memory of one of a class with this table.
fn converted<'py>(
    value: &Bound<'py, PyAny>,
    table: Option<&Table>,
    convert: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    let is_plain = value.getattr(intern!(py, "is_cpu"))?.is_truthy()?
        && !value.call_method0(intern!(py, "is_neg"))?.is_truthy()?;
    match table {
        Some(table) if is_plain => PyTensor::object(py, from_table(value, table)?),
        _ => convert.call1((value,)),
    }
}

/// Tensors of another library over the memory of these, in place. What is no tensor stays as it is.
#[pyfunction]
pub fn _to_exchanges(values: &Bound<'_, PyList>, class: &Bound<'_, PyType>) -> PyResult<()> {
    let table = table_of(class)?;
    for (at, value) in values.iter().enumerate() {
        if let Ok(tensor) = value.cast::<PyTensor>() {
            values.set_item(at, to_table(tensor, table)?)?;
        }
    }
    Ok(())
}
