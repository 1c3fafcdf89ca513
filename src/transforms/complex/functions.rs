//! Elementary functions of complex numbers, by those of real ones. Branch cuts are those of C99 and NumPy.

use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::dispatch::library::Library;
use crate::error::Result;
use crate::ir::Scalar;
use crate::ops::complex_numbers::{as_pairs, of_parts};
use crate::tensor::handle::Tensor;
use crate::transforms::complex::operands::{common, parts};
use std::f64::consts::{FRAC_PI_2, LN_2, LN_10};

type Function = fn(&Tensor) -> Result<Tensor>;

const FUNCTIONS: &[(&str, Function)] = &[
    ("abs", abs),
    ("angle", |z| with_safe_zero(z, |re, im| im.atan2(re))),
    ("sgn", |z| {
        let size = abs(z)?;
        let is_zero = size.eq(0)?;
        is_zero.where_(&z.zeros_like()?, &z.div(&is_zero.where_(1.0, &size)?)?)
    }),
    ("exp", exp),
    ("exp2", |z| exp(&z.mul(LN_2)?)),
    ("expm1", expm1),
    ("log", log),
    ("log2", |z| log(z)?.div(LN_2)),
    ("log10", |z| log(z)?.div(LN_10)),
    ("log1p", log1p),
    ("sqrt", sqrt),
    ("rsqrt", |z| sqrt(z)?.reciprocal()),
    ("sigmoid", |z| exp(&z.neg()?)?.add(1)?.reciprocal()),
    ("silu", |z| z.mul(&z.sigmoid()?)),
    ("sin", |z| {
        let (re, im) = parts(z)?;
        of_parts(&re.sin()?.mul(&im.cosh()?)?, &re.cos()?.mul(&im.sinh()?)?)
    }),
    ("cos", |z| {
        let (re, im) = parts(z)?;
        of_parts(&re.cos()?.mul(&im.cosh()?)?, &re.sin()?.mul(&im.sinh()?)?.neg()?)
    }),
    ("tan", tan),
    ("sinh", |z| turned_back(&turned(z)?.sin()?)),
    ("cosh", |z| turned(z)?.cos()),
    ("tanh", |z| turned_back(&tan(&turned(z)?)?)),
    ("asinh", asinh),
    ("asin", |z| turned_back(&asinh(&turned(z)?)?)),
    ("acos", |z| turned_back(&asinh(&turned(z)?)?)?.neg()?.add(FRAC_PI_2)),
    ("acosh", |z| log(&z.add(&sqrt(&z.add(1)?)?.mul(&sqrt(&z.sub(1)?)?)?)?)),
    ("atanh", atanh),
    ("atan", |z| turned_back(&atanh(&turned(z)?)?)),
    ("isnan", |z| any_part(z, Tensor::isnan)),
    ("isinf", |z| any_part(z, Tensor::isinf)),
    ("isfinite", |z| as_pairs(z, z.dtype())?.isfinite()?.all(-1, false)),
    ("isreal", |z| parts(z)?.1.eq(0)),
    ("logical_not", |z| as_pairs(z, z.dtype())?.logical_not()?.all(-1, false)),
];

pub(super) fn register(library: &mut Library) -> Result<()> {
    for &(name, function) in FUNCTIONS {
        library.impl_(name, function)?;
    }
    library
        .impl_("pow.Tensor_Tensor", pow)?
        .impl_("pow.Tensor_Scalar", |z: &Tensor, exponent: Scalar| power_of(z, exponent))?;
    Ok(())
}

fn any_part(z: &Tensor, test: fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    test(&as_pairs(z, z.dtype())?)?.any(-1, false)
}

/// A function of both parts that has no slope at zero. Where gradients are recorded, zeros are left out of it, so that
/// their gradient is zero and no NaN.
fn with_safe_zero(z: &Tensor, function: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let (re, im) = parts(z)?;
    if !(is_grad_enabled() && z.requires_grad()) {
        return function(&re, &im);
    }
    let is_zero = re.eq(0)?.logical_and(&im.eq(0)?)?;
    let value = function(&is_zero.where_(1.0, &re)?, &im)?;
    is_zero.where_(&function(&re.detach()?, &im.detach()?)?, &value)
}

fn abs(z: &Tensor) -> Result<Tensor> {
    with_safe_zero(z, |re, im| re.hypot(im))
}

/// `e^(a + bi) = e^a (cos b + i sin b)`.
fn exp(z: &Tensor) -> Result<Tensor> {
    let (re, im) = parts(z)?;
    let size = re.exp()?;
    of_parts(&size.mul(&im.cos()?)?, &size.mul(&im.sin()?)?)
}

/// `(e^a - 1) cos b - 2 sin^2(b / 2) + i e^a sin b`, which is exact near zero.
fn expm1(z: &Tensor) -> Result<Tensor> {
    let (re, im) = parts(z)?;
    let half = im.mul(0.5)?.sin()?.square()?.mul(2)?;
    of_parts(&re.expm1()?.mul(&im.cos()?)?.sub(&half)?, &re.exp()?.mul(&im.sin()?)?)
}

fn log(z: &Tensor) -> Result<Tensor> {
    let (re, im) = parts(z)?;
    of_parts(&re.hypot(&im)?.log()?, &im.atan2(&re)?)
}

/// The real part is `log1p(2a + a^2 + b^2) / 2`, which is exact near zero.
fn log1p(z: &Tensor) -> Result<Tensor> {
    let (re, im) = parts(z)?;
    let beyond_one = re.mul(&re.add(2)?)?.add(&im.square()?)?;
    of_parts(&beyond_one.log1p()?.mul(0.5)?, &im.atan2(&re.add(1)?)?)
}

/// With `t = sqrt((|z| + |a|) / 2)`, the root is `t + i b / 2t` for `a >= 0`, and else `|b| / 2t` with `t` as the
/// imaginary part, of the sign of `b`.
fn sqrt(z: &Tensor) -> Result<Tensor> {
    let (re, im) = parts(z)?;
    let root = re.hypot(&im)?.add(&re.abs()?)?.mul(0.5)?.sqrt()?;
    let is_zero = root.eq(0)?;
    let other = im.abs()?.div(&is_zero.where_(1.0, &root)?)?.mul(0.5)?;
    let is_right = re.ge(0)?;
    let (real, size) = (is_right.where_(&root, &other)?, is_right.where_(&other, &root)?);
    of_parts(&real, &size.copysign(&im)?)
}

/// With `t = tan a` and `u = tanh b`: `(t (1 - u^2) + i u (1 + t^2)) / (1 + t^2 u^2)`.
fn tan(z: &Tensor) -> Result<Tensor> {
    let (re, im) = parts(z)?;
    let (t, u) = (re.tan()?, im.tanh()?);
    let (t2, u2) = (t.square()?, u.square()?);
    let below = t2.mul(&u2)?.add(1)?;
    of_parts(&t.mul(&u2.neg()?.add(1)?)?.div(&below)?, &u.mul(&t2.add(1)?)?.div(&below)?)
}

/// `log(z + sqrt(z^2 + 1))` for numbers on the right, and by symmetry for those on the left.
fn asinh(z: &Tensor) -> Result<Tensor> {
    let (re, _) = parts(z)?;
    let sign = re.ge(0)?.where_(&re.ones_like()?, -1.0)?;
    let right = z.mul(&sign)?;
    log(&right.add(&sqrt(&right.mul(&right)?.add(1)?)?)?)?.mul(&sign)
}

/// `(log1p(z) - log1p(-z)) / 2`.
fn atanh(z: &Tensor) -> Result<Tensor> {
    log1p(z)?.sub(&log1p(&z.neg()?)?)?.mul(0.5)
}

/// `i z`.
fn turned(z: &Tensor) -> Result<Tensor> {
    let (re, im) = parts(z)?;
    of_parts(&im.neg()?, &re)
}

/// `-i z`.
fn turned_back(z: &Tensor) -> Result<Tensor> {
    let (re, im) = parts(z)?;
    of_parts(&im, &re.neg()?)
}

/// `e^(w log z)`. Zero to the power of zero is one, and to another power zero.
fn pow(z: &Tensor, w: &Tensor) -> Result<Tensor> {
    let dtype = common(&[z, w]);
    let (z, w) = (z.to_dtype(dtype)?, w.to_dtype(dtype)?);
    let is_zero = z.eq(0)?;
    let power = exp(&log(&is_zero.where_(1.0, &z)?)?.mul(&w)?)?;
    is_zero.where_(&w.eq(0)?.to_dtype(dtype)?, &power)
}

/// Powers of small whole numbers are products.
fn power_of(z: &Tensor, exponent: Scalar) -> Result<Tensor> {
    const MOST: i64 = 32;
    let value = exponent.as_f64();
    if value == 0.5 {
        return sqrt(z);
    }
    let whole = value as i64;
    if whole as f64 != value || whole.abs() > MOST {
        return pow(z, &Tensor::number(exponent)?);
    }
    let (mut power, mut square, mut rest) = (z.ones_like()?, z.clone(), whole.unsigned_abs());
    while rest > 0 {
        if rest & 1 == 1 {
            power = power.mul(&square)?;
        }
        rest >>= 1;
        if rest > 0 {
            square = square.mul(&square)?;
        }
    }
    if whole < 0 { power.reciprocal() } else { Ok(power) }
}
