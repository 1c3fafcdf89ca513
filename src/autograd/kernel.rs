//! The Autograd keys: calls whose operands require gradients are recorded on a tape.
//!
//! The kernel passes the call on to the keys below, and gives the result a node of the tape with edges to the operands.
//! Calls that need no gradients skip this kernel after one check of the operands.

use crate::autograd::meta::gradient_edge;
use crate::autograd::node::Edge;
use crate::autograd::row::record;
use crate::autograd::views::{check_write, rebase};
use crate::dispatch::builtins::copy_operator;
use crate::dispatch::key::alias::AUTOGRAD_KEYS;
use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::dispatch::key::local::below_autograd;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::rows::redispatch;
use crate::error::Result;
use crate::ir::{Attr, DType, Op};
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;

/// The Autograd kernel of every row of the op table.
pub(crate) fn kernel(op: Op, keys: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let below = keys - AUTOGRAD_KEYS;
    if !tensors.iter().any(|tensor| is_wanted(tensor)) {
        return redispatch(op, below, tensors, attrs);
    }
    let result = {
        let _below = below_autograd();
        redispatch(op, below, tensors, attrs)?
    };
    record_call(op, tensors, attrs, &result)?;
    Ok(result)
}

/// Whether a call with this operand is recorded.
#[inline]
pub(super) fn is_wanted(tensor: &Tensor) -> bool {
    // Most tensors have no gradients, and that is read without a look at the thread.
    tensor.requires_grad() && is_grad_enabled()
}

/// Records a call that returned `result`, if an operand has a gradient edge.
pub(crate) fn record_call(op: Op, tensors: &[&Tensor], attrs: &[Attr], result: &Tensor) -> Result<()> {
    if !tensors.iter().any(|tensor| is_wanted(tensor))
        || op == Op::Detach
        || !op.is_differentiable()
        || !DType::is_float(result.dtype())
    {
        return Ok(());
    }
    let mut edges: SmallVec<[Option<Edge>; 2]> = SmallVec::new();
    for tensor in tensors {
        edges.push(gradient_edge(tensor)?);
    }
    record(op, attrs, tensors, edges, result)
}

/// The kernel of `copy_`, the only op that writes.
pub(crate) fn copy_kernel(keys: KeySet, target: &Tensor, source: &Tensor, async_: bool) -> Result<Tensor> {
    recorded_write(target, source, || {
        let _below = below_autograd();
        copy_operator()?.redispatch(keys - AUTOGRAD_KEYS, (target, source, async_))
    })
}

/// Writes `source` into `target` by `write`, and updates the history of the target.
pub(crate) fn recorded_write(
    target: &Tensor,
    source: &Tensor,
    write: impl FnOnce() -> Result<Tensor>,
) -> Result<Tensor> {
    let involved = is_grad_enabled() && (source.requires_grad() || target.requires_grad());
    check_write("copy_", target, source.requires_grad())?;
    let before = match (involved, target.view_of()) {
        (true, Some(view)) if view.is_differentiable => gradient_edge(&view.base)?,
        _ => None,
    };
    let result = write()?;
    if involved {
        rebase(target, source, before)?;
    }
    Ok(result)
}
