//! Random factories. Random numbers written into a tensor are in `random_fills.rs`, dropout is in `dropout.rs`.
//!
//! Every function draws a key from a generator and calls one op of the table on it. [`crate::ir::random`] defines the
//! numbers, which are the same on every device. A compiled function draws anew at each call, in the order of eager
//! mode. The functions of [`Tensor`] use the default generator of the device, and those of [`Generator`] use that
//! generator. Elements are numbered in memory order: row-major, or that of the model for the `_like` forms.

use crate::device::{Device, DeviceKind, Generator, GeneratorState};
use crate::dispatch::key::default_dtype::default_dtype;
use crate::dispatch::library::Library;
use crate::dispatch::rows::{call, call_on};
use crate::dispatch::value::TensorLayout;
use crate::error::{Error, Result};
use crate::ir::attrs::{Argsort, Drawn, Ints, RandomBernoulli, RandomRange, ints};
use crate::ir::shape::{checked_numel, elementwise_strides};
use crate::ir::{Attrs, DType, MemoryFormat, Op, TensorType, random};
use crate::ops::arguments::{check_storage, count, counts, int, int_list};
use crate::ops::complex_numbers::of_pairs;
use crate::ops::composite::Composite;
use crate::ops::draws::next_key;
use crate::ops::factories::{laid_out, strides_like};
use crate::tensor::handle::Tensor;
use crate::tensor::observer::observer;
use std::f64::consts::FRAC_1_SQRT_2;

/// The schema of a factory: its text up to the options, the default dtype, and what follows the options.
macro_rules! schema {
    ($head:expr, $dtype:literal) => {
        schema!($head, $dtype, "")
    };
    ($head:expr, $dtype:literal, $tail:literal) => {
        concat!(
            $head,
            "ScalarType? dtype=",
            $dtype,
            ", Layout? layout=None, Device? device=None, bool? pin_memory=None",
            $tail,
            ") -> Tensor"
        )
    };
}

macro_rules! like {
    ($head:expr) => {
        schema!($head, "None", ", MemoryFormat? memory_format=None")
    };
}

// Of uniform and of normal numbers, without and with a generator.
static RAND: [Composite; 2] = [
    Composite::new(schema!("rand(SymInt[] size, *, ", "None")),
    Composite::new(schema!("randn(SymInt[] size, *, ", "None")),
];
static RAND_BY: [Composite; 2] = [
    Composite::new(schema!("rand.generator(SymInt[] size, *, Generator? generator, ", "None")),
    Composite::new(schema!("randn.generator(SymInt[] size, *, Generator? generator, ", "None")),
];
static RAND_LIKE: [Composite; 2] =
    [Composite::new(like!("rand_like(Tensor self, *, ")), Composite::new(like!("randn_like(Tensor self, *, "))];
const RAND_LIKE_BY: [&str; 2] = [
    like!("rand_like.generator(Tensor self, *, Generator? generator, "),
    like!("randn_like.generator(Tensor self, *, Generator? generator, "),
];
static RANDINT: Composite = Composite::new(schema!("randint.low(SymInt low, SymInt high, SymInt[] size, *, ", "long"));
static RANDINT_BY: Composite = Composite::new(schema!(
    "randint.low_generator(SymInt low, SymInt high, SymInt[] size, *, Generator? generator, ",
    "long"
));
static RANDPERM: Composite = Composite::new(schema!("randperm(SymInt n, *, ", "long"));
static RANDPERM_BY: Composite =
    Composite::new(schema!("randperm.generator(SymInt n, *, Generator? generator, ", "long"));
static BERNOULLI: Composite = Composite::new("bernoulli(Tensor self, *, Generator? generator=None) -> Tensor");

// The options that methods leave out.
const NO_DTYPE: Option<DType> = None;
const NO_LAYOUT: Option<TensorLayout> = None;
const NO_DEVICE: Option<Device> = None;
const UNPINNED: Option<bool> = None;
const NO_FORMAT: Option<MemoryFormat> = None;

/// The generator and the device of a draw.
#[derive(Clone, Copy)]
pub(crate) struct Draw<'a> {
    /// `None` is the default generator of the device.
    pub(crate) generator: Option<&'a Generator>,
    pub(crate) device: Device,
}

impl Draw<'_> {
    /// The key for `n` numbers of `words` words each. Nothing is drawn for the meta device.
    fn key(self, op: &str, n: usize, words: usize, dtype: DType) -> Result<Tensor> {
        if let Some(generator) = self.generator
            && generator.device().kind != self.device.kind
        {
            let (expected, found) = (self.device.kind, generator.device().kind);
            let what = format!("expected a '{expected}' device type for generator but found '{found}'");
            return Err(Error::Device { op: op.into(), what, hint: "make a generator for that device".into() });
        }
        match self.device.kind {
            DeviceKind::Cpu | DeviceKind::Cuda | DeviceKind::PrivateUse1 => {
                let n_counters = random::n_counters(n, words, dtype);
                match self.generator {
                    Some(generator) => draw_key(generator, n_counters),
                    None => draw_key(&Generator::default_of(self.device)?, n_counters),
                }
            }
            DeviceKind::Meta => Tensor::meta(&TensorType::contiguous(DType::I64, &[2])),
        }
    }

    /// Calls a random op of the table for the public op `name`. If slices inside `vmap` draw different numbers, the
    /// draw has the mapped dims in addition.
    fn call(self, name: &str, op: Op, sizes: &[usize], words: DType, attrs: impl Fn(Ints) -> Attrs) -> Result<Tensor> {
        let mut draw = |sizes: &[usize]| self.call_unmapped(name, op, sizes, words, &attrs);
        match observer() {
            Some(observer) => observer.draw_mapped(name, sizes, &mut draw),
            None => draw(sizes),
        }
    }

    /// Like [`Draw::call`], outside `vmap`.
    fn call_unmapped(
        self,
        name: &str,
        op: Op,
        sizes: &[usize],
        words: DType,
        attrs: impl Fn(Ints) -> Attrs,
    ) -> Result<Tensor> {
        // Also checked before the sizes become i64. A normal number takes two words.
        let n = checked_numel(name, sizes, 16)?;
        let per_number = if op == Op::RandomNormal { 2 } else { 1 };
        let key = self.key(name, n, per_number, words)?;
        let attrs = attrs(ints(sizes));
        let numbers = match self.device.kind {
            DeviceKind::Cuda => call_on(self.device, op, &[&key], &attrs)?,
            DeviceKind::Cpu | DeviceKind::Meta | DeviceKind::PrivateUse1 => call(op, &[&key], &attrs)?,
        };
        match self.device.kind {
            DeviceKind::Cpu | DeviceKind::Meta | DeviceKind::Cuda => Ok(numbers),
            // The same numbers, computed on the host.
            DeviceKind::PrivateUse1 => numbers.to_device(self.device),
        }
    }

    pub(crate) fn uniform(self, sizes: &[usize], dtype: DType) -> Result<Tensor> {
        if dtype.is_complex() {
            return of_pairs(&self.uniform(&[sizes, &[2]].concat(), dtype.part())?);
        }
        need_float("rand", dtype)?;
        self.call("rand", Op::RandomUniform, sizes, dtype, drawn(dtype))
    }

    pub(crate) fn normal(self, sizes: &[usize], dtype: DType) -> Result<Tensor> {
        if dtype.is_complex() {
            // The variance is that of both parts together.
            return of_pairs(&self.normal(&[sizes, &[2]].concat(), dtype.part())?.mul(FRAC_1_SQRT_2)?);
        }
        need_float("randn", dtype)?;
        self.call("randn", Op::RandomNormal, sizes, dtype, drawn(dtype))
    }

    pub(crate) fn integers(self, low: i64, high: i64, sizes: &[usize], dtype: DType) -> Result<Tensor> {
        if low >= high {
            let what = format!("random_ expects 'from' to be less than 'to', but got from={low} >= to={high}");
            return Err(Error::argument("randint", what));
        }
        let (least, greatest) = whole_numbers(dtype);
        if low < least || high - 1 > greatest {
            let what = format!("the range from {low} up to {high} does not fit {dtype}");
            return Err(Error::argument("randint", format!("{what}, which holds {least} to {greatest}")));
        }
        let range = |size| RandomRange { size, low, high }.into();
        self.call("randint", Op::RandomRange, sizes, DType::I64, range)?.to_dtype(dtype)
    }

    pub(crate) fn permutation(self, n: usize, dtype: DType) -> Result<Tensor> {
        if dtype == DType::Bool {
            return Err(Error::dtype("randperm", dtype, "a number", "a permutation holds numbers; use i64"));
        }
        let (_, greatest) = whole_numbers(dtype);
        if n as i64 - 1 > greatest {
            let what = format!("a permutation of {n} numbers does not fit {dtype}, which counts to {greatest}");
            return Err(Error::argument("randperm", what));
        }
        // 64-bit words are practically distinct: among a million, two are equal once in 30 million permutations.
        let words = self.call("randperm", Op::RandomBits, &[n], DType::I64, drawn(DType::I64))?;
        let order = call(Op::Argsort, &[&words], &Attrs::from(Argsort { stable: true, dim: 0, descending: false }))?;
        order.to_dtype(dtype)
    }

    pub(crate) fn bernoulli(self, sizes: &[usize], p: f64) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            let what = format!("bernoulli_ expects p to be in [0, 1], but got p={p}");
            return Err(Error::argument("bernoulli", what));
        }
        self.call("bernoulli", Op::RandomBernoulli, sizes, DType::I32, |size| RandomBernoulli { size, p }.into())
    }

    /// Zeros and ones in the dtype of `probabilities`. Each element is one with its own probability.
    pub(crate) fn bernoulli_of(self, probabilities: &Tensor) -> Result<Tensor> {
        let dtype = probabilities.dtype();
        need_float("bernoulli", dtype)?;
        let fine = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let uniform = like(probabilities, |sizes| self.uniform(sizes, fine))?;
        uniform.lt(probabilities)?.to_dtype(dtype)
    }

    /// The mask of a dropout of `x`: true where an element is kept.
    pub(crate) fn mask(self, x: &Tensor, p: f64) -> Result<Tensor> {
        like(x, |sizes| self.bernoulli(sizes, 1.0 - p))
    }
}

/// The attributes of an op that draws numbers of a dtype, given the sizes.
fn drawn(dtype: DType) -> impl Fn(Ints) -> Attrs {
    move |size| Drawn { size, dtype: Some(dtype) }.into()
}

/// A tensor with the sizes of `model`, whose memory order is that of an element-wise result.
pub(crate) fn like(model: &Tensor, make: impl FnOnce(&[usize]) -> Result<Tensor>) -> Result<Tensor> {
    let sizes = model.sizes();
    laid_out(sizes, &elementwise_strides(sizes, &[(sizes, model.strides())]), make)
}

pub(crate) fn need_float(op: &str, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        return Ok(());
    }
    Err(Error::dtype(op, dtype, "a floating dtype", "use randint for whole numbers"))
}

/// The least and greatest integers between which a dtype represents all integers.
pub(crate) fn whole_numbers(dtype: DType) -> (i64, i64) {
    let float = |digits: u32| (-(1 << digits), 1 << digits);
    match dtype {
        DType::Bool => (0, 1),
        DType::U8 => (0, i64::from(u8::MAX)),
        DType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        DType::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DType::I64 => (i64::MIN, i64::MAX),
        DType::F16 => float(11),
        DType::BF16 => float(8),
        DType::F32 | DType::Complex64 => float(24),
        DType::F64 | DType::Complex128 => float(53),
    }
}

impl Tensor {
    /// Uniform random numbers in [0, 1). The dtype must be floating. The result is row-major and on the CPU.
    ///
    /// ```
    /// # fn main() -> opfuse::Result<()> {
    /// use opfuse::{DType, Tensor};
    /// opfuse::manual_seed(7);
    /// let first = Tensor::rand(&[2, 3], DType::F32)?;
    /// opfuse::manual_seed(7);
    /// assert_eq!(first.to_vec::<f32>()?, Tensor::rand(&[2, 3], DType::F32)?.to_vec::<f32>()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the dtype is not floating, if there are too many elements, or if there is not enough memory.
    #[track_caller]
    pub fn rand(sizes: &[usize], dtype: DType) -> Result<Tensor> {
        RAND[0].call((&int_list(sizes)[..], Some(dtype), NO_LAYOUT, NO_DEVICE, UNPINNED))
    }

    /// Random numbers of the standard normal distribution. The dtype must be floating. The result is row-major and on
    /// the CPU.
    ///
    /// # Errors
    /// Same as [`Tensor::rand`].
    #[track_caller]
    pub fn randn(sizes: &[usize], dtype: DType) -> Result<Tensor> {
        RAND[1].call((&int_list(sizes)[..], Some(dtype), NO_LAYOUT, NO_DEVICE, UNPINNED))
    }

    /// Uniform random integers from `low` to below `high`, as i64. The result is row-major and on the CPU.
    ///
    /// # Errors
    /// If the range is empty, if there are too many elements, or if there is not enough memory.
    #[track_caller]
    pub fn randint(low: i64, high: i64, sizes: &[usize]) -> Result<Tensor> {
        RANDINT.call((low, high, &int_list(sizes)[..], Some(DType::I64), NO_LAYOUT, NO_DEVICE, UNPINNED))
    }

    /// A random permutation of the integers from 0 to below `n`: 1-dim, i64, on the CPU.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn randperm(n: usize) -> Result<Tensor> {
        RANDPERM.call((int(n), Some(DType::I64), NO_LAYOUT, NO_DEVICE, UNPINNED))
    }

    /// Uniform random numbers in [0, 1), with the sizes, dtype, device and memory order of this tensor.
    ///
    /// # Errors
    /// If the dtype is not floating, or if there is not enough memory.
    #[track_caller]
    pub fn rand_like(&self) -> Result<Tensor> {
        RAND_LIKE[0].call((self, NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED, NO_FORMAT))
    }

    /// Random numbers of the standard normal distribution. See [`Tensor::rand_like`].
    ///
    /// # Errors
    /// Same as [`Tensor::rand_like`].
    #[track_caller]
    pub fn randn_like(&self) -> Result<Tensor> {
        RAND_LIKE[1].call((self, NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED, NO_FORMAT))
    }

    /// Random zeros and ones. The elements of this tensor are the probabilities of a one. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If the dtype is not floating, or if there is not enough memory.
    #[track_caller]
    pub fn bernoulli(&self) -> Result<Tensor> {
        BERNOULLI.call((self, None::<&Generator>))
    }

    /// A draw by the default generator of this tensor's device.
    pub(crate) fn draw(&self) -> Draw<'static> {
        Draw { generator: None, device: self.device() }
    }
}

impl Generator {
    /// Like [`Tensor::rand`], with this generator.
    ///
    /// # Errors
    /// Same as [`Tensor::rand`].
    #[track_caller]
    pub fn rand(&self, sizes: &[usize], dtype: DType) -> Result<Tensor> {
        RAND_BY[0].call((&int_list(sizes)[..], Some(self), Some(dtype), NO_LAYOUT, NO_DEVICE, UNPINNED))
    }

    /// Like [`Tensor::randn`], with this generator.
    ///
    /// # Errors
    /// Same as [`Tensor::randn`].
    #[track_caller]
    pub fn randn(&self, sizes: &[usize], dtype: DType) -> Result<Tensor> {
        RAND_BY[1].call((&int_list(sizes)[..], Some(self), Some(dtype), NO_LAYOUT, NO_DEVICE, UNPINNED))
    }

    /// Like [`Tensor::randint`], with this generator.
    ///
    /// # Errors
    /// Same as [`Tensor::randint`].
    #[track_caller]
    pub fn randint(&self, low: i64, high: i64, sizes: &[usize]) -> Result<Tensor> {
        let dtype = Some(DType::I64);
        RANDINT_BY.call((low, high, &int_list(sizes)[..], Some(self), dtype, NO_LAYOUT, NO_DEVICE, UNPINNED))
    }

    /// Like [`Tensor::randperm`], with this generator.
    ///
    /// # Errors
    /// Same as [`Tensor::randperm`].
    #[track_caller]
    pub fn randperm(&self, n: usize) -> Result<Tensor> {
        RANDPERM_BY.call((int(n), Some(self), Some(DType::I64), NO_LAYOUT, NO_DEVICE, UNPINNED))
    }

    /// Like [`Tensor::bernoulli`], with this generator.
    ///
    /// # Errors
    /// Same as [`Tensor::bernoulli`]. Also if the probabilities are on another kind of device.
    #[track_caller]
    pub fn bernoulli(&self, probabilities: &Tensor) -> Result<Tensor> {
        BERNOULLI.call((probabilities, Some(self)))
    }
}

/// The key of a random op that takes `n_counters` counters: an i64 tensor of seed and first counter.
fn draw_key(generator: &Generator, n_counters: u64) -> Result<Tensor> {
    next_key(|| match observer() {
        Some(observer) => observer.draw(generator, n_counters),
        None => key_of(generator.draw(n_counters)),
    })
}

/// A generator's state as the key of random ops.
pub(crate) fn key_of(start: GeneratorState) -> Result<Tensor> {
    Tensor::from_slice(&[start.seed as i64, start.counter as i64], &[2])
}

/// The state that a draw began at, by its key.
pub(crate) fn start_of(key: &Tensor) -> Option<GeneratorState> {
    match key.to_vec::<i64>().ok()?[..] {
        [seed, counter] => Some(GeneratorState { seed: seed as u64, counter: counter as u64 }),
        _ => None,
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    factories(library)?;
    integers(library)?;
    library
        .composite(&BERNOULLI, bernoulli)?
        .def_kernel("bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor", bernoulli_p)?;
    Ok(())
}

/// The parameters for dtype, layout and device.
/// Uniform and normal numbers, with and without a generator.
fn factories(library: &mut Library) -> Result<()> {
    type Numbers = fn(Draw<'_>, &[usize], DType) -> Result<Tensor>;
    let uniform: Numbers = |draw, sizes, dtype| draw.uniform(sizes, dtype);
    let normal: Numbers = |draw, sizes, dtype| draw.normal(sizes, dtype);
    for (at, (name, numbers)) in [("rand", uniform), ("randn", normal)].into_iter().enumerate() {
        let sized = move |sizes: &[i64],
                          generator: Option<&Generator>,
                          dtype: Option<DType>,
                          layout: Option<TensorLayout>,
                          device: Option<Device>,
                          pin_memory: Option<bool>| {
            let draw = draw(name, generator, layout, device, pin_memory)?;
            numbers(draw, &counts(name, sizes)?, dtype.unwrap_or(default_dtype()))
        };
        let alike = move |model: &Tensor,
                          generator: Option<&Generator>,
                          dtype: Option<DType>,
                          layout: Option<TensorLayout>,
                          device: Option<Device>,
                          pin_memory: Option<bool>,
                          format: Option<MemoryFormat>| {
            let draw = draw(name, generator, layout, device.or(Some(model.device())), pin_memory)?;
            let make = |sizes: &[usize]| numbers(draw, sizes, dtype.unwrap_or(model.dtype()));
            laid_out(model.sizes(), &strides_like(model, format)?, make)
        };
        library
            .composite(
                &RAND[at],
                move |sizes: &[i64],
                      dtype: Option<DType>,
                      layout: Option<TensorLayout>,
                      device: Option<Device>,
                      pin_memory: Option<bool>| sized(sizes, None, dtype, layout, device, pin_memory),
            )?
            .composite(
                &RAND_BY[at],
                move |sizes: &[i64],
                      generator: Option<&Generator>,
                      dtype: Option<DType>,
                      layout: Option<TensorLayout>,
                      device: Option<Device>,
                      pin_memory: Option<bool>| {
                    sized(sizes, generator, dtype, layout, device, pin_memory)
                },
            )?
            .composite(
                &RAND_LIKE[at],
                move |model: &Tensor,
                      dtype: Option<DType>,
                      layout: Option<TensorLayout>,
                      device: Option<Device>,
                      pin_memory: Option<bool>,
                      format: Option<MemoryFormat>| {
                    alike(model, None, dtype, layout, device, pin_memory, format)
                },
            )?
            .def_kernel(RAND_LIKE_BY[at], alike)?;
    }
    Ok(())
}

/// Integers and permutations.
fn integers(library: &mut Library) -> Result<()> {
    library
        .def_kernel(
            schema!("randint(SymInt high, SymInt[] size, *, ", "long"),
            |high: i64,
             sizes: &[i64],
             dtype: Option<DType>,
             layout: Option<TensorLayout>,
             device: Option<Device>,
             pin_memory: Option<bool>| randint(0, high, sizes, None, dtype, layout, device, pin_memory),
        )?
        .def_kernel(
            schema!("randint.generator(SymInt high, SymInt[] size, *, Generator? generator, ", "long"),
            |high: i64,
             sizes: &[i64],
             generator: Option<&Generator>,
             dtype: Option<DType>,
             layout: Option<TensorLayout>,
             device: Option<Device>,
             pin_memory: Option<bool>| {
                randint(0, high, sizes, generator, dtype, layout, device, pin_memory)
            },
        )?
        .composite(
            &RANDINT,
            |low: i64,
             high: i64,
             sizes: &[i64],
             dtype: Option<DType>,
             layout: Option<TensorLayout>,
             device: Option<Device>,
             pin_memory: Option<bool>| randint(low, high, sizes, None, dtype, layout, device, pin_memory),
        )?
        .composite(&RANDINT_BY, randint)?
        .composite(
            &RANDPERM,
            |n: i64,
             dtype: Option<DType>,
             layout: Option<TensorLayout>,
             device: Option<Device>,
             pin_memory: Option<bool>| randperm(n, None, dtype, layout, device, pin_memory),
        )?
        .composite(&RANDPERM_BY, randperm)?;
    Ok(())
}

/// A draw for an operator, on the requested device, or else on that of the generator.
pub(crate) fn draw<'g>(
    op: &str,
    generator: Option<&'g Generator>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Draw<'g>> {
    check_storage(op, layout, pin_memory)?;
    Ok(Draw { generator, device: device.or(generator.map(Generator::device)).unwrap_or(Device::CPU) })
}

#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn randint(
    low: i64,
    high: i64,
    sizes: &[i64],
    generator: Option<&Generator>,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    let draw = draw("randint", generator, layout, device, pin_memory)?;
    draw.integers(low, high, &counts("randint", sizes)?, dtype.unwrap_or(DType::I64))
}

fn randperm(
    n: i64,
    generator: Option<&Generator>,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    let draw = draw("randperm", generator, layout, device, pin_memory)?;
    draw.permutation(count("randperm", n)?, dtype.unwrap_or(DType::I64))
}

fn bernoulli(x: &Tensor, generator: Option<&Generator>) -> Result<Tensor> {
    Draw { generator, device: x.device() }.bernoulli_of(x)
}

fn bernoulli_p(x: &Tensor, p: f64, generator: Option<&Generator>) -> Result<Tensor> {
    let draw = Draw { generator, device: x.device() };
    let make = |sizes: &[usize]| draw.bernoulli(sizes, p);
    laid_out(x.sizes(), &strides_like(x, None)?, make)?.to_dtype(x.dtype())
}
