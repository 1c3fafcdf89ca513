//! Operators that take graphs: branches, loops, and graphs that run in another mode.
//!
//! There are no nodes for control flow. A branch or a loop whose condition is a tensor reads that tensor, so a compiled
//! program runs in segments there, as any function does that reads a value. `scan` and `map` are unrolled over the
//! first dim, whose size is known.

use crate::autograd::set_grad_enabled;
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::exported::bind::Block;
use crate::exported::run::{Part, malformed, tensor, truth_of};
use crate::ops::joins::stack;
use crate::tensor::handle::Tensor;
use crate::transforms::{autocast, no_autocast};

/// An operator that takes graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ControlOp {
    /// A graph as it is.
    Call,
    /// A graph, with gradients recorded or not.
    WithGradients,
    /// A graph, with autocast or not.
    WithAutocast,
    /// One of two graphs, by a truth value.
    Cond,
    /// A graph, as long as another gives true.
    WhileLoop,
    /// A graph from a state and the next slice to a state and a slice.
    Scan,
    /// A graph that combines two neighbours, over all slices.
    AssociativeScan,
    /// A graph of each slice.
    Map,
}

/// The operators, as exports name them.
const NAMES: [(&str, ControlOp); 13] = [
    ("invoke_subgraph", ControlOp::Call),
    ("wrap", ControlOp::Call),
    ("wrap_activation_checkpoint", ControlOp::Call),
    ("tag_activation_checkpoint", ControlOp::Call),
    ("hints_wrapper", ControlOp::Call),
    ("wrap_with_set_grad_enabled", ControlOp::WithGradients),
    ("wrap_with_autocast", ControlOp::WithAutocast),
    ("cond", ControlOp::Cond),
    ("while_loop", ControlOp::WhileLoop),
    ("scan", ControlOp::Scan),
    ("associative_scan", ControlOp::AssociativeScan),
    ("map", ControlOp::Map),
    ("map_impl", ControlOp::Map),
];

impl ControlOp {
    /// The operator of that name.
    pub(super) fn from_name(name: &str) -> Option<ControlOp> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, op)| *op)
    }

    /// Runs the operator.
    ///
    /// # Errors
    /// If the arguments are not those of the operator, or if a call in a graph fails.
    pub(super) fn run(self, parts: &[Part<'_>]) -> Result<Vec<Value>> {
        match (self, parts) {
            (ControlOp::Call, [Part::Block(block), rest @ ..]) => block.run(tensors(rest)?),
            (ControlOp::WithGradients, [Part::Value(enabled), Part::Block(block), rest @ ..]) => {
                let args = all(rest)?;
                let _mode = set_grad_enabled(truth_of(enabled)?);
                block.run(args)
            }
            (
                ControlOp::WithAutocast,
                [_device, Part::Value(dtype), Part::Value(enabled), _cache, Part::Block(block), rest @ ..],
            ) => {
                let args = all(rest)?;
                let _mode = match (truth_of(enabled)?, dtype) {
                    (true, Value::DType(dtype)) => autocast(*dtype)?,
                    (true, _) => return Err(malformed()),
                    (false, _) => no_autocast(),
                };
                block.run(args)
            }
            (ControlOp::Cond, [Part::Value(condition), Part::Block(then), Part::Block(otherwise), rest @ ..]) => {
                let args = all(rest)?;
                if truth_of(condition)? { then.run(args) } else { otherwise.run(args) }
            }
            (ControlOp::WhileLoop, [Part::Block(condition), Part::Block(body), carried, rest @ ..]) => {
                while_loop(condition, body, list(carried)?, &all(rest)?)
            }
            (ControlOp::Scan, [Part::Block(combine), init, slices, rest @ ..]) => {
                scan(combine, list(init)?, &list(slices)?, &all(rest)?)
            }
            (ControlOp::AssociativeScan, [Part::Block(combine), slices, rest @ ..]) => {
                associative_scan(combine, &list(slices)?, &all(rest)?)
            }
            (ControlOp::Map, [Part::Block(body), slices, rest @ ..]) => map(body, &list(slices)?, &all(rest)?),
            _ => Err(malformed()),
        }
    }
}

fn while_loop(condition: &Block, body: &Block, carried: Vec<Value>, fixed: &[Value]) -> Result<Vec<Value>> {
    let mut carried = carried;
    loop {
        let goes_on = condition.run([&carried, fixed].concat())?;
        let [goes_on] = &goes_on[..] else { return Err(malformed()) };
        if !truth_of(goes_on)? {
            return Ok(carried);
        }
        carried = body.run([&carried, fixed].concat())?;
    }
}

/// The last state, and the stacked slices that `combine` gives.
fn scan(combine: &Block, init: Vec<Value>, slices: &[Value], fixed: &[Value]) -> Result<Vec<Value>> {
    let (mut state, mut columns) = (init, Vec::new());
    for at in 0..length("scan", slices)? {
        let given = combine.run([&state, &slice(slices, at)?, fixed].concat())?;
        let (next, made) = given.split_at_checked(state.len()).ok_or_else(malformed)?;
        add(&mut columns, made)?;
        state = next.to_vec();
    }
    state.extend(stacked(columns)?);
    Ok(state)
}

/// Each slice combined with all before it, from left to right.
fn associative_scan(combine: &Block, slices: &[Value], fixed: &[Value]) -> Result<Vec<Value>> {
    let n_slices = length("associative_scan", slices)?;
    let (mut state, mut columns) = (slice(slices, 0)?, Vec::new());
    add(&mut columns, &state)?;
    for at in 1..n_slices {
        state = combine.run([&state, &slice(slices, at)?, fixed].concat())?;
        add(&mut columns, &state)?;
    }
    stacked(columns)
}

fn map(body: &Block, slices: &[Value], fixed: &[Value]) -> Result<Vec<Value>> {
    let mut columns = Vec::new();
    for at in 0..length("map", slices)? {
        add(&mut columns, &body.run([&slice(slices, at)?, fixed].concat())?)?;
    }
    stacked(columns)
}

/// The common size of the first dims.
fn length(op: &str, slices: &[Value]) -> Result<usize> {
    let sizes = slices.iter().map(|value| Ok(tensor(value)?.sizes().first().copied())).collect::<Result<Vec<_>>>()?;
    match sizes.first() {
        Some(Some(size)) if *size > 0 && sizes.iter().all(|other| *other == Some(*size)) => Ok(*size),
        _ => Err(Error::shape(
            op,
            format!("the first dims have sizes {sizes:?}"),
            "they must be equal, and there must be a slice to know the sizes of results",
        )),
    }
}

/// Slice number `at` of each tensor.
fn slice(slices: &[Value], at: usize) -> Result<Vec<Value>> {
    slices.iter().map(|value| tensor(value)?.select(0, at as i64).map(Value::Tensor)).collect()
}

/// Adds one slice to each column.
fn add(columns: &mut Vec<Vec<Tensor>>, made: &[Value]) -> Result<()> {
    columns.resize_with(made.len(), Vec::new);
    for (column, value) in columns.iter_mut().zip(made) {
        column.push(tensor(value)?.into_owned());
    }
    Ok(())
}

fn stacked(columns: Vec<Vec<Tensor>>) -> Result<Vec<Value>> {
    let one = |column: Vec<Tensor>| stack(&column.iter().collect::<Vec<_>>(), 0).map(Value::Tensor);
    columns.into_iter().map(one).collect()
}

/// The values of an argument. A list stands for its elements.
fn list(part: &Part<'_>) -> Result<Vec<Value>> {
    match part {
        Part::Value(Value::TensorList(tensors)) => Ok(tensors.iter().cloned().map(Value::Tensor).collect()),
        Part::Value(Value::IntList(numbers)) => Ok(numbers.iter().copied().map(Value::Int).collect()),
        Part::Value(value) => Ok(vec![value.clone()]),
        Part::Block(_) => Err(malformed()),
    }
}

fn all(parts: &[Part<'_>]) -> Result<Vec<Value>> {
    Ok(parts.iter().map(list).collect::<Result<Vec<_>>>()?.concat())
}

/// The operands of a graph that other arguments stand beside, such as its name.
fn tensors(parts: &[Part<'_>]) -> Result<Vec<Value>> {
    let is_operand = |value: &Value| !matches!(value, Value::Str(_) | Value::None);
    Ok(all(parts)?.into_iter().filter(is_operand).collect())
}
