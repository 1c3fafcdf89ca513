//! Scalar bodies of pointwise rows that are more than one expression, and their helpers.
//!
//! A body gets its operands in the type of the computation, which the row's rule chooses. Its result is then rounded to
//! the dtype of the result. So 16-bit floats are computed in f32, and small integers in i32. Constants are those of the
//! papers that are named.

use super::attrs::{Approximation, Rounding};
use super::scalar::number::Float;
use super::scalar::{Lit, Prim, Scalar, Sym, Ty};
use std::f64::consts::{LOG2_E, PI};

pub(super) fn truth(x: Sym<'_>) -> Sym<'_> {
    x.to(Ty::Bool)
}

pub(super) fn sum<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    if a.ty() == Ty::Bool { a | b } else { a + b }
}

pub(super) fn product<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    if a.ty() == Ty::Bool { a & b } else { a * b }
}

/// A number argument in the type of `like`.
pub(super) fn number<'r>(like: Sym<'r>, number: Scalar) -> Sym<'r> {
    like.lit(match (like.ty(), number) {
        // Not by way of f64: an i64 argument keeps all its bits.
        (Ty::I64, Scalar::Int(value)) => Lit::i64(value),
        (ty, scalar) => Lit::number(ty, scalar.as_f64()),
    })
}

pub(super) fn scaled<'r>(x: Sym<'r>, alpha: Scalar) -> Sym<'r> {
    if alpha == Scalar::Int(1) { x } else { product(x, number(x, alpha)) }
}

pub(super) fn less<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    if a.ty() == Ty::Bool { !a & b } else { a.prim(Prim::Lt, &[b]) }
}

pub(super) fn at_most<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    if a.ty() == Ty::Bool { !a | b } else { a.prim(Prim::Le, &[b]) }
}

/// The maximum, which is NaN if an operand is. `Prim::Max` gives its second operand if one is NaN, so only a NaN in the
/// first one needs a select.
pub(super) fn greatest<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    match a.ty() {
        Ty::Bool => a | b,
        Ty::I32 | Ty::I64 => a.prim(Prim::Max, &[b]),
        Ty::F32 | Ty::F64 => a.is_nan().then(a, a.prim(Prim::Max, &[b])),
    }
}

pub(super) fn least<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    match a.ty() {
        Ty::Bool => a & b,
        Ty::I32 | Ty::I64 => a.prim(Prim::Min, &[b]),
        Ty::F32 | Ty::F64 => a.is_nan().then(a, a.prim(Prim::Min, &[b])),
    }
}

pub(super) fn sign(x: Sym<'_>) -> Sym<'_> {
    if x.ty() == Ty::Bool {
        return x;
    }
    let zero = x.num(0.0);
    let positive = zero.prim(Prim::Lt, &[x]);
    let negative = x.prim(Prim::Lt, &[zero]);
    positive.then(x.num(1.0), negative.then(x.num(-1.0), zero))
}

pub(super) fn relu(x: Sym<'_>) -> Sym<'_> {
    x.num(0.0).prim(Prim::Max, &[x])
}

pub(super) fn isinf(x: Sym<'_>) -> Sym<'_> {
    if x.ty().is_float() { x.prim(Prim::Abs, &[]).prim(Prim::Eq, &[x.num(f64::INFINITY)]) } else { x.is_nan() }
}

pub(super) fn whole(x: Sym<'_>, prim: Prim) -> Sym<'_> {
    if x.ty().is_float() { x.prim(prim, &[]) } else { x }
}

pub(super) fn clamp<'r>(x: Sym<'r>, min: Option<Scalar>, max: Option<Scalar>) -> Sym<'r> {
    // A NaN element stays NaN, and a NaN bound gives NaN, as in PyTorch.
    let low = min.map_or(x, |min| greatest(number(x, min), x));
    max.map_or(low, |max| least(number(x, max), low))
}

/// `x Φ(x)`, or `x (1 + tanh u) / 2` with `u = √(2/π) (x + 0.044715 x³)` (Hendrycks & Gimpel 2016).
pub(super) fn gelu<'r>(x: Sym<'r>, approximate: Approximation) -> Sym<'r> {
    match approximate {
        Approximation::Tanh => x.gelu_tanh(),
        Approximation::Exact => x * 0.5 * ((x * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0),
    }
}

/// The remainder of a division whose quotient is rounded toward zero.
pub(super) fn fmod<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    a.prim(Prim::Rem, &[b])
}

/// Whether a remainder is not 0 and its sign differs from the divisor's. The floored quotient is then one less than the
/// truncated one.
fn is_across<'r>(rest: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    let zero = rest.num(0.0);
    rest.prim(Prim::Ne, &[zero]) & (rest.prim(Prim::Lt, &[zero]) ^ b.prim(Prim::Lt, &[zero]))
}

/// The remainder of a floored division, which has the sign of the divisor.
pub(super) fn remainder<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    let rest = fmod(a, b);
    is_across(rest, b).then(rest + b, rest)
}

/// The quotient rounded down. For floats it is computed from the exact remainder, because the rounded quotient may be a
/// whole number too large.
pub(super) fn floor_divide<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    let rest = fmod(a, b);
    let one = a.num(1.0);
    if !a.ty().is_float() {
        let quotient = a.prim(Prim::Quot, &[b]);
        return is_across(rest, b).then(quotient - one, quotient);
    }
    let zero = a.num(0.0);
    let quotient = (a - rest) / b;
    let quotient = is_across(rest, b).then(quotient - one, quotient);
    let floor = quotient.prim(Prim::Floor, &[]);
    let nearest = (quotient - floor).gt(a.num(0.5)).then(floor + one, floor);
    let signed_zero = with_sign(zero, a / b);
    let whole = quotient.prim(Prim::Eq, &[zero]).then(signed_zero, nearest);
    b.prim(Prim::Eq, &[zero]).then(a / b, whole)
}

/// A quotient, rounded as the argument says.
pub(super) fn divide<'r>(a: Sym<'r>, b: Sym<'r>, rounding: Option<Rounding>) -> Sym<'r> {
    match rounding {
        Some(Rounding::Floor) => floor_divide(a, b),
        Some(Rounding::Trunc) if a.ty().is_float() => (a / b).prim(Prim::Trunc, &[]),
        Some(Rounding::Trunc) => a.prim(Prim::Quot, &[b]),
        None => a / b,
    }
}

/// A power of two operands.
pub(super) fn power<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    if a.ty().is_float() { a.pow(b) } else { a.prim(Prim::IntPow, &[b]) }
}

/// A power whose exponent is a number. Common exponents become products and roots.
pub(super) fn power_of_number<'r>(x: Sym<'r>, exponent: Scalar) -> Sym<'r> {
    let value = exponent.as_f64();
    if !x.ty().is_float() {
        return x.prim(Prim::IntPow, &[number(x, exponent)]);
    }
    if value == 1.0 {
        x
    } else if value == 2.0 {
        x * x
    } else if value == 3.0 {
        x * x * x
    } else if value == 4.0 {
        let square = x * x;
        square * square
    } else if value == 0.5 {
        x.prim(Prim::Sqrt, &[])
    } else if value == -0.5 {
        x.rsqrt()
    } else if value == -1.0 {
        1.0 / x
    } else if value == -2.0 {
        1.0 / (x * x)
    } else {
        x.pow(number(x, exponent))
    }
}

/// A left shift. An amount that is negative or not below the width gives 0.
pub(super) fn shift_left<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    let (zero, width) = (a.num(0.0), a.num(width(a.ty())));
    let is_inside = b.ge(zero) & b.prim(Prim::Lt, &[width]);
    is_inside.then(a.prim(Prim::Shl, &[b]), zero)
}

/// An arithmetic right shift. An amount that is negative or not below the width gives 0 or −1 by sign.
pub(super) fn shift_right<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    let (zero, width) = (a.num(0.0), width(a.ty()));
    let is_inside = b.ge(zero) & b.prim(Prim::Lt, &[a.num(width)]);
    a.prim(Prim::Shr, &[is_inside.then(b, a.num(width - 1.0))])
}

fn width(ty: Ty) -> f64 {
    if ty == Ty::I64 { 64.0 } else { 32.0 }
}

/// Whether the sign bit is set.
pub(super) fn signbit(x: Sym<'_>) -> Sym<'_> {
    match x.ty() {
        Ty::Bool => x.lit(Lit::bool(false)),
        Ty::I32 | Ty::I64 => x.prim(Prim::Lt, &[x.num(0.0)]),
        Ty::F32 | Ty::F64 => {
            let bits = x.to_bits();
            bits.prim(Prim::Lt, &[bits.num(0.0)])
        }
    }
}

/// The magnitude of one float with the sign of another.
pub(super) fn with_sign<'r>(magnitude: Sym<'r>, sign: Sym<'r>) -> Sym<'r> {
    let size = magnitude.prim(Prim::Abs, &[]);
    signbit(sign).then(-size, size)
}

/// Whether it is infinite with this sign.
pub(super) fn is_infinity(x: Sym<'_>, infinity: f64) -> Sym<'_> {
    if x.ty().is_float() { x.prim(Prim::Eq, &[x.num(infinity)]) } else { x.is_nan() }
}

/// Like [`greatest`], but a NaN is ignored if the other operand is a number.
pub(super) fn greatest_number<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    // `Prim::Max` gives its second operand if one is NaN, so only a NaN in the second one needs a select.
    if a.ty().is_float() { b.is_nan().then(a, a.prim(Prim::Max, &[b])) } else { greatest(a, b) }
}

/// Like [`least`], but a NaN is ignored if the other operand is a number.
pub(super) fn least_number<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    if a.ty().is_float() { b.is_nan().then(a, a.prim(Prim::Min, &[b])) } else { least(a, b) }
}

/// `√(a² + b²)` from the quotient of the smaller over the larger, so that no square overflows or underflows.
pub(super) fn hypot<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    let (a, b) = (a.prim(Prim::Abs, &[]), b.prim(Prim::Abs, &[]));
    let (zero, infinity) = (a.num(0.0), a.num(f64::INFINITY));
    let (large, small) = (greatest(a, b), least(a, b));
    let quotient = small / large;
    let length = large * quotient.fma(quotient, a.num(1.0)).prim(Prim::Sqrt, &[]);
    let length = large.prim(Prim::Eq, &[zero]).then(zero, length);
    let is_infinite = a.prim(Prim::Eq, &[infinity]) | b.prim(Prim::Eq, &[infinity]);
    is_infinite.then(infinity, length)
}

/// `ln(e^a + e^b) = max + ln(1 + e^-|a - b|)`.
pub(super) fn logaddexp<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    let rest = (-(a - b).prim(Prim::Abs, &[])).exp().log1p();
    beside_infinity(a, b, greatest(a, b) + rest)
}

/// [`logaddexp`] to base 2.
pub(super) fn logaddexp2<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    let rest = (-(a - b).prim(Prim::Abs, &[])).exp2().log1p() * LOG2_E;
    beside_infinity(a, b, greatest(a, b) + rest)
}

/// `value`, or the infinity if both operands are the same one, because their difference is NaN.
fn beside_infinity<'r>(a: Sym<'r>, b: Sym<'r>, value: Sym<'r>) -> Sym<'r> {
    (isinf(a) & a.prim(Prim::Eq, &[b])).then(a, value)
}

/// `x ln y`, or 0 where `x` is 0 and `y` is not NaN.
pub(super) fn xlogy<'r>(x: Sym<'r>, y: Sym<'r>) -> Sym<'r> {
    let zero = x.num(0.0);
    let product = x.prim(Prim::Eq, &[zero]).then(zero, x * y.log());
    y.is_nan().then(y, product)
}

/// 0 for negative `x`, 1 for positive `x`, and `at_zero` for 0.
pub(super) fn heaviside<'r>(x: Sym<'r>, at_zero: Sym<'r>) -> Sym<'r> {
    if x.ty() == Ty::Bool {
        return x | at_zero;
    }
    let zero = x.num(0.0);
    x.prim(Prim::Eq, &[zero]).then(at_zero, x.gt(zero).then(x.num(1.0), zero))
}

/// Hyperbolic sine. Up to 1/2 it is the Taylor series. From there on it is `(e^x - e^-x) / 2`, computed as
/// `(m + m / (m + 1)) / 2` with `m = e^|x| - 1`. From 40 on it is `e^|x| / 2`, because `e^-|x|` is negligible and `m`
/// would overflow early.
pub(super) fn sinh(x: Sym<'_>) -> Sym<'_> {
    let a = x.prim(Prim::Abs, &[]);
    let m = a.expm1();
    let far = a.gt(a.num(40.0)).then(half_exponential(a), (m + m / (m + 1.0)) * 0.5);
    let square = a * a;
    // x³/3! + x⁵/5! + … over x³.
    let n_terms = if x.ty() == Ty::F64 { 7 } else { 4 };
    let factorial = |n: usize| (2..=n).map(|k| k as f64).product::<f64>();
    let series = (1..n_terms).rev().map(|k| 1.0 / factorial(2 * k + 1));
    let series = series.fold(a.num(1.0 / factorial(2 * n_terms + 1)), |sum, term| sum.fma(square, a.num(term)));
    let near = (a * square).fma(series, a);
    with_sign(a.prim(Prim::Lt, &[a.num(0.5)]).then(near, far), x)
}

/// Hyperbolic cosine: `(e^x + e^-x) / 2` from `e^|x| / 2`.
pub(super) fn cosh(x: Sym<'_>) -> Sym<'_> {
    let half = half_exponential(x.prim(Prim::Abs, &[]));
    half + 0.25 / half
}

/// `e^a / 2`, as `e^(a - c)` times `e^c / 2`. It is finite for some `a` for which `e^a` overflows.
///
/// The difference is exact from 1/3 on, because `c` has few bits. Below that its error is negligible in `cosh`. The
/// factor is above 1, so that the product overflows and not the power. It is nearly a float in both widths.
fn half_exponential(a: Sym<'_>) -> Sym<'_> {
    (a - 47_630.0 / 65_536.0).exp() * 1.034_200_787_550_783
}

/// `sign(x) ln(a + √(a² + 1))` with `a = |x|`, as `ln(1 + a + a² / (1 + √(a² + 1)))`, or `ln 2a` where the square would
/// overflow.
pub(super) fn asinh(x: Sym<'_>) -> Sym<'_> {
    let a = x.prim(Prim::Abs, &[]);
    let square = a * a;
    let near = (a + square / ((square + 1.0).prim(Prim::Sqrt, &[]) + 1.0)).log1p();
    with_sign(far_logarithm(a, near), x)
}

/// `ln(x + √(x² - 1))` as `ln(1 + t + √(2t + t²))` with `t = x - 1`. Below 1 it is NaN, even where `x² - 1` is
/// positive.
pub(super) fn acosh(x: Sym<'_>) -> Sym<'_> {
    let t = x - 1.0;
    let near = (t + (t * (t + 2.0)).prim(Prim::Sqrt, &[])).log1p();
    x.prim(Prim::Lt, &[x.num(1.0)]).then(x.num(f64::NAN), far_logarithm(x, near))
}

/// `near`, or `ln 2a` for large `a`, where the terms of `near` would overflow.
fn far_logarithm<'r>(a: Sym<'r>, near: Sym<'r>) -> Sym<'r> {
    // From 2^28 on, the next term of the expansion is negligible in both widths.
    a.gt(a.num(268_435_456.0)).then(a.log() + std::f64::consts::LN_2, near)
}

/// `ln((1 + a) / (1 - a)) / 2` with `a = |x|`, as `ln(1 + 2a / (1 - a)) / 2`, with the sign of `x`.
pub(super) fn atanh(x: Sym<'_>) -> Sym<'_> {
    let a = x.prim(Prim::Abs, &[]);
    with_sign(((a + a) / (1.0 - a)).log1p() * 0.5, x)
}

/// `sin(πx) / (πx)`, 1 at 0.
pub(super) fn sinc(x: Sym<'_>) -> Sym<'_> {
    let angle = x * PI;
    x.prim(Prim::Eq, &[x.num(0.0)]).then(x.num(1.0), angle.sin() / angle)
}

/// `ln(x / (1 - x))`. With `eps`, `x` is first clamped to `eps..=1 - eps`.
pub(super) fn logit<'r>(x: Sym<'r>, eps: Option<f64>) -> Sym<'r> {
    let x = match eps {
        Some(eps) => {
            let (low, high) = (x.num(eps), x.num(1.0 - eps));
            // If `eps` is above 1/2, the lower bound wins.
            let above = high.prim(Prim::Lt, &[x]).then(high, x);
            x.prim(Prim::Lt, &[low]).then(low, above)
        }
        None => x,
    };
    (x / (1.0 - x)).log()
}

/// Rounded to a number of decimals, ties to even.
pub(super) fn round_decimals<'r>(x: Sym<'r>, decimals: i64) -> Sym<'r> {
    if !x.ty().is_float() {
        return x;
    }
    let decimals = decimals.clamp(-400, 400) as i32;
    let power = x.num(10_f64.powi(decimals.abs()));
    if decimals < 0 {
        (x / power).prim(Prim::RoundEven, &[]) * power
    } else {
        (x * power).prim(Prim::RoundEven, &[]) / power
    }
}

/// `ln(1 + e^x)` without overflow.
fn softplus_of(x: Sym<'_>) -> Sym<'_> {
    let zero = x.num(0.0);
    greatest(x, zero) + (-x.prim(Prim::Abs, &[])).exp().log1p()
}

/// `ln σ(x)`.
pub(super) fn log_sigmoid(x: Sym<'_>) -> Sym<'_> {
    -softplus_of(-x)
}

/// `scale x` for positive `x`, else `scale alpha (e^(input_scale x) - 1)` (Clevert et al. 2015).
pub(super) fn elu<'r>(x: Sym<'r>, alpha: f64, scale: f64, input_scale: f64) -> Sym<'r> {
    let below = (x * input_scale).expm1() * (alpha * scale);
    let above = if scale == 1.0 { x } else { x * scale };
    x.prim(Prim::Lt, &[x.num(0.0)]).then(below, above)
}

/// `(alpha, scale)` for which activations keep mean 0 and variance 1 (Klambauer et al. 2017).
pub(super) const SELU: (f64, f64) = (1.673_263_242_354_377_2, 1.050_700_987_355_480_5);

/// `x` where it is positive, else `x` times the slope.
pub(super) fn leaky_relu<'r>(x: Sym<'r>, slope: Scalar) -> Sym<'r> {
    x.gt(x.num(0.0)).then(x, x * number(x, slope))
}

/// `relu6(x + 3)`.
pub(super) fn relu6_of_plus_3(x: Sym<'_>) -> Sym<'_> {
    let shifted = x + 3.0;
    least(x.num(6.0), greatest(x.num(0.0), shifted))
}

/// `ln(1 + e^(beta x)) / beta`, or `x` where `beta x` is above the threshold.
pub(super) fn softplus<'r>(x: Sym<'r>, beta: Scalar, threshold: Scalar) -> Sym<'r> {
    let beta = number(x, beta);
    let scaled = x * beta;
    scaled.gt(number(x, threshold)).then(x, scaled.exp().log1p() / beta)
}

/// `x` moved toward 0 by `lambda`, or 0 where `|x| <= lambda`.
pub(super) fn softshrink<'r>(x: Sym<'r>, lambda: Scalar) -> Sym<'r> {
    let lambda = number(x, lambda);
    let outside = x.gt(x.num(0.0)).then(x - lambda, x + lambda);
    is_within(x, lambda).then(x.num(0.0), outside)
}

/// `x`, or 0 where `|x| <= lambda`.
pub(super) fn hardshrink<'r>(x: Sym<'r>, lambda: Scalar) -> Sym<'r> {
    is_within(x, number(x, lambda)).then(x.num(0.0), x)
}

fn is_within<'r>(x: Sym<'r>, bound: Sym<'r>) -> Sym<'r> {
    x.ge(-bound) & x.prim(Prim::Le, &[bound])
}

/// `x` where it is above the threshold, else the value.
pub(super) fn threshold<'r>(x: Sym<'r>, threshold: Scalar, value: Scalar) -> Sym<'r> {
    x.prim(Prim::Le, &[number(x, threshold)]).then(number(x, value), x)
}

/// `a b + c`, rounded once.
pub(super) fn fma<'r>(a: Sym<'r>, b: Sym<'r>, c: Sym<'r>) -> Sym<'r> {
    a.fma(b, c)
}

/// Linear interpolation, computed from the nearer end, so that it is exact at both ends.
pub(super) fn lerp<'r>(start: Sym<'r>, end: Sym<'r>, weight: Sym<'r>) -> Sym<'r> {
    let difference = end - start;
    let is_near = weight.prim(Prim::Abs, &[]).prim(Prim::Lt, &[weight.num(0.5)]);
    is_near.then(start + weight * difference, end - difference * (1.0 - weight))
}

/// `x + value a b`.
pub(super) fn addcmul<'r>(x: &[Sym<'r>], value: Scalar) -> Sym<'r> {
    x[0] + scaled(x[1], value) * x[2]
}

/// `x + value a / b`.
pub(super) fn addcdiv<'r>(x: &[Sym<'r>], value: Scalar) -> Sym<'r> {
    x[0] + scaled(x[1], value) / x[2]
}

/// The derivative of order `n` of `ψ`. Orders above 1 are `±n! Σ (x + k)^-(n + 1)`: ten terms are added, and the rest
/// is the Euler–Maclaurin formula (DLMF 25.11.28). Negative arguments are reflected (DLMF 5.15.6).
pub(super) fn polygamma<'r>(x: Sym<'r>, order: i64) -> Sym<'r> {
    // B_2k / (2k)!.
    const BERNOULLI: [f64; 8] = [
        1.0 / 12.0,
        -1.0 / 720.0,
        1.0 / 30_240.0,
        -1.0 / 1_209_600.0,
        1.0 / 47_900_160.0,
        -691.0 / 1_307_674_368_000.0,
        1.0 / 74_724_249_600.0,
        -3617.0 / 10_670_622_842_880_000.0,
    ];
    const N_TERMS: usize = 10;
    let n = match order {
        0 => return x.digamma(),
        1 => return x.trigamma(),
        n => n as usize,
    };
    let zero = x.num(0.0);
    let is_negative = x.prim(Prim::Lt, &[zero]);
    let original = x;
    let x = is_negative.then(1.0 - x, x);
    let is_near = x.prim(Prim::Lt, &[x.num(N_TERMS as f64)]);
    let sum = (0..N_TERMS).map(|k| natural_power(1.0 / (x + k as f64), n + 1)).reduce(|sum, term| sum + term);
    let inverse = 1.0 / is_near.then(x + N_TERMS as f64, x);
    let square = inverse * inverse;
    let mut rising = (n + 1) as f64;
    let mut factors = [0.0; BERNOULLI.len()];
    for (k, factor) in factors.iter_mut().enumerate() {
        *factor = BERNOULLI[k] * rising;
        rising *= ((n + 2 * k + 2) * (n + 2 * k + 3)) as f64;
    }
    let series = factors.iter().rev().fold(zero, |series, &factor| series.fma(square, x.num(factor)));
    let rest = natural_power(inverse, n) * (square * series + inverse * 0.5 + 1.0 / n as f64);
    let zeta = is_near.then(sum.unwrap_or(zero) + rest, rest);
    let factorial: f64 = (1..=n).map(|k| k as f64).product();
    let sign = if n.is_multiple_of(2) { 1.0 } else { -1.0 };
    let value = zeta * (-sign * factorial);
    let reflected = value * sign - cotangent_derivative(original, n) * PI;
    is_negative.then(reflected, value)
}

/// The derivative of order `n` of `cot πx`, a polynomial in `c = cot πx` because the first is `-π (1 + c²)`.
fn cotangent_derivative(x: Sym<'_>, n: usize) -> Sym<'_> {
    let mut polynomial = vec![0.0, 1.0];
    for _ in 0..n {
        let mut next = vec![0.0; polynomial.len() + 1];
        for (power, coefficient) in polynomial.iter().enumerate().skip(1) {
            next[power - 1] -= PI * power as f64 * coefficient;
            next[power + 1] -= PI * power as f64 * coefficient;
        }
        polynomial = next;
    }
    let angle = (x - x.prim(Prim::RoundEven, &[])) * PI;
    let cotangent = angle.cos() / angle.sin();
    polynomial.iter().rev().fold(x.num(0.0), |sum, &coefficient| sum.fma(cotangent, x.num(coefficient)))
}

/// A power with a positive whole exponent, by repeated squaring.
fn natural_power(x: Sym<'_>, exponent: usize) -> Sym<'_> {
    match exponent {
        0 | 1 => x,
        even if even.is_multiple_of(2) => natural_power(x * x, even / 2),
        odd => natural_power(x * x, odd / 2) * x,
    }
}

pub(super) fn binary_cross_entropy<'r>(x: Sym<'r>, target: Sym<'r>) -> Sym<'r> {
    let [yes, no] = [x.log(), (-x).log1p()].map(|log| greatest(x.num(-100.0), log));
    (target - 1.0) * no - target * yes
}
