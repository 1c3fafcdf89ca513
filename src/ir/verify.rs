//! The invariants of a graph, checked in this order:
//!
//! 1. operands precede their users, and every output exists;
//! 2. inputs are numbered in order and listed once each;
//! 3. every call's type is what the op infers from its operands;
//! 4. a plain number has the type of a plain number.

use super::dtype::DType;
use super::graph::{Graph, NodeKind};
use super::types::TensorType;
use crate::error::{Error, Result};

/// Checks every invariant of `graph`.
///
/// # Errors
/// The first invariant that does not hold, with the node.
pub fn verify(graph: &Graph) -> Result<()> {
    for (id, node) in graph.nodes() {
        if let Some(arg) = node.args.iter().find(|arg| **arg >= id) {
            return Err(Error::invalid("graph", format!("{id} uses {arg}, which does not precede it")));
        }
    }
    if let Some(output) = graph.outputs().iter().find(|output| output.index() >= graph.len()) {
        return Err(Error::invalid("graph", format!("output {output} does not exist")));
    }
    for (position, &id) in graph.inputs().iter().enumerate() {
        if graph[id].kind != NodeKind::Input(position as u32) {
            return Err(Error::invalid("graph", format!("input {position} is {id}, which is not that input")));
        }
    }
    for (id, node) in graph.nodes() {
        match node.kind {
            NodeKind::Input(position) => {
                if graph.inputs().get(position as usize) != Some(&id) {
                    return Err(Error::invalid("graph", format!("{id} is not listed as input {position}")));
                }
            }
            NodeKind::Extent(count) => {
                if node.ty != TensorType::number(DType::I64) || count < 0 {
                    return Err(Error::invalid(
                        "graph",
                        format!("{id} is the extent {count} but has type {}", node.ty),
                    ));
                }
            }
            NodeKind::Number(value) => {
                if node.ty != TensorType::number(value.dtype()) {
                    return Err(Error::invalid(
                        "graph",
                        format!("{id} is the number {value} but has type {}", node.ty),
                    ));
                }
            }
            NodeKind::Op(op) => {
                let inferred = op.infer(&graph.arg_types(id), &node.attrs)?;
                if inferred != node.ty {
                    let message = format!("{id} = {} has type {} but should have {inferred}", op.name(), node.ty);
                    return Err(Error::invalid("graph", message));
                }
            }
        }
    }
    Ok(())
}
