//! Unrolls short sums to additions: `sum(x, dim of 3)` is `(x0 + x2) + x1`.
//!
//! The loops of a kernel are those of its folds. So a short sum that another fold reads would need a kernel of its own,
//! and memory for its results. An example is a squared distance of points that is then summed over points. As additions
//! it is pointwise and fuses with everything.
//!
//! The order of additions is that of a fold (`codegen::fold`), so the bits are the same. There, partial result `l` is
//! +0.0 plus element `l`, and partial results are added pairwise, halving their number each time. Here only the first
//! one gets the +0.0. That is enough: it is never -0.0, so it absorbs the sign of other zeros.
//!
//! Sums that no other fold reads are not unrolled, because a kernel computes them well.

use crate::error::Result;
use crate::ir::Scalar;
use crate::ir::attrs::{Add, Along, Attributes, Fold, Select};
use crate::ir::entity::SideTable;
use crate::ir::graph::{Graph, Node, NodeId};
use crate::ir::infer::reduced_dims;
use crate::ir::op::Op;
use crate::ir::row::Meaning;

/// The most elements of a sum that is unrolled. Each element repeats the work that computes it.
const MOST: usize = 4;

/// Unrolls short sums that other folds read.
///
/// # Errors
/// None on a verified graph. An addition with a type error is a bug, and its error is returned.
pub fn unroll(graph: &Graph) -> Result<Graph> {
    let feeds_fold = feeds_fold(graph);
    let mut out = Graph::new();
    let mut moved: SideTable<NodeId, NodeId> = SideTable::new();
    for (id, node) in graph.nodes() {
        out.set_origin(graph.origin(id).or(Some(id)));
        let args: Vec<NodeId> = node.args.iter().map(|&arg| moved[arg]).collect();
        let dim = if feeds_fold[id].is_some() { short_dim(graph, node) } else { None };
        let sum = dim.map(|dim| additions(&mut out, node, args[0], dim)).transpose()?;
        // Additions with other strides than the sum cannot replace it.
        let sum = sum.filter(|&sum| out[sum].ty == node.ty);
        moved.push(sum.unwrap_or_else(|| out.copy(node, &args)));
    }
    out.set_outputs(graph.outputs().iter().map(|&id| moved[id]).collect());
    Ok(out)
}

/// For each node that a fold over as many elements reads, through pointwise ops and views only: the number of elements.
fn feeds_fold(graph: &Graph) -> SideTable<NodeId, Option<usize>> {
    let mut feeds_fold = SideTable::filled(graph, || None);
    for (id, node) in graph.nodes().rev() {
        let Some(op) = node.op() else { continue };
        let passed_on = match op.row().meaning {
            Meaning::Fold(_) => node.args.first().map(|&arg| graph[arg].ty.numel()),
            Meaning::Body(..) | Meaning::View(_) => feeds_fold[id],
            Meaning::Window(_)
            | Meaning::Decompose(_)
            | Meaning::Product
            | Meaning::Gather(_)
            | Meaning::Concat
            | Meaning::Overlay
            | Meaning::Fill
            | Meaning::Range
            | Meaning::Routine(_) => None,
        };
        for &arg in &node.args {
            if passed_on == Some(graph[arg].ty.numel()) {
                feeds_fold[arg] = passed_on;
            }
        }
    }
    feeds_fold
}

/// The dim of a short sum of floats over one dim.
fn short_dim(graph: &Graph, node: &Node) -> Option<usize> {
    if node.op() != Some(Op::Sum) {
        return None;
    }
    let x = &graph[node.args[0]].ty;
    let dims = reduced_dims("sum", &node.attrs, x.rank()).ok()?;
    let &[dim] = dims.as_slice() else { return None };
    let is_float = x.dtype.is_float() && x.dtype == node.ty.dtype;
    ((2..=MOST).contains(&x.sizes[dim]) && is_float).then_some(dim)
}

/// The sum of the elements of a dim as additions, in the order of a fold.
fn additions(graph: &mut Graph, node: &Node, x: NodeId, dim: usize) -> Result<NodeId> {
    let dtype = node.ty.dtype;
    let mut partial = Vec::with_capacity(MOST);
    for index in 0..graph[x].ty.sizes[dim] {
        let element = graph.add(Op::Select, &[x], Select { dim: dim as i64, index: index as i64 }.into())?;
        partial.push(graph.cast(element, dtype.widened())?);
    }
    let zero = graph.number(Scalar::Float(0.0));
    partial[0] = add(graph, partial[0], zero)?;
    let mut half = MOST / 2;
    while half > 0 {
        for upper in half..partial.len() {
            partial[upper - half] = add(graph, partial[upper - half], partial[upper])?;
        }
        partial.truncate(half);
        half /= 2;
    }
    let sum = graph.cast(partial[0], dtype)?;
    if !Fold::read(&node.attrs).keepdim {
        return Ok(sum);
    }
    graph.add(Op::Unsqueeze, &[sum], Along { dim: dim as i64 }.into())
}

fn add(graph: &mut Graph, a: NodeId, b: NodeId) -> Result<NodeId> {
    graph.add(Op::Add, &[a, b], Add { alpha: Scalar::Int(1) }.into())
}
