//! Tensors on a device: copies to it and back, pointwise ops, reductions, and what stays on the CPU.

use crate::fakes;
use opfuse::{Device, Result, Tensor};

#[test]
fn a_tensor_moves_to_the_device_and_back() {
    fakes::with(&[], || there_and_back().expect("nothing fails"));
}

fn there_and_back() -> Result<()> {
    let x = Tensor::from_slice(&[1.0f32, -2.0, 3.0, 0.5, -0.25, 4.0], &[2, 3])?;
    let there = x.to_device(Device::cuda(0))?;
    assert_eq!((there.device(), there.sizes()), (Device::cuda(0), &[2, 3][..]));
    assert_eq!(there.to_vec::<f32>()?, x.to_vec::<f32>()?);
    let sum = there.add(&there)?;
    assert_eq!(sum.to_vec::<f32>()?, x.add(&x)?.to_vec::<f32>()?);
    assert_eq!(there.t()?.exp()?.to_vec::<f32>()?, x.t()?.exp()?.to_vec::<f32>()?);
    assert_eq!(there.mul(2.5)?.to_vec::<f32>()?, x.mul(2.5)?.to_vec::<f32>()?);
    assert_eq!(there.sum([-1], true)?.to_vec::<f32>()?, x.sum([-1], true)?.to_vec::<f32>()?);
    assert_eq!(there.softmax(-1)?.to_vec::<f32>()?, x.softmax(-1)?.to_vec::<f32>()?);
    assert_eq!(there.matmul(&there.t()?)?.to_vec::<f32>()?, x.matmul(&x.t()?)?.to_vec::<f32>()?);
    Ok(())
}
