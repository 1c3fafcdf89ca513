//! Diagonals and triangles of matrices. All results are copies. [`Tensor::diagonal`] is a view, in `views.rs`.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::Triangle;
use crate::ir::shape::normalize_dim;
use crate::ir::{Attrs, MemoryFormat, Op, Scalar};
use crate::ops::arguments::ordered;
use crate::ops::composite::Composite;
use crate::ops::factories::full_on;
use crate::tensor::handle::Tensor;

static DIAG: Composite = Composite::new("diag(Tensor self, int diagonal=0) -> Tensor");
static DIAG_EMBED: Composite =
    Composite::new("diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor");

/// Triangles and diagonal matrices.
impl Tensor {
    /// The lower triangle of the last two dims. Elements above diagonal number `diagonal` become 0; 0 is the main
    /// diagonal, positive numbers are above it. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If there are fewer than two dims.
    #[track_caller]
    pub fn tril(&self, diagonal: i64) -> Result<Tensor> {
        call(Op::Tril, &[self], &Attrs::from(Triangle { diagonal }))
    }

    /// The upper triangle of the last two dims. Elements below diagonal number `diagonal` become 0; 0 is the main
    /// diagonal, positive numbers are above it. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If there are fewer than two dims.
    #[track_caller]
    pub fn triu(&self, diagonal: i64) -> Result<Tensor> {
        call(Op::Triu, &[self], &Attrs::from(Triangle { diagonal }))
    }

    /// For a vector, the matrix with the vector on diagonal number `diagonal` and zeros elsewhere. For a matrix, a copy
    /// of that diagonal. The dtype is kept.
    ///
    /// # Errors
    /// If the tensor has neither one nor two dims.
    #[track_caller]
    pub fn diag(&self, diagonal: i64) -> Result<Tensor> {
        DIAG.call((self, diagonal))
    }

    /// Puts the last dim on diagonal number `offset` of two new dims, `dim1` and `dim2`. All other elements are 0. The
    /// dtype is kept.
    ///
    /// # Errors
    /// If there are no dims, if a new dim is out of range, or if both are the same.
    #[track_caller]
    pub fn diag_embed(&self, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        DIAG_EMBED.call((self, offset, dim1, dim2))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library.composite(&DIAG, diag)?.composite(&DIAG_EMBED, diag_embed)?;
    Ok(())
}

fn diag(x: &Tensor, diagonal: i64) -> Result<Tensor> {
    match x.dim() {
        1 => x.diag_embed(diagonal, 0, 1),
        2 => call(Op::Clone, &[&x.diagonal(diagonal, 0, 1)?], &ordered(MemoryFormat::Contiguous)),
        rank => {
            let what = format!("diag(): Supports 1D or 2D tensors. Got {rank}D");
            Err(Error::shape("diag", what, "use diag_embed or diagonal for batches"))
        }
    }
}

fn diag_embed(x: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
    let rank = x.dim() + 1;
    let (dim1, dim2) = (normalize_dim("diag_embed", dim1, rank)?, normalize_dim("diag_embed", dim2, rank)?);
    let Some((&last, batch)) = x.sizes().split_last() else {
        return Err(Error::index("diag_embed", "a 0-dim tensor has no dims", "unsqueeze it first"));
    };
    if dim1 == dim2 {
        let what = format!("diagonal dimensions cannot be identical {dim1}, {dim2}");
        return Err(Error::shape("diag_embed", what, "name two dims"));
    }
    let shift = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
    let side = last.saturating_add(shift);
    let mut sizes = batch.to_vec();
    sizes.insert(dim1.min(dim2), side);
    sizes.insert(dim1.max(dim2), side);
    let zeros = full_on(x.device(), &sizes, Scalar::Int(0), Some(x.dtype()))?;
    zeros.diagonal_scatter(x, offset, dim1 as i64, dim2 as i64)
}
