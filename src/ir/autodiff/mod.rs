//! Derivatives of ops, as graphs.
//!
//! The derivative column of the op table gives, for each row, the gradients of its operands as a function of the
//! operands, the result and the gradient of the result. [`vjp`] (vector-Jacobian product) makes that a graph for one
//! call. Autograd runs the graph fused, replays it op by op, or records it.
//!
//! Invariants of such a graph:
//!
//! - Each gradient has the dtype and the sizes of its operand, and is row-major. Only that of a column-major factor of
//!   a matrix product is column-major. Broadcast dims are summed.
//! - It consists of rows of the table only, so it can be differentiated again.
//! - Its inputs are the values that it uses, so nothing else has to be saved for it.
//! - 16-bit floats are computed in f32, and the gradient is rounded once.
//!
//! Deliberately absent: tensors, a tape, accumulation over calls. They are in `src/autograd`.

pub mod activations;
mod derivative;
pub mod expr;
pub mod factorizations;
pub mod fourier;
mod gradients;
pub mod matrices;
mod matrix;
pub mod pointwise;
pub mod products;
pub mod reductions;
pub mod scans;
pub mod scatters;
pub mod strided;
pub mod views;

pub use derivative::{Backward, Derivative, Formula, Gradients};
pub use expr::{Builder, Expr, Term};
pub use strided::counted_from;

use self::gradients::takes_gradient;
use super::attr::Attr;
use super::graph::Graph;
use super::op::Op;
use super::passes::{drop_unused, eliminate_common};
use super::types::TensorType;
use crate::error::Result;
use smallvec::SmallVec;

/// The gradients of one call as a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vjp {
    /// The graph.
    pub graph: Graph,
    /// What its inputs are, in order.
    pub inputs: Vec<VjpInput>,
    /// For every operand, the output of the graph that is its gradient, or `None` if no gradient flows to it. Operands
    /// may share an output, and an output may be an input.
    pub outputs: SmallVec<[Option<usize>; 4]>,
}

/// A value that a gradient is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VjpInput {
    /// An operand of the call, by its position.
    Arg(usize),
    /// The call's result.
    Result,
    /// The gradient of the result. It has the dtype and sizes of the result, and is row-major.
    Grad,
}

impl Op {
    /// Whether gradients may flow through it, from a float result to float operands.
    pub fn is_differentiable(self) -> bool {
        match self.row().derivative {
            Derivative::None => false,
            Derivative::Zero | Derivative::Pointwise(_) | Derivative::Formula(_) | Derivative::Parts => true,
        }
    }
}

/// The gradients of one call with operands of types `args` and a result of type `result`, for the operands that `needs`
/// marks. Plain numbers and operands that are no floats have none.
///
/// # Errors
/// If a formula does not support the call, or inference rejects one of its ops.
pub fn vjp(op: Op, args: &[&TensorType], attrs: &[Attr], result: &TensorType, needs: &[bool]) -> Result<Vjp> {
    let builder = Builder::new();
    let operands: SmallVec<[Expr<'_>; 4]> = args.iter().map(|&ty| builder.input(ty.clone())).collect();
    let value = builder.input(result.clone());
    let grad = builder.input(TensorType::contiguous(result.dtype, &result.sizes));
    let needs: SmallVec<[bool; 4]> = needs.iter().zip(args).map(|(&need, ty)| need && takes_gradient(ty)).collect();
    let gradients = if result.dtype.is_float() {
        gradients::gradients(op, &Backward { args: operands, attrs, result: value, grad, needs: &needs })
    } else {
        Gradients::new()
    };
    let mut outputs = Vec::new();
    let mut places: SmallVec<[Option<usize>; 4]> = SmallVec::from_elem(None, args.len());
    for (place, gradient) in places.iter_mut().zip(gradients) {
        let Some(gradient) = gradient else { continue };
        let is_laid_out = matches!(op, Op::Mm | Op::Bmm | Op::Addmm | Op::Baddbmm) && gradient.is_column_major();
        let node = if is_laid_out { gradient.node() } else { gradient.contiguous().node() };
        *place = Some(outputs.iter().position(|&output| output == node).unwrap_or_else(|| {
            outputs.push(node);
            outputs.len() - 1
        }));
    }
    let mut graph = builder.finish()?;
    graph.set_outputs(outputs);
    let (graph, kept) = drop_unused(&eliminate_common(&graph));
    let name = |index: usize| match index.checked_sub(args.len()) {
        None => VjpInput::Arg(index),
        Some(0) => VjpInput::Result,
        Some(_) => VjpInput::Grad,
    };
    Ok(Vjp { graph, inputs: kept.into_iter().map(name).collect(), outputs: places })
}
