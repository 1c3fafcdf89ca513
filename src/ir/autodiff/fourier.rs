//! Gradients of Fourier transforms.
//!
//! A transform is linear, so the gradient of its operand is its transpose. As a map of pairs of real numbers, the
//! transpose of `y = F x` with a complex matrix `F` is `x̄ = Fᴴ ȳ`. For the forward transform `Fᴴ` is the backward one,
//! and the other way round. Formulas for real operands and real results follow from that.

use super::derivative::{Backward, Gradients};
use super::expr::Expr;
use crate::ir::attrs::*;
use crate::ir::op::Op;
use crate::ir::shape::normalize_dim;
use smallvec::smallvec;

/// Of a complex transform: the transform in the other direction.
pub fn complex<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let FftPairs { dim, forward, scale } = FftPairs::read(call.attrs);
    smallvec![Some(call.grad.call(Op::FftPairs, &[], FftPairs { dim, forward: !forward, scale }.into()))]
}

/// Of the transform of a real line: the real part of `Fᴴ ȳ`. If one half of `y` is left out, it is the sum over the
/// other of `Re(ȳ[k] exp(2πi j k / n))`. The backward transform to real numbers has the same sum, but counts elements
/// twice that have a conjugate.
pub fn from_real<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let RfftPairs { dim, onesided, scale } = RfftPairs::read(call.attrs);
    let sizes = call.args[0].sizes();
    let dim = normalize_dim("dim", dim, sizes.len()).unwrap_or(0);
    let along = dim as i64;
    if !onesided {
        let whole = call.grad.call(Op::FftPairs, &[], FftPairs { dim: along, forward: false, scale }.into());
        return smallvec![Some(whole.call(Op::Select, &[], Select { dim: -1, index: 0 }.into()))];
    }
    let n = sizes.get(dim).copied().unwrap_or(1);
    let once = call.grad * weights(call.grad, dim, n, 0.5);
    smallvec![Some(once.call(Op::IrfftPairs, &[], IrfftPairs { dim: along, n: n as i64, scale }.into()))]
}

/// Of the transform to a real line: the transform of a real line, where elements that have a conjugate count twice.
pub fn to_real<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let IrfftPairs { dim, n, scale } = IrfftPairs::read(call.attrs);
    // The dim of pairs may be counted from the end, too.
    let dim = normalize_dim("dim", dim, call.args[0].rank()).unwrap_or(0);
    let half = call.grad.call(Op::RfftPairs, &[], RfftPairs { dim: dim as i64, onesided: true, scale }.into());
    smallvec![Some(half * weights(half, dim, usize::try_from(n).unwrap_or(1), 2.0))]
}

/// `weight` for the elements of half a line that have a conjugate in the other half, 1 for those that are their own.
/// The result has the dims of `like`, of size 1 except `dim`.
fn weights<'g>(like: Expr<'g>, dim: usize, n: usize, weight: f64) -> Expr<'g> {
    let builder = like.builder();
    let (n_half, n_twice) = (n / 2 + 1, n.div_ceil(2) - 1);
    let mut parts = vec![builder.full(&[1], 1.0, like.dtype()), builder.full(&[n_twice], weight, like.dtype())];
    if n_half > n_twice + 1 {
        parts.push(builder.full(&[1], 1.0, like.dtype()));
    }
    let mut sizes = like.sizes();
    sizes.fill(1);
    if let Some(size) = sizes.get_mut(dim) {
        *size = n_half;
    }
    parts[0].call(Op::Cat, &parts[1..], Along { dim: 0 }.into()).reshape(&sizes)
}
