//! Bessel functions and scaled tails of the normal distribution, by Chebyshev series.
//!
//! Coefficients were fitted with 40 digits; the series are cut where terms fall below the precision of f64. Numbers are
//! computed in f64 and rounded once. Derivatives are those of the series.

use crate::dispatch::key::default_dtype::default_dtype;
use crate::dispatch::library::Library;
use crate::error::Result;
use crate::ir::DType;
use crate::ops::composite::Composite;
use crate::ops::in_place::in_place_methods;
use crate::tensor::handle::Tensor;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

static I0: Composite = Composite::new("i0(Tensor self) -> Tensor").with_writes();

/// Bessel functions.
impl Tensor {
    /// The modified Bessel function of the first kind of order 0. Integers become the default float. The others are
    /// operators: `special_i0e`, `special_i1`, `special_i1e`, `special_bessel_j0` and `special_bessel_j1`.
    ///
    /// ```
    /// # fn main() -> opfuse::Result<()> {
    /// use opfuse::Tensor;
    /// let x = Tensor::try_from([1.0f64])?;
    /// assert!((x.i0()?.to_vec::<f64>()?[0] - 1.2660658777520084).abs() < 1e-15);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn i0(&self) -> Result<Tensor> {
        I0.call((self,))
    }

    in_place_methods! {
        i0 i0_ I0 () (self);
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&I0, |x: &Tensor| in_f64(x, i0))?
        .def_kernel("special_i0(Tensor self) -> Tensor", |x: &Tensor| x.i0())?
        .def_kernel("special_i0e(Tensor self) -> Tensor", |x: &Tensor| in_f64(x, |x| scaled_i0(&x.abs()?)))?
        .def_kernel("special_i1(Tensor self) -> Tensor", |x: &Tensor| in_f64(x, i1))?
        .def_kernel("special_i1e(Tensor self) -> Tensor", |x: &Tensor| in_f64(x, |x| odd(x, scaled_i1)))?
        .def_kernel("special_bessel_j0(Tensor self) -> Tensor", |x: &Tensor| in_f64(x, j0))?
        .def_kernel("special_bessel_j1(Tensor self) -> Tensor", |x: &Tensor| in_f64(x, j1))?
        .def_kernel("special_erfcx(Tensor self) -> Tensor", |x: &Tensor| in_f64(x, erfcx))?;
    Ok(())
}

/// A function in f64, rounded to the dtype of `x`.
fn in_f64(x: &Tensor, function: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let dtype = if x.dtype().is_float() { x.dtype() } else { default_dtype() };
    function(&x.to_dtype(DType::F64)?)?.to_dtype(dtype)
}

/// The sum of Chebyshev polynomials of `t` with these factors, by the recurrence of Clenshaw.
fn series(t: &Tensor, factors: &[f64]) -> Result<Tensor> {
    let Some((first, others)) = factors.split_first() else { return t.zeros_like() };
    let twice = t.mul(2.0)?;
    let (mut sum, mut before) = (t.zeros_like()?, t.zeros_like()?);
    for &factor in others.iter().rev() {
        (sum, before) = (twice.mul(&sum)?.sub(&before)?.add(factor)?, sum);
    }
    t.mul(&sum)?.sub(&before)?.add(*first)
}

/// Where numbers that are not negative are at most 8, and each of both kinds brought into its range.
fn ranges(x: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    Ok((x.le(8.0)?, x.clamp_max(8.0)?, x.clamp_min(8.0)?))
}

/// `exp(-x) I0(x)` for `x` that is not negative.
fn scaled_i0(x: &Tensor) -> Result<Tensor> {
    scaled(x, &I0_NEAR, &I0_FAR, |near, _| Ok(near))
}

/// `exp(-x) I1(x)` for `x` that is not negative.
fn scaled_i1(x: &Tensor) -> Result<Tensor> {
    scaled(x, &I1_NEAR, &I1_FAR, |near, x| near.mul(x))
}

fn scaled(
    x: &Tensor,
    near_factors: &[f64],
    far_factors: &[f64],
    finish: impl FnOnce(Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let (is_near, low, high) = ranges(x)?;
    let near = finish(series(&low.mul(0.25)?.sub(1.0)?, near_factors)?, &low)?;
    let far = series(&high.reciprocal()?.mul(16.0)?.sub(1.0)?, far_factors)?.div(&high.sqrt()?)?;
    is_near.where_(&near, &far)
}

/// `exp(x) y` for `x` that is not negative, where `exp(x)` alone may overflow.
fn grown(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let half = x.mul(0.5)?.exp()?;
    y.mul(&half)?.mul(&half)
}

fn i0(x: &Tensor) -> Result<Tensor> {
    let x = x.abs()?;
    let value = grown(&x, &scaled_i0(&x)?)?;
    x.isinf()?.where_(&x, &value)
}

fn i1(x: &Tensor) -> Result<Tensor> {
    let value = odd(x, |x| grown(x, &scaled_i1(x)?))?;
    x.isinf()?.where_(x, &value)
}

/// An odd function of any number, from what it is for those that are not negative. The slope at zero is that from the
/// right; `abs` has none there.
fn odd(x: &Tensor, function: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let sign = sign(x)?;
    function(&x.mul(&sign)?)?.mul(&sign)
}

/// -1 for negative numbers, and 1 for others.
fn sign(x: &Tensor) -> Result<Tensor> {
    x.lt(0.0)?.where_(-1.0, &x.ones_like()?)
}

/// From 8 on, `Jn(x)` is `sqrt(2 / πx) (P cos χ - Q sin χ)` (G. N. Watson, A treatise on the theory of Bessel
/// functions, 1944, section 7.3). Here are `cos χ` and `sin χ`, times the root of 2, from the sine and cosine of `x`.
type Phase = fn(&Tensor, &Tensor) -> Result<(Tensor, Tensor)>;

fn oscillating(x: &Tensor, [near, p, q]: [&[f64]; 3], is_odd: bool, phase: Phase) -> Result<Tensor> {
    let size = x.abs()?;
    let (is_near, low, high) = ranges(&size)?;
    let near = series(&low.square()?.div(32.0)?.sub(1.0)?, near)?;
    let near = if is_odd { near.mul(&low)? } else { near };
    let is_infinite = high.isinf()?;
    let high = is_infinite.where_(8.0, &high)?;
    let inverse = high.reciprocal()?;
    let t = inverse.square()?.mul(128.0)?.sub(1.0)?;
    let (cosine, sine) = phase(&high.sin()?, &high.cos()?)?;
    let (p, q) = (series(&t, p)?, series(&t, q)?.mul(&inverse)?.mul(8.0)?);
    let root = inverse.mul(2.0 / PI)?.sqrt()?.mul(FRAC_1_SQRT_2)?;
    let far = p.mul(&cosine)?.sub(&q.mul(&sine)?)?.mul(&root)?;
    let value = is_near.where_(&near, &is_infinite.where_(0.0, &far)?)?;
    // Neither side is what a NaN compares to.
    let value = size.isnan()?.where_(&size, &value)?;
    if is_odd { value.mul(&x.sign()?) } else { Ok(value) }
}

fn j0(x: &Tensor) -> Result<Tensor> {
    // χ is x - π / 4.
    oscillating(x, [&J0_NEAR, &J0_P, &J0_Q], false, |sin, cos| Ok((cos.add(sin)?, sin.sub(cos)?)))
}

fn j1(x: &Tensor) -> Result<Tensor> {
    // χ is x - 3π / 4.
    oscillating(x, [&J1_NEAR, &J1_P, &J1_Q], true, |sin, cos| Ok((sin.sub(cos)?, sin.add(cos)?.neg()?)))
}

/// `exp(x²) erfc(x)`. For negative numbers it is `2 exp(x²)` less that of the magnitude. The substitution is that of
/// M. M. Shepherd and J. G. Laframboise, Chebyshev approximation of (1 + 2x) exp(x²) erfc x, 1981.
fn erfcx(x: &Tensor) -> Result<Tensor> {
    const K: f64 = 3.75;
    let size = x.mul(&sign(x)?)?;
    // Far out, the quotient of infinities would be none.
    let t = size.add(K)?.reciprocal()?.mul(-2.0 * K)?.add(1.0)?;
    let right = series(&t, &ERFCX)?.div(&size.mul(2.0)?.add(1.0)?)?;
    let left = x.square()?.exp()?.mul(2.0)?.sub(&right)?;
    x.lt(0.0)?.where_(&left, &right)
}

/// Of `exp(-x) I0(x)` for `x` from 0 to 8, by `x / 4 - 1`.
const I0_NEAR: [f64; 30] = [
    0.33839763720473803,
    -0.3046826723431984,
    0.17162090152220877,
    -0.09490109704804764,
    0.04930528423967071,
    -0.02373741480589947,
    0.010546460394594998,
    -0.004324309995050576,
    0.0016394756169413357,
    -0.0005763755745385824,
    0.00018850288509584165,
    -5.754195010082104e-05,
    1.6448448070728896e-05,
    -4.4167383584587505e-06,
    1.1173875391201037e-06,
    -2.670793853940612e-07,
    6.046995022541919e-08,
    -1.300025009986248e-08,
    2.6598237246823866e-09,
    -5.189795601635263e-10,
    9.675809035373237e-11,
    -1.726826291441556e-11,
    2.95505266312964e-12,
    -4.856446783111929e-13,
    7.676185498604936e-14,
    -1.1685332877993451e-14,
    1.715391285555133e-15,
    -2.431279846547955e-16,
    3.3307945188222384e-17,
    -4.4153416464793395e-18,
];

/// Of `sqrt(x) exp(-x) I0(x)` for `x` from 8 on, by `16 / x - 1`.
const I0_FAR: [f64; 25] = [
    0.4022452055070544,
    0.0033691164782556943,
    6.889758346916825e-05,
    2.8913705208347567e-06,
    2.0489185894690638e-07,
    2.266668990498178e-08,
    3.3962320257083865e-09,
    4.94060238822497e-10,
    1.1889147107846439e-11,
    -3.1499165279632416e-11,
    -1.3215811840447713e-11,
    -1.7941785315068062e-12,
    7.180124451383666e-13,
    3.8527783827421426e-13,
    1.54008621752141e-14,
    -4.150569347287222e-14,
    -9.554846698828307e-15,
    3.8116806693526224e-15,
    1.7725601330565263e-15,
    -3.425485619677219e-16,
    -2.8276239805165836e-16,
    3.461222867697461e-17,
    4.46562142029676e-17,
    -4.830504485944182e-18,
    -7.233180487874754e-18,
];

/// Of `exp(-x) I1(x) / x` for `x` from 0 to 8, by `x / 4 - 1`.
const I1_NEAR: [f64; 29] = [
    0.12629359322181682,
    -0.17641651835783406,
    0.1026436586898471,
    -0.05294598120809499,
    0.024726449030626516,
    -0.010564084894626197,
    0.004156422944312888,
    -0.0015135724506312532,
    0.0005122859561685758,
    -0.00016176081582589674,
    4.781565107550054e-05,
    -1.3273163656039436e-05,
    3.4702513081376785e-06,
    -8.568720264695455e-07,
    2.0032947535521353e-07,
    -4.445059128796328e-08,
    9.381537386495773e-09,
    -1.8872497517228294e-09,
    3.625590281552117e-10,
    -6.663489723502027e-11,
    1.1736186298890901e-11,
    -1.9839743977649436e-12,
    3.223793365945575e-13,
    -5.042185504727912e-14,
    7.600684294735408e-15,
    -1.1055969477353862e-15,
    1.5536319577362005e-16,
    -2.111421214358166e-17,
    2.7779141127610464e-18,
];

/// Of `sqrt(x) exp(-x) I1(x)` for `x` from 8 on, by `16 / x - 1`.
const I1_FAR: [f64; 25] = [
    0.38928811750914005,
    -0.009761097491361469,
    -0.00011058893876262371,
    -3.882564808877691e-06,
    -2.512236237870209e-07,
    -2.6314688468895196e-08,
    -3.835380385964237e-09,
    -5.589743462196584e-10,
    -1.8974958123505413e-11,
    3.2526035830154884e-11,
    1.4125807436613782e-11,
    2.0356285441470896e-12,
    -7.198551776245908e-13,
    -4.0835511110921974e-13,
    -2.1015418427726643e-14,
    4.272440016711951e-14,
    1.0420276984128802e-14,
    -3.8144030724370075e-15,
    -1.8803547755107825e-15,
    3.3082023109209285e-16,
    2.96262899764595e-16,
    -3.209525921993424e-17,
    -4.6503053684893586e-17,
    4.414348323071708e-18,
    7.517296310842105e-18,
];

/// Of `J0(x)` for `x` from 0 to 8, by `x² / 32 - 1`.
const J0_NEAR: [f64; 17] = [
    0.15772797147489012,
    -0.008723442352852221,
    0.2651786132033368,
    -0.37009499387264977,
    0.15806710233209725,
    -0.034893769411408884,
    0.004819180069467605,
    -0.00046062616620627504,
    3.246032882100508e-05,
    -1.7619469077621507e-06,
    7.608163592418782e-08,
    -2.679253530557673e-09,
    7.848696314479465e-11,
    -1.9438346867370164e-12,
    4.125320595634374e-14,
    -7.588508125447546e-16,
    1.2218515873961411e-17,
];

/// Of `P` for `J0` from 8 on, by `128 / x² - 1`.
const J0_P: [f64; 13] = [
    0.9994603493475187,
    -0.0005365220468132117,
    3.0751847875194745e-06,
    -5.1705945376060975e-08,
    1.6306464635151382e-09,
    -7.86409137723707e-11,
    5.168262387349193e-12,
    -4.3045788699253914e-13,
    4.3265957431549404e-14,
    -5.069034095935236e-15,
    6.748072215733873e-16,
    -1.0011513723467786e-16,
    1.6305919233744186e-17,
];

/// Of `Q x / 8` for `J0` from 8 on, by `128 / x² - 1`.
const J0_Q: [f64; 15] = [
    -0.015555854605337009,
    6.838519942611649e-05,
    -7.414498411060647e-07,
    1.7972457247968992e-08,
    -7.27191593686632e-10,
    4.2201219046687385e-11,
    -3.206747420996635e-12,
    3.006145125351706e-13,
    -3.336328185322427e-14,
    4.255225040245461e-15,
    -6.09993013164005e-16,
    9.662128970303257e-17,
    -1.6686065214378146e-17,
    3.1082440486738143e-18,
    -6.191115787358145e-19,
];

/// Of `J1(x) / x` for `x` from 0 to 8, by `x² / 32 - 1`.
const J1_NEAR: [f64; 16] = [
    0.08104484632565812,
    -0.1489751450676521,
    0.1609992623572097,
    -0.08268049176681791,
    0.022213639654966037,
    -0.003646940600769276,
    0.0004050337728354822,
    -3.255554866857259e-05,
    1.9858774049915165e-06,
    -9.521984756750436e-08,
    3.687133759097148e-09,
    -1.178026622695885e-10,
    3.160154580348003e-12,
    -7.221755239651773e-14,
    1.4232144003513942e-15,
    -2.4441972916190464e-17,
];

/// Of `P` for `J1` from 8 on, by `128 / x² - 1`.
const J1_P: [f64; 13] = [
    1.0009030408600137,
    0.0008989898330859408,
    -3.987284300488908e-06,
    6.177633960644299e-08,
    -1.8718907491063067e-09,
    8.816898659582339e-11,
    -5.704863640395645e-12,
    4.699195515230542e-13,
    -4.6842237839904895e-14,
    5.452674896044717e-15,
    -7.221180842274018e-16,
    1.0667689114335412e-16,
    -1.7312313216116335e-17,
];

/// Of `Q x / 8` for `J1` from 8 on, by `128 / x² - 1`.
const J1_Q: [f64; 15] = [
    0.04677778706953532,
    -9.62772354915708e-05,
    9.138615257955454e-07,
    -2.0959781384083424e-08,
    8.229193327650554e-10,
    -4.686363688176945e-11,
    3.5152187949686082e-12,
    -3.2643156743279e-13,
    3.5967765829165294e-14,
    -4.5612523950772974e-15,
    6.508282957783384e-16,
    -1.0269147531823243e-16,
    1.767635548776479e-17,
    -3.2834519872981614e-18,
    6.524081149589261e-19,
];

/// Of `(1 + 2 x) exp(x²) erfc(x)` for `x` from 0 on, by `(x - 3.75) / (x + 3.75)`.
const ERFCX: [f64; 25] = [
    1.1775789345674017,
    -0.004590054580646478,
    -0.08424913336651792,
    0.05920993999819189,
    -0.026658668435305753,
    0.009074997670705265,
    -0.002413163540417608,
    0.0004907758365258086,
    -6.916973302501207e-05,
    4.13902798607301e-06,
    7.74038306619849e-07,
    -2.1886401049234397e-07,
    1.076499946567091e-08,
    4.521959811218287e-09,
    -7.754400208831351e-10,
    -6.318088340886684e-11,
    2.86879501093067e-11,
    1.9455868545777347e-13,
    -9.65469674843344e-13,
    3.25254814814874e-14,
    3.3478119482868056e-14,
    -1.864562880419313e-15,
    -1.2507950530688648e-15,
    7.418235256624044e-17,
    5.068148904796111e-17,
];
