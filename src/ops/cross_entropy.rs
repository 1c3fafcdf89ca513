//! Classification losses and their gradients: negative log-likelihood (`nll_loss`) and cross entropy.
//!
//! Classes lie along dim 1, or along dim 0 of a 1-dim input. An ignored target is read as class 0 and masked
//! afterwards, so the value there does not matter.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::{DType, Scalar};
use crate::ops::arguments::{need_float, wide, widened};
use crate::ops::composite::Composite;
use crate::ops::factories::{full_on, range_on};
use crate::ops::losses::Reduction;
use crate::tensor::handle::Tensor;
use crate::tensor::observer::extent;

static NLL_LOSS: Composite = Composite::new(
    "nll_loss_nd(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, SymInt ignore_index=-100) -> \
     Tensor",
);
static CROSS_ENTROPY: Composite = Composite::new(
    "cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, SymInt \
     ignore_index=-100, float label_smoothing=0.0) -> Tensor",
);

/// The optional arguments of [`Tensor::cross_entropy`] and [`Tensor::nll_loss`].
#[derive(Debug, Clone)]
pub struct CrossEntropy<'a> {
    /// The weight of each class.
    pub weight: Option<&'a Tensor>,
    /// How the losses are reduced. The mean is weighted by the classes of the targets.
    pub reduction: Reduction,
    /// Targets with this class number do not count.
    pub ignore_index: i64,
    /// The share of each target that is spread evenly over all classes, from 0 to 1 (Szegedy et al. 2016).
    pub label_smoothing: f64,
}

impl Default for CrossEntropy<'_> {
    fn default() -> Self {
        CrossEntropy { weight: None, reduction: Reduction::Mean, ignore_index: -100, label_smoothing: 0.0 }
    }
}

/// Classification losses. Targets are class numbers, or probabilities per class.
impl Tensor {
    /// Negative log-likelihood: `-weight[t] * self[t]`. `self` holds log-probabilities, `(N, C, …)` or `(C)`. `target`
    /// holds the class numbers `t`, `(N, …)` or 0-dim. The losses have the sizes of `target`. They are returned as they
    /// are, or reduced to their sum or mean (0-dim). The dtype is that of `self`. `label_smoothing` is ignored.
    ///
    /// # Errors
    /// If the input is not floating, if the target is not i64 or u8 or has other sizes, if a class number is out of
    /// range, or if there is not one weight per class.
    #[track_caller]
    pub fn nll_loss(&self, target: &Tensor, options: &CrossEntropy<'_>) -> Result<Tensor> {
        let CrossEntropy { weight, reduction, ignore_index, .. } = *options;
        NLL_LOSS.call((self, target, weight, reduction.number(), ignore_index))
    }

    /// Cross entropy of `softmax(self)` and `target`. `self` holds logits, `(N, C, …)` or `(C)`. `target` holds class
    /// numbers, `(N, …)` or 0-dim, or probabilities in the sizes of `self`. The losses have the sizes of class numbers.
    /// They are returned as they are, or reduced to their sum or mean (0-dim). The dtype is that of `self`.
    ///
    /// # Errors
    /// Same as [`Tensor::nll_loss`]. Also if probabilities are not floating, or are given with an `ignore_index` that
    /// is not negative.
    #[track_caller]
    pub fn cross_entropy(&self, target: &Tensor, options: &CrossEntropy<'_>) -> Result<Tensor> {
        let CrossEntropy { weight, reduction, ignore_index, label_smoothing } = *options;
        CROSS_ENTROPY.call((self, target, weight, reduction.number(), ignore_index, label_smoothing))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(
            &NLL_LOSS,
            |x: &Tensor, target: &Tensor, weight: Option<&Tensor>, reduction: i64, ignore_index: i64| {
                nll("nll_loss_nd", x, target, weight, reduction, ignore_index).map(|(loss, _)| loss)
            },
        )?
        .def_kernel(
            "nll_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, SymInt \
             ignore_index=-100) -> Tensor",
            |x: &Tensor, target: &Tensor, weight: Option<&Tensor>, reduction: i64, ignore_index: i64| {
                nll("nll_loss", x, target, weight, reduction, ignore_index).map(|(loss, _)| loss)
            },
        )?
        .def_kernel(
            "nll_loss2d(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, SymInt \
             ignore_index=-100) -> Tensor",
            |x: &Tensor, target: &Tensor, weight: Option<&Tensor>, reduction: i64, ignore_index: i64| {
                nll("nll_loss2d", x, target, weight, reduction, ignore_index).map(|(loss, _)| loss)
            },
        )?
        .def_kernel(
            "nll_loss2d_forward(Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index) -> \
             (Tensor output, Tensor total_weight)",
            |x: &Tensor, target: &Tensor, weight: Option<&Tensor>, reduction: i64, ignore_index: i64| {
                nll("nll_loss2d_forward", x, target, weight, reduction, ignore_index)
            },
        )?
        .def_kernel(
            "nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index) -> \
             (Tensor output, Tensor total_weight)",
            |x: &Tensor, target: &Tensor, weight: Option<&Tensor>, reduction: i64, ignore_index: i64| {
                nll("nll_loss_forward", x, target, weight, reduction, ignore_index)
            },
        )?
        .def_kernel(
            "nll_loss_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int reduction, SymInt \
             ignore_index, Tensor total_weight) -> Tensor",
            nll_loss_backward,
        )?
        .composite(&CROSS_ENTROPY, cross_entropy_loss)?;
    Ok(())
}

/// The negative log-likelihood, and the total weight that its mean is divided by (0 without a reduction).
fn nll(
    op: &str,
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore_index: i64,
) -> Result<(Tensor, Tensor)> {
    need_float(op, &[x])?;
    let Picked { class_dim, ignored, index, weights } = Picked::new(op, x, target, weight, ignore_index)?;
    let likelihoods = widened(x)?.gather(class_dim, &index).map_err(|error| as_target(op, error))?;
    let losses = likelihoods.squeeze(class_dim)?.neg()?.mul(&weights)?.masked_fill(&ignored, 0.0)?;
    let (loss, total) = match Reduction::of_number(op, reduction)? {
        Reduction::None => (losses, full_on(x.device(), &[], Scalar::Int(0), Some(x.dtype()))?),
        Reduction::Mean => {
            let total = weights.sum_all()?;
            (losses.sum_all()?.div(&total)?, total)
        }
        Reduction::Sum => (losses.sum_all()?, weights.sum_all()?),
    };
    Ok((loss.to_dtype(x.dtype())?, total.to_dtype(x.dtype())?))
}

fn nll_loss_backward(
    gradient: &Tensor,
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore_index: i64,
    total_weight: &Tensor,
) -> Result<Tensor> {
    let op = "nll_loss_backward";
    let Picked { class_dim, ignored, index, weights } = Picked::new(op, x, target, weight, ignore_index)?;
    let gradient = widened(gradient)?.mul(&weights)?.neg()?;
    let gradient = match Reduction::of_number(op, reduction)? {
        Reduction::None | Reduction::Sum => gradient,
        Reduction::Mean => gradient.div(widened(total_weight)?)?,
    };
    let gradient = gradient.masked_fill(&ignored, 0.0)?.unsqueeze(class_dim)?;
    let classes = range_on(x.device(), 0, n_classes(x, class_dim) as i64, None)?;
    along_classes(&classes, x, class_dim)?.eq(&index)?.where_(gradient, 0.0)?.to_dtype(x.dtype())
}

fn cross_entropy_loss(
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore_index: i64,
    label_smoothing: f64,
) -> Result<Tensor> {
    let op = "cross_entropy_loss";
    need_float(op, &[x])?;
    if !(0.0..=1.0).contains(&label_smoothing) {
        return Err(Error::argument(op, format!("label_smoothing is {label_smoothing}; it must be between 0 and 1")));
    }
    let class_dim = class_dim(op, x)?;
    let log_probabilities = widened(x)?.log_softmax(class_dim)?;
    let loss = if x.sizes() == target.sizes() {
        if ignore_index >= 0 {
            return Err(Error::argument(op, "ignore_index is not supported for targets that are probabilities"));
        }
        of_probabilities(&log_probabilities, target, weight, Reduction::of_number(op, reduction)?, label_smoothing)?
    } else {
        let (hard, total) = nll(op, &log_probabilities, target, weight, reduction, ignore_index)?;
        if label_smoothing == 0.0 {
            hard
        } else {
            let ignored = target.eq(ignore_index)?;
            let even = even_loss(&log_probabilities, &ignored, weight, Reduction::of_number(op, reduction)?, &total)?;
            let share = label_smoothing / n_classes(x, class_dim) as f64;
            hard.mul(1.0 - label_smoothing)?.add(even.mul(share)?)?
        }
    };
    loss.to_dtype(x.dtype())
}

/// Targets in the form that the loss gathers by.
struct Picked {
    class_dim: i64,
    ignored: Tensor,
    /// The class numbers as an index into the input, 0 for ignored targets.
    index: Tensor,
    /// The weight of each target, 0 for ignored targets.
    weights: Tensor,
}

impl Picked {
    fn new(op: &str, x: &Tensor, target: &Tensor, weight: Option<&Tensor>, ignore_index: i64) -> Result<Picked> {
        if !matches!(target.dtype(), DType::I64 | DType::U8) {
            return Err(Error::dtype(op, target.dtype(), "i64 or u8", "targets are class numbers"));
        }
        let class_dim = class_dim(op, x)?;
        let (outer, inner) = x.sizes().split_at(class_dim as usize);
        let expected = [outer, &inner[1..]].concat();
        if target.sizes() != expected {
            let what = format!("input shape {:?} and target shape {:?} do not fit", x.sizes(), target.sizes());
            return Err(Error::shape(op, what, format!("the target must have shape {expected:?}")));
        }
        check_weight(op, x, class_dim, weight)?;
        let target = target.to_dtype(DType::I64)?;
        let ignored = target.eq(ignore_index)?;
        let target = target.masked_fill(&ignored, 0)?;
        let weights = match weight {
            Some(weight) => {
                let picked = widened(weight)?.index_select(0, &target.reshape(-1)?);
                picked.map_err(|error| as_target(op, error))?.view(target.sizes())?
            }
            None => full_on(x.device(), target.sizes(), Scalar::Int(1), Some(wide(x.dtype())))?,
        };
        let weights = weights.masked_fill(&ignored, 0.0)?;
        Ok(Picked { class_dim, ignored, index: target.unsqueeze(class_dim)?, weights })
    }
}

/// Turns an error about an index into an error about the target.
fn as_target(op: &str, error: Error) -> Error {
    match error {
        Error::OutOfRange { low, high, got, .. } => Error::out_of_range(op, "target", [low, high], got),
        Error::Argument { what, .. } if what.contains("out of bounds") => {
            Error::index(op, format!("target out of range: {what}"), "targets name classes")
        }
        other => other,
    }
}

fn class_dim(op: &str, x: &Tensor) -> Result<i64> {
    match x.dim() {
        0 => Err(Error::shape(op, "the input is 0-dim", "pass one value per class: (C) or (N, C, …)")),
        1 => Ok(0),
        _ => Ok(1),
    }
}

fn n_classes(x: &Tensor, class_dim: i64) -> usize {
    x.sizes()[class_dim as usize]
}

fn check_weight(op: &str, x: &Tensor, class_dim: i64, weight: Option<&Tensor>) -> Result<()> {
    let n = n_classes(x, class_dim);
    match weight {
        Some(weight) if weight.sizes() != [n] => {
            let what = format!("weight has shape {:?} for {n} classes", weight.sizes());
            Err(Error::shape(op, what, "pass one weight per class"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Reshapes one value per class so that it broadcasts to `x`.
fn along_classes(value: &Tensor, x: &Tensor, class_dim: i64) -> Result<Tensor> {
    let trailing = vec![1; x.dim() - 1 - class_dim as usize];
    value.view(&[value.sizes(), &trailing[..]].concat()[..])
}

fn times_weight(x: Tensor, weight: Option<&Tensor>, class_dim: i64) -> Result<Tensor> {
    weight.map_or_else(|| Ok(x.clone()), |weight| x.mul(along_classes(&widened(weight)?, &x, class_dim)?))
}

/// Cross entropy with a target of probabilities.
fn of_probabilities(
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: Reduction,
    label_smoothing: f64,
) -> Result<Tensor> {
    let op = "cross_entropy_loss";
    need_float(op, &[target])?;
    let class_dim = class_dim(op, x)?;
    check_weight(op, x, class_dim, weight)?;
    let n = n_classes(x, class_dim);
    let mut target = widened(target)?;
    if label_smoothing > 0.0 {
        target = target.mul(1.0 - label_smoothing)?.add(label_smoothing / n as f64)?;
    }
    let losses = times_weight(x.mul(target)?, weight, class_dim)?;
    match reduction {
        Reduction::None => losses.sum(class_dim, false)?.neg(),
        Reduction::Sum => losses.sum_all()?.neg(),
        // Not divided by weights: such a target may name every class.
        Reduction::Mean => losses.sum_all()?.neg()?.div(&extent(x.numel() / n.max(1))?),
    }
}

/// The loss against a uniform target, which is the smoothed part of the label.
fn even_loss(
    x: &Tensor,
    ignored: &Tensor,
    weight: Option<&Tensor>,
    reduction: Reduction,
    total_weight: &Tensor,
) -> Result<Tensor> {
    let class_dim = class_dim("cross_entropy_loss", x)?;
    let losses = times_weight(x.clone(), weight, class_dim)?.sum(class_dim, false)?.neg()?;
    let losses = losses.masked_fill(ignored, 0.0)?;
    match reduction {
        Reduction::None => Ok(losses),
        Reduction::Sum => losses.sum_all(),
        Reduction::Mean => losses.sum_all()?.div(total_weight),
    }
}
