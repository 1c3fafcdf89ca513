//! Values that a recorded call saves for the backward pass.
//!
//! A saved value shares its elements with the tensor, so it remembers their version. If they were written to since, the
//! backward pass would use wrong numbers: it is an error. A call's own result is saved without its history, which would
//! be a reference cycle.

use crate::autograd::meta::gradient_edge;
use crate::autograd::node::{Edge, Node};
use crate::autograd::tape::Places;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::error::{Error, Result};
use crate::tensor::handle::Tensor;
use std::sync::Arc;

/// A saved operand or result.
pub(super) struct Saved {
    value: Tensor,
    edge: Option<Edge>,
    /// Set if it is a result of the call that saved it: the index of the result.
    own_result: Option<usize>,
    version: u64,
}

impl Saved {
    /// Saves an operand.
    pub(super) fn operand(tensor: &Tensor) -> Result<Saved> {
        Saved::new(tensor, gradient_edge(tensor)?, None)
    }

    /// Saves an operand whose gradient flows to `edge`.
    pub(super) fn operand_of(tensor: &Tensor, edge: Option<Edge>) -> Result<Saved> {
        Saved::new(tensor, edge, None)
    }

    /// Saves a result of the call itself, before its history is set.
    pub(super) fn result(tensor: &Tensor, output: usize) -> Result<Saved> {
        Saved::new(tensor, None, Some(output))
    }

    fn new(tensor: &Tensor, edge: Option<Edge>, own_result: Option<usize>) -> Result<Saved> {
        let wrapped = !tensor.key_set().has(DispatchKey::ADInplaceOrView);
        if wrapped && tensor.as_number().is_none() {
            let what = "an inference tensor cannot be saved for backward; clone it outside inference mode first";
            return Err(Error::argument("autograd", what));
        }
        Ok(Saved { value: tensor.snapshot(), edge, own_result, version: tensor.version() })
    }

    /// The saved tensor, without history.
    pub(super) fn value(&self) -> &Tensor {
        &self.value
    }

    /// The same with another value and edge.
    pub(super) fn copy(&self, places: &Places<'_>) -> Result<Saved> {
        let value = places.value(&self.value)?;
        let edge = self.edge.as_ref().and_then(|edge| places.edge(edge));
        Ok(Saved { version: value.version(), value, edge, own_result: self.own_result })
    }

    /// Whether it is a plain number, which is never freed.
    pub(super) fn is_number(&self) -> bool {
        self.value.as_number().is_some()
    }

    /// Checks that the value was not written to since.
    pub(super) fn check(&self, node: &Arc<Node>) -> Result<()> {
        let found = self.value.version();
        if found == self.version {
            return Ok(());
        }
        let ty = self.value.ty();
        let made_by = match (&self.edge, self.own_result) {
            (_, Some(output)) => format!("output {output} of {}", node.function.name()),
            (Some(edge), None) => format!("output {} of {}", edge.output, edge.node.function.name()),
            (None, None) => "a tensor without history".into(),
        };
        let what = format!(
            "one of the variables needed for gradient computation has been modified by an inplace operation: {ty}, \
             which is {made_by}, is at version {found}; expected version {} instead; clone it before writing",
            self.version
        );
        Err(Error::argument(node.function.name(), what))
    }

    /// The saved value. If the backward pass is recorded, it has its history.
    pub(super) fn unpack(&self, node: &Arc<Node>) -> Result<Tensor> {
        if is_grad_enabled() {
            return self.unpack_with_history(node);
        }
        self.check(node)?;
        Ok(self.value.snapshot())
    }

    /// The saved value with its history, whether the backward pass is recorded or not: what a user's own derivative
    /// gets.
    pub(super) fn unpack_with_history(&self, node: &Arc<Node>) -> Result<Tensor> {
        self.check(node)?;
        let value = self.value.snapshot();
        let edge = match self.own_result {
            Some(output) => Some(Edge::new(node.clone(), output)),
            None => self.edge.clone(),
        };
        if let Some(edge) = edge {
            value.set_edge(edge);
        }
        Ok(value)
    }
}
