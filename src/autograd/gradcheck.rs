//! A numerical check of gradients.

use crate::autograd::{GradOptions, grad};
use crate::dispatch::key::grad_mode::{enable_grad, no_grad};
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::profile::stands_for;
use crate::tensor::handle::Tensor;

/// Step of the differences: about the cube root of the f64 rounding unit, where truncation and rounding errors are
/// equal.
const STEP: f64 = 6e-6;

/// Compares the gradients of a function of f64 inputs with central differences, element by element. Like PyTorch's
/// `torch.autograd.gradcheck`.
///
/// # Errors
/// If an input is not f64, if the function fails, or if a gradient differs from the central difference by more than
/// `atol + rtol * |difference|`. The message names the input, the element and both numbers.
#[track_caller]
pub fn gradcheck(
    function: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[&Tensor],
    atol: f64,
    rtol: f64,
) -> Result<()> {
    let _place = stands_for();
    let _recorded = enable_grad();
    if let Some(input) = inputs.iter().find(|input| input.dtype() != DType::F64) {
        return Err(Error::dtype("gradcheck", input.dtype(), "f64", "differences need its precision"));
    }
    let leaves = inputs.iter().map(|input| leaf(&input.to_vec::<f64>()?, input.sizes())).collect::<Result<Vec<_>>>()?;
    let output = function(&leaves)?;
    // A fixed cotangent without symmetry, so that errors do not cancel.
    let weights: Vec<f64> = (0..output.numel()).map(|index| 0.5 + ((index * 7) % 11) as f64 * 0.17).collect();
    let cotangent = Tensor::from_slice(&weights, output.sizes())?;
    let wanted: Vec<&Tensor> = leaves.iter().collect();
    let options = GradOptions { allow_unused: true, ..GradOptions::default() };
    let gradients = grad(&[&output], &wanted, &[Some(&cotangent)], options)?;
    let value = |leaves: &[Tensor]| -> Result<f64> {
        let _quiet = no_grad();
        let output = function(leaves)?.to_vec::<f64>()?;
        Ok(output.iter().zip(&weights).map(|(value, weight)| value * weight).sum())
    };
    for (index, (leaf_tensor, gradient)) in leaves.iter().zip(&gradients).enumerate() {
        let point = leaf_tensor.to_vec::<f64>()?;
        let found = gradient.as_ref().map_or_else(|| Ok(vec![0.0; point.len()]), Tensor::to_vec::<f64>)?;
        for element in 0..point.len() {
            let moved = |step: f64| {
                let mut point = point.clone();
                point[element] += step;
                let mut moved = leaves.clone();
                moved[index] = Tensor::from_slice(&point, leaf_tensor.sizes())?;
                value(&moved)
            };
            let difference = (moved(STEP)? - moved(-STEP)?) / (2.0 * STEP);
            let distance = (difference - found[element]).abs();
            if distance.is_nan() || distance > atol + rtol * difference.abs() {
                let what = format!(
                    "the gradient of input {index} at element {element} is {}, but central differences give \
                     {difference}",
                    found[element]
                );
                return Err(Error::argument("gradcheck", what));
            }
        }
    }
    Ok(())
}

fn leaf(values: &[f64], sizes: &[usize]) -> Result<Tensor> {
    let leaf = Tensor::from_slice(values, sizes)?;
    leaf.set_requires_grad(true)?;
    Ok(leaf)
}
