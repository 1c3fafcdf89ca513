//! A transformer that reads a text by characters and says which comes next.

use opfuse::data::Dataset;
use opfuse::nn::*;
use opfuse::{Result, Tensor};

/// The characters: a line break, and those of ASCII that print.
pub(crate) const CHARACTERS: usize = 96;
/// How many characters the model sees at most.
pub(crate) const WINDOW: usize = 32;
const FEATURES: usize = 64;
const HEADS: usize = 4;
const BLOCKS: usize = 2;

/// The numbers of characters. Others than [`CHARACTERS`] become spaces.
pub(crate) fn encode(text: &str) -> Vec<i64> {
    let number = |character: char| match character {
        '\n' => 0,
        ' '..='~' => character as i64 - 31,
        _ => 1,
    };
    text.chars().map(number).collect()
}

/// Windows of a text, and the same windows one character later.
pub(crate) struct Windows {
    text: Tensor,
}

impl Windows {
    pub(crate) fn of(text: &str) -> Result<Windows> {
        Ok(Windows { text: Tensor::try_from(encode(text))? })
    }
}

impl Dataset for Windows {
    type Item = (Tensor, Tensor);

    fn len(&self) -> usize {
        self.text.numel().saturating_sub(WINDOW)
    }

    fn get(&self, index: usize) -> Result<(Tensor, Tensor)> {
        let window = |start: usize| self.text.narrow(0, start as i64, WINDOW);
        Ok((window(index)?, window(index + 1)?))
    }
}

/// A block of attention and two layers. `P` is what computes queries and values.
#[derive(Clone, Module)]
pub(crate) struct Block<P> {
    pub(crate) attention_norm: LayerNorm,
    pub(crate) query: P,
    pub(crate) key: Linear,
    pub(crate) value: P,
    pub(crate) output: Linear,
    pub(crate) norm: LayerNorm,
    pub(crate) up: P,
    pub(crate) down: P,
}

/// The model.
#[derive(Clone, Module)]
pub(crate) struct Transformer<P> {
    pub(crate) characters: Embedding,
    pub(crate) positions: Embedding,
    pub(crate) blocks: Vec<Block<P>>,
    pub(crate) norm: LayerNorm,
    pub(crate) head: Linear,
}

impl Transformer<Linear> {
    pub(crate) fn new() -> Result<Transformer<Linear>> {
        let square = || Linear::new(FEATURES, FEATURES);
        let block = |_| -> Result<Block<Linear>> {
            Ok(Block {
                attention_norm: LayerNorm::new([FEATURES as i64])?,
                query: square()?,
                key: square()?,
                value: square()?,
                output: square()?,
                norm: LayerNorm::new([FEATURES as i64])?,
                up: Linear::new(FEATURES, 4 * FEATURES)?,
                down: Linear::new(4 * FEATURES, FEATURES)?,
            })
        };
        Ok(Transformer {
            characters: Embedding::new(CHARACTERS, FEATURES)?,
            positions: Embedding::new(WINDOW, FEATURES)?,
            blocks: (0..BLOCKS).map(block).collect::<Result<_>>()?,
            norm: LayerNorm::new([FEATURES as i64])?,
            head: Linear::new(FEATURES, CHARACTERS)?,
        })
    }
}

impl<P: Forward> Block<P> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let normed = self.attention_norm.forward(x)?;
        let heads = |x: Tensor| x.unflatten(-1, [HEADS as i64, -1])?.transpose(1, 2);
        let (q, k) = (heads(self.query.forward(&normed)?)?, heads(self.key.forward(&normed)?)?);
        let v = heads(self.value.forward(&normed)?)?;
        let attended = q.attention(&k, &v, &Attention { is_causal: true, ..Attention::default() })?;
        let x = x.add(self.output.forward(&attended.transpose(1, 2)?.flatten(2, 3)?)?)?;
        x.add(self.down.forward(&self.up.forward(&self.norm.forward(&x)?)?.gelu()?)?)
    }
}

impl<P: Forward> Transformer<P> {
    /// Scores of what follows each of the characters `(N, length)`.
    pub(crate) fn forward(&self, text: &Tensor) -> Result<Tensor> {
        let positions = self.positions.weight.narrow(0, 0, text.sizes()[1])?;
        let mut x = self.characters.forward(text)?.add(positions)?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        self.head.forward(&self.norm.forward(&x)?)
    }

    /// The mean negative log-likelihood of what follows.
    pub(crate) fn loss(&self, text: &Tensor, next: &Tensor) -> Result<Tensor> {
        self.forward(text)?.flatten(0, 1)?.cross_entropy(&next.flatten(0, 1)?, &CrossEntropy::default())
    }

    /// The beginning, and the characters that the model finds likeliest to follow.
    pub(crate) fn write(&self, beginning: &str, characters: usize) -> Result<String> {
        let _unrecorded = opfuse::autograd::no_grad();
        let mut text = encode(beginning);
        for _ in 0..characters {
            let seen = &text[text.len().saturating_sub(WINDOW)..];
            let scores = self.forward(&Tensor::from_slice(seen, &[1, seen.len()])?)?;
            text.push(scores.select(1, -1)?.argmax(1, false)?.squeeze([0])?.item::<i64>()?);
        }
        let character = |number: i64| if number == 0 { '\n' } else { char::from(number as u8 + 31) };
        Ok(text.into_iter().map(character).collect())
    }
}
