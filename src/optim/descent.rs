//! Rules that follow the gradient, scaled: SGD, Adagrad, RMSprop, Lion.

use super::optimizer::{Rule, StepTensors, decayed, in_range, moved, shrunk};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Stochastic gradient descent with momentum (Sutskever et al. 2013). Defaults are PyTorch's.
#[derive(Debug, Clone, PartialEq)]
pub struct Sgd {
    /// The learning rate.
    pub lr: f64,
    /// How much of the last step is kept.
    pub momentum: f64,
    /// How much less of a gradient than 1 goes into the momentum, after the first step.
    pub dampening: f64,
    /// The factor of a parameter that is added to its gradient.
    pub weight_decay: f64,
    /// Whether the momentum looks ahead.
    pub nesterov: bool,
}

impl Default for Sgd {
    fn default() -> Self {
        Sgd { lr: 1e-3, momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false }
    }
}

impl Rule for Sgd {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn state(&self) -> Vec<(&'static str, f64)> {
        if self.momentum == 0.0 { Vec::new() } else { vec![("momentum_buffer", 0.0)] }
    }

    fn update(&self, x: &Tensor, gradient: &Tensor, state: &[Tensor], step: &StepTensors) -> Result<()> {
        let mut gradient = decayed(gradient, x, self.weight_decay)?;
        if let [momentum] = state {
            let part = if self.dampening == 0.0 {
                gradient.clone()
            } else {
                // The first gradient counts in full.
                let damped = gradient.mul(1.0 - self.dampening)?;
                step.count.eq(1.0)?.where_(&gradient, &damped)?
            };
            let new = momentum.mul(self.momentum)?.add(&part)?;
            momentum.copy_(&new)?;
            gradient = if self.nesterov { gradient.add(new.mul(self.momentum)?)? } else { new };
        }
        x.sub_(gradient.mul(&step.lr)?)
    }

    fn check(&self, _: &Tensor) -> Result<()> {
        in_range("SGD", "lr", self.lr, f64::INFINITY)?;
        in_range("SGD", "momentum", self.momentum, f64::INFINITY)?;
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            return Err(Error::argument(
                "SGD",
                "nesterov needs a momentum and no dampening; set these, or turn it off",
            ));
        }
        Ok(())
    }
}

/// Adagrad (Duchi, Hazan, Singer 2011). Defaults are PyTorch's.
#[derive(Debug, Clone, PartialEq)]
pub struct Adagrad {
    /// The learning rate.
    pub lr: f64,
    /// How the learning rate falls with steps.
    pub lr_decay: f64,
    /// The factor of a parameter that is added to its gradient.
    pub weight_decay: f64,
    /// What sums of squares start from.
    pub initial: f64,
    /// What is added to the divisor.
    pub eps: f64,
}

impl Default for Adagrad {
    fn default() -> Self {
        Adagrad { lr: 0.01, lr_decay: 0.0, weight_decay: 0.0, initial: 0.0, eps: 1e-10 }
    }
}

impl Rule for Adagrad {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn state(&self) -> Vec<(&'static str, f64)> {
        vec![("sum", self.initial)]
    }

    fn update(&self, x: &Tensor, gradient: &Tensor, state: &[Tensor], step: &StepTensors) -> Result<()> {
        let gradient = decayed(gradient, x, self.weight_decay)?;
        let sum = state[0].add(gradient.square()?)?;
        state[0].copy_(&sum)?;
        let lr = step.lr.div(step.count.sub(1.0)?.mul(self.lr_decay)?.add(1.0)?)?;
        x.sub_(gradient.mul(&lr)?.div(sum.sqrt()?.add(self.eps)?)?)
    }

    fn check(&self, _: &Tensor) -> Result<()> {
        in_range("Adagrad", "lr", self.lr, f64::INFINITY)?;
        in_range("Adagrad", "lr_decay", self.lr_decay, f64::INFINITY)?;
        in_range("Adagrad", "eps", self.eps, f64::INFINITY)
    }
}

/// RMSprop (Hinton 2012). Defaults are PyTorch's.
#[derive(Debug, Clone, PartialEq)]
pub struct RmsProp {
    /// The learning rate.
    pub lr: f64,
    /// How much of the mean square is kept.
    pub alpha: f64,
    /// What is added to the divisor.
    pub eps: f64,
    /// The factor of a parameter that is added to its gradient.
    pub weight_decay: f64,
    /// How much of the last step is kept.
    pub momentum: f64,
    /// Whether the variance, and not the mean square, divides.
    pub centered: bool,
}

impl Default for RmsProp {
    fn default() -> Self {
        RmsProp { lr: 0.01, alpha: 0.99, eps: 1e-8, weight_decay: 0.0, momentum: 0.0, centered: false }
    }
}

impl Rule for RmsProp {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn state(&self) -> Vec<(&'static str, f64)> {
        let mut state = vec![("square_avg", 0.0)];
        state.extend((self.momentum > 0.0).then_some(("momentum_buffer", 0.0)));
        state.extend(self.centered.then_some(("grad_avg", 0.0)));
        state
    }

    fn update(&self, x: &Tensor, gradient: &Tensor, state: &[Tensor], step: &StepTensors) -> Result<()> {
        let gradient = decayed(gradient, x, self.weight_decay)?;
        let square = state[0].mul(self.alpha)?.add(gradient.square()?.mul(1.0 - self.alpha)?)?;
        state[0].copy_(&square)?;
        let variance = match state.last() {
            Some(average) if self.centered => {
                let mean = moved(average, &gradient, 1.0 - self.alpha)?;
                average.copy_(&mean)?;
                square.sub(mean.square()?)?
            }
            _ => square,
        };
        let scaled = gradient.div(variance.sqrt()?.add(self.eps)?)?;
        if self.momentum == 0.0 {
            return x.sub_(scaled.mul(&step.lr)?);
        }
        let momentum = state[1].mul(self.momentum)?.add(&scaled)?;
        state[1].copy_(&momentum)?;
        x.sub_(momentum.mul(&step.lr)?)
    }

    fn check(&self, _: &Tensor) -> Result<()> {
        in_range("RMSprop", "lr", self.lr, f64::INFINITY)?;
        in_range("RMSprop", "alpha", self.alpha, f64::INFINITY)?;
        in_range("RMSprop", "momentum", self.momentum, f64::INFINITY)
    }
}

/// Lion (Chen et al. 2023): steps are signs of a moving average.
#[derive(Debug, Clone, PartialEq)]
pub struct Lion {
    /// The learning rate.
    pub lr: f64,
    /// How much of the average is in the step, and how much of it is kept.
    pub betas: (f64, f64),
    /// How much a parameter shrinks, times the learning rate.
    pub weight_decay: f64,
}

impl Default for Lion {
    fn default() -> Self {
        Lion { lr: 1e-4, betas: (0.9, 0.99), weight_decay: 0.0 }
    }
}

impl Rule for Lion {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn state(&self) -> Vec<(&'static str, f64)> {
        vec![("exp_avg", 0.0)]
    }

    fn update(&self, x: &Tensor, gradient: &Tensor, state: &[Tensor], step: &StepTensors) -> Result<()> {
        let sign = moved(&state[0], gradient, 1.0 - self.betas.0)?.sign()?;
        let new = shrunk(x, &step.lr, self.weight_decay)?.sub(sign.mul(&step.lr)?)?;
        state[0].copy_(&moved(&state[0], gradient, 1.0 - self.betas.1)?)?;
        x.copy_(&new)
    }

    fn check(&self, _: &Tensor) -> Result<()> {
        in_range("Lion", "lr", self.lr, f64::INFINITY)?;
        in_range("Lion", "betas.0", self.betas.0, 1.0)?;
        in_range("Lion", "betas.1", self.betas.1, 1.0)
    }
}
