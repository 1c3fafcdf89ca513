//! Operators that take graphs: branches, loops, and graphs that run in another mode.
//!
//! Branches and loops are those of [`func`](crate::func), so a compiled program has one step for each, whose graphs are
//! compiled once. A loop that carries plain numbers reads its condition, so a compiled program runs in segments there.

use crate::autograd::set_grad_enabled;
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::exported::bind::Block;
use crate::exported::run::{Part, malformed, tensor, truth_of};
use crate::func::{cond, scan, while_loop};
use crate::ir::DType;
use crate::ops::joins::cat;
use crate::tensor::handle::Tensor;
use crate::transforms::{autocast, no_autocast};
use std::borrow::Cow;

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
                branch(condition, [then, otherwise], &all(rest)?)
            }
            (ControlOp::WhileLoop, [Part::Block(condition), Part::Block(body), carried, rest @ ..]) => {
                repeat_while(condition, body, list(carried)?, &all(rest)?)
            }
            (ControlOp::Scan, [Part::Block(combine), init, slices, rest @ ..]) => {
                scan_slices(combine, &list(init)?, &list(slices)?, &all(rest)?)
            }
            (ControlOp::AssociativeScan, [Part::Block(combine), slices, rest @ ..]) => {
                associative_scan(combine, &list(slices)?, &all(rest)?)
            }
            (ControlOp::Map, [Part::Block(body), slices, rest @ ..]) => map(body, &list(slices)?, &all(rest)?),
            _ => Err(malformed()),
        }
    }
}

/// One of two graphs. A predicate that is a tensor is a branch of `func`, which captures what the graphs are given.
fn branch(condition: &Value, [then, otherwise]: [&Block; 2], args: &[Value]) -> Result<Vec<Value>> {
    if let Value::Tensor(predicate) = condition
        && (predicate.dtype(), predicate.numel()) == (DType::Bool, 1)
    {
        let run = |block: &Block| owned(&block.run(args.to_vec())?);
        return Ok(values(cond(predicate, |_: &()| run(then), |_: &()| run(otherwise), &())?));
    }
    if truth_of(condition)? { then.run(args.to_vec()) } else { otherwise.run(args.to_vec()) }
}

fn repeat_while(condition: &Block, body: &Block, mut carried: Vec<Value>, fixed: &[Value]) -> Result<Vec<Value>> {
    let with = |carried: &Vec<Tensor>| [&values(carried.clone()), fixed].concat();
    if carried.iter().all(|value| matches!(value, Value::Tensor(_))) {
        let goes_on = |carried: &Vec<Tensor>| match &condition.run(with(carried))?[..] {
            [goes_on] => Ok(tensor(goes_on)?.into_owned()),
            _ => Err(malformed()),
        };
        let body = |carried: &Vec<Tensor>| owned(&body.run(with(carried))?);
        return Ok(values(while_loop(goes_on, body, &owned(&carried)?, None)?));
    }
    // A number that is carried is a number for the graphs.
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
fn scan_slices(combine: &Block, init: &[Value], slices: &[Value], fixed: &[Value]) -> Result<Vec<Value>> {
    length("scan", slices)?;
    let step = |state: &Vec<Tensor>, slice: &Vec<Tensor>| {
        let given = combine.run([&values(state.clone()), &values(slice.clone()), fixed].concat())?;
        let (next, made) = given.split_at_checked(state.len()).ok_or_else(malformed)?;
        Ok((owned(next)?, owned(made)?))
    };
    let (mut state, stacked) = scan(step, &owned(init)?, &owned(slices)?)?;
    state.extend(stacked);
    Ok(values(state))
}

/// Each slice combined with all before it, from left to right.
fn associative_scan(combine: &Block, slices: &[Value], fixed: &[Value]) -> Result<Vec<Value>> {
    let n_slices = length("associative_scan", slices)?;
    let slices = owned(slices)?;
    let part = |from: i64, n: usize| slices.iter().map(|x| x.narrow(0, from, n)).collect::<Result<Vec<Tensor>>>();
    let (first, rest) = (part(0, 1)?, part(1, n_slices - 1)?);
    let step = |state: &Vec<Tensor>, slice: &Vec<Tensor>| {
        let next = owned(&combine.run([&values(state.clone()), &values(slice.clone()), fixed].concat())?)?;
        Ok((next.clone(), next))
    };
    let init = first.iter().map(|x| x.squeeze([0])).collect::<Result<Vec<_>>>()?;
    let (_, stacked): (Vec<Tensor>, Vec<Tensor>) = scan(step, &init, &rest)?;
    let joined = first.iter().zip(&stacked).map(|(first, rest)| cat(&[first, rest], 0).map(Value::Tensor));
    joined.collect()
}

fn map(body: &Block, slices: &[Value], fixed: &[Value]) -> Result<Vec<Value>> {
    length("map", slices)?;
    let step = |_: &(), slice: &Vec<Tensor>| Ok(((), owned(&body.run([&values(slice.clone()), fixed].concat())?)?));
    Ok(values(scan(step, &(), &owned(slices)?)?.1))
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

fn owned(values: &[Value]) -> Result<Vec<Tensor>> {
    values.iter().map(|value| tensor(value).map(Cow::into_owned)).collect()
}

fn values(tensors: Vec<Tensor>) -> Vec<Value> {
    tensors.into_iter().map(Value::Tensor).collect()
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
