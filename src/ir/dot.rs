//! Graphs as Graphviz text, through petgraph.

use super::graph::{Graph, NodeId};
use super::text::NodeText;
use petgraph::dot::{Config, Dot};
use petgraph::graph::DiGraph;

/// The graph in petgraph's form. Node weights are labels, and edge weights are operand positions.
pub fn to_petgraph(graph: &Graph, mut label: impl FnMut(NodeId) -> String) -> DiGraph<String, usize> {
    let mut out = DiGraph::new();
    let indices: Vec<_> = graph.nodes().map(|(id, _)| out.add_node(label(id))).collect();
    for (id, node) in graph.nodes() {
        for (position, arg) in node.args.iter().enumerate() {
            out.add_edge(indices[arg.index()], indices[id.index()], position);
        }
    }
    out
}

/// Graphviz text of the graph, with one box per node that has its op and type.
pub fn to_dot(graph: &Graph) -> String {
    let label = |id: NodeId| format!("{id} = {}\n{}", NodeText(&graph[id]), graph[id].ty);
    format!("{}", Dot::with_config(&to_petgraph(graph, label), &[Config::EdgeNoLabel])).replace("\\\\n", "\\n")
}
