//! The role of a node in a plan: loop, view, product, routine, …
//!
//! It follows from the node's op alone.

use crate::ir::{Graph, Meaning, NodeId, NodeKind, Op};

/// What a node is to the planner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// An input of the graph.
    Input,
    /// A number, fill or range: computed where it is used.
    Inline,
    /// A loop over elements.
    Loop,
    /// The same elements under another layout.
    View,
    /// A matrix product.
    Product,
    /// A concatenation or an overlay.
    Parts,
    /// A procedure on whole arrays.
    Routine,
}

/// The role of a node of a decomposed graph.
pub fn role(graph: &Graph, node: NodeId) -> Role {
    match graph[node].kind {
        NodeKind::Input(_) => Role::Input,
        NodeKind::Number(_) | NodeKind::Extent(_) => Role::Inline,
        NodeKind::Op(op) => op_role(op),
    }
}

/// The role of a call of `op`.
pub(super) fn op_role(op: Op) -> Role {
    match op.row().meaning {
        Meaning::Fill | Meaning::Range => Role::Inline,
        Meaning::Body(..) | Meaning::Fold(_) | Meaning::Gather(_) => Role::Loop,
        Meaning::View(_) | Meaning::Window(_) => Role::View,
        Meaning::Product => Role::Product,
        Meaning::Concat | Meaning::Overlay => Role::Parts,
        Meaning::Routine(_) => Role::Routine,
        Meaning::Decompose(_) => unreachable!("{} is decomposed before planning", op.name()),
    }
}

/// The base of `node`, if it has the same elements in the same order. `node` itself if it is no view.
pub fn same_elements(graph: &Graph, mut node: NodeId) -> Option<NodeId> {
    while role(graph, node) == Role::View {
        let source = graph[node].args[0];
        let (ty, from) = (&graph[node].ty, &graph[source].ty);
        let is_window = graph[node].op().is_some_and(|op| matches!(op.row().meaning, Meaning::Window(_)));
        if is_window || !ty.is_contiguous() || !from.is_contiguous() || ty.numel() != from.numel() {
            return None;
        }
        node = source;
    }
    Some(node)
}
