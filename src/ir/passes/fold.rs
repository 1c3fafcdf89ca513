//! Constant folding.

use super::eliminate::rebuild;
use crate::ir::attrs::{Attributes, Full, ints};
use crate::ir::graph::{Graph, NodeId, NodeKind};
use crate::ir::op::Op;
use crate::ir::row::Meaning;
use crate::ir::scalar::body::Kind;
use crate::ir::scalar::{Lit, Scalar, Ty, eval};

/// Replaces pointwise calls of constants by a `full` of their value. The value is computed by the scalar body that a
/// kernel would run. Constants are plain numbers and results of `full`. A view of such a result is one, too, unless its
/// memory matters: where it is an output, or is read through a window.
pub fn fold_constants(graph: &Graph) -> Graph {
    let is_windowed = graph.windowed();
    let has_memory = |id: NodeId| is_windowed[id] || graph.outputs().contains(&id);
    rebuild(graph, |out, id, node, args| {
        let viewed = || viewed(graph, id).filter(|_| !has_memory(id));
        let folded = constant(graph, id).or_else(viewed).and_then(|value| {
            if node.ty.number {
                let number = out.number(value);
                return Some(number).filter(|&number| out[number].ty == node.ty);
            }
            let attrs = Full { size: ints(&node.ty.sizes), fill_value: value, dtype: Some(node.ty.dtype) };
            out.add(Op::Full, &[], attrs.into()).ok().filter(|&full| out[full].ty == node.ty)
        });
        Some(folded.unwrap_or_else(|| out.copy(node, args)))
    })
}

fn constant(graph: &Graph, id: NodeId) -> Option<Scalar> {
    let node = &graph[id];
    let op = node.op()?;
    if !matches!(op.row().meaning, Meaning::Body(..)) {
        return None;
    }
    let args: Vec<Lit> = node.args.iter().map(|&arg| number(graph, arg)).collect::<Option<_>>()?;
    let body = op.body(&graph.arg_types(id), &node.attrs).ok()?;
    // A zero divisor has to be an error when the graph runs.
    if body.insts.iter().any(|inst| matches!(inst.kind, Kind::Prim(prim) if prim.needs_divisor(inst.ty))) {
        return None;
    }
    let value = eval::body(&body, &args)[0];
    Some(match value.ty {
        Ty::Bool => Scalar::Bool(value.as_bool()),
        Ty::I32 => Scalar::Int(value.as_i32() as i64),
        Ty::I64 => Scalar::Int(value.as_i64()),
        Ty::F32 => Scalar::Float(value.as_f32() as f64),
        Ty::F64 => Scalar::Float(value.as_f64()),
    })
}

/// The value of every element of a view of a `full`.
fn viewed(graph: &Graph, id: NodeId) -> Option<Scalar> {
    let node = &graph[id];
    let base = *node.args.first()?;
    let is_view = matches!(node.op()?.row().meaning, Meaning::View(_)) && graph[base].op() == Some(Op::Full);
    is_view.then(|| Full::read(&graph[base].attrs).fill_value)
}

/// The value of every element of a constant node.
fn number(graph: &Graph, id: NodeId) -> Option<Lit> {
    match graph[id].kind {
        NodeKind::Number(value) => Some(value.to_lit(value.dtype())),
        NodeKind::Op(Op::Full) => Some(Full::read(&graph[id].attrs).fill_value.to_lit(graph[id].ty.dtype)),
        NodeKind::Input(_) | NodeKind::Extent(_) | NodeKind::Op(_) => None,
    }
}
