//! Random writes: `uniform_`, `normal_`, `exponential_`, `bernoulli_`, `random_`.
//!
//! Each draws like the factories of `random.rs`, in the target's memory order, and then calls `copy_`. So versions,
//! views, traces and errors are those of any other write.

use crate::device::Generator;
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ops::composite::Composite;
use crate::ops::random::{Draw, like, need_float, whole_numbers};
use crate::tensor::handle::Tensor;

macro_rules! write {
    ($name_and_arguments:literal) => {
        concat!($name_and_arguments, ", *, Generator? generator=None) -> Tensor(a!)")
    };
}

static UNIFORM: Composite = Composite::new(write!("uniform_(Tensor(a!) self, float from=0, float to=1"));
static NORMAL: Composite = Composite::new(write!("normal_(Tensor(a!) self, float mean=0, float std=1"));
static BERNOULLI: Composite = Composite::new(write!("bernoulli_.float(Tensor(a!) self, float p=0.5"));
static EXPONENTIAL: Composite = Composite::new(write!("exponential_(Tensor(a!) self, float lambd=1"));
static RANDOM: Composite = Composite::new(write!("random_.from(Tensor(a!) self, int from, int? to"));

impl Tensor {
    /// Fills the tensor with uniform random numbers in [`from`, `to`). 16-bit floats may be rounded to `to`.
    ///
    /// # Errors
    /// If the dtype is not floating, if `from` is greater than `to`, or if [`Tensor::copy_`] fails.
    #[track_caller]
    pub fn uniform_(&self, from: f64, to: f64) -> Result<()> {
        UNIFORM.call::<_, Tensor>((self, from, to, None::<&Generator>)).map(|_| ())
    }

    /// Fills the tensor with random numbers of the normal distribution.
    ///
    /// # Errors
    /// If the dtype is not floating, if `std` is negative, or if [`Tensor::copy_`] fails.
    #[track_caller]
    pub fn normal_(&self, mean: f64, std: f64) -> Result<()> {
        NORMAL.call::<_, Tensor>((self, mean, std, None::<&Generator>)).map(|_| ())
    }

    /// Fills the tensor with random numbers of the exponential distribution, whose mean is `1 / rate`.
    ///
    /// # Errors
    /// If the dtype is not floating, if `rate` is not positive, or if [`Tensor::copy_`] fails.
    #[track_caller]
    pub fn exponential_(&self, rate: f64) -> Result<()> {
        EXPONENTIAL.call::<_, Tensor>((self, rate, None::<&Generator>)).map(|_| ())
    }

    /// Fills the tensor with random ones (with probability `p`) and zeros. The dtype can be any.
    ///
    /// # Errors
    /// If `p` is not between 0 and 1, or if [`Tensor::copy_`] fails.
    #[track_caller]
    pub fn bernoulli_(&self, p: f64) -> Result<()> {
        BERNOULLI.call::<_, Tensor>((self, p, None::<&Generator>)).map(|_| ())
    }

    /// Fills the tensor with uniform random integers from `low` to below `high`. The dtype can be any.
    ///
    /// # Errors
    /// If the range is empty or does not fit the dtype, or if [`Tensor::copy_`] fails.
    #[track_caller]
    pub fn random_(&self, low: i64, high: i64) -> Result<()> {
        RANDOM.call::<_, Tensor>((self, low, Some(high), None::<&Generator>)).map(|_| ())
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&UNIFORM, |x: &Tensor, from: f64, to: f64, generator: Option<&Generator>| {
            uniform(x, from, to, generator).map(|()| x.clone())
        })?
        .composite(&NORMAL, |x: &Tensor, mean: f64, std: f64, generator: Option<&Generator>| {
            normal(x, mean, std, generator).map(|()| x.clone())
        })?
        .composite(&BERNOULLI, |x: &Tensor, p: f64, generator: Option<&Generator>| {
            bernoulli(x, p, generator).map(|()| x.clone())
        })?
        .def_kernel(
            write!("bernoulli_.Tensor(Tensor(a!) self, Tensor p"),
            |x: &Tensor, p: &Tensor, generator: Option<&Generator>| bernoulli_of(x, p, generator).map(|()| x.clone()),
        )?
        .composite(&EXPONENTIAL, |x: &Tensor, rate: f64, generator: Option<&Generator>| {
            x.copy_(&exponential(x, rate, generator)?).map(|()| x.clone())
        })?
        .def_kernel("exponential(Tensor self, float lambd=1, *, Generator? generator=None) -> Tensor", exponential)?
        .def_kernel(
            "uniform(Tensor self, float from=0, float to=1, *, Generator? generator=None) -> Tensor",
            |x: &Tensor, from: f64, to: f64, generator: Option<&Generator>| {
                let target = x.copy()?;
                uniform(&target, from, to, generator)?;
                Ok(target)
            },
        )?
        .composite(&RANDOM, |x: &Tensor, from: i64, to: Option<i64>, generator: Option<&Generator>| {
            let to = to.unwrap_or(end_of(x.dtype()));
            integers(x, from, to, generator).map(|()| x.clone())
        })?
        .def_kernel(
            write!("random_.to(Tensor(a!) self, int to"),
            |x: &Tensor, to: i64, generator: Option<&Generator>| integers(x, 0, to, generator).map(|()| x.clone()),
        )?
        .def_kernel(write!("random_(Tensor(a!) self"), |x: &Tensor, generator: Option<&Generator>| {
            integers(x, 0, end_of(x.dtype()), generator).map(|()| x.clone())
        })?;
    Ok(())
}

fn draw<'a>(target: &Tensor, generator: Option<&'a Generator>) -> Draw<'a> {
    Draw { generator, device: target.device() }
}

/// The dtype in which numbers for a target are computed.
fn computed(op: &str, target: &Tensor) -> Result<DType> {
    need_float(op, target.dtype())?;
    Ok(if target.dtype() == DType::F64 { DType::F64 } else { DType::F32 })
}

fn uniform(target: &Tensor, from: f64, to: f64, generator: Option<&Generator>) -> Result<()> {
    let dtype = computed("uniform_", target)?;
    if !(from <= to && (to - from).is_finite()) {
        let what = format!("uniform_ expects to return a [from, to) range, but found from={from} > to={to}");
        return Err(Error::argument("uniform_", what));
    }
    let unit = like(target, |sizes| draw(target, generator).uniform(sizes, dtype))?;
    target.copy_(&unit.mul(to - from)?.add(from)?)
}

/// Waiting times: `-log(1 - u) / rate` of uniform `u`.
fn exponential(like_this: &Tensor, rate: f64, generator: Option<&Generator>) -> Result<Tensor> {
    let dtype = computed("exponential_", like_this)?;
    if rate.is_nan() || rate <= 0.0 {
        let what = format!("exponential_ expects lambda > 0.0, but found lambda={rate}");
        return Err(Error::argument("exponential_", what));
    }
    let unit = like(like_this, |sizes| draw(like_this, generator).uniform(sizes, dtype))?;
    unit.neg()?.log1p()?.div(-rate)?.to_dtype(like_this.dtype())
}

fn normal(target: &Tensor, mean: f64, std: f64, generator: Option<&Generator>) -> Result<()> {
    let dtype = computed("normal_", target)?;
    if std.is_nan() || std < 0.0 {
        return Err(Error::argument("normal_", format!("normal expects std >= 0.0, but found std {std}")));
    }
    let standard = like(target, |sizes| draw(target, generator).normal(sizes, dtype))?;
    target.copy_(&standard.mul(std)?.add(mean)?)
}

fn bernoulli(target: &Tensor, p: f64, generator: Option<&Generator>) -> Result<()> {
    target.copy_(&like(target, |sizes| draw(target, generator).bernoulli(sizes, p))?)
}

/// Each element is one with its own probability, which is broadcast to the target.
fn bernoulli_of(target: &Tensor, p: &Tensor, generator: Option<&Generator>) -> Result<()> {
    let sizes: Vec<i64> = target.sizes().iter().map(|&size| size as i64).collect();
    target.copy_(&draw(target, generator).bernoulli_of(&p.expand(sizes)?)?)
}

fn integers(target: &Tensor, low: i64, high: i64, generator: Option<&Generator>) -> Result<()> {
    let dtype = target.dtype();
    target.copy_(&like(target, |sizes| draw(target, generator).integers(low, high, sizes, dtype))?)
}

/// One past the greatest integer that [`integers`] can draw for a dtype, which represents all integers up to it.
fn end_of(dtype: DType) -> i64 {
    whole_numbers(dtype).1.saturating_add(1)
}
