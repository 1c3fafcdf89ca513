//! Shrinks a failing case: fewer outputs, then nodes replaced by inputs that hold their value.

use super::build::Case;
use super::reference::reference;
use opfuse::dispatch::Array;
use opfuse::ir::{Graph, NodeId, NodeKind, SideTable, TensorType};

/// A small case that still fails.
pub(crate) fn shrink(case: &Case, fails: &dyn Fn(&Case) -> bool) -> Case {
    let mut best = case.clone();
    for position in 0..case.graph.outputs().len() {
        let mut one = case.clone();
        one.graph.set_outputs(vec![case.graph.outputs()[position]]);
        let one = without_unused(&one);
        if fails(&one) {
            best = one;
            break;
        }
    }
    let mut position = 0;
    while position < best.graph.len() {
        // From the outputs backwards, because early cuts remove most nodes.
        let id = NodeId::new(best.graph.len() - 1 - position);
        match cut(&best, id).filter(|smaller| fails(smaller)) {
            Some(smaller) if smaller.graph.len() <= best.graph.len() => {
                best = smaller;
                position = 0;
            }
            Some(_) | None => position += 1,
        }
    }
    best
}

/// The node as an input that holds its value.
fn cut(case: &Case, id: NodeId) -> Option<Case> {
    let NodeKind::Op(_) = case.graph[id].kind else { return None };
    let values = reference(&case.graph, &case.inputs).ok()?;
    Some(without_unused(&rebuilt(case, |node| (node == id).then(|| values[id.index()].clone()), |_| true)))
}

/// Without nodes that no output needs, inputs included.
fn without_unused(case: &Case) -> Case {
    let mut live = SideTable::filled(&case.graph, || false);
    for &output in case.graph.outputs() {
        live[output] = true;
    }
    for (id, node) in case.graph.nodes().rev() {
        if live[id] {
            node.args.iter().for_each(|&arg| live[arg] = true);
        }
    }
    rebuilt(case, |_| None, |id| live[id])
}

fn rebuilt(case: &Case, replace: impl Fn(NodeId) -> Option<Array>, keep: impl Fn(NodeId) -> bool) -> Case {
    let mut out = Case { graph: Graph::new(), inputs: Vec::new() };
    let mut moved: SideTable<NodeId, NodeId> = SideTable::new();
    for (id, node) in case.graph.nodes() {
        if !keep(id) {
            moved.push(NodeId::new(u32::MAX as usize));
            continue;
        }
        if let Some(array) = replace(id) {
            let ty = TensorType { number: false, ..array.ty() };
            out.inputs.push(array);
            moved.push(out.graph.input(ty));
            continue;
        }
        if let NodeKind::Input(position) = node.kind {
            out.inputs.push(case.inputs[position as usize].clone());
        }
        let args: Vec<NodeId> = node.args.iter().map(|&arg| moved[arg]).collect();
        moved.push(out.graph.copy(node, &args));
    }
    out.graph.set_outputs(case.graph.outputs().iter().map(|&id| moved[id]).collect());
    out
}
