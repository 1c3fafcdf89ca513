//! Elements by index tensors: methods that read or replace what indices and masks name.
//!
//! Index tensors are i64 or i32. Where nothing else is said, indices must not be negative; [`Tensor::index`],
//! [`Tensor::index_put`], [`Tensor::index_fill`], [`Tensor::take`] and [`Tensor::take_along_dim`] count negative ones
//! from the end. A mask is a bool tensor; what it names, and how much, depends on data, so it breaks a trace.

use crate::device::roomy;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::shape::{broadcast, checked_numel, normalize_dim};
use crate::ir::{Attr, DType, MemoryFormat, Op, Scalar};
use crate::ops::factories::full_on;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;

/// Whether a write by index gives a changed copy, or changes the tensor.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// A copy.
    Copy,
    /// The tensor itself.
    InPlace,
}

impl Form {
    fn scatter(self, x: &Tensor, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        match self {
            Form::Copy => x.scatter(dim, index, source),
            Form::InPlace => x.scatter_(dim, index, source).map(|()| x.clone()),
        }
    }

    fn scatter_add(self, x: &Tensor, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        match self {
            Form::Copy => x.scatter_add(dim, index, source),
            Form::InPlace => x.scatter_add_(dim, index, source).map(|()| x.clone()),
        }
    }

    /// What `write` makes of `x` by way of `part`: the elements of `x` in another shape, or, where these had to be copied, copies.
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

fn flat_index(indices: &[&Tensor], sizes: &[i64], wrap: bool) -> Result<Tensor> {
    call(Op::FlatIndex, indices, &[Attr::ints(sizes), Attr::bool(wrap)])
}

/// Elements that indices name.
impl Tensor {
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

    pub(crate) fn index_put_as(
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

    pub(crate) fn put_as(&self, form: Form, index: &Tensor, source: &Tensor, accumulate: bool) -> Result<Tensor> {
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

    /// A copy with the elements of `source` added to the slices of `dim` that the 1-dim `index` names. Sizes and dtype
    /// are kept.
    ///
    /// # Errors
    /// If an index or the dim is out of range, dtypes differ, or shapes do not fit.
    pub fn index_add(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        self.index_add_scaled(dim, index, source, 1)
    }

    /// As [`Tensor::index_add`], each element times `alpha`.
    ///
    /// # Errors
    /// As [`Tensor::index_add`], and for a fractional `alpha` of integers.
    pub fn index_add_scaled(
        &self,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        self.index_add_as(Form::Copy, dim, index, source, alpha.into())
    }

    pub(crate) fn index_add_as(
        &self,
        form: Form,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
        alpha: Scalar,
    ) -> Result<Tensor> {
        if alpha.dtype().is_float() && !self.dtype().is_float() {
            let what = format!("alpha is {alpha} but the result is {}; for integers it must be whole", self.dtype());
            return Err(Error::argument("index_add", what));
        }
        let scaled = if alpha.as_f64() == 1.0 { source.clone() } else { source.mul(alpha)? };
        self.write_slices("index_add", dim, index, &scaled, |x, at, source| form.scatter_add(x, dim, at, source))
    }

    /// A copy with the slices of `dim` that the 1-dim `index` names replaced by those of `source`. Sizes and dtype are
    /// kept.
    ///
    /// # Errors
    /// If an index or the dim is out of range, dtypes differ, or shapes do not fit.
    pub fn index_copy(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        self.index_copy_as(Form::Copy, dim, index, source)
    }

    pub(crate) fn index_copy_as(&self, form: Form, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        self.write_slices("index_copy", dim, index, source, |x, at, source| form.scatter(x, dim, at, source))
    }

    fn write_slices(
        &self,
        op: &str,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
        write: impl FnOnce(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let (x, source) = (at_least_1d(self)?, at_least_1d(source)?);
        let at = normalize_dim(op, dim, x.dim())?;
        let index = self.slice_index(op, index, x.sizes()[at], false)?;
        if source.dtype() != x.dtype() {
            return Err(Error::dtype(op, source.dtype(), x.dtype().name(), "self and source must have one dtype"));
        }
        let mut fitting = x.sizes().to_vec();
        fitting[at] = index.numel();
        if source.sizes() != fitting {
            let what = format!("the source has shape {:?} instead of {fitting:?}", source.sizes());
            return Err(Error::index(op, what, "it has the sizes of self, and along dim that of the index"));
        }
        write(&x, &along(&index, at, &fitting)?, &source)?.reshape(self.sizes())
    }

    /// A copy with the slices of `dim` that the 1-dim `index` names filled with `value`, converted to the dtype of
    /// `self`. Negative indices count from the end. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If an index or the dim is out of range, or the index is not a 1-dim integer tensor.
    pub fn index_fill(&self, dim: i64, index: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        let value = full_on(self.device(), &[], value.into(), Some(self.dtype()))?;
        self.index_fill_with(dim, index, &value)
    }

    /// As [`Tensor::index_fill`], the value being a 0-dim tensor.
    ///
    /// # Errors
    /// As [`Tensor::index_fill`], and if the value has dims.
    pub fn index_fill_with(&self, dim: i64, index: &Tensor, value: &Tensor) -> Result<Tensor> {
        self.index_fill_as(Form::Copy, dim, index, value)
    }

    pub(crate) fn index_fill_as(&self, form: Form, dim: i64, index: &Tensor, value: &Tensor) -> Result<Tensor> {
        if value.dim() != 0 {
            let what = format!("the value has shape {:?}", value.sizes());
            return Err(Error::shape("index_fill", what, "it must be 0-dim"));
        }
        let x = at_least_1d(self)?;
        let at = normalize_dim("index_fill", dim, x.dim())?;
        let index = self.slice_index("index_fill", index, x.sizes()[at], true)?;
        let mut sizes = x.sizes().to_vec();
        sizes[at] = index.numel();
        let values = value.to_dtype(x.dtype())?.expand(&sizes[..])?;
        form.scatter(&x, dim, &along(&index, at, &sizes)?, &values)?.reshape(self.sizes())
    }

    /// A 1-dim index into a dim of that size, checked.
    fn slice_index(&self, op: &str, index: &Tensor, size: usize, wrap: bool) -> Result<Tensor> {
        if index.dim() > 1 {
            let what = format!("the index has shape {:?}", index.sizes());
            return Err(Error::index(op, what, "it must have at most one dim"));
        }
        flat_index(&[&at_least_1d(index)?], &[size as i64], wrap)
    }
}

/// Elements that masks name, and what depends on values.
impl Tensor {
    /// The places of the elements that are not 0: one row per element, in row-major order, one column per dim. i64.
    ///
    /// # Errors
    /// If there is no data (meta device), or in an abstract trace; a trace is broken by it.
    pub fn nonzero(&self) -> Result<Tensor> {
        observer::on_read(self, "nonzero")?;
        let holds = self.to_dtype(DType::Bool)?.to_vec::<bool>()?;
        let count = holds.iter().filter(|holds| **holds).count();
        let mut places: Vec<i64> = roomy(count.saturating_mul(self.dim()))?;
        for (at, _) in holds.iter().enumerate().filter(|(_, holds)| **holds) {
            let mut rest = at;
            let row = places.len();
            for &size in self.sizes().iter().rev() {
                places.push((rest % size) as i64);
                rest /= size;
            }
            places[row..].reverse();
        }
        Tensor::from_slice(&places, &[count, self.dim()])?.to_device(self.device())
    }

    /// The elements where `mask` holds, in row-major order; sizes are broadcast. The dtype is kept.
    ///
    /// # Errors
    /// If the mask is not bool or the sizes do not broadcast; as [`Tensor::nonzero`].
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        need_mask("masked_select", mask)?;
        let sizes = broadcast("masked_select", self.sizes(), mask.sizes())?;
        let places = mask.expand(&sizes[..])?.reshape([-1])?.nonzero()?.squeeze(1)?;
        self.expand(&sizes[..])?.reshape([-1])?.index_select(0, &places)
    }

    /// A copy whose elements where `mask` holds are, in row-major order, the first ones of `source`; sizes of `self`
    /// and mask are broadcast. The dtype is kept.
    ///
    /// # Errors
    /// If the mask is not bool, sizes do not broadcast, dtypes differ, or `source` has too few elements.
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
        need_mask("masked_scatter", mask)?;
        if source.dtype() != self.dtype() {
            let hint = "self and source must have one dtype";
            return Err(Error::dtype("masked_scatter", source.dtype(), self.dtype().name(), hint));
        }
        let sizes = broadcast("masked_scatter", self.sizes(), mask.sizes())?;
        let (x, mask) = (self.expand(&sizes[..])?, mask.expand(&sizes[..])?);
        // The n-th true place takes element n, counted from 1; all others take the 0 in front.
        let mask = mask.reshape([-1])?;
        let number = mask.to_dtype(DType::I64)?.cumsum(0)?.mul(&mask)?;
        let front = full_on(self.device(), &[1], Scalar::Int(0), Some(self.dtype()))?;
        let source = crate::ops::joins::cat(&[&front, &source.reshape([-1])?], 0)?;
        let values = source.gather(0, &number)?;
        mask.where_(&values, &x.reshape([-1])?)?.reshape(&sizes[..])
    }

    /// 1 at the place that each element names in a new last dim of `n_classes`, else 0. From i64 to i64. Without a
    /// number of classes it is one more than the greatest element.
    ///
    /// # Errors
    /// If the dtype is not i64, or an element is negative or too large; without a number of classes as
    /// [`Tensor::nonzero`].
    pub fn one_hot(&self, n_classes: impl Into<Option<usize>>) -> Result<Tensor> {
        if self.dtype() != DType::I64 {
            return Err(Error::dtype("one_hot", self.dtype(), "i64", "classes are whole numbers; convert them"));
        }
        let n_classes = match n_classes.into() {
            Some(n_classes) => n_classes,
            None if self.numel() == 0 => {
                return Err(Error::argument("one_hot", "an empty tensor does not tell the number of classes"));
            }
            None => {
                observer::on_read(self, "one_hot")?;
                usize::try_from(self.max_all()?.item::<i64>()?.saturating_add(1)).unwrap_or(0)
            }
        };
        let sizes = [self.sizes(), &[n_classes]].concat();
        let zeros = full_on(self.device(), &sizes, Scalar::Int(0), Some(DType::I64))?;
        zeros.scatter_value(-1, &self.unsqueeze(-1)?, 1).map_err(|error| error.of("one_hot"))
    }

    /// Every element of `dim` repeated, one behind the other; without a dim the elements in row-major order. The dtype
    /// is kept.
    ///
    /// # Errors
    /// If the dim is out of range.
    pub fn repeat_interleave(&self, repeats: usize, dim: impl Into<Option<i64>>) -> Result<Tensor> {
        let (x, dim) = self.line_for(dim.into())?;
        let at = normalize_dim("repeat_interleave", dim, x.dim())?;
        let mut sizes = x.sizes().to_vec();
        sizes.insert(at + 1, repeats);
        checked_numel("repeat_interleave", &sizes, x.dtype().size())?;
        let repeated = x.unsqueeze(at as i64 + 1)?.expand(&sizes[..])?;
        sizes.remove(at + 1);
        // Elements are counted by now; there may be none.
        sizes[at] = sizes[at].saturating_mul(repeats);
        // A copy, also where a view could stand for it.
        call(Op::Clone, &[&repeated], &[MemoryFormat::Contiguous.into()])?.view(&sizes[..])
    }

    /// As [`Tensor::repeat_interleave`], with a number of times for each element of `dim`, or one for all.
    ///
    /// # Errors
    /// If the dim is out of range, a number is negative, or there are not as many as elements; as
    /// [`Tensor::nonzero`].
    pub fn repeat_interleave_each(&self, repeats: &Tensor, dim: impl Into<Option<i64>>) -> Result<Tensor> {
        let (x, dim) = self.line_for(dim.into())?;
        let at = normalize_dim("repeat_interleave", dim, x.dim())?;
        let repeats = if repeats.numel() == 1 && repeats.dim() <= 1 {
            repeats.reshape([1])?.expand([x.sizes()[at] as i64])?
        } else {
            repeats.clone()
        };
        if repeats.sizes() != [x.sizes()[at]] {
            let what = format!("repeats of shape {:?} for dim {dim} of shape {:?}", repeats.sizes(), x.sizes());
            return Err(Error::shape("repeat_interleave", what, "give one number, or one per element of the dim"));
        }
        x.index_select(dim, &repeated_places(&repeats)?)
    }

    /// The tensor and the dim, or all elements in one dim.
    fn line_for(&self, dim: Option<i64>) -> Result<(Tensor, i64)> {
        match dim {
            Some(dim) => Ok((at_least_1d(self)?, dim)),
            None => Ok((self.reshape([-1])?, 0)),
        }
    }

    /// How many elements over dims are not 0; i64. The dims go away; no dims (`()`) are all of them.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    pub fn count_nonzero(&self, dims: impl Into<crate::ops::dims::Dims>) -> Result<Tensor> {
        self.to_dtype(DType::Bool)?.sum(dims, false)
    }
}

/// 0 as often as the first number says, 1 as often as the second, and so on.
pub(crate) fn repeated_places(repeats: &Tensor) -> Result<Tensor> {
    const OP: &str = "repeat_interleave";
    if !matches!(repeats.dtype(), DType::I64 | DType::I32) {
        return Err(Error::dtype(OP, repeats.dtype(), "i64 or i32", "repeats are whole numbers; convert them"));
    }
    if repeats.dim() != 1 {
        let what = format!("repeats have shape {:?}", repeats.sizes());
        return Err(Error::shape(OP, what, "they must be 1-dim"));
    }
    observer::on_read(repeats, OP)?;
    let count = |count: i64| {
        let negative = |_| Error::argument(OP, format!("repeats can not be negative, but one is {count}"));
        usize::try_from(count).map_err(negative)
    };
    let counts = repeats.to_dtype(DType::I64)?.to_vec::<i64>()?;
    let total = counts.iter().try_fold(0usize, |total, &one| Ok::<_, Error>(total.saturating_add(count(one)?)))?;
    let mut places: Vec<i64> = roomy(total)?;
    for (place, one) in counts.into_iter().enumerate() {
        places.resize(places.len() + count(one)?, place as i64);
    }
    Tensor::from_slice(&places, &[places.len()])?.to_device(repeats.device())
}

fn need_mask(op: &str, mask: &Tensor) -> Result<()> {
    match mask.dtype() {
        DType::Bool => Ok(()),
        found => Err(Error::dtype(op, found, "bool", "compare first to make a mask")),
    }
}

fn at_least_1d(x: &Tensor) -> Result<Tensor> {
    if x.dim() == 0 { x.reshape([1]) } else { Ok(x.clone()) }
}

/// A 1-dim index along a dim, repeated to `sizes`.
fn along(index: &Tensor, dim: usize, sizes: &[usize]) -> Result<Tensor> {
    let mut column = vec![1; sizes.len()];
    column[dim] = index.numel();
    index.reshape(&column[..])?.expand(sizes)
}
