//! Special functions that are formulas of others.

use crate::dispatch::key::default_dtype::default_dtype;
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::{DType, Scalar};
use crate::ops::arguments::{need_float, widened};
use crate::ops::composite::Composite;
use crate::tensor::handle::Tensor;
use std::f64::consts::{FRAC_1_SQRT_2, LN_2, PI, SQRT_2};

static MVLGAMMA: Composite = Composite::new("mvlgamma(Tensor self, int p) -> Tensor");

impl Tensor {
    /// The logarithm of the multivariate gamma function of dimension `p`. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If the dtype is not floating, or if `p` is not from 1 to 65536.
    #[track_caller]
    pub fn mvlgamma(&self, p: i64) -> Result<Tensor> {
        MVLGAMMA.call((self, p))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&MVLGAMMA, mvlgamma)?
        .def_kernel("special_xlog1py(Tensor self, Tensor other) -> Tensor", xlog1py)?
        .def_kernel(
            "special_xlog1py.other_scalar(Tensor self, Scalar other) -> Tensor",
            |x: &Tensor, other: Scalar| xlog1py(x, &Tensor::number(other)?),
        )?
        .def_kernel("special_xlog1py.self_scalar(Scalar self, Tensor other) -> Tensor", |x: Scalar, other: &Tensor| {
            xlog1py(&Tensor::number(x)?, other)
        })?
        .def_kernel("special_ndtri(Tensor self) -> Tensor", |x: &Tensor| {
            // The quantile function of the normal distribution.
            x.mul(2.0)?.sub(1.0)?.erfinv()?.mul(SQRT_2)
        })?
        .def_kernel("special_zeta(Tensor self, Tensor other) -> Tensor", zeta)?
        .def_kernel("special_zeta.other_scalar(Tensor self, Scalar other) -> Tensor", |s: &Tensor, q: Scalar| {
            zeta(s, &Tensor::number(q)?)
        })?
        .def_kernel("special_zeta.self_scalar(Scalar self, Tensor other) -> Tensor", |s: Scalar, q: &Tensor| {
            zeta(&Tensor::number(s)?, q)
        })?
        .def_kernel("special_log_ndtr(Tensor self) -> Tensor", log_ndtr)?
        .def_kernel("special_round(Tensor self, *, int decimals=0) -> Tensor", |x: &Tensor, decimals: i64| {
            if decimals == 0 { x.round() } else { x.round_decimals(decimals) }
        })?
        .def_kernel(
            "special_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
            |x: &Tensor, dim: i64, dtype: Option<DType>| x.to_dtype(dtype.unwrap_or(x.dtype()))?.softmax(dim),
        )?
        .def_kernel(
            "special_log_softmax(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
            |x: &Tensor, dim: i64, dtype: Option<DType>| x.to_dtype(dtype.unwrap_or(x.dtype()))?.log_softmax(dim),
        )?;
    Ok(())
}

/// The logarithm of the multivariate gamma function of dimension `p`: a sum of logarithms of gamma functions at `x`,
/// `x - 1/2`, …, and a constant.
fn mvlgamma(x: &Tensor, p: i64) -> Result<Tensor> {
    let op = "mvlgamma";
    /// More terms than anyone needs.
    const MOST: i64 = 1 << 16;
    if !(1..=MOST).contains(&p) {
        return Err(Error::argument(op, format!("p is {p}; it must be between 1 and {MOST}")));
    }
    need_float(op, &[x])?;
    let steps = Tensor::arange(0, p, 1)?.to_device(x.device())?.mul(-0.5)?.to_dtype(x.dtype())?;
    let terms = x.unsqueeze(-1)?.add(&steps)?.lgamma()?;
    terms.sum(-1, false)?.add((p * (p - 1)) as f64 / 4.0 * PI.ln())
}

/// `x * log(1 + y)`, and 0 where `x` is 0 and `y` is not NaN.
fn xlog1py(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let product = x.mul(&y.log1p()?)?;
    let is_zero = x.eq(0)?.logical_and(&y.isnan()?.logical_not()?)?;
    is_zero.where_(0.0, &product)
}

/// The zeta function of Hurwitz: the sum of `(q + k)^-s` over `k` from 0 on, by the formula of Euler and Maclaurin
/// after ten terms (NIST Digital Library of Mathematical Functions, 25.11.28). It is infinite where `s` is 1 or `q` a
/// whole number that is not positive, and NaN where `s` is less than 1, or `q` negative and `s` no whole number.
/// Computed in f64 and rounded once.
fn zeta(s: &Tensor, q: &Tensor) -> Result<Tensor> {
    const TERMS: i32 = 10;
    /// Bernoulli's numbers of even order, each divided by the factorial of its order.
    const FACTORS: [f64; 10] = [
        1.0 / 12.0,
        -1.0 / 720.0,
        1.0 / 30240.0,
        -1.0 / 1209600.0,
        1.0 / 47900160.0,
        -691.0 / 1307674368000.0,
        1.0 / 74724249600.0,
        -3617.0 / 10670622842880000.0,
        43867.0 / 5109094217170944000.0,
        -174611.0 / 802857662698291200000.0,
    ];
    let both = s.add(q)?;
    let dtype = if both.dtype().is_float() { both.dtype() } else { default_dtype() };
    let (s, q) = (s.to_dtype(DType::F64)?, q.to_dtype(DType::F64)?);
    let power = |x: &Tensor| x.pow(&s.neg()?);
    let mut sum = power(&q)?;
    for k in 1..TERMS {
        sum = sum.add(&power(&q.add(k)?)?)?;
    }
    let end = q.add(TERMS)?;
    let last = power(&end)?;
    sum = sum.add(&last.mul(&end)?.div(&s.sub(1)?)?)?.add(&last.mul(0.5)?)?;
    let inverse = end.reciprocal()?;
    let square = inverse.square()?;
    let mut term = last.mul(&s)?.mul(&inverse)?;
    for (at, factor) in (0..).zip(FACTORS) {
        sum = sum.add(&term.mul(factor)?)?;
        let order = 2 * at + 1;
        term = term.mul(&s.add(order)?)?.mul(&s.add(order + 1)?)?.mul(&square)?;
    }
    let is_pole = q.le(0)?.logical_and(&q.eq(&q.floor()?)?)?.logical_or(&s.eq(1)?)?;
    let has_none = s.lt(1)?.logical_or(&q.le(0)?.logical_and(&s.ne(&s.floor()?)?)?)?;
    let value = is_pole.where_(f64::INFINITY, &sum)?;
    let pole_first = s.eq(1)?.where_(f64::INFINITY, &has_none.where_(f64::NAN, &value)?)?;
    let is_nan = s.isnan()?.logical_or(&q.isnan()?)?;
    is_nan.where_(f64::NAN, &pole_first)?.to_dtype(dtype)
}

/// The logarithm of the distribution function of the normal distribution. Far below 0 it is computed from the scaled
/// tail's continued fraction (Abramowitz and Stegun 1964, 26.2.14), because the function itself would be 0.
fn log_ndtr(x: &Tensor) -> Result<Tensor> {
    need_float("special_log_ndtr", &[x])?;
    /// Below, the fraction of this depth is exact to the last places of f64.
    const FAR: f64 = -5.0;
    const DEPTH: i32 = 60;
    let wide = widened(x)?;
    let near = wide.clamp_min(FAR)?;
    let near = near.mul(-FRAC_1_SQRT_2)?.erfc()?.log()?.sub(LN_2)?;
    let t = wide.clamp_max(FAR)?.neg()?;
    let mut fraction = t.clone();
    for k in (1..=DEPTH).rev() {
        fraction = t.add(fraction.reciprocal()?.mul(f64::from(k))?)?;
    }
    let far = t.square()?.mul(-0.5)?.sub(fraction.log()?)?.sub((2.0 * PI).ln() / 2.0)?;
    wide.lt(FAR)?.where_(&far, &near)?.to_dtype(x.dtype())
}
