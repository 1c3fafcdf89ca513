//! The incomplete gamma functions, `igamma` and `igammac`.
//!
//! They are computed in f64 and rounded once. Four formulas share the quarter plane of positive `a` and `x`:
//!
//! | where | what |
//! |---|---|
//! | `a` from 30 on, `x` near it | an expansion that is uniform in `x / a` (Temme 1979; DLMF 8.12.3 to 8.12.11) |
//! | else `x` up to the greater of `a` and 2 | a series of positive terms for the lower function (DLMF 8.11.4) |
//! | there, `x` above `a`, the upper function | the power series less the 1 that cancels (DLMF 8.7.3) |
//! | elsewhere | a continued fraction for the upper function (DLMF 8.9.2) |
//!
//! All of them are computed for each element, from arguments that are moved into the formula's domain. So a result
//! depends on its own arguments alone. What the function is at 0, at infinity and for NaN is as in PyTorch.
//!
//! The derivative by `x` is its formula. That by `a`, which PyTorch lacks, is the derivative of these formulas.

use crate::dispatch::key::default_dtype::default_dtype;
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::Result;
use crate::ir::{DType, Op, promote_all};
use crate::ops::composite::Composite;
use crate::ops::in_place::in_place_methods;
use crate::tensor::handle::Tensor;

static IGAMMA: Composite = Composite::new("igamma(Tensor self, Tensor other) -> Tensor").with_writes();
static IGAMMAC: Composite = Composite::new("igammac(Tensor self, Tensor other) -> Tensor").with_writes();
/// Values in f64. They are operators because a call whose gradient is recorded makes them as one program, too.
static LOWER: Composite = Composite::new("_igamma(Tensor self, Tensor other) -> Tensor");
static UPPER: Composite = Composite::new("_igammac(Tensor self, Tensor other) -> Tensor");

/// Incomplete gamma functions.
impl Tensor {
    /// The regularized lower incomplete gamma function of `a`, which is this tensor, and `x`: the integral of
    /// `t^(a - 1) exp(-t)` from 0 to `x`, divided by `Γ(a)`. Sizes are broadcast. Integers become the default float.
    ///
    /// It is NaN where `a` or `x` is negative, or where both are 0 or infinite.
    ///
    /// ```
    /// # fn main() -> opfuse::Result<()> {
    /// use opfuse::Tensor;
    /// let (a, x) = (Tensor::try_from([1.0f64])?, Tensor::try_from([2.0f64])?);
    /// let share = a.igamma(&x)?.to_vec::<f64>()?[0];
    /// assert!((share - (1.0 - (-2.0f64).exp())).abs() < 1e-15);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the sizes do not broadcast, or if there is not enough memory.
    #[track_caller]
    pub fn igamma(&self, x: &Tensor) -> Result<Tensor> {
        IGAMMA.call((self, x))
    }

    /// The regularized upper incomplete gamma function, `1 - igamma(a, x)`, accurate where that is small. See
    /// [`Tensor::igamma`].
    ///
    /// # Errors
    /// Same as [`Tensor::igamma`].
    #[track_caller]
    pub fn igammac(&self, x: &Tensor) -> Result<Tensor> {
        IGAMMAC.call((self, x))
    }

    in_place_methods! {
        igamma igamma_ IGAMMA (x: &Tensor) (self, x);
        igammac igammac_ IGAMMAC (x: &Tensor) (self, x);
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&LOWER, |a: &Tensor, x: &Tensor| value(a, x, Tail::Lower))?
        .composite(&UPPER, |a: &Tensor, x: &Tensor| value(a, x, Tail::Upper))?
        .composite(&IGAMMA, |a: &Tensor, x: &Tensor| differentiable(a, x, Tail::Lower))?
        .composite(&IGAMMAC, |a: &Tensor, x: &Tensor| differentiable(a, x, Tail::Upper))?;
    Ok(())
}

/// Which part of the integral.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tail {
    /// From 0 to `x`.
    Lower,
    /// From `x` on.
    Upper,
}

fn differentiable(a: &Tensor, x: &Tensor, tail: Tail) -> Result<Tensor> {
    let dtype = promote_all([a.ty().promote_operand(), x.ty().promote_operand()]).filter(|dtype| dtype.is_float());
    let dtype = dtype.unwrap_or(default_dtype());
    let (a, x) = (a.to_dtype(DType::F64)?, x.to_dtype(DType::F64)?);
    let operator = match tail {
        Tail::Lower => &LOWER,
        Tail::Upper => &UPPER,
    };
    if a.requires_grad() {
        return operator.call::<_, Tensor>((&a, &x))?.to_dtype(dtype);
    }
    let value: Tensor = operator.call((&a, &x.detach()?))?;
    let slope = a.sub(1.0)?.xlogy(&x)?.sub(&x)?.sub(&a.lgamma()?)?.exp()?;
    let slope = if tail == Tail::Upper { slope.neg()? } else { slope };
    call(Op::Sloped, &[&value, &x, &slope], &[])?.to_dtype(dtype)
}

/// The function in f64.
fn value(a: &Tensor, x: &Tensor, tail: Tail) -> Result<Tensor> {
    let is_regular = |number: &Tensor| number.gt(0.0)?.logical_and(&number.lt(f64::INFINITY)?);
    let is_regular = is_regular(a)?.logical_and(&is_regular(x)?)?;
    let inner = of_positive(&is_regular.where_(a, 1.0)?, &is_regular.where_(x, 1.0)?, tail)?;
    // Where there is nothing of the integral, and where there is all of it.
    let (none, all) = if tail == Tail::Lower { (0.0, 1.0) } else { (1.0, 0.0) };
    let value = is_regular.where_(&inner, f64::NAN)?;
    let value = x.eq(f64::INFINITY)?.where_(all, &value)?;
    let of_infinite = x.isinf()?.where_(f64::NAN, &x.full_like(none)?)?;
    let value = a.isinf()?.where_(&of_infinite, &value)?;
    let value = x.eq(0.0)?.where_(none, &value)?;
    let of_zero = x.gt(0.0)?.where_(all, &x.full_like(f64::NAN)?)?;
    let value = a.eq(0.0)?.where_(&of_zero, &value)?;
    a.lt(0.0)?.logical_or(&x.lt(0.0)?)?.where_(f64::NAN, &value)
}

/// The upper function for `a` and `x` that are positive and finite. The dtype is f64.
pub(crate) fn upper_of_positive(a: &Tensor, x: &Tensor) -> Result<Tensor> {
    of_positive(a, x, Tail::Upper)
}

fn of_positive(a: &Tensor, x: &Tensor, tail: Tail) -> Result<Tensor> {
    let bell = Bell::new(a, x)?;
    let power = power(a, x, &bell)?;
    let least = a.clamp_min(TURN)?;
    let is_low = x.le(&least)?;
    let lower = power.mul(&series(a, &x.minimum(&least)?)?)?;
    // Powers are 0 for greater numbers, and products of them would overflow.
    let bounded = a.clamp_max(1e100)?;
    let upper = power.mul(&bounded)?.div(&fraction(&bounded, &x.maximum(&least)?)?)?;
    let far = match tail {
        Tail::Lower => is_low.where_(&lower, &upper.neg()?.add(1.0)?)?,
        Tail::Upper => {
            let is_small = x.le(TURN)?.logical_and(&x.gt(a)?)?;
            let small = small(&a.clamp_max(TURN)?, &x.clamp_max(TURN)?)?;
            is_low.where_(&is_small.where_(&small, &lower.neg()?.add(1.0)?)?, &upper)?
        }
    };
    let is_near = a.ge(UNIFORM_FROM)?.logical_and(&bell.place.abs()?.le(UNIFORM_TO)?)?;
    is_near.where_(&uniform(&a.clamp_min(UNIFORM_FROM)?, &bell, tail)?, &far)
}

/// Up to here the power series have few terms, and from here on the continued fraction.
const TURN: f64 = 2.0;
/// The terms of the series, for `x` up to [`TURN`], up to `a` below [`UNIFORM_FROM`], and up to half of any `a`.
const TERMS: i32 = 54;
/// The depth of the continued fraction, where `x` is above these bounds.
const DEPTH: i32 = 36;

/// The sum of `x^k / ((a + 1) … (a + k))` over `k` from 0 on.
fn series(a: &Tensor, x: &Tensor) -> Result<Tensor> {
    let mut sum = x.div(&a.add(TERMS)?)?.add(1.0)?;
    for k in (1..TERMS).rev() {
        sum = x.div(&a.add(k)?)?.mul(&sum)?.add(1.0)?;
    }
    Ok(sum)
}

/// The continued fraction, by Legendre, that `x^a exp(-x) / Γ(a)` is divided by.
fn fraction(a: &Tensor, x: &Tensor) -> Result<Tensor> {
    let rest = x.sub(a)?;
    // What is below the last level: it grows like this.
    let last = DEPTH + 1;
    let mut fraction = x.mul(last)?.sqrt()?.add(last)?;
    for k in (1..=DEPTH).rev() {
        let numerator = a.mul(-k)?.add(k * k)?;
        fraction = rest.add(2 * k - 1)?.sub(&numerator.div(&fraction)?)?;
    }
    Ok(fraction)
}

/// The upper function for `x` up to [`TURN`] and above `a`: `1 - x^a / Γ(a + 1) (1 + a s)`, with the alternating sum
/// `s` of `(-x)^n / ((a + n) n!)`. The 1 and the power are subtracted by their logarithm.
fn small(a: &Tensor, x: &Tensor) -> Result<Tensor> {
    const TERMS: i32 = 24;
    let mut sum = x.zeros_like()?;
    for n in (1..=TERMS).rev() {
        sum = sum.add(&a.add(n)?.reciprocal()?)?.mul(&x.mul(-1.0 / f64::from(n))?)?;
    }
    let log = a.mul(&x.log()?)?.sub(&lgamma_1p(a)?)?;
    log.expm1()?.add(&log.exp()?.mul(a)?.mul(&sum)?)?.neg()
}

/// `log Γ(1 + a)` for `a` up to [`TURN`], relative to `a` where it is small (DLMF 5.7.3).
fn lgamma_1p(a: &Tensor) -> Result<Tensor> {
    const EULER: f64 = 0.577_215_664_901_532_9;
    const FAR: f64 = 0.3;
    let near = a.clamp_max(FAR)?;
    let mut sum = near.zeros_like()?;
    for (k, zeta) in (2i32..20).zip(ZETA_LESS_1).rev() {
        let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
        sum = sum.mul(&near)?.add(sign * zeta / f64::from(k))?;
    }
    let sum = sum.mul(&near)?.add(1.0 - EULER)?.mul(&near)?.sub(&near.log1p()?)?;
    a.le(FAR)?.where_(&sum, &a.add(1.0)?.lgamma()?)
}

/// From here on `Γ(a)` is that of Stirling.
const STIRLING_FROM: f64 = 10.0;

/// What `x^a exp(-x)` is like around its greatest value.
pub(crate) struct Bell {
    /// `a`, at least [`STIRLING_FROM`].
    a: Tensor,
    /// `η` of the uniform expansion, where `x` is near `a`. It has the sign of `x - a`, and half of its square is
    /// `x / a - 1 - log(x / a)`. It is large elsewhere.
    place: Tensor,
    /// `exp(-a η² / 2) / √(2πa)`.
    height: Tensor,
}

impl Bell {
    pub(crate) fn new(a: &Tensor, x: &Tensor) -> Result<Bell> {
        /// The terms of the series, for quotients up to the bounds below.
        const TERMS: i32 = 19;
        const ROOT_2_PI: f64 = 2.506_628_274_631_000_2;
        let a = a.clamp_min(STIRLING_FROM)?;
        let beyond = x.sub(&a)?.div(&a)?;
        let is_near = beyond.gt(-0.55)?.logical_and(&beyond.lt(1.0)?)?;
        let near = is_near.where_(&beyond, 0.0)?;
        // With r = μ / (2 + μ) the logarithm of 1 + μ is 2 artanh r, and μ - 2 r is r μ.
        let inverse = near.add(2.0)?.reciprocal()?;
        let quotient = near.mul(&inverse)?;
        let square = quotient.square()?;
        let mut sum = near.zeros_like()?;
        for n in (1..TERMS).rev() {
            sum = sum.mul(&square)?.add(1.0 / f64::from(2 * n + 1))?;
        }
        let rest = quotient.mul(&sum)?.mul(&inverse)?.mul(-2.0)?.add(1.0)?;
        let curved = inverse.mul(&rest)?.mul(2.0)?;
        let deviance = is_near.where_(&near.square()?.mul(&curved)?.mul(0.5)?, &beyond.sub(&x.div(&a)?.log()?)?)?;
        let place = is_near.where_(&near.mul(&curved.sqrt()?)?, 10.0)?;
        let height = a.mul(&deviance)?.neg()?.exp()?.div(&a.sqrt()?.mul(ROOT_2_PI)?)?;
        Ok(Bell { a, place, height })
    }
}

/// `x^a exp(-x) / Γ(a + 1)`.
pub(crate) fn power(a: &Tensor, x: &Tensor, bell: &Bell) -> Result<Tensor> {
    /// Where the exponential is long 0.
    const ZERO_FROM: f64 = 1500.0;
    let low = a.clamp_max(STIRLING_FROM)?;
    let x = x.clamp_max(ZERO_FROM)?;
    // The exponential may underflow where the product does not.
    let half = x.mul(-0.5)?.exp()?;
    let direct = x.pow(&low)?.mul(&half)?.div(&low.add(1.0)?.lgamma()?.exp()?)?.mul(&half)?;
    a.lt(STIRLING_FROM)?.where_(&direct, &bell.height.div(&stirling(&bell.a)?.exp()?)?)
}

/// `log Γ(a + 1) - (a log a - a + log √(2πa))` from [`STIRLING_FROM`] on (DLMF 5.11.1).
fn stirling(a: &Tensor) -> Result<Tensor> {
    const FACTORS: [f64; 7] =
        [1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0, -691.0 / 360360.0, 1.0 / 156.0];
    let inverse = a.reciprocal()?;
    horner(&inverse.square()?, &FACTORS)?.mul(&inverse)
}

/// The uniform expansion: half of an `erfc`, and the bell times a series in `1 / a` whose coefficients are functions of
/// `η`. They are given by their power series.
fn uniform(a: &Tensor, bell: &Bell, tail: Tail) -> Result<Tensor> {
    let place = bell.place.clamp(Some((-UNIFORM_TO).into()), Some(UNIFORM_TO.into()))?;
    let inverse = a.reciprocal()?;
    let mut sum = a.zeros_like()?;
    for factors in UNIFORM.iter().rev() {
        sum = sum.mul(&inverse)?.add(&horner(&place, factors)?)?;
    }
    let rest = bell.height.mul(&sum)?;
    let distance = place.mul(&a.mul(0.5)?.sqrt()?)?;
    match tail {
        Tail::Lower => distance.neg()?.erfc()?.mul(0.5)?.sub(&rest),
        Tail::Upper => distance.erfc()?.mul(0.5)?.add(&rest),
    }
}

/// A polynomial, from its coefficients of ascending order.
fn horner(x: &Tensor, factors: &[f64]) -> Result<Tensor> {
    let Some((last, others)) = factors.split_last() else { return x.zeros_like() };
    let mut sum = x.full_like(*last)?;
    for &factor in others.iter().rev() {
        sum = sum.mul(x)?.add(factor)?;
    }
    Ok(sum)
}

/// From this `a` on the uniform expansion is used.
const UNIFORM_FROM: f64 = 30.0;
/// Up to this `|η|`.
const UNIFORM_TO: f64 = 0.7;
/// The coefficients of the uniform expansion: a row for each power of `1 / a`, a column for each power of `η`. They
/// follow from DLMF 8.12.9 and 8.12.10 by exact arithmetic on series.
const UNIFORM: [&[f64]; 9] = [
    &[
        -0.3333333333333333,
        0.08333333333333333,
        -0.014814814814814815,
        0.0011574074074074073,
        0.0003527336860670194,
        -0.0001787551440329218,
        3.919263178522438e-05,
        -2.185448510679992e-06,
        -1.85406221071516e-06,
        8.296711340953087e-07,
        -1.7665952736826078e-07,
        6.707853543401498e-09,
        1.0261809784240309e-08,
        -4.382036018453353e-09,
        9.14769958223679e-10,
        -2.5514193994946248e-11,
        -5.830772132550426e-11,
        2.4361948020667415e-11,
        -5.0276692801141755e-12,
        1.1004392031956135e-13,
        3.371763262400985e-13,
    ],
    &[
        -0.001851851851851852,
        -0.003472222222222222,
        0.0026455026455026454,
        -0.0009902263374485596,
        0.00020576131687242798,
        -4.018775720164609e-07,
        -1.8098550334489977e-05,
        7.64916091608111e-06,
        -1.6120900894563446e-06,
        4.647127802807434e-09,
        1.378633446915721e-07,
        -5.752545603517705e-08,
        1.1951628599778148e-08,
        -1.7543241719747647e-11,
        -1.0091543710600413e-09,
        4.162792991842583e-10,
        -8.56390702649298e-11,
        6.067215101604758e-14,
        7.1624989648114856e-12,
    ],
    &[
        0.004133597883597883,
        -0.0026813271604938273,
        0.0007716049382716049,
        2.0093878600823047e-06,
        -0.0001073665322636516,
        5.2923448829120125e-05,
        -1.2760635188618728e-05,
        3.423578734096138e-08,
        1.3721957309062934e-06,
        -6.298992138380055e-07,
        1.4280614206064242e-07,
        -2.0477098421990866e-10,
        -1.409252991086752e-08,
        6.228974084922022e-09,
        -1.3670488396617114e-09,
        9.428356159014678e-13,
        1.2872252400089318e-10,
        -5.5645956134363323e-11,
    ],
    &[
        0.0006494341563786008,
        0.00022947209362139917,
        -0.0004691894943952557,
        0.00026772063206283885,
        -7.561801671883977e-05,
        -2.396505113867297e-07,
        1.1082654115347302e-05,
        -5.6749528269915965e-06,
        1.4230900732435883e-06,
        -2.7861080291528143e-11,
        -1.6958404091930278e-07,
        8.099464905388083e-08,
        -1.9111168485973655e-08,
        2.3928620439808118e-12,
        2.0620131815488797e-09,
        -9.460496661855133e-10,
    ],
    &[
        -0.0008618882909167117,
        0.0007840392217200666,
        -0.0002990724803031902,
        -1.4638452578843418e-06,
        6.641498215465122e-05,
        -3.968365047179435e-05,
        1.1375726970678419e-05,
        2.507497226237533e-10,
        -1.6954149536558305e-06,
        8.907507532205309e-07,
        -2.292934834000805e-07,
        2.956794137544049e-11,
        2.8865829742708783e-08,
        -1.4189739437803219e-08,
    ],
    &[
        -0.00033679855336635813,
        -6.972813758365857e-05,
        0.0002772753244959392,
        -0.00019932570516188847,
        6.797780477937208e-05,
        1.419062920643967e-07,
        -1.3594048189768693e-05,
        8.018470256334202e-06,
        -2.291481176508095e-06,
        -3.252473551298454e-10,
        3.4652846491085265e-07,
        -1.8447187191171344e-07,
    ],
    &[
        0.0005313079364639922,
        -0.0005921664373536939,
        0.0002708782096718045,
        7.902353232660328e-07,
        -8.153969367561969e-05,
        5.61168275310625e-05,
        -1.8329116582843375e-05,
        -3.0796134506033047e-09,
        3.465155368803609e-06,
    ],
    &[
        0.00034436760689237765,
        5.171790908260592e-05,
        -0.00033493161081142234,
        0.0002812695154763237,
        -0.00010976582244684731,
        -1.2741009095484485e-07,
        2.7744451511563645e-05,
    ],
    &[-0.0006526239185953094, 0.0008394987206720873, -0.000438297098541721],
];
/// `ζ(k) - 1` for `k` from 2 on.
const ZETA_LESS_1: [f64; 18] = [
    0.6449340668482264,
    0.2020569031595943,
    0.08232323371113819,
    0.03692775514336993,
    0.01734306198444914,
    0.008349277381922827,
    0.00407735619794434,
    0.0020083928260822143,
    0.0009945751278180853,
    0.0004941886041194645,
    0.0002460865533080483,
    0.00012271334757848915,
    6.124813505870483e-05,
    3.058823630702049e-05,
    1.528225940865187e-05,
    7.637197637899763e-06,
    3.81729326499984e-06,
    1.908212716553939e-06,
];
