//! The operators `x_` and `x.out`, which follow from an operator `x`.
//!
//! Both call `x` and store its result by `copy_`: in the first argument, or in the one called `out`. A row of the op
//! table has them if its meaning says that the result has the sizes of `self`. A composite has them if its static says
//! so. The kernel of `x_` of a row is in `mutation.rs`.

use crate::dispatch::builtins::Builtins;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::dispatch::library::Library;
use crate::dispatch::operator::Operator;
use crate::dispatch::rows::unpack;
use crate::dispatch::schema::{AliasInfo, OperatorName, Parameter, Schema, Type};
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::ir::routine::Scan;
use crate::ir::{Meaning, Op, Routine};
use crate::ops::derivative::reads_first;
use crate::ops::mutation::{self, as_it_was, check_target, write};
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;

/// Overloads of in-place forms that differ from those of the functional form: ATen has `floor_divide_.Tensor`.
const OVERLOADS: [(Op, &str); 3] = [(Op::Pow, "Tensor"), (Op::PowScalar, "Scalar"), (Op::FloorDivide, "Tensor")];

/// Defines the forms of all rows that have them.
pub(crate) fn register(builtins: &mut Builtins) -> Result<()> {
    let mut library = Library::fragment("aten")?;
    let mut forms = Vec::with_capacity(builtins.by_op.len());
    for (op, functional) in builtins.rows() {
        let overload = OVERLOADS.iter().find(|(row, _)| *row == op).map(|(_, overload)| *overload);
        let is_written = functional.schema().is_some_and(|schema| keeps_sizes(op) && may_be_written(schema));
        let own = mutation::own_kernel(op).unwrap_or_else(|| Kernel::of_row(op, mutation::kernel).named("mutation"));
        forms.push(if is_written { Some(define(&mut library, functional, overload, Some(own))?) } else { None });
    }
    builtins.in_place = forms;
    builtins.libraries.push(library);
    Ok(())
}

/// Whether the result has the sizes of the first operand after broadcasting.
fn keeps_sizes(op: Op) -> bool {
    match op.row().meaning {
        Meaning::Body(..) | Meaning::Routine(Routine::Scan(Scan::Sum | Scan::Prod) | Routine::Scatter(_)) => true,
        Meaning::Routine(
            Routine::Scan(Scan::ArgMax | Scan::ArgMin)
            | Routine::Recurrence
            | Routine::Argsort
            | Routine::First
            | Routine::FlatIndex
            | Routine::Bits
            | Routine::WindowProduct
            | Routine::Matrix(_)
            | Routine::Fourier(_),
        )
        | Meaning::Decompose(_)
        | Meaning::Fold(_)
        | Meaning::View(_)
        | Meaning::Window(_)
        | Meaning::Product
        | Meaning::Gather(_)
        | Meaning::Concat
        | Meaning::Overlay
        | Meaning::Fill
        | Meaning::Range => false,
    }
}

/// Whether the schema is that of a public operator with a tensor `self`, which does not choose a memory format.
fn may_be_written(schema: &Schema) -> bool {
    let takes_self = schema.arguments.first().is_some_and(|first| first.ty == Type::Tensor && first.name == "self");
    let gives_one = matches!(&schema.returns[..], [one] if one.ty == Type::Tensor && one.alias.is_none());
    let keeps_layout = !schema.arguments.iter().any(|argument| argument.name == "memory_format");
    takes_self && gives_one && keeps_layout && !schema.name.name.starts_with("aten::_")
}

/// Defines `x_` and `x.out` for a functional operator `x`, and returns `x_`. By default its overload is that of `x`,
/// and its kernel calls `x`.
pub(crate) fn define(
    library: &mut Library,
    functional: &Operator,
    overload: Option<&str>,
    in_place: Option<Kernel>,
) -> Result<Operator> {
    let schema = functional.schema().ok_or_else(|| Error::argument(functional.name().to_string(), "has no schema"))?;
    let in_place = in_place.unwrap_or_else(|| {
        let functional = functional.clone();
        Kernel::boxed(move |_, _, stack| run_in_place(&functional, stack)).named("mutation")
    });
    let out_schema = out_schema(schema, functional.row().is_some()).to_string();
    let functional = functional.clone();
    let out = Kernel::boxed(move |_, _, stack| run_out(&functional, stack)).named("mutation");
    library.def_composite(&out_schema, out)?;
    library.def_composite(&in_place_schema(schema, overload).to_string(), in_place)
}

fn written() -> Option<AliasInfo> {
    Some(AliasInfo { before: vec!["a".into()], is_write: true, after: Vec::new() })
}

fn in_place_schema(functional: &Schema, overload: Option<&str>) -> Schema {
    let mut schema = functional.clone();
    schema.name.name.push('_');
    if let Some(overload) = overload {
        schema.name.overload = overload.into();
    }
    schema.arguments[0].alias = written();
    schema.returns[0].alias = written();
    schema
}

fn out_schema(functional: &Schema, is_row: bool) -> Schema {
    let mut schema = functional.clone();
    let OperatorName { overload, .. } = &mut schema.name;
    *overload = match &**overload {
        "" => "out".into(),
        "Tensor" if is_row => "out".into(),
        "Tensor_mode" => "out_mode".into(),
        other => format!("{other}_out"),
    };
    schema.arguments.push(Parameter {
        name: "out".into(),
        ty: Type::Tensor,
        alias: written(),
        default: None,
        kwarg_only: true,
    });
    schema.returns[0].alias = written();
    schema
}

fn run_in_place(functional: &Operator, stack: &mut Stack) -> Result<()> {
    let name = functional.name().to_string();
    let Some(Value::Tensor(target)) = stack.first().cloned() else {
        return Err(Error::argument(name, "the first argument is to be written to, so it must be a tensor"));
    };
    check_target(&name, &target)?;
    let recorded = is_grad_enabled() && stack.iter().flat_map(Value::tensors).any(Tensor::requires_grad);
    let reads = match functional.row().filter(|_| recorded) {
        Some(op) => {
            let (tensors, attrs) = unpack(op, stack)?;
            reads_first(op, &attrs, &tensors.iter().collect::<SmallVec<[&Tensor; 4]>>())?
        }
        None => recorded,
    };
    if reads {
        stack[0] = Value::Tensor(as_it_was(&target)?);
    }
    functional.call_boxed(stack)?;
    let result = stack.pop().and_then(|value| value.tensors().next().cloned());
    let result = result.ok_or_else(|| Error::argument(&*name, "the kernel returned no tensor"))?;
    write(&name, &target, &result)?;
    stack.clear();
    stack.push(Value::Tensor(target));
    Ok(())
}

fn run_out(functional: &Operator, stack: &mut Stack) -> Result<()> {
    let name = functional.name().to_string();
    let Some(Value::Tensor(out)) = stack.pop() else {
        return Err(Error::argument(name, "out must be a tensor"));
    };
    let recorded = is_grad_enabled() && stack.iter().flat_map(Value::tensors).chain([&out]).any(Tensor::requires_grad);
    if recorded {
        return Err(Error::argument(
            name,
            "functions with out=... arguments don't support automatic differentiation, but one of the arguments \
             requires grad; call the form without out",
        ));
    }
    check_target(&name, &out)?;
    functional.call_boxed(stack)?;
    let result = stack.pop().and_then(|value| value.tensors().next().cloned());
    let result = result.ok_or_else(|| Error::argument(&*name, "the kernel returned no tensor"))?;
    if out.sizes() != result.sizes() {
        let (found, sizes, dtype) = (out.sizes(), result.sizes(), result.dtype());
        let what = format!("out has shape {found:?}, but the result has shape {sizes:?}, and a tensor is not resized");
        let hint =
            format!("pass an out made by Tensor::empty(&{sizes:?}, DType::{dtype:?}), or call the form without out");
        return Err(Error::shape(name, what, hint));
    }
    write(&name, &out, &result)?;
    stack.clear();
    stack.push(Value::Tensor(out));
    Ok(())
}
