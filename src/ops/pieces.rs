//! Pieces of a dim: one of them, or all of them in order.
//!
//! All results share the storage of the input. Negative dims count from the end. Each piece is a handle, even without
//! elements, so one call returns at most [`MAX_PIECES`].

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::shape::normalize_dim;
use crate::ir::{Category, DType};
use crate::ops::arguments::{count, int};
use crate::ops::composite::Composite;
use crate::ops::dims::Dims;
use crate::ops::joins::cat;
use crate::tensor::handle::Tensor;

static SPLIT: Composite =
    Composite::new("split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]").with_copy();
static SPLIT_WITH_SIZES: Composite =
    Composite::new("split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]").with_copy();
static UNBIND: Composite = Composite::new("unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]").with_copy();
static NARROW: Composite =
    Composite::new("narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)").with_copy();
static CHUNK: Composite = Composite::new("chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]");
static TENSOR_SPLIT: Composite =
    Composite::new("tensor_split.sections(Tensor(a -> *) self, SymInt sections, int dim=0) -> Tensor(a)[]");
static TENSOR_SPLIT_AT: Composite =
    Composite::new("tensor_split.indices(Tensor(a -> *) self, SymInt[] indices, int dim=0) -> Tensor(a)[]");
static TENSOR_SPLIT_BY: Composite = Composite::new(
    "tensor_split.tensor_indices_or_sections(Tensor(a -> *) self, Tensor tensor_indices_or_sections, int dim=0) -> \
     Tensor(a)[]",
);

static DIFF: Composite =
    Composite::new("diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor");

/// The maximum number of pieces of one call. Their handles alone take about a gigabyte.
const MAX_PIECES: usize = 1 << 22;

impl Tensor {
    /// The `length` elements of `dim` from `start` on. A negative start counts from the end. The result is a view.
    ///
    /// # Errors
    /// If the elements are not all inside the dim.
    #[track_caller]
    pub fn narrow(&self, dim: i64, start: i64, length: usize) -> Result<Tensor> {
        NARROW.call((self, dim, start, int(length)))
    }

    /// Splits the tensor into pieces of `size` elements along `dim`. The last piece may be shorter. The pieces are
    /// views.
    ///
    /// # Errors
    /// If the dim is out of range, if `size` is 0 although the dim has elements, or if there are more than 2²² pieces.
    #[track_caller]
    pub fn split(&self, size: usize, dim: i64) -> Result<Vec<Tensor>> {
        SPLIT.call((self, int(size), dim))
    }

    /// Splits the tensor into pieces of these sizes along `dim`. The sizes must sum to that of the dim. The pieces are
    /// views.
    ///
    /// # Errors
    /// If the dim is out of range, or if the sizes do not sum to that of the dim.
    #[track_caller]
    pub fn split_with_sizes(&self, sizes: impl Into<Dims>, dim: i64) -> Result<Vec<Tensor>> {
        SPLIT_WITH_SIZES.call((self, sizes.into().as_slice(), dim))
    }

    /// Splits the tensor into at most `n` pieces of equal size along `dim`. The last piece may be shorter. There are
    /// fewer than `n` if the elements run out. The pieces are views.
    ///
    /// # Errors
    /// If the dim is out of range, if `n` is 0, or if there are more than 2²² pieces.
    #[track_caller]
    pub fn chunk(&self, n: usize, dim: i64) -> Result<Vec<Tensor>> {
        CHUNK.call((self, int(n), dim))
    }

    /// Splits the tensor into `n` pieces along `dim`. If they cannot have equal sizes, the first ones have one element
    /// more. The pieces are views.
    ///
    /// # Errors
    /// If the dim is out of range, or if `n` is 0 or more than 2²².
    #[track_caller]
    pub fn tensor_split(&self, n: usize, dim: i64) -> Result<Vec<Tensor>> {
        TENSOR_SPLIT.call((self, int(n), dim))
    }

    /// Splits the tensor along `dim` before each of `indices`. An index is interpreted as in [`Tensor::slice`]. The
    /// pieces are views.
    ///
    /// # Errors
    /// If the dim is out of range.
    #[track_caller]
    pub fn tensor_split_at(&self, indices: impl Into<Dims>, dim: i64) -> Result<Vec<Tensor>> {
        TENSOR_SPLIT_AT.call((self, indices.into().as_slice(), dim))
    }

    /// Like [`Tensor::tensor_split`] with a 0-dim i64 tensor, and like [`Tensor::tensor_split_at`] with a 1-dim one.
    /// Its values are read, which is a graph break.
    ///
    /// # Errors
    /// If the tensor has more dims, another dtype or no data, or if the corresponding method fails.
    #[track_caller]
    pub fn tensor_split_by(&self, tensor: &Tensor, dim: i64) -> Result<Vec<Tensor>> {
        TENSOR_SPLIT_BY.call((self, tensor, dim))
    }

    /// The differences of neighbours along `dim`, taken `n` times: `x[i + 1] - x[i]`. The dim gets shorter by `n`, at
    /// most to 0. Truth values give whether neighbours differ.
    ///
    /// # Errors
    /// If the tensor has no dims, if the dim is out of range, or if `n` is negative.
    #[track_caller]
    pub fn diff(&self, n: i64, dim: i64) -> Result<Tensor> {
        DIFF.call((self, n, dim, None::<&Tensor>, None::<&Tensor>))
    }

    /// Splits the tensor into one tensor per index of `dim`, which is removed. The results are views.
    ///
    /// # Errors
    /// If the dim is out of range, or if it has more than 2²² indices.
    #[track_caller]
    pub fn unbind(&self, dim: i64) -> Result<Vec<Tensor>> {
        UNBIND.call((self, dim))
    }

    fn piece(&self, dim: i64, start: usize, end: usize) -> Result<Tensor> {
        self.slice(dim, start as i64, end.min(i64::MAX as usize) as i64, 1)
    }

    /// The size of a dim. A 0-dim tensor has none.
    fn size_of(&self, op: &str, dim: i64) -> Result<i64> {
        if self.dim() == 0 {
            let what = format!("{op} expects at least a 1-dimensional tensor");
            return Err(Error::shape(op, what, "unsqueeze it first"));
        }
        Ok(self.sizes()[normalize_dim(op, dim, self.dim())?] as i64)
    }
}

fn diff(x: &Tensor, n: i64, dim: i64, prepend: Option<&Tensor>, append: Option<&Tensor>) -> Result<Tensor> {
    let size = x.size_of("diff", dim)?;
    let Ok(times) = u64::try_from(n) else {
        return Err(Error::argument("diff", format!("order n is {n}, and must not be negative")));
    };
    let parts: Vec<&Tensor> = [prepend, Some(x), append].into_iter().flatten().collect();
    if times == 0 {
        return x.copy();
    }
    let mut all = if parts.len() == 1 { x.clone() } else { cat(&parts, dim)? };
    // More differences than there are elements leave none.
    let most = if parts.len() == 1 { size } else { all.size_of("diff", dim)? };
    for _ in 0..times.min(most.unsigned_abs().max(1)) {
        let (next, this) = (all.slice(dim, 1, i64::MAX, 1)?, all.slice(dim, 0, -1, 1)?);
        all = if x.dtype() == DType::Bool { next.ne(&this)? } else { next.sub(&this)? };
    }
    Ok(all)
}

/// Checks that this many pieces can be returned.
fn countable(op: &str, n_pieces: usize) -> Result<usize> {
    if n_pieces <= MAX_PIECES {
        return Ok(n_pieces);
    }
    let what = format!("{n_pieces} pieces were asked for, and one call gives {MAX_PIECES} at most");
    Err(Error::argument(op, format!("{what}; ask for fewer, or take those that are wanted with select or narrow")))
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&DIFF, diff)?
        .composite(&SPLIT, split)?
        .composite(&SPLIT_WITH_SIZES, split_with_sizes)?
        .composite(&UNBIND, unbind)?
        .composite(&NARROW, narrow)?
        .def_kernel("narrow.Tensor(Tensor(a) self, int dim, Tensor start, SymInt length) -> Tensor(a)", narrow_from)?
        .def_kernel(
            "split.sizes(Tensor(a -> *) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]",
            |x: &Tensor, sizes: &[i64], dim: i64| x.split_with_sizes(sizes, dim),
        )?
        .composite(&CHUNK, chunk)?
        .composite(&TENSOR_SPLIT, tensor_split)?
        .composite(&TENSOR_SPLIT_AT, tensor_split_at)?
        .composite(&TENSOR_SPLIT_BY, tensor_split_by)?;
    Ok(())
}

fn narrow_from(x: &Tensor, dim: i64, start: &Tensor, n: i64) -> Result<Tensor> {
    if start.dim() != 0 || start.dtype().category() != Category::Integer {
        let what = format!("start must be a 0-dim integral tensor, but is {}", start.ty());
        return Err(Error::shape("narrow", what, "select one element first, or pass a number"));
    }
    narrow(x, dim, start.to_dtype(DType::I64)?.item()?, n)
}

/// Checks a number of elements.
fn length(op: &str, number: i64) -> Result<usize> {
    count(op, number).map_err(|_| {
        let what = format!("{op} expects a length that is non-negative, but got {number}");
        Error::shape(op, what, "lengths count elements")
    })
}

/// The piece from `start` on.
fn narrow(x: &Tensor, dim: i64, start: i64, n: i64) -> Result<Tensor> {
    let length = length("narrow", n)?;
    let size = x.size_of("narrow", dim)?;
    if start < -size || start > size {
        return Err(Error::out_of_range("narrow", "start", [-size, size], start));
    }
    let from = if start < 0 { start + size } else { start };
    match i64::try_from(length).ok().and_then(|length| from.checked_add(length)) {
        Some(end) if end <= size => x.slice(dim, from, end, 1),
        Some(_) | None => {
            let what = format!("start ({start}) + length ({length}) exceeds dimension size ({size})");
            Err(Error::shape("narrow", what, "stay inside the dim"))
        }
    }
}

fn split(x: &Tensor, size: i64, dim: i64) -> Result<Vec<Tensor>> {
    let size = length("split", size)?;
    let total = x.size_of("split", dim)? as usize;
    if size == 0 && total != 0 {
        let what = format!("split_size can only be 0 if dimension size is 0, but got dimension size of {total}");
        return Err(Error::shape("split", what, "pass a positive size"));
    }
    let n_pieces = if size == 0 { 1 } else { total.div_ceil(size).max(1) };
    (0..countable("split", n_pieces)?)
        .map(|piece| x.piece(dim, piece * size, (piece * size).saturating_add(size)))
        .collect()
}

fn split_with_sizes(x: &Tensor, sizes: &[i64], dim: i64) -> Result<Vec<Tensor>> {
    let total = x.size_of("split_with_sizes", dim)?;
    let sum = sizes.iter().try_fold(0i64, |sum, &size| sum.checked_add(size).filter(|_| size >= 0));
    if sum != Some(total) {
        let what = format!(
            "split_with_sizes expects split_sizes to be non-negative and to sum exactly to {total} (input \
             tensor's size at dimension {dim}), but got split_sizes={:?}",
            sizes
        );
        return Err(Error::shape("split_with_sizes", what, "cover the dim exactly"));
    }
    let mut start = 0;
    let piece = |&size: &i64| {
        start += size;
        x.slice(dim, start - size, start, 1)
    };
    sizes.iter().map(piece).collect()
}

fn chunk(x: &Tensor, n: i64, dim: i64) -> Result<Vec<Tensor>> {
    let n = length("chunk", n)?;
    let total = x.size_of("chunk", dim)? as usize;
    match (n, total) {
        (0, _) => Err(Error::argument("chunk", "cannot make 0 pieces; pass a positive number")),
        // A dim without elements gives `n` empty pieces.
        (n, 0) => (0..countable("chunk", n)?).map(|_| x.piece(dim, 0, 0)).collect(),
        (n, total) => x.split(total.div_ceil(n), dim),
    }
}

fn tensor_split(x: &Tensor, n: i64, dim: i64) -> Result<Vec<Tensor>> {
    let n = usize::try_from(n).unwrap_or(0);
    let total = x.size_of("tensor_split", dim)? as usize;
    if n == 0 {
        return Err(Error::argument("tensor_split", "number of sections must be larger than 0"));
    }
    let start = |piece: usize| piece * (total / n) + piece.min(total % n);
    (0..countable("tensor_split", n)?).map(|piece| x.piece(dim, start(piece), start(piece + 1))).collect()
}

fn tensor_split_at(x: &Tensor, indices: &[i64], dim: i64) -> Result<Vec<Tensor>> {
    x.size_of("tensor_split", dim)?;
    let starts = std::iter::once(0).chain(indices.iter().copied());
    let ends = indices.iter().copied().map(Some).chain([None]);
    starts.zip(ends).map(|(start, end)| x.slice(dim, start, end, 1)).collect()
}

fn tensor_split_by(x: &Tensor, tensor: &Tensor, dim: i64) -> Result<Vec<Tensor>> {
    if tensor.dtype() != DType::I64 || tensor.dim() > 1 {
        let what = format!(
            "tensor_split expected tensor_indices_or_sections to be an i64 tensor of at most one dim, but got {}",
            tensor.ty()
        );
        return Err(Error::shape("tensor_split", what, "pass a count or a list of indices"));
    }
    let numbers: Vec<i64> = tensor.to_vec()?;
    if tensor.dim() == 1 {
        return x.tensor_split_at(numbers, dim);
    }
    let n = numbers.first().and_then(|&n| usize::try_from(n).ok());
    x.tensor_split(n.unwrap_or(0), dim)
}

fn unbind(x: &Tensor, dim: i64) -> Result<Vec<Tensor>> {
    let at = normalize_dim("unbind", dim, x.dim())?;
    let Some(&size) = x.sizes().get(at) else {
        return Err(Error::index("unbind", "a 0-dim tensor has no dims", "unsqueeze it first"));
    };
    (0..countable("unbind", size)?).map(|index| x.select(dim, index as i64)).collect()
}
