//! Windows over the last dims of a value, with padding, slicing and reshaping around them.
//!
//! The windows of a value are a view. Each spatial dim becomes a dim of places, and a dim of elements is added last. So
//! `(N, C, H, W)` becomes `(N, C, places of H, places of W, elements of H, elements of W)`. A convolution is a copy of
//! that view and a matrix product; a pooling reduces it.

use super::attr::MemoryFormat;
use super::attrs::{ConstantPadNd, Ordered, Shape, Slice, Unfold, ints};
use super::autodiff::Expr;
use super::memory_formats::{dense_strides, suggested_format};
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
    /// The extent of a window, gaps included.
    fn reach(&self) -> usize {
        self.dilation * (self.kernel - 1) + 1
    }

    /// The extent of all windows together, or `None` if it overflows.
    pub fn length(&self) -> Option<usize> {
        let reach = self.dilation.checked_mul(self.kernel.checked_sub(1)?)?.checked_add(1)?;
        self.stride.checked_mul(self.count.checked_sub(1)?)?.checked_add(reach)
    }
}

/// The windows of the last `windows.len()` dims of `x`. Each of these becomes a dim of places. The dims of elements
/// follow in the same order.
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

/// Every `step`-th of `length` elements of a dim from `start`. The whole dim adds no node.
pub fn part<'g>(x: Expr<'g>, dim: usize, start: usize, length: usize, step: usize) -> Expr<'g> {
    if start == 0 && step == 1 && length == x.sizes()[dim] {
        return x;
    }
    let [dim, start, end, step] = [dim, start, start + length, step].map(|number| number as i64);
    x.call(Op::Slice, &[], Slice { dim, start: Some(start), end: Some(end), step }.into())
}

/// Pads the last dims of `x` with `value`, by pairs of counts before and after. Negative counts crop. Pairs of 0 add no
/// node.
pub fn padded<'g>(x: Expr<'g>, around: &[(i64, i64)], value: Scalar) -> Expr<'g> {
    if around.iter().all(|&pair| pair == (0, 0)) {
        return x;
    }
    if around.iter().any(|&(before, after)| before.min(after) < 0 && before.max(after) > 0) {
        // Padding comes first, because one end may lose more elements than the dim had.
        let part = |of: fn(i64) -> i64| around.iter().map(move |&(before, after)| (of(before), of(after)));
        let room: SmallVec<[(i64, i64); 4]> = part(|pad| pad.max(0)).collect();
        let cut: SmallVec<[(i64, i64); 4]> = part(|pad| pad.min(0)).collect();
        return padded(padded(x, &room, value), &cut, value);
    }
    let with = |x: Expr<'g>, around: &[(i64, i64)]| {
        let pad = around.iter().rev().flat_map(|&(before, after)| [before, after]).collect();
        x.call(Op::ConstantPadNd, &[], ConstantPadNd { pad, value: Some(value) }.into())
    };
    let (rank, ty) = (x.rank(), x.ty());
    if suggested_format(&ty.sizes, &ty.strides).order().is_none() || around.len() + 2 > rank {
        return with(x, around);
    }
    // A padded tensor is row-major, so the channels that are last in memory become the last dim meanwhile.
    let last: SmallVec<[usize; 6]> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let back: SmallVec<[usize; 6]> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    let around: SmallVec<[(i64, i64); 4]> = around.iter().copied().chain([(0, 0)]).collect();
    with(x.permute(&last), &around).permute(&back)
}

/// A reshape: a view where strides allow it, else a copy.
pub fn laid_out<'g>(x: Expr<'g>, sizes: &[usize]) -> Expr<'g> {
    let TensorType { sizes: own, strides, .. } = x.ty();
    if own[..] == *sizes {
        return x;
    }
    let is_view = Layout { sizes: own, strides, offset: 0 }.view(sizes).is_some();
    let x = if is_view { x } else { x.contiguous() };
    x.call(Op::View, &[], Shape { size: ints(sizes) }.into())
}

/// With exactly the dense strides of a memory format.
pub fn in_format<'g>(x: Expr<'g>, memory_format: MemoryFormat) -> Expr<'g> {
    let TensorType { sizes, strides, .. } = x.ty();
    if strides == dense_strides(memory_format, &sizes) {
        return x;
    }
    x.call(Op::Clone, &[], Ordered { memory_format }.into())
}
