//! Functions with derivatives of their own, and tensors made of values in Rust, which programs call.

use super::calls::item;
use opfuse::autograd::{Context, Function, apply};
use opfuse::{DType, Result, Tensor};

/// How many functions there are.
pub(crate) const KINDS: usize = 6;
/// The number of the function whose derivative is a constant.
const CONSTANT: usize = 3;

/// Whether the derivative of the function of that number does not depend on the gradient.
pub(crate) fn uses_no_gradient(kind: usize) -> bool {
    kind % KINDS == CONSTANT
}

/// Calls the function of that number on a tensor.
pub(crate) fn custom(kind: usize, input: &Tensor) -> Result<Vec<Tensor>> {
    match kind % KINDS {
        0 => apply(Limited, &[input]),
        1 => apply(Straight, &[input]),
        2 => apply(Pair, &[input]),
        CONSTANT => apply(Constant, &[input]),
        4 => apply(Reads, &[input]),
        _ => apply(Same, &[input]),
    }
}

/// A tensor made of values in Rust: numbers from a start on.
pub(crate) fn made(dtype: DType, sizes: &[usize], start: i64) -> Result<Tensor> {
    let count = sizes.iter().product::<usize>() as i64;
    let whole: Vec<i64> = (start..start + count).collect();
    let halves: Vec<f64> = whole.iter().map(|&number| number as f64 * 0.5).collect();
    match dtype {
        DType::F64 => Tensor::from_vec(halves, sizes),
        DType::I64 => Tensor::from_slice(&whole, sizes),
        DType::Bool => Tensor::from_vec(whole.iter().map(|&number| number % 2 == 0).collect(), sizes),
        _ => Tensor::from_vec(halves.iter().map(|&number| number as f32).collect(), sizes),
    }
}

/// The square, whose derivative is limited.
struct Limited;

impl Function for Limited {
    fn forward(&self, context: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        context.save(&inputs[0]);
        Ok(vec![inputs[0].square()?])
    }

    fn backward(&self, saved: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let slope = saved[0].mul(2.0)?.mul(&gradients[0])?;
        Ok(vec![Some(slope.clamp(Some(opfuse::Scalar::Float(-1.0)), Some(opfuse::Scalar::Float(1.0)))?)])
    }
}

/// Rounds, with the derivative of the identity.
struct Straight;

impl Function for Straight {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].round()?])
    }

    fn backward(&self, _: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradients[0].clone())])
    }
}

/// Two results: `e^x`, and `x` itself.
struct Pair;

impl Function for Pair {
    fn forward(&self, context: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        context.save_result(0);
        Ok(vec![inputs[0].exp()?, inputs[0].clone()])
    }

    fn backward(&self, saved: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradients[0].mul(&saved[0])?.add(gradients[1].mul(0.5)?)?)])
    }
}

/// Its derivative is a tensor that it makes of values, whatever the gradient is.
struct Constant;

impl Function for Constant {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let made = made(DType::F32, &[1], 3)?;
        Ok(vec![inputs[0].mul(&made)?.to_dtype(inputs[0].dtype())?])
    }

    fn backward(&self, _: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradients[0].zeros_like()?.add(&made(DType::F32, &[1], 5)?)?)])
    }
}

/// Reads a value on its way.
struct Reads;

impl Function for Reads {
    fn forward(&self, context: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let sum = item(&inputs[0].sum_all()?)?;
        context.save(&inputs[0]);
        Ok(vec![if sum > 0.0 { inputs[0].tanh()? } else { inputs[0].neg()? }])
    }

    fn backward(&self, saved: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradients[0].mul(saved[0].cos()?)?)])
    }
}

/// The same tensor, with twice the gradient.
struct Same;

impl Function for Same {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, _: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradients[0].mul(2.0)?)])
    }
}
