//! Copies windows in front of matrix products.

use crate::error::Result;
use crate::ir::entity::SideTable;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::{Op, window_product};

/// Replaces products of windows by a copy of the windows and a matrix product of it. No bits change.
///
/// A GPU's matrix product reads matrices. The CPU reads windows where they lie and does not run this pass.
///
/// # Errors
/// None on a verified graph.
pub fn copy_windows(graph: &Graph) -> Result<Graph> {
    let mut out = Graph::new();
    let mut moved: SideTable<NodeId, NodeId> = SideTable::new();
    for (id, node) in graph.nodes() {
        out.set_origin(graph.origin(id).or(Some(id)));
        let args: Vec<NodeId> = node.args.iter().map(|&arg| moved[arg]).collect();
        moved.push(match node.op() {
            Some(Op::WindowProduct) => window_product::copied(&mut out, &args, &node.attrs)?,
            Some(_) | None => out.copy(node, &args),
        });
    }
    out.set_outputs(graph.outputs().iter().map(|&id| moved[id]).collect());
    Ok(out)
}
