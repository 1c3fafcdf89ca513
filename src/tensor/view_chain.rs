//! Chains of view ops, which lead from a base to a view.
//!
//! A chain can be applied to another base of the same type, to recompute a view after its base has changed. It can also
//! be inverted: [`write_back`] computes the base after a write through the view. Both consist of ordinary ops, on
//! tensors (so that they are recorded for gradients) or on nodes of a graph.

use crate::error::{Error, Result};
use crate::ir::attrs::{Attributes, Dims};
use crate::ir::shape::normalize_dim;
use crate::ir::{Attr, Attrs, Graph, Layout, Meaning, MemoryFormat, NodeId, Op, Sizes};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

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

    /// Whether [`write_back`] supports this step.
    pub(crate) fn is_invertible(&self) -> bool {
        inverse(self.op).is_some()
    }
}

/// The view ops that lead from a base to a view. Views of one view share the beginning of their chains, so a view costs
/// the same however deep it is.
#[derive(Debug, Clone)]
pub(crate) struct ViewChain {
    last: ViewStep,
    before: Option<Arc<ViewChain>>,
}

impl ViewChain {
    /// The chain of one view op.
    pub(crate) fn of(step: ViewStep) -> ViewChain {
        ViewChain { last: step, before: None }
    }

    /// The chain of a view of the view.
    pub(crate) fn then(&self, step: ViewStep) -> ViewChain {
        ViewChain { last: step, before: Some(Arc::new(self.clone())) }
    }

    /// The chain of a view of the view, which leads on from it.
    pub(crate) fn followed_by(&self, rest: &ViewChain) -> ViewChain {
        rest.steps().into_iter().fold(self.clone(), |chain, step| chain.then(step))
    }

    /// The view ops, from the base on.
    pub(crate) fn steps(&self) -> SmallVec<[ViewStep; 1]> {
        let mut steps: SmallVec<[ViewStep; 1]> = self.backwards().cloned().collect();
        steps.reverse();
        steps
    }

    /// Whether some view op fits.
    pub(crate) fn has(&self, fits: impl Fn(&ViewStep) -> bool) -> bool {
        self.backwards().any(fits)
    }

    fn backwards(&self) -> impl Iterator<Item = &ViewStep> {
        std::iter::successors(Some(self), |chain| chain.before.as_deref()).map(|chain| &chain.last)
    }
}

impl Drop for ViewChain {
    fn drop(&mut self) {
        // Dropped in a loop, because a chain may be long.
        let mut next = self.before.take();
        while let Some(mut chain) = next.and_then(Arc::into_inner) {
            next = chain.before.take();
        }
    }
}

/// How a write through a view op changes the base.
enum Inverse {
    /// The value is viewed with the sizes of the base.
    Resize,
    /// The value is the base: the view has the same elements in the same order.
    Identity,
    /// The op is its own inverse.
    Itself,
    /// The dims are permuted back.
    Permute,
    /// This op writes the value into the base.
    Write(Op),
}

/// How to invert an op whose view shows each element of the base at most once. `None` for others.
fn inverse(op: Op) -> Option<Inverse> {
    match op {
        Op::View | Op::UnsafeView | Op::Squeeze | Op::Unsqueeze => Some(Inverse::Resize),
        Op::Alias | Op::Detach => Some(Inverse::Identity),
        Op::T | Op::Transpose => Some(Inverse::Itself),
        Op::Permute => Some(Inverse::Permute),
        Op::Select => Some(Inverse::Write(Op::SelectScatter)),
        Op::Slice => Some(Inverse::Write(Op::SliceScatter)),
        Op::Diagonal => Some(Inverse::Write(Op::DiagonalScatter)),
        // These show elements several times, or show other memory than the elements of their base.
        _others => None,
    }
}

/// Computes a chain on tensors or on nodes of a graph.
pub(crate) trait Values {
    /// A tensor or a node.
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
        let args = match op.is_window() {
            true => vec![with_own_strides(self, args[0])?],
            false => args,
        };
        self.add(op, &args, Attrs::from(attrs))
    }

    fn sizes(&self, value: &NodeId) -> Sizes {
        self[*value].ty.sizes.clone()
    }
}

/// The value, whose dims of size 1 have the strides that a view gives them. Those of a value are left open: a fill may
/// have stride 0 there, which a view of the memory would refuse.
pub(crate) fn with_own_strides(graph: &mut Graph, value: NodeId) -> Result<NodeId> {
    let ty = &graph[value].ty;
    let dims: SmallVec<[i64; 4]> = (0..ty.rank()).filter(|&dim| ty.sizes[dim] == 1).map(|dim| dim as i64).collect();
    let layout = Layout { sizes: ty.sizes.clone(), strides: ty.strides.clone(), offset: 0 };
    let all: SmallVec<[usize; 4]> = dims.iter().map(|&dim| dim as usize).collect();
    let again = all.iter().fold(layout.squeeze(&all), |layout, &dim| layout.unsqueeze(dim));
    if again.strides == layout.strides {
        return Ok(value);
    }
    let dense = graph.add(Op::Squeeze, &[value], smallvec![Attr::Ints(dims.clone())])?;
    dims.iter().try_fold(dense, |value, &dim| graph.add(Op::Unsqueeze, &[value], smallvec![Attr::int(dim)]))
}

/// Applies a chain to `base`.
pub(crate) fn apply<V: Values>(values: &mut V, base: &V::Value, chain: &[ViewStep]) -> Result<V::Value> {
    chain.iter().try_fold(base.clone(), |view, step| values.call(step.op, &[&view], &step.attrs))
}

/// The base after `value`, which has the view's sizes and dtype, was written through the view. A value without elements
/// changes nothing.
///
/// # Errors
/// If a step cannot be inverted, because several elements of the view are one element of the base.
pub(crate) fn write_back<V: Values>(
    values: &mut V,
    base: &V::Value,
    chain: &[ViewStep],
    value: &V::Value,
) -> Result<V::Value> {
    let Some((step, rest)) = chain.split_first() else { return Ok(value.clone()) };
    if values.sizes(value).contains(&0) {
        // Nothing is written, even where several elements of a view would be one of the base.
        return Ok(base.clone());
    }
    let value = match rest {
        [] => value.clone(),
        rest => {
            let inner = values.call(step.op, &[base], &step.attrs)?;
            write_back(values, &inner, rest, value)?
        }
    };
    inverted(values, base, step, &value)
}

/// Like [`write_back`] on a graph. A chain that is one strided window of the base becomes one op, so nothing is copied
/// in between.
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

/// The layout of a chain's view in a row-major base, if every step can be inverted and needs no copy.
fn window(base: &[usize], chain: &[ViewStep]) -> Option<Layout> {
    chain.iter().try_fold(Layout::contiguous(base), |layout, step| match &step.op.row().meaning {
        Meaning::View(rule) if step.is_invertible() => rule(&layout, &step.attrs).ok(),
        _others => None,
    })
}

fn inverted<V: Values>(values: &mut V, base: &V::Value, step: &ViewStep, value: &V::Value) -> Result<V::Value> {
    let sizes = values.sizes(base);
    match inverse(step.op) {
        Some(Inverse::Resize) => {
            // The value may have other strides than the view.
            let dense = values.call(Op::Clone, &[value], &[MemoryFormat::Contiguous.into()])?;
            values.call(Op::View, &[&dense], &[Attr::Ints(sizes.iter().map(|&size| size as i64).collect())])
        }
        Some(Inverse::Identity) => Ok(value.clone()),
        Some(Inverse::Itself) => values.call(step.op, &[value], &step.attrs),
        Some(Inverse::Permute) => {
            let mut inverse = smallvec![0i64; sizes.len()];
            for (to, &from) in Dims::read(&step.attrs).dims.iter().enumerate() {
                inverse[normalize_dim("permute", from, sizes.len())?] = to as i64;
            }
            values.call(Op::Permute, &[value], &[Attr::Ints(inverse)])
        }
        Some(Inverse::Write(write)) => values.call(write, &[base, value], &step.attrs),
        None => Err(Error::argument(
            step.op.name(),
            "its result cannot be written through here: several of its elements may be one element of the tensor; \
             clone it first",
        )),
    }
}
