//! Omits inputs of a backward graph: gradients that a backward pass does not bring.
//!
//! A backward graph is linear in its cotangents. So a value that depends on omitted cotangents alone is zero, and is
//! omitted too. A sum with one omitted operand is the other operand. An eager backward pass does the same: it visits no
//! call whose result has no gradient. Zeros instead would turn into NaN where a factor is infinite.

use crate::error::Result;
use crate::ir::attrs::{Add, Attributes, Full, ints};
use crate::ir::{Attrs, Graph, Node, NodeId, NodeKind, Op, Scalar, SideTable, TensorType};
use smallvec::SmallVec;

/// The graph without some inputs. Of each output it also returns the new position, if it is not omitted. `cotangents`
/// says of each input of `graph` whether the graph is linear in it, `omitted` whether it is left out.
///
/// # Errors
/// If the graph breaks an invariant.
pub fn omit(graph: &Graph, cotangents: &[bool], omitted: &[bool]) -> Result<(Graph, Vec<Option<usize>>)> {
    let mut new = Graph::new();
    let mut depends: SideTable<NodeId, bool> = SideTable::new();
    let mut moved: SideTable<NodeId, Option<NodeId>> = SideTable::new();
    for (_, node) in graph.nodes() {
        let (linear, left_out) = match node.kind {
            NodeKind::Input(index) => (cotangents[index as usize], omitted[index as usize]),
            NodeKind::Op(_) | NodeKind::Number(_) | NodeKind::Extent(_) => {
                let mut linear = node.args.iter().filter(|&&arg| depends[arg]).peekable();
                (linear.peek().is_some(), linear.peek().is_some() && linear.all(|&arg| moved[arg].is_none()))
            }
        };
        depends.push(linear);
        moved.push(if left_out { None } else { Some(copied(&mut new, graph, node, &moved)?) });
    }
    let mut outputs = Vec::new();
    let place = |&output: &NodeId| {
        moved[output].map(|output| {
            outputs.push(output);
            outputs.len() - 1
        })
    };
    let places = graph.outputs().iter().map(place).collect();
    new.set_outputs(outputs);
    Ok((new, places))
}

/// A copy of a node. An operand that is omitted is zero.
fn copied(new: &mut Graph, graph: &Graph, node: &Node, moved: &SideTable<NodeId, Option<NodeId>>) -> Result<NodeId> {
    let there: SmallVec<[NodeId; 4]> = node.args.iter().filter_map(|&arg| moved[arg]).collect();
    if there.len() == node.args.len() {
        return Ok(new.copy(node, &there));
    }
    // The engine of the backward pass adds gradients of one type.
    let is_sum = matches!(node.kind, NodeKind::Op(Op::Add)) && Add::read(&node.attrs).alpha.as_f64() == 1.0;
    if let (true, [rest]) = (is_sum, &there[..])
        && new[*rest].ty == node.ty
    {
        return Ok(*rest);
    }
    let args = node.args.iter().map(|&arg| moved[arg].map_or_else(|| zeros(new, &graph[arg].ty), Ok));
    let args = args.collect::<Result<SmallVec<[NodeId; 4]>>>()?;
    Ok(new.copy(node, &args))
}

fn zeros(graph: &mut Graph, ty: &TensorType) -> Result<NodeId> {
    let attrs = Full { size: ints(&ty.sizes), fill_value: Scalar::Int(0), dtype: Some(ty.dtype) };
    let zeros = graph.add(Op::Full, &[], Attrs::from(attrs))?;
    if graph[zeros].ty.strides != ty.strides {
        graph.set_strides(zeros, &ty.strides);
    }
    Ok(zeros)
}
