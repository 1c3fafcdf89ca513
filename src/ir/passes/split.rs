//! Splits a joint graph, which computes values and their gradients, into a forward and a backward graph.
//!
//! The forward half computes the outputs, and saves the values that the backward half reads. The backward half takes
//! these and the cotangents, and computes the gradients. Values that only gradients need are computed in the backward
//! half, so nothing is saved that an eager call would not save. Views are made again from the values that they
//! show: as outputs they would share memory with these, or be copied.

use crate::error::Result;
use crate::ir::{Graph, NodeId, NodeKind, Op, SideTable};

/// A value of the forward half that the backward half reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// An input of the forward half, by its position.
    Input(usize),
    /// An output of the forward half, by its position.
    Output(usize),
}

/// The two halves of a graph.
#[derive(Debug, Clone)]
pub struct Halves {
    /// Takes the inputs of the joint graph without the cotangents. Returns its outputs without the gradients, then the
    /// saved values.
    pub forward: Graph,
    /// Takes the saved values, then the cotangents. Returns the gradients.
    pub backward: Graph,
    /// The saved values, in the order of the backward half's inputs.
    pub kept: Vec<Kept>,
    /// The same as nodes of the joint graph.
    pub kept_nodes: Vec<NodeId>,
}

/// Splits a graph. Its inputs at the positions `cotangents`, and its outputs at the positions `gradients`, belong to
/// the backward half.
///
/// # Errors
/// If an output of the forward half depends on a cotangent.
pub fn split(joint: &Graph, cotangents: &[usize], gradients: std::ops::Range<usize>) -> Result<Halves> {
    let own: Vec<NodeId> = joint
        .outputs()
        .iter()
        .enumerate()
        .filter(|(index, _)| !gradients.contains(index))
        .map(|(_, &output)| output)
        .collect();
    let wanted = &joint.outputs()[gradients];
    let first = ancestors(joint, &own);
    let second = ancestors(joint, wanted);

    let mut forward = Graph::new();
    let mut moved: SideTable<NodeId, Option<NodeId>> = SideTable::new();
    for (id, node) in joint.nodes() {
        let is_cotangent = matches!(node.kind, NodeKind::Input(index) if cotangents.contains(&(index as usize)));
        let belongs = first[id] || (matches!(node.kind, NodeKind::Input(_)) && !is_cotangent);
        let args: Option<Vec<NodeId>> = node.args.iter().map(|&arg| moved[arg]).collect();
        forward.set_place(joint.place(id).cloned());
        moved.push(match (belongs && !is_cotangent, args) {
            (true, Some(args)) => Some(forward.copy(node, &args)),
            (true, None) => {
                return Err(crate::error::Error::invalid("graph", format!("{id} depends on a cotangent")));
            }
            (false, _) => None,
        });
    }
    let mut outputs: Vec<NodeId> = own.iter().filter_map(|&output| moved[output]).collect();

    let mut backward = Graph::new();
    let (mut kept, mut kept_nodes) = (Vec::new(), Vec::new());
    let mut placed: SideTable<NodeId, Option<NodeId>> = SideTable::filled(joint, || None);
    let mut read = SideTable::filled(joint, || false);
    wanted.iter().for_each(|&gradient| read[gradient] = true);
    for (_, node) in joint.nodes().filter(|(id, _)| second[*id] && !first[*id]) {
        node.args.iter().for_each(|&arg| read[arg] = true);
    }
    let mut is_view_again = SideTable::filled(joint, || false);
    for (id, node) in joint.nodes().rev() {
        if read[id] && first[id] && node.op().is_some_and(Op::is_view) {
            (read[id], is_view_again[id]) = (false, true);
            node.args.iter().for_each(|&arg| read[arg] = true);
        }
    }
    // Saved values come first, then the cotangents.
    for (id, node) in joint.nodes() {
        let is_number = matches!(node.kind, NodeKind::Number(_) | NodeKind::Extent(_));
        let Some(made) = moved[id].filter(|_| read[id] && !is_number) else { continue };
        kept_nodes.push(id);
        kept.push(match node.kind {
            NodeKind::Input(_) => {
                Kept::Input(forward.inputs().iter().position(|&input| input == made).expect("it was copied there"))
            }
            NodeKind::Op(_) | NodeKind::Number(_) | NodeKind::Extent(_) => {
                outputs.push(made);
                Kept::Output(outputs.len() - 1)
            }
        });
        placed[id] = Some(backward.input(node.ty.clone()));
    }
    for &cotangent in cotangents {
        let id = joint.inputs()[cotangent];
        placed[id] = Some(backward.input(joint[id].ty.clone()));
    }
    for (id, node) in joint.nodes() {
        let is_number = matches!(node.kind, NodeKind::Number(_) | NodeKind::Extent(_));
        if placed[id].is_none() && second[id] && (!first[id] || is_number || is_view_again[id]) {
            let args: Option<Vec<NodeId>> = node.args.iter().map(|&arg| placed[arg]).collect();
            backward.set_place(joint.place(id).cloned());
            placed[id] = args.map(|args| backward.copy(node, &args));
        }
    }
    forward.set_outputs(outputs);
    backward.set_outputs(wanted.iter().filter_map(|&gradient| placed[gradient]).collect());
    Ok(Halves { forward, backward, kept, kept_nodes })
}

/// The graph that computes the nodes `wanted` from the nodes `given` and from inputs. Its inputs are `given`, then the
/// inputs of `graph` that are needed besides, whose positions are returned.
///
/// # Errors
/// If the graph breaks an invariant.
pub fn extract(graph: &Graph, given: &[NodeId], wanted: &[NodeId]) -> Result<(Graph, Vec<usize>)> {
    let mut needed = SideTable::filled(graph, || false);
    wanted.iter().for_each(|&node| needed[node] = true);
    for (id, node) in graph.nodes().rev() {
        if needed[id] && !given.contains(&id) {
            node.args.iter().for_each(|&arg| needed[arg] = true);
        }
    }
    let mut part = Graph::new();
    let mut moved: SideTable<NodeId, Option<NodeId>> = SideTable::filled(graph, || None);
    for &id in given {
        moved[id] = Some(part.input(graph[id].ty.clone()));
    }
    let mut others = Vec::new();
    for (id, node) in graph.nodes().filter(|(id, _)| needed[*id]) {
        if moved[id].is_some() {
            continue;
        }
        if let NodeKind::Input(index) = node.kind {
            others.push(index as usize);
        }
        let args: Option<Vec<NodeId>> = node.args.iter().map(|&arg| moved[arg]).collect();
        part.set_place(graph.place(id).cloned());
        moved[id] = args.map(|args| part.copy(node, &args));
    }
    let outputs: Option<Vec<NodeId>> = wanted.iter().map(|&node| moved[node]).collect();
    part.set_outputs(outputs.ok_or_else(|| crate::error::Error::invalid("graph", "a node is not reached"))?);
    Ok((part, others))
}

/// Which nodes lead to some of `ends`.
fn ancestors(graph: &Graph, ends: &[NodeId]) -> SideTable<NodeId, bool> {
    let mut leads = SideTable::filled(graph, || false);
    for &end in ends {
        leads[end] = true;
    }
    for (id, node) in graph.nodes().rev() {
        if leads[id] {
            for &arg in &node.args {
                leads[arg] = true;
            }
        }
    }
    leads
}
