//! The Meta key: shapes, dtypes and strides, no data.

use crate::dispatch::Tensor;
use crate::dispatch::register::unpack;
use crate::dispatch::value::{Stack, Value};
use crate::error::Result;
use crate::ir::{Op, TensorType};
use smallvec::SmallVec;

/// The Meta kernel of every op of the table: its row's inference.
pub fn kernel(op: Op, stack: &mut Stack) -> Result<()> {
    let (tensors, attrs) = unpack(op, stack)?;
    let types: SmallVec<[TensorType; 4]> = tensors.iter().map(Tensor::ty).collect();
    let types: SmallVec<[&TensorType; 4]> = types.iter().collect();
    let result = op.infer(&types, &attrs)?;
    stack.clear();
    stack.push(Value::Tensor(Tensor::meta(&result)?));
    Ok(())
}
