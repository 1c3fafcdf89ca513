//! `_window_product`: matrices times windows, which are read where they lie.
//!
//! The right operand is a view whose dims stand for the inner dim and for the columns of a product. A convolution has
//! channels and elements of windows as inner dims, and places as columns. The CPU packs blocks of such a view straight
//! into its cache, so the windows are never copied to memory (`runtime::product::windows`). A GPU multiplies a copy.
//!
//! An element is the chain of fused multiply-adds of a matrix product, over the inner dims in row-major order. So the
//! bits are those of [`copied`].

use super::attr::Attr;
use super::attrs::{self, Attributes};
use super::autodiff::{Builder, Expr};
use super::graph::{Graph, NodeId};
use super::op::Op;
use super::row::Call;
use super::shape::{Layout, Sizes, checked_numel};
use super::types::TensorType;
use super::windows::laid_out;
use crate::error::{Error, Result};

/// The number of batch dims: samples and groups.
const BATCH: usize = 2;

/// The product of `left`, `(samples, groups, M, K)`, and `windows`, `(samples, groups, inner…, columns…)`, whose `n`
/// inner dims have `K` elements together. The result is `(samples, groups, M, columns…)`.
///
/// It is a plain product if the windows are a matrix already, or of integers. Sums of 16-bit floats are f32.
pub(crate) fn times<'g>(left: Expr<'g>, windows: Expr<'g>, n: usize) -> Expr<'g> {
    let TensorType { sizes, strides, dtype, .. } = windows.ty();
    let is_matrix = Layout { strides, offset: 0, sizes: sizes.clone() }.view(&matrices(&sizes, n)).is_some();
    if is_matrix || !dtype.is_float() {
        return multiplied(left, windows, n);
    }
    left.call(Op::WindowProduct, &[windows], attrs::WindowProduct { inner: n as i64 }.into())
}

/// The sizes of windows as a batch of matrices.
fn matrices(sizes: &[usize], n: usize) -> [usize; 3] {
    let product = |sizes: &[usize]| sizes.iter().product();
    [product(&sizes[..BATCH]), product(&sizes[BATCH..BATCH + n]), product(&sizes[BATCH + n..])]
}

/// The same by a matrix product. It copies windows that are no matrix.
fn multiplied<'g>(left: Expr<'g>, windows: Expr<'g>, n: usize) -> Expr<'g> {
    let (sizes, factors) = (windows.sizes(), left.sizes());
    let columns = laid_out(windows, &matrices(&sizes, n));
    let left = laid_out(left, &[factors[0] * factors[1], factors[2], factors[3]]);
    laid_out(left.wide().matmul(columns.wide()), &result(&factors, &sizes, n))
}

/// `(samples, groups, M, columns…)`.
fn result(left: &[usize], windows: &[usize], n: usize) -> Sizes {
    [&left[..BATCH + 1], &windows[BATCH + n..]].concat().into()
}

/// Adds the same calculation as a copy of the windows and a matrix product.
///
/// # Errors
/// None on a verified graph.
pub(crate) fn copied(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let inner = attrs::WindowProduct::read(attrs).inner as usize;
    Builder::extend(graph, args, |args| multiplied(args[0], args[1], inner))
}

/// The type of the product. Both operands must have one dtype of floats. Sums of 16-bit floats are f32.
///
/// # Errors
/// If dtypes differ or are not of floats, or the sizes do not fit.
pub(crate) fn infer(call: &Call<'_>) -> Result<TensorType> {
    let (left, windows) = (call.args[0], call.args[1]);
    if left.dtype != windows.dtype || !left.dtype.is_float() {
        let found = if left.dtype.is_float() { windows.dtype } else { left.dtype };
        return Err(Error::dtype(call.name(), found, "one dtype of floats for both operands", "convert them"));
    }
    let dtype = left.dtype.widened();
    let inner = attrs::WindowProduct::read(call.attrs).inner;
    let misfit = || {
        let what = format!("matrices {:?}, windows {:?} and {inner} inner dims", &left.sizes[..], &windows.sizes[..]);
        let hint = "pass (samples, groups, M, K) and (samples, groups, inner…, columns…) with K inner elements";
        Err(Error::shape(call.name(), what, hint))
    };
    let Some(n) = usize::try_from(inner).ok().filter(|&n| n <= windows.rank().saturating_sub(BATCH)) else {
        return misfit();
    };
    if left.rank() != BATCH + 2 || windows.rank() < BATCH || left.sizes[..BATCH] != windows.sizes[..BATCH] {
        return misfit();
    }
    checked_numel(call.name(), &windows.sizes, windows.dtype.size())?;
    let [_, depth, _] = matrices(&windows.sizes, n);
    if left.sizes[BATCH + 1] != depth {
        return misfit();
    }
    let sizes = result(&left.sizes, &windows.sizes, n);
    checked_numel(call.name(), &sizes, dtype.size())?;
    Ok(TensorType::contiguous(dtype, &sizes))
}
