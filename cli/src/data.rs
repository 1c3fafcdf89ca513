//! Arrays of files, as inputs of programs.

use crate::Fallible;
use opfuse::exported::{InputInfo, Program};
use opfuse::{DType, StateDict, Tensor};
use std::path::{Path, PathBuf};

/// The arrays `CALL.KIND.0`, `CALL.KIND.1`, … of a file of recorded calls.
pub(crate) fn recorded(all: &StateDict, call: usize, kind: &str) -> Vec<Tensor> {
    (0..).map_while(|at| all.get(&format!("{call}.{kind}.{at}")).cloned()).collect()
}

/// The tensors of files in the order of the program's inputs.
///
/// A file with one array is the next input. A file with several is asked for the names of the inputs, or for `0.in.0`,
/// `0.in.1` and so on.
///
/// # Errors
/// If a file cannot be loaded, or an input has no array.
pub(crate) fn inputs(program: &Program, files: &[PathBuf]) -> Fallible<Vec<Tensor>> {
    let mut found = Vec::new();
    for file in files {
        let all = opfuse::load(file)?;
        let by_number = recorded(&all, 0, "in");
        let by_name =
            || program.inputs().iter().map(|input| all.get(input.name()).cloned()).collect::<Option<Vec<_>>>();
        if !by_number.is_empty() {
            found.extend(by_number);
        } else if let (1, Some(one)) = (all.len(), all.values().next()) {
            found.push(one.clone());
        } else if let Some(named) = by_name() {
            found.extend(named);
        } else {
            let names: Vec<&str> = program.inputs().iter().map(InputInfo::name).collect();
            let what = "has several arrays, which are neither named as the inputs are nor 0.in.0, 0.in.1";
            return Err(format!("{}: {what}; the inputs are {}", file.display(), names.join(", ")).into());
        }
    }
    writable(fitted(program, found)?)
}

/// The tensors with the dtypes that the program takes: a file of NumPy has no bf16.
///
/// # Errors
/// If a tensor cannot be converted.
pub(crate) fn fitted(program: &Program, tensors: Vec<Tensor>) -> Fallible<Vec<Tensor>> {
    let fit = |(at, tensor): (usize, Tensor)| {
        let wanted = program.inputs().get(at).and_then(InputInfo::dtype);
        match wanted.filter(|wanted| *wanted != tensor.dtype() && is_float(*wanted) && is_float(tensor.dtype())) {
            Some(wanted) => tensor.to_dtype(wanted),
            None => Ok(tensor),
        }
    };
    Ok(tensors.into_iter().enumerate().map(fit).collect::<opfuse::Result<_>>()?)
}

/// Copies of tensors over mapped files, which a program can write to.
///
/// # Errors
/// If there is no memory.
pub(crate) fn writable(tensors: Vec<Tensor>) -> Fallible<Vec<Tensor>> {
    Ok(tensors.iter().map(Tensor::copy).collect::<opfuse::Result<_>>()?)
}

fn is_float(dtype: DType) -> bool {
    dtype.is_float()
}

/// Random inputs of the sizes that the program takes; symbolic sizes are `size`.
///
/// # Errors
/// If there is no memory, or an input is no tensor.
pub(crate) fn made(program: &Program, size: usize) -> Fallible<Vec<Tensor>> {
    let make = |input: &InputInfo| -> Fallible<Tensor> {
        let dtype = input.dtype().ok_or_else(|| format!("input {input} is no tensor; pass it with --input"))?;
        let sizes: Vec<usize> = input.sizes().into_iter().map(|fixed| fixed.unwrap_or(size)).collect();
        Ok(match dtype.is_float() {
            true => Tensor::randn(&sizes, DType::F32)?.to_dtype(dtype)?,
            // Small enough to be an index of any table.
            false => Tensor::zeros(&sizes, dtype)?,
        })
    };
    program.inputs().iter().map(make).collect()
}

/// The name of a file without its folder.
pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
