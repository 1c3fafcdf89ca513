//! Multi-head attention with projections.

use super::init::{constant_parameter, parameter, xavier_uniform};
use super::linear::Linear;
use super::module::{Forward, Module};
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ops::nn::Attention;
use crate::profile::stands_for;
use crate::tensor::Tensor;

/// What a position may not attend to. As in PyTorch's module, **true excludes**, unlike in [`Attention`].
#[derive(Debug, Clone, Copy, Default)]
pub struct AttentionMask<'a> {
    /// `(L, S)` or `(N * heads, L, S)`: bools that exclude, or floats that are added to the scores.
    pub mask: Option<&'a Tensor>,
    /// `(N, S)`: bools that exclude keys, or floats that are added to the scores.
    pub padding: Option<&'a Tensor>,
    /// Whether position `i` attends only to positions up to `i`.
    pub is_causal: bool,
}

/// Multi-head attention (Vaswani et al. 2017). Inputs are `(L, N, E)`, or `(N, L, E)` if the batch is first.
#[derive(Clone, Module)]
pub struct MultiheadAttention {
    /// The projections of query, key and value: `(3 E, E)`. `None` if keys or values have other sizes.
    pub in_proj_weight: Option<Tensor>,
    /// The projection of queries, if `in_proj_weight` is none.
    pub q_proj_weight: Option<Tensor>,
    /// The projection of keys, if `in_proj_weight` is none.
    pub k_proj_weight: Option<Tensor>,
    /// The projection of values, if `in_proj_weight` is none.
    pub v_proj_weight: Option<Tensor>,
    /// `(3 E,)`.
    pub in_proj_bias: Option<Tensor>,
    /// The projection of the result.
    pub out_proj: Linear,
    /// The number of heads.
    pub heads: usize,
    /// The probability that a weight is dropped in training.
    pub dropout: f64,
    /// Whether dim 0 is the batch. It is dim 1 by default, as in PyTorch.
    pub batch_first: bool,
    /// Whether it is in training.
    #[module(training)]
    pub training: bool,
}

impl MultiheadAttention {
    /// Attention of `features` in so many heads, with biases.
    ///
    /// # Errors
    /// If the features are not divisible by the heads.
    #[track_caller]
    pub fn new(features: usize, heads: usize) -> Result<MultiheadAttention> {
        if heads == 0 || !features.is_multiple_of(heads) {
            let what = format!("{features} features do not form {heads} heads; the number of heads must divide them");
            return Err(Error::argument("MultiheadAttention", what));
        }
        let weight = parameter(&[3 * features, features])?;
        xavier_uniform(&weight, 1.0)?;
        let out_proj = Linear::new(features, features)?;
        Ok(MultiheadAttention {
            in_proj_weight: Some(weight),
            q_proj_weight: None,
            k_proj_weight: None,
            v_proj_weight: None,
            in_proj_bias: Some(parameter(&[3 * features])?),
            out_proj: Linear { bias: Some(constant_parameter(&[features], 0.0)?), ..out_proj },
            heads,
            dropout: 0.0,
            batch_first: false,
            training: true,
        })
    }

    /// The layer for keys and values of other sizes than queries.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn with_sizes(self, keys: usize, values: usize) -> Result<MultiheadAttention> {
        let _place = stands_for();
        let features = self.out_proj.weight.sizes()[0];
        let of = |inputs: usize| {
            let weight = parameter(&[features, inputs])?;
            xavier_uniform(&weight, 1.0).map(|()| Some(weight))
        };
        let (q_proj_weight, k_proj_weight, v_proj_weight) = (of(features)?, of(keys)?, of(values)?);
        Ok(MultiheadAttention { in_proj_weight: None, q_proj_weight, k_proj_weight, v_proj_weight, ..self })
    }

    /// The result for queries, keys and values.
    ///
    /// # Errors
    /// If sizes or dtypes do not fit.
    #[track_caller]
    pub fn forward(&self, query: &Tensor, key: &Tensor, value: &Tensor, mask: &AttentionMask<'_>) -> Result<Tensor> {
        let _place = stands_for();
        let heads = self.projected(query, key, value)?;
        let mask = self.additive(mask, &heads)?;
        let [q, k, v] = &heads;
        if self.training && self.dropout > 0.0 {
            let weights = scores(q, k, mask.as_ref())?.dropout(self.dropout, true)?;
            return self.merged(&weights.matmul(v)?);
        }
        self.merged(&q.attention(k, v, &Attention { mask: mask.as_ref(), ..Attention::default() })?)
    }

    /// The result, and the weights `(N, L, S)`, which are the mean of those of all heads.
    ///
    /// # Errors
    /// As for [`MultiheadAttention::forward`].
    #[track_caller]
    pub fn forward_weights(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        mask: &AttentionMask<'_>,
    ) -> Result<(Tensor, Tensor)> {
        let _place = stands_for();
        let heads = self.projected(query, key, value)?;
        let mask = self.additive(mask, &heads)?;
        let weights = scores(&heads[0], &heads[1], mask.as_ref())?;
        let dropped = if self.training && self.dropout > 0.0 { weights.dropout(self.dropout, true)? } else { weights };
        Ok((self.merged(&dropped.matmul(&heads[2])?)?, dropped.mean([1], false)?))
    }

    /// Query, key and value by heads: `(N, heads, L, E / heads)`.
    fn projected(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<[Tensor; 3]> {
        for x in [query, key, value] {
            if x.dim() != 3 {
                let what = format!("an input has sizes {:?}", x.sizes());
                return Err(Error::shape("multi_head_attention", what, "it has three dims: steps, batch and features"));
            }
        }
        let features = self.out_proj.weight.sizes()[1];
        let own = [&self.q_proj_weight, &self.k_proj_weight, &self.v_proj_weight];
        let of = |at: usize, x: &Tensor| -> Result<Tensor> {
            let part = |all: &Tensor| all.narrow(0, (at * features) as i64, features);
            let bias = self.in_proj_bias.as_ref().map(part).transpose()?;
            let weight = match (&self.in_proj_weight, own[at]) {
                (Some(all), _) => part(all)?,
                (None, Some(weight)) => weight.clone(),
                (None, None) => {
                    let what = "there is neither in_proj_weight nor all of q, k and v_proj_weight; set one of them";
                    return Err(Error::argument("multi_head_attention", what));
                }
            };
            let y = x.linear(&weight, bias.as_ref())?;
            let split = y.unflatten(2, [self.heads as i64, (features / self.heads) as i64])?;
            split.permute(if self.batch_first { [0, 2, 1, 3] } else { [1, 2, 0, 3] })
        };
        Ok([of(0, query)?, of(1, key)?, of(2, value)?])
    }

    /// The masks as one that is added to the scores.
    fn additive(&self, mask: &AttentionMask<'_>, [q, k, _]: &[Tensor; 3]) -> Result<Option<Tensor>> {
        let (batch, steps, keys) = (q.sizes()[0] as i64, q.sizes()[2], k.sizes()[2]);
        let as_scores = |mask: &Tensor| -> Result<Tensor> {
            if mask.dtype() != DType::Bool {
                return mask.to_dtype(q.dtype());
            }
            let zeros = Tensor::zeros(mask.sizes(), q.dtype())?.to_device(q.device())?;
            zeros.masked_fill(mask, f64::NEG_INFINITY)
        };
        let mut sum: Option<Tensor> = None;
        let mut add = |part: Tensor| -> Result<()> {
            sum = Some(sum.take().map_or(Ok(part.clone()), |sum| sum.add(&part))?);
            Ok(())
        };
        if let Some(given) = mask.mask {
            let scores = as_scores(given)?;
            let by_head = [batch, self.heads as i64, steps as i64, keys as i64];
            add(if given.dim() == 3 { scores.reshape(by_head)? } else { scores })?;
        }
        if let Some(padding) = mask.padding {
            add(as_scores(padding)?.unsqueeze(1)?.unsqueeze(1)?)?;
        }
        if mask.is_causal {
            let later = Tensor::ones(&[steps, keys], DType::Bool)?.to_device(q.device())?.triu(1)?;
            add(as_scores(&later)?)?;
        }
        Ok(sum)
    }

    fn merged(&self, heads: &Tensor) -> Result<Tensor> {
        let order = if self.batch_first { [0, 2, 1, 3] } else { [2, 0, 1, 3] };
        self.out_proj.forward(&heads.permute(order)?.flatten(2, 3)?)
    }
}

fn scores(q: &Tensor, k: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    let scale = 1.0 / (q.sizes()[3].max(1) as f64).sqrt();
    let scores = q.mul(scale)?.matmul(&k.transpose(-1, -2)?)?;
    mask.map_or(Ok(scores.clone()), |mask| scores.add(mask))?.softmax(-1)
}
