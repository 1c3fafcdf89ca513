//! A graph that computes values and then their gradients, cut in two.
//!
//! The forward half computes the first outputs and hands on what the backward half reads of it. The backward half takes
//! that and the cotangents, and computes the gradients. What the forward half does not need for its own outputs is
//! computed in the backward half, so nothing is kept that a recorded eager call would not keep either.

use crate::error::Result;
use crate::ir::{Graph, NodeId, NodeKind, SideTable};

/// Something that the backward half reads of the forward half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Input number so-and-so of the forward half.
    Input(usize),
    /// Output number so-and-so of the forward half.
    Output(usize),
}

/// The two halves of a graph.
#[derive(Debug, Clone)]
pub struct Halves {
    /// Takes the inputs of the whole but the cotangents; gives its outputs but the gradients, then what is kept.
    pub forward: Graph,
    /// Takes what is kept, then the cotangents; gives the gradients.
    pub backward: Graph,
    /// What the backward half reads of the forward half, in the order of its inputs.
    pub kept: Vec<Kept>,
}

/// Cuts a graph whose inputs at the positions `cotangents` and whose outputs at the positions `gradients` belong to the
/// backward half.
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
    let mut moved: SideTable<Option<NodeId>> = SideTable::new();
    for (id, node) in joint.nodes() {
        let is_cotangent = matches!(node.kind, NodeKind::Input(index) if cotangents.contains(&(index as usize)));
        let belongs = first[id] || (matches!(node.kind, NodeKind::Input(_)) && !is_cotangent);
        let args: Option<Vec<NodeId>> = node.args.iter().map(|&arg| moved[arg]).collect();
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
    let mut kept = Vec::new();
    let mut placed: SideTable<Option<NodeId>> = SideTable::filled(joint, || None);
    let mut read = SideTable::filled(joint, || false);
    wanted.iter().for_each(|&gradient| read[gradient] = true);
    for (_, node) in joint.nodes().filter(|(id, _)| second[*id] && !first[*id]) {
        node.args.iter().for_each(|&arg| read[arg] = true);
    }
    // What crosses comes first, then the cotangents.
    for (id, node) in joint.nodes() {
        let is_number = matches!(node.kind, NodeKind::Number(_) | NodeKind::Extent(_));
        let Some(made) = moved[id].filter(|_| read[id] && !is_number) else { continue };
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
        if placed[id].is_none() && second[id] && (!first[id] || is_number) {
            let args: Option<Vec<NodeId>> = node.args.iter().map(|&arg| placed[arg]).collect();
            placed[id] = args.map(|args| backward.copy(node, &args));
        }
    }
    forward.set_outputs(outputs);
    backward.set_outputs(wanted.iter().filter_map(|&gradient| placed[gradient]).collect());
    Ok(Halves { forward, backward, kept })
}

/// Which nodes lead to some of `ends`.
fn ancestors(graph: &Graph, ends: &[NodeId]) -> SideTable<bool> {
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
