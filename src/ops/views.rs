//! The same elements under another shape.
//!
//! Everything here shares the storage of its input, but the operators whose names say that they copy what a view shows.
//! Views made of these are in `reshaping.rs` and `pieces.rs`. Negative dims count from the end, except in
//! [`Tensor::as_strided`], which counts memory.

use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::library::Library;
use crate::dispatch::operator::Operator;
use crate::dispatch::rows::call;
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::ir::{Attr, Category, DType, MemoryFormat, Op};
use crate::ops::arguments::count;
use crate::ops::dims::Dims;
use crate::ops::reshaping::{Indexing, broadcast_tensors, meshgrid};
use crate::tensor::handle::Tensor;

/// Views that are one row of the op table.
impl Tensor {
    /// The same elements in the same order under other sizes; one size may be −1 and is computed.
    ///
    /// # Errors
    /// If the number of elements differs, or strides cannot express it; see [`Tensor::reshape`].
    pub fn view(&self, sizes: impl Into<Dims>) -> Result<Tensor> {
        call(Op::View, &[self], &[Attr::ints(sizes.into().as_slice())])
    }

    /// Dimensions in the order of `dims`.
    ///
    /// # Errors
    /// If `dims` does not name every dim once.
    pub fn permute(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        call(Op::Permute, &[self], &[Attr::ints(dims.into().as_slice())])
    }

    /// Two dimensions swapped.
    ///
    /// # Errors
    /// If a dim is out of range.
    pub fn transpose(&self, dim0: i64, dim1: i64) -> Result<Tensor> {
        call(Op::Transpose, &[self], &[Attr::int(dim0), Attr::int(dim1)])
    }

    /// A matrix transposed; a tensor of fewer dims as it is.
    ///
    /// # Errors
    /// If there are more than two dims.
    pub fn t(&self) -> Result<Tensor> {
        call(Op::T, &[self], &[])
    }

    /// Dims of size 1 repeated, and new dims in front; −1 keeps a size. Nothing is copied: the stride is 0.
    ///
    /// # Errors
    /// If a dim of another size than 1 would change.
    pub fn expand(&self, sizes: impl Into<Dims>) -> Result<Tensor> {
        call(Op::Expand, &[self], &[Attr::ints(sizes.into().as_slice()), Attr::bool(false)])
    }

    /// Without those of the named dims that have size 1; an empty list (`()`) names all.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    pub fn squeeze(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        let dims = dims.into();
        let all: Vec<i64> = (0..self.dim() as i64).collect();
        let dims = if dims.as_slice().is_empty() { &all } else { dims.as_slice() };
        call(Op::Squeeze, &[self], &[Attr::ints(dims)])
    }

    /// With a new dim of size 1 in front of `dim`; −1 puts it last.
    ///
    /// # Errors
    /// If the dim is out of range.
    pub fn unsqueeze(&self, dim: i64) -> Result<Tensor> {
        call(Op::Unsqueeze, &[self], &[Attr::int(dim)])
    }

    /// Index `index` of `dim`, which goes away; a negative index counts from the end.
    ///
    /// # Errors
    /// If the dim or the index is out of range.
    pub fn select(&self, dim: i64, index: i64) -> Result<Tensor> {
        call(Op::Select, &[self], &[Attr::int(dim), Attr::int(index)])
    }

    /// Every `step`-th element of `dim` from `start` up to but without `end`. A bound that is `None` does not limit, a
    /// negative one counts from the end, and one beyond the end is clamped.
    ///
    /// # Errors
    /// If the dim is out of range or the step is not positive.
    pub fn slice(
        &self,
        dim: i64,
        start: impl Into<Option<i64>>,
        end: impl Into<Option<i64>>,
        step: i64,
    ) -> Result<Tensor> {
        let bound = |bound: Option<i64>| bound.map_or(Attr::None, Attr::int);
        call(Op::Slice, &[self], &[Attr::int(dim), bound(start.into()), bound(end.into()), Attr::int(step)])
    }
}

/// Views of memory.
impl Tensor {
    /// The same elements under another handle.
    ///
    /// # Errors
    /// None but those of the dispatcher.
    pub fn alias(&self) -> Result<Tensor> {
        call(Op::Alias, &[self], &[])
    }

    /// The same elements, cut from the history that gradients follow. Nothing is copied.
    ///
    /// # Errors
    /// None but those of the dispatcher.
    pub fn detach(&self) -> Result<Tensor> {
        call(Op::Detach, &[self], &[])
    }

    /// The diagonal of the dims `dim1` and `dim2`, which go away; it comes last. A positive `offset` is above the main
    /// one, a negative one below. Nothing is copied.
    ///
    /// # Errors
    /// If a dim is out of range or both are the same.
    pub fn diagonal(&self, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        call(Op::Diagonal, &[self], &[Attr::int(offset), Attr::int(dim1), Attr::int(dim2)])
    }

    /// Windows of `size` elements of `dim`, `step` apart: `dim` counts the windows, and a new last dim their elements.
    /// Nothing is copied, so windows may overlap.
    ///
    /// # Errors
    /// If the dim is out of range, a window does not fit, or the step is 0.
    pub fn unfold(&self, dim: i64, size: usize, step: usize) -> Result<Tensor> {
        let count = |count: usize| Attr::int(i64::try_from(count).unwrap_or(i64::MAX));
        call(Op::Unfold, &[self], &[Attr::int(dim), count(size), count(step)])
    }

    /// The storage under `sizes` and `strides` from storage element `offset` on; `None` is the tensor's own offset.
    /// What the tensor's sizes and strides are does not matter.
    ///
    /// # Errors
    /// If there is not one stride per size, a number is negative, or the storage is too short.
    pub fn as_strided(
        &self,
        sizes: impl Into<Dims>,
        strides: impl Into<Dims>,
        offset: impl Into<Option<i64>>,
    ) -> Result<Tensor> {
        let ints = |dims: Dims| Attr::ints(dims.as_slice());
        let offset = offset.into().map_or(Attr::None, Attr::int);
        call(Op::AsStrided, &[self], &[ints(sizes.into()), ints(strides.into()), offset])
    }

    /// The same bytes as elements of `dtype`. Where the widths differ, the last dim grows or shrinks.
    ///
    /// # Errors
    /// If the widths differ and the last dim is missing, not dense, or not divisible; the same goes for the other
    /// strides and the offset.
    pub fn view_dtype(&self, dtype: DType) -> Result<Tensor> {
        call(Op::ViewDtype, &[self], &[Attr::DType(dtype)])
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    sizes(library)?;
    order(library)?;
    pieces(library)?;
    copies(library)
}

fn sizes(library: &mut Library) -> Result<()> {
    library
        .def_kernel("reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)", reshape)?
        .def_kernel("reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)", Tensor::reshape_as)?
        .def_kernel("view_as(Tensor(a) self, Tensor other) -> Tensor(a)", Tensor::view_as)?
        .def_kernel("expand_as(Tensor(a) self, Tensor other) -> Tensor(a)", Tensor::expand_as)?
        .def_kernel("broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)", |x: &Tensor, sizes: &[i64]| {
            x.broadcast_to(sizes)
        })?
        .def_kernel("broadcast_tensors(Tensor[] tensors) -> Tensor[]", |tensors: &[Tensor]| {
            broadcast_tensors(&tensors.iter().collect::<Vec<_>>())
        })?
        .def_kernel("meshgrid(Tensor[] tensors) -> Tensor[]", |tensors: &[Tensor]| grid(tensors, "ij"))?
        .def_kernel("meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]", grid)?
        .def_kernel(
            "flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)",
            Tensor::flatten,
        )?
        .def_kernel("ravel(Tensor(a) self) -> Tensor(a)", |x: &Tensor| x.reshape(-1))?
        .def_kernel("unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)", unflatten)?
        .def_kernel("squeeze(Tensor(a) self) -> Tensor(a)", |x: &Tensor| x.squeeze(()))?
        .def_kernel("squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)", squeeze)?;
    Ok(())
}

fn order(library: &mut Library) -> Result<()> {
    for name in ["movedim", "moveaxis"] {
        library
            .def_kernel(
                &format!("{name}.int(Tensor(a) self, int source, int destination) -> Tensor(a)"),
                |x: &Tensor, from: i64, to: i64| x.movedim(from, to),
            )?
            .def_kernel(
                &format!("{name}.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)"),
                |x: &Tensor, from: &[i64], to: &[i64]| x.movedim(from, to),
            )?;
    }
    library
        .def_kernel("swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)", Tensor::swapaxes)?
        .def_kernel("swapdims(Tensor(a) self, int dim0, int dim1) -> Tensor(a)", Tensor::swapaxes)?;
    Ok(())
}

fn pieces(library: &mut Library) -> Result<()> {
    library
        .def_kernel("split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]", split)?
        .def_kernel("split.sizes(Tensor(a -> *) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]", split_sizes)?
        .def_kernel(
            "split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]",
            split_sizes,
        )?
        .def_kernel("chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]", chunk)?
        .def_kernel(
            "tensor_split.sections(Tensor(a -> *) self, SymInt sections, int dim=0) -> Tensor(a)[]",
            |x: &Tensor, n: i64, dim: i64| x.tensor_split(usize::try_from(n).unwrap_or(0), dim),
        )?
        .def_kernel(
            "tensor_split.indices(Tensor(a -> *) self, SymInt[] indices, int dim=0) -> Tensor(a)[]",
            |x: &Tensor, indices: &[i64], dim: i64| x.tensor_split_at(indices, dim),
        )?
        .def_kernel(
            "tensor_split.tensor_indices_or_sections(Tensor(a -> *) self, Tensor tensor_indices_or_sections, int \
             dim=0) -> Tensor(a)[]",
            Tensor::tensor_split_by,
        )?
        .def_kernel("unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]", Tensor::unbind)?
        .def_kernel("narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)", narrow)?
        .def_kernel("narrow.Tensor(Tensor(a) self, int dim, Tensor start, SymInt length) -> Tensor(a)", narrow_from)?;
    Ok(())
}

/// Composite views that have an operator which copies; every view that is a row has one too.
const COPIED: &[&str] = &[
    "squeeze(Tensor self) -> Tensor",
    "squeeze.dim(Tensor self, int dim) -> Tensor",
    "narrow(Tensor self, int dim, SymInt start, SymInt length) -> Tensor",
    "split.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]",
    "split_with_sizes(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]",
    "unbind.int(Tensor self, int dim=0) -> Tensor[]",
];

/// `x_copy` for each view `x`: the view, copied.
fn copies(library: &mut Library) -> Result<()> {
    let rows = Op::ALL.iter().filter(|op| op.is_view() && !op.name().starts_with('_'));
    let rows = rows.map(|op| op.schema().replace("(a)", ""));
    for schema in rows.chain(COPIED.iter().map(|schema| schema.to_string())) {
        let end = schema.find(['.', '(']).unwrap_or(schema.len());
        let (view, rest) = schema.split_at(end);
        let overload = rest.split('(').next().unwrap_or_default();
        let copy = format!("{view}_copy{overload}");
        let view = format!("aten::{view}{overload}");
        library.def(&format!("{view}_copy{rest}", view = &schema[..end]))?;
        let kernel = move |_: &Operator, _: KeySet, stack: &mut Stack| copy_of_view(&view, stack);
        library.impl_for(
            &copy,
            DispatchKey::CompositeImplicitAutograd,
            Kernel::boxed(kernel).named("copy of a view"),
        )?;
    }
    Ok(())
}

fn copy_of_view(view: &str, stack: &mut Stack) -> Result<()> {
    Dispatcher::global().lookup(view)?.call_boxed(stack)?;
    for tensor in stack.iter_mut().flat_map(Value::tensors_mut) {
        *tensor = call(Op::Clone, &[tensor], &[MemoryFormat::Contiguous.into()])?;
    }
    Ok(())
}

// The functions below take their arguments as the boxed caller has them: counts are signed, options are there.

fn reshape(x: &Tensor, sizes: &[i64]) -> Result<Tensor> {
    x.reshape(sizes)
}

fn unflatten(x: &Tensor, dim: i64, sizes: &[i64]) -> Result<Tensor> {
    x.unflatten(dim, sizes)
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
    meshgrid(&tensors.iter().collect::<Vec<_>>(), indexing)
}

fn split(x: &Tensor, size: i64, dim: i64) -> Result<Vec<Tensor>> {
    x.split(length("split", size)?, dim)
}

fn split_sizes(x: &Tensor, sizes: &[i64], dim: i64) -> Result<Vec<Tensor>> {
    x.split_with_sizes(sizes, dim)
}

fn chunk(x: &Tensor, n: i64, dim: i64) -> Result<Vec<Tensor>> {
    x.chunk(length("chunk", n)?, dim)
}

fn narrow(x: &Tensor, dim: i64, start: i64, n: i64) -> Result<Tensor> {
    x.narrow(dim, start, length("narrow", n)?)
}

fn narrow_from(x: &Tensor, dim: i64, start: &Tensor, n: i64) -> Result<Tensor> {
    if start.dim() != 0 || start.dtype().category() != Category::Integer {
        let what = format!("start must be a 0-dim integral tensor, but is {}", start.ty());
        return Err(Error::shape("narrow", what, "select one element first, or pass a number"));
    }
    narrow(x, dim, start.to_dtype(DType::I64)?.item()?, n)
}

fn squeeze(x: &Tensor, dim: i64) -> Result<Tensor> {
    x.squeeze(dim)
}

/// A number of elements.
fn length(op: &str, number: i64) -> Result<usize> {
    count(op, number).map_err(|_| {
        let what = format!("{op} expects a length that is non-negative, but got {number}");
        Error::shape(op, what, "lengths count elements")
    })
}
