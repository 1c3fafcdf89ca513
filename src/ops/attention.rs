//! Scaled dot-product attention.
//!
//! It is computed as two products and a softmax, in f32 for 16-bit operands, and rounded once. A row that is masked
//! completely gives zeros.

use crate::dispatch::key::grad_mode::no_grad;
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::{DType, Scalar};
use crate::ops::arguments::{need_float, widened};
use crate::ops::composite::Composite;
use crate::ops::factories::full_on;
use crate::tensor::handle::Tensor;

static ATTENTION: Composite = Composite::new(
    "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float \
     dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor",
);

/// The optional arguments of [`Tensor::attention`].
#[derive(Debug, Clone, Default)]
pub struct Attention<'a> {
    /// Which positions are attended to. It broadcasts to `(…, L, S)`. A bool mask excludes positions where it is false.
    /// A floating mask is added to the scores.
    pub mask: Option<&'a Tensor>,
    /// Whether position `i` attends only to positions up to `i`.
    pub is_causal: bool,
    /// The factor of the scores. The default is `1 / sqrt(E)` for `E` features.
    pub scale: Option<f64>,
    /// Whether key and value may have fewer heads (dim −3) than the query, so that groups of query heads share them
    /// (Ainslie et al. 2023).
    pub shares_heads: bool,
}

/// Attention. 16-bit floats are computed in f32 and rounded once.
impl Tensor {
    /// Scaled dot-product attention (Vaswani et al. 2017): `softmax(self @ key' * scale) @ value`. `self` is the query
    /// `(…, L, E)`, `key` is `(…, S, E)`, and `value` is `(…, S, V)`. The result is `(…, L, V)`. A position that may
    /// attend to nothing gets zeros. All operands have the same dtype, which the result gets.
    ///
    /// # Errors
    /// If dtypes differ or are not floating, if shapes do not fit, or if both a mask and `is_causal` are given.
    #[track_caller]
    pub fn attention(&self, key: &Tensor, value: &Tensor, options: &Attention<'_>) -> Result<Tensor> {
        let Attention { mask, is_causal, scale, shares_heads } = *options;
        ATTENTION.call((self, key, value, mask, 0.0, is_causal, scale, shares_heads))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&ATTENTION, attention)?
        .def_kernel(
            "_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0.0, \
             bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)",
            flash_attention,
        )?
        .def_kernel(
            "_scaled_dot_product_flash_attention_for_cpu_backward(Tensor grad_out, Tensor query, Tensor key, Tensor \
             value, Tensor out, Tensor logsumexp, float dropout_p, bool is_causal, *, Tensor? attn_mask=None, float? \
             scale=None) -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)",
            flash_attention_backward,
        )?;
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
    dropout: f64,
    is_causal: bool,
    scale: Option<f64>,
    shares_heads: bool,
) -> Result<Tensor> {
    let op = "scaled_dot_product_attention";
    check(op, query, key, value)?;
    check_options(op, mask, dropout, is_causal)?;
    let (key, value) = if shares_heads {
        (with_heads_of(op, query, key)?, with_heads_of(op, query, value)?)
    } else {
        (key.clone(), value.clone())
    };
    let scores = scaled_products(query, &key, scale)?;
    let causal = causal_mask(query, &key, is_causal)?;
    let weights = match causal.as_ref().or(mask) {
        Some(mask) => masked_softmax(op, &scores, mask, query.dtype())?,
        None => scores.softmax(-1)?,
    };
    let y = weights.matmul(&widened(&value)?)?.to_dtype(query.dtype())?;
    match y.dim() {
        // Heads lie beside each other in memory, as in PyTorch, so that they are joined again by a view.
        4 => y.transpose(1, 2)?.contiguous()?.transpose(1, 2),
        _other => Ok(y),
    }
}

/// The products of rows of the query with rows of the key, times the scale, `(…, L, S)`.
fn scaled_products(query: &Tensor, key: &Tensor, scale: Option<f64>) -> Result<Tensor> {
    widened(query)?.mul(factor(query, scale))?.matmul(&widened(key)?.transpose(-2, -1)?)
}

/// The scale of the scores, which is `1 / sqrt(E)` unless it was given.
fn factor(query: &Tensor, scale: Option<f64>) -> f64 {
    scale.unwrap_or_else(|| 1.0 / (query.sizes()[query.dim() - 1] as f64).sqrt())
}

/// True where position `i` may attend to position `j`: up to `i`.
fn causal_mask(query: &Tensor, key: &Tensor, is_causal: bool) -> Result<Option<Tensor>> {
    if !is_causal {
        return Ok(None);
    }
    let sizes = [query, key].map(|x| x.sizes()[x.dim() - 2]);
    Ok(Some(full_on(query.device(), &sizes, Scalar::Bool(true), Some(DType::Bool))?.tril(0)?))
}

/// Attention as programs of PyTorch contain it after their decomposition. The second result `(N, H, L)` has the
/// logarithms of the sums of the weights, without a gradient.
fn flash_attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    dropout: f64,
    is_causal: bool,
    mask: Option<&Tensor>,
    scale: Option<f64>,
) -> Result<(Tensor, Tensor)> {
    let op = "_scaled_dot_product_flash_attention_for_cpu";
    check_heads(op, &[query, key, value])?;
    let y = attention(query, key, value, mask, dropout, is_causal, scale, false)?;
    let _guard = no_grad();
    let sums = masked_scores(op, query, key, mask, is_causal, scale)?.logsumexp(-1, false)?;
    Ok((y, sums))
}

/// The gradients of attention with respect to query, key and value. The weights are computed again from the logarithms
/// of their sums (Dao et al. 2022, algorithm 4).
#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn flash_attention_backward(
    gradient: &Tensor,
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    y: &Tensor,
    sums: &Tensor,
    dropout: f64,
    is_causal: bool,
    mask: Option<&Tensor>,
    scale: Option<f64>,
) -> Result<(Tensor, Tensor, Tensor)> {
    let op = "_scaled_dot_product_flash_attention_for_cpu_backward";
    check_heads(op, &[query, key, value, gradient, y])?;
    check(op, query, key, value)?;
    check_options(op, mask, dropout, is_causal)?;
    let scores = masked_scores(op, query, key, mask, is_causal, scale)?;
    // A row without any position has minus infinity on both sides.
    let barred = sums.eq(f64::NEG_INFINITY)?.unsqueeze(-1)?;
    let weights = scores.sub(sums.unsqueeze(-1)?)?.exp()?.masked_fill(&barred, 0.0)?;
    let (gradient, dtype) = (widened(gradient)?, query.dtype());
    let by_value = weights.transpose(-2, -1)?.matmul(&gradient)?;
    let by_weights = gradient.matmul(&widened(value)?.transpose(-2, -1)?)?;
    let along = gradient.mul(widened(y)?)?.sum(-1, true)?;
    let by_scores = weights.mul(by_weights.sub(along)?)?.mul(factor(query, scale))?;
    let by_query = by_scores.matmul(&widened(key)?)?;
    let by_key = by_scores.transpose(-2, -1)?.matmul(&widened(query)?)?;
    Ok((by_query.to_dtype(dtype)?, by_key.to_dtype(dtype)?, by_value.to_dtype(dtype)?))
}

/// The scores, minus infinity where a position is barred.
fn masked_scores(
    op: &str,
    query: &Tensor,
    key: &Tensor,
    mask: Option<&Tensor>,
    is_causal: bool,
    scale: Option<f64>,
) -> Result<Tensor> {
    let scores = scaled_products(query, key, scale)?;
    match causal_mask(query, key, is_causal)?.as_ref().or(mask) {
        Some(mask) => masked(op, &scores, mask, query.dtype()),
        None => Ok(scores),
    }
}

fn check_heads(op: &str, tensors: &[&Tensor]) -> Result<()> {
    match tensors.iter().find(|x| x.dim() != 4) {
        Some(x) => Err(Error::shape(op, format!("shape {:?}", x.sizes()), "4 dims are needed: (N, heads, L, E)")),
        None => Ok(()),
    }
}

fn check_options(op: &str, mask: Option<&Tensor>, dropout: f64, is_causal: bool) -> Result<()> {
    if dropout != 0.0 {
        return Err(Error::argument(op, format!("dropout_p is {dropout}; drop out the inputs or the result instead")));
    }
    if is_causal && mask.is_some() {
        return Err(Error::argument(op, "attn_mask must not be given when is_causal is set"));
    }
    Ok(())
}

fn check(op: &str, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<()> {
    let all = [query, key, value];
    need_float(op, &all)?;
    if let Some(other) = all.iter().find(|other| other.dtype() != query.dtype()) {
        return Err(Error::dtype(op, other.dtype(), query.dtype().name(), "query, key and value must have one dtype"));
    }
    let shapes = || format!("shapes {:?}, {:?} and {:?}", query.sizes(), key.sizes(), value.sizes());
    if all.iter().any(|operand| operand.dim() < 2) {
        return Err(Error::shape(op, shapes(), "query, key and value must have at least 2 dims"));
    }
    let last = |x: &Tensor, from_end: usize| x.sizes()[x.dim() - from_end];
    if last(query, 1) != last(key, 1) || last(key, 2) != last(value, 2) {
        let hint = "query and key must have equally many features, key and value equally many positions";
        return Err(Error::shape(op, shapes(), hint));
    }
    Ok(())
}

/// Repeats each head (dim −3) of `x` so that there are as many as the query has.
fn with_heads_of(op: &str, query: &Tensor, x: &Tensor) -> Result<Tensor> {
    let heads = |x: &Tensor| x.dim().checked_sub(3).map(|dim| x.sizes()[dim]);
    let (Some(wanted), Some(own)) = (heads(query), heads(x)) else {
        let what = format!("shapes {:?} and {:?} have no heads", query.sizes(), x.sizes());
        return Err(Error::shape(op, what, "with enable_gqa there must be at least 3 dims"));
    };
    if wanted == own {
        return Ok(x.clone());
    }
    if own == 0 || wanted % own != 0 {
        let what = format!("{wanted} heads of the query and {own} of key or value, shapes {:?}", x.sizes());
        return Err(Error::shape(op, what, "the heads of the query must be a multiple of the others"));
    }
    let dim = x.dim() - 3;
    let mut repeated = x.sizes().to_vec();
    repeated.insert(dim + 1, wanted / own);
    let mut joined = x.sizes().to_vec();
    joined[dim] = wanted;
    x.unsqueeze(dim as i64 + 1)?.expand(&repeated[..])?.reshape(&joined[..])
}

/// The scores with a bool or floating mask.
fn masked(op: &str, scores: &Tensor, mask: &Tensor, dtype: DType) -> Result<Tensor> {
    match mask.dtype() {
        DType::Bool => mask.where_(scores, f64::NEG_INFINITY),
        found if found == dtype || found == DType::F32 => scores.add(&widened(mask)?),
        found => Err(Error::dtype(op, found, "bool, f32 or the dtype of the query", "convert attn_mask")),
    }
}

/// Softmax of the scores with a bool or floating mask.
fn masked_softmax(op: &str, scores: &Tensor, mask: &Tensor, dtype: DType) -> Result<Tensor> {
    let scores = masked(op, scores, mask, dtype)?;
    if scores.numel() == 0 {
        return scores.softmax(-1);
    }
    // A row without any position would be 0 / 0, in its gradient too. It is found by its maximum.
    let barred = scores.amax(-1, true)?.eq(f64::NEG_INFINITY)?;
    scores.masked_fill(&barred, 0.0)?.softmax(-1)?.masked_fill(&barred, 0.0)
}
