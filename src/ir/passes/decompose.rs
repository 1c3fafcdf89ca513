//! Replaces composite ops by their decompositions.

use crate::error::Result;
use crate::ir::Op;
use crate::ir::decompose::copied;
use crate::ir::entity::SideTable;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::indexing;
use crate::ir::infer::joins_anything;
use crate::ir::row::{GatherKind, Meaning};

/// A graph without composite ops that computes the same. The origin of its nodes is a node of `graph`.
///
/// # Errors
/// None on a verified graph. A decomposition with a type error is a bug, and its error is returned.
pub fn decompose(graph: &Graph) -> Result<Graph> {
    let is_composite = |graph: &Graph| {
        let composite = |op: Op| matches!(op.row().meaning, Meaning::Decompose(_));
        graph.nodes().any(|(_, node)| node.op().is_some_and(composite))
    };
    let mut out = once(graph)?;
    // A decomposition may contain composite ops.
    while is_composite(&out) {
        out = once(&out)?;
    }
    Ok(out)
}

/// Replaces every composite op by its decomposition, which may contain composite ops.
fn once(graph: &Graph) -> Result<Graph> {
    let mut out = Graph::new();
    let mut moved: SideTable<NodeId, NodeId> = SideTable::new();
    for (id, node) in graph.nodes() {
        out.set_origin(graph.origin(id).or(Some(id)));
        let args: Vec<NodeId> = node.args.iter().map(|&arg| moved[arg]).collect();
        let meaning = node.op().map(|op| &op.row().meaning);
        moved.push(match meaning {
            Some(Meaning::Decompose(rule)) => {
                let mut id = rule(&mut out, &args, &node.attrs)?;
                if out[id].ty.number && !node.ty.number {
                    // Its parts are arithmetic of plain numbers, but the op returns a tensor.
                    id = copied(&mut out, id)?;
                }
                debug_assert_eq!(out[id].ty.sizes, node.ty.sizes, "{:?} decomposes into another shape", node.op());
                debug_assert_eq!(out[id].ty.dtype, node.ty.dtype, "{:?} decomposes into another dtype", node.op());
                id
            }
            Some(Meaning::Concat) => {
                // A kernel copies the parts of a concatenation and does not convert them, so they are converted first.
                // A 1-dim operand without elements adds nothing, and is dropped.
                let rest: Vec<NodeId> = args.iter().copied().filter(|&arg| !joins_anything(&out[arg].ty)).collect();
                let args = if rest.is_empty() { args } else { rest };
                let args = args.into_iter().map(|arg| out.cast(arg, node.ty.dtype));
                let args = args.collect::<Result<Vec<NodeId>>>()?;
                out.copy(node, &args)
            }
            Some(Meaning::Overlay) => {
                let args = args.into_iter().map(|arg| out.cast(arg, node.ty.dtype));
                let args = args.collect::<Result<Vec<NodeId>>>()?;
                out.copy(node, &args)
            }
            Some(Meaning::Gather(GatherKind::Elementwise)) => indexing::gather(&mut out, node, &args)?,
            Some(Meaning::Routine(routine)) => {
                let mut args = args;
                if let Some(index) = routine.converted() {
                    args[index] = out.cast(args[index], node.ty.dtype)?;
                }
                out.copy(node, &args)
            }
            Some(
                Meaning::Body(..)
                | Meaning::Fold(_)
                | Meaning::View(_)
                | Meaning::Window(_)
                | Meaning::Product
                | Meaning::Gather(_)
                | Meaning::Fill
                | Meaning::Range,
            )
            | None => out.copy(node, &args),
        });
    }
    out.set_outputs(graph.outputs().iter().map(|&id| moved[id]).collect());
    Ok(out)
}
