//! Windows over the last dims of a value, and what is done around them: padding, cutting, putting parts in order.
//!
//! A window is a view: dim `d` of `n` spatial dims becomes one dim of places, and a dim of elements goes last, so that
//! `(N, C, H, W)` becomes `(N, C, places of H, places of W, elements of H, elements of W)`. Copying that view is all
//! that a convolution needs besides a matrix product; folding it is a pooling. Nothing here allocates by itself.

use super::attrs::{ConstantPadNd, Shape, Slice, Unfold, ints};
use super::autodiff::Expr;
use super::op::Op;
use super::scalar::Scalar;
use super::shape::Layout;
use super::types::TensorType;
use smallvec::SmallVec;

/// The windows of one dim, the first of which begins at its first element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// How many windows there are.
    pub count: usize,
    /// From one window to the next.
    pub stride: usize,
    /// Elements of a window.
    pub kernel: usize,
    /// From one element of a window to the next.
    pub dilation: usize,
}

impl Windows {
    /// From the first element of a window to behind its last.
    fn reach(&self) -> usize {
        self.dilation * (self.kernel - 1) + 1
    }

    /// From the first element of the first window to behind the last of the last; `None` if that is no number.
    pub fn length(&self) -> Option<usize> {
        let reach = self.dilation.checked_mul(self.kernel.checked_sub(1)?)?.checked_add(1)?;
        self.stride.checked_mul(self.count.checked_sub(1)?)?.checked_add(reach)
    }
}

/// The windows of the last `windows.len()` dims of `x`: in place of each such dim the places, and behind them, in the
/// same order, the elements.
pub fn unfolded<'g>(x: Expr<'g>, windows: &[Windows]) -> Expr<'g> {
    let first = x.rank() - windows.len();
    let mut out = x;
    for (index, windows) in windows.iter().enumerate() {
        let dim = first + index;
        let reach = windows.reach();
        out = part(out, dim, 0, windows.length().unwrap_or(0), 1);
        let [dimension, size, step] = [dim, reach, windows.stride].map(|number| number as i64);
        out = out.call(Op::Unfold, &[], Unfold { dimension, size, step }.into());
        let last = out.rank() - 1;
        out = part(out, last, 0, reach, windows.dilation);
    }
    out
}

/// Every `step`-th of `length` elements of a dim from `start`; all of them cost nothing.
pub fn part<'g>(x: Expr<'g>, dim: usize, start: usize, length: usize, step: usize) -> Expr<'g> {
    if start == 0 && step == 1 && length == x.sizes()[dim] {
        return x;
    }
    let [dim, start, end, step] = [dim, start, start + length, step].map(|number| number as i64);
    x.call(Op::Slice, &[], Slice { dim, start: Some(start), end: Some(end), step }.into())
}

/// The last dims of `x` with so many more elements of `value` before and after, or fewer; no more cost nothing.
pub fn padded<'g>(x: Expr<'g>, around: &[(i64, i64)], value: Scalar) -> Expr<'g> {
    if around.iter().all(|&pair| pair == (0, 0)) {
        return x;
    }
    if around.iter().any(|&(before, after)| before.min(after) < 0 && before.max(after) > 0) {
        // Room first: one end may lose more than there was.
        let part = |of: fn(i64) -> i64| around.iter().map(move |&(before, after)| (of(before), of(after)));
        let room: SmallVec<[(i64, i64); 4]> = part(|pad| pad.max(0)).collect();
        let cut: SmallVec<[(i64, i64); 4]> = part(|pad| pad.min(0)).collect();
        return padded(padded(x, &room, value), &cut, value);
    }
    let pad = around.iter().rev().flat_map(|&(before, after)| [before, after]).collect();
    x.call(Op::ConstantPadNd, &[], ConstantPadNd { pad, value: Some(value) }.into())
}

/// Under other sizes: a view where strides allow it, else a copy.
pub fn laid_out<'g>(x: Expr<'g>, sizes: &[usize]) -> Expr<'g> {
    let TensorType { sizes: own, strides, .. } = x.ty();
    if own[..] == *sizes {
        return x;
    }
    let is_view = Layout { sizes: own, strides, offset: 0 }.view(sizes).is_some();
    let x = if is_view { x } else { x.contiguous() };
    x.call(Op::View, &[], Shape { size: ints(sizes) }.into())
}
