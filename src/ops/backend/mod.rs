//! The kernels of every row of the op table at the backend keys: run the op, or infer its result's type.

pub(crate) mod cpu;
pub(crate) mod cuda;
pub(crate) mod meta;

use crate::device::{Device, Shared};
use crate::dispatch::builtins::operator;
use crate::dispatch::key::grad_mode::is_inference_mode;
use crate::error::Result;
use crate::ir::Op;
use crate::runtime::Array;
use crate::tensor::handle::Tensor;

/// The result of a view op: `view`, as a tensor in the memory of its operand. A plain number is a value, and has no
/// memory that anything could share or write to: a view of it is a copy.
pub(crate) fn view_of(operand: &Tensor, view: Array) -> Result<Tensor> {
    if operand.as_number().is_none() {
        return Ok(operand.view_with(view));
    }
    let own = match view.storage.device() {
        Device::META => Array::new(Device::META, &view.ty())?,
        device => Array { storage: Shared::new(view.storage.copy_to(device)?), ..view },
    };
    let copy = operand.view_with(own);
    Ok(if is_inference_mode() { copy.as_inference() } else { copy })
}

/// The argument that a tensor of a call is, for messages: its name in the schema, or its position if tensors may be
/// absent or in lists.
pub(crate) fn argument(op: Op, tensors: &[&Tensor], tensor: &Tensor) -> String {
    let position = tensors.iter().position(|other| std::ptr::eq(*other, tensor)).unwrap_or_default();
    let schema = operator(op).ok().and_then(|operator| operator.schema());
    let takes: Vec<&str> = schema.map_or_else(Vec::new, |schema| {
        let holds = schema.arguments.iter().filter(|argument| argument.ty.holds_tensors());
        holds.map(|argument| argument.name.as_str()).collect()
    });
    match takes.get(position) {
        Some(name) if takes.len() == tensors.len() => format!("argument '{name}'"),
        Some(_) | None => format!("tensor {position}"),
    }
}
