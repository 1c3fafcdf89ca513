//! Rules of first and second moments: Adam, AdamW, Adan.

use super::optimizer::{Rule, StepTensors, correction, decayed, in_range, moved, shrunk};
use crate::error::Result;
use crate::tensor::Tensor;

macro_rules! adam {
    ($($(#[$doc:meta])* $name:ident $decay:literal $(#[$decay_doc:meta])* $is_decoupled:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            /// The learning rate.
            pub lr: f64,
            /// How much of the first and the second moment is kept.
            pub betas: (f64, f64),
            /// What is added to the divisor.
            pub eps: f64,
            $(#[$decay_doc])*
            pub weight_decay: f64,
            /// Whether the largest second moment so far divides (Reddi, Kale, Kumar 2018).
            pub amsgrad: bool,
        }

        impl Default for $name {
            fn default() -> Self {
                $name { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: $decay, amsgrad: false }
            }
        }

        impl Rule for $name {
            fn lr(&self) -> f64 {
                self.lr
            }

            fn state(&self) -> Vec<(&'static str, f64)> {
                let mut state = vec![("exp_avg", 0.0), ("exp_avg_sq", 0.0)];
                state.extend(self.amsgrad.then_some(("max_exp_avg_sq", 0.0)));
                state
            }

            fn update(&self, x: &Tensor, gradient: &Tensor, state: &[Tensor], step: &StepTensors) -> Result<()> {
                let (x_before, gradient) = if $is_decoupled {
                    (shrunk(x, &step.lr, self.weight_decay)?, gradient.clone())
                } else {
                    (x.clone(), decayed(gradient, x, self.weight_decay)?)
                };
                let change = adam_step(&gradient, self.betas, self.eps, state, step)?;
                x.copy_(&x_before.sub(&change)?)
            }

            fn check(&self, _: &Tensor) -> Result<()> {
                let name = stringify!($name);
                in_range(name, "lr", self.lr, f64::INFINITY)?;
                in_range(name, "betas.0", self.betas.0, 1.0)?;
                in_range(name, "betas.1", self.betas.1, 1.0)?;
                in_range(name, "eps", self.eps, f64::INFINITY)
            }
        }
    )*};
}
adam! {
    /// Adam (Kingma, Ba 2015). Defaults are PyTorch's.
    Adam 0.0
    /// The factor of a parameter that is added to its gradient.
    false;
    /// Adam with decoupled weight decay (Loshchilov, Hutter 2019). Defaults are PyTorch's.
    AdamW 0.01
    /// How much a parameter shrinks, times the learning rate.
    true;
}

/// The change of a parameter; the moments are written.
fn adam_step(gradient: &Tensor, betas: (f64, f64), eps: f64, state: &[Tensor], step: &StepTensors) -> Result<Tensor> {
    let first = moved(&state[0], gradient, 1.0 - betas.0)?;
    let second = state[1].mul(betas.1)?.add(gradient.square()?.mul(1.0 - betas.1)?)?;
    state[0].copy_(&first)?;
    state[1].copy_(&second)?;
    let second = match state.get(2) {
        Some(largest) => {
            let new = largest.maximum(&second)?;
            largest.copy_(&new)?;
            new
        }
        None => second,
    };
    let lr = step.lr.div(correction(betas.0, &step.count)?)?;
    let divisor = second.sqrt()?.div(correction(betas.1, &step.count)?.sqrt()?)?.add(eps)?;
    first.mul(&lr)?.div(&divisor)
}

/// Adan (Xie et al. 2022): Nesterov's momentum by differences of gradients.
#[derive(Debug, Clone, PartialEq)]
pub struct Adan {
    /// The learning rate.
    pub lr: f64,
    /// How much is kept of the mean gradient, of the mean difference, and of the second moment.
    pub betas: (f64, f64, f64),
    /// What is added to the divisor.
    pub eps: f64,
    /// How much a parameter shrinks, times the learning rate.
    pub weight_decay: f64,
}

impl Default for Adan {
    fn default() -> Self {
        Adan { lr: 1e-3, betas: (0.98, 0.92, 0.99), eps: 1e-8, weight_decay: 0.0 }
    }
}

impl Rule for Adan {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn state(&self) -> Vec<(&'static str, f64)> {
        vec![("exp_avg", 0.0), ("exp_avg_diff", 0.0), ("exp_avg_sq", 0.0), ("gradient", 0.0)]
    }

    fn update(&self, x: &Tensor, gradient: &Tensor, state: &[Tensor], step: &StepTensors) -> Result<()> {
        let [mean, mean_difference, second, before] = state else {
            unreachable!("a rule gets the state that it asked for")
        };
        let (beta1, beta2, beta3) = self.betas;
        // The first gradient differs from none.
        let difference = gradient.sub(step.count.eq(1.0)?.where_(gradient, before)?)?;
        let new_mean = moved(mean, gradient, 1.0 - beta1)?;
        let new_difference = moved(mean_difference, &difference, 1.0 - beta2)?;
        let ahead = gradient.add(difference.mul(beta2)?)?;
        let new_second = moved(second, &ahead.square()?, 1.0 - beta3)?;
        let corrected = |beta: f64| correction(beta, &step.count);
        let divisor = new_second.sqrt()?.div(corrected(beta3)?.sqrt()?)?.add(self.eps)?;
        let along = new_mean.div(corrected(beta1)?)?.add(new_difference.mul(beta2)?.div(corrected(beta2)?)?)?;
        let moved_x = x.sub(along.mul(&step.lr)?.div(&divisor)?)?;
        let new_x = moved_x.div(step.lr.mul(self.weight_decay)?.add(1.0)?)?;
        let news = [(mean, &new_mean), (mean_difference, &new_difference), (second, &new_second)];
        news.into_iter().try_for_each(|(old, new)| old.copy_(new))?;
        before.copy_(gradient)?;
        x.copy_(&new_x)
    }

    fn check(&self, _: &Tensor) -> Result<()> {
        in_range("Adan", "lr", self.lr, f64::INFINITY)?;
        in_range("Adan", "betas.0", self.betas.0, 1.0)?;
        in_range("Adan", "betas.1", self.betas.1, 1.0)?;
        in_range("Adan", "betas.2", self.betas.2, 1.0)
    }
}
