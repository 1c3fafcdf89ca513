//! The gradients of one call, from the derivative column of its row.

use super::derivative::{Backward, Derivative, Gradients};
use super::expr::Expr;
use crate::ir::graph::{Node, NodeId};
use crate::ir::op::Op;
use crate::ir::row::Meaning;
use crate::ir::shape::numel;
use crate::ir::types::TensorType;
use smallvec::SmallVec;

/// The gradients of a call of `op`, each with the dtype and sizes of its operand.
pub(super) fn gradients<'g>(op: Op, call: &Backward<'g, '_>) -> Gradients<'g> {
    let raw = match op.row().derivative {
        Derivative::None => Gradients::new(),
        Derivative::Zero => call.args.iter().map(|arg| Some(arg.zeros())).collect(),
        Derivative::Pointwise(formula) => formula(&computed(call, op)),
        Derivative::Formula(formula) => formula(call),
        Derivative::Parts => through_parts(op, call),
    };
    let fitted = raw.into_iter().zip(&call.args).zip(call.needs).map(|((gradient, arg), &need)| {
        let gradient = gradient.filter(|_| need)?;
        let sizes = arg.sizes();
        if numel(&sizes) == 0 {
            // An operand without elements has a gradient without elements. The formula of a mean would divide by 0.
            return Some(arg.zeros().arriving_with(call.grad));
        }
        let fitted = gradient.sum_to(&sizes).expand(&sizes).to(arg.dtype());
        Some(if gradient.is_full() { fitted.arriving_with(call.grad) } else { fitted })
    });
    fitted.collect()
}

/// The call with every operand but a mask converted to the dtype that `op` computes in.
fn computed<'g, 'a>(call: &'a Backward<'g, '_>, op: Op) -> Backward<'g, 'a> {
    let dtype = call.grad.dtype().widened();
    let mask = if let Meaning::Body(rule, _) = op.row().meaning { rule.mask() } else { None };
    let convert = |(index, arg): (usize, &Expr<'g>)| if mask == Some(index) { *arg } else { arg.to(dtype) };
    Backward {
        args: call.args.iter().enumerate().map(convert).collect(),
        attrs: call.attrs,
        result: call.result.to(dtype),
        grad: call.grad.to(dtype),
        needs: call.needs,
    }
}

/// Reverse mode over the decomposition of a call.
///
/// Nodes are visited from the last to the first. The gradients of several uses of a value are added in that order:
/// `((last use + the one before) + ...)`, and within one use by operand. The last node of the decomposition is the
/// result, which is given. The others are recomputed.
fn through_parts<'g>(op: Op, call: &Backward<'g, '_>) -> Gradients<'g> {
    let Meaning::Decompose(rule) = op.row().meaning else { unreachable!("{} has no parts", op.name()) };
    let builder = call.builder();
    let first = builder.len();
    let operands: SmallVec<[NodeId; 4]> = call.args.iter().map(|arg| arg.node()).collect();
    let root = builder.make(|graph| rule(graph, &operands, call.attrs)).node();
    let parts: Vec<Node> = builder.read(|graph| graph.nodes().skip(first).map(|(_, node)| node.clone()).collect());
    let end = first + parts.len();
    // For every node: whether an operand that needs a gradient reaches it, and its gradient.
    let mut active = vec![false; end];
    let mut adjoint: Vec<Option<Expr<'g>>> = vec![None; end];
    for (operand, &need) in operands.iter().zip(call.needs) {
        active[operand.index()] |= need;
    }
    for (node, id) in parts.iter().zip(first..) {
        active[id] = takes_gradient(&node.ty)
            && node.op().is_some_and(Op::is_differentiable)
            && node.args.iter().any(|arg| active[arg.index()]);
    }
    adjoint[root.index()] = Some(call.grad);
    for (node, id) in parts.iter().zip(first..end).rev() {
        let (Some(op), Some(grad), true) = (node.op(), adjoint[id], active[id]) else { continue };
        let node_id = NodeId::new(id);
        let needs: SmallVec<[bool; 4]> = node.args.iter().map(|arg| active[arg.index()]).collect();
        let part = Backward {
            args: node.args.iter().map(|&arg| builder.expr(arg)).collect(),
            attrs: &node.attrs,
            result: if node_id == root { call.result } else { builder.expr(node_id) },
            grad,
            needs: &needs,
        };
        for (arg, gradient) in node.args.iter().zip(gradients(op, &part)) {
            let Some(gradient) = gradient else { continue };
            let sum = &mut adjoint[arg.index()];
            *sum = Some(sum.map_or(gradient, |sum| sum + gradient));
        }
    }
    // An operand that occurs twice gets its whole gradient at the first position.
    operands.iter().map(|operand| adjoint[operand.index()].take()).collect()
}

/// Whether an operand of this type has a gradient: floats that are no plain numbers do.
pub(super) fn takes_gradient(ty: &TensorType) -> bool {
    ty.dtype.is_float() && !ty.number
}
