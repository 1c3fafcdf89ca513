//! `erfc` and `erfinv`. The error function itself is an exponential and lies there.

use super::logarithm::log;
use super::pieces::{clamp, copy_sign, exp_reduced, horner, minus_ln2, round_product, scale};
use super::special_width::SpecialWidth;
use crate::ir::scalar::number::Float;

/// `erfc a = e^(-a²) (1 + (1 + t) q(t)) / (1 + 2a)` with `t = (a - k) / (a + k)`, where `q` is smooth up to infinity
/// (Shepherd and Laframboise 1981); `2 - erfc a` for negative arguments.
///
/// The square is kept in two parts, because its last place is many of the power's; the factor is applied before the
/// scaling by powers of two, so that subnormal results are rounded once.
#[inline(always)]
pub(super) fn erfc<W: SpecialWidth, F: Float>(x: F) -> F {
    let a = x.constant(W::ERFC_HIGH).min(x.abs());
    let (one, center) = (x.constant(1.0), x.constant(W::ERFC_CENTER));
    let inverse = one.div(a.add(center));
    let t = a.sub(center).mul(inverse);
    // 1 + t, which keeps the places that t has lost where it is near -1.
    let u = a.add(a).mul(inverse);
    let factor = u.fma(horner(t, W::ERFC), one).div(a.fma(x.constant(2.0), one));
    let square = a.mul(a);
    let square_low = a.fma(a, square.neg());
    let exponent = clamp(square.neg(), W::EXP_RANGE);
    let (n, bits) = round_product::<W, F>(exponent, W::LOG2E.0, 2 * W::BIAS);
    let r = minus_ln2::<W, F>(exponent, n).sub(square_low);
    let positive = scale::<W, F>(exp_reduced::<W, F>(r).mul(factor), bits);
    F::select(x.lt(x.constant(0.0)), x.constant(2.0).sub(positive), positive)
}

/// `erfinv x = x p(w)` with `w = -ln(1 - x²)`: a polynomial in `w` where that is small, and in `√w` beyond, after
/// Giles (2012), "Approximating the erfinv function".
#[inline(always)]
pub(super) fn erfinv<W: SpecialWidth, F: Float>(x: F) -> F {
    let (a, one) = (x.abs(), x.constant(1.0));
    // The first factor is exact from 1/2 on, and before that only the size of `w` matters.
    let w = log::<W, F>(one.sub(a).mul(one.add(a))).neg();
    let root = w.sqrt();
    let middle = horner(w.sub(x.constant(W::ERFINV_MIDDLE_END * 0.5)), W::ERFINV_MIDDLE);
    let tail = horner(root.sub(x.constant(W::ERFINV_TAIL_CENTER)), W::ERFINV_TAIL);
    let tail = match W::ERFINV_FAR_TAIL {
        [] => tail,
        far => {
            let far = horner(root.sub(x.constant(5.0)), far);
            F::select(root.lt(x.constant(4.0)), tail, far)
        }
    };
    let slope = F::select(w.lt(x.constant(W::ERFINV_MIDDLE_END)), middle, tail);
    let slope = F::select(a.eq(one), x.constant(f64::INFINITY), slope);
    copy_sign(a.mul(slope), x)
}
