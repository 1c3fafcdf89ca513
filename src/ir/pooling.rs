//! The greatest element of each window and its index, for max pooling.
//!
//! The greatest element is selected with its index, so it has the bits of the element there. A gradient is scattered by
//! the index, so it goes to the one element that was chosen. Padding is never chosen.

use super::attr::{Attr, MemoryFormat};
use super::attrs::{Along, Attributes, MaxPoolIndex};
use super::autodiff::{Backward, Builder, Expr, Gradients};
use super::dtype::DType;
use super::graph::{Graph, NodeId};
use super::memory_formats::{dense, suggested_format};
use super::op::Op;
use super::row::Call;
use super::scalar::Scalar;
use super::shape::{Sizes, contiguous_strides};
use super::types::TensorType;
use super::windows::{in_format, laid_out, padded, part};
use crate::error::{Error, Result};
use smallvec::{SmallVec, smallvec};

/// The most elements of a window: each is a step of the decomposition.
const MAX_ELEMENTS: usize = 1 << 18;

/// The windows of one dim. Window `i` begins at `i * stride - padding`.
#[derive(Debug, Clone, Copy)]
struct Pool {
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    count: usize,
}

impl Pool {
    /// Whether a window that begins in the padding has no element among `size`: dilated windows step over few elements.
    fn steps_over(&self, size: usize) -> bool {
        // The first window has the most elements in the padding.
        if self.padding.next_multiple_of(self.dilation) > self.dilation * (self.kernel - 1) {
            return true;
        }
        let begins = (0..self.count).map(|window| window * self.stride).take_while(|&begin| begin < self.padding);
        let mut padding = begins.map(|begin| self.padding - begin);
        size < self.dilation && padding.any(|before| before.next_multiple_of(self.dilation) - before >= size)
    }
}

/// Reads the arguments, which have a number for each of the last dims.
fn read(attrs: &[Attr]) -> SmallVec<[Pool; 3]> {
    let attrs = MaxPoolIndex::read(attrs);
    let pool = |d: usize| {
        let number = |list: &[i64]| list.get(d).map_or(0, |&number| number.max(0) as usize);
        Pool {
            kernel: number(&attrs.kernel_size),
            stride: number(&attrs.stride),
            padding: number(&attrs.padding),
            dilation: number(&attrs.dilation),
            count: number(&attrs.count),
        }
    };
    (0..attrs.kernel_size.len()).map(pool).collect()
}

/// The type of the indices: i64, one per window.
///
/// # Errors
/// For bools, if there are more pooled dims than dims, or if a window has only padding.
pub fn infer(call: &Call<'_>) -> Result<TensorType> {
    let input = call.args[0];
    if input.dtype == DType::Bool {
        return Err(Error::dtype(call.name(), DType::Bool, "a number", "convert first"));
    }
    let pools = read(call.attrs);
    let Some(first) = input.rank().checked_sub(pools.len()).filter(|_| !pools.is_empty()) else {
        let what = format!("windows over {} dims of shape {:?}", pools.len(), &input.sizes[..]);
        return Err(Error::shape(call.name(), what, "there must be as many dims, and at least one"));
    };
    let n_elements = pools.iter().fold(1usize, |count, pool| count.saturating_mul(pool.kernel));
    if n_elements > MAX_ELEMENTS {
        let what = format!("windows of {n_elements} elements, and at most {MAX_ELEMENTS} are possible");
        return Err(Error::shape(call.name(), what, "take amax over whole dims, or pool in steps"));
    }
    let mut sizes: Sizes = input.sizes.clone();
    for (size, pool) in sizes[first..].iter_mut().zip(&pools) {
        let reach = pool.dilation.checked_mul(pool.kernel.saturating_sub(1));
        let last = pool.stride.checked_mul(pool.count.saturating_sub(1));
        // Windows begin inside or in the padding in front, and reach into the input from there.
        let meets = match (reach, last, size.checked_add(pool.padding)) {
            (Some(reach), Some(last), Some(end)) => {
                pool.padding <= reach && last < end && last.checked_add(reach).is_some()
            }
            (_, _, _) => false,
        };
        let is_positive = pool.kernel > 0 && pool.stride > 0 && pool.dilation > 0;
        if !meets || !is_positive || pool.steps_over(*size) {
            let what = format!("windows {pool:?} over a dim of {size} elements of shape {:?}", &input.sizes[..]);
            return Err(Error::shape(call.name(), what, "every window must meet an element"));
        }
        *size = pool.count;
    }
    Ok(dense(format_of(input, pools.len()), DType::I64, &sizes))
}

/// The type of the greatest elements: the dtype is kept.
///
/// # Errors
/// As for [`infer`].
pub fn infer_values(call: &Call<'_>) -> Result<TensorType> {
    Ok(TensorType { dtype: call.args[0].dtype, ..infer(call)? })
}

/// Decomposes it to one step per window element, which all windows take at once. An element that is greater than the
/// greatest so far, or NaN, replaces it.
///
/// # Errors
/// None on a verified graph.
pub fn decompose(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let pools = read(attrs);
    Builder::extend(graph, args, |args| {
        let format = format_of(&args[0].ty(), pools.len());
        in_format(greatest(args[0].builder(), args[0], &pools).1, format)
    })
}

/// Like [`decompose`], to the greatest elements.
///
/// # Errors
/// None on a verified graph.
pub fn decompose_values(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let pools = read(attrs);
    Builder::extend(graph, args, |args| {
        let format = format_of(&args[0].ty(), pools.len());
        in_format(greatest(args[0].builder(), args[0], &pools).0, format)
    })
}

/// Each window adds its gradient to its greatest element.
pub fn gradient<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let x = call.args[0];
    let n_dims = read(call.attrs).len();
    let channels_last = format_of(&x.ty(), n_dims).order().is_some();
    let joined = |x: Expr<'g>| {
        let sizes = x.sizes();
        let (outer, plane) = sizes.split_at(sizes.len() - n_dims);
        let x = laid_out(x, &[outer, &[plane.iter().product()]].concat());
        if channels_last { x.transposed() } else { x }
    };
    let places = x.call(Op::MaxPoolIndex, &[], call.attrs.into());
    let dim = if channels_last { -2 } else { -1 };
    let sum = joined(x).zeros().call(Op::ScatterAdd, &[joined(places), joined(call.grad)], Along { dim }.into());
    let sum = if channels_last { sum.transposed() } else { sum };
    smallvec![Some(laid_out(sum, &x.sizes()))]
}

/// The memory format of the results, which are row-major unless the channels of the input are last in memory.
fn format_of(ty: &TensorType, n_dims: usize) -> MemoryFormat {
    match suggested_format(&ty.sizes, &ty.strides) {
        format if ty.rank() == n_dims + 2 => format,
        _ => MemoryFormat::Contiguous,
    }
}

/// The greatest elements of windows, and their places.
fn greatest<'g>(builder: &'g Builder, x: Expr<'g>, pools: &[Pool]) -> (Expr<'g>, Expr<'g>) {
    let first = x.rank() - pools.len();
    let sizes = x.sizes();
    let planes = contiguous_strides(&sizes[first..]);
    let around = pools.iter().zip(&sizes[first..]).map(|(pool, &size)| {
        let end = (pool.count.max(1) - 1) * pool.stride + pool.dilation * (pool.kernel - 1) + 1;
        (pool.padding as i64, end.saturating_sub(size + pool.padding) as i64)
    });
    let x = padded(x, &around.collect::<SmallVec<[(i64, i64); 3]>>(), lowest(x.dtype()));
    let mut best: Option<Expr<'g>> = None;
    let mut chosen = first_places(builder, pools, &planes);
    let n_elements: usize = pools.iter().map(|pool| pool.kernel).product();
    for index in 0..n_elements {
        let (mut element, mut rest, mut place) = (x, index, 0);
        for (d, pool) in pools.iter().enumerate().rev() {
            let at = rest % pool.kernel * pool.dilation;
            rest /= pool.kernel;
            place += at * planes[d];
            let length = pool.count.checked_sub(1).map_or(0, |count| count * pool.stride + 1);
            element = part(element, first + d, at, length, pool.stride);
        }
        let so_far = best.unwrap_or_else(|| builder.number(lowest(x.dtype())));
        let mut better = element.gt(so_far);
        if element.dtype().is_float() {
            better = better.logical_or(element.isnan());
        }
        chosen = better.then(builder.number(Scalar::Int(place as i64)), chosen);
        best = Some(better.then(element, so_far));
    }
    let begin = pools.iter().enumerate().map(|(d, pool)| {
        let along = begins(builder, d, pools) - Scalar::Int(pool.padding as i64);
        along.mul(Scalar::Int(planes[d] as i64))
    });
    (best.unwrap_or(x), begin.fold(chosen, |sum, along| sum + along))
}

/// `stride * i` for the windows of dim `d`, shaped to broadcast to all windows.
fn begins<'g>(builder: &'g Builder, d: usize, pools: &[Pool]) -> Expr<'g> {
    let mut sizes: Sizes = Sizes::from_elem(1, pools.len());
    sizes[d] = pools[d].count;
    builder.range(0, pools[d].count).mul(Scalar::Int(pools[d].stride as i64)).reshape(&sizes)
}

/// The first element of each window that is no padding, counted from the window's begin. It is chosen if no element is
/// greater than the least number.
fn first_places<'g>(builder: &'g Builder, pools: &[Pool], planes: &[usize]) -> Expr<'g> {
    let along = |d: usize| {
        let pool = &pools[d];
        let begin = begins(builder, d, pools);
        let mut place = builder.number(Scalar::Int(0));
        // The last element in the padding before the dim decides: the first one inside follows it.
        for element in 0..pool.kernel.saturating_sub(1) {
            let at = element * pool.dilation;
            if at < pool.padding {
                let is_outside = begin.lt(Scalar::Int((pool.padding - at) as i64));
                let next = Scalar::Int(((element + 1) * pool.dilation * planes[d]) as i64);
                place = is_outside.then(builder.number(next), place);
            }
        }
        place
    };
    (1..pools.len()).fold(along(0), |sum, d| sum + along(d))
}

/// The least number of a dtype.
fn lowest(dtype: DType) -> Scalar {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => Scalar::Float(f64::NEG_INFINITY),
        DType::I8 => Scalar::Int(i8::MIN.into()),
        DType::I16 => Scalar::Int(i16::MIN.into()),
        DType::I32 => Scalar::Int(i32::MIN.into()),
        DType::I64 => Scalar::Int(i64::MIN),
        DType::U8 | DType::Bool => Scalar::Int(0),
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
}
