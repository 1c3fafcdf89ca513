//! The encoder: embeddings, transformer layers, mean over the real tokens, unit length.
//!
//! Plain tensor code, written for one op at a time; nothing here knows that it may be compiled.

use crate::weights::{Config, OpenWeights, Weights};
use opfuse::{Result, Tensor, embedding};
use std::path::Path;

/// Taken from the score of a padded position: large enough that `exp` makes it 0, finite so that no row is NaN.
const PADDING_PENALTY: f64 = 1e9;

/// A BERT encoder that turns sentences into unit vectors.
#[derive(Clone)]
pub(crate) struct Model {
    tokens: Tensor,
    positions: Tensor,
    types: Tensor,
    norm: Norm,
    layers: Vec<Layer>,
}

#[derive(Clone)]
struct Layer {
    attention: Attention,
    attention_norm: Norm,
    expand: Linear,
    contract: Linear,
    output_norm: Norm,
}

#[derive(Clone)]
struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    n_heads: usize,
    head: usize,
}

#[derive(Clone)]
struct Linear {
    weight: Tensor,
    bias: Tensor,
}

#[derive(Clone)]
struct Norm {
    weight: Tensor,
    bias: Tensor,
    eps: f64,
}

impl Model {
    /// Reads the model in `folder`.
    pub(crate) fn load(folder: &Path) -> Result<Self> {
        let file = Weights::load(folder)?;
        let config = Config::load(folder)?;
        let weights = file.open()?;
        let table = |name: &str, n_rows: usize| {
            weights.tensor(&format!("embeddings.{name}_embeddings.weight"), &[n_rows, config.hidden])
        };
        Ok(Self {
            tokens: table("word", config.n_tokens)?,
            positions: table("position", config.n_positions)?,
            types: table("token_type", config.n_types)?,
            norm: Norm::load(&weights, &config, "embeddings.LayerNorm")?,
            layers: (0..config.n_layers).map(|at| Layer::load(&weights, &config, at)).collect::<Result<_>>()?,
        })
    }

    /// The same model with other weights of queries and values: what `change` makes of the number of a layer and of its
    /// two weights.
    #[allow(dead_code, reason = "one of two examples fine-tunes the model")]
    pub(crate) fn with_queries_and_values(
        &self,
        change: impl Fn(usize, [&Tensor; 2]) -> Result<[Tensor; 2]>,
    ) -> Result<Self> {
        let mut model = self.clone();
        for (at, layer) in model.layers.iter_mut().enumerate() {
            let Attention { query, value, .. } = &mut layer.attention;
            [query.weight, value.weight] = change(at, [&query.weight, &value.weight])?;
        }
        Ok(model)
    }

    /// The number of layers, and of features of a token.
    #[allow(dead_code, reason = "one of two examples fine-tunes the model")]
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.layers.len(), self.tokens.sizes()[1])
    }

    /// Unit vectors `[batch, hidden]` for token ids and their `positions` (both i64) and a `mask` of ones and zeros
    /// (f32), all `[batch, length]`.
    pub(crate) fn forward(&self, ids: &Tensor, positions: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let first_type = self.types.select(0, 0)?;
        let words = (&embedding(&self.tokens, ids)? + &first_type)?;
        let mut hidden = self.norm.forward(&(&words + &embedding(&self.positions, positions)?)?)?;
        // [batch, length] -> [batch, heads, queries, keys]; 0 for tokens.
        let scores_mask = ((mask - 1.0)? * PADDING_PENALTY)?.unsqueeze(1)?.unsqueeze(1)?;
        for layer in &self.layers {
            hidden = layer.forward(&hidden, &scores_mask)?;
        }
        unit(&mean(&hidden, mask)?)
    }
}

/// The mean over the tokens that `mask` marks.
fn mean(hidden: &Tensor, mask: &Tensor) -> Result<Tensor> {
    let total = (hidden * &mask.unsqueeze(-1)?)?.sum(1, false)?;
    let count = mask.sum(1, true)?.clamp_min(1e-9)?;
    &total / &count
}

/// Rows divided by their length.
fn unit(rows: &Tensor) -> Result<Tensor> {
    let length = (rows * rows)?.sum(1, true)?.sqrt()?;
    rows / &length.clamp_min(1e-12)?
}

impl Layer {
    fn load(weights: &OpenWeights<'_>, config: &Config, at: usize) -> Result<Self> {
        let name = |part: &str| format!("encoder.layer.{at}.{part}");
        let (hidden, intermediate) = (config.hidden, config.intermediate);
        let square = |part: &str| Linear::load(weights, &name(part), hidden, hidden);
        Ok(Self {
            attention: Attention {
                query: square("attention.self.query")?,
                key: square("attention.self.key")?,
                value: square("attention.self.value")?,
                output: square("attention.output.dense")?,
                n_heads: config.n_heads,
                head: hidden / config.n_heads,
            },
            attention_norm: Norm::load(weights, config, &name("attention.output.LayerNorm"))?,
            expand: Linear::load(weights, &name("intermediate.dense"), hidden, intermediate)?,
            contract: Linear::load(weights, &name("output.dense"), intermediate, hidden)?,
            output_norm: Norm::load(weights, config, &name("output.LayerNorm"))?,
        })
    }

    fn forward(&self, hidden: &Tensor, scores_mask: &Tensor) -> Result<Tensor> {
        let attended = self.attention.forward(hidden, scores_mask)?;
        let hidden = self.attention_norm.forward(&(&attended + hidden)?)?;
        let expanded = self.expand.forward(&hidden)?.gelu()?;
        self.output_norm.forward(&(&self.contract.forward(&expanded)? + &hidden)?)
    }
}

impl Attention {
    fn forward(&self, hidden: &Tensor, scores_mask: &Tensor) -> Result<Tensor> {
        let &[batch, length, width] = hidden.sizes() else { unreachable!("embeddings have three dimensions") };
        // [batch, length, width] -> [batch, heads, length, head].
        let sizes = [batch, length, self.n_heads, self.head].map(|size| size as i64);
        let split = |x: Tensor| x.reshape(sizes)?.permute([0, 2, 1, 3]);
        let query = split(self.query.forward(hidden)?)?;
        let key = split(self.key.forward(hidden)?)?;
        let value = split(self.value.forward(hidden)?)?;

        let scale = 1.0 / (self.head as f64).sqrt();
        let scores = (&(query.matmul(&key.transpose(-1, -2)?)? * scale)? + scores_mask)?;
        let mixed = scores.softmax(-1)?.matmul(&value)?;
        let joined = mixed.permute([0, 2, 1, 3])?.reshape([batch, length, width].map(|size| size as i64))?;
        self.output.forward(&joined)
    }
}

impl Linear {
    fn load(weights: &OpenWeights<'_>, name: &str, n_in: usize, n_out: usize) -> Result<Self> {
        let weight = weights.tensor(&format!("{name}.weight"), &[n_out, n_in])?;
        Ok(Self { weight, bias: weights.tensor(&format!("{name}.bias"), &[n_out])? })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&self.weight, Some(&self.bias))
    }
}

impl Norm {
    fn load(weights: &OpenWeights<'_>, config: &Config, name: &str) -> Result<Self> {
        let weight = weights.tensor(&format!("{name}.weight"), &[config.hidden])?;
        Ok(Self { weight, bias: weights.tensor(&format!("{name}.bias"), &[config.hidden])?, eps: config.eps })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.layer_norm(self.weight.sizes(), Some(&self.weight), Some(&self.bias), self.eps)
    }
}
