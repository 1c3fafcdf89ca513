//! Subscripts as in NumPy: numbers, slices with steps of either sign, `None`, `...`, masks, index tensors and lists.

use crate::creation::{number_of, tensor_of};
use crate::errors::{OrRaise, type_error};
use crate::tensor::PyTensor;
use crate::values::{Fit, integer_of};
use opfuse::{Index, Result, Scalar, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PyList, PyRange, PySlice, PyTuple};

/// A subscript. Slices with negative steps are left to `flips`: dims of the view to reverse.
struct Subscript {
    items: Vec<Index>,
    /// The dim of the result of the basic items, and the slice of the reversed dim.
    flips: Vec<i64>,
}

/// The items of `subscript` for a tensor.
fn parse(tensor: &Tensor, subscript: &Bound<'_, PyAny>) -> PyResult<Subscript> {
    let alone = PyTuple::new(subscript.py(), [subscript])?;
    let given = subscript.cast::<PyTuple>().unwrap_or(&alone);
    let mut parsed = Subscript { items: Vec::with_capacity(given.len()), flips: Vec::new() };
    let tensors: Vec<Option<Tensor>> = given.iter().map(|item| index_tensor(&item)).collect::<PyResult<_>>()?;
    let takes = |(item, tensor): (Bound<'_, PyAny>, &Option<Tensor>)| match tensor {
        Some(mask) if mask.dtype() == opfuse::DType::Bool => mask.dim(),
        Some(_) => 1,
        None => usize::from(!item.is_none() && !item.is_instance_of::<PyEllipsis>()),
    };
    let named: usize = given.iter().zip(&tensors).map(takes).sum();
    // The dim of the tensor that the next item is about, and the dim of the view that it becomes.
    let (mut dim, mut view_dim) = (0, 0i64);
    for (item, index) in given.iter().zip(tensors.iter().cloned()) {
        if let Some(index) = index {
            dim += if index.dtype() == opfuse::DType::Bool { index.dim() } else { 1 };
            view_dim += 1;
            parsed.items.push(Index::Tensor(index));
        } else if item.is_none() {
            view_dim += 1;
            parsed.items.push(Index::NewAxis);
        } else if item.is_instance_of::<PyEllipsis>() {
            let rest = tensor.dim().saturating_sub(named);
            dim += rest;
            view_dim += rest as i64;
            parsed.items.push(Index::Ellipsis);
        } else if let Ok(slice) = item.cast::<PySlice>() {
            let size = tensor.sizes().get(dim).copied().unwrap_or(0);
            let (index, is_reversed) = sliced(slice, size)?;
            parsed.items.push(index);
            if is_reversed {
                parsed.flips.push(view_dim);
            }
            dim += 1;
            view_dim += 1;
        } else if let Some(number) = integer_of(&item, Fit::Converted)? {
            parsed.items.push(Index::Select(number));
            dim += 1;
        } else {
            let class = item.get_type().name()?.to_string();
            let what = "use whole numbers, slices, None, ..., bool masks, or integer tensors";
            return Err(type_error(item.py(), format!("a tensor cannot be indexed by {class}; {what}")));
        }
    }
    Ok(parsed)
}

/// The index tensor that an item stands for: a tensor with dims or of truth, an array, a list, or `True` and `False`.
fn index_tensor(item: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    // What most subscripts are. They lack the attributes asked for below, and finding that takes longer than a view.
    if item.is_instance_of::<PySlice>() || item.is_exact_instance_of::<PyInt>() || item.is_none() {
        return Ok(None);
    }
    if let Ok(tensor) = item.cast::<PyTensor>() {
        let tensor = &tensor.get().0;
        let is_number = tensor.dim() == 0 && tensor.dtype() != opfuse::DType::Bool && !tensor.dtype().is_float();
        return Ok((!is_number).then(|| tensor.clone()));
    }
    if item.is_instance_of::<PyList>() || item.is_instance_of::<PyRange>() {
        let dtype = (item.len()? == 0).then_some(opfuse::DType::I64);
        return tensor_of(item, dtype).map(Some);
    }
    let is_array = item.hasattr("__array_interface__")? && item.len().is_ok();
    if !is_array {
        return if is_truth(item)? { tensor_of(item, None).map(Some) } else { Ok(None) };
    }
    let array = tensor_of(item, None)?;
    // Arrays of NumPy are indices by whole numbers of any dtype; uint8 is no mask there.
    match array.dtype() == opfuse::DType::Bool || array.dtype().is_float() {
        true => Ok(Some(array)),
        false => array.to_dtype(opfuse::DType::I64).or_raise(item.py()).map(Some),
    }
}

/// Whether it is a truth value of Python or NumPy.
fn is_truth(item: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(item.is_instance_of::<PyBool>()
        || item.hasattr("__array_interface__")? && matches!(number_of(item)?, Some(Scalar::Bool(_))))
}

/// A slice as an index with a positive step, and whether its elements come in the opposite order.
fn sliced(slice: &Bound<'_, PySlice>, size: usize) -> PyResult<(Index, bool)> {
    let found = slice.indices(size as isize)?;
    let (start, step, count) = (found.start as i64, found.step as i64, found.slicelength as i64);
    if count == 0 {
        return Ok((Index::slice(0, 0, 1), false));
    }
    let last = start + (count - 1) * step;
    Ok(match step > 0 {
        true => (Index::slice(start, last + 1, step), false),
        // A list of one element is the same in both orders.
        false => (Index::slice(last, start + 1, -step), count > 1),
    })
}

/// `tensor[subscript]`.
pub fn get(py: Python<'_>, tensor: &Tensor, subscript: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let Subscript { items, flips } = parse(tensor, subscript)?;
    taken(tensor, items, &flips).or_raise(py)
}

fn taken(tensor: &Tensor, items: Vec<Index>, flips: &[i64]) -> Result<Tensor> {
    if flips.is_empty() {
        return tensor.i(items);
    }
    // Reversed dims come first, so that index tensors see them in the order of the slice.
    let (basic, advanced) = split(items);
    let view = tensor.i(basic)?.flip(flips)?;
    if advanced.iter().all(|item| !matches!(item, Index::Tensor(_))) { Ok(view) } else { view.i(advanced) }
}

/// The basic items, with tensors as whole dims, and then the tensors, with basic items as whole dims.
fn split(items: Vec<Index>) -> (Vec<Index>, Vec<Index>) {
    let (mut basic, mut advanced) = (Vec::new(), Vec::new());
    for item in items {
        match item {
            Index::Tensor(tensor) => {
                let n_dims = if tensor.dtype() == opfuse::DType::Bool { tensor.dim() } else { 1 };
                basic.extend((0..n_dims).map(|_| Index::slice(None, None, 1)));
                advanced.push(Index::Tensor(tensor));
            }
            Index::Select(number) => basic.push(Index::Select(number)),
            Index::Ellipsis => {
                basic.push(Index::Ellipsis);
                advanced.push(Index::Ellipsis);
            }
            item @ (Index::Slice { .. } | Index::NewAxis) => {
                basic.push(item);
                advanced.push(Index::slice(None, None, 1));
            }
        }
    }
    (basic, advanced)
}

/// `tensor[subscript] = value`.
pub fn set(py: Python<'_>, tensor: &Tensor, subscript: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let Subscript { items, flips } = parse(tensor, subscript)?;
    let value = tensor_of(value, None)?;
    // NumPy and PyTorch drop leading dims of size 1 of the value.
    py.detach(|| match flips.is_empty() {
        true => tensor.set(items, &value),
        false => written_reversed(tensor, items, &flips, &value),
    })
    .or_raise(py)
}

/// Writes through a subscript with reversed dims: the value is reversed instead.
fn written_reversed(tensor: &Tensor, items: Vec<Index>, flips: &[i64], value: &Tensor) -> Result<()> {
    let (basic, advanced) = split(items);
    let view = tensor.i(basic)?;
    if advanced.iter().any(|item| matches!(item, Index::Tensor(_))) {
        let reversed = view.flip(flips)?;
        reversed.set(advanced, value)?;
        return view.copy_(&reversed.flip(flips)?);
    }
    view.copy_(&value.expand(view.sizes())?.flip(flips)?)
}
