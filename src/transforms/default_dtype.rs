//! The `PreDispatch` key: makes calls explicit that depend on the default dtype.
//!
//! The key is included only while a guard of [`set_default_dtype`](crate::set_default_dtype) lives. User modes see the
//! call as it was made; every other key, and so every trace and every cache, sees the explicit one.

use crate::dispatch::key::default_dtype::default_dtype;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::rows::{redispatch, unpack};
use crate::dispatch::value::{Stack, Value};
use crate::error::Result;
use crate::ir::default_float::explicit;
use crate::ir::{Op, TensorType};
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;

/// The kernel of the key, for all operators.
///
/// # Errors
/// An error of the call, or of a conversion.
pub(super) fn fallback(operator: &Operator, keys: KeySet, stack: &mut Stack) -> Result<()> {
    let below = keys - KeySet::of(DispatchKey::PreDispatch);
    if let Some(op) = operator.row()
        && let Some(result) = made_explicit(op, below, stack)?
    {
        stack.clear();
        stack.push(Value::Tensor(result));
        return Ok(());
    }
    operator.redispatch_boxed(below, stack)
}

/// The result of a call that depends on the default dtype. `None` if it does not.
fn made_explicit(op: Op, below: KeySet, stack: &Stack) -> Result<Option<Tensor>> {
    let default = default_dtype();
    let (mut tensors, attrs) = unpack(op, stack)?;
    let types: SmallVec<[TensorType; 4]> = tensors.iter().map(Tensor::ty).collect();
    let types: SmallVec<[&TensorType; 4]> = types.iter().collect();
    let Some(call) = explicit(op, &types, &attrs, default) else { return Ok(None) };
    for (tensor, _) in tensors.iter_mut().zip(&call.converted).filter(|(_, is_converted)| **is_converted) {
        *tensor = match tensor.as_number() {
            Some(number) => Tensor::full(&[], number, default)?,
            None => tensor.to_dtype(default)?,
        };
    }
    let tensors: SmallVec<[&Tensor; 4]> = tensors.iter().collect();
    redispatch(op, below, &tensors, &call.attrs).map(Some)
}
