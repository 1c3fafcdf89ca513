//! Operators without a derivative: the fallback of the Autograd keys.
//!
//! An operator from outside that has no kernel for an Autograd key runs as it is. If one of its operands requires
//! gradients, its results get a node whose backward is an error: the history does not end silently.

use crate::autograd::kernel::is_wanted;
use crate::autograd::meta::gradient_edge;
use crate::autograd::node::{Backward, BackwardCall, Edge, Node};
use crate::dispatch::key::alias::AUTOGRAD_KEYS;
use crate::dispatch::key::local::below_autograd;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;
use std::sync::Arc;

/// The kernel of all operators that have none for their Autograd key.
///
/// # Errors
/// What the call below returns.
pub(super) fn fallback(operator: &Operator, keys: KeySet, stack: &mut Stack) -> Result<()> {
    let below = keys - AUTOGRAD_KEYS;
    let operands: SmallVec<[Tensor; 4]> = stack.iter().flat_map(Value::tensors).cloned().collect();
    if !operands.iter().any(is_wanted) {
        return operator.redispatch_boxed(below, stack);
    }
    {
        let _below = below_autograd();
        operator.redispatch_boxed(below, stack)?;
    }
    record(operator, &operands, stack)
}

/// Gives the results of a call a node whose backward is an error, if an operand requires gradients.
///
/// # Errors
/// If the history of an operand cannot be recomputed.
pub(crate) fn record(operator: &Operator, operands: &[Tensor], results: &Stack) -> Result<()> {
    // What is handed on, or lies in an operand, keeps the history it has.
    let is_new = |result: &&Tensor| !operands.iter().any(|operand| operand.has_storage_of(result));
    let results: SmallVec<[&Tensor; 2]> =
        results.iter().flat_map(Value::tensors).filter(|result| result.dtype().is_float()).filter(is_new).collect();
    if results.is_empty() || !operands.iter().any(is_wanted) {
        return Ok(());
    }
    let next = operands.iter().map(gradient_edge).collect::<Result<SmallVec<[Option<Edge>; 2]>>>()?;
    let function = Box::new(WithoutDerivative(operator.name().to_string()));
    let node = Node::new(function, next, &results);
    for (output, result) in results.iter().enumerate() {
        result.set_edge(Edge::new(node.clone(), output));
    }
    Ok(())
}

/// A recorded call of an operator of this name.
struct WithoutDerivative(String);

impl Backward for WithoutDerivative {
    fn name(&self) -> String {
        format!("{} (without derivative)", self.0)
    }

    fn check_backward(&self, _node: &Arc<Node>) -> Result<()> {
        Err(self.error())
    }

    fn apply(&self, _gradients: Vec<Option<Tensor>>, _call: &BackwardCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Err(self.error())
    }
}

impl WithoutDerivative {
    fn error(&self) -> Error {
        let what = "it has no derivative, and a gradient of its result is wanted; register a kernel for \
                    DispatchKey::Autograd, make it a composite of operators that have one, or detach its operands";
        Error::NotImplemented { op: self.0.clone(), what: what.into() }
    }
}
