//! Losses: how far a prediction is from its target.

use crate::dispatch::composite::Composite;
use crate::error::Result;
use crate::tensor::handle::Tensor;

/// What becomes of the elements of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reduction {
    /// They stay as they are.
    None,
    /// Their mean, weighted where the loss has weights.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

impl Reduction {
    /// The number that stands for it in an operator's arguments.
    fn number(self) -> i64 {
        match self {
            Reduction::None => 0,
            Reduction::Mean => 1,
            Reduction::Sum => 2,
        }
    }
}

/// The arguments of [`Tensor::cross_entropy`] and [`Tensor::nll_loss`] that are rarely given.
#[derive(Debug, Clone)]
pub struct CrossEntropy<'a> {
    /// A factor for each class.
    pub weight: Option<&'a Tensor>,
    /// What becomes of the losses; the mean is over the weights of the targets.
    pub reduction: Reduction,
    /// Targets of this class number count for nothing.
    pub ignore_index: i64,
    /// How much of each target is spread evenly over all classes, from 0 to 1.
    pub label_smoothing: f64,
}

impl Default for CrossEntropy<'_> {
    fn default() -> Self {
        CrossEntropy { weight: None, reduction: Reduction::Mean, ignore_index: -100, label_smoothing: 0.0 }
    }
}

/// Element-wise losses. Sizes are broadcast and dtypes promoted; 16-bit floats are computed in f32.
impl Tensor {
    /// Squared distance. Sizes are broadcast, dtypes promoted; `reduction` gives all losses, or their sum or mean,
    /// 0-dim.
    ///
    /// # Errors
    /// If a dtype is not floating or the sizes do not broadcast.
    pub fn mse_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        static MSE_LOSS: Composite = Composite::new("aten::mse_loss");
        MSE_LOSS.call((self, target, reduction.number()))
    }

    /// Absolute distance. Sizes are broadcast, dtypes promoted; `reduction` gives all losses, or their sum or mean,
    /// 0-dim.
    ///
    /// # Errors
    /// If a dtype is not floating or the sizes do not broadcast.
    pub fn l1_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        static L1_LOSS: Composite = Composite::new("aten::l1_loss");
        L1_LOSS.call((self, target, reduction.number()))
    }

    /// `d² / (2 beta)` for distances below `beta`, else `d - beta / 2`. Sizes are broadcast, dtypes promoted;
    /// `reduction` gives all losses, or their sum or mean, 0-dim.
    ///
    /// # Errors
    /// If `beta` is negative, a dtype is not floating or the sizes do not broadcast.
    pub fn smooth_l1_loss(&self, target: &Tensor, reduction: Reduction, beta: f64) -> Result<Tensor> {
        static SMOOTH_L1_LOSS: Composite = Composite::new("aten::smooth_l1_loss");
        SMOOTH_L1_LOSS.call((self, target, reduction.number(), beta))
    }

    /// `d² / 2` for distances up to `delta`, else `delta (d - delta / 2)`. Sizes are broadcast, dtypes promoted;
    /// `reduction` gives all losses, or their sum or mean, 0-dim.
    ///
    /// # Errors
    /// If `delta` is not positive, a dtype is not floating or the sizes do not broadcast.
    pub fn huber_loss(&self, target: &Tensor, reduction: Reduction, delta: f64) -> Result<Tensor> {
        static HUBER_LOSS: Composite = Composite::new("aten::huber_loss");
        HUBER_LOSS.call((self, target, reduction.number(), delta))
    }

    /// `-(t log x + (1 - t) log(1 - x))` of probabilities, logarithms not below −100, times `weight` if given. The
    /// losses have the sizes of `self`; `reduction` gives all of them, or their sum or mean, 0-dim.
    ///
    /// # Errors
    /// If a dtype is not floating or the sizes of input and target differ.
    pub fn binary_cross_entropy(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        static BINARY_CROSS_ENTROPY: Composite = Composite::new("aten::binary_cross_entropy");
        BINARY_CROSS_ENTROPY.call((self, target, weight, reduction.number()))
    }

    /// [`Tensor::binary_cross_entropy`] of `sigmoid(self)`, without overflow; `pos_weight` multiplies the part of the
    /// positive targets. The losses have the sizes of `self`; `reduction` gives all of them, or their sum or mean,
    /// 0-dim.
    ///
    /// # Errors
    /// If a dtype is not floating, or the sizes of input and target differ or the weights' do not broadcast.
    pub fn binary_cross_entropy_with_logits(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        pos_weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        static WITH_LOGITS: Composite = Composite::new("aten::binary_cross_entropy_with_logits");
        WITH_LOGITS.call((self, target, weight, pos_weight, reduction.number()))
    }

    /// Kullback-Leibler divergence of log-probabilities from a target distribution, element by element:
    /// `t (log t - x)`, 0 where the target is 0. With `log_target` the target holds logarithms too. The mean is over
    /// all elements.
    /// Sizes are broadcast, dtypes promoted; `reduction` gives all losses, or their sum or mean, 0-dim.
    ///
    /// # Errors
    /// If a dtype is not floating or the sizes do not broadcast.
    pub fn kl_div(&self, target: &Tensor, reduction: Reduction, log_target: bool) -> Result<Tensor> {
        static KL_DIV: Composite = Composite::new("aten::kl_div");
        KL_DIV.call((self, target, reduction.number(), log_target))
    }
}

/// Classification losses: class numbers, or one probability per class, along dim 1 (dim 0 of a 1-dim input).
impl Tensor {
    /// Negative log-likelihood: `-weight[t] * self[t]` of log-probabilities `(N, C, …)` or `(C)` at the class numbers
    /// `target`, `(N, …)` or 0-dim. `label_smoothing` is not used. The losses have the sizes of the batch, `(N, …)` or
    /// `()`; `reduction` gives all of them, or their sum or mean, 0-dim. The dtype is that of `self`.
    ///
    /// # Errors
    /// If the input is not floating, the target is not i64 or u8 or does not fit it, a class number is out of range,
    /// or there is not one weight per class.
    pub fn nll_loss(&self, target: &Tensor, options: &CrossEntropy<'_>) -> Result<Tensor> {
        static NLL_LOSS: Composite = Composite::new("aten::nll_loss_nd");
        let CrossEntropy { weight, reduction, ignore_index, .. } = *options;
        NLL_LOSS.call((self, target, weight, reduction.number(), ignore_index))
    }

    /// Cross entropy of `softmax(self)`, for logits `(N, C, …)` or `(C)`. The target holds class numbers, or, if it has
    /// the sizes of the input, probabilities. The losses have the sizes of the batch, `(N, …)` or `()`; `reduction`
    /// gives all of them, or their sum or mean, 0-dim. The dtype is that of `self`.
    ///
    /// # Errors
    /// As [`Tensor::nll_loss`]; probabilities must be floating, and take no `ignore_index` from 0 up.
    pub fn cross_entropy(&self, target: &Tensor, options: &CrossEntropy<'_>) -> Result<Tensor> {
        static CROSS_ENTROPY: Composite = Composite::new("aten::cross_entropy_loss");
        let CrossEntropy { weight, reduction, ignore_index, label_smoothing } = *options;
        CROSS_ENTROPY.call((self, target, weight, reduction.number(), ignore_index, label_smoothing))
    }
}
