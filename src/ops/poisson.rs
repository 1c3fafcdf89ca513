//! Random numbers of the Poisson distribution.
//!
//! Each is a quantile: the least `k` at which the distribution function is above a uniform number. So it takes one word
//! of the generator, as many as every other element, and depends on its own rate alone. PyTorch rejects and draws
//! anew, which takes no fixed number of words.
//!
//! For small rates the probabilities are added up from 0 on. For others the sum begins a little below an estimate of
//! the quantile, with the distribution function there: the upper incomplete gamma function.

use crate::device::Generator;
use crate::dispatch::library::Library;
use crate::error::Result;
use crate::ir::DType;
use crate::ops::arguments::need_float;
use crate::ops::composite::Composite;
use crate::ops::incomplete_gamma::{Bell, power, upper_of_positive};
use crate::ops::random::{Draw, like};
use crate::tensor::handle::Tensor;
use std::f64::consts::SQRT_2;

static POISSON: Composite = Composite::new("poisson(Tensor self, Generator? generator=None) -> Tensor");

impl Tensor {
    /// Random numbers of the Poisson distribution. The elements of this tensor are the rates, which are the means.
    /// Sizes and dtype are kept. No gradient flows.
    ///
    /// A rate that is negative or NaN gives NaN, because values are not looked at. One that is infinite gives infinity.
    ///
    /// ```
    /// # fn main() -> opfuse::Result<()> {
    /// use opfuse::Tensor;
    /// let counts = Tensor::try_from([0.0f32, 2.5, 1e6])?.poisson()?.to_vec::<f32>()?;
    /// assert!(counts[0] == 0.0 && (counts[2] - 1e6).abs() < 1e4);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the dtype is not floating, or if there is not enough memory.
    #[track_caller]
    pub fn poisson(&self) -> Result<Tensor> {
        POISSON.call((self, None::<&Generator>))
    }
}

impl Generator {
    /// Like [`Tensor::poisson`] of these rates, with this generator.
    ///
    /// # Errors
    /// Same as [`Tensor::poisson`]. Also if the rates are on another kind of device.
    #[track_caller]
    pub fn poisson(&self, rates: &Tensor) -> Result<Tensor> {
        POISSON.call((rates, Some(self)))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library.composite(&POISSON, poisson)?;
    Ok(())
}

fn poisson(rates: &Tensor, generator: Option<&Generator>) -> Result<Tensor> {
    need_float("poisson", &[rates])?;
    let rates = rates.detach()?;
    let draw = Draw { generator, device: rates.device() };
    let unit = like(&rates, |sizes| draw.uniform(sizes, DType::F64))?;
    let wide = rates.to_dtype(DType::F64)?;
    let is_regular = wide.ge(0.0)?.logical_and(&wide.lt(f64::INFINITY)?)?;
    let numbers = quantile(&is_regular.where_(&wide, 1.0)?, &unit)?;
    let others = wide.eq(f64::INFINITY)?.where_(&wide, f64::NAN)?;
    is_regular.where_(&numbers, &others)?.to_dtype(rates.dtype())
}

/// The least `k` at which the distribution function of a finite rate is above `unit`, which is in [0, 1).
fn quantile(rate: &Tensor, unit: &Tensor) -> Result<Tensor> {
    /// From this rate on the sum begins at an estimate. Far below it the estimate would be bad.
    const LARGE: f64 = 10.0;
    /// The sum begins so far below the estimate, which is at most 1 too large.
    const MARGIN: f64 = 3.0;
    /// The number of terms. The least rate that needs none of them beyond 43 is [`LARGE`].
    const TERMS: i32 = 46;
    /// Sums are as exact as this. Numbers whose tails are smaller are not drawn.
    const LEAST_TAIL: f64 = 1.0 / (1u64 << 47) as f64;
    let unit = unit.clamp_max(1.0 - LEAST_TAIL)?;
    let large = rate.clamp_min(LARGE)?;
    // The expansion of Cornish and Fisher (1938) around the quantile of the normal distribution.
    let z = unit.mul(2.0)?.sub(1.0)?.erfinv()?.mul(SQRT_2)?.clamp_min(-8.5)?;
    let (root, square) = (large.sqrt()?, z.square()?);
    let skewed = square.sub(1.0)?.div(6.0)?;
    let curved = z.sub(&z.mul(&square)?)?.div(&root.mul(72.0)?)?;
    let estimate = large.add(&root.mul(&z)?)?.add(&skewed)?.add(&curved)?;
    let first = estimate.floor()?.sub(MARGIN)?.clamp_min(0.0)?;
    let first = rate.lt(LARGE)?.where_(0.0, &first)?;
    // At `first - 1` the distribution function is the upper function of `first`.
    let below = upper_of_positive(&first.clamp_min(1.0)?, &large)?;
    let mut sum = first.gt(0.0)?.where_(&below, 0.0)?;
    let mut term = power(&first, rate, &Bell::new(&first, rate)?)?;
    let mut number = first.clone();
    for step in 1..=TERMS {
        sum = sum.add(&term)?;
        number = number.add(&sum.le(&unit)?.to_dtype(DType::F64)?)?;
        term = term.mul(rate)?.div(&first.add(step)?)?;
    }
    Ok(number)
}
