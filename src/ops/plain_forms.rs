//! Operators that other operators give at once: other names, and shares of a formula.
//!
//! Exported programs and Python call them. For most, Rust has the methods that they are made of.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::{DType, Scalar};
use crate::ops::arguments::{counts, need_float};
use crate::ops::composite::Composite;
use crate::ops::factories::full_on;
use crate::tensor::handle::Tensor;
use std::f64::consts::FRAC_1_SQRT_2;

static FLIPLR: Composite = Composite::new("fliplr(Tensor self) -> Tensor");
static FLIPUD: Composite = Composite::new("flipud(Tensor self) -> Tensor");
static DIAGFLAT: Composite = Composite::new("diagflat(Tensor self, int offset=0) -> Tensor");
static INNER: Composite = Composite::new("inner(Tensor self, Tensor other) -> Tensor");
static EQUAL: Composite = Composite::new("equal(Tensor self, Tensor other) -> bool");

/// Parts and products under the names of NumPy.
impl Tensor {
    /// The columns, dim 1, in reversed order.
    ///
    /// # Errors
    /// If there are fewer than two dims.
    #[track_caller]
    pub fn fliplr(&self) -> Result<Tensor> {
        FLIPLR.call((self,))
    }

    /// The rows, dim 0, in reversed order.
    ///
    /// # Errors
    /// If there are no dims.
    #[track_caller]
    pub fn flipud(&self) -> Result<Tensor> {
        FLIPUD.call((self,))
    }

    /// A square matrix with all elements, in row-major order, on its diagonal, or `offset` places right of it.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn diagflat(&self, offset: i64) -> Result<Tensor> {
        DIAGFLAT.call((self, offset))
    }

    /// The sums of products over the last dims of both. A number multiplies the other.
    ///
    /// # Errors
    /// If the last sizes differ, or if the dtypes differ.
    #[track_caller]
    pub fn inner(&self, other: &Tensor) -> Result<Tensor> {
        INNER.call((self, other))
    }

    /// Whether shapes and all elements are equal. A NaN equals nothing. The values are read, which is a graph break.
    ///
    /// # Errors
    /// If a tensor has no data.
    #[track_caller]
    pub fn equal(&self, other: &Tensor) -> Result<bool> {
        EQUAL.call((self, other))
    }
}

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
            |x: &Tensor, scale: f64, zero_point: i64, least: i64, most: i64| {
                let op = "fake_quantize_per_tensor_affine";
                fake_quantize(op, x, scale, zero_point, least, most).map(|(value, _)| value)
            },
        )?
        .def_kernel(
            "fake_quantize_per_tensor_affine_cachemask(Tensor self, float scale, int zero_point, int quant_min, int \
             quant_max) -> (Tensor output, Tensor mask)",
            |x: &Tensor, scale: f64, zero_point: i64, least: i64, most: i64| {
                fake_quantize("fake_quantize_per_tensor_affine_cachemask", x, scale, zero_point, least, most)
            },
        )?;
    of_real_numbers(library)?;
    of_parts(library)
}

/// What a complex number would have, for real ones.
fn of_real_numbers(library: &mut Library) -> Result<()> {
    for name in ["adjoint", "mH"] {
        library.def_kernel(&format!("{name}(Tensor(a) self) -> Tensor(a)"), |x: &Tensor| x.transpose(-2, -1))?;
    }
    library
        .def_kernel("matrix_H(Tensor(a) self) -> Tensor(a)", |x: &Tensor| x.transpose(-2, -1))?
        .def_kernel("isreal(Tensor self) -> Tensor", |x: &Tensor| x.eq(x)?.logical_or(&x.ne(x)?))?;
    Ok(())
}

/// Parts and products of tensors under the names of NumPy.
fn of_parts(library: &mut Library) -> Result<()> {
    library
        .composite(&FLIPLR, |x: &Tensor| flipped("fliplr", x, 1))?
        .composite(&FLIPUD, |x: &Tensor| flipped("flipud", x, 0))?
        .composite(&DIAGFLAT, |x: &Tensor, offset: i64| x.reshape([-1])?.diag(offset))?
        .composite(&INNER, inner)?
        .def_kernel(
            "linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor",
            |x: &Tensor, y: &Tensor, dim: i64| x.mul(y)?.sum(dim, false),
        )?
        .def_kernel(
            "linalg_diagonal(Tensor(a) A, *, int offset=0, int dim1=-2, int dim2=-1) -> Tensor(a)",
            |x: &Tensor, offset: i64, dim1: i64, dim2: i64| x.diagonal(offset, dim1, dim2),
        )?
        .def_kernel("sum_to_size(Tensor self, SymInt[] size) -> Tensor", sum_to_size)?
        .composite(&EQUAL, |x: &Tensor, y: &Tensor| {
            if x.sizes() != y.sizes() {
                return Ok(false);
            }
            x.eq(y)?.all((), false)?.item::<bool>()
        })?
        .def_kernel("log_sigmoid_forward(Tensor self) -> (Tensor output, Tensor buffer)", |x: &Tensor| {
            // The gradient's formula reads the second result in PyTorch, where ours does not.
            Ok((x.log_sigmoid()?, x.detach()?.abs()?.neg()?.exp()?))
        })?;
    Ok(())
}

fn flipped(op: &str, x: &Tensor, dim: usize) -> Result<Tensor> {
    if x.dim() <= dim {
        let what = format!("shape {:?} has {} dims", x.sizes(), x.dim());
        return Err(Error::shape(op, what, format!("at least {} are needed", dim + 1)));
    }
    x.flip([dim as i64])
}

/// Sums of products over the last dims.
fn inner(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    if x.dim() == 0 || y.dim() == 0 {
        return x.mul(y);
    }
    let (Some(one), Some(two)) = (x.sizes().last(), y.sizes().last()) else { return x.mul(y) };
    if one != two {
        let what = format!("shapes {:?} and {:?}", x.sizes(), y.sizes());
        return Err(Error::shape("inner", what, "the last sizes must be equal"));
    }
    let rows = |x: &Tensor| x.reshape([-1, *one as i64]);
    let outer = [&x.sizes()[..x.dim() - 1], &y.sizes()[..y.dim() - 1]].concat();
    rows(x)?.mm(&rows(y)?.t()?)?.reshape(&outer[..])
}

/// Sums over the dims that a tensor of these sizes was expanded along.
fn sum_to_size(x: &Tensor, sizes: &[i64]) -> Result<Tensor> {
    let op = "sum_to_size";
    let wanted = counts(op, sizes)?;
    let fits = wanted.len() <= x.dim()
        && wanted.iter().rev().zip(x.sizes().iter().rev()).all(|(&to, &from)| to == from || to == 1);
    if !fits {
        let what = format!("size {sizes:?} does not broadcast to shape {:?}", x.sizes());
        return Err(Error::shape(op, what, "pass sizes that broadcast to the tensor's"));
    }
    let added = x.dim() - wanted.len();
    let dims: Vec<i64> = (0..x.dim())
        .filter(|&dim| dim < added || wanted[dim - added] != x.sizes()[dim])
        .map(|dim| dim as i64)
        .collect();
    if dims.is_empty() { Ok(x.clone()) } else { x.sum(&dims[..], true)?.view(&wanted[..]) }
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

/// Rounds to the numbers that integers of a range stand for, and says where nothing is cut off. The gradient passes
/// there.
fn fake_quantize(op: &str, x: &Tensor, scale: f64, zero_point: i64, least: i64, most: i64) -> Result<(Tensor, Tensor)> {
    need_float(op, &[x])?;
    if least > most || !(least..=most).contains(&zero_point) || scale.is_nan() || scale <= 0.0 {
        let what = format!("scale {scale}, zero_point {zero_point}, range {least} to {most}");
        return Err(Error::argument(op, what + "; the scale is positive, and the zero point is in the range"));
    }
    let fixed = x.detach()?;
    let number = fixed.mul(1.0 / scale)?.round()?.add(zero_point as f64)?;
    let is_inside = number.ge(least as f64)?.logical_and(&number.le(most as f64)?)?;
    let value = number.clamp(Some((least as f64).into()), Some((most as f64).into()))?;
    let value = value.sub(zero_point as f64)?.mul(scale)?;
    if !x.requires_grad() {
        return Ok((value, is_inside));
    }
    // Zero, with the gradient of `x`.
    let passing = is_inside.where_(&x.sub(&fixed)?, 0.0)?;
    Ok((value.add(&passing)?, is_inside))
}
