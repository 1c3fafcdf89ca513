//! Activations with arguments, activations made of other operators, and softmax.
//!
//! Activations that are one row without arguments, such as `relu`, get their methods from the op table. Each activation
//! is computed in f32 or wider and rounded once.

use crate::device::Generator;
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::{Approximation, Elu, Gelu, Hardtanh, LeakyRelu, Softmax, Softplus, Softshrink, Threshold};
use crate::ir::{Attrs, DType, Op, Scalar};
use crate::ops::arguments::{converted, need_float, widened};
use crate::ops::composite::Composite;
use crate::ops::in_place::{in_place_methods, row_methods};
use crate::ops::joins::cat;
use crate::tensor::handle::Tensor;

static CELU: Composite = Composite::new("celu(Tensor self, Scalar alpha=1.0) -> Tensor").with_writes();
static PRELU: Composite = Composite::new("prelu(Tensor self, Tensor weight) -> Tensor");
static SOFTMAX: Composite = Composite::new("softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor");
static LOG_SOFTMAX: Composite =
    Composite::new("log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor");
static GLU: Composite = Composite::new("glu(Tensor self, int dim=-1) -> Tensor");

/// Element-wise activations with arguments.
impl Tensor {
    row_methods! {
        /// Leaky ReLU: the element where positive, else `slope * x`. Sizes and dtype are kept.
        ///
        /// # Errors
        /// If the dtype is not floating.
        leaky_relu leaky_relu_(slope: impl Into<Scalar>)
            |x, call| call(Op::LeakyRelu, &[x], &Attrs::from(LeakyRelu { negative_slope: slope.into() }));

        /// Exponential linear unit (Clevert, Unterthiner, Hochreiter 2015): the element where positive, else `alpha *
        /// (exp(x) - 1)`. Sizes and dtype are kept.
        ///
        /// # Errors
        /// If the dtype is not floating.
        elu elu_(alpha: impl Into<Scalar>)
            |x, call| call(Op::Elu, &[x], &elu_of(alpha.into(), 1.into(), 1.into()));
    }

    /// Continuously differentiable ELU (Barron 2017): the element where positive, else `alpha * (exp(x / alpha) - 1)`.
    /// Sizes and dtype are kept.
    ///
    /// # Errors
    /// If the dtype is not floating or `alpha` is 0.
    #[track_caller]
    pub fn celu(&self, alpha: impl Into<Scalar>) -> Result<Tensor> {
        CELU.call((self, alpha.into()))
    }

    in_place_methods! {
        celu celu_ CELU (alpha: impl Into<Scalar>) (self, alpha.into());
    }

    /// Parametric ReLU (He, Zhang, Ren, Sun 2015): the element where positive, else `weight * x`. `weight` has one
    /// element, or one per channel (dim 1). Sizes and dtype are kept.
    ///
    /// # Errors
    /// If the two dtypes differ or are not floating, or if `weight` has another shape.
    #[track_caller]
    pub fn prelu(&self, weight: &Tensor) -> Result<Tensor> {
        PRELU.call((self, weight))
    }

    row_methods! {
        /// Gaussian error linear unit (Hendrycks, Gimpel 2016): `x Φ(x)`, where `Φ` is the normal distribution
        /// function. It is computed by `erf`. Sizes and dtype are kept.
        ///
        /// # Errors
        /// If the dtype is not floating.
        gelu gelu_() |x, call| call(Op::Gelu, &[x], &Attrs::from(Gelu { approximate: Approximation::Exact }));

        /// The tanh approximation of [`Tensor::gelu`]: `x / 2 * (1 + tanh(√(2/π) * (x + 0.044715 x³)))`. Sizes and
        /// dtype are kept.
        ///
        /// # Errors
        /// If the dtype is not floating.
        gelu_tanh gelu_tanh_() |x, call| call(Op::Gelu, &[x], &Attrs::from(Gelu { approximate: Approximation::Tanh }));

        /// Clamps elements to `min..=max`. The bounds are converted to the dtype. Sizes and dtype are kept.
        ///
        /// # Errors
        /// If the dtype is bool, or if it is u8 and a bound is negative.
        hardtanh hardtanh_(min: impl Into<Scalar>, max: impl Into<Scalar>)
            |x, call| {
                let attrs = Hardtanh { min_val: Some(min.into()), max_val: Some(max.into()) };
                call(Op::Hardtanh, &[x], &Attrs::from(attrs))
            };

        /// Softplus: `log(1 + exp(beta * x)) / beta`, and the element itself where `beta * x > threshold`. Sizes and
        /// dtype are kept.
        ///
        /// # Errors
        /// If the dtype is not floating.
        softplus softplus_(beta: impl Into<Scalar>, threshold: impl Into<Scalar>)
            |x, call| {
                let attrs = Softplus { beta: beta.into(), threshold: threshold.into() };
                call(Op::Softplus, &[x], &Attrs::from(attrs))
            };

        /// Soft shrinkage: `x - lambda` where `x > lambda`, `x + lambda` where `x < -lambda`, else 0. Sizes and dtype
        /// are kept.
        ///
        /// # Errors
        /// If the dtype is not floating, or if `lambda` is negative.
        softshrink softshrink_(lambda: impl Into<Scalar>)
            |x, call| call(Op::Softshrink, &[x], &Attrs::from(Softshrink { lambd: lambda.into() }));

        /// Hard shrinkage: the element where `|x| > lambda`, else 0. Sizes and dtype are kept.
        ///
        /// # Errors
        /// If the dtype is not floating.
        hardshrink hardshrink_(lambda: impl Into<Scalar>)
            |x, call| call(Op::Hardshrink, &[x], &Attrs::from(Softshrink { lambd: lambda.into() }));

        /// The element where it is greater than `threshold`, else `value`. Sizes and dtype are kept.
        ///
        /// # Errors
        /// If the dtype is bool.
        threshold threshold_(threshold: impl Into<Scalar>, value: impl Into<Scalar>)
            |x, call| {
                let attrs = Threshold { threshold: threshold.into(), value: value.into() };
                call(Op::Threshold, &[x], &Attrs::from(attrs))
            };
    }

    /// Gated linear unit (Dauphin, Fan, Auli, Grangier 2016): `a * sigmoid(b)`, where `a` and `b` are the halves of
    /// `dim`. The size of `dim` is halved. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating, if `dim` is out of range, or if its size is odd.
    #[track_caller]
    pub fn glu(&self, dim: i64) -> Result<Tensor> {
        GLU.call((self, dim))
    }
}

/// Softmax.
impl Tensor {
    /// Softmax along `dim`: `exp(x) / sum(exp(x))`. Sizes and dtype are kept. 16-bit floats are computed in f32.
    ///
    /// # Errors
    /// If the dtype is not floating, or if the dim is out of range.
    #[track_caller]
    pub fn softmax(&self, dim: i64) -> Result<Tensor> {
        SOFTMAX.call((self, dim, None::<DType>))
    }

    /// The logarithm of [`Tensor::softmax`], computed without overflow. Sizes and dtype are kept. 16-bit floats are
    /// computed in f32.
    ///
    /// # Errors
    /// If the dtype is not floating, or if the dim is out of range.
    #[track_caller]
    pub fn log_softmax(&self, dim: i64) -> Result<Tensor> {
        LOG_SOFTMAX.call((self, dim, None::<DType>))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&CELU, celu)?
        .composite(&PRELU, prelu)?
        .composite(&GLU, glu)?
        .composite(&SOFTMAX, softmax)?
        .composite(&LOG_SOFTMAX, log_softmax)?
        .def_kernel(
            "rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool training=False, Generator? \
             generator=None) -> Tensor",
            rrelu,
        )?
        .def_kernel(
            "rrelu_with_noise_functional(Tensor self, Tensor noise, Scalar lower=0.125, Scalar \
             upper=0.3333333333333333, bool training=False, Generator? generator=None) -> (Tensor, Tensor noise_out)",
            |x: &Tensor,
             noise: &Tensor,
             lower: Scalar,
             upper: Scalar,
             training: bool,
             generator: Option<&Generator>| match training {
                false => Ok((rrelu(x, lower, upper, false, generator)?, noise.clone())),
                true => Err(Error::NotImplemented {
                    op: "rrelu_with_noise_functional".into(),
                    what: "slopes that are drawn are not returned; use rrelu, or a model in eval()".into(),
                }),
            },
        )?
        .def_kernel("_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", safe_softmax)?
        .def_kernel("glu_backward(Tensor grad_output, Tensor self, int dim) -> Tensor", glu_backward)?;
    Ok(())
}

/// Leaky ReLU with a random slope for each element in training (Xu et al. 2015), and the mean slope otherwise.
fn rrelu(x: &Tensor, lower: Scalar, upper: Scalar, training: bool, generator: Option<&Generator>) -> Result<Tensor> {
    let (lower, upper) = (lower.as_f64(), upper.as_f64());
    if !training {
        return x.leaky_relu((lower + upper) / 2.0);
    }
    if generator.is_some() {
        return Err(Error::argument("rrelu", "a generator is not supported; use manual_seed"));
    }
    let slopes = x.detach()?.copy()?;
    slopes.uniform_(lower, upper)?;
    x.le(0.0)?.where_(&x.mul(&slopes)?, x)
}

/// Softmax that gives zeros where all elements are minus infinity, as in attention whose mask admits nothing.
fn safe_softmax(x: &Tensor, dim: i64, dtype: Option<DType>) -> Result<Tensor> {
    let is_masked = x.eq(f64::NEG_INFINITY)?.all(dim, true)?;
    softmax(x, dim, dtype)?.masked_fill(&is_masked, 0.0)
}

fn elu_of(alpha: Scalar, scale: Scalar, input_scale: Scalar) -> Attrs {
    Elu { alpha, scale, input_scale }.into()
}

fn celu(x: &Tensor, alpha: Scalar) -> Result<Tensor> {
    let alpha = alpha.as_f64();
    if alpha == 0.0 {
        return Err(Error::argument("celu", "ZeroDivisionError: alpha cannot be 0 for celu; use relu"));
    }
    call(Op::Elu, &[x], &elu_of(alpha.into(), 1.0.into(), (1.0 / alpha).into()))
}

/// `weight` is one slope, or one per channel (dim 1).
fn prelu(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let op = "prelu";
    if x.dtype() != weight.dtype() {
        let what = format!("Type promoting not supported. Got {} and {}", x.dtype(), weight.dtype());
        return Err(Error::argument(op, format!("{what}; convert one side")));
    }
    need_float(op, &[x])?;
    let n_channels = x.sizes().get(1).copied().unwrap_or(1);
    let fits = weight.dim() <= 1 && (weight.numel() == 1 || (x.dim() > 0 && weight.numel() == n_channels));
    if !fits {
        let what = format!("weight has shape {:?} and the input {:?}", weight.sizes(), x.sizes());
        return Err(Error::shape(op, what, "there must be one weight, or one per channel, which is dim 1"));
    }
    let weight = if weight.numel() == 1 || x.dim() < 2 {
        weight.clone()
    } else {
        let mut sizes = vec![1; x.dim()];
        sizes[1] = n_channels;
        weight.reshape(&sizes[..])?
    };
    let weight = if x.dim() == 0 { weight.reshape(())? } else { weight };
    x.gt(0.0)?.where_(x, weight.mul(x)?)
}

/// Splits a dim into halves.
fn halves(op: &str, x: &Tensor, dim: i64) -> Result<(Tensor, Tensor)> {
    need_float(op, &[x])?;
    if x.dim() == 0 {
        return Err(Error::shape(op, "the input is 0-dimensional", "it must have a dim to halve"));
    }
    let rank = x.dim() as i64;
    let index = if dim < 0 { dim + rank } else { dim };
    let Some(&size) = usize::try_from(index).ok().and_then(|index| x.sizes().get(index)) else {
        return Err(Error::out_of_range(op, "dim", [-rank, rank - 1], dim));
    };
    if !size.is_multiple_of(2) {
        let what = format!("Halving dimension must be even, but dimension {index} is size {size}");
        return Err(Error::shape(op, what, "pad it or drop one"));
    }
    let half = size / 2;
    Ok((x.narrow(index, 0, half)?, x.narrow(index, half as i64, half)?))
}

fn glu(x: &Tensor, dim: i64) -> Result<Tensor> {
    let (a, b) = halves("glu", x, dim)?;
    widened(&a)?.mul(widened(&b)?.sigmoid()?)?.to_dtype(x.dtype())
}

fn glu_backward(grad: &Tensor, x: &Tensor, dim: i64) -> Result<Tensor> {
    let (a, b) = halves("glu_backward", x, dim)?;
    let (gate, grad) = (widened(&b)?.sigmoid()?, widened(grad)?);
    let first = gate.mul(&grad)?;
    let second = first.mul(one_minus(&gate)?)?.mul(widened(&a)?)?;
    cat(&[&first, &second], dim)?.to_dtype(x.dtype())
}

fn one_minus(x: &Tensor) -> Result<Tensor> {
    x.neg()?.add(1.0)
}

fn softmax(x: &Tensor, dim: i64, dtype: Option<DType>) -> Result<Tensor> {
    call(Op::Softmax, &[&converted(x, dtype)?], &Attrs::from(Softmax { dim, half_to_float: false }))
}

fn log_softmax(x: &Tensor, dim: i64, dtype: Option<DType>) -> Result<Tensor> {
    call(Op::LogSoftmax, &[&converted(x, dtype)?], &Attrs::from(Softmax { dim, half_to_float: false }))
}
