//! Positions in sequences: rotary and sinusoidal tables.

use super::module::{Forward, Module};
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ops::{cat, stack};
use crate::profile::stands_for;
use crate::tensor::Tensor;

/// Angles of positions: `(positions, half)`, with frequencies `base^(-i / half)`.
#[track_caller]
fn angles(positions: usize, half: usize, base: f64) -> Result<Tensor> {
    let position = Tensor::arange(0, positions as i64, 1)?.to_dtype(DType::F64)?.unsqueeze(1)?;
    let exponent = Tensor::arange(0, half as i64, 1)?.to_dtype(DType::F64)?.mul(-base.ln() / half.max(1) as f64)?;
    position.mul(exponent.exp()?)
}

/// Rotary positions (Su et al. 2021) of `(…, positions, features)`.
///
/// A pair of features is rotated by its position: features `i` and `i + features / 2`, as in Llama, or neighbours if it
/// is interleaved.
#[derive(Clone, Module)]
pub struct RotaryEmbedding {
    /// `(positions, features / 2)`.
    #[module(transient)]
    pub cos: Tensor,
    /// `(positions, features / 2)`.
    #[module(transient)]
    pub sin: Tensor,
    /// Whether pairs are neighbours.
    pub interleaved: bool,
}

impl RotaryEmbedding {
    /// Tables for positions up to `positions`, of frequencies down to `1 / base`. The usual base is 10,000.
    ///
    /// # Errors
    /// If the number of features is odd.
    #[track_caller]
    pub fn new(features: usize, positions: usize, base: f64) -> Result<RotaryEmbedding> {
        if !features.is_multiple_of(2) {
            let what = format!("{features} features do not form pairs; use an even number");
            return Err(Error::argument("RotaryEmbedding", what));
        }
        let (angles, dtype) = (angles(positions, features / 2, base)?, crate::default_dtype());
        let (cos, sin) = (angles.cos()?.to_dtype(dtype)?, angles.sin()?.to_dtype(dtype)?);
        Ok(RotaryEmbedding { cos, sin, interleaved: false })
    }

    /// The rotated features, where the first position is `start`.
    ///
    /// # Errors
    /// If there are fewer positions in the tables, or if the features are others.
    #[track_caller]
    pub fn forward_at(&self, x: &Tensor, start: usize) -> Result<Tensor> {
        let _place = stands_for();
        let (n, half) = (x.dim(), self.cos.sizes()[1]);
        if n < 2 || x.sizes()[n - 1] != 2 * half {
            let what = format!("the input has sizes {:?}", x.sizes());
            return Err(Error::shape("rotary", what, format!("the last two are positions and {} features", 2 * half)));
        }
        let of = |table: &Tensor| table.narrow(0, start as i64, x.sizes()[n - 2])?.to_dtype(x.dtype());
        let (cos, sin) = (of(&self.cos)?, of(&self.sin)?);
        let (a, b) = if self.interleaved {
            (x.slice(-1, 0, None, 2)?, x.slice(-1, 1, None, 2)?)
        } else {
            (x.narrow(-1, 0, half)?, x.narrow(-1, half as i64, half)?)
        };
        let (first, second) = (a.mul(&cos)?.sub(b.mul(&sin)?)?, b.mul(&cos)?.add(a.mul(&sin)?)?);
        if self.interleaved {
            return stack(&[&first, &second], -1)?.reshape_as(x);
        }
        cat(&[&first, &second], -1)
    }
}

impl Forward for RotaryEmbedding {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_at(x, 0)
    }
}

/// Sinusoidal positions (Vaswani et al. 2017), added to `(…, positions, features)`.
#[derive(Clone, Module)]
pub struct SinusoidalPositions {
    /// `(positions, features)`.
    #[module(transient)]
    pub table: Tensor,
}

impl SinusoidalPositions {
    /// A table for positions up to `positions`. Even features are sines, odd ones cosines.
    ///
    /// # Errors
    /// If the number of features is odd.
    #[track_caller]
    pub fn new(features: usize, positions: usize) -> Result<SinusoidalPositions> {
        if !features.is_multiple_of(2) {
            let what = format!("{features} features do not form pairs; use an even number");
            return Err(Error::argument("SinusoidalPositions", what));
        }
        let angles = angles(positions, features / 2, 10_000.0)?;
        let pairs = stack(&[&angles.sin()?, &angles.cos()?], -1)?.reshape([positions as i64, features as i64])?;
        Ok(SinusoidalPositions { table: pairs.to_dtype(crate::default_dtype())? })
    }
}

impl Forward for SinusoidalPositions {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let Some(&positions) = x.sizes().iter().rev().nth(1) else {
            let what = format!("the input has sizes {:?}", x.sizes());
            return Err(Error::shape("positions", what, "the last two are positions and features"));
        };
        x.add(self.table.narrow(0, 0, positions)?.to_dtype(x.dtype())?)
    }
}
