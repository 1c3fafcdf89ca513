//! Algebraic simplification that keeps every bit.
//!
//! A rule's right side is never worse than its left side, and its name is its equation. A rule may only drop a call
//! that returns its operand bit for bit, negative zeros, infinities and canonical NaNs included. So `x * 1 = x` is a
//! rule. `x + 0 = x` is none, because −0 + 0 is 0, and neither are reassociations. A call makes a NaN canonical, so
//! float rules require that the operand is a result of arithmetic, which is canonical already.
//!
//! Values that a window of memory reads are not simplified: a rule keeps elements, but not their layout.

use crate::ir::attrs::{Add, Along, Attributes, Dims};
use crate::ir::entity::SideTable;
use crate::ir::graph::{Graph, Node, NodeId, NodeKind};
use crate::ir::op::Op;
use crate::ir::row::Meaning;
use crate::ir::scalar::{Kind, Scalar};

/// A rewrite rule.
pub struct Rewrite {
    /// The equation.
    pub name: &'static str,
    /// The simpler node for `node` with operands `args`, if the rule applies.
    pub apply: fn(&Graph, &Node, &[NodeId]) -> Option<NodeId>,
}

/// Every rule, tried in this order.
pub static RULES: &[Rewrite] = &[
    Rewrite { name: "x * 1 = x", apply: |g, node, args| when(node, Op::Mul).and_then(|()| unit(g, node, args, 1.0)) },
    Rewrite {
        name: "x / 1 = x",
        apply: |g, node, args| when(node, Op::Div).and_then(|()| unit(g, node, args, 1.0)).filter(|&id| id == args[0]),
    },
    Rewrite { name: "x - 0 = x", apply: |g, node, args| when(node, Op::Sub).and_then(|()| minus_zero(g, node, args)) },
    Rewrite {
        name: "to(x, dtype of x) = x",
        apply: |g, node, args| when(node, Op::ToCopy).and_then(|()| same_type(g, node, args[0])),
    },
    Rewrite {
        name: "clone(x) = x",
        apply: |g, node, args| when(node, Op::Clone).and_then(|()| same_type(g, node, args[0])),
    },
    Rewrite {
        name: "cat(x, empty) = x",
        apply: |g, node, args| {
            when(node, Op::Cat)?;
            let mut some = args.iter().copied().filter(|&arg| g[arg].ty.numel() > 0);
            let first = some.next()?;
            same_type(g, node, first).filter(|_| some.next().is_none())
        },
    },
    Rewrite {
        name: "relu(relu(x)) = relu(x)",
        apply: |g, node, args| when(node, Op::Relu).and_then(|()| is_call(g, args[0], Op::Relu)),
    },
    Rewrite {
        name: "abs(abs(x)) = abs(x)",
        apply: |g, node, args| when(node, Op::Abs).and_then(|()| is_call(g, args[0], Op::Abs)),
    },
    Rewrite {
        name: "neg(neg(x)) = x",
        apply: |g, node, args| {
            when(node, Op::Neg)?;
            let inner = is_call(g, args[0], Op::Neg).map(|id| g[id].args[0])?;
            same_type(g, node, inner).filter(|&id| is_canonical(g, id))
        },
    },
    Rewrite {
        name: "view(x, shape of x) = x",
        apply: |g, node, args| match node.op()?.row().meaning {
            Meaning::View(_) if node.op() != Some(Op::Transpose) && node.op() != Some(Op::Permute) => {
                same_type(g, node, args[0]).filter(|_| node.op() != Some(Op::Slice) || covers(g, node, args[0]))
            }
            Meaning::View(_)
            | Meaning::Window(_)
            | Meaning::Body(..)
            | Meaning::Decompose(_)
            | Meaning::Fold(_)
            | Meaning::Product
            | Meaning::Gather(_)
            | Meaning::Concat
            | Meaning::Overlay
            | Meaning::Fill
            | Meaning::Range
            | Meaning::Routine(_) => None,
        },
    },
    Rewrite {
        name: "permute(x, own order) = x",
        apply: |g, node, args| {
            when(node, Op::Permute)?;
            let rank = node.ty.rank() as i64;
            let in_order = |(at, dim): (i64, &i64)| dim.rem_euclid(rank) == at;
            let dims = Dims::read(&node.attrs).dims;
            same_type(g, node, args[0]).filter(|_| (0..).zip(dims.iter()).all(in_order))
        },
    },
];

/// Rewrites `graph` with every rule of [`RULES`].
pub fn simplify(graph: &Graph) -> Graph {
    let mut out = Graph::new();
    let mut moved: SideTable<NodeId, NodeId> = SideTable::new();
    let is_windowed = graph.windowed();
    for (id, node) in graph.nodes() {
        out.set_origin(graph.origin(id));
        let args: Vec<NodeId> = node.args.iter().map(|&arg| moved[arg]).collect();
        let simpler =
            if is_windowed[id] { None } else { RULES.iter().find_map(|rule| (rule.apply)(&out, node, &args)) };
        moved.push(simpler.unwrap_or_else(|| out.copy(node, &args)));
    }
    out.set_outputs(graph.outputs().iter().map(|&id| moved[id]).collect());
    out
}

fn when(node: &Node, op: Op) -> Option<()> {
    (node.op() == Some(op)).then_some(())
}

fn is_call(graph: &Graph, id: NodeId, op: Op) -> Option<NodeId> {
    (graph[id].op() == Some(op)).then_some(id)
}

/// `id` if it can replace `node`: its type is the same, strides included.
fn same_type(graph: &Graph, node: &Node, id: NodeId) -> Option<NodeId> {
    (graph[id].ty == node.ty).then_some(id)
}

fn is_number(graph: &Graph, id: NodeId, value: f64) -> bool {
    matches!(graph[id].kind, NodeKind::Number(number) if number.as_f64().to_bits() == value.to_bits())
}

/// Whether every NaN in it is canonical. Integers have no NaN, and a body that ends in a rounding makes NaNs canonical.
fn is_canonical(graph: &Graph, id: NodeId) -> bool {
    let node = &graph[id];
    if !node.ty.dtype.is_float() {
        return true;
    }
    let Some(op) = node.op() else { return false };
    op.body(&graph.arg_types(id), &node.attrs)
        .is_ok_and(|body| matches!(body.insts[body.results[0].index()].kind, Kind::Prim(prim) if Some(prim) == node.ty.dtype.rounding()))
}

/// The other operand of a commutative call with the number `value`.
fn unit(graph: &Graph, node: &Node, args: &[NodeId], value: f64) -> Option<NodeId> {
    let (x, _) = [(args[0], args[1]), (args[1], args[0])].into_iter().find(|(_, one)| is_number(graph, *one, value))?;
    same_type(graph, node, x).filter(|&id| is_canonical(graph, id))
}

fn minus_zero(graph: &Graph, node: &Node, args: &[NodeId]) -> Option<NodeId> {
    let zero = is_number(graph, args[1], 0.0) && Add::read(&node.attrs).alpha == Scalar::Int(1);
    same_type(graph, node, args[0]).filter(|&id| zero && is_canonical(graph, id))
}

/// Whether a slice of equal type starts where its input starts.
fn covers(graph: &Graph, node: &Node, x: NodeId) -> bool {
    let dim = Along::read(&node.attrs).dim;
    let rank = graph[x].ty.rank() as i64;
    let size = graph[x].ty.sizes[(if dim < 0 { dim + rank } else { dim }) as usize];
    size > 0
}
