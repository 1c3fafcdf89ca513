//! Normalization over trailing dims and over groups of channels, and its gradients.
//!
//! Layer norm is a row of the op table. The others add statistics to it, or rearrange channels so that it applies. The
//! cuDNN switches are accepted and ignored. A gradient that is masked out is an empty tensor. Batch norm and instance
//! norm are in `batch_norm.rs`.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::LayerNorm;
use crate::ir::{Attrs, DType, Op, Scalar};
use crate::ops::arguments::{count, need_float, widened};
use crate::ops::composite::Composite;
use crate::ops::dims::{Dims, ints};
use crate::ops::factories::full_on;
use crate::tensor::handle::Tensor;

static GROUP_NORM: Composite = Composite::new(
    "group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool \
     cudnn_enabled=True) -> Tensor",
);
static RMS_NORM: Composite =
    Composite::new("rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor");

/// Normalization by group or over trailing dims. Sizes and dtype are kept. 16-bit floats are computed in f32.
impl Tensor {
    /// Layer normalization (Ba, Kiros, Hinton 2016): `(x - mean) / sqrt(variance + eps) * weight + bias`. Mean and
    /// variance are over the trailing dims, whose sizes are `shape`. Weight and bias have the sizes `shape`. Sizes and
    /// dtype are kept.
    ///
    /// # Errors
    /// If the dtype is not floating, if the sizes do not end with `shape`, or if weight or bias has another shape or
    /// dtype.
    #[track_caller]
    pub fn layer_norm(
        &self,
        shape: impl Into<Dims>,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let tensors: Vec<&Tensor> = [Some(self), weight, bias].into_iter().flatten().collect();
        let attrs = LayerNorm {
            normalized_shape: ints(shape),
            weight: weight.is_some(),
            bias: bias.is_some(),
            eps,
            cudnn_enable: true,
        };
        call(Op::LayerNorm, &tensors, &Attrs::from(attrs))
    }

    /// Group normalization (Wu, He 2018): `(x - mean) / sqrt(variance + eps) * weight + bias`. The channels (dim 1)
    /// form `groups` groups of neighbours. Mean and variance are per group of each sample. Weight and bias have one
    /// element per channel. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If the dtype is not floating, if the number of channels is not divisible by `groups`, or if a parameter does not
    /// have one element per channel.
    #[track_caller]
    pub fn group_norm(&self, groups: i64, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
        GROUP_NORM.call((self, groups, weight, bias, eps, true))
    }

    /// Root mean square normalization (Zhang, Sennrich 2019): `x / sqrt(mean(x²) + eps) * weight`. The mean is over the
    /// trailing dims, whose sizes are `shape`. Without `eps` it is the machine epsilon of the dtype that is computed
    /// in. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If the dtype is not floating, if the sizes do not end with `shape`, or if the weight has another shape.
    #[track_caller]
    pub fn rms_norm(&self, shape: impl Into<Dims>, weight: Option<&Tensor>, eps: Option<f64>) -> Result<Tensor> {
        RMS_NORM.call((self, shape.into().as_slice(), weight, eps))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel(
            "native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> \
             (Tensor, Tensor, Tensor)",
            native_layer_norm,
        )?
        .def_kernel(
            "native_layer_norm_backward(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor \
             rstd, Tensor? weight, Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
            native_layer_norm_backward,
        )?
        .composite(&GROUP_NORM, group_norm)?
        .def_kernel(
            "native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, \
             float eps) -> (Tensor, Tensor, Tensor)",
            native_group_norm,
        )?
        .def_kernel(
            "native_group_norm_backward(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, \
             SymInt N, SymInt C, SymInt HxW, int group, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
            native_group_norm_backward,
        )?
        .composite(&RMS_NORM, rms_norm)?;
    Ok(())
}

/// Layer norm, with the mean and the reciprocal deviation of each row, which have no gradient.
fn native_layer_norm(
    x: &Tensor,
    shape: &[i64],
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor)> {
    let y = x.layer_norm(shape, weight, bias, eps)?;
    let dims = trailing_dims("native_layer_norm", x, shape)?;
    let (mean, variance) = moments(&widened(x)?, &dims, true)?;
    let rstd = variance.add(eps)?.rsqrt()?;
    Ok((y, mean.to_dtype(x.dtype())?.detach()?, rstd.to_dtype(x.dtype())?.detach()?))
}

/// The gradients of layer norm with respect to input, weight and bias, from the saved statistics of its rows. A
/// gradient that is not wanted is empty.
#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn native_layer_norm_backward(
    gradient: &Tensor,
    x: &Tensor,
    shape: &[i64],
    mean: &Tensor,
    rstd: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    mask: &[bool],
) -> Result<(Tensor, Tensor, Tensor)> {
    let op = "native_layer_norm_backward";
    let dims = trailing_dims(op, x, shape)?;
    let outer: Vec<i64> = (0..(x.dim() - dims.len()) as i64).collect();
    let [by_input, by_weight, by_bias] = wanted(op, mask)?;
    let (dtype, parameter_dtype) = (x.dtype(), weight.or(bias).unwrap_or(x).dtype());
    let (gradient, rstd) = (widened(gradient)?, widened(rstd)?);
    let y = widened(x)?.sub(&widened(mean)?)?.mul(&rstd)?;
    let over_rows = |value: &Tensor| {
        if outer.is_empty() { Ok(value.clone()) } else { value.sum(&outer, false) }?.to_dtype(parameter_dtype)
    };
    let input = || {
        let g = weight.map_or_else(|| Ok(gradient.clone()), |weight| gradient.mul(widened(weight)?))?;
        let along = g.mul(&y)?.mean(dims.clone(), true)?;
        g.sub(g.mean(dims.clone(), true)?)?.sub(y.mul(along)?)?.mul(&rstd)?.to_dtype(dtype)
    };
    Ok((
        if by_input { input()? } else { nothing(&gradient, dtype)? },
        if by_weight { over_rows(&gradient.mul(&y)?)? } else { nothing(&gradient, parameter_dtype)? },
        if by_bias { over_rows(&gradient)? } else { nothing(&gradient, parameter_dtype)? },
    ))
}

fn group_norm(
    x: &Tensor,
    groups: i64,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
    _: bool,
) -> Result<Tensor> {
    let rows = group_rows("group_norm", x, groups, weight, bias)?;
    let y = normalized_rows(&rows, eps)?.view(x.sizes())?;
    affine(&y, weight, bias)?.to_dtype(x.dtype())
}

/// Group norm, with the mean and reciprocal deviation of each group, `(N, groups)`.
#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn native_group_norm(
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    samples: i64,
    channels: i64,
    length: i64,
    groups: i64,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor)> {
    let op = "native_group_norm";
    check_sizes(op, x, [samples, channels, length])?;
    let rows = group_rows(op, x, groups, weight, bias)?;
    let (mean, variance) = moments(&rows, &[1], false)?;
    let rstd = variance.add(eps)?.rsqrt()?;
    let y = rows.sub(mean.unsqueeze(1)?)?.mul(rstd.unsqueeze(1)?)?.view(x.sizes())?;
    let y = affine(&y, weight, bias)?.to_dtype(x.dtype())?;
    let per_group = |value: &Tensor| value.view([samples, groups])?.to_dtype(x.dtype());
    Ok((y, per_group(&mean)?, per_group(&rstd)?))
}

/// The gradients of group norm with respect to input, weight and bias, from the saved statistics of its groups. A
/// gradient that is not wanted is empty.
#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn native_group_norm_backward(
    gradient: &Tensor,
    x: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
    weight: Option<&Tensor>,
    samples: i64,
    channels: i64,
    length: i64,
    groups: i64,
    mask: &[bool],
) -> Result<(Tensor, Tensor, Tensor)> {
    let op = "native_group_norm_backward";
    check_sizes(op, x, [samples, channels, length])?;
    let [by_input, by_weight, by_bias] = wanted(op, mask)?;
    let (dtype, parameter_dtype) = (x.dtype(), weight.unwrap_or(x).dtype());
    let rows = group_rows(op, x, groups, weight, None)?;
    let per_row = |value: &Tensor| widened(value)?.reshape([samples * groups, 1]);
    let (mean, rstd) = (per_row(mean)?, per_row(rstd)?);
    let y = rows.sub(mean)?.mul(&rstd)?;
    let gradient = widened(gradient)?;
    let input = || {
        let g = affine(&gradient, weight, None)?.reshape(rows.sizes())?;
        let along = g.mul(&y)?.mean(1, true)?;
        g.sub(g.mean(1, true)?)?.sub(y.mul(along)?)?.mul(&rstd)?.reshape(x.sizes())?.to_dtype(dtype)
    };
    let channel_sums =
        |value: &Tensor| value.reshape([samples, channels, length])?.sum([0, 2], false)?.to_dtype(parameter_dtype);
    Ok((
        if by_input { input()? } else { nothing(&gradient, dtype)? },
        if by_weight {
            channel_sums(&gradient.mul(y.reshape(x.sizes())?)?)?
        } else {
            nothing(&gradient, parameter_dtype)?
        },
        if by_bias { channel_sums(&gradient)? } else { nothing(&gradient, parameter_dtype)? },
    ))
}

fn check_sizes(op: &str, x: &Tensor, [samples, channels, length]: [i64; 3]) -> Result<()> {
    if x.numel() as i64 == samples.saturating_mul(channels).saturating_mul(length) {
        return Ok(());
    }
    let what = format!("N {samples}, C {channels} and HxW {length} do not fit input shape {:?}", x.sizes());
    Err(Error::shape(op, what, "pass the sizes of the input"))
}

/// The input with one row per group.
fn group_rows(op: &str, x: &Tensor, groups: i64, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Result<Tensor> {
    need_float(op, &[x])?;
    let groups = count(op, groups)?;
    let &[samples, channels, ..] = x.sizes() else { return Err(no_channels(op, x)) };
    if groups == 0 || !channels.is_multiple_of(groups) {
        let what = format!("input shape {:?} has {channels} channels for {groups} groups", x.sizes());
        return Err(Error::shape(op, what, "the channels must divide evenly"));
    }
    check_channels(op, channels, &[("weight", weight), ("bias", bias)])?;
    let length: usize = x.sizes()[2..].iter().product::<usize>() * (channels / groups);
    widened(x)?.reshape(&[samples * groups, length][..])
}

/// The default `eps` is the machine epsilon of the dtype that is computed in.
fn rms_norm(x: &Tensor, shape: &[i64], weight: Option<&Tensor>, eps: Option<f64>) -> Result<Tensor> {
    let op = "rms_norm";
    need_float(op, &[x])?;
    let dims = trailing_dims(op, x, shape)?;
    let own = &x.sizes()[x.dim() - dims.len()..];
    if let Some(weight) = weight.filter(|weight| weight.sizes() != own) {
        let what = format!("weight has shape {:?}, not the normalized shape {own:?}", weight.sizes());
        return Err(Error::shape(op, what, "make them the same"));
    }
    let epsilon = if x.dtype() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let wide = widened(x)?;
    let y = wide.mul(wide.square()?.mean(dims, true)?.add(eps.unwrap_or(epsilon))?.rsqrt()?)?;
    let y = weight.map_or_else(|| Ok(y.clone()), |weight| y.mul(widened(weight)?))?;
    y.to_dtype(x.dtype())
}

/// The dims of `x` that `shape` stands for, at its end.
fn trailing_dims(op: &str, x: &Tensor, shape: &[i64]) -> Result<Vec<i64>> {
    let fits = !shape.is_empty()
        && shape.len() <= x.dim()
        && x.sizes()[x.dim() - shape.len()..].iter().zip(shape).all(|(&size, &wanted)| size as i64 == wanted);
    if !fits {
        let what = format!("normalized_shape {shape:?} is not the end of the input shape {:?}", x.sizes());
        return Err(Error::shape(op, what, "pass the sizes of the trailing dims"));
    }
    Ok(((x.dim() - shape.len()) as i64..x.dim() as i64).collect())
}

/// Subtracts the mean of each row of a matrix, and divides by its deviation.
fn normalized_rows(rows: &Tensor, eps: f64) -> Result<Tensor> {
    match rows.sizes() {
        &[_, length] if rows.numel() > 0 => rows.layer_norm(length as i64, None, None, eps),
        _ => Ok(rows.clone()),
    }
}

/// Mean and population variance over dims.
pub(crate) fn moments(x: &Tensor, dims: &[i64], keepdim: bool) -> Result<(Tensor, Tensor)> {
    Ok((x.mean(dims, keepdim)?, x.var(dims, 0, keepdim)?))
}

/// Reshapes one value per channel so that it broadcasts to `x`.
pub(crate) fn by_channel(value: &Tensor, x: &Tensor) -> Result<Tensor> {
    let trailing = vec![1; x.dim() - 2];
    value.view(&[value.sizes(), &trailing[..]].concat()[..])
}

pub(crate) fn affine(y: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Result<Tensor> {
    let widened = |parameter: &Tensor| by_channel(&widened(parameter)?, y);
    match (weight, bias) {
        // One pass over the elements.
        (Some(weight), Some(bias)) => widened(bias)?.addcmul(y, &widened(weight)?, 1),
        (Some(weight), None) => y.mul(widened(weight)?),
        (None, Some(bias)) => y.add(widened(bias)?),
        (None, None) => Ok(y.clone()),
    }
}

/// An empty tensor on the device of another one.
pub(crate) fn nothing(beside: &Tensor, dtype: DType) -> Result<Tensor> {
    full_on(beside.device(), &[0], Scalar::Int(0), Some(dtype))
}

pub(crate) fn wanted(op: &str, mask: &[bool]) -> Result<[bool; 3]> {
    mask.try_into().map_err(|_| Error::argument(op, format!("output_mask has {} entries, not 3", mask.len())))
}

pub(crate) fn no_channels(op: &str, x: &Tensor) -> Error {
    Error::shape(
        op,
        format!("the input has shape {:?}", x.sizes()),
        "it must have at least 2 dims; dim 1 is the channels",
    )
}

/// Rejects parameters without exactly one element per channel.
pub(crate) fn check_channels(op: &str, channels: usize, parameters: &[(&str, Option<&Tensor>)]) -> Result<()> {
    for &(name, parameter) in parameters {
        if let Some(parameter) = parameter.filter(|parameter| parameter.sizes() != [channels]) {
            let what = format!("{name} has shape {:?} for {channels} channels", parameter.sizes());
            return Err(Error::shape(op, what, "it must have one element per channel"));
        }
    }
    Ok(())
}
