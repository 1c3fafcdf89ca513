//! Work: the number of instructions per element of a node, from its scalar body.

use crate::ir::scalar::{Kind, Prim};
use crate::ir::{DType, Graph, Meaning, NodeId, Op, SideTable};
use std::collections::HashMap;
use std::ops::Index;

/// Instructions, scaled to elements of 4 bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// Prims.
    pub plain: f64,
    /// Functions, such as `exp`.
    pub functions: f64,
}

impl Work {
    /// The work of a gather, which checks its index.
    pub(super) const PICK: Work = Work { plain: 4.0, functions: 0.0 };

    pub(super) fn add(&mut self, other: Work, times: usize) {
        self.plain += other.plain * times as f64;
        self.functions += other.functions * times as f64;
    }

    /// The work of one element of a node.
    fn of_element(graph: &Graph, node: NodeId) -> Work {
        let call = &graph[node];
        let plain = |count: usize| Work { plain: count as f64, functions: 0.0 };
        let Some(op) = call.op() else { return Work::default() };
        let work = match op.row().meaning {
            Meaning::Body(..) => match op.body(&graph.arg_types(node), &call.attrs) {
                Ok(body) => {
                    let count = |is: fn(&Kind) -> bool| body.insts.iter().filter(|inst| is(&inst.kind)).count() as f64;
                    let powers = count(|kind| matches!(kind, Kind::Prim(Prim::IntPow)));
                    Work {
                        plain: count(|kind| matches!(kind, Kind::Prim(_))) - powers,
                        functions: count(|kind| matches!(kind, Kind::Func(_))) + INTEGER_POWER * powers,
                    }
                }
                Err(_) => plain(1),
            },
            Meaning::Fold(_) => plain(1),
            Meaning::Gather(_) => Work::PICK,
            Meaning::View(_)
            | Meaning::Window(_)
            | Meaning::Fill
            | Meaning::Range
            | Meaning::Product
            | Meaning::Concat
            | Meaning::Overlay
            | Meaning::Routine(_)
            | Meaning::Decompose(_) => plain(0),
        };
        let width = call.ty.dtype.compute().size() as f64 / 4.0;
        Work { plain: work.plain * width, functions: work.functions * width }
    }
}

/// The functions that take as long as a power of integers, which is a loop of products for each element
/// (`python/benches/torch_compile.py --small-functions --models "bytes of bits"`).
const INTEGER_POWER: f64 = 20.0;

/// The work of one element of each node of a graph.
#[derive(Debug)]
pub struct NodeWork {
    of_node: SideTable<NodeId, Work>,
}

impl NodeWork {
    /// The work of every node of `graph`.
    pub fn of(graph: &Graph) -> NodeWork {
        // An op costs about the same for all attributes, so its work is computed once per dtype.
        let mut of_op: HashMap<(Op, DType), Work> = HashMap::new();
        let mut of_node = SideTable::filled(graph, Work::default);
        for (id, node) in graph.nodes() {
            if let Some(op) = node.op() {
                of_node[id] = *of_op.entry((op, node.ty.dtype)).or_insert_with(|| Work::of_element(graph, id));
            }
        }
        NodeWork { of_node }
    }
}

impl Index<NodeId> for NodeWork {
    type Output = Work;

    fn index(&self, node: NodeId) -> &Work {
        &self.of_node[node]
    }
}
