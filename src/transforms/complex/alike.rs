//! Operators that treat the real and the imaginary part alike: views, moves of elements, sums.
//!
//! The pair is a mapped dim: the rules of `vmap` say what such an operator does to tensors with one more dim.

use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::library::Library;
use crate::dispatch::operator::Operator;
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ops::arguments::device_of;
use crate::ops::complex_numbers::{as_pairs, of_pairs};
use crate::tensor::handle::Tensor;
use crate::transforms::batched::{Randomness, Session, enter, move_dim};
use crate::transforms::complex::operands::{common, on};

/// The operators.
const NAMES: &[&str] = &[
    "neg",
    "cat",
    "clone",
    "where.self",
    // Views.
    "view",
    "permute",
    "transpose.int",
    "t",
    "expand",
    "alias",
    "detach",
    "_unsafe_view",
    "diagonal",
    "unfold",
    "squeeze.dims",
    "unsqueeze",
    "select.int",
    "slice.Tensor",
    // Moves of elements.
    "index_select",
    "gather",
    "embedding",
    "scatter.src",
    "flip",
    "repeat",
    "tril",
    "triu",
    "select_scatter",
    "slice_scatter",
    "diagonal_scatter",
    // Sums.
    "sum.dim_IntList",
    "mean.dim",
    "cumsum",
    "scatter_add",
];

/// Arguments that are no numbers of the result: indices, and conditions.
const PLACES: &[&str] = &["condition", "index", "indices", "mask"];

pub(super) fn register(library: &mut Library) -> Result<()> {
    for name in NAMES {
        library.impl_(name, Kernel::boxed(kernel).named("complex"))?;
    }
    Ok(())
}

fn kernel(operator: &Operator, _: KeySet, stack: &mut Stack) -> Result<()> {
    let arguments = operator.schema().map_or(&[][..], |schema| &schema.arguments);
    let is_place = |at: usize| arguments.get(at).is_some_and(|argument| PLACES.contains(&argument.name.as_str()));
    let values = stack.iter().enumerate().filter(|(at, _)| !is_place(*at));
    let values: Vec<&Tensor> = values.flat_map(|(_, value)| value.tensors()).collect();
    let (dtype, device) = (common(&values), device_of(&values));
    let session = enter(2, Randomness::Error);
    for (at, value) in stack.iter_mut().enumerate() {
        if let Value::DType(asked) = value {
            *asked = part_of(operator, *asked)?;
        }
        for tensor in value.tensors_mut().filter(|tensor| !is_place(at) || tensor.is_complex()) {
            *tensor = mapped(&session, &on(device, tensor)?, dtype)?;
        }
    }
    operator.call_boxed(stack)?;
    stack.iter_mut().flat_map(Value::tensors_mut).try_for_each(|tensor| {
        if let Some((physical, dim)) = session.unmap(tensor) {
            *tensor = of_pairs(&move_dim(physical, dim, physical.dim() - 1)?)?;
        }
        Ok(())
    })
}

/// A tensor with its pair as a mapped dim.
fn mapped(session: &Session, tensor: &Tensor, dtype: DType) -> Result<Tensor> {
    let pairs = as_pairs(tensor, dtype)?;
    session.map(&pairs, pairs.dim() - 1)
}

/// The dtype of the parts of a result that shall have this one.
fn part_of(operator: &Operator, dtype: DType) -> Result<DType> {
    if dtype.is_complex() {
        return Ok(dtype.part());
    }
    let hint = "take real() or abs() first: the imaginary part would be lost";
    Err(Error::dtype(operator.name().to_string(), dtype, "a complex dtype, as the operand has", hint))
}
