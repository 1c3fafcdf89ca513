//! `erfc` and `erfinv`. `erf` is computed by an exponential, so it is in `exponential.rs`.

use super::logarithm::log;
use super::pieces::{copy_sign, horner, minus_ln2, round_product, scale_or_zero};
use super::special_width::SpecialWidth;
use crate::ir::scalar::number::Float;

/// `erfc a = e^(-a²) (1 + (1 + t) q(t)) / (1 + 2a)` with `t = (a - k) / (a + k)`, where `q` is smooth up to infinity
/// (Shepherd and Laframboise 1981); `2 - erfc a` for negative arguments.
///
/// The square is kept in two parts, because the power amplifies its rounding error. So is the quotient that the power
/// multiplies. The product comes before the scaling by powers of two, so subnormal results are rounded once.
#[inline(always)]
pub(super) fn erfc<W: SpecialWidth, F: Float>(x: F) -> F {
    let high = x.constant(W::ERFC_HIGH);
    let a = high.min(x.abs());
    let (one, two, center) = (x.constant(1.0), x.constant(2.0), x.constant(W::ERFC_CENTER));
    let (sum, double) = (a.add(center), a.add(a));
    let inverse = one.div(sum);
    let u = double.mul(inverse);
    // 1 + t by a corrected division: near t = -1 it keeps the digits that t loses.
    let u = u.neg().fma(sum, double).fma(inverse, u);
    let t = u.sub(one);
    let above_1 = u.mul(horner(t, W::ERFC));
    let below = a.fma(two, one);
    let below_low = a.fma(two, one.sub(below));
    let inverse = one.div(below);
    let factor = above_1.add(one).mul(inverse);
    let negated = factor.neg();
    let left = negated.fma(below_low, negated.fma(below, one).add(above_1));
    let factor_low = left.mul(inverse);

    let square = a.mul(a);
    let square_low = a.fma(a, square.neg());
    let (n, bits) = round_product::<W, F>(square, -W::LOG2E.0, 2 * W::BIAS);
    let r = minus_ln2::<W, F>(square.neg(), n).sub(square_low);
    let rest = r.mul(r).mul(horner(r, W::EXP));
    let low = factor.fma(rest, factor_low.fma(r, factor_low));
    let value = factor.add(factor.fma(r, low));
    let positive = scale_or_zero::<W, F>(high.le(a), value, bits);
    F::select(x.lt(x.constant(0.0)), two.sub(positive), positive)
}

/// `erfinv x = x p(w)` with `w = -ln(1 - x²)`: a polynomial in `w` where `w` is small, and in `w` or `√w` beyond, after
/// Giles (2012), "Approximating the erfinv function". Constant terms are added last, so errors of the rest matter less.
#[inline(always)]
pub(super) fn erfinv<W: SpecialWidth, F: Float>(x: F) -> F {
    let (a, one) = (x.abs(), x.constant(1.0));
    // The first factor is exact from 1/2 on, and before that only the size of `w` matters.
    let w = log::<W, F>(one.sub(a).mul(one.add(a))).neg();
    let (first, first_low) = W::ERFINV_FIRST;
    let (second, middle) = after_first(w, W::ERFINV_MIDDLE);
    let middle = w.fma(second, w.fma(middle, x.constant(first_low)));
    let (tail_first, tail) = match W::ERFINV_FAR_TAIL {
        [] => after_first(w.sub(x.constant(W::ERFINV_TAIL_CENTER)), W::ERFINV_TAIL),
        far => {
            let root = w.sqrt();
            let near = after_first(root.sub(x.constant(W::ERFINV_TAIL_CENTER)), W::ERFINV_TAIL);
            let far = after_first(root.sub(x.constant(5.0)), far);
            let is_near = root.lt(x.constant(4.0));
            (F::select(is_near, near.0, far.0), F::select(is_near, near.1, far.1))
        }
    };
    let is_middle = w.lt(x.constant(W::ERFINV_MIDDLE_END));
    let first = F::select(is_middle, x.constant(first), tail_first);
    let rest = F::select(is_middle, middle, tail);
    let value = a.fma(first, a.mul(rest));
    copy_sign(F::select(a.eq(one), x.constant(f64::INFINITY), value), x)
}

/// The constant of a polynomial, and the rest of it.
#[inline(always)]
fn after_first<F: Float>(x: F, coefficients: &'static [f64]) -> (F, F) {
    (x.constant(coefficients[0]), x.mul(horner(x, &coefficients[1..])))
}
