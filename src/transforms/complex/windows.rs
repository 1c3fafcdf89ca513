//! Convolutions and running products of complex numbers.

use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::library::Library;
use crate::dispatch::operator::Operator;
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ops::arguments::converted;
use crate::ops::sorting::doubled;
use crate::tensor::handle::Tensor;
use crate::transforms::complex::arithmetic::product;
use crate::transforms::complex::operands::common;
use smallvec::smallvec;

pub(super) fn register(library: &mut Library) -> Result<()> {
    library
        .impl_("convolution", Kernel::boxed(convolution).named("complex"))?
        .impl_("cumprod", |x: &Tensor, dim: i64, dtype: Option<DType>| {
            doubled("cumprod", &converted(x, dtype)?, dim, |x, y| x.mul(y))
        })?;
    Ok(())
}

/// A convolution is a product of the input and the weight: of parts, it has those of parts.
fn convolution(operator: &Operator, _: KeySet, stack: &mut Stack) -> Result<()> {
    let tensor = |at: usize| stack.get(at).and_then(|value| value.tensors().next().cloned());
    let (Some(x), Some(weight), bias) = (tensor(0), tensor(1), tensor(2)) else {
        return Err(Error::argument("convolution", "an input and a weight are needed"));
    };
    let arguments: Vec<Value> = stack.drain(3..).collect();
    let real = |x: &Tensor, weight: &Tensor| {
        let tensors = [Value::Tensor(x.clone()), Value::Tensor(weight.clone()), Value::None];
        let mut stack: Stack = tensors.into_iter().chain(arguments.iter().cloned()).collect();
        operator.call_boxed(&mut stack)?;
        let y = stack.iter().flat_map(Value::tensors).next().cloned();
        y.ok_or_else(|| Error::argument("convolution", "a kernel returned no tensor"))
    };
    let y = match x.is_complex() || weight.is_complex() {
        true => product(&x, &weight, real)?,
        false => real(&x, &weight)?,
    };
    let y = match bias {
        Some(bias) => {
            let dtype = common(&[&y, &bias]);
            let mut sizes = vec![1i64; y.dim() - 1];
            sizes[0] = -1;
            y.to_dtype(dtype)?.add(&bias.reshape(&sizes[..])?)?
        }
        None => y,
    };
    *stack = smallvec![Value::Tensor(y)];
    Ok(())
}
