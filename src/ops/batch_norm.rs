//! Batch norm and instance norm, and the gradients of batch norm.
//!
//! Statistics have the dtype of the parameters, so 16-bit inputs can have running averages in f32. The cuDNN switches
//! are accepted and ignored. A gradient that is masked out is an empty tensor.

use crate::dispatch::key::grad_mode::no_grad;
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ops::arguments::{need_float, widened};
use crate::ops::composite::Composite;
use crate::ops::normalization::{affine, by_channel, check_channels, moments, no_channels, nothing, wanted};
use crate::tensor::handle::Tensor;
use crate::tensor::observer::extent;

static BATCH_NORM: Composite = Composite::new(
    "batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, \
     float momentum, float eps, bool cudnn_enabled) -> Tensor",
);
static INSTANCE_NORM: Composite = Composite::new(
    "instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool \
     use_input_stats, float momentum, float eps, bool cudnn_enabled) -> Tensor",
);

/// The arguments of [`Tensor::batch_norm`] and [`Tensor::instance_norm`].
#[derive(Debug, Clone)]
pub struct BatchNorm<'a> {
    /// The factor of each channel.
    pub weight: Option<&'a Tensor>,
    /// The offset of each channel.
    pub bias: Option<&'a Tensor>,
    /// The running mean and variance of each channel. In training they are updated in place. Otherwise they are used to
    /// normalize.
    pub running: Option<(&'a Tensor, &'a Tensor)>,
    /// Whether to normalize by the statistics of the batch.
    pub training: bool,
    /// The weight of the batch statistics in the running statistics.
    pub momentum: f64,
    /// A small number that is added to the variance.
    pub eps: f64,
}

impl Default for BatchNorm<'_> {
    fn default() -> Self {
        BatchNorm { weight: None, bias: None, running: None, training: false, momentum: 0.1, eps: 1e-5 }
    }
}

/// Normalization by channel. Sizes and dtype are kept. 16-bit floats are computed in f32.
impl Tensor {
    /// Batch normalization (Ioffe, Szegedy 2015): `(x - mean) / sqrt(variance + eps) * weight + bias`. Mean and
    /// variance are per channel (dim 1), over all other dims. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If the dtype is not floating, if there is no dim 1, if a parameter does not have one element per channel, if
    /// there are no running statistics and `training` is off, or if a channel has one value and `training` is on.
    #[track_caller]
    pub fn batch_norm(&self, options: &BatchNorm<'_>) -> Result<Tensor> {
        let BatchNorm { weight, bias, running, training, momentum, eps } = *options;
        if training && self.dim() > 1 && self.numel() > 0 && self.numel() == self.sizes()[1] {
            return Err(lone_value("batch_norm", "channel", self));
        }
        let (mean, variance) = running.unzip();
        BATCH_NORM.call((self, weight, bias, mean, variance, training, momentum, eps, true))
    }

    /// Instance normalization (Ulyanov, Vedaldi, Lempitsky 2016): like [`Tensor::batch_norm`], with mean and variance
    /// per channel of each sample, over all dims except the first two. Sizes and dtype are kept.
    ///
    /// # Errors
    /// Same as [`Tensor::batch_norm`].
    #[track_caller]
    pub fn instance_norm(&self, options: &BatchNorm<'_>) -> Result<Tensor> {
        let BatchNorm { weight, bias, running, training, momentum, eps } = *options;
        if training && self.dim() > 1 && self.numel() > 0 && self.sizes()[2..].iter().product::<usize>() == 1 {
            return Err(lone_value("instance_norm", "channel of a sample", self));
        }
        let (mean, variance) = running.unzip();
        INSTANCE_NORM.call((self, weight, bias, mean, variance, training, momentum, eps, true))
    }
}

/// The error of a normalization by the statistics of single values, which would make all of them zero.
fn lone_value(op: &str, of: &str, x: &Tensor) -> Error {
    let what = format!("Expected more than 1 value per {of} when training, got input size {:?}", x.sizes());
    Error::shape(op, what, "pass a larger batch, or turn training off")
}

type Opt<'a> = Option<&'a Tensor>;
type Three = (Tensor, Tensor, Tensor);

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(
            &BATCH_NORM,
            |x: &Tensor, w: Opt<'_>, b: Opt<'_>, mean: Opt<'_>, var: Opt<'_>, training, momentum, eps, _: bool| {
                batch_norm(x, &Arguments::new("batch_norm", (w, b), (mean, var), training, momentum, eps)?)
            },
        )?
        .composite(
            &INSTANCE_NORM,
            |x: &Tensor, w: Opt<'_>, b: Opt<'_>, mean: Opt<'_>, var: Opt<'_>, training, momentum, eps, _: bool| {
                instance_norm(x, &Arguments::new("instance_norm", (w, b), (mean, var), training, momentum, eps)?)
            },
        )?
        .def_kernel(
            "native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, \
             bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
            native_batch_norm,
        )?
        .def_kernel(
            "_native_batch_norm_legit(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, Tensor(b!) \
             running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
            |x: &Tensor, w: Opt<'_>, b: Opt<'_>, mean: &Tensor, var: &Tensor, training, momentum, eps| {
                native_batch_norm(x, w, b, Some(mean), Some(var), training, momentum, eps)
            },
        )?
        .def_kernel(
            "_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias, bool training, float \
             momentum, float eps) -> (Tensor, Tensor, Tensor)",
            |x: &Tensor, w: Opt<'_>, b: Opt<'_>, training, momentum, eps| {
                native_batch_norm(x, w, b, None, None, training, momentum, eps)
            },
        )?
        .def_kernel(
            "_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, \
             Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
            |x: &Tensor, w: Opt<'_>, b: Opt<'_>, mean: &Tensor, var: &Tensor, momentum, eps| {
                native_batch_norm(x, w, b, Some(mean), Some(var), false, momentum, eps)
            },
        )?
        .def_kernel(
            "_native_batch_norm_legit_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, \
             Tensor running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
            |x: &Tensor, w: Opt<'_>, b: Opt<'_>, mean: &Tensor, var: &Tensor, training, momentum, eps| {
                // The new statistics are results, and the old ones stay.
                let (mean, var) = (mean.copy()?, var.copy()?);
                let (y, saved, inverse) = native_batch_norm(x, w, b, Some(&mean), Some(&var), training, momentum, eps)?;
                Ok((y, saved, inverse, mean, var))
            },
        )?
        .def_kernel(
            "native_batch_norm_backward(Tensor grad_out, Tensor input, Tensor? weight, Tensor? running_mean, Tensor? \
             running_var, Tensor? save_mean, Tensor? save_invstd, bool train, float eps, bool[3] output_mask) -> \
             (Tensor, Tensor, Tensor)",
            native_batch_norm_backward,
        )?;
    Ok(())
}

/// The common arguments of all batch norm operators.
struct Arguments<'a> {
    weight: Opt<'a>,
    bias: Opt<'a>,
    /// Running mean and variance. In training they are updated in place. Otherwise they are used to normalize.
    running: Option<(&'a Tensor, &'a Tensor)>,
    training: bool,
    /// The weight of the batch statistics in the running statistics.
    momentum: f64,
    eps: f64,
}

impl<'a> Arguments<'a> {
    fn new(
        op: &str,
        (weight, bias): (Opt<'a>, Opt<'a>),
        running: (Opt<'a>, Opt<'a>),
        training: bool,
        momentum: f64,
        eps: f64,
    ) -> Result<Arguments<'a>> {
        let running = match running {
            (Some(mean), Some(variance)) => Some((mean, variance)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err(Error::argument(op, "running_mean and running_var must be given together"));
            }
        };
        Ok(Arguments { weight, bias, running, training, momentum, eps })
    }

    fn check(&self, op: &str, channels: usize) -> Result<()> {
        let (mean, variance) = self.running.unzip();
        let parameters =
            [("weight", self.weight), ("bias", self.bias), ("running_mean", mean), ("running_var", variance)];
        check_channels(op, channels, &parameters)
    }
}

fn batch_norm(x: &Tensor, arguments: &Arguments<'_>) -> Result<Tensor> {
    need_float("batch_norm", &[x])?;
    if x.numel() > 0 {
        return normalized("batch_norm", x, arguments).map(|(y, _, _)| y);
    }
    // There are no statistics. The parameters still take part, so that they get gradients.
    let y = x.copy()?;
    let y = arguments.weight.map_or_else(|| Ok(y.clone()), |weight| y.mul(weight.select(0, 0)?))?;
    arguments.bias.map_or_else(|| Ok(y.clone()), |bias| y.add(bias.select(0, 0)?))
}

/// Normalizes each channel of each sample.
fn instance_norm(x: &Tensor, arguments: &Arguments<'_>) -> Result<Tensor> {
    let op = "instance_norm";
    need_float(op, &[x])?;
    let &[samples, channels, ..] = x.sizes() else { return Err(no_channels(op, x)) };
    if !arguments.training {
        return normalized(op, x, arguments).map(|(y, _, _)| y);
    }
    arguments.check(op, channels)?;
    let length = x.sizes()[2..].iter().product();
    let rows = widened(x)?.reshape(&[samples, channels, length][..])?;
    let (mean, variance) = moments(&rows, &[2], true)?;
    let y = rows.sub(&mean)?.mul(variance.add(arguments.eps)?.rsqrt()?)?;
    let y = affine(&y.view(x.sizes())?, arguments.weight, arguments.bias)?.to_dtype(x.dtype())?;
    if let Some(running) = arguments.running {
        let batch = |value: &Tensor| value.mean([0, 2], false);
        follow(running, (&batch(&mean)?, &unbiased(&batch(&variance)?, length)?), arguments.momentum)?;
    }
    Ok(y)
}

#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn native_batch_norm(
    x: &Tensor,
    weight: Opt<'_>,
    bias: Opt<'_>,
    mean: Opt<'_>,
    variance: Opt<'_>,
    training: bool,
    momentum: f64,
    eps: f64,
) -> Result<Three> {
    let op = "native_batch_norm";
    normalized(op, x, &Arguments::new(op, (weight, bias), (mean, variance), training, momentum, eps)?)
}

/// Batch norm, with the mean and reciprocal deviation of the batch, which have no gradient. They are empty if the
/// running statistics were used.
fn normalized(op: &str, input: &Tensor, arguments: &Arguments<'_>) -> Result<Three> {
    need_float(op, &[input])?;
    let &[_, channels, ..] = input.sizes() else { return Err(no_channels(op, input)) };
    arguments.check(op, channels)?;
    let x = widened(input)?;
    let statistics = arguments.weight.or(arguments.running.map(|(mean, _)| mean)).unwrap_or(input).dtype();
    let (mean, variance) = match (arguments.training, arguments.running) {
        (true, _) => moments(&x, &but_channels(&x), false)?,
        (false, Some((mean, variance))) => (widened(mean)?, widened(variance)?),
        (false, None) => {
            let what = "there are no running statistics to normalize by; pass them, or turn training on";
            return Err(Error::argument(op, what));
        }
    };
    let rstd = variance.add(arguments.eps)?.rsqrt()?;
    // The saved statistics are those of the forward pass, so a backward pass uses the same numbers.
    let saved = match arguments.training {
        true => (mean.to_dtype(statistics)?, rstd.to_dtype(statistics)?),
        false => (mean.clone(), rstd),
    };
    // Reciprocal deviation and weight are multiplied per channel, so that an eager call walks over `x` twice only.
    let centred = x.sub(by_channel(&widened(&saved.0)?, &x)?)?;
    let rstd = widened(&saved.1)?;
    let scale = arguments.weight.map_or_else(|| Ok(rstd.clone()), |weight| rstd.mul(widened(weight)?))?;
    let scale = by_channel(&scale, &x)?;
    let y = match arguments.bias {
        Some(bias) => by_channel(&widened(bias)?, &x)?.addcmul(&centred, &scale, 1)?,
        None => centred.mul(&scale)?,
    };
    let y = y.to_dtype(input.dtype())?;
    if !arguments.training {
        let nothing = nothing(&y, statistics)?;
        return Ok((y, nothing.clone(), nothing));
    }
    if let Some(running) = arguments.running {
        follow(running, (&mean, &unbiased(&variance, per_channel(&x))?), arguments.momentum)?;
    }
    Ok((y, saved.0.detach()?, saved.1.detach()?))
}

/// The sample variance of `n` elements from their population variance. NaN if `n` is 1.
fn unbiased(variance: &Tensor, n: usize) -> Result<Tensor> {
    variance.mul(&extent(n)?)?.div(&extent(n.saturating_sub(1))?)
}

/// Moves the running mean and variance towards those of the batch, in place and without gradients. Both are computed
/// before one is written, so an error changes neither.
fn follow(running: (&Tensor, &Tensor), batch: (&Tensor, &Tensor), momentum: f64) -> Result<()> {
    let _guard = no_grad();
    let moved = |running: &Tensor, batch: &Tensor| widened(running)?.mul(1.0 - momentum)?.add(batch.mul(momentum)?);
    let (mean, variance) = (moved(running.0, batch.0)?, moved(running.1, batch.1)?);
    running.0.copy_(&mean)?;
    running.1.copy_(&variance)
}

/// All dims except that of the channels.
fn but_channels(x: &Tensor) -> Vec<i64> {
    (0..x.dim() as i64).filter(|&dim| dim != 1).collect()
}

/// The number of elements per channel.
fn per_channel(x: &Tensor) -> usize {
    but_channels(x).iter().map(|&dim| x.sizes()[dim as usize]).product()
}

/// The statistics that a batch norm used.
enum Statistics<'a> {
    /// Mean and reciprocal deviation of the batch.
    Saved(&'a Tensor, &'a Tensor),
    /// Running mean and variance, and `eps`.
    Running(&'a Tensor, &'a Tensor, f64),
}

#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn native_batch_norm_backward(
    gradient: &Tensor,
    x: &Tensor,
    weight: Opt<'_>,
    running_mean: Opt<'_>,
    running_variance: Opt<'_>,
    saved_mean: Opt<'_>,
    saved_rstd: Opt<'_>,
    train: bool,
    eps: f64,
    mask: &[bool],
) -> Result<Three> {
    let statistics = match (train, saved_mean, saved_rstd, running_mean, running_variance) {
        (true, Some(mean), Some(rstd), _, _) => Statistics::Saved(mean, rstd),
        (false, _, _, Some(mean), Some(variance)) => Statistics::Running(mean, variance, eps),
        (_, _, _, _, _) => {
            let what = "save_mean and save_invstd are needed with train, running_mean and running_var without";
            return Err(Error::argument("native_batch_norm_backward", what));
        }
    };
    gradients(gradient, x, weight, &statistics, mask)
}

/// The gradients of batch norm with respect to input, weight and bias. They use the saved statistics in training, and
/// the running ones otherwise. A gradient that is not wanted is empty.
fn gradients(
    gradient: &Tensor,
    input: &Tensor,
    weight: Option<&Tensor>,
    statistics: &Statistics<'_>,
    mask: &[bool],
) -> Result<Three> {
    let op = "native_batch_norm_backward";
    let [by_input, by_weight, by_bias] = wanted(op, mask)?;
    if input.dim() < 2 {
        return Err(no_channels(op, input));
    }
    if gradient.sizes() != input.sizes() {
        let what = format!("the gradient has shape {:?} for an input of shape {:?}", gradient.sizes(), input.sizes());
        return Err(Error::shape(op, what, "both must have the same sizes"));
    }
    let (x, g) = (widened(input)?, widened(gradient)?);
    let (mean, rstd) = match statistics {
        Statistics::Saved(mean, rstd) => (widened(mean)?, widened(rstd)?),
        Statistics::Running(mean, variance, eps) => (widened(mean)?, widened(variance)?.add(*eps)?.rsqrt()?),
    };
    let rstd = by_channel(&rstd, &x)?;
    let y = x.sub(by_channel(&mean, &x)?)?.mul(&rstd)?;
    let dims = but_channels(&x);
    let (weight_gradient, bias_gradient) = (g.mul(&y)?.sum(&dims, false)?, g.sum(&dims, false)?);
    let parameter_dtype = weight.unwrap_or(input).dtype();
    let input_gradient = || {
        let g = match statistics {
            Statistics::Saved(..) => {
                let n = extent(per_channel(&x))?;
                let along = by_channel(&weight_gradient.div(&n)?, &x)?;
                g.sub(by_channel(&bias_gradient.div(&n)?, &x)?)?.sub(y.mul(along)?)?
            }
            Statistics::Running(..) => g.clone(),
        };
        affine(&g.mul(&rstd)?, weight, None)?.to_dtype(input.dtype())
    };
    Ok((
        if by_input { input_gradient()? } else { nothing(input, input.dtype())? },
        if by_weight { weight_gradient.to_dtype(parameter_dtype)? } else { nothing(input, parameter_dtype)? },
        if by_bias { bias_gradient.to_dtype(parameter_dtype)? } else { nothing(input, parameter_dtype)? },
    ))
}
