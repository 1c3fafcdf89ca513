//! Views as chains of view ops from the tensor that is a view of nothing.
//!
//! A chain can be applied to another base of the same type, which is how a view is made anew after its base has
//! changed, and it can be turned around: [`write_back`] gives the base as it is after a value was written through the
//! view. Both are made of ordinary ops, on tensors (so they are recorded for gradients) or on nodes of a graph.

use crate::error::{Error, Result};
use crate::ir::attrs::{Attributes, Dims};
use crate::ir::shape::normalize_dim;
use crate::ir::{Attr, Attrs, Graph, Layout, Meaning, MemoryFormat, NodeId, Op, Sizes};
use smallvec::smallvec;

/// One view op of a chain.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ViewStep {
    pub(crate) op: Op,
    pub(crate) attrs: Attrs,
}

impl ViewStep {
    pub(crate) fn new(op: Op, attrs: &[Attr]) -> ViewStep {
        ViewStep { op, attrs: Attrs::from(attrs) }
    }

    /// Whether [`write_back`] knows what it does to the base that something is written through it.
    pub(crate) fn turns_around(&self) -> bool {
        turn(self.op).is_some()
    }
}

/// How a view op is turned around.
enum Turn {
    /// By the sizes of the base.
    Resize,
    /// The view has the elements of the base in their order.
    Nothing,
    /// By the op itself.
    Again,
    /// By the inverse order of dims.
    Permute,
    /// By the op that writes to what the view shows.
    Write(Op),
}

/// How an op is turned around, if each element of the view is one of the base's and no other element is.
fn turn(op: Op) -> Option<Turn> {
    match op {
        Op::View | Op::UnsafeView | Op::Squeeze | Op::Unsqueeze => Some(Turn::Resize),
        Op::Alias | Op::Detach => Some(Turn::Nothing),
        Op::T | Op::Transpose => Some(Turn::Again),
        Op::Permute => Some(Turn::Permute),
        Op::Select => Some(Turn::Write(Op::SelectScatter)),
        Op::Slice => Some(Turn::Write(Op::SliceScatter)),
        Op::Diagonal => Some(Turn::Write(Op::DiagonalScatter)),
        // What shows elements several times, or other memory than the elements of its base.
        _others => None,
    }
}

/// Where the values of a chain live.
pub(crate) trait Values {
    /// A value.
    type Value: Clone;

    /// The result of an op.
    fn call(&mut self, op: Op, args: &[&Self::Value], attrs: &[Attr]) -> Result<Self::Value>;

    /// The sizes of a value.
    fn sizes(&self, value: &Self::Value) -> Sizes;
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
pub(crate) fn apply<V: Values>(values: &mut V, base: &V::Value, chain: &[ViewStep]) -> Result<V::Value> {
    chain.iter().try_fold(base.clone(), |view, step| values.call(step.op, &[&view], &step.attrs))
}

/// What `base` holds after `value`, of the view's sizes and dtype, was written through the view.
///
/// # Errors
/// If a step of the chain cannot be turned around: several elements of an expanded view are one element of its base.
pub(crate) fn write_back<V: Values>(
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

/// As [`write_back`] on a graph. Views of views are one window of the base, so that nothing between them is copied.
pub(crate) fn write_through(graph: &mut Graph, base: NodeId, chain: &[ViewStep], value: NodeId) -> Result<NodeId> {
    let n_all = graph[base].ty.numel();
    match window(&graph[base].ty.sizes, chain) {
        Some(part) if chain.len() > 1 && part.sizes == graph[value].ty.sizes && (1..n_all).contains(&part.numel()) => {
            let strides = part.strides.iter().map(|&stride| stride as i64).collect();
            graph.add(Op::Overlay, &[base, value], smallvec![Attr::Ints(strides), Attr::int(part.offset as i64)])
        }
        Some(_) | None => write_back(graph, &base, chain, &value),
    }
}

/// Where the elements of a chain's view lie in a row-major base, if each step can be turned around and needs no copy.
fn window(base: &[usize], chain: &[ViewStep]) -> Option<Layout> {
    chain.iter().try_fold(Layout::contiguous(base), |layout, step| match &step.op.row().meaning {
        Meaning::View(rule) if step.turns_around() => rule(&layout, &step.attrs).ok(),
        _others => None,
    })
}

fn turned_around<V: Values>(values: &mut V, base: &V::Value, step: &ViewStep, value: &V::Value) -> Result<V::Value> {
    let sizes = values.sizes(base);
    match turn(step.op) {
        Some(Turn::Resize) => {
            // What was written may have other strides than the view had.
            let dense = values.call(Op::Clone, &[value], &[MemoryFormat::Contiguous.into()])?;
            values.call(Op::View, &[&dense], &[Attr::Ints(sizes.iter().map(|&size| size as i64).collect())])
        }
        Some(Turn::Nothing) => Ok(value.clone()),
        Some(Turn::Again) => values.call(step.op, &[value], &step.attrs),
        Some(Turn::Permute) => {
            let mut inverse = smallvec![0i64; sizes.len()];
            for (to, &from) in Dims::read(&step.attrs).dims.iter().enumerate() {
                inverse[normalize_dim("permute", from, sizes.len())?] = to as i64;
            }
            values.call(Op::Permute, &[value], &[Attr::Ints(inverse)])
        }
        Some(Turn::Write(write)) => values.call(write, &[base, value], &step.attrs),
        None => Err(Error::argument(
            step.op.name(),
            "its result cannot be written through here: several of its elements may be one element of the tensor; \
             clone it first",
        )),
    }
}
