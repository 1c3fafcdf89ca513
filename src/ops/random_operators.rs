//! Random tensors and dropout under their ATen schemas.

use crate::device::{Device, Generator};
use crate::dispatch::library::Library;
use crate::dispatch::value::TensorLayout;
use crate::error::Result;
use crate::ir::{DType, MemoryFormat};
use crate::ops::arguments::{check_storage, count, counts};
use crate::ops::factories::{laid_out, strides_like};
use crate::ops::random::Draw;
use crate::ops::random_fills;
use crate::tensor::handle::Tensor;

const GENERATOR: &str = "*, Generator? generator=None";

pub(crate) fn register(library: &mut Library) -> Result<()> {
    factories(library)?;
    integers(library)?;
    fills(library)?;
    library
        .def_kernel(&format!("bernoulli(Tensor self, {GENERATOR}) -> Tensor"), bernoulli)?
        .def_kernel(&format!("bernoulli.p(Tensor self, float p, {GENERATOR}) -> Tensor"), bernoulli_p)?
        .def_kernel("dropout(Tensor input, float p, bool train) -> Tensor", Tensor::dropout)?
        .def_kernel(
            "dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)",
            |x: &Tensor, p: f64, train: bool| x.copy_(&x.dropout(p, train)?).map(|()| x.clone()),
        )?
        .def_kernel(
            "native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)",
            |x: &Tensor, p: f64, train: Option<bool>| x.native_dropout(p, train.unwrap_or(true)),
        )?;
    Ok(())
}

/// Where and how to store a result, and in what dtype.
fn options(dtype: &str) -> String {
    format!("ScalarType? dtype={dtype}, Layout? layout=None, Device? device=None, bool? pin_memory=None")
}

/// Uniform and normal numbers, plain and with a generator.
fn factories(library: &mut Library) -> Result<()> {
    type Numbers = fn(Draw<'_>, &[usize], DType) -> Result<Tensor>;
    let options = options("None");
    let uniform: Numbers = |draw, sizes, dtype| draw.uniform(sizes, dtype);
    let normal: Numbers = |draw, sizes, dtype| draw.normal(sizes, dtype);
    for (name, numbers) in [("rand", uniform), ("randn", normal)] {
        let sized = move |sizes: &[i64],
                          generator: Option<&Generator>,
                          dtype: Option<DType>,
                          layout: Option<TensorLayout>,
                          device: Option<Device>,
                          pin_memory: Option<bool>| {
            let draw = draw(name, generator, layout, device, pin_memory)?;
            numbers(draw, &counts(name, sizes)?, dtype.unwrap_or(DType::DEFAULT_FLOAT))
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
            .def_kernel(
                &format!("{name}(SymInt[] size, *, {options}) -> Tensor"),
                move |sizes: &[i64],
                      dtype: Option<DType>,
                      layout: Option<TensorLayout>,
                      device: Option<Device>,
                      pin_memory: Option<bool>| sized(sizes, None, dtype, layout, device, pin_memory),
            )?
            .def_kernel(
                &format!("{name}.generator(SymInt[] size, *, Generator? generator, {options}) -> Tensor"),
                move |sizes: &[i64],
                      generator: Option<&Generator>,
                      dtype: Option<DType>,
                      layout: Option<TensorLayout>,
                      device: Option<Device>,
                      pin_memory: Option<bool>| {
                    sized(sizes, generator, dtype, layout, device, pin_memory)
                },
            )?
            .def_kernel(
                &format!("{name}_like(Tensor self, *, {options}, MemoryFormat? memory_format=None) -> Tensor"),
                move |model: &Tensor,
                      dtype: Option<DType>,
                      layout: Option<TensorLayout>,
                      device: Option<Device>,
                      pin_memory: Option<bool>,
                      format: Option<MemoryFormat>| {
                    alike(model, None, dtype, layout, device, pin_memory, format)
                },
            )?
            .def_kernel(
                &format!(
                    "{name}_like.generator(Tensor self, *, Generator? generator, {options}, MemoryFormat? \
                     memory_format=None) -> Tensor"
                ),
                alike,
            )?;
    }
    Ok(())
}

/// Whole numbers and permutations.
fn integers(library: &mut Library) -> Result<()> {
    let long = options("long");
    library
        .def_kernel(
            &format!("randint(SymInt high, SymInt[] size, *, {long}) -> Tensor"),
            |high: i64,
             sizes: &[i64],
             dtype: Option<DType>,
             layout: Option<TensorLayout>,
             device: Option<Device>,
             pin_memory: Option<bool>| randint(0, high, sizes, None, dtype, layout, device, pin_memory),
        )?
        .def_kernel(
            &format!("randint.generator(SymInt high, SymInt[] size, *, Generator? generator, {long}) -> Tensor"),
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
        .def_kernel(
            &format!("randint.low(SymInt low, SymInt high, SymInt[] size, *, {long}) -> Tensor"),
            |low: i64,
             high: i64,
             sizes: &[i64],
             dtype: Option<DType>,
             layout: Option<TensorLayout>,
             device: Option<Device>,
             pin_memory: Option<bool>| randint(low, high, sizes, None, dtype, layout, device, pin_memory),
        )?
        .def_kernel(
            &format!(
                "randint.low_generator(SymInt low, SymInt high, SymInt[] size, *, Generator? generator, {long}) -> \
                 Tensor"
            ),
            randint,
        )?
        .def_kernel(
            &format!("randperm(SymInt n, *, {long}) -> Tensor"),
            |n: i64,
             dtype: Option<DType>,
             layout: Option<TensorLayout>,
             device: Option<Device>,
             pin_memory: Option<bool>| randperm(n, None, dtype, layout, device, pin_memory),
        )?
        .def_kernel(&format!("randperm.generator(SymInt n, *, Generator? generator, {long}) -> Tensor"), randperm)?;
    Ok(())
}

/// Numbers written into a tensor.
fn fills(library: &mut Library) -> Result<()> {
    let write = |rest: &str| format!("{rest}, {GENERATOR}) -> Tensor(a!)");
    library
        .def_kernel(
            &write("uniform_(Tensor(a!) self, float from=0, float to=1"),
            |x: &Tensor, from: f64, to: f64, generator: Option<&Generator>| {
                random_fills::uniform(x, from, to, generator).map(|()| x.clone())
            },
        )?
        .def_kernel(
            &write("normal_(Tensor(a!) self, float mean=0, float std=1"),
            |x: &Tensor, mean: f64, std: f64, generator: Option<&Generator>| {
                random_fills::normal(x, mean, std, generator).map(|()| x.clone())
            },
        )?
        .def_kernel(
            &write("bernoulli_.float(Tensor(a!) self, float p=0.5"),
            |x: &Tensor, p: f64, generator: Option<&Generator>| {
                random_fills::bernoulli(x, p, generator).map(|()| x.clone())
            },
        )?
        .def_kernel(
            &write("bernoulli_.Tensor(Tensor(a!) self, Tensor p"),
            |x: &Tensor, p: &Tensor, generator: Option<&Generator>| {
                random_fills::bernoulli_of(x, p, generator).map(|()| x.clone())
            },
        )?
        .def_kernel(
            &write("random_.from(Tensor(a!) self, int from, int? to"),
            |x: &Tensor, from: i64, to: Option<i64>, generator: Option<&Generator>| {
                let to = to.unwrap_or(random_fills::end_of(x.dtype()));
                random_fills::integers(x, from, to, generator).map(|()| x.clone())
            },
        )?
        .def_kernel(
            &write("random_.to(Tensor(a!) self, int to"),
            |x: &Tensor, to: i64, generator: Option<&Generator>| {
                random_fills::integers(x, 0, to, generator).map(|()| x.clone())
            },
        )?
        .def_kernel(&write("random_(Tensor(a!) self"), |x: &Tensor, generator: Option<&Generator>| {
            random_fills::integers(x, 0, random_fills::end_of(x.dtype()), generator).map(|()| x.clone())
        })?;
    Ok(())
}

/// Draws for an operator, onto the device asked for or else that of the generator.
fn draw<'g>(
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
