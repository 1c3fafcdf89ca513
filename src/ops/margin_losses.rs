//! Losses of margins, pairs and triplets, and of Poisson rates.
//!
//! They follow PyTorch's formulas, in f32 or wider, and are rounded once. Gradients come from the parts. `nn::losses`
//! has the functions that call them.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::{DType, Scalar};
use crate::ops::arguments::{need_float, widened};
use crate::ops::composite::Composite;
use crate::ops::factories::range_on;
use crate::ops::losses::Reduction;
use crate::tensor::handle::Tensor;

pub(crate) static HINGE_EMBEDDING: Composite =
    Composite::new("hinge_embedding_loss(Tensor self, Tensor target, float margin=1.0, int reduction=Mean) -> Tensor");
pub(crate) static MARGIN_RANKING: Composite = Composite::new(
    "margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=Mean) -> Tensor",
);
pub(crate) static COSINE_EMBEDDING: Composite = Composite::new(
    "cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=Mean) -> \
     Tensor",
);
pub(crate) static TRIPLET_MARGIN: Composite = Composite::new(
    "triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2, float \
     eps=1e-06, bool swap=False, int reduction=Mean) -> Tensor",
);
pub(crate) static SOFT_MARGIN: Composite =
    Composite::new("soft_margin_loss(Tensor self, Tensor target, int reduction=Mean) -> Tensor");
pub(crate) static MULTI_MARGIN: Composite = Composite::new(
    "multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None, int \
     reduction=Mean) -> Tensor",
);
pub(crate) static POISSON_NLL: Composite = Composite::new(
    "poisson_nll_loss(Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction) -> Tensor",
);

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&HINGE_EMBEDDING, hinge_embedding_loss)?
        .composite(&MARGIN_RANKING, margin_ranking_loss)?
        .composite(&COSINE_EMBEDDING, cosine_embedding_loss)?
        .composite(&TRIPLET_MARGIN, triplet_margin_loss)?
        .composite(&SOFT_MARGIN, |x: &Tensor, target: &Tensor, reduction: i64| {
            let op = "soft_margin_loss";
            let [x] = operands(op, [x])?;
            reduced(op, &widened(target)?.neg()?.mul(&x)?.exp()?.log1p()?, reduction)
        })?
        .composite(
            &MULTI_MARGIN,
            |x: &Tensor, target: &Tensor, p: Scalar, margin: Scalar, weight: Option<&Tensor>, reduction: i64| {
                multi_margin_loss(x, target, p.as_f64(), margin.as_f64(), weight, reduction)
            },
        )?
        .def_kernel(
            "multilabel_margin_loss(Tensor self, Tensor target, int reduction=Mean) -> Tensor",
            multilabel_margin_loss,
        )?
        .composite(&POISSON_NLL, poisson_nll_loss)?;
    Ok(())
}

fn operands<const N: usize>(op: &str, tensors: [&Tensor; N]) -> Result<[Tensor; N]> {
    need_float(op, &tensors)?;
    let wide = tensors.iter().map(|tensor| widened(tensor)).collect::<Result<Vec<_>>>()?;
    wide.try_into().map_err(|_| Error::Internal { message: "there are as many tensors as before".into() })
}

fn reduced(op: &str, loss: &Tensor, reduction: i64) -> Result<Tensor> {
    match Reduction::of_number(op, reduction)? {
        Reduction::None => Ok(loss.clone()),
        Reduction::Mean => loss.mean_all(),
        Reduction::Sum => loss.sum_all(),
    }
}

/// `x` where the target is 1, and `max(0, margin - x)` where it is -1.
fn hinge_embedding_loss(x: &Tensor, target: &Tensor, margin: f64, reduction: i64) -> Result<Tensor> {
    let op = "hinge_embedding_loss";
    let dtype = x.dtype();
    let [x] = operands(op, [x])?;
    let apart = x.neg()?.add(margin)?.clamp_min(0.0)?;
    let zero = x.mul(0.0)?;
    let of_pairs = target.ne(1)?.where_(&zero, &x)?;
    let of_others = target.ne(-1)?.where_(&zero, &apart)?;
    reduced(op, &of_pairs.add(&of_others)?, reduction)?.to_dtype(dtype)
}

/// `max(0, margin - target * (a - b))`.
fn margin_ranking_loss(a: &Tensor, b: &Tensor, target: &Tensor, margin: f64, reduction: i64) -> Result<Tensor> {
    let op = "margin_ranking_loss";
    let dtype = a.dtype();
    let [a, b] = operands(op, [a, b])?;
    let loss = target.neg()?.mul(&a.sub(&b)?)?.add(margin)?.clamp_min(0.0)?;
    reduced(op, &loss, reduction)?.to_dtype(dtype)
}

/// `1 - cos` where the target is 1, and `max(0, cos - margin)` where it is -1.
fn cosine_embedding_loss(a: &Tensor, b: &Tensor, target: &Tensor, margin: f64, reduction: i64) -> Result<Tensor> {
    const EPSILON: f64 = 1e-12;
    let op = "cosine_embedding_loss";
    let dtype = a.dtype();
    let [a, b] = operands(op, [a, b])?;
    let products = a.mul(&b)?.sum(-1, false)?;
    let [a, b] = [&a, &b].map(|x| x.square()?.sum(-1, false)?.add(EPSILON));
    let cosine = products.div(&a?.mul(&b?)?.sqrt()?)?;
    let zero = cosine.mul(0.0)?;
    let of_pairs = target.eq(1)?.where_(&cosine.neg()?.add(1.0)?, &zero)?;
    let of_others = target.eq(-1)?.where_(&cosine.sub(margin)?.clamp_min(0.0)?, &zero)?;
    reduced(op, &of_pairs.add(&of_others)?, reduction)?.to_dtype(dtype)
}

/// `max(0, |anchor - positive| - |anchor - negative| + margin)`.
#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn triplet_margin_loss(
    anchor: &Tensor,
    positive: &Tensor,
    negative: &Tensor,
    margin: f64,
    p: f64,
    eps: f64,
    swap: bool,
    reduction: i64,
) -> Result<Tensor> {
    let op = "triplet_margin_loss";
    let dtype = anchor.dtype();
    let [anchor, positive, negative] = operands(op, [anchor, positive, negative])?;
    let distance = |a: &Tensor, b: &Tensor| a.sub(b)?.add(eps)?.norm(p, -1, false);
    let near = distance(&anchor, &positive)?;
    let mut far = distance(&anchor, &negative)?;
    if swap {
        far = far.minimum(&distance(&positive, &negative)?)?;
    }
    reduced(op, &near.sub(&far)?.add(margin)?.clamp_min(0.0)?, reduction)?.to_dtype(dtype)
}

/// The mean over the other classes of `max(0, margin - x[target] + x[class])^p`.
fn multi_margin_loss(
    x: &Tensor,
    target: &Tensor,
    p: f64,
    margin: f64,
    weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Tensor> {
    let op = "multi_margin_loss";
    let dtype = x.dtype();
    let [scores] = operands(op, [x])?;
    let (is_one, classes) = (x.dim() == 1, x.sizes().last().copied().unwrap_or(1));
    if !(1..=2).contains(&x.dim()) || target.numel() * classes != x.numel() || ![1.0, 2.0].contains(&p) {
        let what = format!("scores {:?}, target {:?} and p = {p}", x.sizes(), target.sizes());
        return Err(Error::shape(op, what, "there must be one target for each row of scores, and p must be 1 or 2"));
    }
    let scores = scores.reshape([-1, classes as i64])?;
    let target = target.reshape([-1, 1])?;
    let apart = scores.sub(&scores.gather(1, &target)?)?.add(margin)?.clamp_min(0.0)?;
    let mut loss = if p == 2.0 { apart.square()? } else { apart };
    if let Some(weight) = weight {
        loss = loss.mul(&widened(weight)?.index_select(0, &target.view(-1)?)?.unsqueeze(1)?)?;
    }
    let is_target = range_on(x.device(), 0, classes as i64, Some(DType::I64))?.eq(&target)?;
    let loss = loss.masked_fill(&is_target, 0.0)?.sum(1, false)?.div(classes as f64)?;
    let loss = if is_one { loss.squeeze(0)? } else { loss };
    reduced(op, &loss, reduction)?.to_dtype(dtype)
}

/// The mean over classes of `max(0, 1 - x[target] + x[class])`, summed over the targets of a row. Classes that are
/// targets do not count. The targets of a row end at the first negative number.
fn multilabel_margin_loss(x: &Tensor, target: &Tensor, reduction: i64) -> Result<Tensor> {
    let op = "multilabel_margin_loss";
    let dtype = x.dtype();
    let [scores] = operands(op, [x])?;
    if !(1..=2).contains(&x.dim()) || x.sizes() != target.sizes() {
        let what = format!("scores {:?} and target {:?}", x.sizes(), target.sizes());
        return Err(Error::shape(op, what, "both must have one shape, with 1 or 2 dims"));
    }
    let is_one = x.dim() == 1;
    let classes = x.sizes().last().copied().unwrap_or(1);
    let [scores, target] = [&scores, target].map(|x| x.reshape([-1, classes as i64]));
    let (scores, target) = (scores?, target?);
    let is_listed = target.lt(0)?.to_dtype(DType::I64)?.cumsum(1)?.eq(0)?;
    let places = is_listed.where_(&target, 0)?;
    let is_target = scores.zeros_like()?.scatter_add(1, &places, &is_listed.to_dtype(scores.dtype())?)?.gt(0)?;
    let of_targets = scores.gather(1, &places)?.unsqueeze(2)?;
    let apart = scores.unsqueeze(1)?.sub(&of_targets)?.add(1.0)?.clamp_min(0.0)?;
    let counts = is_listed.unsqueeze(2)?.logical_and(&is_target.logical_not()?.unsqueeze(1)?)?;
    let loss = counts.where_(&apart, 0.0)?.sum([1, 2], false)?.div(classes as f64)?;
    let loss = if is_one { loss.squeeze(0)? } else { loss };
    reduced(op, &loss, reduction)?.to_dtype(dtype)
}

/// The negative logarithm of the probability of a count at a rate.
fn poisson_nll_loss(
    input: &Tensor,
    target: &Tensor,
    log_input: bool,
    full: bool,
    eps: f64,
    reduction: i64,
) -> Result<Tensor> {
    let op = "poisson_nll_loss";
    let dtype = input.dtype();
    let ([input], target) = (operands(op, [input])?, widened(target)?);
    let mut loss = match log_input {
        true => input.exp()?.sub(&target.mul(&input)?)?,
        false => input.sub(&target.mul(&input.add(eps)?.log()?)?)?,
    };
    if full {
        // Stirling's approximation of the logarithm of the factorial.
        let halves = target.mul(2.0 * std::f64::consts::PI)?.log()?.mul(0.5)?;
        let factorial = target.mul(&target.log()?)?.sub(&target)?.add(&halves)?;
        loss = loss.add(&factorial.masked_fill(&target.le(1.0)?, 0.0)?)?;
    }
    reduced(op, &loss, reduction)?.to_dtype(dtype)
}
