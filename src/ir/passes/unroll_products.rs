//! Unrolls matrix products of few steps to multiply-adds: `a @ b` with two columns of `a` is
//! `fma(a1, b1, fma(a0, b0, 0))`, where `a0` is a column and `b0` a row.
//!
//! A product is a kernel of its own, and its result goes through memory. As multiply-adds it is pointwise, and fuses
//! with everything: distances of all pairs of points, low-rank updates. Only products that pointwise ops read are
//! unrolled, and only those of long rows: tiles compute few columns faster.
//!
//! The chain is that of a product (`runtime::product`): it starts with +0.0, and each step is rounded once. So the bits
//! are the same.

use crate::error::Result;
use crate::ir::Scalar;
use crate::ir::attr::Attrs;
use crate::ir::attrs::{Along, Select};
use crate::ir::entity::SideTable;
use crate::ir::graph::{Graph, Node, NodeId};
use crate::ir::op::Op;
use crate::ir::row::Meaning;

/// The most steps of a product that is unrolled. Each step reads two operands.
const MOST: usize = 4;
/// The fewest columns: some vectors.
const COLUMNS: usize = 64;
/// The fewest elements of a result. Smaller ones stay in the nearest cache, and tiles compute them faster.
const ELEMENTS: usize = 1 << 14;

/// Unrolls products of few steps.
///
/// # Errors
/// None on a verified graph. A multiply-add with a type error is a bug, and its error is returned.
pub fn unroll_products(graph: &Graph) -> Result<Graph> {
    let is_used = used_by_pointwise(graph);
    let steps = |id: NodeId, node: &Node| if is_used[id] { steps(graph, node) } else { None };
    if !graph.nodes().any(|(id, node)| steps(id, node).is_some()) {
        return Ok(graph.clone());
    }
    let mut out = Graph::new();
    let mut moved: SideTable<NodeId, NodeId> = SideTable::new();
    for (id, node) in graph.nodes() {
        out.set_origin(graph.origin(id).or(Some(id)));
        let args: Vec<NodeId> = node.args.iter().map(|&arg| moved[arg]).collect();
        let chain = steps(id, node).map(|steps| chain(&mut out, &args, steps)).transpose()?;
        // A chain with other strides than the product cannot replace it.
        let chain = chain.filter(|&chain| out[chain].ty == node.ty);
        moved.push(chain.unwrap_or_else(|| out.copy(node, &args)));
    }
    out.set_outputs(graph.outputs().iter().map(|&id| moved[id]).collect());
    Ok(out)
}

/// For each node, whether a pointwise op reads it, if only through views.
fn used_by_pointwise(graph: &Graph) -> SideTable<NodeId, bool> {
    let mut is_used = SideTable::filled(graph, || false);
    for (id, node) in graph.nodes().rev() {
        let Some(op) = node.op() else { continue };
        let is_pointwise = matches!(op.row().meaning, Meaning::Body(..));
        if is_pointwise || op.is_view() && is_used[id] {
            node.args.iter().for_each(|&arg| is_used[arg] = true);
        }
    }
    is_used
}

/// The number of steps of a product of floats, if there are few.
fn steps(graph: &Graph, node: &Node) -> Option<usize> {
    if !matches!(node.op(), Some(Op::Mm | Op::Bmm)) {
        return None;
    }
    let a = &graph[node.args[0]].ty;
    let is_wide = a.dtype.is_float() && a.dtype == a.dtype.widened();
    let steps = *a.sizes.last()?;
    let is_long = node.ty.sizes.last().is_some_and(|&columns| columns >= COLUMNS) && node.ty.numel() >= ELEMENTS;
    (is_wide && is_long && (1..=MOST).contains(&steps)).then_some(steps)
}

/// A product as multiply-adds.
fn chain(graph: &mut Graph, args: &[NodeId], steps: usize) -> Result<NodeId> {
    let mut sum = graph.number(Scalar::Float(0.0));
    for index in 0..steps as i64 {
        let part = |graph: &mut Graph, arg: NodeId, dim: i64| {
            let one = graph.add(Op::Select, &[arg], Select { dim, index }.into())?;
            graph.add(Op::Unsqueeze, &[one], Along { dim }.into())
        };
        let (column, row) = (part(graph, args[0], -1)?, part(graph, args[1], -2)?);
        sum = graph.add(Op::Fma, &[column, row, sum], Attrs::new())?;
    }
    Ok(sum)
}
