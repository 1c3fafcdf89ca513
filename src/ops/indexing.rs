//! Reads and replaces elements by index tensors.
//!
//! Index tensors are i64 or i32. Negative indices count from the end in [`Tensor::index`], [`Tensor::index_put`],
//! [`Tensor::take`] and [`Tensor::take_along_dim`], and are errors elsewhere. Writes to slices are in
//! `index_slices.rs`, masks in `masks.rs`, and writes with one index per element in `scatters.rs`.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::{Along, Embedding, FlatIndex, Gather};
use crate::ir::shape::{broadcast, normalize_dim};
use crate::ir::{Attrs, DType, Op};
use crate::ops::composite::Composite;
use crate::ops::dims::ints;
use crate::ops::in_place::in_place_methods;
use crate::ops::mutation::check_target;
use crate::tensor::handle::Tensor;

static INDEX_PUT: Composite =
    Composite::new("index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor")
        .with_writes();
static PUT: Composite =
    Composite::new("put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor").with_writes();
static INDEX: Composite = Composite::new("index.Tensor(Tensor self, Tensor?[] indices) -> Tensor");
static TAKE: Composite = Composite::new("take(Tensor self, Tensor index) -> Tensor");
static TAKE_ALONG_DIM: Composite =
    Composite::new("take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor");

/// Whether a write by index returns a changed copy or changes the tensor.
#[derive(Clone, Copy)]
pub(crate) enum WriteForm {
    /// Returns a copy.
    Copy,
    /// Changes the tensor.
    InPlace,
}

impl WriteForm {
    pub(crate) fn scatter(self, x: &Tensor, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        match self {
            WriteForm::Copy => x.scatter(dim, index, source),
            WriteForm::InPlace => x.scatter_(dim, index, source).map(|()| x.clone()),
        }
    }

    pub(crate) fn scatter_add(self, x: &Tensor, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        match self {
            WriteForm::Copy => x.scatter_add(dim, index, source),
            WriteForm::InPlace => x.scatter_add_(dim, index, source).map(|()| x.clone()),
        }
    }

    /// Applies `write` to `part`, and returns `x` after the write. `part` has the elements of `x` in another shape. It
    /// is a view of `x`, or a copy.
    fn through(self, x: &Tensor, part: &Tensor, write: impl FnOnce(WriteForm) -> Result<Tensor>) -> Result<Tensor> {
        if part.has_storage_of(x) { write(self) } else { self.settled(x, write(WriteForm::Copy)?) }
    }

    /// Returns the new `result`, or copies it into `x`, depending on the form.
    fn settled(self, x: &Tensor, result: Tensor) -> Result<Tensor> {
        match self {
            WriteForm::Copy => Ok(result),
            WriteForm::InPlace => x.copy_(&result).map(|()| x.clone()),
        }
    }
}

/// The target of index tensors: the indexed dims, moved next to each other and joined into one, and an index into the
/// joined dim.
struct Target {
    /// The permutation that moves the indexed dims next to each other, if they are not.
    order: Option<Vec<i64>>,
    /// The sizes after the permutation.
    sizes: Vec<usize>,
    /// The first of the indexed dims.
    first: usize,
    /// One past the last of the indexed dims.
    end: usize,
    /// The index into the joined dim. Its shape replaces the indexed dims in the result.
    index: Tensor,
}

impl Target {
    /// The target of `indices`, one per dim from the first on. `None` if no dim is indexed.
    fn new(op: &str, x: &Tensor, indices: &[Option<Tensor>]) -> Result<Option<Target>> {
        let indices = without_masks(op, x, indices)?;
        let named: Vec<usize> = (0..indices.len()).filter(|&dim| indices[dim].is_some()).collect();
        let tensors: Vec<&Tensor> = indices.iter().flatten().collect();
        let (Some(&first), Some(&last), Some(shape)) = (named.first(), named.last(), common_shape(op, &tensors)?)
        else {
            return Ok(None);
        };
        let spread = tensors.iter().map(|index| index.expand(&shape[..])).collect::<Result<Vec<Tensor>>>()?;
        let dims: Vec<i64> = named.iter().map(|&dim| x.sizes()[dim] as i64).collect();
        let index = flat_index(&spread.iter().collect::<Vec<_>>(), &dims, true)?;
        let are_neighbours = last + 1 - first == named.len();
        if are_neighbours {
            return Ok(Some(Target { order: None, sizes: x.sizes().to_vec(), first, end: last + 1, index }));
        }
        // If the indexed dims are not adjacent, they move to the front. Their replacement is there too.
        let rest = (0..x.dim()).filter(|dim| !named.contains(dim));
        let order: Vec<usize> = named.iter().copied().chain(rest).collect();
        let sizes = order.iter().map(|&dim| x.sizes()[dim]).collect();
        let order = Some(order.iter().map(|&dim| dim as i64).collect());
        Ok(Some(Target { order, sizes, first: 0, end: named.len(), index }))
    }

    /// Joins the indexed dims of `x`.
    fn joined(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.order.as_ref().map_or_else(|| Ok(x.clone()), |order| x.permute(&order[..]))?;
        let dims: usize = self.sizes[self.first..self.end].iter().product();
        x.reshape(&self.around(&[dims])[..])
    }

    /// The sizes with the indexed dims replaced by others.
    fn around(&self, sizes: &[usize]) -> Vec<usize> {
        [&self.sizes[..self.first], sizes, &self.sizes[self.end..]].concat()
    }

    /// The inverse of [`Target::joined`].
    fn parted(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.reshape(&self.sizes[..])?;
        let Some(order) = &self.order else { return Ok(x) };
        let mut back = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(&dim, place)| back[dim as usize] = place);
        x.permute(back)
    }
}

/// Replaces every mask by one index tensor for each of its dims.
fn without_masks(op: &str, x: &Tensor, indices: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
    let mut out: Vec<Option<Tensor>> = Vec::with_capacity(indices.len());
    for index in indices {
        match index {
            Some(mask) if matches!(mask.dtype(), DType::Bool | DType::U8) => {
                let covered = x.sizes().get(out.len()..out.len() + mask.dim());
                if covered != Some(mask.sizes()) {
                    let what = format!("the mask has shape {:?}, the tensor {:?}", mask.sizes(), x.sizes());
                    return Err(Error::index(op, what, "a mask has the sizes of the dims that it is for"));
                }
                out.extend(mask.nonzero()?.unbind(1)?.into_iter().map(Some));
            }
            Some(index) if !matches!(index.dtype(), DType::I64 | DType::I32) => {
                let what = format!("found an index of dtype {}", index.dtype());
                return Err(Error::index(op, what, "tensors used as indices must be i64, i32, u8 or bool tensors"));
            }
            other => out.push(other.clone()),
        }
    }
    if out.len() > x.dim() {
        let what = format!("too many indices for a tensor of shape {:?}: {}", x.sizes(), out.len());
        return Err(Error::index(op, what, "give at most one per dim"));
    }
    Ok(out)
}

/// The shape that the index tensors broadcast to. `None` if there are none.
fn common_shape(op: &str, tensors: &[&Tensor]) -> Result<Option<Vec<usize>>> {
    let Some((first, rest)) = tensors.split_first() else { return Ok(None) };
    let mut shape = first.sizes().to_vec();
    for tensor in rest {
        let joined = broadcast(op, &shape, tensor.sizes()).map_err(|_| {
            let shapes: Vec<String> = tensors.iter().map(|tensor| format!("{:?}", tensor.sizes())).collect();
            let what = format!(
                "shape mismatch: indexing tensors could not be broadcast together with shapes {}",
                shapes.join(", ")
            );
            Error::index(op, what, "sizes must be equal or 1")
        })?;
        shape = joined.to_vec();
    }
    Ok(Some(shape))
}

/// Checks index tensors, one for each of the dims with these sizes, and combines them into one index into the joined
/// dims.
pub(crate) fn flat_index(indices: &[&Tensor], sizes: &[i64], wrap: bool) -> Result<Tensor> {
    call(Op::FlatIndex, indices, &Attrs::from(FlatIndex { sizes: ints(sizes), wrap }))
}

/// Indexing by tensors.
impl Tensor {
    /// The slices `index[i]` along `dim`. `index` is a 1-dim integer tensor, and its size becomes that of `dim`. The
    /// dtype is kept.
    ///
    /// # Errors
    /// If an index or the dim is out of range, or if the index is not a 1-dim integer tensor.
    #[track_caller]
    pub fn index_select(&self, dim: i64, index: &Tensor) -> Result<Tensor> {
        call(Op::IndexSelect, &[self, index], &Attrs::from(Along { dim }))
    }

    /// Gathers elements along `dim`. For `dim` 0: `out[i, j] = self[index[i, j], j]`. The result has the sizes of
    /// `index`. The dtype is kept.
    ///
    /// # Errors
    /// If an index or the dim is out of range, if the index is not an integer tensor of the same rank, or if it is
    /// larger than `self` in another dim.
    #[track_caller]
    pub fn gather(&self, dim: i64, index: &Tensor) -> Result<Tensor> {
        call(Op::Gather, &[self, index], &Attrs::from(Gather { dim, sparse_grad: false }))
    }

    /// The elements at positions given by index tensors, one per dim, from the first dim on. `None` takes a whole dim.
    /// The index tensors are broadcast to a common shape. It replaces the indexed dims, or comes first if these are not
    /// adjacent. A bool mask stands for as many dims as it has, and selects the positions where it is true. The dtype
    /// is kept.
    ///
    /// # Errors
    /// If an index is out of range or of another dtype, if there are more indices than dims, or if shapes do not fit.
    #[track_caller]
    pub fn index(&self, indices: &[Option<Tensor>]) -> Result<Tensor> {
        INDEX.call((self, indices))
    }

    /// A copy of the tensor in which the elements that [`Tensor::index`] would return are replaced by `values`, which
    /// are broadcast. With `accumulate` the values are added instead. If several values go to one position, the last
    /// one stays. Sizes and dtype are kept.
    ///
    /// # Errors
    /// Same as [`Tensor::index`]. Also if the dtypes differ, or if the values do not broadcast.
    #[track_caller]
    pub fn index_put(&self, indices: &[Option<Tensor>], values: &Tensor, accumulate: bool) -> Result<Tensor> {
        INDEX_PUT.call((self, indices, values, accumulate))
    }

    in_place_methods! {
        index_put index_put_ INDEX_PUT (indices: &[Option<Tensor>], values: &Tensor, accumulate: bool)
            (self, indices, values, accumulate);
    }

    fn index_put_as(
        &self,
        form: WriteForm,
        indices: &[Option<Tensor>],
        values: &Tensor,
        accumulate: bool,
    ) -> Result<Tensor> {
        if values.dtype() != self.dtype() {
            let hint = "source and destination dtypes must match; convert the values";
            return Err(Error::dtype("index_put", values.dtype(), self.dtype().name(), hint));
        }
        let Some(target) = Target::new("index_put", self, indices)? else {
            let values = values.expand(self.sizes())?;
            return form.settled(self, if accumulate { self.add(&values) } else { values.copy() }?);
        };
        let count = target.index.numel();
        let chosen = target.around(target.index.sizes());
        let values = values.expand(&chosen[..]).map_err(|_| {
            let what = format!("values of shape {:?} do not broadcast to {chosen:?}", values.sizes());
            Error::shape("index_put", what, "that is the shape of what the indices name")
        })?;
        let flat = target.around(&[count]);
        let values = values.reshape(&flat[..])?;
        let index = along(&target.index.reshape([-1])?, target.first, &flat)?;
        let joined = target.joined(self)?;
        let write = if accumulate { WriteForm::scatter_add } else { WriteForm::scatter };
        form.through(self, &joined, |form| target.parted(&write(form, &joined, target.first as i64, &index, &values)?))
    }

    /// The elements at positions of the tensor in row-major order. Negative positions count from the end. The result
    /// has the sizes of `index`. The dtype is kept.
    ///
    /// # Errors
    /// If an index is out of range, or if it is not i64.
    #[track_caller]
    pub fn take(&self, index: &Tensor) -> Result<Tensor> {
        TAKE.call((self, index))
    }

    /// A copy of the tensor in which the elements at positions in row-major order are replaced by those of `source`.
    /// With `accumulate` they are added instead. Negative positions count from the end. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If an index is out of range or not i64, or if `source` has another number of elements or another dtype.
    #[track_caller]
    pub fn put(&self, index: &Tensor, source: &Tensor, accumulate: bool) -> Result<Tensor> {
        PUT.call((self, index, source, accumulate))
    }

    in_place_methods! {
        put put_ PUT (index: &Tensor, source: &Tensor, accumulate: bool) (self, index, source, accumulate);
    }

    fn put_as(&self, form: WriteForm, index: &Tensor, source: &Tensor, accumulate: bool) -> Result<Tensor> {
        if index.numel() != source.numel() {
            let what = format!("index of shape {:?} and source of {:?}", index.sizes(), source.sizes());
            return Err(Error::shape("put", what, "both must have as many elements"));
        }
        let index = Some(flat_index(&[index], &[self.numel() as i64], true)?.reshape([-1])?);
        let values = source.reshape([-1])?;
        let line = self.reshape([-1])?;
        form.through(self, &line, |form| line.index_put_as(form, &[index], &values, accumulate)?.reshape(self.sizes()))
    }

    /// Like [`Tensor::gather`], but the sizes of `self` and `indices` are broadcast in all dims except `dim`. Without a
    /// dim both are read in row-major order. Negative indices count from the end. The dtype is kept.
    ///
    /// # Errors
    /// If an index or the dim is out of range, if ranks differ, or if sizes do not broadcast.
    #[track_caller]
    pub fn take_along_dim(&self, indices: &Tensor, dim: impl Into<Option<i64>>) -> Result<Tensor> {
        TAKE_ALONG_DIM.call((self, indices, dim.into()))
    }
}

/// The rows of the 2-dim `weight` with the numbers `ids`, an integer tensor. The result has the sizes of `ids`, and
/// then the size of a row. The dtype is that of `weight`.
///
/// # Errors
/// If the weight is not 2-dim, if the ids are not integers, or if an id is out of range.
#[track_caller]
pub fn embedding(weight: &Tensor, ids: &Tensor) -> Result<Tensor> {
    let attrs = Attrs::from(Embedding { padding_idx: -1, scale_grad_by_freq: false, sparse: false });
    call(Op::Embedding, &[weight, ids], &attrs)
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&INDEX, index)?
        .composite_and_in_place(
            &INDEX_PUT,
            |x: &Tensor, indices: &[Option<Tensor>], values: &Tensor, accumulate: bool| {
                x.index_put_as(WriteForm::Copy, indices, values, accumulate)
            },
            // The in-place form has a kernel of its own, which touches only the indexed elements.
            |x: &Tensor, indices: &[Option<Tensor>], values: &Tensor, accumulate: bool| {
                check_target("aten::index_put", x)?;
                x.index_put_as(WriteForm::InPlace, indices, values, accumulate).map(|_| x.clone())
            },
        )?
        .composite(&TAKE, take)?
        .composite_and_in_place(
            &PUT,
            |x: &Tensor, index: &Tensor, source: &Tensor, accumulate: bool| {
                x.put_as(WriteForm::Copy, index, source, accumulate)
            },
            |x: &Tensor, index: &Tensor, source: &Tensor, accumulate: bool| {
                check_target("aten::put", x)?;
                x.put_as(WriteForm::InPlace, index, source, accumulate).map(|_| x.clone())
            },
        )?
        .composite(&TAKE_ALONG_DIM, take_along_dim)?;
    Ok(())
}

pub(crate) fn at_least_1d(x: &Tensor) -> Result<Tensor> {
    if x.dim() == 0 { x.reshape([1]) } else { Ok(x.clone()) }
}

/// Expands a 1-dim index along a dim to `sizes`.
pub(crate) fn along(index: &Tensor, dim: usize, sizes: &[usize]) -> Result<Tensor> {
    let mut column = vec![1; sizes.len()];
    column[dim] = index.numel();
    index.reshape(&column[..])?.expand(sizes)
}

fn index(x: &Tensor, indices: &[Option<Tensor>]) -> Result<Tensor> {
    let Some(target) = Target::new("index", x, indices)? else { return x.copy() };
    let flat = target.index.reshape([-1])?;
    let chosen = target.joined(x)?.index_select(target.first as i64, &flat)?;
    chosen.reshape(&target.around(target.index.sizes())[..])
}

fn take(x: &Tensor, index: &Tensor) -> Result<Tensor> {
    if index.dtype() != DType::I64 {
        return Err(Error::dtype("take", index.dtype(), "i64", "convert the index with to_dtype(DType::I64)"));
    }
    let flat = flat_index(&[index], &[x.numel() as i64], true).map_err(|error| error.of("take"))?;
    x.reshape([-1])?.index_select(0, &flat.reshape([-1])?)?.reshape(index.sizes())
}

fn take_along_dim(x: &Tensor, indices: &Tensor, dim: Option<i64>) -> Result<Tensor> {
    let Some(dim) = dim else {
        return x.reshape([-1])?.take_along_dim(&indices.reshape([-1])?, 0);
    };
    if x.dim() != indices.dim() {
        let what = format!("the input has shape {:?}, the indices {:?}", x.sizes(), indices.sizes());
        return Err(Error::shape("take_along_dim", what, "both must have the same number of dims"));
    }
    let at = normalize_dim("take_along_dim", dim, x.dim())?;
    let (mut own, mut other) = (x.sizes().to_vec(), indices.sizes().to_vec());
    if x.dim() > 0 {
        (own[at], other[at]) = (1, 1);
    }
    let mut sizes = broadcast("take_along_dim", &own, &other)?.to_vec();
    let mut spread = |x: &Tensor| {
        if let Some(along) = sizes.get_mut(at) {
            *along = x.sizes()[at];
        }
        x.expand(&sizes[..])
    };
    let size = x.sizes().get(at).copied().unwrap_or(1) as i64;
    let wrapped = indices.lt(0)?.where_(&indices.add(size)?, indices)?;
    let (x, indices) = (spread(x)?, spread(&wrapped)?);
    x.gather(dim, &indices)
}
