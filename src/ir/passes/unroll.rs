//! Sums of so few elements that they are additions: `sum(x, dim of 3)` is `(x0 + x2) + x1`.
//!
//! The loops of a kernel are those of its folds. A short sum in front of another fold over other elements, the squared
//! distance of points in front of a sum over points, would need a kernel of its own, and memory for every distance. As
//! additions it is pointwise and fuses with everything. The order is that of a fold (`codegen::fold`): partial result `l`
//! begins with +0.0 and takes element `l`, and partial results half as far apart each time are added; so the bits are those
//! of the fold. A +0.0 is added once: no further sum with it can change, since it is never -0.0.
//!
//! Sums that no other fold waits for are left alone: their loops suit them well.

use crate::error::Result;
use crate::ir::Scalar;
use crate::ir::attrs::{Add, Along, Attributes, Fold, Select};
use crate::ir::graph::{Graph, Node, NodeId, SideTable};
use crate::ir::infer::reduced_dims;
use crate::ir::op::Op;
use crate::ir::row::Meaning;

/// Most elements of a sum that is taken apart: each is a copy of all that computes it.
const MOST: usize = 4;

/// A graph in which short sums in front of other folds are additions; nodes remember which they were made for.
///
/// # Errors
/// None on a verified graph; an addition that does not type is reported as it is.
pub fn unroll(graph: &Graph) -> Result<Graph> {
    let awaited = awaited(graph);
    let mut out = Graph::new();
    let mut moved: SideTable<NodeId> = SideTable::new();
    for (id, node) in graph.nodes() {
        out.set_origin(graph.origin(id).or(Some(id)));
        let args: Vec<NodeId> = node.args.iter().map(|&arg| moved[arg]).collect();
        let dim = if awaited[id].is_some() { short_dim(graph, node) } else { None };
        let sum = dim.map(|dim| additions(&mut out, node, args[0], dim)).transpose()?;
        // What lies otherwise in memory than the sum does cannot stand for it.
        let sum = sum.filter(|&sum| out[sum].ty == node.ty);
        moved.push(sum.unwrap_or_else(|| out.copy(node, &args)));
    }
    out.set_outputs(graph.outputs().iter().map(|&id| moved[id]).collect());
    Ok(out)
}

/// Per node, its elements if a fold over as many is computed from it by pointwise ops and views alone.
fn awaited(graph: &Graph) -> SideTable<Option<usize>> {
    let mut awaited = SideTable::filled(graph, || None);
    for (id, node) in graph.nodes().rev() {
        let Some(op) = node.op() else { continue };
        let passed_on = match op.row().meaning {
            Meaning::Fold(_) => node.args.first().map(|&arg| graph[arg].ty.numel()),
            Meaning::Body(..) | Meaning::View(_) => awaited[id],
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
                awaited[arg] = passed_on;
            }
        }
    }
    awaited
}

/// The dim that a short sum of floats runs over.
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

/// The sum of the elements of a dim, added in the order of a fold.
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
