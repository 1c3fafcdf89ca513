//! Arithmetic and products of matrices. A real operand is no pair with a zero: `z * x` scales both parts.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::{DType, Scalar};
use crate::ops::complex_numbers::{as_pairs, of_pairs, of_parts};
use crate::tensor::handle::Tensor;
use crate::transforms::autocast::no_autocast;
use crate::transforms::complex::operands::{both, common, on, paired, parts};

pub(super) fn register(library: &mut Library) -> Result<()> {
    library
        .impl_("add.Tensor", |x: &Tensor, y: &Tensor, alpha: Scalar| {
            let [x, y] = paired([x, y])?;
            of_pairs(&x.add_scaled(&y, alpha)?)
        })?
        .impl_("sub.Tensor", |x: &Tensor, y: &Tensor, alpha: Scalar| {
            let [x, y] = paired([x, y])?;
            of_pairs(&x.sub_scaled(&y, alpha)?)
        })?
        .impl_("mul.Tensor", mul)?
        .impl_("div.Tensor", div)?
        .impl_("div.Tensor_mode", |x: &Tensor, y: &Tensor, mode: Option<&str>| match mode {
            None => div(x, y),
            Some(_) => Err(Error::unsupported("div", common(&[x, y]), "real dtypes, if rounded", "divide unrounded")),
        })?
        .impl_("reciprocal", reciprocal)?
        .impl_("square", |x: &Tensor| mul(x, x))?
        .impl_("addcmul", |x: &Tensor, y: &Tensor, z: &Tensor, value: Scalar| x.add(&y.mul(z)?.mul(value)?))?
        .impl_("addcdiv", |x: &Tensor, y: &Tensor, z: &Tensor, value: Scalar| x.add(&y.div(z)?.mul(value)?))?
        .impl_("lerp.Scalar", |x: &Tensor, end: &Tensor, weight: Scalar| x.add(&end.sub(x)?.mul(weight)?))?
        .impl_("lerp.Tensor", |x: &Tensor, end: &Tensor, weight: &Tensor| x.add(&end.sub(x)?.mul(weight)?))?
        .impl_("eq.Tensor", |x: &Tensor, y: &Tensor| {
            let [x, y] = paired([x, y])?;
            x.eq(&y)?.all(-1, false)
        })?
        .impl_("ne.Tensor", |x: &Tensor, y: &Tensor| {
            let [x, y] = paired([x, y])?;
            x.ne(&y)?.any(-1, false)
        })?
        .impl_("mm", |x: &Tensor, y: &Tensor| product(x, y, Tensor::mm))?
        .impl_("bmm", |x: &Tensor, y: &Tensor| product(x, y, Tensor::bmm))?
        .impl_("addmm", |x: &Tensor, y: &Tensor, z: &Tensor, beta: Scalar, alpha: Scalar| {
            x.mul(beta)?.add_scaled(&y.mm(z)?, alpha)
        })?
        .impl_("baddbmm", |x: &Tensor, y: &Tensor, z: &Tensor, beta: Scalar, alpha: Scalar| {
            x.mul(beta)?.add_scaled(&y.bmm(z)?, alpha)
        })?
        .impl_("vdot", |x: &Tensor, y: &Tensor| x.conj()?.dot(y))?
        .impl_("linalg_vecdot", |x: &Tensor, y: &Tensor, dim: i64| x.conj()?.mul(y)?.sum(dim, false))?;
    for name in ["adjoint", "mH", "matrix_H"] {
        library.impl_(name, |x: &Tensor| x.transpose(-2, -1)?.conj())?;
    }
    Ok(())
}

/// A real operand beside complex ones, as a factor of pairs of this dtype.
fn factor(x: &Tensor, dtype: DType) -> Result<Tensor> {
    x.to_dtype(dtype.part())?.unsqueeze(-1)
}

/// A real factor scales the pairs.
fn mul(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    if x.is_complex() && y.is_complex() {
        return product(x, y, |x, y| x.mul(y));
    }
    let (dtype, [z, real]) = (common(&[x, y]), if x.is_complex() { [x, y] } else { [y, x] });
    of_pairs(&as_pairs(z, dtype)?.mul(&factor(&on(z.device(), real)?, dtype)?)?)
}

fn div(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    if y.is_complex() {
        return mul(x, &reciprocal(y)?);
    }
    let dtype = common(&[x, y]);
    of_pairs(&as_pairs(x, dtype)?.div(&factor(&on(x.device(), y)?, dtype)?)?)
}

/// `1 / (a + bi) = (a - bi) / (a^2 + b^2)`, with both parts scaled by the greater one, so that no square overflows.
fn reciprocal(x: &Tensor) -> Result<Tensor> {
    let (a, b) = parts(x)?;
    let scale = a.abs()?.maximum(&b.abs()?)?.detach()?;
    let (a, b) = (a.div(&scale)?, b.div(&scale)?);
    let norm = a.square()?.add(&b.square()?)?.mul(&scale)?;
    of_parts(&a.div(&norm)?, &b.neg()?.div(&norm)?)
}

/// A product from products of parts: `(a + bi)(c + di) = (ac - bd) + (ad + bc)i`.
pub(super) fn product(x: &Tensor, y: &Tensor, real: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
    // There are no complex numbers of 16-bit parts.
    let _wide = no_autocast();
    let dtype = common(&[x, y]);
    let part = |x: &Tensor| x.to_dtype(dtype.part());
    match (x.is_complex(), y.is_complex()) {
        (true, true) => {
            let ((a, b), (c, d)) = (both(x, dtype)?, both(y, dtype)?);
            of_parts(&real(&a, &c)?.sub(&real(&b, &d)?)?, &real(&a, &d)?.add(&real(&b, &c)?)?)
        }
        (true, false) => {
            let ((a, b), c) = (both(x, dtype)?, part(y)?);
            of_parts(&real(&a, &c)?, &real(&b, &c)?)
        }
        (false, _) => {
            let (a, (c, d)) = (part(x)?, both(y, dtype)?);
            of_parts(&real(&a, &c)?, &real(&a, &d)?)
        }
    }
}
