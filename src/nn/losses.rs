//! Losses that are no methods of [`Tensor`], because they take several inputs or are rarer: ranking,
//! likelihoods, CTC.
//!
//! Formulas are PyTorch's. Most are operators; the others consist of operators, whose gradients they have.

use crate::error::{Error, Result};
use crate::ir::{DType, Scalar};
use crate::ops::margin_losses::{
    COSINE_EMBEDDING, HINGE_EMBEDDING, MARGIN_RANKING, MULTI_MARGIN, POISSON_NLL, SOFT_MARGIN, TRIPLET_MARGIN,
};
use crate::ops::nn::Reduction;
use crate::ops::{cat, stack};
use crate::profile::stands_for;
use crate::tensor::Tensor;

fn reduced(loss: Tensor, reduction: Reduction) -> Result<Tensor> {
    match reduction {
        Reduction::None => Ok(loss),
        Reduction::Mean => loss.mean_all(),
        Reduction::Sum => loss.sum_all(),
    }
}

/// `1 - cos(a, b)` where the target is 1, and `max(cos(a, b) - margin, 0)` where it is -1. Inputs are `(N, D)` or
/// `(D,)`.
///
/// # Errors
/// If sizes do not broadcast.
#[track_caller]
pub fn cosine_embedding_loss(
    a: &Tensor,
    b: &Tensor,
    target: &Tensor,
    margin: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    COSINE_EMBEDDING.call((a, b, target, margin, reduction.number()))
}

/// `max(-target (a - b) + margin, 0)`: the target is 1 where `a` should be larger, and -1 where `b` should.
///
/// # Errors
/// If sizes do not broadcast.
#[track_caller]
pub fn margin_ranking_loss(
    a: &Tensor,
    b: &Tensor,
    target: &Tensor,
    margin: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    MARGIN_RANKING.call((a, b, target, margin, reduction.number()))
}

/// `x` where the target is 1, and `max(margin - x, 0)` where it is -1.
///
/// # Errors
/// If sizes do not broadcast.
#[track_caller]
pub fn hinge_embedding_loss(x: &Tensor, target: &Tensor, margin: f64, reduction: Reduction) -> Result<Tensor> {
    HINGE_EMBEDDING.call((x, target, margin, reduction.number()))
}

/// `log(1 + exp(-target x))`: targets are 1 and -1.
///
/// # Errors
/// If sizes do not broadcast.
#[track_caller]
pub fn soft_margin_loss(x: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    SOFT_MARGIN.call((x, target, reduction.number()))
}

/// `max(d(anchor, positive) - d(anchor, negative) + margin, 0)`, where `d` is the `p`-norm of the difference along the
/// last dim.
///
/// # Errors
/// If sizes do not broadcast.
#[track_caller]
pub fn triplet_margin_loss(
    anchor: &Tensor,
    positive: &Tensor,
    negative: &Tensor,
    margin: f64,
    p: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    // The small number that is added to differences is PyTorch's.
    TRIPLET_MARGIN.call((anchor, positive, negative, margin, p, 1e-6, false, reduction.number()))
}

/// Multi-class margin loss of scores `(N, C)` and classes `(N,)`: the mean over all other classes of `max(margin -
/// score of the class + other score, 0)`.
///
/// # Errors
/// If sizes do not fit, or if a class is out of range.
#[track_caller]
pub fn multi_margin_loss(x: &Tensor, target: &Tensor, margin: f64, reduction: Reduction) -> Result<Tensor> {
    if x.dim() != 2 || target.dim() != 1 {
        let what = format!("scores have sizes {:?}, classes {:?}", x.sizes(), target.sizes());
        return Err(Error::shape("multi_margin_loss", what, "they are (N, C) and (N,)"));
    }
    let target = target.to_dtype(DType::I64)?;
    MULTI_MARGIN.call((x, &target, Scalar::Int(1), Scalar::Float(margin), None::<&Tensor>, reduction.number()))
}

/// `(log(v) + (x - target)² / v) / 2`, where `v` is the variance, or `eps` if that is larger. If it is `full`, half of
/// `log(2 pi)` is added. PyTorch's eps is 1e-6.
///
/// # Errors
/// If sizes do not broadcast.
#[track_caller]
pub fn gaussian_nll_loss(
    x: &Tensor,
    target: &Tensor,
    variance: &Tensor,
    full: bool,
    eps: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    let _place = stands_for();
    // As in PyTorch, the bound has no part in the gradient.
    let bounded = {
        let _unrecorded = crate::autograd::no_grad();
        variance.clamp_min(eps)?.sub(variance)?
    };
    let variance = variance.add(&bounded)?;
    let loss = variance.log()?.add(x.sub(target)?.square()?.div(&variance)?)?.mul(0.5)?;
    let loss = if full { loss.add(0.5 * std::f64::consts::TAU.ln())? } else { loss };
    reduced(loss, reduction)
}

/// `exp(x) - target x` for logarithms `x` of rates, or `x - target log(x + eps)` for rates. PyTorch's eps is 1e-8. If
/// it is `full`, Stirling's approximation of `log(target!)` is added where the target is above 1.
///
/// # Errors
/// If sizes do not broadcast.
#[track_caller]
pub fn poisson_nll_loss(
    x: &Tensor,
    target: &Tensor,
    log_input: bool,
    full: bool,
    eps: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    POISSON_NLL.call((x, target, log_input, full, eps, reduction.number()))
}

/// What stands for the logarithm of 0 where sums must stay finite.
const NEVER: f64 = -1e30;

/// Connectionist temporal classification (Graves et al. 2006) of log-probabilities `(T, N, C)`. Targets are `(N, S)`,
/// padded with any class; lengths are `(N,)`, integers. The mean divides each loss by its target's length first, as in
/// PyTorch. A target that does not fit its input costs infinity.
///
/// # Errors
/// If sizes do not fit, or if a class is out of range.
#[track_caller]
pub fn ctc_loss(
    log_probs: &Tensor,
    targets: &Tensor,
    input_lengths: &Tensor,
    target_lengths: &Tensor,
    blank: i64,
    reduction: Reduction,
) -> Result<Tensor> {
    let _place = stands_for();
    let (&[steps, batch, _], &[target_batch, most]) = (log_probs.sizes(), targets.sizes()) else {
        let what = format!("log-probabilities have sizes {:?}, targets {:?}", log_probs.sizes(), targets.sizes());
        return Err(Error::shape("ctc_loss", what, "they are (T, N, C) and (N, S)"));
    };
    if target_batch != batch || input_lengths.sizes() != [batch] || target_lengths.sizes() != [batch] || steps == 0 {
        let what = format!("{steps} steps of {batch} samples, targets {:?}", targets.sizes());
        return Err(Error::shape("ctc_loss", what, "targets and both lengths are those of the same samples"));
    }
    let targets = targets.to_dtype(DType::I64)?;
    // Blanks around the classes: `b t1 b t2 … b`.
    let blanks = targets.full_like(blank)?;
    let pairs = stack(&[&blanks, &targets], 2)?.flatten(1, 2)?;
    let last = Tensor::full(&[batch, 1], blank, DType::I64)?.to_device(targets.device())?;
    let labels = cat(&[&pairs, &last], 1)?;
    // A class may follow the class before the blank if they differ.
    let skips = if most == 0 {
        labels.ne(&labels)?
    } else {
        let differs = labels.slice(1, 2, None, 1)?.ne(labels.slice(1, None, -2, 1)?)?;
        let class = labels.slice(1, 2, None, 1)?.ne(blank)?;
        differs.logical_and(&class)?.constant_pad_nd([2i64, 0], false)?
    };
    let never = |x: &Tensor| x.full_like(NEVER);
    let emitted = |step: usize| log_probs.select(0, step as i64)?.gather(1, &labels);
    let index = Tensor::arange(0, 2 * most as i64 + 1, 1)?.to_device(targets.device())?.unsqueeze(0)?;
    let first = emitted(0)?;
    let mut alpha = index.lt(2)?.where_(&first, never(&first)?)?;
    let lengths = input_lengths.to_dtype(DType::I64)?.unsqueeze(1)?;
    for step in 1..steps {
        let by = |n: i64| alpha.constant_pad_nd([n, -n], NEVER);
        let skipped = if most == 0 { never(&alpha)? } else { skips.where_(by(2)?, never(&alpha)?)? };
        let paths = stack(&[&alpha, &by(1)?, &skipped], 0)?.logsumexp([0], false)?;
        // A sample that has ended keeps its sums.
        alpha = lengths.gt(step as i64)?.where_(paths.add(emitted(step)?)?, &alpha)?;
    }
    let end = target_lengths.to_dtype(DType::I64)?.unsqueeze(1)?.mul(2)?;
    let at_blank = alpha.gather(1, &end)?.squeeze([1])?;
    let at_class = alpha.gather(1, &end.sub(1)?.clamp_min(0)?)?.squeeze([1])?;
    let has_class = target_lengths.gt(0)?;
    let at_class = has_class.where_(&at_class, never(&at_class)?)?;
    let sum = stack(&[&at_blank, &at_class], 0)?.logsumexp([0], false)?;
    let loss = sum.lt(0.5 * NEVER)?.where_(f64::INFINITY, sum.neg()?)?;
    match reduction {
        Reduction::Mean => loss.div(target_lengths.clamp_min(1)?.to_dtype(loss.dtype())?)?.mean_all(),
        Reduction::None | Reduction::Sum => reduced(loss, reduction),
    }
}
