//! Random generators.

use crate::errors::OrRaise;
use crate::names::device_argument;
use opfuse::device::{Device, Generator, GeneratorState};
use pyo3::prelude::*;

/// A source of random numbers: `opfuse.Generator().manual_seed(0)`.
#[pyclass(frozen, name = "Generator", module = "opfuse")]
pub struct PyGenerator(pub Generator);

#[pymethods]
impl PyGenerator {
    #[new]
    #[pyo3(signature = (device=None))]
    fn new(device: Option<&Bound<'_, PyAny>>) -> PyResult<PyGenerator> {
        let device = device.map(device_argument).transpose()?.unwrap_or(Device::CPU);
        Ok(PyGenerator(Generator::new(device)))
    }

    /// Starts the sequence of that seed.
    fn manual_seed<'py>(slf: Bound<'py, Self>, seed: i64) -> Bound<'py, Self> {
        slf.get().0.manual_seed(seed as u64);
        slf
    }

    /// The seed that the sequence started from.
    fn initial_seed(&self) -> u64 {
        self.0.initial_seed()
    }

    /// The seed and how many numbers were drawn: what `set_state` takes.
    fn get_state(&self) -> (u64, u64) {
        let state = self.0.state();
        (state.seed, state.counter)
    }

    /// Continues where `get_state` was called.
    fn set_state(&self, state: (u64, u64)) {
        self.0.set_state(GeneratorState { seed: state.0, counter: state.1 });
    }

    fn __repr__(&self) -> String {
        format!("opfuse.Generator(device='{}')", self.0.device())
    }
}

/// Seeds the generator that draws use by default, on every device.
#[pyfunction]
pub fn manual_seed(seed: i64) {
    opfuse::manual_seed(seed as u64);
}

/// The generator that draws on a device use by default.
#[pyfunction]
#[pyo3(signature = (device=None))]
pub fn default_generator(py: Python<'_>, device: Option<&Bound<'_, PyAny>>) -> PyResult<PyGenerator> {
    let device = device.map(device_argument).transpose()?.unwrap_or(Device::CPU);
    Generator::default_of(device).or_raise(py).map(PyGenerator)
}
