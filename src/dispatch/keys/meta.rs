//! The Meta key: shapes, dtypes and strides, no data.

use crate::dispatch::Tensor;
use crate::error::Result;
use crate::ir::{Attrs, Op, TensorType};
use smallvec::SmallVec;

/// The Meta kernel of every op of the table: its row's inference.
pub fn kernel(op: Op, tensors: &[&Tensor], attrs: &Attrs) -> Result<Tensor> {
    let types: SmallVec<[TensorType; 4]> = tensors.iter().map(|tensor| tensor.ty()).collect();
    let types: SmallVec<[&TensorType; 4]> = types.iter().collect();
    Tensor::meta(&op.infer(&types, attrs)?)
}
