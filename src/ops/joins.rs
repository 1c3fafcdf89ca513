//! Tensors joined, padded, written over, reversed, rolled and repeated. Everything here copies.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::shape::normalize_dim;
use crate::ir::{Attr, MemoryFormat, Op, Scalar};
use crate::ops::dims::Dims;
use crate::ops::factories::full_on;
use crate::tensor::handle::Tensor;

/// Tensors side by side along `dim`. All other sizes must be equal; dtypes are promoted. A 1-dim tensor without
/// elements goes with any shape.
///
/// # Errors
/// If there are no tensors, they are 0-dim, other sizes differ, or the dim is out of range.
pub fn cat(tensors: &[&Tensor], dim: i64) -> Result<Tensor> {
    if tensors.is_empty() {
        return Err(Error::argument("cat", "expected a non-empty list of tensors"));
    }
    call(Op::Cat, tensors, &[Attr::int(dim)])
}

/// Tensors of one shape along a new dim in front of `dim`; −1 puts it last. Dtypes are promoted.
///
/// # Errors
/// If there are no tensors, sizes differ, or the dim is out of range.
pub fn stack(tensors: &[&Tensor], dim: i64) -> Result<Tensor> {
    let Some(first) = tensors.first() else {
        return Err(Error::argument("stack", "expected a non-empty list of tensors"));
    };
    if let Some(other) = tensors.iter().find(|tensor| tensor.sizes() != first.sizes()) {
        let what = format!(
            "stack expects each tensor to be equal size, but got {:?} beside {:?}",
            first.sizes(),
            other.sizes()
        );
        return Err(Error::shape("stack", what, "all must have one shape; cat joins along a dim"));
    }
    let lifted = tensors.iter().map(|tensor| tensor.unsqueeze(dim)).collect::<Result<Vec<_>>>()?;
    cat(&lifted.iter().collect::<Vec<_>>(), dim)
}

/// Rows of the 2-dim `weight` named by the integer tensor `ids`: the sizes of `ids`, then that of a row. The dtype is
/// the weight's.
///
/// # Errors
/// If the weight is not 2-dim, the ids are not integers, or an id is out of range.
pub fn embedding(weight: &Tensor, ids: &Tensor) -> Result<Tensor> {
    call(Op::Embedding, &[weight, ids], &[Attr::int(-1), Attr::bool(false), Attr::bool(false)])
}

/// Elements copied to other places.
impl Tensor {
    /// Room around the elements, filled with `value`; negative numbers cut off. `pad` holds pairs (before, behind), the
    /// last dim's first; dims without a pair stay. Dtype is kept.
    ///
    /// # Errors
    /// If `pad` is no list of pairs, has too many of them, or cuts off more than there is.
    pub fn constant_pad_nd(&self, pad: impl Into<Dims>, value: impl Into<Scalar>) -> Result<Tensor> {
        call(Op::ConstantPadNd, &[self], &[Attr::ints(pad.into().as_slice()), Attr::Scalar(value.into())])
    }

    /// A copy with index `index` of `dim` replaced by `src`, which lacks that dim and is converted. Sizes and dtype are
    /// kept.
    ///
    /// # Errors
    /// If the dim or the index is out of range, or the sizes differ.
    pub fn select_scatter(&self, src: &Tensor, dim: i64, index: i64) -> Result<Tensor> {
        call(Op::SelectScatter, &[self, src], &[Attr::int(dim), Attr::int(index)])
    }

    /// A copy with what [`Tensor::slice`] shows replaced by `src`, which is converted. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If the dim is out of range, the step is not positive, or the sizes differ.
    pub fn slice_scatter(
        &self,
        src: &Tensor,
        dim: i64,
        start: impl Into<Option<i64>>,
        end: impl Into<Option<i64>>,
        step: i64,
    ) -> Result<Tensor> {
        let bound = |bound: Option<i64>| bound.map_or(Attr::None, Attr::int);
        let attrs = [Attr::int(dim), bound(start.into()), bound(end.into()), Attr::int(step)];
        call(Op::SliceScatter, &[self, src], &attrs)
    }

    /// A copy with what [`Tensor::diagonal`] shows replaced by `src`, which is converted. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If a dim is out of range, both are the same, or the sizes differ.
    pub fn diagonal_scatter(&self, src: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        call(Op::DiagonalScatter, &[self, src], &[Attr::int(offset), Attr::int(dim1), Attr::int(dim2)])
    }

    /// Elements in reverse order along `dims`; `()` reverses nothing. A copy. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    pub fn flip(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        call(Op::Flip, &[self], &[Attr::ints(dims.into().as_slice())])
    }

    /// The tensor `repeats` times along each dim; counts of dims that it lacks come first. A copy. The dtype is kept.
    ///
    /// # Errors
    /// If there are fewer counts than dims, or a count is negative.
    pub fn repeat(&self, repeats: impl Into<Dims>) -> Result<Tensor> {
        call(Op::Repeat, &[self], &[Attr::ints(repeats.into().as_slice())])
    }
}

/// Elements rearranged.
impl Tensor {
    /// As [`Tensor::repeat`]; missing counts, which are those of the first dims, are 1.
    ///
    /// # Errors
    /// If a count is negative.
    pub fn tile(&self, counts: impl Into<Dims>) -> Result<Tensor> {
        let counts = counts.into();
        let missing = self.dim().saturating_sub(counts.as_slice().len());
        self.repeat([&vec![1; missing], counts.as_slice()].concat())
    }

    /// Elements moved on by `shifts[i]` places along `dims[i]`, those at the end back to the start. Without dims (`()`)
    /// and with one shift, the tensor is rolled as if it had one dim. A copy. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If there are no shifts, or not one per dim, or a dim is out of range.
    pub fn roll(&self, shifts: impl Into<Dims>, dims: impl Into<Dims>) -> Result<Tensor> {
        let (shifts, dims) = (shifts.into(), dims.into());
        match (shifts.as_slice(), dims.as_slice()) {
            (&[shift], []) => self.flatten(0, -1)?.roll(shift, 0)?.reshape(self.sizes()),
            (shifts, dims) if shifts.len() != dims.len() || shifts.is_empty() => {
                let what = format!("shifts and dimensions must align. shifts: {shifts:?}, dims: {dims:?}");
                Err(Error::shape("roll", what, "give one shift per dim"))
            }
            (shifts, dims) => {
                let mut rolled = self.clone();
                for (&shift, &dim) in shifts.iter().zip(dims) {
                    rolled = rolled.rolled(shift, dim)?;
                }
                if rolled.is_handle_of(self) { self.copy() } else { Ok(rolled) }
            }
        }
    }

    fn rolled(&self, shift: i64, dim: i64) -> Result<Tensor> {
        let at = normalize_dim("roll", dim, self.dim())?;
        let Some(&size) = self.sizes().get(at) else {
            return Err(Error::index("roll", "a 0-dim tensor has no dims", "leave dims out"));
        };
        if self.numel() == 0 {
            return Ok(self.clone());
        }
        let start = (-shift).rem_euclid(size as i64);
        cat(&[&self.slice(dim, start, None, 1)?, &self.slice(dim, 0, start, 1)?], dim)
    }

    /// Turned by `n` right angles in the plane of two dims, from the first toward the second. A copy. The dtype is
    /// kept.
    ///
    /// # Errors
    /// If `dims` are not two different dims of the tensor.
    pub fn rot90(&self, n: i64, dims: impl Into<Dims>) -> Result<Tensor> {
        let dims = dims.into();
        let &[first, second] = dims.as_slice() else {
            let what = format!("expected total rotation dims == 2, but got dims = {:?}", dims.as_slice());
            return Err(Error::shape("rot90", what, "name two dims"));
        };
        if normalize_dim("rot90", first, self.dim())? == normalize_dim("rot90", second, self.dim())? {
            let what = format!("expected rotation dims to be different, but got dim0 = {first} and dim1 = {second}");
            return Err(Error::shape("rot90", what, "name two dims"));
        }
        match n.rem_euclid(4) {
            0 => self.copy(),
            1 => self.flip(second)?.transpose(first, second),
            2 => self.flip([first, second]),
            _ => self.flip(first)?.transpose(first, second),
        }
    }

    /// Of a vector, the matrix with it on diagonal number `diagonal`; of a matrix, a copy of that diagonal. The dtype
    /// is kept.
    ///
    /// # Errors
    /// If there are no dims or more than two.
    pub fn diag(&self, diagonal: i64) -> Result<Tensor> {
        match self.dim() {
            1 => self.diag_embed(diagonal, 0, 1),
            2 => call(Op::Clone, &[&self.diagonal(diagonal, 0, 1)?], &[MemoryFormat::Contiguous.into()]),
            rank => {
                let what = format!("diag(): Supports 1D or 2D tensors. Got {rank}D");
                Err(Error::shape("diag", what, "use diag_embed or diagonal for batches"))
            }
        }
    }

    /// The last dim as diagonal number `offset` of the new dims `dim1` and `dim2`, zeros beside it. The dtype is kept.
    ///
    /// # Errors
    /// If there are no dims, a new dim is out of range, or both are the same.
    pub fn diag_embed(&self, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        let rank = self.dim() + 1;
        let (dim1, dim2) = (normalize_dim("diag_embed", dim1, rank)?, normalize_dim("diag_embed", dim2, rank)?);
        let Some((&last, batch)) = self.sizes().split_last() else {
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
        let zeros = full_on(self.device(), &sizes, Scalar::Int(0), Some(self.dtype()))?;
        zeros.diagonal_scatter(self, offset, dim1 as i64, dim2 as i64)
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("stack(Tensor[] tensors, int dim=0) -> Tensor", |tensors: &[Tensor], dim: i64| {
            stack(&tensors.iter().collect::<Vec<_>>(), dim)
        })?
        .def_kernel("concat(Tensor[] tensors, int dim=0) -> Tensor", joined)?
        .def_kernel("concatenate(Tensor[] tensors, int dim=0) -> Tensor", joined)?
        .def_kernel("tile(Tensor self, SymInt[] dims) -> Tensor", |x: &Tensor, counts: &[i64]| x.tile(counts))?
        .def_kernel(
            "roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor",
            |x: &Tensor, shifts: &[i64], dims: &[i64]| x.roll(shifts, dims),
        )?
        .def_kernel("rot90(Tensor self, int k=1, int[] dims=[0,1]) -> Tensor", |x: &Tensor, n: i64, dims: &[i64]| {
            x.rot90(n, dims)
        })?
        .def_kernel("diag(Tensor self, int diagonal=0) -> Tensor", Tensor::diag)?
        .def_kernel("diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor", Tensor::diag_embed)?;
    Ok(())
}

fn joined(tensors: &[Tensor], dim: i64) -> Result<Tensor> {
    cat(&tensors.iter().collect::<Vec<_>>(), dim)
}
