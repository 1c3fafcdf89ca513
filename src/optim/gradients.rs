//! Around a step: clipping of gradients, averages of parameters, scaling of losses.

use super::optimizer::{Optimizer, in_range, moved};
use crate::autograd::no_grad;
use crate::error::Result;
use crate::formats::StateDict;
use crate::ir::DType;
use crate::nn::State;
use crate::ops::stack;
use crate::profile::stands_for;
use crate::tensor::Tensor;

fn gradients(parameters: &[Tensor]) -> Vec<Tensor> {
    parameters.iter().filter_map(Tensor::grad).collect()
}

/// Scales the gradients of all parameters so that their common 2-norm is at most `most`. Returns the norm before, as a
/// 0-dim tensor that nothing reads yet.
///
/// # Errors
/// If `most` is negative.
#[track_caller]
pub fn clip_grad_norm(parameters: &[Tensor], most: f64) -> Result<Tensor> {
    let _place = stands_for();
    in_range("clip_grad_norm", "most", most, f64::INFINITY)?;
    let _unrecorded = no_grad();
    let gradients = gradients(parameters);
    if gradients.is_empty() {
        return Tensor::zeros(&[], DType::F32);
    }
    let norms = gradients.iter().map(|gradient| gradient.norm(2.0, (), false)).collect::<Result<Vec<_>>>()?;
    let norm = stack(&norms.iter().collect::<Vec<_>>(), 0)?.norm(2.0, (), false)?;
    // The small number is PyTorch's.
    let factor = Tensor::number(most)?.div(norm.add(1e-6)?)?.clamp_max(1.0)?;
    gradients.iter().try_for_each(|gradient| gradient.mul_(&factor))?;
    Ok(norm)
}

/// Clamps the gradients of all parameters to `-most` to `most`.
///
/// # Errors
/// If `most` is negative.
#[track_caller]
pub fn clip_grad_value(parameters: &[Tensor], most: f64) -> Result<()> {
    let _place = stands_for();
    in_range("clip_grad_value", "most", most, f64::INFINITY)?;
    let _unrecorded = no_grad();
    for gradient in gradients(parameters) {
        gradient.copy_(&gradient.clamp(Some((-most).into()), Some(most.into()))?)?;
    }
    Ok(())
}

/// Exponential moving averages of parameters.
pub struct Ema {
    /// How much of an average is kept in a step.
    pub decay: f64,
    parameters: Vec<Tensor>,
    averages: Vec<Tensor>,
}

impl Ema {
    /// Averages that start from the parameters.
    ///
    /// # Errors
    /// If the decay is not between 0 and 1.
    #[track_caller]
    pub fn new(parameters: Vec<Tensor>, decay: f64) -> Result<Ema> {
        in_range("Ema", "decay", decay, 1.0)?;
        let _unrecorded = no_grad();
        let averages = parameters.iter().map(Tensor::copy).collect::<Result<_>>()?;
        Ok(Ema { decay, parameters, averages })
    }

    /// Moves the averages towards the parameters.
    ///
    /// # Errors
    /// Only errors of the writes.
    #[track_caller]
    pub fn update(&self) -> Result<()> {
        let _place = stands_for();
        let _unrecorded = no_grad();
        self.averages
            .iter()
            .zip(&self.parameters)
            .try_for_each(|(average, parameter)| average.copy_(&moved(average, parameter, 1.0 - self.decay)?))
    }

    /// Exchanges averages and parameters: to evaluate, and again to go on.
    ///
    /// # Errors
    /// If there is not enough memory. Parameters before the failing one are exchanged.
    #[track_caller]
    pub fn swap(&self) -> Result<()> {
        let _place = stands_for();
        let _unrecorded = no_grad();
        self.averages.iter().zip(&self.parameters).try_for_each(|(average, parameter)| {
            let kept = average.copy()?;
            average.copy_(parameter)?;
            parameter.copy_(&kept)
        })
    }
}

impl State for Ema {
    fn state_tensors(&self) -> StateDict {
        self.averages.iter().enumerate().map(|(index, tensor)| (index.to_string(), tensor.clone())).collect()
    }
}

/// Scales losses up, so that gradients of 16-bit floats do not vanish (Micikevicius et al. 2018). The scale follows
/// what gradients bear. Defaults are PyTorch's.
pub struct LossScaler {
    scale: Tensor,
    good_steps: Tensor,
    /// The factor after `interval` steps without an overflow.
    pub growth: f64,
    /// The factor after an overflow.
    pub backoff: f64,
    /// The number of steps without an overflow before the scale grows.
    pub interval: u32,
}

impl LossScaler {
    /// A scaler that starts from this scale; PyTorch's is 65,536.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn new(scale: f64) -> Result<LossScaler> {
        let (scale, good_steps) = (Tensor::scalar(scale)?, Tensor::scalar(0.0f64)?);
        Ok(LossScaler { scale, good_steps, growth: 2.0, backoff: 0.5, interval: 2000 })
    }

    /// The scaled loss, to run backwards.
    ///
    /// # Errors
    /// Only errors of the product.
    #[track_caller]
    pub fn scale(&self, loss: &Tensor) -> Result<Tensor> {
        loss.mul(&self.scale)
    }

    /// The scale.
    ///
    /// # Errors
    /// If it cannot be read.
    #[track_caller]
    pub fn current(&self) -> Result<f64> {
        self.scale.item::<f64>()
    }

    /// Scales gradients back and makes a step, unless a gradient is infinite or NaN. Returns whether it was made. It
    /// reads values, so it stands outside of a compiled step.
    ///
    /// # Errors
    /// If the step fails.
    #[track_caller]
    pub fn step(&self, optimizer: &Optimizer) -> Result<bool> {
        let _place = stands_for();
        let _unrecorded = no_grad();
        let parameters: Vec<Tensor> = optimizer.parameters().cloned().collect();
        let gradients = gradients(&parameters);
        let mut finite = true;
        for gradient in &gradients {
            gradient.div_(&self.scale)?;
            finite &= gradient.isfinite()?.all((), false)?.item::<bool>()?;
        }
        if !finite {
            self.scale.mul_(self.backoff)?;
            self.good_steps.fill_(0.0)?;
            return Ok(false);
        }
        optimizer.step()?;
        self.good_steps.add_(1.0)?;
        if self.good_steps.item::<f64>()? >= f64::from(self.interval) {
            self.scale.mul_(self.growth)?;
            self.good_steps.fill_(0.0)?;
        }
        Ok(true)
    }
}

impl State for LossScaler {
    fn state_tensors(&self) -> StateDict {
        StateDict::from([("scale".to_owned(), self.scale.clone()), ("good_steps".to_owned(), self.good_steps.clone())])
    }
}
