//! Views of tensors under their ATen schemas, and the operators that copy what a view shows.

use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::library::Library;
use crate::dispatch::operator::Operator;
use crate::dispatch::rows::call;
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::ir::{Category, DType, MemoryFormat, Op};
use crate::ops::composites::arguments::count;
use crate::ops::reshaping::{Indexing, broadcast_tensors, meshgrid};
use crate::tensor::handle::Tensor;

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
