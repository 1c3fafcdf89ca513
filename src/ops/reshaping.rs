//! Views made of other views: other sizes, permuted dims, and broadcasting to a common shape.
//!
//! All results share the storage of the input, except those of [`Tensor::reshape`] and [`Tensor::flatten`] where
//! strides cannot express the shape. Negative dims count from the end.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::Shape;
use crate::ir::shape::{Sizes, broadcast, infer_sizes, normalize_dim};
use crate::ir::{Attrs, MemoryFormat, Op};
use crate::ops::arguments::ordered;
use crate::ops::arguments::tensor_list;
use crate::ops::composite::Composite;
use crate::ops::dims::{Dims, ints};
use crate::tensor::handle::Tensor;

static SWAPAXES: Composite =
    Composite::new("swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)").with_view_in_place();
static SWAPDIMS: Composite =
    Composite::new("swapdims(Tensor(a) self, int dim0, int dim1) -> Tensor(a)").with_view_in_place();
static RESHAPE: Composite = Composite::new("reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)");
static RESHAPE_AS: Composite = Composite::new("reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)");
static VIEW_AS: Composite = Composite::new("view_as(Tensor(a) self, Tensor other) -> Tensor(a)");
static EXPAND_AS: Composite = Composite::new("expand_as(Tensor(a) self, Tensor other) -> Tensor(a)");
static BROADCAST_TO: Composite = Composite::new("broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)");
static BROADCAST_TENSORS: Composite = Composite::new("broadcast_tensors(Tensor[] tensors) -> Tensor[]");
static MESHGRID: Composite = Composite::new("meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]");
static FLATTEN: Composite =
    Composite::new("flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)");
static UNFLATTEN: Composite = Composite::new("unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)");
static MOVEDIM: Composite =
    Composite::new("movedim.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)");

/// Like [`Tensor::view`] of a tensor without other owners. The result is not marked as a view, so it may be written in
/// place wherever its operand might be.
pub(crate) fn unsafe_view(x: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    call(Op::UnsafeView, &[x], &Attrs::from(Shape { size: ints(sizes) }))
}

/// Other sizes.
impl Tensor {
    /// The same elements in row-major order with other sizes. One size may be −1, and is then computed. The result is a
    /// view if strides can express it, else a copy. The dtype is kept.
    ///
    /// # Errors
    /// If the number of elements differs.
    #[track_caller]
    pub fn reshape(&self, sizes: impl Into<Dims>) -> Result<Tensor> {
        RESHAPE.call((self, sizes.into().as_slice()))
    }

    /// Joins the dims from `start` to `end`, inclusive. A 0-dim tensor becomes 1-dim. See [`Tensor::reshape`].
    ///
    /// # Errors
    /// If a dim is out of range, or if `start` comes after `end`.
    #[track_caller]
    pub fn flatten(&self, start: i64, end: i64) -> Result<Tensor> {
        FLATTEN.call((self, start, end))
    }

    /// Splits dim `dim` into several with these sizes, whose product is its size. One size may be −1, and is then
    /// computed.
    ///
    /// # Errors
    /// If the dim is out of range, or if the sizes do not fit.
    #[track_caller]
    pub fn unflatten(&self, dim: i64, sizes: impl Into<Dims>) -> Result<Tensor> {
        UNFLATTEN.call((self, dim, sizes.into().as_slice()))
    }

    /// Like [`Tensor::view`], with the sizes of `other`.
    ///
    /// # Errors
    /// Same as [`Tensor::view`].
    #[track_caller]
    pub fn view_as(&self, other: &Tensor) -> Result<Tensor> {
        VIEW_AS.call((self, other))
    }

    /// Like [`Tensor::reshape`], with the sizes of `other`.
    ///
    /// # Errors
    /// If the number of elements differs.
    #[track_caller]
    pub fn reshape_as(&self, other: &Tensor) -> Result<Tensor> {
        RESHAPE_AS.call((self, other))
    }

    /// Like [`Tensor::expand`], to the sizes of `other`.
    ///
    /// # Errors
    /// If a dim of another size than 1 would change.
    #[track_caller]
    pub fn expand_as(&self, other: &Tensor) -> Result<Tensor> {
        EXPAND_AS.call((self, other))
    }

    /// Same as [`Tensor::expand`].
    ///
    /// # Errors
    /// If a dim of another size than 1 would change.
    #[track_caller]
    pub fn broadcast_to(&self, sizes: impl Into<Dims>) -> Result<Tensor> {
        BROADCAST_TO.call((self, sizes.into().as_slice()))
    }
}

/// Permuted dims.
impl Tensor {
    /// Moves the dims `from` to the positions `to`. The other dims keep their order. The result is a view.
    ///
    /// # Errors
    /// If a dim is out of range or named twice, or if the lists have different lengths.
    #[track_caller]
    pub fn movedim(&self, from: impl Into<Dims>, to: impl Into<Dims>) -> Result<Tensor> {
        MOVEDIM.call((self, from.into().as_slice(), to.into().as_slice()))
    }

    /// Alias of [`Tensor::transpose`].
    ///
    /// # Errors
    /// If a dim is out of range.
    #[track_caller]
    pub fn swapaxes(&self, axis0: i64, axis1: i64) -> Result<Tensor> {
        SWAPAXES.call((self, axis0, axis1))
    }
}

/// Expands tensors to the common shape that they broadcast to.
///
/// # Errors
/// If the sizes do not broadcast.
#[track_caller]
pub fn broadcast_tensors(tensors: &[&Tensor]) -> Result<Vec<Tensor>> {
    BROADCAST_TENSORS.call((&tensor_list(tensors)[..],))
}

fn spread(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut sizes = Sizes::new();
    for tensor in tensors {
        sizes = broadcast("broadcast_tensors", &sizes, tensor.sizes())?;
    }
    tensors.iter().map(|tensor| tensor.expand(&sizes[..])).collect()
}

/// The order of the dims of a [`meshgrid`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Indexing {
    /// Matrix indexing: the first tensor varies along the first dim.
    Ij,
    /// Cartesian indexing: the first tensor varies along the second dim, and the second tensor along the first.
    Xy,
}

/// Coordinate grids: n 1-dim tensors give n tensors with n dims. Each repeats its tensor along all dims except one. A
/// 0-dim tensor is one coordinate. The results are views.
///
/// # Errors
/// If there are no tensors, if one has more than one dim, or if dtypes or devices differ.
#[track_caller]
pub fn meshgrid(tensors: &[&Tensor], indexing: Indexing) -> Result<Vec<Tensor>> {
    let word = match indexing {
        Indexing::Ij => "ij",
        Indexing::Xy => "xy",
    };
    MESHGRID.call((&tensor_list(tensors)[..], word))
}

fn grids(tensors: &[Tensor], indexing: Indexing) -> Result<Vec<Tensor>> {
    let Some(first) = tensors.first() else {
        return Err(Error::shape("meshgrid", "expects a non-empty list of tensors", "pass one per dim"));
    };
    for tensor in tensors {
        if tensor.dim() > 1 {
            let what = format!("expected scalar or 1-dim tensors, but got shape {:?}", tensor.sizes());
            return Err(Error::shape("meshgrid", what, "flatten it first"));
        }
        if tensor.dtype() != first.dtype() || tensor.device() != first.device() {
            let what = format!("found {} beside {}", tensor.ty(), first.ty());
            return Err(Error::shape("meshgrid", what, "all tensors must have the same dtype and device"));
        }
    }
    let sizes: Vec<usize> = tensors.iter().map(|tensor| tensor.numel()).collect();
    let along = |(dim, tensor): (usize, &Tensor)| {
        let mut lone = vec![1; sizes.len()];
        lone[dim] = sizes[dim];
        let grid = tensor.view(&lone[..])?.expand(&sizes[..])?;
        if indexing == Indexing::Xy && sizes.len() > 1 { grid.transpose(0, 1) } else { Ok(grid) }
    };
    tensors.iter().enumerate().map(along).collect()
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&RESHAPE, reshape)?
        .composite(&RESHAPE_AS, reshape_as)?
        .composite(&VIEW_AS, view_as)?
        .composite(&EXPAND_AS, expand_as)?
        .composite(&BROADCAST_TO, broadcast_to)?
        .composite(&BROADCAST_TENSORS, spread)?
        .def_kernel("meshgrid(Tensor[] tensors) -> Tensor[]", |tensors: &[Tensor]| grid(tensors, "ij"))?
        .composite(&MESHGRID, grid)?
        .composite(&FLATTEN, flatten)?
        .def_kernel("ravel(Tensor(a) self) -> Tensor(a)", |x: &Tensor| x.reshape(-1))?
        .composite(&UNFLATTEN, unflatten)?;
    order(library)
}

/// Permuted dims.
fn order(library: &mut Library) -> Result<()> {
    for name in ["movedim", "moveaxis"] {
        library.def_kernel(
            &format!("{name}.int(Tensor(a) self, int source, int destination) -> Tensor(a)"),
            |x: &Tensor, from: i64, to: i64| x.movedim(from, to),
        )?;
    }
    library
        .composite(&MOVEDIM, movedim)?
        .def_kernel("moveaxis.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)", movedim)?
        .composite(&SWAPAXES, swapaxes)?
        .composite(&SWAPDIMS, swapaxes)?;
    Ok(())
}

fn grid(tensors: &[Tensor], indexing: &str) -> Result<Vec<Tensor>> {
    let indexing = match indexing {
        "ij" => Indexing::Ij,
        "xy" => Indexing::Xy,
        other => {
            let what = format!("indexing must be one of \"xy\" or \"ij\", but received: {other}");
            return Err(Error::argument("meshgrid", what));
        }
    };
    grids(tensors, indexing)
}

/// A view if strides can express the sizes, else a copy.
fn reshape(x: &Tensor, sizes: &[i64]) -> Result<Tensor> {
    let sizes = infer_sizes("reshape", sizes, x.numel())?;
    if x.array().layout.view(&sizes).is_some() {
        return x.view(&sizes[..]);
    }
    // The copy has no other owner, so the result is not marked as a view.
    let copy = call(Op::Clone, &[x], &ordered(MemoryFormat::Contiguous))?;
    unsafe_view(&copy, &sizes)
}

fn flatten(x: &Tensor, start: i64, end: i64) -> Result<Tensor> {
    let first = normalize_dim("flatten", start, x.dim())?;
    let last = normalize_dim("flatten", end, x.dim())?;
    if first > last {
        let what = format!("flatten() has invalid args: start_dim {start} cannot come after end_dim {end}");
        return Err(Error::shape("flatten", what, "name the first and the last of the dims to join"));
    }
    if x.dim() == 0 {
        return x.reshape(1);
    }
    if first == last {
        return Ok(x.clone());
    }
    let sizes = x.sizes();
    let joined = sizes[first..=last].iter().product();
    x.reshape(&[&sizes[..first], &[joined], &sizes[last + 1..]].concat()[..])
}

fn unflatten(x: &Tensor, dim: i64, sizes: &[i64]) -> Result<Tensor> {
    let at = normalize_dim("unflatten", dim, x.dim())?;
    if sizes.is_empty() {
        return Err(Error::shape("unflatten", "sizes must be non-empty", "name at least one"));
    }
    let own = x.sizes();
    let Some(&size) = own.get(at) else {
        return Err(Error::index("unflatten", "a 0-dim tensor has no dims", "unsqueeze it first"));
    };
    let inner = infer_sizes("unflatten", sizes, size).map_err(|_| {
        let what = format!(
            "provided sizes {:?} don't multiply up to the size of dim {at} ({size}) in the input tensor",
            sizes
        );
        Error::shape("unflatten", what, "pass sizes that do, with one -1 at most")
    })?;
    x.view(&[&own[..at], &inner, &own[at + 1..]].concat()[..])
}

fn view_as(x: &Tensor, other: &Tensor) -> Result<Tensor> {
    x.view(other.sizes())
}

fn reshape_as(x: &Tensor, other: &Tensor) -> Result<Tensor> {
    x.reshape(other.sizes())
}

fn expand_as(x: &Tensor, other: &Tensor) -> Result<Tensor> {
    x.expand(other.sizes())
}

fn broadcast_to(x: &Tensor, sizes: &[i64]) -> Result<Tensor> {
    x.expand(sizes)
}

fn movedim(x: &Tensor, from: &[i64], to: &[i64]) -> Result<Tensor> {
    let refuse = |what: String| Err(Error::shape("movedim", what, "pair each dim with its new place"));
    if from.len() != to.len() {
        let what = format!(
            "invalid source or destination dims: source ({:?} dims) should contain the same number of dims as \
             destination ({:?} dims)",
            from, to
        );
        return refuse(what);
    }
    let rank = x.dim();
    let mut order: Vec<Option<usize>> = vec![None; rank];
    let mut is_moved = vec![false; rank];
    for (&from, &to) in from.iter().zip(to) {
        let (from, to) = (normalize_dim("movedim", from, rank)?, normalize_dim("movedim", to, rank)?);
        // A 0-dim tensor accepts dim 0, which moves nowhere.
        let Some((place, moved)) = order.get_mut(to).zip(is_moved.get_mut(from)) else { continue };
        if place.is_some() || *moved {
            return refuse(format!("repeated dim: {from} goes to {to}, but one of them is named already"));
        }
        (*place, *moved) = (Some(from), true);
    }
    let mut rest = (0..rank).filter(|&dim| !is_moved[dim]);
    let order: Vec<i64> =
        order.into_iter().filter_map(|dim| dim.or_else(|| rest.next())).map(|dim| dim as i64).collect();
    x.permute(order)
}

fn swapaxes(x: &Tensor, axis0: i64, axis1: i64) -> Result<Tensor> {
    x.transpose(axis0, axis1)
}
