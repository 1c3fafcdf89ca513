//! Draws of categories with given weights.

use crate::device::{DeviceKind, Generator};
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ops::arguments::{count, int, need_float};
use crate::ops::composite::Composite;
use crate::ops::random::Draw;
use crate::ops::searching::Side;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;

static MULTINOMIAL: Composite = Composite::new(
    "multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, Generator? generator=None) -> Tensor",
);

/// Whether a category can be drawn again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Replacement {
    /// Each is drawn at most once.
    Without,
    /// Draws are independent.
    With,
}

impl Tensor {
    /// Draws `n` categories (i64) from the weights in each row, or in the only dim, by the default generator. Weights
    /// need not add up to 1. They are looked at, which is a graph break.
    ///
    /// # Errors
    /// If the dtype is not floating, if there are not one or two dims, if a weight is negative or not finite, if all
    /// are 0, if `n` is 0, or if it is more than there are without replacement.
    #[track_caller]
    pub fn multinomial(&self, n: usize, replacement: Replacement) -> Result<Tensor> {
        MULTINOMIAL.call((self, int(n), replacement == Replacement::With, None::<&Generator>))
    }
}

impl Generator {
    /// As [`Tensor::multinomial`] of these weights, by this generator.
    ///
    /// # Errors
    /// Same as [`Tensor::multinomial`]. Also if the weights are on another device.
    #[track_caller]
    pub fn multinomial(&self, weights: &Tensor, n: usize, replacement: Replacement) -> Result<Tensor> {
        MULTINOMIAL.call((weights, int(n), replacement == Replacement::With, Some(self)))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library.composite(&MULTINOMIAL, multinomial)?;
    Ok(())
}

fn multinomial(x: &Tensor, n: i64, replacement: bool, generator: Option<&Generator>) -> Result<Tensor> {
    let op = "multinomial";
    need_float(op, &[x])?;
    let n = count(op, n)?;
    if !matches!(x.dim(), 1 | 2) || x.sizes()[x.dim() - 1] == 0 {
        let what = format!("weights of shape {:?}", x.sizes());
        return Err(Error::shape(op, what, "give one or two dims, with at least one category"));
    }
    let size = x.sizes()[x.dim() - 1];
    if n == 0 || (n > size && !replacement) {
        let what = format!(
            "{n} of {size} categories cannot be drawn {}",
            if replacement { "" } else { "without replacement" }
        );
        return Err(Error::argument(op, what));
    }
    let weights = x.detach()?.to_dtype(DType::F64)?;
    // A trace ends here; shapes alone have nothing to look at.
    if x.device().kind != DeviceKind::Meta {
        observer::on_read(x, op)?;
        let is_good = weights.ge(0.0)?.logical_and(&weights.isfinite()?)?.all((), false)?;
        if !is_good.item::<bool>()? {
            return Err(Error::argument(op, "probability tensor contains either `inf`, `nan` or element < 0"));
        }
        if !weights.sum(-1, false)?.gt(0.0)?.all((), false)?.item::<bool>()? {
            return Err(Error::argument(op, "invalid multinomial distribution (sum of probabilities <= 0)"));
        }
    }
    let draw = Draw { generator, device: x.device() };
    let mut sizes = x.sizes().to_vec();
    if !replacement {
        // The least of exponential times, each with its rate, come in the order of such draws (Efraimidis and Spirakis
        // 2006). Draws of weight 0 come last.
        let times = draw.uniform(&sizes, DType::F64)?.neg()?.log1p()?.neg()?.div(&weights)?;
        return Ok(times.topk(n, -1, false)?.1);
    }
    sizes[x.dim() - 1] = n;
    let sums = weights.cumsum(-1)?;
    let total = sums.narrow(-1, int(size) - 1, 1)?.contiguous()?;
    let place = sums.searchsorted(&draw.uniform(&sizes, DType::F64)?.mul(&total)?, Side::Right)?;
    // A product may be rounded up to the total, which no category ends above.
    place.minimum(&sums.searchsorted(&total, Side::Left)?)
}
