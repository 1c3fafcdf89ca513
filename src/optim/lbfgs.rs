//! L-BFGS (Liu, Nocedal 1989): steps along an estimate of the inverse Hessian times the gradient.
//!
//! A step evaluates the loss several times and reads it, so it stands outside of compiled functions. The loss itself
//! may be one. As in PyTorch without a line search, a step has the length that the learning rate says.

use super::optimizer::in_range;
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::formats::StateDict;
use crate::ir::DType;
use crate::nn::State;
use crate::ops::cat;
use crate::profile::stands_for;
use crate::tensor::Tensor;

/// The options of [`Lbfgs`]. Defaults are PyTorch's.
#[derive(Debug, Clone, PartialEq)]
pub struct LbfgsOptions {
    /// The length of a step.
    pub lr: f64,
    /// The most moves of a step.
    pub iterations: usize,
    /// The most evaluations of a step.
    pub evaluations: usize,
    /// A step ends where no gradient is larger.
    pub gradient_tolerance: f64,
    /// A step ends where parameters and loss change less.
    pub change_tolerance: f64,
    /// How many moves the estimate is made of.
    pub history: usize,
}

impl Default for LbfgsOptions {
    fn default() -> Self {
        LbfgsOptions {
            lr: 1.0,
            iterations: 20,
            evaluations: 25,
            gradient_tolerance: 1e-7,
            change_tolerance: 1e-9,
            history: 100,
        }
    }
}

/// L-BFGS over all parameters as one vector.
pub struct Lbfgs {
    options: LbfgsOptions,
    parameters: Vec<Tensor>,
    /// Differences of gradients, the oldest first: `(history, n)`.
    differences: Tensor,
    /// Moves, in the same order.
    moves: Tensor,
    direction: Tensor,
    gradient: Tensor,
    /// The last length, the scale of the estimate, the number of moves, and that of rows in use.
    numbers: Tensor,
}

impl Lbfgs {
    /// An optimizer of these parameters, which have one floating dtype and device.
    ///
    /// # Errors
    /// If there are none, if dtypes differ, or if a number is out of its range.
    #[track_caller]
    pub fn new(parameters: Vec<Tensor>, options: LbfgsOptions) -> Result<Lbfgs> {
        in_range("Lbfgs", "lr", options.lr, f64::INFINITY)?;
        let Some(first) = parameters.first() else {
            return Err(Error::argument("Lbfgs", "there are no parameters; pass those of a model"));
        };
        let (dtype, device, n) = (first.dtype(), first.device(), parameters.iter().map(Tensor::numel).sum());
        if options.history == 0 || parameters.iter().any(|one| one.dtype() != dtype || one.device() != device) {
            let what =
                "parameters have several dtypes or devices, or the history is 0; use one of each, and at least 1";
            return Err(Error::argument("Lbfgs", what));
        }
        let _place = stands_for();
        let zeros = |sizes: &[usize]| Tensor::zeros(sizes, dtype)?.to_device(device);
        Ok(Lbfgs {
            differences: zeros(&[options.history, n])?,
            moves: zeros(&[options.history, n])?,
            direction: zeros(&[n])?,
            gradient: zeros(&[n])?,
            numbers: Tensor::zeros(&[4], DType::F64)?,
            options,
            parameters,
        })
    }

    /// Makes a step. `loss` clears gradients, computes the loss, and runs it backwards. Returns the first loss.
    ///
    /// # Errors
    /// If `loss` fails. Parameters are then those of the last evaluation.
    #[track_caller]
    pub fn step(&self, mut loss: impl FnMut() -> Result<Tensor>) -> Result<Tensor> {
        let _place = stands_for();
        let first = loss()?;
        let mut value = first.item_as_f64()?;
        let mut gradient = self.flat_gradient()?;
        let _unrecorded = no_grad();
        let largest = |x: &Tensor| x.abs()?.amax((), false)?.item_as_f64();
        if gradient.numel() == 0 || largest(&gradient)? <= self.options.gradient_tolerance {
            return Ok(first);
        }
        let mut numbers = self.numbers.to_vec::<f64>()?;
        for iteration in 1..=self.options.iterations {
            let direction = self.next_direction(&gradient, &mut numbers)?;
            let is_first = numbers[2] == 1.0;
            self.direction.copy_(&direction)?;
            self.gradient.copy_(&gradient)?;
            let before = value;
            let shortened = if is_first { (1.0 / gradient.abs()?.sum_all()?.item_as_f64()?).min(1.0) } else { 1.0 };
            numbers[0] = shortened * self.options.lr;
            if gradient.mul(&direction)?.sum_all()?.item_as_f64()? > -self.options.change_tolerance {
                break;
            }
            self.advance(&direction, numbers[0])?;
            if iteration == self.options.iterations {
                break;
            }
            {
                let _recorded = crate::autograd::enable_grad();
                value = loss()?.item_as_f64()?;
            }
            gradient = self.flat_gradient()?;
            let is_done = iteration + 1 >= self.options.evaluations
                || largest(&gradient)? <= self.options.gradient_tolerance
                || largest(&direction)? * numbers[0] <= self.options.change_tolerance
                || (value - before).abs() < self.options.change_tolerance;
            if is_done {
                break;
            }
        }
        self.numbers.copy_(&Tensor::from_slice(&numbers, &[4])?)?;
        Ok(first)
    }

    /// The direction of the next move. The history takes up the last one.
    fn next_direction(&self, gradient: &Tensor, numbers: &mut [f64]) -> Result<Tensor> {
        numbers[2] += 1.0;
        if numbers[2] == 1.0 {
            (numbers[1], numbers[3]) = (1.0, 0.0);
            return gradient.neg();
        }
        let dot = |a: &Tensor, b: &Tensor| a.mul(b)?.sum_all()?.item_as_f64();
        let (difference, moved) = (gradient.sub(&self.gradient)?, self.direction.mul(numbers[0])?);
        let curvature = dot(&difference, &moved)?;
        if curvature > 1e-10 {
            let rows = self.options.history;
            if numbers[3] as usize == rows {
                for all in [&self.differences, &self.moves] {
                    all.copy_(&all.roll(-1, 0)?)?;
                }
            } else {
                numbers[3] += 1.0;
            }
            let at = numbers[3] as i64 - 1;
            self.differences.select(0, at)?.copy_(&difference)?;
            self.moves.select(0, at)?.copy_(&moved)?;
            numbers[1] = curvature / dot(&difference, &difference)?;
        }
        let mut direction = gradient.neg()?;
        let mut factors = Vec::new();
        for at in (0..numbers[3] as i64).rev() {
            let (difference, moved) = (self.differences.select(0, at)?, self.moves.select(0, at)?);
            let inverse = 1.0 / dot(&difference, &moved)?;
            let factor = dot(&moved, &direction)? * inverse;
            direction = direction.sub(difference.mul(factor)?)?;
            factors.push((at, factor, inverse));
        }
        direction = direction.mul(numbers[1])?;
        for (at, factor, inverse) in factors.into_iter().rev() {
            let back = dot(&self.differences.select(0, at)?, &direction)? * inverse;
            direction = direction.add(self.moves.select(0, at)?.mul(factor - back)?)?;
        }
        Ok(direction)
    }

    fn flat_gradient(&self) -> Result<Tensor> {
        let flat = |parameter: &Tensor| match parameter.grad() {
            Some(gradient) => gradient.reshape(-1),
            None => parameter.detach()?.zeros_like()?.reshape(-1),
        };
        let parts = self.parameters.iter().map(flat).collect::<Result<Vec<_>>>()?;
        cat(&parts.iter().collect::<Vec<_>>(), 0)
    }

    fn advance(&self, direction: &Tensor, length: f64) -> Result<()> {
        let mut start = 0;
        for parameter in &self.parameters {
            let part = direction.narrow(0, start as i64, parameter.numel())?.reshape_as(parameter)?;
            parameter.add_(part.mul(length)?)?;
            start += parameter.numel();
        }
        Ok(())
    }
}

impl Tensor {
    /// The one element, as f64.
    fn item_as_f64(&self) -> Result<f64> {
        self.detach()?.to_dtype(DType::F64)?.item::<f64>()
    }
}

impl State for Lbfgs {
    fn state_tensors(&self) -> StateDict {
        let all = [
            ("differences", &self.differences),
            ("moves", &self.moves),
            ("direction", &self.direction),
            ("gradient", &self.gradient),
            ("numbers", &self.numbers),
        ];
        all.into_iter().map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect()
    }
}
