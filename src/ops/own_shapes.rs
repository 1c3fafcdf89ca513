//! Operators that would give a tensor another shape in place.
//!
//! A tensor is a value that threads share: sizes and strides are borrowed from its handle, kernels rely on them between
//! two looks, and views and traces know a tensor by them, so they never change. What asks for the shape that is there
//! already gives the tensor back; anything else is refused with the form that gives a new handle, which for views
//! copies as little.

use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::library::Library;
use crate::dispatch::operator::Operator;
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::ir::MemoryFormat;
use crate::ops::arguments::counts;
use crate::tensor::handle::Tensor;

/// In-place views: the arguments behind the tensor, and the view that takes the same.
const VIEWS: &[(&str, &str, &str)] = &[
    ("t_", "", "t"),
    ("transpose_", ", int dim0, int dim1", "transpose.int"),
    ("swapaxes_", ", int axis0, int axis1", "swapaxes"),
    ("swapdims_", ", int dim0, int dim1", "swapdims"),
    ("squeeze_", "", "squeeze"),
    ("squeeze_.dim", ", int dim", "squeeze.dim"),
    ("squeeze_.dims", ", int[] dim", "squeeze.dims"),
    ("unsqueeze_", ", int dim", "unsqueeze"),
    ("as_strided_", ", SymInt[] size, SymInt[] stride, SymInt? storage_offset=None", "as_strided"),
];

pub(crate) fn register(library: &mut Library) -> Result<()> {
    for &(name, arguments, view) in VIEWS {
        library.def(&format!("{name}(Tensor(a!) self{arguments}) -> Tensor(a!)"))?;
        let kernel = move |operator: &Operator, _: KeySet, stack: &mut Stack| view_in_place(operator, view, stack);
        let kernel = Kernel::boxed(kernel).named("view in place");
        library.impl_for(name, DispatchKey::CompositeImplicitAutograd, kernel)?;
    }
    library
        .def_kernel(
            "resize_(Tensor(a!) self, SymInt[] size, *, MemoryFormat? memory_format=None) -> Tensor(a!)",
            |x: &Tensor, sizes: &[i64], _: Option<MemoryFormat>| resize("resize_", x, &counts("resize_", sizes)?),
        )?
        .def_kernel(
            "resize_as_(Tensor(a!) self, Tensor the_template, *, MemoryFormat? memory_format=None) -> Tensor(a!)",
            |x: &Tensor, like: &Tensor, _: Option<MemoryFormat>| resize("resize_as_", x, like.sizes()),
        )?
        .def_kernel("set_.source_Tensor(Tensor(a!) self, Tensor source) -> Tensor(a!)", set)?;
    Ok(())
}

fn view_in_place(operator: &Operator, view: &str, stack: &mut Stack) -> Result<()> {
    let name = &operator.name().name;
    let Some(Value::Tensor(target)) = stack.first().cloned() else {
        return Err(Error::argument(&**name, "the first argument must be a tensor"));
    };
    // Wrong arguments are the view's to find.
    Dispatcher::global().lookup(&format!("aten::{view}"))?.call_boxed(stack)?;
    let Some(Value::Tensor(wanted)) = stack.pop() else {
        return Err(Error::Internal { message: format!("{view} left no tensor") });
    };
    if wanted.array().layout() != target.array().layout() {
        let view = view.split('.').next().unwrap_or(view);
        return Err(fixed(
            name,
            &target,
            wanted.sizes(),
            &format!("go on with what {view} returns, which copies nothing"),
        ));
    }
    stack.push(Value::Tensor(target));
    Ok(())
}

fn resize(op: &str, x: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    if x.requires_grad() {
        return Err(Error::argument(op, "cannot resize variables that require grad; detach() first"));
    }
    if x.sizes() == sizes {
        return Ok(x.clone());
    }
    let hint = "make another tensor with empty, or view the elements that are there with narrow or as_strided";
    Err(fixed(op, x, sizes, hint))
}

fn set(x: &Tensor, source: &Tensor) -> Result<Tensor> {
    let is_same =
        x.has_storage_of(source) && x.dtype() == source.dtype() && x.array().layout() == source.array().layout();
    if is_same {
        return Ok(x.clone());
    }
    Err(fixed("set_", x, source.sizes(), "go on with source itself, or copy_ its elements"))
}

fn fixed(op: &str, x: &Tensor, wanted: &[usize], hint: &str) -> Error {
    let op = op.trim_start_matches("aten::");
    let what = format!(
        "the shape {:?} of a tensor never changes, so it cannot become {wanted:?} in place (storage and strides are \
         fixed too); {hint}",
        x.sizes()
    );
    Error::NotImplemented { op: op.into(), what }
}
