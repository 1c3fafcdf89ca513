//! Vector norms and cosine similarity.
//!
//! Gradients come from the parts. At 0, where a norm is not differentiable, the parts are masked so that the gradient
//! is 0. Otherwise it would be 0 times infinity.

use crate::autograd::{Context, Function, apply};
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::shape::{broadcast, normalize_dim};
use crate::ir::{DType, Scalar, promote_all};
use crate::ops::arguments::{need_float, widened};
use crate::ops::composite::Composite;
use crate::ops::dims::Dims;
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;

static VECTOR_NORM: Composite = Composite::new(
    "linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) \
     -> Tensor",
);
static NORM: Composite =
    Composite::new("norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, bool keepdim=False) -> Tensor");
static COSINE_SIMILARITY: Composite =
    Composite::new("cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor");
static DIST: Composite = Composite::new("dist(Tensor self, Tensor other, Scalar p=2) -> Tensor");

/// Norms. 16-bit floats are computed in f32 and rounded once.
impl Tensor {
    /// The vector norm of order `p`: `sum(|x|^p)^(1/p)` over `dims`. For `p` = 0 it is the number of nonzero elements,
    /// for infinity the greatest magnitude, for minus infinity the least. Where the norm is 0 its gradient is 0. The
    /// dims are removed, or keep size 1 if `keepdim`; no dims (`()`) means all. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating, or if a dim is out of range or named twice.
    #[track_caller]
    pub fn norm(&self, p: impl Into<Scalar>, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        NORM.call((self, Some(p.into()), dims.into().as_slice(), keepdim))
    }

    /// The norm of order `p` of the difference from another tensor: a tensor of no dims. Sizes are broadcast.
    ///
    /// # Errors
    /// If the common dtype is not floating, or if the sizes do not broadcast.
    #[track_caller]
    pub fn dist(&self, other: &Tensor, p: impl Into<Scalar>) -> Result<Tensor> {
        DIST.call((self, other, p.into()))
    }

    /// The cosine of the angle between two tensors along `dim`: `x · y / (max(|x|, eps) max(|y|, eps))`. Sizes are
    /// broadcast, dtypes promoted. The dim is removed.
    ///
    /// # Errors
    /// If the common dtype is not floating, if the sizes do not broadcast, or if the dim is out of range.
    #[track_caller]
    pub fn cosine_similarity(&self, other: &Tensor, dim: i64, eps: f64) -> Result<Tensor> {
        COSINE_SIMILARITY.call((self, other, dim, eps))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(
            &VECTOR_NORM,
            |x: &Tensor, order: Scalar, dims: Option<&[i64]>, keepdim: bool, dtype: Option<DType>| {
                vector_norm("linalg_vector_norm", x, order, dims.unwrap_or_default(), keepdim, dtype)
            },
        )?
        .def_kernel("norm.Scalar(Tensor self, Scalar p=2) -> Tensor", |x: &Tensor, p: Scalar| {
            vector_norm("norm", x, p, &[], false, None)
        })?
        .composite(&NORM, |x: &Tensor, p: Option<Scalar>, dims: &[i64], keepdim: bool| {
            vector_norm("norm", x, p.unwrap_or(Scalar::Int(2)), dims, keepdim, None)
        })?
        .def_kernel(
            "norm.ScalarOpt_dtype(Tensor self, Scalar? p, *, ScalarType dtype) -> Tensor",
            |x: &Tensor, p: Option<Scalar>, dtype: DType| {
                vector_norm("norm", x, p.unwrap_or(Scalar::Int(2)), &[], false, Some(dtype))
            },
        )?
        .def_kernel(
            "norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, bool keepdim, *, ScalarType dtype) -> Tensor",
            |x: &Tensor, p: Option<Scalar>, dims: &[i64], keepdim: bool, dtype: DType| {
                vector_norm("norm", x, p.unwrap_or(Scalar::Int(2)), dims, keepdim, Some(dtype))
            },
        )?
        .composite(&COSINE_SIMILARITY, cosine_similarity)?;
    distances(library)?;
    weight_norms(library)
}

fn distances(library: &mut Library) -> Result<()> {
    library
        .composite(&DIST, |x: &Tensor, y: &Tensor, p: Scalar| vector_norm("dist", &x.sub(y)?, p, &[], false, None))?
        .def_kernel(
            "pairwise_distance(Tensor x1, Tensor x2, float p=2, float eps=1e-06, bool keepdim=False) -> Tensor",
            |x: &Tensor, y: &Tensor, p: f64, eps: f64, keepdim: bool| {
                let apart = x.sub(y)?.add(eps)?;
                vector_norm("pairwise_distance", &apart, p.into(), &[-1], keepdim, None)
            },
        )?;
    Ok(())
}

/// Weights that are kept as a direction and a length for each index of one dim (Salimans and Kingma 2016).
fn weight_norms(library: &mut Library) -> Result<()> {
    library
        .def_kernel("norm_except_dim(Tensor v, int pow=2, int dim=0) -> Tensor", |v: &Tensor, pow: i64, dim: i64| {
            norm_except_dim("norm_except_dim", v, pow, dim)
        })?
        .def_kernel("_weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor", |v: &Tensor, g: &Tensor, dim: i64| {
            weight_norm("_weight_norm", v, g, dim).map(|(weight, _)| weight)
        })?
        .def_kernel(
            "_weight_norm_interface(Tensor v, Tensor g, int dim=0) -> (Tensor, Tensor)",
            |v: &Tensor, g: &Tensor, dim: i64| weight_norm("_weight_norm_interface", v, g, dim),
        )?;
    Ok(())
}

/// The norm over all dims but `dim`, which the others stay beside with size 1; over all dims if `dim` is -1.
fn norm_except_dim(op: &str, v: &Tensor, pow: i64, dim: i64) -> Result<Tensor> {
    if dim == -1 {
        return vector_norm(op, v, pow.into(), &[], false, None);
    }
    let kept = normalize_dim(op, dim, v.dim())?;
    let others: Vec<i64> = (0..v.dim()).filter(|&other| other != kept).map(|other| other as i64).collect();
    match others.is_empty() {
        // No dim at all would mean all of them.
        true => v.abs(),
        false => vector_norm(op, v, pow.into(), &others, true, None),
    }
}

/// `v * g / |v|`, and the norms.
fn weight_norm(op: &str, v: &Tensor, g: &Tensor, dim: i64) -> Result<(Tensor, Tensor)> {
    let norms = norm_except_dim(op, v, 2, dim)?;
    Ok((v.mul(&g.div(&norms)?)?, norms))
}

/// `sum(|x|^p)^(1/p)` over dims, with its limits for 0 (the number of nonzero elements) and for both infinities.
fn vector_norm(
    op: &str,
    x: &Tensor,
    order: Scalar,
    dims: &[i64],
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Tensor> {
    let out = dtype.unwrap_or(x.dtype()).part();
    let x = if x.is_complex() { x.abs()? } else { x.clone() }.to_dtype(out)?;
    need_float(op, &[&x])?;
    let x = widened(&x)?;
    let p = order.as_f64();
    let norm = if p == 0.0 {
        let mut counts = apply(Count { dims: dims.into(), keepdim }, &[&x])?;
        counts.pop().ok_or_else(|| Error::Internal { message: "a count has one result".into() })?
    } else if p == 1.0 {
        x.abs()?.sum(dims, keepdim)?
    } else if p == 2.0 {
        but_at_zero(&x.square()?.sum(dims, keepdim)?, 0.0, Tensor::sqrt)?
    } else if p == f64::INFINITY {
        x.abs()?.amax(dims, keepdim)?
    } else if p == f64::NEG_INFINITY {
        x.abs()?.amin(dims, keepdim)?
    } else {
        let at_zero = |power: f64| if power < 0.0 { f64::INFINITY } else { 0.0 };
        let powers = but_at_zero(&x.abs()?, at_zero(p), |x| x.pow(p))?;
        but_at_zero(&powers.sum(dims, keepdim)?, at_zero(p), |x| x.pow(1.0 / p))?
    };
    norm.to_dtype(out)
}

/// Counts nonzero elements. The count is a step function: it is recorded, but no gradient flows back.
struct Count {
    dims: SmallVec<[i64; 4]>,
    keepdim: bool,
}

impl Function for Count {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let x = &inputs[0];
        x.ne(0.0)?.to_dtype(x.dtype())?.sum(&self.dims[..], self.keepdim).map(|count| vec![count])
    }

    fn backward(&self, _: &[Tensor], _: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None])
    }
}

/// `function(x)`, and where `x` is 0 `value` without a gradient.
fn but_at_zero(x: &Tensor, value: f64, function: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let is_zero = x.eq(0.0)?;
    function(&x.masked_fill(&is_zero, 1.0)?)?.masked_fill(&is_zero, value)
}

/// Both sides are divided by their norms first. The lower bound `eps` has no gradient.
fn cosine_similarity(x1: &Tensor, x2: &Tensor, dim: i64, eps: f64) -> Result<Tensor> {
    let op = "cosine_similarity";
    let dtype = promote_all([x1.ty().promote_operand(), x2.ty().promote_operand()]).unwrap_or(x1.dtype());
    if !dtype.is_float() {
        return Err(Error::dtype(op, dtype, "a floating dtype", "convert one side first"));
    }
    let sizes = broadcast(op, x1.sizes(), x2.sizes())?;
    let unit = |x: &Tensor| {
        let x = widened(&x.to_dtype(dtype)?)?.expand(&sizes[..])?;
        let norm = vector_norm(op, &x, Scalar::Int(2), &[dim], true, None)?;
        let lift = norm.clamp_min(eps)?.sub(&norm)?.detach()?;
        x.div(norm.add(lift)?)
    };
    unit(x1)?.mul(unit(x2)?)?.sum(dim, false)?.to_dtype(dtype)
}
