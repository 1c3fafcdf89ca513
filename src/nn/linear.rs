//! Linear and bilinear layers.

use super::init::uniform_parameter;
use super::module::{Forward, Module};
use crate::error::{Error, Result};
use crate::ops::nn::einsum;
use crate::tensor::Tensor;

/// `x @ weight' + bias` over the last dim. As in PyTorch, weight and bias start uniform within `1 / sqrt(inputs)`.
#[derive(Clone, Module)]
pub struct Linear {
    /// `(outputs, inputs)`.
    pub weight: Tensor,
    /// `(outputs,)`.
    pub bias: Option<Tensor>,
}

impl Linear {
    /// A layer with a bias.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize) -> Result<Linear> {
        let bound = within(inputs);
        let weight = uniform_parameter(&[outputs, inputs], bound)?;
        Ok(Linear { weight, bias: Some(uniform_parameter(&[outputs], bound)?) })
    }

    /// The layer without its bias.
    #[must_use]
    pub fn without_bias(self) -> Linear {
        Linear { bias: None, ..self }
    }
}

/// The bound of uniform weights of outputs with so many inputs. No inputs need none.
pub(crate) fn within(inputs: usize) -> f64 {
    1.0 / (inputs.max(1) as f64).sqrt()
}

impl Forward for Linear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&self.weight, self.bias.as_ref())
    }
}

/// `y[o] = x1' weight[o] x2 + bias[o]` over the last dims. As in PyTorch, parameters start uniform within `1 /
/// sqrt(inputs1)`.
#[derive(Clone, Module)]
pub struct Bilinear {
    /// `(outputs, inputs1, inputs2)`.
    pub weight: Tensor,
    /// `(outputs,)`.
    pub bias: Option<Tensor>,
}

impl Bilinear {
    /// A layer with a bias.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn new(inputs1: usize, inputs2: usize, outputs: usize) -> Result<Bilinear> {
        let bound = within(inputs1);
        let weight = uniform_parameter(&[outputs, inputs1, inputs2], bound)?;
        Ok(Bilinear { weight, bias: Some(uniform_parameter(&[outputs], bound)?) })
    }

    /// The layer without its bias.
    #[must_use]
    pub fn without_bias(self) -> Bilinear {
        Bilinear { bias: None, ..self }
    }

    /// The output for two inputs, which have the same sizes but for the last.
    ///
    /// # Errors
    /// If sizes or dtypes do not fit.
    #[track_caller]
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
        let [_, n1, n2] = self.weight.sizes()[..] else {
            let what = format!("the weight has sizes {:?}", self.weight.sizes());
            return Err(Error::shape("bilinear", what, "it has three dims: outputs and two inputs"));
        };
        let fits = x1.sizes().last() == Some(&n1) && x2.sizes().last() == Some(&n2);
        if !fits || x1.sizes()[..x1.dim() - 1] != x2.sizes()[..x2.dim() - 1] {
            let what = format!("inputs have sizes {:?} and {:?}", x1.sizes(), x2.sizes());
            let hint = format!("the last sizes must be {n1} and {n2}, and all others equal");
            return Err(Error::shape("bilinear", what, hint));
        }
        let y = einsum("...i,oij,...j->...o", &[x1, &self.weight, x2])?;
        match &self.bias {
            Some(bias) => y.add(bias),
            None => Ok(y),
        }
    }
}
