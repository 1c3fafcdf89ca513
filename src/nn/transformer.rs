//! Layers of Transformers (Vaswani et al. 2017) and stacks of them.

use super::activations::Dropout;
use super::attention::{AttentionMask, MultiheadAttention};
use super::linear::Linear;
use super::module::{Forward, Module};
use super::normalization::LayerNorm;
use crate::error::Result;
use crate::profile::stands_for;
use crate::tensor::Tensor;

/// The options of a layer. Defaults are PyTorch's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TransformerOptions {
    /// The features between the two linear layers.
    pub feedforward: usize,
    /// The probability of dropout.
    pub dropout: f64,
    /// Whether the activation is GELU and not ReLU.
    pub gelu: bool,
    /// What is added to variances.
    pub eps: f64,
    /// Whether dim 0 is the batch, and not dim 1.
    pub batch_first: bool,
    /// Whether normalizations come before, and not after, attention and linear layers.
    pub norm_first: bool,
}

impl Default for TransformerOptions {
    fn default() -> Self {
        let (feedforward, dropout, eps) = (2048, 0.1, 1e-5);
        TransformerOptions { feedforward, dropout, gelu: false, eps, batch_first: false, norm_first: false }
    }
}

impl TransformerOptions {
    #[track_caller]
    fn attention(&self, features: usize, heads: usize) -> Result<MultiheadAttention> {
        let attention = MultiheadAttention::new(features, heads)?;
        Ok(MultiheadAttention { dropout: self.dropout, batch_first: self.batch_first, ..attention })
    }

    #[track_caller]
    fn norm(&self, features: usize) -> Result<LayerNorm> {
        Ok(LayerNorm { eps: self.eps, ..LayerNorm::new(features as i64)? })
    }
}

/// A layer of an encoder: self-attention, then two linear layers.
#[derive(Clone, Module)]
pub struct TransformerEncoderLayer {
    /// Attention of the input to itself.
    pub self_attn: MultiheadAttention,
    /// The first linear layer.
    pub linear1: Linear,
    /// The second linear layer.
    pub linear2: Linear,
    /// The normalization around attention.
    pub norm1: LayerNorm,
    /// The normalization around the linear layers.
    pub norm2: LayerNorm,
    /// Dropout.
    pub dropout: Dropout,
    /// The options.
    #[module(skip)]
    pub options: TransformerOptions,
}

impl TransformerEncoderLayer {
    /// A layer of so many features and heads.
    ///
    /// # Errors
    /// If the features are not divisible by the heads.
    #[track_caller]
    pub fn new(features: usize, heads: usize, options: TransformerOptions) -> Result<TransformerEncoderLayer> {
        Ok(TransformerEncoderLayer {
            self_attn: options.attention(features, heads)?,
            linear1: Linear::new(features, options.feedforward)?,
            linear2: Linear::new(options.feedforward, features)?,
            norm1: options.norm(features)?,
            norm2: options.norm(features)?,
            dropout: Dropout::new(options.dropout),
            options,
        })
    }

    /// The output for an input and a mask.
    ///
    /// # Errors
    /// If sizes or dtypes do not fit.
    #[track_caller]
    pub fn forward_masked(&self, x: &Tensor, mask: &AttentionMask<'_>) -> Result<Tensor> {
        let _place = stands_for();
        let attend = |x: &Tensor| self.dropout.forward(&self.self_attn.forward(x, x, x, mask)?);
        let feed = |x: &Tensor| feedforward(x, &self.linear1, &self.linear2, &self.dropout, &self.options);
        let x = around(x, &self.norm1, &self.options, attend)?;
        around(&x, &self.norm2, &self.options, feed)
    }
}

impl Forward for TransformerEncoderLayer {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_masked(x, &AttentionMask::default())
    }
}

/// `x + part(x)` with the normalization before the part or after the sum.
fn around(
    x: &Tensor,
    norm: &LayerNorm,
    options: &TransformerOptions,
    part: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    if options.norm_first { x.add(part(&norm.forward(x)?)?) } else { norm.forward(&x.add(part(x)?)?) }
}

fn feedforward(
    x: &Tensor,
    first: &Linear,
    second: &Linear,
    dropout: &Dropout,
    options: &TransformerOptions,
) -> Result<Tensor> {
    let hidden = first.forward(x)?;
    let hidden = if options.gelu { hidden.gelu()? } else { hidden.relu()? };
    dropout.forward(&second.forward(&dropout.forward(&hidden)?)?)
}

/// A layer of a decoder: self-attention, attention to an encoder's output, then two linear layers.
#[derive(Clone, Module)]
pub struct TransformerDecoderLayer {
    /// Attention of the input to itself.
    pub self_attn: MultiheadAttention,
    /// Attention to the encoder's output.
    pub multihead_attn: MultiheadAttention,
    /// The first linear layer.
    pub linear1: Linear,
    /// The second linear layer.
    pub linear2: Linear,
    /// The normalization around self-attention.
    pub norm1: LayerNorm,
    /// The normalization around attention to the encoder's output.
    pub norm2: LayerNorm,
    /// The normalization around the linear layers.
    pub norm3: LayerNorm,
    /// Dropout.
    pub dropout: Dropout,
    /// The options.
    #[module(skip)]
    pub options: TransformerOptions,
}

impl TransformerDecoderLayer {
    /// A layer of so many features and heads.
    ///
    /// # Errors
    /// If the features are not divisible by the heads.
    #[track_caller]
    pub fn new(features: usize, heads: usize, options: TransformerOptions) -> Result<TransformerDecoderLayer> {
        Ok(TransformerDecoderLayer {
            self_attn: options.attention(features, heads)?,
            multihead_attn: options.attention(features, heads)?,
            linear1: Linear::new(features, options.feedforward)?,
            linear2: Linear::new(options.feedforward, features)?,
            norm1: options.norm(features)?,
            norm2: options.norm(features)?,
            norm3: options.norm(features)?,
            dropout: Dropout::new(options.dropout),
            options,
        })
    }

    /// The output for an input, an encoder's output, and their masks.
    ///
    /// # Errors
    /// If sizes or dtypes do not fit.
    #[track_caller]
    pub fn forward(
        &self,
        x: &Tensor,
        memory: &Tensor,
        mask: &AttentionMask<'_>,
        memory_mask: &AttentionMask<'_>,
    ) -> Result<Tensor> {
        let _place = stands_for();
        let own = |x: &Tensor| self.dropout.forward(&self.self_attn.forward(x, x, x, mask)?);
        let other = |x: &Tensor| self.dropout.forward(&self.multihead_attn.forward(x, memory, memory, memory_mask)?);
        let feed = |x: &Tensor| feedforward(x, &self.linear1, &self.linear2, &self.dropout, &self.options);
        let x = around(x, &self.norm1, &self.options, own)?;
        let x = around(&x, &self.norm2, &self.options, other)?;
        around(&x, &self.norm3, &self.options, feed)
    }
}

/// Layers of an encoder, one after the other.
#[derive(Clone, Module)]
pub struct TransformerEncoder {
    /// The layers.
    pub layers: Vec<TransformerEncoderLayer>,
    /// A normalization of the result.
    pub norm: Option<LayerNorm>,
}

impl TransformerEncoder {
    /// So many layers, without a normalization of the result.
    ///
    /// # Errors
    /// If the features are not divisible by the heads.
    #[track_caller]
    pub fn new(
        features: usize,
        heads: usize,
        layers: usize,
        options: TransformerOptions,
    ) -> Result<TransformerEncoder> {
        let _place = stands_for();
        let layer = |_| TransformerEncoderLayer::new(features, heads, options);
        Ok(TransformerEncoder { layers: (0..layers).map(layer).collect::<Result<_>>()?, norm: None })
    }

    /// The output for an input and a mask.
    ///
    /// # Errors
    /// If sizes or dtypes do not fit.
    #[track_caller]
    pub fn forward_masked(&self, x: &Tensor, mask: &AttentionMask<'_>) -> Result<Tensor> {
        let _place = stands_for();
        let x = self.layers.iter().try_fold(x.clone(), |x, layer| layer.forward_masked(&x, mask))?;
        self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x))
    }
}

impl Forward for TransformerEncoder {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_masked(x, &AttentionMask::default())
    }
}

/// Layers of a decoder, one after the other.
#[derive(Clone, Module)]
pub struct TransformerDecoder {
    /// The layers.
    pub layers: Vec<TransformerDecoderLayer>,
    /// A normalization of the result.
    pub norm: Option<LayerNorm>,
}

impl TransformerDecoder {
    /// So many layers, without a normalization of the result.
    ///
    /// # Errors
    /// If the features are not divisible by the heads.
    #[track_caller]
    pub fn new(
        features: usize,
        heads: usize,
        layers: usize,
        options: TransformerOptions,
    ) -> Result<TransformerDecoder> {
        let _place = stands_for();
        let layer = |_| TransformerDecoderLayer::new(features, heads, options);
        Ok(TransformerDecoder { layers: (0..layers).map(layer).collect::<Result<_>>()?, norm: None })
    }

    /// The output for an input, an encoder's output, and their masks.
    ///
    /// # Errors
    /// If sizes or dtypes do not fit.
    #[track_caller]
    pub fn forward(
        &self,
        x: &Tensor,
        memory: &Tensor,
        mask: &AttentionMask<'_>,
        memory_mask: &AttentionMask<'_>,
    ) -> Result<Tensor> {
        let _place = stands_for();
        let one = |x: Tensor, layer: &TransformerDecoderLayer| layer.forward(&x, memory, mask, memory_mask);
        let x = self.layers.iter().try_fold(x.clone(), one)?;
        self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x))
    }
}
