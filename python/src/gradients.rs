//! Gradients, and what holds while a `with` statement runs: grad mode, autocast, numerics, the search for NaN.

use crate::errors::{OrRaise, value_error};
use crate::names::dtype_argument;
use crate::tensor::PyTensor;
use opfuse::autograd::{self, GradOptions};
use opfuse::{DType, Numerics, Tensor};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::any::Any;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};

/// The gradients of `outputs` with respect to `inputs`, as `torch.autograd.grad` gives them.
#[pyfunction]
pub fn _gradients(
    py: Python<'_>,
    outputs: Vec<Py<PyTensor>>,
    inputs: Vec<Py<PyTensor>>,
    grad_outputs: Vec<Option<Py<PyTensor>>>,
    retain_graph: bool,
    create_graph: bool,
    allow_unused: bool,
) -> PyResult<Vec<Option<PyTensor>>> {
    let outputs: Vec<&Tensor> = outputs.iter().map(|tensor| &tensor.get().0).collect();
    let inputs: Vec<&Tensor> = inputs.iter().map(|tensor| &tensor.get().0).collect();
    let given: Vec<Option<&Tensor>> =
        grad_outputs.iter().map(|tensor| tensor.as_ref().map(|tensor| &tensor.get().0)).collect();
    let options = GradOptions { retain_graph, create_graph, allow_unused };
    let found = py.detach(|| autograd::grad(&outputs, &inputs, &given, options)).or_raise(py)?;
    Ok(found.into_iter().map(|gradient| gradient.map(PyTensor)).collect())
}

/// Whether operators record how gradients flow.
#[pyfunction]
pub fn is_grad_enabled() -> bool {
    autograd::is_grad_enabled()
}

/// The number of threads for kernels.
#[pyfunction]
pub fn get_num_threads() -> usize {
    opfuse::device::pool::num_threads()
}

/// Sets the number of threads for kernels; 0 restores the default. Results do not depend on it.
#[pyfunction]
pub fn set_num_threads(count: usize) {
    opfuse::device::pool::set_num_threads(count);
}

/// Settings that were entered: the number of each, and what restores the one before.
type Entered = RefCell<Vec<(u64, Box<dyn Any>)>>;

thread_local! {
    /// What holds on this thread. What was not left when the thread ends restores nothing.
    static ENTERED: ManuallyDrop<Entered> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// A setting of the thread that holds inside a `with` statement. Several threads may enter it, each for itself.
#[pyclass(frozen, name = "_Setting", module = "opfuse")]
pub struct Setting {
    choice: Choice,
    number: u64,
}

#[derive(Clone, Copy)]
enum Choice {
    Grad(bool),
    Inference,
    Autocast(Option<DType>),
    Numerics(Numerics),
    Anomaly(bool),
}

#[pymethods]
impl Setting {
    #[new]
    #[pyo3(signature = (kind, value=None))]
    fn new(py: Python<'_>, kind: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Setting> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let truth = || value.map_or(Ok(false), |value| value.is_truthy());
        let choice = match kind {
            "grad" => Choice::Grad(truth()?),
            "inference" => Choice::Inference,
            "autocast" => Choice::Autocast(value.map(dtype_argument).transpose()?),
            "numerics" => Choice::Numerics(if truth()? { Numerics::Fast } else { Numerics::Strict }),
            "anomaly" => Choice::Anomaly(truth()?),
            _ => return Err(value_error(py, format!("there is no setting {kind:?}"))),
        };
        Ok(Setting { choice, number: NEXT.fetch_add(1, Ordering::Relaxed) })
    }

    fn enter(&self, py: Python<'_>) -> PyResult<()> {
        let guard: Box<dyn Any> = match self.choice {
            Choice::Grad(is_enabled) => Box::new(autograd::set_grad_enabled(is_enabled)),
            Choice::Inference => Box::new(autograd::inference_mode()),
            Choice::Autocast(Some(dtype)) => Box::new(opfuse::autocast(dtype).or_raise(py)?),
            Choice::Autocast(None) => Box::new(opfuse::no_autocast()),
            Choice::Numerics(numerics) => Box::new(opfuse::numerics(numerics)),
            Choice::Anomaly(is_on) => Box::new(autograd::set_detect_anomaly(is_on)),
        };
        ENTERED.with(|entered| entered.borrow_mut().push((self.number, guard)));
        Ok(())
    }

    fn leave(&self) -> PyResult<()> {
        let guard = ENTERED.with(|entered| {
            let mut entered = entered.borrow_mut();
            let last = entered.iter().rposition(|(number, _)| *number == self.number);
            last.map(|at| entered.remove(at))
        });
        match guard {
            Some(_) => Ok(()),
            None => Err(PyRuntimeError::new_err("the setting is left on a thread that has not entered it")),
        }
    }
}
