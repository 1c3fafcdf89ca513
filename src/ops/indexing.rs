//! Elements by index tensors: what indices name, read or replaced.
//!
//! Index tensors are i64 or i32. Where nothing else is said, indices must not be negative. [`Tensor::index`],
//! [`Tensor::index_put`], [`Tensor::take`] and [`Tensor::take_along_dim`] count negative ones from the end. Writes to
//! whole slices are in `index_slices.rs`, masks in `masks.rs`, writes with one index per element in `scatters.rs`.

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

/// Whether a write by index gives a changed copy, or changes the tensor.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// A copy.
    Copy,
    /// The tensor itself.
    InPlace,
}

impl Form {
    pub(crate) fn scatter(self, x: &Tensor, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        match self {
            Form::Copy => x.scatter(dim, index, source),
            Form::InPlace => x.scatter_(dim, index, source).map(|()| x.clone()),
        }
    }

    pub(crate) fn scatter_add(self, x: &Tensor, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        match self {
            Form::Copy => x.scatter_add(dim, index, source),
            Form::InPlace => x.scatter_add_(dim, index, source).map(|()| x.clone()),
        }
    }

    /// The result of `write` on `x` through `part`, which holds the elements of `x` in another shape, or copies of
    /// them.
    fn through(self, x: &Tensor, part: &Tensor, write: impl FnOnce(Form) -> Result<Tensor>) -> Result<Tensor> {
        if part.has_storage_of(x) { write(self) } else { self.settled(x, write(Form::Copy)?) }
    }

    /// `result`, which is new, as the form has it.
    fn settled(self, x: &Tensor, result: Tensor) -> Result<Tensor> {
        match self {
            Form::Copy => Ok(result),
            Form::InPlace => x.copy_(&result).map(|()| x.clone()),
        }
    }
}

/// What index tensors name: dims of a tensor, brought next to each other and joined into one, and an index into it.
struct Target {
    /// The order that brings the dims next to each other, if they are not.
    order: Option<Vec<i64>>,
    /// The sizes in that order.
    sizes: Vec<usize>,
    /// The first of the dims.
    first: usize,
    /// One past the last.
    end: usize,
    /// The index into the joined dims, of the shape that takes their place.
    index: Tensor,
}

impl Target {
    /// What `indices`, one per dim from the first on, name of `x`; `None` if they name no dim.
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
        // Dims that are apart go to the front, and so does what takes their place.
        let rest = (0..x.dim()).filter(|dim| !named.contains(dim));
        let order: Vec<usize> = named.iter().copied().chain(rest).collect();
        let sizes = order.iter().map(|&dim| x.sizes()[dim]).collect();
        let order = Some(order.iter().map(|&dim| dim as i64).collect());
        Ok(Some(Target { order, sizes, first: 0, end: named.len(), index }))
    }

    /// `x` with the dims joined.
    fn joined(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.order.as_ref().map_or_else(|| Ok(x.clone()), |order| x.permute(&order[..]))?;
        let dims: usize = self.sizes[self.first..self.end].iter().product();
        x.reshape(&self.around(&[dims])[..])
    }

    /// The sizes with others in place of the dims.
    fn around(&self, sizes: &[usize]) -> Vec<usize> {
        [&self.sizes[..self.first], sizes, &self.sizes[self.end..]].concat()
    }

    /// Undoes [`Target::joined`].
    fn parted(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.reshape(&self.sizes[..])?;
        let Some(order) = &self.order else { return Ok(x) };
        let mut back = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(&dim, place)| back[dim as usize] = place);
        x.permute(back)
    }
}

/// Indices with every mask replaced by one index tensor per dim of it.
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

/// The shape that index tensors broadcast to; `None` if there are none.
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

/// Index tensors, one for each of dims of these sizes, as one index into the dims joined, checked.
pub(crate) fn flat_index(indices: &[&Tensor], sizes: &[i64], wrap: bool) -> Result<Tensor> {
    call(Op::FlatIndex, indices, &Attrs::from(FlatIndex { sizes: ints(sizes), wrap }))
}

/// Elements that indices name.
impl Tensor {
    /// The slices of `dim` that the 1-dim integer tensor `index` names; `dim` gets the size of the index. The dtype is
    /// kept.
    ///
    /// # Errors
    /// If an index or the dim is out of range, or the index is not a 1-dim integer tensor.
    pub fn index_select(&self, dim: i64, index: &Tensor) -> Result<Tensor> {
        call(Op::IndexSelect, &[self, index], &Attrs::from(Along { dim }))
    }

    /// Where `dim` is 0: `out[i, j] = self[index[i, j], j]`. The result has the sizes of `index`. The dtype is kept.
    ///
    /// # Errors
    /// If an index or the dim is out of range, the index is not an integer tensor of the same rank, or it is larger
    /// than `self` in another dim.
    pub fn gather(&self, dim: i64, index: &Tensor) -> Result<Tensor> {
        call(Op::Gather, &[self, index], &Attrs::from(Gather { dim, sparse_grad: false }))
    }

    /// The elements that index tensors, one per dim, name together; a dim without one is taken whole. The indices are
    /// broadcast; their common shape takes the place of the dims, or goes in front if these are not neighbours. A bool
    /// mask stands for as many dims as it has and for the places where it holds. The dtype is kept.
    ///
    /// # Errors
    /// If an index is out of range or of another dtype, there are more than dims, or shapes do not fit.
    pub fn index(&self, indices: &[Option<Tensor>]) -> Result<Tensor> {
        let Some(target) = Target::new("index", self, indices)? else { return self.copy() };
        let flat = target.index.reshape([-1])?;
        let chosen = target.joined(self)?.index_select(target.first as i64, &flat)?;
        chosen.reshape(&target.around(target.index.sizes())[..])
    }

    /// A copy where what [`Tensor::index`] would give is replaced by `values`, which are broadcast, or where they are
    /// added to it if `accumulate`. Of several writes to one place the last stays. Sizes and dtype are kept.
    ///
    /// # Errors
    /// As [`Tensor::index`], and if the dtypes differ or the values do not broadcast.
    pub fn index_put(&self, indices: &[Option<Tensor>], values: &Tensor, accumulate: bool) -> Result<Tensor> {
        self.index_put_as(Form::Copy, indices, values, accumulate)
    }

    in_place_methods! {
        index_put index_put_ INDEX_PUT (indices: &[Option<Tensor>], values: &Tensor, accumulate: bool)
            (self, indices, values, accumulate);
    }

    fn index_put_as(
        &self,
        form: Form,
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
        let write = if accumulate { Form::scatter_add } else { Form::scatter };
        form.through(self, &joined, |form| target.parted(&write(form, &joined, target.first as i64, &index, &values)?))
    }

    /// The elements at places of the tensor read in row-major order; the sizes of `index`. Negative places count from
    /// the end. The dtype is kept.
    ///
    /// # Errors
    /// If an index is out of range or not i64.
    pub fn take(&self, index: &Tensor) -> Result<Tensor> {
        if index.dtype() != DType::I64 {
            return Err(Error::dtype("take", index.dtype(), "i64", "convert the index with to_dtype(DType::I64)"));
        }
        let flat = flat_index(&[index], &[self.numel() as i64], true).map_err(|error| error.of("take"))?;
        self.reshape([-1])?.index_select(0, &flat.reshape([-1])?)?.reshape(index.sizes())
    }

    /// A copy where the elements at places of the tensor read in row-major order are replaced by those of `source`, or
    /// where these are added if `accumulate`. Negative places count from the end. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If an index is out of range or not i64, `source` has another number of elements or another dtype.
    pub fn put(&self, index: &Tensor, source: &Tensor, accumulate: bool) -> Result<Tensor> {
        self.put_as(Form::Copy, index, source, accumulate)
    }

    in_place_methods! {
        put put_ PUT (index: &Tensor, source: &Tensor, accumulate: bool) (self, index, source, accumulate);
    }

    fn put_as(&self, form: Form, index: &Tensor, source: &Tensor, accumulate: bool) -> Result<Tensor> {
        if index.numel() != source.numel() {
            let what = format!("index of shape {:?} and source of {:?}", index.sizes(), source.sizes());
            return Err(Error::shape("put", what, "both must have as many elements"));
        }
        let index = Some(flat_index(&[index], &[self.numel() as i64], true)?.reshape([-1])?);
        let values = source.reshape([-1])?;
        let line = self.reshape([-1])?;
        form.through(self, &line, |form| line.index_put_as(form, &[index], &values, accumulate)?.reshape(self.sizes()))
    }

    /// As [`Tensor::gather`], sizes of `self` and `indices` being broadcast in all dims but `dim`; without a dim both
    /// are read in row-major order. Negative indices count from the end. The dtype is kept.
    ///
    /// # Errors
    /// If an index or the dim is out of range, ranks differ or sizes do not broadcast.
    pub fn take_along_dim(&self, indices: &Tensor, dim: impl Into<Option<i64>>) -> Result<Tensor> {
        let Some(dim) = dim.into() else {
            return self.reshape([-1])?.take_along_dim(&indices.reshape([-1])?, 0);
        };
        if self.dim() != indices.dim() {
            let what = format!("the input has shape {:?}, the indices {:?}", self.sizes(), indices.sizes());
            return Err(Error::shape("take_along_dim", what, "both must have the same number of dims"));
        }
        let at = normalize_dim("take_along_dim", dim, self.dim())?;
        let (mut own, mut other) = (self.sizes().to_vec(), indices.sizes().to_vec());
        if self.dim() > 0 {
            (own[at], other[at]) = (1, 1);
        }
        let mut sizes = broadcast("take_along_dim", &own, &other)?.to_vec();
        let mut spread = |x: &Tensor| {
            if let Some(along) = sizes.get_mut(at) {
                *along = x.sizes()[at];
            }
            x.expand(&sizes[..])
        };
        let size = self.sizes().get(at).copied().unwrap_or(1) as i64;
        let wrapped = indices.lt(0)?.where_(&indices.add(size)?, indices)?;
        let (x, indices) = (spread(self)?, spread(&wrapped)?);
        x.gather(dim, &indices)
    }
}

/// Rows of the 2-dim `weight` named by the integer tensor `ids`: the sizes of `ids`, then that of a row. The dtype is
/// the weight's.
///
/// # Errors
/// If the weight is not 2-dim, the ids are not integers, or an id is out of range.
pub fn embedding(weight: &Tensor, ids: &Tensor) -> Result<Tensor> {
    let attrs = Attrs::from(Embedding { padding_idx: -1, scale_grad_by_freq: false, sparse: false });
    call(Op::Embedding, &[weight, ids], &attrs)
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("index.Tensor(Tensor self, Tensor?[] indices) -> Tensor", Tensor::index)?
        .composite_and_in_place(
            &INDEX_PUT,
            Tensor::index_put,
            // Its parts write in place themselves, so that no more is touched than what an index names.
            |x: &Tensor, indices: &[Option<Tensor>], values: &Tensor, accumulate: bool| {
                check_target("aten::index_put", x)?;
                x.index_put_as(Form::InPlace, indices, values, accumulate).map(|_| x.clone())
            },
        )?
        .def_kernel("take(Tensor self, Tensor index) -> Tensor", Tensor::take)?
        .composite_and_in_place(&PUT, Tensor::put, |x: &Tensor, index: &Tensor, source: &Tensor, accumulate: bool| {
            check_target("aten::put", x)?;
            x.put_as(Form::InPlace, index, source, accumulate).map(|_| x.clone())
        })?
        .def_kernel(
            "take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor",
            |x: &Tensor, indices: &Tensor, dim: Option<i64>| x.take_along_dim(indices, dim),
        )?;
    Ok(())
}

pub(crate) fn at_least_1d(x: &Tensor) -> Result<Tensor> {
    if x.dim() == 0 { x.reshape([1]) } else { Ok(x.clone()) }
}

/// A 1-dim index along a dim, repeated to `sizes`.
pub(crate) fn along(index: &Tensor, dim: usize, sizes: &[usize]) -> Result<Tensor> {
    let mut column = vec![1; sizes.len()];
    column[dim] = index.numel();
    index.reshape(&column[..])?.expand(sizes)
}
