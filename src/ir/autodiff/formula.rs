//! What the derivative column may say, and how a call's gradients follow from it.

use super::expr::{Builder, Expr};
use super::takes_gradient;
use crate::ir::attr::Attr;
use crate::ir::graph::{Node, NodeId};
use crate::ir::op::Meaning;
use crate::ir::ops::Op;
use crate::ir::shape::numel;
use smallvec::SmallVec;

/// The derivative of an op.
#[derive(Clone, Copy)]
pub enum Derivative {
    /// No gradient flows: the result is no function of real numbers.
    None,
    /// The gradient is zero everywhere.
    Zero,
    /// A formula over operands, result and gradient in the dtype that the op computes in; masks stay bools.
    Pointwise(Formula),
    /// A formula over operands, result and gradient as they are.
    Formula(Formula),
    /// That of the ops it decomposes into.
    Parts,
}

/// Builds the gradients of a call. They may have any sizes that the operand's broadcast to, and any dtype: sums over
/// what was broadcast and the conversion to the operand's dtype come behind.
pub type Formula = for<'g, 'a> fn(&Backward<'g, 'a>) -> Gradients<'g>;

/// One gradient per operand; `None`, or an end too early, where none flows.
pub type Gradients<'g> = SmallVec<[Option<Expr<'g>>; 4]>;

/// What a formula starts from.
pub struct Backward<'g, 'a> {
    /// The operands.
    pub args: SmallVec<[Expr<'g>; 4]>,
    /// The other arguments of the call.
    pub attrs: &'a [Attr],
    /// The result.
    pub result: Expr<'g>,
    /// The gradient of the result, which has its sizes.
    pub grad: Expr<'g>,
    /// Which operands need a gradient. Others may be given one; it is dropped.
    pub needs: &'a [bool],
}

impl<'g> Backward<'g, '_> {
    /// The graph that grows.
    pub fn builder(&self) -> &'g Builder {
        self.grad.builder()
    }

    /// The same with every operand but a mask in the dtype that `op` computes in.
    fn computed(&self, op: Op) -> Backward<'g, '_> {
        let dtype = self.grad.dtype().widened();
        let mask = match op.row().meaning {
            Meaning::Body(rule, _) => rule.mask(),
            Meaning::Decompose(_)
            | Meaning::Fold(_)
            | Meaning::View(_)
            | Meaning::Window(_)
            | Meaning::Product
            | Meaning::Gather(_)
            | Meaning::Concat
            | Meaning::Overlay
            | Meaning::Fill
            | Meaning::Range
            | Meaning::Routine(_) => None,
        };
        let convert = |(index, arg): (usize, &Expr<'g>)| if mask == Some(index) { *arg } else { arg.to(dtype) };
        Backward {
            args: self.args.iter().enumerate().map(convert).collect(),
            attrs: self.attrs,
            result: self.result.to(dtype),
            grad: self.grad.to(dtype),
            needs: self.needs,
        }
    }
}

/// The gradients of a call of `op`, each with the dtype and sizes of its operand.
pub(super) fn gradients<'g>(op: Op, call: &Backward<'g, '_>) -> Gradients<'g> {
    let raw = match op.row().derivative {
        Derivative::None => Gradients::new(),
        Derivative::Zero => call.args.iter().map(|arg| Some(arg.zeros())).collect(),
        Derivative::Pointwise(formula) => formula(&call.computed(op)),
        Derivative::Formula(formula) => formula(call),
        Derivative::Parts => through_parts(op, call),
    };
    let fitted = raw.into_iter().zip(&call.args).zip(call.needs).map(|((gradient, arg), &need)| {
        let gradient = gradient.filter(|_| need)?;
        let sizes = arg.sizes();
        if numel(&sizes) == 0 {
            // Nothing flows to no elements; a mean of none would divide by 0 on the way.
            return Some(arg.zeros());
        }
        Some(gradient.sum_to(&sizes).expand(&sizes).to(arg.dtype()))
    });
    fitted.collect()
}

/// Reverse mode over the decomposition of a call.
///
/// Nodes are visited from the last to the first. Where a value has several uses, their gradients are added in that
/// order: `((last use + the one before) + ...)`, and within one use by operand. The decomposition's last node is the
/// result, which is known; the others are computed again.
fn through_parts<'g>(op: Op, call: &Backward<'g, '_>) -> Gradients<'g> {
    let Meaning::Decompose(rule) = op.row().meaning else { unreachable!("{} has no parts", op.name()) };
    let builder = call.builder();
    let first = builder.len();
    let operands: SmallVec<[NodeId; 4]> = call.args.iter().map(|arg| arg.node()).collect();
    let root = builder.make(|graph| rule(graph, &operands, call.attrs)).node();
    let parts: Vec<Node> = builder.read(|graph| graph.nodes().skip(first).map(|(_, node)| node.clone()).collect());
    let end = first + parts.len();
    // Facts about every node so far: whether a needed operand reaches it, and its gradient.
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
        let node_id = NodeId(id as u32);
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
    // An operand that is there twice gets all of its gradient at its first place.
    operands.iter().map(|operand| adjoint[operand.index()].take()).collect()
}
