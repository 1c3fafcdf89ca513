//! Writes to slices of a dim: adds to them, replaces them, or fills them. A 1-dim index selects the slices.
//!
//! The index is i64 or i32. Negative indices count from the end in [`Tensor::index_fill`], and are errors in the
//! others. [`Tensor::index_select`], which reads such slices, is in `indexing.rs`.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::Scalar;
use crate::ir::shape::normalize_dim;
use crate::ops::composite::Composite;
use crate::ops::factories::full_on;
use crate::ops::in_place::in_place_methods;
use crate::ops::indexing::{WriteForm, along, at_least_1d, flat_index};
use crate::ops::mutation::check_target;
use crate::tensor::handle::Tensor;

static INDEX_ADD: Composite =
    Composite::new("index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor")
        .with_writes();
static INDEX_COPY: Composite =
    Composite::new("index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor").with_writes();
static INDEX_FILL: Composite =
    Composite::new("index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor").with_writes();
static INDEX_FILL_TENSOR: Composite =
    Composite::new("index_fill.int_Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor").with_writes();

/// Writes to slices.
impl Tensor {
    /// A copy of the tensor in which slice `i` of `source` is added to slice `index[i]` along `dim`. `index` is 1-dim.
    /// Sizes and dtype are kept.
    ///
    /// # Errors
    /// If an index or the dim is out of range, if dtypes differ, or if shapes do not fit.
    #[track_caller]
    pub fn index_add(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        self.index_add_scaled(dim, index, source, 1)
    }

    /// Like [`Tensor::index_add`], with `source` multiplied by `alpha`.
    ///
    /// # Errors
    /// Same as [`Tensor::index_add`]. Also if `alpha` is fractional and the dtype is an integer.
    #[track_caller]
    pub fn index_add_scaled(
        &self,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        INDEX_ADD.call((self, dim, index, source, alpha.into()))
    }

    in_place_methods! {
        index_add index_add_ INDEX_ADD (dim: i64, index: &Tensor, source: &Tensor)
            (self, dim, index, source, Scalar::Int(1));
        index_add_scaled index_add_scaled_ INDEX_ADD
            (dim: i64, index: &Tensor, source: &Tensor, alpha: impl Into<Scalar>)
            (self, dim, index, source, alpha.into());
    }

    fn index_add_as(
        &self,
        form: WriteForm,
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

    /// A copy of the tensor in which slice `index[i]` along `dim` is replaced by slice `i` of `source`. `index` is
    /// 1-dim. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If an index or the dim is out of range, if dtypes differ, or if shapes do not fit.
    #[track_caller]
    pub fn index_copy(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        INDEX_COPY.call((self, dim, index, source))
    }

    in_place_methods! {
        index_copy index_copy_ INDEX_COPY (dim: i64, index: &Tensor, source: &Tensor) (self, dim, index, source);
    }

    fn index_copy_as(&self, form: WriteForm, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
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

    /// A copy of the tensor in which the slices `index[i]` along `dim` are filled with `value`, converted to the dtype.
    /// `index` is 1-dim. Negative indices count from the end. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If an index or the dim is out of range, or if the index is not a 1-dim integer tensor.
    #[track_caller]
    pub fn index_fill(&self, dim: i64, index: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        INDEX_FILL.call((self, dim, index, value.into()))
    }

    /// Like [`Tensor::index_fill`], with the value of a 0-dim tensor.
    ///
    /// # Errors
    /// Same as [`Tensor::index_fill`]. Also if the value is not 0-dim.
    #[track_caller]
    pub fn index_fill_with(&self, dim: i64, index: &Tensor, value: &Tensor) -> Result<Tensor> {
        INDEX_FILL_TENSOR.call((self, dim, index, value))
    }

    in_place_methods! {
        index_fill index_fill_ INDEX_FILL (dim: i64, index: &Tensor, value: impl Into<Scalar>)
            (self, dim, index, value.into());
        index_fill_with index_fill_with_ INDEX_FILL_TENSOR (dim: i64, index: &Tensor, value: &Tensor)
            (self, dim, index, value);
    }

    fn index_fill_as(&self, form: WriteForm, dim: i64, index: &Tensor, value: &Tensor) -> Result<Tensor> {
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

    /// Checks a 1-dim index into a dim of this size.
    fn slice_index(&self, op: &str, index: &Tensor, size: usize, wrap: bool) -> Result<Tensor> {
        if index.dim() > 1 {
            let what = format!("the index has shape {:?}", index.sizes());
            return Err(Error::index(op, what, "it must have at most one dim"));
        }
        flat_index(&[&at_least_1d(index)?], &[size as i64], wrap)
    }
}

/// The in-place forms have kernels of their own, which touch only the indexed slices.
pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite_and_in_place(
            &INDEX_ADD,
            |x: &Tensor, dim: i64, index: &Tensor, source: &Tensor, alpha: Scalar| {
                x.index_add_as(WriteForm::Copy, dim, index, source, alpha)
            },
            |x: &Tensor, dim: i64, index: &Tensor, source: &Tensor, alpha: Scalar| {
                check_target("aten::index_add", x)?;
                x.index_add_as(WriteForm::InPlace, dim, index, source, alpha).map(|_| x.clone())
            },
        )?
        .composite_and_in_place(
            &INDEX_COPY,
            |x: &Tensor, dim: i64, index: &Tensor, source: &Tensor| {
                x.index_copy_as(WriteForm::Copy, dim, index, source)
            },
            |x: &Tensor, dim: i64, index: &Tensor, source: &Tensor| {
                check_target("aten::index_copy", x)?;
                x.index_copy_as(WriteForm::InPlace, dim, index, source).map(|_| x.clone())
            },
        )?
        .composite_and_in_place(
            &INDEX_FILL,
            |x: &Tensor, dim: i64, index: &Tensor, value: Scalar| {
                let value = full_on(x.device(), &[], value, Some(x.dtype()))?;
                x.index_fill_as(WriteForm::Copy, dim, index, &value)
            },
            |x: &Tensor, dim: i64, index: &Tensor, value: Scalar| {
                check_target("aten::index_fill", x)?;
                let value = full_on(x.device(), &[], value, Some(x.dtype()))?;
                x.index_fill_as(WriteForm::InPlace, dim, index, &value).map(|_| x.clone())
            },
        )?
        .composite_and_in_place(
            &INDEX_FILL_TENSOR,
            |x: &Tensor, dim: i64, index: &Tensor, value: &Tensor| x.index_fill_as(WriteForm::Copy, dim, index, value),
            |x: &Tensor, dim: i64, index: &Tensor, value: &Tensor| {
                check_target("aten::index_fill", x)?;
                x.index_fill_as(WriteForm::InPlace, dim, index, value).map(|_| x.clone())
            },
        )?;
    Ok(())
}
