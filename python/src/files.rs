//! Files of tensors, and programs that PyTorch exported.

use crate::compiled::PyExplain;
use crate::errors::{OrRaise, value_error};
use crate::tensor::PyTensor;
use opfuse::exported::Program;
use opfuse::formats::{npy, npz, safetensors};
use opfuse::{StateDict, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The end of a file's name: what kind of file it is.
fn kind_of(path: &Path) -> &str {
    path.extension().and_then(|end| end.to_str()).unwrap_or_default()
}

/// Writes tensors to a file, whose name says its form: `.safetensors` and `.npz` take a dict of tensors by name, `.npy`
/// takes one tensor. The file is replaced as a whole.
#[pyfunction]
#[pyo3(signature = (path, tensors, *, metadata=None))]
pub fn save(
    py: Python<'_>,
    path: PathBuf,
    tensors: &Bound<'_, PyAny>,
    metadata: Option<BTreeMap<String, String>>,
) -> PyResult<()> {
    if let Ok(tensor) = tensors.cast::<PyTensor>() {
        let tensor = &tensor.get().0;
        return match kind_of(&path) {
            "npy" => py.detach(|| npy::save(&path, &tensor.detach()?)).or_raise(py),
            kind => {
                Err(value_error(py, format!("save: a file .{kind} takes a dict of tensors; one tensor goes to .npy")))
            }
        };
    }
    let named: BTreeMap<String, Py<PyTensor>> = tensors.extract()?;
    let detached = |(name, tensor): (String, Py<PyTensor>)| Ok((name, tensor.get().0.detach()?));
    let tensors: StateDict = named.into_iter().map(detached).collect::<opfuse::Result<_>>().or_raise(py)?;
    match kind_of(&path) {
        "safetensors" => py.detach(|| safetensors::save(&path, &tensors, &metadata.unwrap_or_default())).or_raise(py),
        "npz" => py.detach(|| npz::save(&path, &tensors)).or_raise(py),
        kind => Err(value_error(py, format!("save: tensors by name go to .safetensors or .npz, not to .{kind:?}"))),
    }
}

/// Reads a file of tensors: safetensors, `.npz` and their kin as a dict, `.npy` as a tensor, and a `.pt2` of
/// `torch.export` as an `ExportedProgram`. Elements are mapped, not read; the file must not change while they live.
#[pyfunction]
pub fn load(py: Python<'_>, path: PathBuf) -> PyResult<Py<PyAny>> {
    match kind_of(&path) {
        "pt2" => {
            let program = py.detach(|| Program::load(&path)).or_raise(py)?;
            Ok(Py::new(py, PyExported(program))?.into_any())
        }
        kind @ ("pt" | "pth" | "bin" | "ckpt" | "pkl") => {
            let text = format!("load: files .{kind} of torch.save hold pickled objects, which are not read");
            Err(value_error(py, format!("{text}; write safetensors.torch.save_file(model.state_dict(), path) instead")))
        }
        "npy" => Ok(Py::new(py, PyTensor(py.detach(|| npy::load(&path)).or_raise(py)?))?.into_any()),
        _ => {
            let tensors = py.detach(|| opfuse::load(&path)).or_raise(py)?;
            Ok(state_dict(py, &tensors)?.into_any().unbind())
        }
    }
}

fn state_dict<'py>(py: Python<'py>, tensors: &StateDict) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    tensors.iter().try_for_each(|(name, tensor)| dict.set_item(name, PyTensor(tensor.clone())))?;
    Ok(dict)
}

/// A program that `torch.export.save` wrote. It is called with tensors, and compiled for their types.
#[pyclass(frozen, name = "ExportedProgram", module = "opfuse")]
pub struct PyExported(Program);

#[pymethods]
impl PyExported {
    #[pyo3(signature = (*inputs))]
    fn __call__<'py>(&self, py: Python<'py>, inputs: Vec<Py<PyTensor>>) -> PyResult<Bound<'py, PyTuple>> {
        let inputs: Vec<Tensor> = inputs.iter().map(|tensor| tensor.get().0.clone()).collect();
        let outputs = py.detach(|| self.0.call(&inputs)).or_raise(py)?;
        PyTuple::new(py, outputs.into_iter().map(PyTensor))
    }

    /// Parameters, buffers and constants by their names in the module.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        state_dict(py, self.0.state())
    }

    /// The operators that the program calls, with how often each is called.
    fn operators(&self) -> BTreeMap<String, usize> {
        self.0.operators()
    }

    /// What became of the program when it was compiled.
    fn explain(&self, py: Python<'_>) -> PyExplain {
        PyExplain(py.detach(|| self.0.explain()))
    }

    fn __repr__(&self) -> String {
        format!("opfuse.Exported{:?}", self.0)
    }
}
