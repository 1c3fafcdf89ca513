//! Gradients, and what holds while a `with` statement runs: grad mode, autocast, numerics.

use crate::errors::{OrRaise, value_error};
use crate::names::dtype_argument;
use crate::tensor::PyTensor;
use opfuse::autograd::{self, GradOptions};
use opfuse::{DType, Numerics, Tensor};
use pyo3::prelude::*;
use std::any::Any;

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

/// A setting of the thread that holds inside a `with` statement. It is entered and left on one thread.
#[pyclass(unsendable, name = "_Setting", module = "opfuse")]
pub struct Setting {
    choice: Choice,
    guards: Vec<Box<dyn Any>>,
}

#[derive(Clone, Copy)]
enum Choice {
    Grad(bool),
    Autocast(Option<DType>),
    Numerics(Numerics),
}

#[pymethods]
impl Setting {
    #[new]
    #[pyo3(signature = (kind, value=None))]
    fn new(py: Python<'_>, kind: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Setting> {
        let truth = || value.map_or(Ok(false), |value| value.is_truthy());
        let choice = match kind {
            "grad" => Choice::Grad(truth()?),
            "autocast" => Choice::Autocast(value.map(dtype_argument).transpose()?),
            "numerics" => Choice::Numerics(if truth()? { Numerics::Fast } else { Numerics::Strict }),
            _ => return Err(value_error(py, format!("there is no setting {kind:?}"))),
        };
        Ok(Setting { choice, guards: Vec::new() })
    }

    fn enter(&mut self, py: Python<'_>) -> PyResult<()> {
        let guard: Box<dyn Any> = match self.choice {
            Choice::Grad(is_enabled) => Box::new(autograd::set_grad_enabled(is_enabled)),
            Choice::Autocast(Some(dtype)) => Box::new(opfuse::autocast(dtype).or_raise(py)?),
            Choice::Autocast(None) => Box::new(opfuse::no_autocast()),
            Choice::Numerics(numerics) => Box::new(opfuse::numerics(numerics)),
        };
        self.guards.push(guard);
        Ok(())
    }

    fn leave(&mut self) {
        drop(self.guards.pop());
    }
}
