//! Views as chains of view ops from the tensor that is a view of nothing.
//!
//! A chain can be applied to another base of the same type, which is how a view is made anew after its base has
//! changed, and it can be turned around: [`write_back`] gives the base as it is after a value was written through the
//! view. Both are made of ordinary ops, on tensors (so they are recorded for gradients) or on nodes of a graph.

use super::register::call;
use super::tensor::Tensor;
use crate::error::{Error, Result};
use crate::ir::shape::normalize_dim;
use crate::ir::{Attr, Attrs, Graph, NodeId, Op, Sizes};
use smallvec::smallvec;

/// One view op of a chain.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ViewStep {
    pub(super) op: Op,
    pub(super) attrs: Attrs,
}

impl ViewStep {
    pub(super) fn new(op: Op, attrs: &[Attr]) -> ViewStep {
        ViewStep { op, attrs: Attrs::from(attrs) }
    }
}

/// Where the values of a chain live.
pub(super) trait Values {
    /// A value.
    type Value: Clone;

    /// The result of an op.
    fn call(&mut self, op: Op, args: &[&Self::Value], attrs: &[Attr]) -> Result<Self::Value>;

    /// The sizes of a value.
    fn sizes(&self, value: &Self::Value) -> Sizes;
}

/// Values are tensors; ops are called.
pub(super) struct Tensors;

impl Values for Tensors {
    type Value = Tensor;

    fn call(&mut self, op: Op, args: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
        call(op, args, attrs)
    }

    fn sizes(&self, value: &Tensor) -> Sizes {
        value.sizes().into()
    }
}

impl Values for Graph {
    type Value = NodeId;

    fn call(&mut self, op: Op, args: &[&NodeId], attrs: &[Attr]) -> Result<NodeId> {
        let args: Vec<NodeId> = args.iter().map(|&&arg| arg).collect();
        self.add(op, &args, Attrs::from(attrs))
    }

    fn sizes(&self, value: &NodeId) -> Sizes {
        self[*value].ty.sizes.clone()
    }
}

/// The view of `base`.
pub(super) fn apply<V: Values>(values: &mut V, base: &V::Value, chain: &[ViewStep]) -> Result<V::Value> {
    chain.iter().try_fold(base.clone(), |view, step| values.call(step.op, &[&view], &step.attrs))
}

/// What `base` holds after `value`, of the view's sizes and dtype, was written through the view.
///
/// # Errors
/// If a step of the chain cannot be turned around: several elements of an expanded view are one element of its base.
pub(super) fn write_back<V: Values>(
    values: &mut V,
    base: &V::Value,
    chain: &[ViewStep],
    value: &V::Value,
) -> Result<V::Value> {
    let Some((step, rest)) = chain.split_first() else { return Ok(value.clone()) };
    let value = match rest {
        [] => value.clone(),
        rest => {
            let inner = values.call(step.op, &[base], &step.attrs)?;
            write_back(values, &inner, rest, value)?
        }
    };
    turned_around(values, base, step, &value)
}

fn turned_around<V: Values>(values: &mut V, base: &V::Value, step: &ViewStep, value: &V::Value) -> Result<V::Value> {
    let sizes = values.sizes(base);
    match step.op {
        Op::View | Op::Squeeze | Op::Unsqueeze => {
            // What was written may have other strides than the view had.
            let dense = values.call(Op::Clone, &[value], &[Attr::Str("contiguous".into())])?;
            values.call(Op::View, &[&dense], &[Attr::Ints(sizes.iter().map(|&size| size as i64).collect())])
        }
        Op::Alias | Op::Detach => Ok(value.clone()),
        Op::T | Op::Transpose => values.call(step.op, &[value], &step.attrs),
        Op::Permute => {
            let mut inverse = smallvec![0i64; sizes.len()];
            for (to, &from) in step.attrs[0].list().iter().enumerate() {
                inverse[normalize_dim("permute", from, sizes.len())?] = to as i64;
            }
            values.call(Op::Permute, &[value], &[Attr::Ints(inverse)])
        }
        Op::Select => values.call(Op::SelectScatter, &[base, value], &step.attrs),
        Op::Slice => values.call(Op::SliceScatter, &[base, value], &step.attrs),
        Op::Diagonal => values.call(Op::DiagonalScatter, &[base, value], &step.attrs),
        other => Err(Error::argument(
            other.name(),
            "its result cannot be written through here: several of its elements may be one element of the tensor; \
             clone it first",
        )),
    }
}
