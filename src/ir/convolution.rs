//! Convolution, its transpose, and the gradient of its weight.
//!
//! - A convolution is one matrix product per sample and group: the weight times the windows of the padded input, which
//!   are columns. The windows are a view, and the CPU reads them where they lie (`window_product`).
//! - A transposed convolution of stride 1 is a convolution with the reversed weight, one of another stride several of
//!   them (`transposed_convolution`).
//! - Groups that have one channel on either side, as in a depthwise convolution, are products of one row. Nothing is
//!   packed for them.
//!
//! Where channels are last in the memory of an operand, they are last in the result, as in PyTorch.
//!
//! The two ops are closed under differentiation. The gradient by the input of a convolution is a transposed one, and
//! vice versa. The gradient by the weight is [`Op::ConvolutionWeight`], and its gradients are convolutions. So a
//! backward pass is as fast as the forward pass, and there are derivatives of any order. A composite operator would
//! derive the windows element by element instead, and scatter every column to where it was copied from.
//!
//! 16-bit floats are multiplied and summed in f32 and rounded once. The code takes any number of spatial dims; inputs
//! always have a batch dim.

use super::attr::{Attr, MemoryFormat};
use super::attrs::{self, Attributes, Ints, ints};
use super::autodiff::{Backward, Builder, Expr, Gradients};
use super::dtype::DType;
use super::graph::{Graph, NodeId};
use super::memory_formats::{dense, suggested_format};
use super::op::Op;
use super::row::Call;
use super::scalar::Scalar;
use super::shape::{Sizes, checked_numel};
use super::transposed_convolution::transposed;
use super::types::TensorType;
use super::window_product::{self, FEW_ROWS};
use super::windows::{Windows, in_format, laid_out, padded, part, unfolded};
use crate::error::{Error, Result};
use smallvec::{SmallVec, smallvec};

/// One number per spatial dim.
pub(super) type PerDim = SmallVec<[usize; 3]>;
pub(super) type Around = SmallVec<[(i64, i64); 4]>;
pub(super) type AllWindows = SmallVec<[Windows; 3]>;

/// The numbers of a convolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) stride: PerDim,
    pub(super) padding: PerDim,
    pub(super) dilation: PerDim,
    pub(super) groups: usize,
}

impl Geometry {
    /// Reads the arguments of these names. A list of one number holds for all `n` dims.
    fn new(op: &str, n: usize, [stride, padding, dilation]: [&[i64]; 3], groups: i64) -> Result<Geometry> {
        if groups < 1 {
            return Err(Error::argument(op, format!("groups is {groups}; it must be positive")));
        }
        Ok(Geometry {
            stride: per_dim(op, "stride", stride, n, 1)?,
            padding: per_dim(op, "padding", padding, n, 0)?,
            dilation: per_dim(op, "dilation", dilation, n, 1)?,
            groups: groups as usize,
        })
    }

    fn lists(&self) -> [Ints; 3] {
        [ints(&self.stride), ints(&self.padding), ints(&self.dilation)]
    }

    /// The padding on both sides of each dim.
    fn around(&self) -> Around {
        self.padding.iter().map(|&pad| (pad as i64, pad as i64)).collect()
    }

    /// The windows of dim `d`.
    fn windows(&self, d: usize, count: usize, kernel: usize) -> Windows {
        Windows { count, stride: self.stride[d], kernel, dilation: self.dilation[d] }
    }
}

fn per_dim(op: &str, name: &str, list: &[i64], n: usize, least: i64) -> Result<PerDim> {
    let fits = (list.len() == n || list.len() == 1) && list.iter().all(|&number| number >= least);
    if !fits {
        let what = format!("{name} is {list:?}; pass {n} numbers of at least {least}, or one for all dims");
        return Err(Error::argument(op, what));
    }
    let number = |d: usize| list.get(d).or(list.first()).map_or(0, |&number| number as usize);
    Ok((0..n).map(number).collect())
}

/// A call of [`Op::Convolution`].
pub(super) struct Convolution {
    pub(super) geometry: Geometry,
    transposed: bool,
    output_padding: PerDim,
}

impl Convolution {
    fn read(n: usize, attrs: &[Attr]) -> Result<Convolution> {
        let op = "convolution";
        let attrs::Convolution { stride, padding, dilation, transposed, output_padding, groups, .. } =
            attrs::Convolution::read(attrs);
        Ok(Convolution {
            geometry: Geometry::new(op, n, [&stride, &padding, &dilation], groups)?,
            transposed,
            output_padding: per_dim(op, "output_padding", &output_padding, n, 0)?,
        })
    }

    /// The size of dim `d` of the result, or `None` if no window fits.
    pub(super) fn size(&self, d: usize, input: usize, kernel: usize) -> Option<usize> {
        let Geometry { stride, padding, dilation, .. } = &self.geometry;
        let reach = dilation[d].checked_mul(kernel.checked_sub(1)?)?.checked_add(1)?;
        let both = padding[d].checked_mul(2)?;
        if self.transposed {
            let all = input.checked_sub(1)?.checked_mul(stride[d])?.checked_add(reach)?;
            return all.checked_add(self.output_padding[d])?.checked_sub(both);
        }
        Some(input.checked_add(both)?.checked_sub(reach)? / stride[d] + 1)
    }
}

/// The type of a convolution of `(N, C, …)` by a weight of `(out, C / groups, …)`, transposed `(C, out / groups, …)`.
///
/// # Errors
/// If ranks, channels, bias or dtypes do not fit, a number is out of range, or no window fits.
pub fn infer(call: &Call<'_>) -> Result<TensorType> {
    let (op, input, weight) = (call.name(), call.args[0], call.args[1]);
    need_numbers(call)?;
    let shapes = || format!("input shape {:?} and weight shape {:?}", &input.sizes[..], &weight.sizes[..]);
    if input.rank() < 3 || weight.rank() != input.rank() {
        return Err(Error::shape(
            op,
            shapes(),
            "both must have a batch or output dim, channels, and the same spatial dims",
        ));
    }
    let n = input.rank() - 2;
    let convolution = Convolution::read(n, call.attrs)?;
    let groups = convolution.geometry.groups;
    let (expected, out) = match convolution.transposed {
        true => (weight.sizes[0], weight.sizes[1] * groups),
        false => (weight.sizes[1] * groups, weight.sizes[0]),
    };
    if weight.sizes[0] % groups != 0 || input.sizes[1] != expected {
        let what = format!("given groups={groups}, weight of size {:?}, expected input{:?}", weight.sizes, input.sizes);
        let what = format!("{what} to have {expected} channels, but got {} channels instead", input.sizes[1]);
        return Err(Error::shape(op, what, "and dim 0 of the weight must divide evenly into the groups"));
    }
    if let Some(bias) = call.args.get(2).filter(|bias| bias.sizes[..] != [out]) {
        let what = format!("bias has shape {:?} for {out} output channels", &bias.sizes[..]);
        return Err(Error::shape(op, what, "it must be 1-dim with one element per output channel"));
    }
    let mut sizes: Sizes = smallvec![input.sizes[0], out];
    for d in 0..n {
        let size = convolution.size(d, input.sizes[2 + d], weight.sizes[2 + d]);
        let Some(size) = size.filter(|&size| size > 0) else {
            let what = format!("{}: kernel size can't be greater than the padded input size, and not zero", shapes());
            return Err(Error::shape(op, what, "pad more, dilate less, or pass a larger input"));
        };
        sizes.push(size);
    }
    checked_numel(op, &sizes, input.dtype.size())?;
    Ok(dense(format_of([input, weight]), input.dtype, &sizes))
}

/// The memory format of a result: that of an operand with channels last, if there is one.
fn format_of(operands: [&TensorType; 2]) -> MemoryFormat {
    let mut formats = operands.into_iter().map(|ty| suggested_format(&ty.sizes, &ty.strides));
    formats.find(|format| format.order().is_some()).unwrap_or(MemoryFormat::Contiguous)
}

/// All operands must have one dtype, of numbers.
fn need_numbers(call: &Call<'_>) -> Result<()> {
    let dtype = call.args[0].dtype;
    if dtype == DType::Bool {
        return Err(Error::dtype(call.name(), dtype, "a number", "convert first"));
    }
    match call.args.iter().find(|arg| arg.dtype != dtype) {
        Some(arg) => {
            Err(Error::dtype(call.name(), arg.dtype, dtype.name(), "input, weight and bias must have one dtype"))
        }
        None => Ok(()),
    }
}

/// Decomposes a convolution to windows and products.
///
/// # Errors
/// None on a verified graph.
pub fn decompose(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let convolution = Convolution::read(graph[args[0]].ty.rank() - 2, attrs)?;
    Builder::extend(graph, args, |args| {
        let (x, weight) = (args[0], args[1]);
        let (dtype, format) = (x.dtype(), format_of([&x.ty(), &weight.ty()]));
        let mut y =
            if convolution.transposed { transposed(x, weight, &convolution) } else { direct(x, weight, &convolution) };
        if let Some(&bias) = args.get(2) {
            let mut sizes: Sizes = smallvec![1; y.rank() - 1];
            sizes[0] = y.sizes()[1];
            y = y + laid_out(bias.wide(), &sizes);
        }
        in_format(y.to(dtype), format)
    })
}

fn direct<'g>(x: Expr<'g>, weight: Expr<'g>, convolution: &Convolution) -> Expr<'g> {
    let geometry = &convolution.geometry;
    let (sizes, kernel) = (x.sizes(), weight.sizes());
    let windows = (0..geometry.stride.len()).map(|d| {
        let count = convolution.size(d, sizes[2 + d], kernel[2 + d]).expect("inference found that a window fits");
        geometry.windows(d, count, kernel[2 + d])
    });
    let groups = geometry.groups;
    let x = readable(x, weight, groups, kernel[0] / groups);
    let windows = unfolded(padded(x, &geometry.around(), Scalar::Int(0)), &windows.collect::<AllWindows>());
    let per_group = kernel[1..].iter().product();
    product(windows, laid_out(weight, &[groups, kernel[0] / groups, per_group]), kernel.len() - 2)
}

/// The input as products of so many rows read it: row-major, unless channels may be last. With one tap and one group it
/// is a matrix, which may lie either way. In depthwise convolutions of small images channels become last.
pub(super) fn readable<'g>(x: Expr<'g>, weight: Expr<'g>, groups: usize, rows: usize) -> Expr<'g> {
    let channels = x.sizes()[1] / groups;
    let taps = weight.sizes()[2..].iter().product::<usize>();
    let is_matrix = groups == 1 && taps == 1;
    let may_be_last = is_matrix || window_product::reads_channels_last(groups, channels, rows);
    let ty = x.ty();
    let is_last = suggested_format(&ty.sizes, &ty.strides).order().is_some();
    let lanes_are_channels = rows == 1 && may_be_last && ty.rank() == 4 && is_narrow(ty.sizes[3], taps);
    match (is_last, may_be_last) {
        (true, false) => x.contiguous(),
        (false, _) if lanes_are_channels => in_format(x, MemoryFormat::ChannelsLast),
        _ => x,
    }
}

/// Whether rows of images are so short that copies pay. By rows, a tap of a row takes a nanosecond, however few lanes
/// of its vector are in use. With channels last, it takes 1/32 per place, and copies to and fro take 1.4 per place.
fn is_narrow(width: usize, taps: usize) -> bool {
    width < 32 && taps * (32 - width) > 45 * width
}

/// `(N, C, places…, elements…)` windows of `n` dims times a `(groups, M, C / groups * elements)` weight, which gives
/// `(N, groups * M, places…)`. Operands are widened for the product.
pub(super) fn product<'g>(windows: Expr<'g>, weight: Expr<'g>, n: usize) -> Expr<'g> {
    let (sizes, factors) = (windows.sizes(), weight.sizes());
    let (samples, channels) = (sizes[0], sizes[1]);
    let (places, elements) = (&sizes[2..2 + n], &sizes[2 + n..]);
    let (groups, rows) = (factors[0], factors[1]);
    let out: Sizes = [&[samples, groups * rows], places].concat().into();
    let has_many = groups > 1 && elements.iter().product::<usize>() > 1;
    if has_many && (channels, rows) == (groups, 1) && !windows.dtype().is_float() {
        // Each column would be used once, so integers are multiplied where they lie.
        let shape: Sizes = [&[groups], &*Sizes::from_elem(1, n), elements].concat().into();
        let inner: SmallVec<[usize; 6]> = (2 + n..2 + 2 * n).collect();
        return (windows * laid_out(weight, &shape)).sum(&inner, false).to(windows.dtype());
    }
    if groups == 1 && elements.iter().product::<usize>() == 1 && channels > 1 && windows.ty().strides[1] == 1 {
        // Places are rows of a matrix, so the channels of the result are last, too.
        let order: SmallVec<[usize; 6]> = [0].into_iter().chain(2..2 + 2 * n).chain([1]).collect();
        let x = laid_out(windows.permute(&order), &[samples * places.iter().product::<usize>(), channels]);
        let weight = laid_out(weight, &[rows, channels]).transposed();
        let y = laid_out(x.wide().matmul(weight.wide()), &[&[samples], places, &[rows]].concat());
        let order: SmallVec<[usize; 6]> = [0, 1 + n].into_iter().chain(1..1 + n).collect();
        return y.permute(&order);
    }
    let order: SmallVec<[usize; 6]> = [0, 1].into_iter().chain(2 + n..2 + 2 * n).chain(2..2 + n).collect();
    let split = [&[samples, groups, channels / groups], elements, places].concat();
    let columns = laid_out(windows.permute(&order), &split);
    let weight = weight.unsqueeze(0).expand(&[samples, groups, rows, factors[2]]);
    laid_out(window_product::times(weight, columns, 1 + n), &out)
}

/// The gradients of a convolution by input, weight and bias.
pub fn gradients<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (x, weight, g) = (call.args[0], call.args[1], call.grad);
    let (sizes, kernel) = (x.sizes(), weight.sizes());
    let Ok(convolution) = Convolution::read(sizes.len() - 2, call.attrs) else { return Gradients::new() };
    let geometry = &convolution.geometry;
    let by_input = convolve(g, weight, geometry, !convolution.transposed, &sizes[2..]);
    let (large, small) = if convolution.transposed { (g, x) } else { (x, g) };
    let by_weight = weight_gradient(large, small, geometry, &kernel[2..]);
    let others: SmallVec<[usize; 6]> = (0..g.rank()).filter(|&dim| dim != 1).collect();
    smallvec![Some(by_input), Some(by_weight), Some(g.sum(&others, false))]
}

/// A convolution whose result has the sizes `wanted`. If it is transposed, output padding gives it the elements that no
/// window reached, which are 0.
fn convolve<'g>(x: Expr<'g>, weight: Expr<'g>, geometry: &Geometry, transposed: bool, wanted: &[usize]) -> Expr<'g> {
    let n = wanted.len();
    let (sizes, kernel) = (x.sizes(), weight.sizes());
    let natural = |d: usize| {
        let reach = geometry.dilation[d] * (kernel[2 + d] - 1) + 1;
        (geometry.stride[d] * (sizes[2 + d] - 1) + reach) as i64 - 2 * geometry.padding[d] as i64
    };
    let missing = |d: usize| if transposed { wanted[d] as i64 - natural(d) } else { 0 };
    let [stride, padding, dilation] = geometry.lists();
    let attrs = attrs::Convolution {
        bias: false,
        stride,
        padding,
        dilation,
        transposed,
        output_padding: (0..n).map(missing).collect(),
        groups: geometry.groups as i64,
    };
    let y = x.call(Op::Convolution, &[weight], attrs.into());
    (0..n).fold(y, |y, d| part(y, 2 + d, 0, wanted[d], 1))
}

fn weight_gradient<'g>(large: Expr<'g>, small: Expr<'g>, geometry: &Geometry, kernel: &[usize]) -> Expr<'g> {
    let [stride, padding, dilation] = geometry.lists();
    let groups = geometry.groups as i64;
    let attrs = attrs::ConvolutionWeight { kernel: ints(kernel), stride, padding, dilation, groups };
    large.call(Op::ConvolutionWeight, &[small], attrs.into())
}

/// The weight gradient, `(out, C / groups, kernel…)`. Its operands are the large side `(N, C, …)`, which has the
/// windows, and the small side `(N, out, …)`, which has one element per window.
pub mod weight {
    use super::*;

    fn read(op: &str, n: usize, attrs: &[Attr]) -> Result<(PerDim, Geometry)> {
        let attrs::ConvolutionWeight { kernel, stride, padding, dilation, groups } =
            attrs::ConvolutionWeight::read(attrs);
        let geometry = Geometry::new(op, n, [&stride, &padding, &dilation], groups)?;
        Ok((per_dim(op, "kernel", &kernel, n, 1)?, geometry))
    }

    /// The type of the gradient.
    ///
    /// # Errors
    /// If shapes or dtypes do not fit, or the small side has more elements than there are windows.
    pub fn infer(call: &Call<'_>) -> Result<TensorType> {
        let (op, large, small) = (call.name(), call.args[0], call.args[1]);
        need_numbers(call)?;
        let fits = large.rank() >= 3 && small.rank() == large.rank() && small.sizes[0] == large.sizes[0];
        let refuse = || {
            let what = format!("shapes {:?} and {:?} do not fit", &large.sizes[..], &small.sizes[..]);
            Err(Error::shape(op, what, "pass an input and the gradient of its convolution"))
        };
        if !fits {
            return refuse();
        }
        let n = large.rank() - 2;
        let (kernel, geometry) = read(op, n, call.attrs)?;
        let reaches = |d: usize| {
            let windows = geometry.windows(d, small.sizes[2 + d], kernel[d]);
            let room = geometry.padding[d].saturating_mul(2).saturating_add(large.sizes[2 + d]);
            windows.count > 0 && windows.length().is_some_and(|length| length <= room)
        };
        let divides = |channels: usize| channels.is_multiple_of(geometry.groups);
        if !(divides(large.sizes[1]) && divides(small.sizes[1]) && (0..n).all(reaches)) {
            return refuse();
        }
        let sizes: Sizes = [&[small.sizes[1], large.sizes[1] / geometry.groups], &kernel[..]].concat().into();
        checked_numel(op, &sizes, large.dtype.size())?;
        Ok(dense(format_of([large, small]), large.dtype, &sizes))
    }

    /// Decomposes it to one product per group, which sums over samples and windows.
    ///
    /// # Errors
    /// None on a verified graph.
    pub fn decompose(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
        let n = graph[args[0]].ty.rank() - 2;
        let (kernel, geometry) = read("convolution", n, attrs)?;
        Builder::extend(graph, args, |args| {
            let (large, small) = (args[0], args[1]);
            let (dtype, format) = (large.dtype(), format_of([&large.ty(), &small.ty()]));
            let (sizes, own) = (large.sizes(), small.sizes());
            let windows: AllWindows = (0..n).map(|d| geometry.windows(d, own[2 + d], kernel[d])).collect();
            let windows = unfolded(padded(large, &geometry.around(), Scalar::Int(0)), &windows);
            let (groups, samples) = (geometry.groups, sizes[0]);
            let n_rows = own[1] / groups;
            // Groups, samples, places, channels, elements.
            let split = [&[samples, groups, sizes[1] / groups], &own[2..], &kernel[..]].concat();
            // Where channels are last in memory, they are last in the gradient.
            let (first, last) = if format.order().is_some() { (None, Some(2)) } else { (Some(2), None) };
            let taps = first.into_iter().chain(3 + n..3 + 2 * n).chain(last);
            let order: SmallVec<[usize; 8]> = [1, 0].into_iter().chain(3..3 + n).chain(taps).collect();
            let columns = laid_out(windows, &split).permute(&order).unsqueeze(0);
            let order: SmallVec<[usize; 6]> = [1, 0].into_iter().chain(2..2 + n).collect();
            let places = &own[2..];
            let mut split = [&[1, groups, n_rows, samples], places].concat();
            if n_rows > FEW_ROWS {
                // Packing reads factors at equal distances.
                split.splice(3.., [samples * places.iter().product::<usize>()]);
            }
            let rows = laid_out(small.permute(&order), &split);
            let product = window_product::times(rows, columns, 1 + n);
            let channels = sizes[1] / groups;
            let product = if last.is_some() {
                let order: SmallVec<[usize; 6]> = [0, 1 + n].into_iter().chain(1..1 + n).collect();
                laid_out(product, &[&[own[1]], &kernel[..], &[channels]].concat()).permute(&order)
            } else {
                laid_out(product, &[&[own[1], channels], &kernel[..]].concat())
            };
            in_format(product.to(dtype), format)
        })
    }

    /// The gradients by the large and the small side.
    pub fn gradients<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
        let (large, small, g) = (call.args[0], call.args[1], call.grad);
        let n = large.rank() - 2;
        let Ok((_, geometry)) = read("convolution", n, call.attrs) else { return Gradients::new() };
        let by_large = convolve(small, g, &geometry, true, &large.sizes()[2..]);
        let by_small = convolve(large, g, &geometry, false, &small.sizes()[2..]);
        smallvec![Some(by_large), Some(by_small)]
    }
}
