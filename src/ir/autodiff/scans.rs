//! Gradients of scans.
//!
//! All of them are linear recurrences in the opposite direction. None divides, so zeros in a product need no special
//! case. The gradients of a recurrence are recurrences, so there are derivatives of any order.

use super::derivative::{Backward, Gradients};
use super::expr::Expr;
use crate::ir::attrs::*;
use crate::ir::op::Op;
use crate::ir::shape::normalize_dim;
use smallvec::smallvec;

/// Of cumulative sums: cumulative sums from the other end.
pub fn cumsum<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let grad = call.grad;
    let ones = call.builder().full(&[], 1, grad.dtype()).expand(&grad.sizes());
    smallvec![Some(run(ones, grad, dim_of(call), true))]
}

/// Of cumulative products. Element `k` is a factor of all products from the `k`-th on. So its gradient is the product
/// of the elements before it, times `s[k] = g[k] + x[k + 1] s[k + 1]`.
pub fn cumprod<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let dim = dim_of(call);
    let (x, grad) = (call.args[0].to(call.grad.dtype()).wide(), call.grad.wide());
    let before = shifted(x, dim, 1.0, Towards::End);
    let before = before.call(Op::Cumprod, &[], Cumsum { dim: dim as i64, dtype: None }.into());
    let rest = run(shifted(x, dim, 0.0, Towards::Start), grad, dim, true);
    smallvec![Some(before * rest)]
}

/// Of `y[i] = a[i] y[i - 1] + b[i]`: `r[i] = g[i] + a[i + 1] r[i + 1]` for the terms, and `r[i] y[i - 1]` for the
/// factors. With `reverse`, directions are swapped.
pub fn recurrence<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let dim = dim_of(call);
    let Recurrence { reverse, .. } = Recurrence::read(call.attrs);
    let (to_start, to_end) = if reverse { (Towards::End, Towards::Start) } else { (Towards::Start, Towards::End) };
    let (factor, grad, y) = (call.args[0].wide(), call.grad.wide(), call.result.wide());
    let term = run(shifted(factor, dim, 0.0, to_start), grad, dim, !reverse);
    smallvec![Some(term * shifted(y, dim, 0.0, to_end)), Some(term)]
}

fn dim_of(call: &Backward<'_, '_>) -> usize {
    normalize_dim("dim", Along::read(call.attrs).dim, call.args[0].rank()).unwrap_or(0)
}

/// `y[i] = factor[i] y[i - 1] + term[i]`, or from the end.
fn run<'g>(factor: Expr<'g>, term: Expr<'g>, dim: usize, reverse: bool) -> Expr<'g> {
    factor.call(Op::Recurrence, &[term], Recurrence { dim: dim as i64, reverse }.into())
}

/// The direction of a shift.
#[derive(Clone, Copy)]
enum Towards {
    Start,
    End,
}

/// Shifts the elements of a dim by one. The free place gets `fill`.
fn shifted<'g>(x: Expr<'g>, dim: usize, fill: f64, towards: Towards) -> Expr<'g> {
    let mut sizes = x.sizes();
    let Some(size) = sizes.get(dim).copied() else {
        return x.builder().full(&[], fill, x.dtype());
    };
    if size == 0 {
        return x;
    }
    sizes[dim] = 1;
    let new = x.builder().full(&sizes, fill, x.dtype());
    let part = |start: usize| {
        let [dim, start, end] = [dim, start, start + size - 1].map(|number| number as i64);
        x.call(Op::Slice, &[], Slice { dim, start: Some(start), end: Some(end), step: 1 }.into())
    };
    let dim = Along { dim: dim as i64 }.into();
    match towards {
        Towards::Start => part(1).call(Op::Cat, &[new], dim),
        Towards::End => new.call(Op::Cat, &[part(0)], dim),
    }
}
