//! Work: how long the instructions per element of a node take, from its scalar body. Those of routines are counted as a
//! whole in [`super::routines`].

use super::weights;
use crate::ir::scalar::{Body, Kind, Prim, Ty};
use crate::ir::{Attr, Combine, DType, Graph, Meaning, NodeId, Op, SideTable};
use std::collections::HashMap;
use std::ops::Index;

/// Instructions, scaled to elements of 4 bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// Prims. Each counts as so many additions.
    pub plain: f64,
    /// Functions, such as `exp`. Each counts as so many hyperbolic tangents.
    pub functions: f64,
    /// Prims and functions, each counted once.
    pub operations: f64,
}

impl Work {
    /// The work of a gather, which checks its index.
    pub(super) const PICK: Work = Work { plain: 36.0, functions: 0.0, operations: 4.0 };

    /// What takes as long as so many additions, and is no arithmetic.
    pub(super) fn plain(additions: f64) -> Work {
        Work { plain: additions, ..Work::default() }
    }

    /// The work of an element that is read from memory, or written to it. If it `is_strided`, the next one is not
    /// beside it, so elements are gathered or transposed on their way.
    pub(super) fn moving(dtype: DType, is_strided: bool) -> Work {
        Work::plain(weights::conversion(dtype) + if is_strided { STRIDED * width(dtype) } else { 0.0 })
    }

    pub(super) fn add(&mut self, other: Work, times: usize) {
        self.plain += other.plain * times as f64;
        self.functions += other.functions * times as f64;
        self.operations += other.operations * times as f64;
    }

    /// The work of one element of a node.
    fn of_element(graph: &Graph, node: NodeId) -> Work {
        let call = &graph[node];
        let Some(op) = call.op() else { return Work::default() };
        match op.row().meaning {
            Meaning::Body(..) => match op.body(&graph.arg_types(node), &call.attrs) {
                Ok(body) => Work::of_body(&body),
                Err(_) => Work { operations: 1.0, ..Work::plain(1.0) },
            },
            Meaning::Fold(combine) => {
                let dtype = graph[call.args[0]].ty.dtype;
                Work { operations: 1.0, ..Work::plain(of_fold(combine, dtype) * width(dtype)) }
            }
            Meaning::Gather(_) => Work::PICK,
            Meaning::View(_)
            | Meaning::Window(_)
            | Meaning::Fill
            | Meaning::Range
            | Meaning::Product
            | Meaning::Concat
            | Meaning::Overlay
            | Meaning::Routine(_)
            | Meaning::Decompose(_) => Work::default(),
        }
    }

    /// The work of one run of a body.
    fn of_body(body: &Body) -> Work {
        let mut work = Work::default();
        for inst in &body.insts {
            // A comparison has a bool of the width of its operands.
            let ty = inst.args.first().map_or(inst.ty, |arg| body.insts[arg.index()].ty);
            let width = if matches!(ty, Ty::F64 | Ty::I64) || matches!(inst.ty, Ty::F64 | Ty::I64) { 2.0 } else { 1.0 };
            work.operations += if matches!(inst.kind, Kind::Prim(_) | Kind::Func(_)) { 1.0 } else { 0.0 };
            let by_literal = || inst.args.get(1).is_some_and(|by| matches!(body.insts[by.index()].kind, Kind::Lit(_)));
            match inst.kind {
                Kind::Prim(Prim::Quot | Prim::Rem) if !ty.is_float() && by_literal() => {
                    work.plain += weights::by_literal(ty) * width;
                }
                Kind::Prim(prim) => work.plain += weights::prim(prim, ty) * width,
                Kind::Func(func) => work.functions += weights::func(func, ty) * width,
                Kind::Arg(_) | Kind::Lit(_) => {}
            }
        }
        work
    }
}

/// How many elements of 4 bytes one element takes the place of in a vector.
fn width(dtype: DType) -> f64 {
    dtype.compute().size() as f64 / 4.0
}

/// The additions that one step of a fold counts as. A maximum of floats passes NaNs on, and an index is kept beside the
/// element.
fn of_fold(combine: Combine, dtype: DType) -> f64 {
    match combine {
        Combine::Sum | Combine::Prod | Combine::Any | Combine::All => 2.0,
        Combine::Max | Combine::Min => {
            if dtype.is_float() {
                4.0
            } else {
                2.0
            }
        }
        Combine::ArgMax | Combine::ArgMin => 10.0,
    }
}

/// The additions that an element of 4 bytes counts as if it is gathered or transposed.
const STRIDED: f64 = 10.0;

/// What the work of a node depends on: its op, the dtypes of its result and first operand, and its attributes.
type Key<'a> = (Op, DType, Option<DType>, &'a [Attr]);

/// The work of one element of each node of a graph.
#[derive(Debug)]
pub struct NodeWork {
    of_node: SideTable<NodeId, Work>,
}

impl NodeWork {
    /// The work of every node of `graph`.
    pub fn of(graph: &Graph) -> NodeWork {
        // The work of an op is computed once per dtype and attributes: a power may be a product.
        let mut of_op: HashMap<Key<'_>, Work> = HashMap::new();
        let mut of_node = SideTable::filled(graph, Work::default);
        for (id, node) in graph.nodes() {
            if let Some(op) = node.op() {
                let from = node.args.first().map(|&arg| graph[arg].ty.dtype);
                of_node[id] =
                    *of_op.entry((op, node.ty.dtype, from, &node.attrs)).or_insert_with(|| Work::of_element(graph, id));
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
