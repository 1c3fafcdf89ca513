//! The Meta key: shapes, dtypes and strides, no data.

use crate::device::DeviceKind;
use crate::dispatch::Tensor;
use crate::eager;
use crate::error::{Error, Result};
use crate::ir::{Attrs, Op, TensorType};
use smallvec::SmallVec;

/// The Meta kernel of every op of the table: its row's inference. Views share the storage here too.
pub fn kernel(op: Op, tensors: &[&Tensor], attrs: &Attrs) -> Result<Tensor> {
    let stray = tensors.iter().find(|tensor| tensor.device().kind != DeviceKind::Meta && tensor.as_number().is_none());
    if let Some(tensor) = stray {
        return Err(Error::Device {
            op: op.name().into(),
            what: format!("expected all tensors on meta, but found one on {}", tensor.device()),
            hint: "move the operands to one device".into(),
        });
    }
    if let (true, [tensor]) = (op.is_view(), tensors) {
        return eager::executable::view(op, attrs, tensor.array()).map(Tensor::from_array);
    }
    let types: SmallVec<[TensorType; 4]> = tensors.iter().map(|tensor| tensor.ty()).collect();
    let types: SmallVec<[&TensorType; 4]> = types.iter().collect();
    Tensor::meta(&op.infer(&types, attrs)?)
}
