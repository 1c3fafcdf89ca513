//! Norms of matrices, and rows that are scaled down to a norm.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::shape::normalize_dim;
use crate::ir::{DType, Scalar};
use crate::ops::arguments::{need_float, widened};
use crate::ops::composite::Composite;
use crate::tensor::handle::Tensor;
use std::fmt;

static RENORM: Composite = Composite::new("renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor");

impl Tensor {
    /// Scales each part along `dim` whose norm of order `p` is above `limit` down to that norm. Sizes and dtype are
    /// kept.
    ///
    /// # Errors
    /// If the dtype is not floating, if there are not two dims or more, if `dim` is out of range, or if a number does
    /// not fit.
    #[track_caller]
    pub fn renorm(&self, p: impl Into<Scalar>, dim: i64, limit: impl Into<Scalar>) -> Result<Tensor> {
        RENORM.call((self, p.into(), dim, limit.into()))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel(
            "linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2, -1], bool keepdim=False, *, ScalarType? \
             dtype=None) -> Tensor",
            |x: &Tensor, order: Scalar, dims: &[i64], keepdim: bool, dtype: Option<DType>| {
                matrix_norm("linalg_matrix_norm", x, Order::Number(order.as_f64()), dims, keepdim, dtype)
            },
        )?
        .def_kernel(
            "linalg_matrix_norm.str_ord(Tensor self, str ord=\"fro\", int[] dim=[-2, -1], bool keepdim=False, *, \
             ScalarType? dtype=None) -> Tensor",
            |x: &Tensor, order: &str, dims: &[i64], keepdim: bool, dtype: Option<DType>| {
                matrix_norm("linalg_matrix_norm", x, Order::Word(order), dims, keepdim, dtype)
            },
        )?
        .def_kernel(
            "linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None, bool keepdim=False, *, ScalarType? \
             dtype=None) -> Tensor",
            |x: &Tensor, order: Option<Scalar>, dims: Option<&[i64]>, keepdim: bool, dtype: Option<DType>| {
                norm(x, order, dims, keepdim, dtype)
            },
        )?
        .def_kernel(
            "linalg_norm.ord_str(Tensor self, str ord, int[1]? dim=None, bool keepdim=False, *, ScalarType? \
             dtype=None) -> Tensor",
            |x: &Tensor, order: &str, dims: Option<&[i64]>, keepdim: bool, dtype: Option<DType>| {
                matrix_norm("linalg_norm", x, Order::Word(order), dims.unwrap_or(&[-2, -1]), keepdim, dtype)
            },
        )?
        .def_kernel(
            "frobenius_norm.dim(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
            |x: &Tensor, dims: &[i64], keepdim: bool| x.norm(2, dims, keepdim),
        )?
        .composite(&RENORM, renorm)?;
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum Order<'a> {
    Number(f64),
    Word(&'a str),
}

impl fmt::Display for Order<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Number(number) => write!(f, "{number}"),
            Order::Word(word) => write!(f, "{word:?}"),
        }
    }
}

/// The norm of the last two dims by an order that is a number or a word.
pub(super) fn by_order(op: &str, x: &Tensor, order: Result<f64, &str>) -> Result<Tensor> {
    let order = order.map_or_else(Order::Word, Order::Number);
    matrix_norm(op, x, order, &[-2, -1], false, None)
}

/// Of a vector if one dim is meant, of a matrix for two, and without an order of all elements.
fn norm(
    x: &Tensor,
    order: Option<Scalar>,
    dims: Option<&[i64]>,
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Tensor> {
    let op = "linalg_norm";
    let all: Vec<i64> = (0..x.dim() as i64).collect();
    let x = dtype.map_or_else(|| Ok(x.clone()), |dtype| x.to_dtype(dtype))?;
    match (order, dims.unwrap_or(&all)) {
        (None, dims) => x.norm(2, dims, keepdim),
        (Some(order), dims @ [_]) => x.norm(order, dims, keepdim),
        (Some(order), dims @ [_, _]) => matrix_norm(op, &x, Order::Number(order.as_f64()), dims, keepdim, None),
        (Some(order), dims) => {
            let what = format!("order {order} over dims {dims:?} of shape {:?}", x.sizes());
            Err(Error::shape(op, what, "with an order there must be one dim or two"))
        }
    }
}

fn matrix_norm(
    op: &str,
    x: &Tensor,
    order: Order<'_>,
    dims: &[i64],
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Tensor> {
    need_float(op, &[x])?;
    let x = dtype.map_or_else(|| Ok(x.clone()), |dtype| x.to_dtype(dtype))?;
    let &[rows, columns] = dims else {
        return Err(Error::argument(op, format!("dim is {dims:?}; two dims are needed")));
    };
    let [rows, columns] = [normalize_dim(op, rows, x.dim())?, normalize_dim(op, columns, x.dim())?];
    if rows == columns {
        return Err(Error::argument(op, format!("dim is {dims:?}; the dims must differ")));
    }
    // The greatest or least sum of magnitudes over one of the dims.
    let sums = |summed: usize, kept: usize, is_greatest: bool| {
        let sums = widened(&x)?.abs()?.sum(summed as i64, true)?;
        let found = if is_greatest { sums.amax(kept as i64, true)? } else { sums.amin(kept as i64, true)? };
        let found = found.to_dtype(x.dtype())?;
        if keepdim { Ok(found) } else { found.squeeze(&[rows as i64, columns as i64][..]) }
    };
    // Of the singular values. Dims that are kept come back with size 1.
    let spectral = |fold: fn(&Tensor) -> Result<Tensor>| {
        let (rows, columns) = (rows as i64, columns as i64);
        let found = fold(&x.movedim([rows, columns], [-2, -1])?.linalg_svdvals()?)?;
        if !keepdim {
            return Ok(found);
        }
        found.unsqueeze(rows.min(columns))?.unsqueeze(rows.max(columns))
    };
    match order {
        Order::Word("nuc") => spectral(|values| values.sum(-1, false)),
        Order::Number(2.0) => spectral(|values| values.amax(-1, false)),
        Order::Number(-2.0) => spectral(|values| values.amin(-1, false)),
        Order::Word("fro") => x.norm(2, dims, keepdim),
        Order::Number(1.0) => sums(rows, columns, true),
        Order::Number(-1.0) => sums(rows, columns, false),
        Order::Number(f64::INFINITY) => sums(columns, rows, true),
        Order::Number(f64::NEG_INFINITY) => sums(columns, rows, false),
        other => {
            let what = format!("order {other} is none of \"fro\", \"nuc\", 1, -1, 2, -2 and both infinities");
            Err(Error::argument(op, what))
        }
    }
}

/// Scales each part along a dim whose norm is above the limit down to it.
fn renorm(x: &Tensor, p: Scalar, dim: i64, limit: Scalar) -> Result<Tensor> {
    /// So that a norm of 0 divides nothing.
    const EPSILON: f64 = 1e-7;
    let op = "renorm";
    need_float(op, &[x])?;
    let (p, limit) = (p.as_f64(), limit.as_f64());
    let kept = normalize_dim(op, dim, x.dim())?;
    let others: Vec<i64> = (0..x.dim()).filter(|&other| other != kept).map(|other| other as i64).collect();
    if others.is_empty() {
        return Err(Error::shape(op, format!("shape {:?}", x.sizes()), "at least 2 dims are needed"));
    }
    // NaN fails too.
    if !(p > 0.0 && limit >= 0.0) {
        return Err(Error::argument(
            op,
            format!("p is {p} and maxnorm {limit}; p is positive, and maxnorm not negative"),
        ));
    }
    let wide = widened(x)?;
    let norms = wide.norm(p, &others[..], true)?;
    let factors = norms.gt(limit)?.where_(&norms.add(EPSILON)?.reciprocal()?.mul(limit)?, 1.0)?;
    wide.mul(&factors)?.to_dtype(x.dtype())
}
