//! The operators `x_copy` and `x_`, which follow from a view op `x`.
//!
//! `x_copy` returns a copy of the view. `x_` would change the shape of a tensor in place. But shapes are fixed: sizes
//! and strides are borrowed from a handle that threads share, kernels rely on them, and views and traces refer to them.
//! So `x_` returns the tensor if the shape would not change, and otherwise an error that names the form that returns a
//! new handle. The same holds for `resize_` and `set_`.

use crate::dispatch::builtins::Builtins;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::library::Library;
use crate::dispatch::operator::Operator;
use crate::dispatch::rows::call;
use crate::dispatch::schema::{Parameter, Schema};
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::ir::{MemoryFormat, Op};
use crate::ops::arguments::counts;
use crate::ops::arguments::ordered;
use crate::tensor::handle::Tensor;

/// The rows with an in-place form, and its overload. Every public view op has a form that copies.
const IN_PLACE: [(Op, &str); 5] =
    [(Op::T, ""), (Op::Transpose, ""), (Op::Squeeze, "dims"), (Op::Unsqueeze, ""), (Op::AsStrided, "")];

/// Defines the forms of the rows that are views.
pub(crate) fn register(builtins: &mut Builtins) -> Result<()> {
    let mut library = Library::fragment("aten")?;
    for (op, view) in builtins.rows() {
        if op.is_view() && !op.name().starts_with('_') {
            define_copy(&mut library, view)?;
        }
        if let Some((_, overload)) = IN_PLACE.iter().find(|(row, _)| *row == op) {
            define_in_place(&mut library, view, overload)?;
        }
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
    builtins.libraries.push(library);
    Ok(())
}

/// Defines `x_copy` for a view `x`.
pub(crate) fn define_copy(library: &mut Library, view: &Operator) -> Result<()> {
    let mut schema = schema_of(view)?.clone();
    schema.name.name.push_str("_copy");
    for Parameter { alias, .. } in schema.arguments.iter_mut().chain(&mut schema.returns) {
        *alias = None;
    }
    let view = view.clone();
    let kernel = Kernel::boxed(move |_, _, stack| copy_of_view(&view, stack)).named("copy of a view");
    library.def_composite(&schema.to_string(), kernel).map(|_| ())
}

/// Defines `x_` with this overload for a view op `x`.
pub(crate) fn define_in_place(library: &mut Library, view: &Operator, overload: &str) -> Result<()> {
    let mut schema = schema_of(view)?.clone();
    schema.name.name.push('_');
    schema.name.overload = overload.into();
    for alias in schema.arguments.iter_mut().chain(&mut schema.returns).filter_map(|one| one.alias.as_mut()) {
        alias.is_write = true;
    }
    let view = view.clone();
    let kernel = Kernel::boxed(move |operator, _, stack| view_in_place(operator, &view, stack)).named("view in place");
    library.def_composite(&schema.to_string(), kernel).map(|_| ())
}

fn schema_of(view: &Operator) -> Result<&Schema> {
    view.schema().ok_or_else(|| Error::argument(view.name().to_string(), "has no schema"))
}

fn copy_of_view(view: &Operator, stack: &mut Stack) -> Result<()> {
    view.call_boxed(stack)?;
    for tensor in stack.iter_mut().flat_map(Value::tensors_mut) {
        *tensor = call(Op::Clone, &[tensor], &ordered(MemoryFormat::Contiguous))?;
    }
    Ok(())
}

fn view_in_place(operator: &Operator, view: &Operator, stack: &mut Stack) -> Result<()> {
    let name = &operator.name().name;
    let Some(Value::Tensor(target)) = stack.first().cloned() else {
        return Err(Error::argument(&**name, "the first argument must be a tensor"));
    };
    // The view op itself reports wrong arguments.
    view.call_boxed(stack)?;
    let Some(Value::Tensor(wanted)) = stack.pop() else {
        return Err(Error::Internal { message: format!("{view:?} left no tensor") });
    };
    if wanted.array().layout() != target.array().layout() {
        let hint = format!("use the result of {}, which copies nothing", without_namespace(&view.name().name));
        return Err(fixed(name, &target, wanted.sizes(), &hint));
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
    Err(fixed("set_", x, source.sizes(), "use source itself, or copy_ its elements"))
}

fn fixed(op: &str, x: &Tensor, wanted: &[usize], hint: &str) -> Error {
    let what = format!(
        "the shape {:?} of a tensor never changes, so it cannot become {wanted:?} in place (storage and strides are \
         fixed too); {hint}",
        x.sizes()
    );
    Error::NotImplemented { op: without_namespace(op).into(), what }
}

fn without_namespace(name: &str) -> &str {
    name.trim_start_matches("aten::")
}
