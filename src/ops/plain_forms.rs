//! Operators that other operators give at once: other names, and shares of a formula.
//!
//! Exported programs and Python call them. Rust has the methods that they are made of.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::{DType, Scalar};
use crate::ops::arguments::{counts, need_float};
use crate::ops::factories::full_on;
use crate::tensor::handle::Tensor;
use std::f64::consts::FRAC_1_SQRT_2;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("true_divide.Tensor(Tensor self, Tensor other) -> Tensor", |x: &Tensor, y: &Tensor| x.div(y))?
        .def_kernel("true_divide.Scalar(Tensor self, Scalar other) -> Tensor", |x: &Tensor, y: Scalar| x.div(y))?
        .def_kernel("sgn(Tensor self) -> Tensor", Tensor::sign)?
        .def_kernel("special_expit(Tensor self) -> Tensor", Tensor::sigmoid)?
        .def_kernel("special_ndtr(Tensor self) -> Tensor", |x: &Tensor| x.mul(-FRAC_1_SQRT_2)?.erfc()?.mul(0.5))?
        .def_kernel("special_entr(Tensor self) -> Tensor", entropy)?
        .def_kernel("ldexp.Tensor(Tensor self, Tensor other) -> Tensor", |x: &Tensor, power: &Tensor| {
            let power = if power.dtype().is_float() { power.clone() } else { power.to_dtype(DType::F32)? };
            x.mul(&power.exp2()?)
        })?
        .def_kernel("vdot(Tensor self, Tensor other) -> Tensor", |x: &Tensor, y: &Tensor| x.dot(y))?
        .def_kernel("numpy_T(Tensor(a) self) -> Tensor(a)", |x: &Tensor| {
            x.permute((0..x.dim() as i64).rev().collect::<Vec<i64>>())
        })?
        .def_kernel("mT(Tensor(a) self) -> Tensor(a)", |x: &Tensor| x.transpose(-2, -1))?
        .def_kernel(
            "copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor",
            |x: &Tensor, from: &Tensor, _: bool| {
                let like = from.to_dtype(x.dtype())?.to_device(x.device())?.expand(x.sizes())?;
                if like.has_storage_of(from) { like.copy() } else { Ok(like) }
            },
        )?
        .def_kernel("lift_fresh_copy(Tensor self) -> Tensor", Tensor::copy)?
        .def_kernel("detach_(Tensor(a!) self) -> Tensor(a!)", detach_in_place)?
        .def_kernel("max_unpool2d(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor", max_unpool2d)?
        .def_kernel(
            "fake_quantize_per_tensor_affine(Tensor self, float scale, int zero_point, int quant_min, int \
             quant_max) -> Tensor",
            fake_quantize,
        )?;
    Ok(())
}

/// `-x log x`, 0 at 0, and minus infinity below.
fn entropy(x: &Tensor) -> Result<Tensor> {
    need_float("special_entr", &[x])?;
    let is_positive = x.gt(0.0)?;
    // A logarithm of what is not positive would spoil the gradient.
    let safe = is_positive.where_(x, 1.0)?;
    let inside = safe.neg()?.mul(&safe.log()?)?;
    is_positive.where_(&inside, &x.lt(0.0)?.where_(&x.full_like(f64::NEG_INFINITY)?, 0.0)?)
}

/// A tensor without history stays as it is. One with history cannot lose it here.
fn detach_in_place(x: &Tensor) -> Result<Tensor> {
    if x.requires_grad() && !x.is_leaf() {
        return Err(Error::argument("detach_", "the tensor has a history; use detach, which returns another tensor"));
    }
    if x.requires_grad() {
        x.set_requires_grad(false)?;
    }
    Ok(x.clone())
}

/// Puts each element to its place in its plane; others are 0.
fn max_unpool2d(x: &Tensor, indices: &Tensor, sizes: &[i64]) -> Result<Tensor> {
    let op = "max_unpool2d";
    let rank = x.dim();
    let fits = (rank == 3 || rank == 4) && x.sizes() == indices.sizes() && sizes.len() == 2;
    if !fits || sizes.iter().any(|&size| size < 0) {
        let what = format!("input {:?}, indices {:?}, planes {sizes:?}", x.sizes(), indices.sizes());
        return Err(Error::shape(op, what, "input and indices are alike, with 3 or 4 dims; planes have two sizes"));
    }
    let outer: Vec<i64> = x.sizes()[..rank - 2].iter().map(|&size| size as i64).collect();
    let lines = |x: &Tensor| x.reshape(&[&outer[..], &[-1]].concat()[..]);
    let area = sizes[0].saturating_mul(sizes[1]);
    let full = counts(op, &[&outer[..], &[area]].concat())?;
    let zeros = full_on(x.device(), &full, Scalar::Int(0), Some(x.dtype()))?;
    zeros.scatter(rank as i64 - 2, &lines(indices)?, &lines(x)?)?.view(&[&outer[..], sizes].concat()[..])
}

/// Rounds to the numbers that integers of a range stand for. The gradient passes where nothing is cut off.
fn fake_quantize(x: &Tensor, scale: f64, zero_point: i64, least: i64, most: i64) -> Result<Tensor> {
    let op = "fake_quantize_per_tensor_affine";
    need_float(op, &[x])?;
    if least > most || !(least..=most).contains(&zero_point) || scale.is_nan() || scale <= 0.0 {
        let what = format!("scale {scale}, zero_point {zero_point}, range {least} to {most}");
        return Err(Error::argument(op, what + "; the scale is positive, and the zero point is in the range"));
    }
    let fixed = x.detach()?;
    let number = fixed.mul(1.0 / scale)?.round()?.add(zero_point as f64)?;
    let is_inside = number.ge(least as f64)?.mul(&number.le(most as f64)?)?;
    let value = number.clamp(Some((least as f64).into()), Some((most as f64).into()))?;
    let value = value.sub(zero_point as f64)?.mul(scale)?;
    if !x.requires_grad() {
        return Ok(value);
    }
    // Zero, with the gradient of `x`.
    let passing = is_inside.where_(&x.sub(&fixed)?, 0.0)?;
    value.add(&passing)
}
