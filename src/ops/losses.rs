//! Element-wise losses and their gradients.
//!
//! Each loss is computed in f32 or wider and rounded once. Gradients come from the parts. These never divide by zero in
//! the unused branch of a condition: a class with probability 0 adds nothing to the Kullback-Leibler divergence or its
//! gradient. Classification losses are in `cross_entropy.rs`.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::{DType, Op, promote_all};
use crate::ops::arguments::{need_float, widened};
use crate::ops::composite::Composite;
use crate::tensor::handle::Tensor;
use crate::tensor::observer::extent;

static MSE_LOSS: Composite = Composite::new("mse_loss(Tensor self, Tensor target, int reduction=Mean) -> Tensor");
static L1_LOSS: Composite = Composite::new("l1_loss(Tensor self, Tensor target, int reduction=Mean) -> Tensor");
static SMOOTH_L1_LOSS: Composite =
    Composite::new("smooth_l1_loss(Tensor self, Tensor target, int reduction=Mean, float beta=1.0) -> Tensor");
static HUBER_LOSS: Composite =
    Composite::new("huber_loss(Tensor self, Tensor target, int reduction=Mean, float delta=1.0) -> Tensor");
static BINARY_CROSS_ENTROPY: Composite = Composite::new(
    "binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean) -> Tensor",
);
static WITH_LOGITS: Composite = Composite::new(
    "binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int \
     reduction=Mean) -> Tensor",
);
static KL_DIV: Composite =
    Composite::new("kl_div(Tensor self, Tensor target, int reduction=Mean, *, bool log_target=False) -> Tensor");

/// How the elements of a loss are reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reduction {
    /// They are returned unreduced.
    None,
    /// Their mean, which is weighted if the loss has weights.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

impl Reduction {
    /// The number of the reduction in an operator's arguments.
    pub(crate) fn number(self) -> i64 {
        match self {
            Reduction::None => 0,
            Reduction::Mean => 1,
            Reduction::Sum => 2,
        }
    }

    /// The reduction with this number in an operator's arguments.
    pub(crate) fn of_number(op: &str, number: i64) -> Result<Reduction> {
        match number {
            0 => Ok(Reduction::None),
            1 => Ok(Reduction::Mean),
            2 => Ok(Reduction::Sum),
            _ => Err(Error::argument(op, format!("reduction is {number}; use 0 for none, 1 for mean or 2 for sum"))),
        }
    }
}

/// Element-wise losses. Sizes are broadcast and dtypes promoted. 16-bit floats are computed in f32.
impl Tensor {
    /// Squared error `(self - target)²`. Sizes are broadcast, dtypes promoted. The losses are returned as they are, or
    /// reduced to their sum or mean (0-dim).
    ///
    /// # Errors
    /// If a dtype is not floating, or if the sizes do not broadcast.
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        MSE_LOSS.call((self, target, reduction.number()))
    }

    /// Absolute error `|self - target|`. Sizes are broadcast, dtypes promoted. The losses are returned as they are, or
    /// reduced to their sum or mean (0-dim).
    ///
    /// # Errors
    /// If a dtype is not floating, or if the sizes do not broadcast.
    #[track_caller]
    pub fn l1_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        L1_LOSS.call((self, target, reduction.number()))
    }

    /// Smooth L1 loss (Girshick 2015) of the distance `d = |self - target|`: `d² / (2 beta)` where `d < beta`, and `d -
    /// beta / 2` elsewhere. Sizes are broadcast, dtypes promoted. The losses are returned as they are, or reduced to
    /// their sum or mean (0-dim).
    ///
    /// # Errors
    /// If `beta` is negative, if a dtype is not floating, or if the sizes do not broadcast.
    #[track_caller]
    pub fn smooth_l1_loss(&self, target: &Tensor, reduction: Reduction, beta: f64) -> Result<Tensor> {
        SMOOTH_L1_LOSS.call((self, target, reduction.number(), beta))
    }

    /// Huber loss (Huber 1964) of the distance `d = |self - target|`: `d² / 2` where `d <= delta`, and `delta (d -
    /// delta / 2)` elsewhere. Sizes are broadcast, dtypes promoted. The losses are returned as they are, or reduced to
    /// their sum or mean (0-dim).
    ///
    /// # Errors
    /// If `delta` is not positive, if a dtype is not floating, or if the sizes do not broadcast.
    #[track_caller]
    pub fn huber_loss(&self, target: &Tensor, reduction: Reduction, delta: f64) -> Result<Tensor> {
        HUBER_LOSS.call((self, target, reduction.number(), delta))
    }

    /// Binary cross entropy of probabilities `x` and targets `t`: `-(t log x + (1 - t) log(1 - x)) * weight`.
    /// Logarithms are at least −100. The losses have the sizes of `self`. They are returned as they are, or reduced to
    /// their sum or mean (0-dim).
    ///
    /// # Errors
    /// If a dtype is not floating, or if the sizes of input and target differ.
    #[track_caller]
    pub fn binary_cross_entropy(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        BINARY_CROSS_ENTROPY.call((self, target, weight, reduction.number()))
    }

    /// [`Tensor::binary_cross_entropy`] of `sigmoid(self)`, computed without overflow. `pos_weight` multiplies the loss
    /// of positive targets. The losses have the sizes of `self`. They are returned as they are, or reduced to their sum
    /// or mean (0-dim).
    ///
    /// # Errors
    /// If a dtype is not floating, if the sizes of input and target differ, or if those of the weights do not
    /// broadcast.
    #[track_caller]
    pub fn binary_cross_entropy_with_logits(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        pos_weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        WITH_LOGITS.call((self, target, weight, pos_weight, reduction.number()))
    }

    /// Kullback-Leibler divergence of log-probabilities `x` from a target distribution `t`, element by element: `t (log
    /// t - x)`, and 0 where `t` is 0. With `log_target` the target holds log-probabilities too. The mean is over all
    /// elements. Sizes are broadcast, dtypes promoted. The losses are returned as they are, or reduced to their sum or
    /// mean (0-dim).
    ///
    /// # Errors
    /// If a dtype is not floating, or if the sizes do not broadcast.
    #[track_caller]
    pub fn kl_div(&self, target: &Tensor, reduction: Reduction, log_target: bool) -> Result<Tensor> {
        KL_DIV.call((self, target, reduction.number(), log_target))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&MSE_LOSS, mse_loss)?
        .composite(&L1_LOSS, l1_loss)?
        .composite(&SMOOTH_L1_LOSS, smooth_l1_loss)?
        .composite(&HUBER_LOSS, huber_loss)?
        .composite(&BINARY_CROSS_ENTROPY, binary_cross_entropy)?
        .composite(&WITH_LOGITS, binary_cross_entropy_with_logits)?
        .composite(&KL_DIV, kl_div)?;
    gradients(library)
}

fn gradients(library: &mut Library) -> Result<()> {
    library
        .def_kernel(
            "mse_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction) -> Tensor",
            mse_loss_backward,
        )?
        .def_kernel(
            "smooth_l1_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction, float beta) -> \
             Tensor",
            smooth_l1_loss_backward,
        )?
        .def_kernel(
            "huber_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction, float delta) -> \
             Tensor",
            huber_loss_backward,
        )?
        .def_kernel(
            "binary_cross_entropy_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight=None, int \
             reduction=Mean) -> Tensor",
            binary_cross_entropy_backward,
        )?;
    Ok(())
}

/// Computes an element-wise loss: checks and widens the operands, and reduces and rounds the result.
fn elementwise(
    op: &str,
    x: &Tensor,
    target: &Tensor,
    reduction: i64,
    loss: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    need_float(op, &[x, target])?;
    let reduction = Reduction::of_number(op, reduction)?;
    let loss = loss(&widened(x)?, &widened(target)?)?;
    let loss = match reduction {
        Reduction::None => loss,
        Reduction::Mean => loss.mean_all()?,
        Reduction::Sum => loss.sum_all()?,
    };
    loss.to_dtype(promoted(x, target))
}

fn promoted(x: &Tensor, target: &Tensor) -> DType {
    promote_all([x.ty().promote_operand(), target.ty().promote_operand()]).unwrap_or(x.dtype())
}

fn mse_loss(x: &Tensor, target: &Tensor, reduction: i64) -> Result<Tensor> {
    elementwise("mse_loss", x, target, reduction, |x, t| x.sub(t)?.square())
}

fn l1_loss(x: &Tensor, target: &Tensor, reduction: i64) -> Result<Tensor> {
    elementwise("l1_loss", x, target, reduction, |x, t| x.sub(t)?.abs())
}

fn smooth_l1_loss(x: &Tensor, target: &Tensor, reduction: i64, beta: f64) -> Result<Tensor> {
    let op = "smooth_l1_loss";
    if beta < 0.0 {
        return Err(Error::argument(op, format!("beta is {beta}; it must not be negative")));
    }
    elementwise(op, x, target, reduction, |x, t| {
        let distance = x.sub(t)?;
        let far = distance.abs()?;
        if beta == 0.0 {
            return Ok(far);
        }
        far.lt(beta)?.where_(distance.square()?.mul(0.5 / beta)?, far.sub(0.5 * beta)?)
    })
}

fn huber_loss(x: &Tensor, target: &Tensor, reduction: i64, delta: f64) -> Result<Tensor> {
    let op = "huber_loss";
    if delta <= 0.0 {
        return Err(Error::argument(op, format!("delta is {delta}; it must be positive")));
    }
    elementwise(op, x, target, reduction, |x, t| {
        let distance = x.sub(t)?;
        let far = distance.abs()?;
        far.le(delta)?.where_(distance.square()?.mul(0.5)?, far.sub(0.5 * delta)?.mul(delta)?)
    })
}

fn binary_cross_entropy(x: &Tensor, target: &Tensor, weight: Option<&Tensor>, reduction: i64) -> Result<Tensor> {
    same_sizes("binary_cross_entropy", x, target)?;
    elementwise("binary_cross_entropy", x, target, reduction, |x, t| {
        weighted(call(Op::BinaryCrossEntropy, &[x, t], &[])?, weight)
    })
}

fn binary_cross_entropy_with_logits(
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    pos_weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Tensor> {
    let op = "binary_cross_entropy_with_logits";
    same_sizes(op, x, target)?;
    elementwise(op, x, target, reduction, |x, t| {
        // `log(sigmoid(x))`. At a tie `minimum` gives half the gradient, which is the slope at 0.
        let log_yes = x.minimum(0.0)?.sub(x.abs()?.neg()?.exp()?.log1p())?;
        let log_yes = match pos_weight {
            Some(pos_weight) => log_yes.mul(widened(pos_weight)?.sub(1.0)?.mul(t)?.add(1.0))?,
            None => log_yes,
        };
        weighted(one_minus(t)?.mul(x)?.sub(log_yes)?, weight)
    })
}

fn kl_div(x: &Tensor, target: &Tensor, reduction: i64, log_target: bool) -> Result<Tensor> {
    elementwise("kl_div", x, target, reduction, |x, t| {
        if log_target {
            return t.exp()?.mul(t.sub(x)?);
        }
        let entropy = t.mul(t.masked_fill(&t.eq(0.0)?, 1.0)?.log()?)?;
        entropy.sub(t.mul(x)?)
    })
}

/// `gradient * slope(x - target)`, divided by the number of elements for a mean.
fn by_distance(
    op: &str,
    gradient: &Tensor,
    x: &Tensor,
    target: &Tensor,
    reduction: i64,
    slope: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    need_float(op, &[gradient, x, target])?;
    let distance = widened(x)?.sub(&widened(target)?)?;
    let slope = slope(&distance)?.mul(widened(gradient)?)?;
    let slope = match Reduction::of_number(op, reduction)? {
        Reduction::None | Reduction::Sum => slope,
        Reduction::Mean => slope.div(&extent(distance.numel())?)?,
    };
    slope.to_dtype(promoted(x, target))
}

fn mse_loss_backward(gradient: &Tensor, x: &Tensor, target: &Tensor, reduction: i64) -> Result<Tensor> {
    by_distance("mse_loss_backward", gradient, x, target, reduction, |distance| distance.mul(2.0))
}

fn smooth_l1_loss_backward(
    gradient: &Tensor,
    x: &Tensor,
    target: &Tensor,
    reduction: i64,
    beta: f64,
) -> Result<Tensor> {
    by_distance("smooth_l1_loss_backward", gradient, x, target, reduction, |distance| {
        distance.abs()?.lt(beta)?.where_(distance.div(beta)?, distance.sign()?)
    })
}

fn huber_loss_backward(gradient: &Tensor, x: &Tensor, target: &Tensor, reduction: i64, delta: f64) -> Result<Tensor> {
    by_distance("huber_loss_backward", gradient, x, target, reduction, |distance| {
        distance.clamp(Some((-delta).into()), Some(delta.into()))
    })
}

/// `(x - t) / (x (1 - x))`, with the divisor at least 1e-12.
fn binary_cross_entropy_backward(
    gradient: &Tensor,
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Tensor> {
    by_distance("binary_cross_entropy_backward", gradient, x, target, reduction, |distance| {
        let x = widened(x)?;
        weighted(distance.div(one_minus(&x)?.mul(&x)?.clamp_min(1e-12)?)?, weight)
    })
}

fn one_minus(x: &Tensor) -> Result<Tensor> {
    x.neg()?.add(1.0)
}

fn weighted(loss: Tensor, weight: Option<&Tensor>) -> Result<Tensor> {
    weight.map_or_else(|| Ok(loss.clone()), |weight| loss.mul(widened(weight)?))
}

fn same_sizes(op: &str, x: &Tensor, target: &Tensor) -> Result<()> {
    if x.sizes() == target.sizes() {
        return Ok(());
    }
    let what = format!("target size {:?} differs from input size {:?}", target.sizes(), x.sizes());
    Err(Error::shape(op, what, "they must be the same"))
}
