//! Registration: every row of the op table becomes an operator.
//!
//! Done once per process, at the first call. The keys that have no behaviour of their own yet let calls fall
//! through; the Tracer and the user modes are one boxed fallback each for all operators.

use crate::dispatch::cpu_fallback::cpu_fallback;
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::kernel::{Kernel, RowFn};
use crate::dispatch::key::alias::AUTOGRAD_KEYS;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::ops::composites;

use crate::device::{Device, DeviceGuard};
use crate::dispatch::key::set::KeySet;
use crate::dispatch::library::Library;
use crate::dispatch::operator::Operator;
use crate::dispatch::schema::{OperatorName, Schema, Type};
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::ir::{Attr, Attrs, Op};
use crate::ops::mutation;
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::OnceLock;

/// Keys that every call falls through for want of behaviour.
const PASSED: &[DispatchKey] = &[
    DispatchKey::BackendSelect,
    DispatchKey::Functionalize,
    DispatchKey::ADInplaceOrView,
    DispatchKey::AutogradOther,
    DispatchKey::AutogradCPU,
    DispatchKey::AutogradCUDA,
    DispatchKey::AutogradMeta,
    DispatchKey::AutogradPrivateUse1,
    DispatchKey::AutocastCPU,
    DispatchKey::AutocastCUDA,
    DispatchKey::AutocastPrivateUse1,
];

struct Operators {
    by_op: Vec<Operator>,
    by_name: HashMap<OperatorName, Op>,
    _libraries: Vec<Library>,
}

#[inline]
fn operators() -> Result<&'static Operators> {
    static OPERATORS: OnceLock<Result<Operators>> = OnceLock::new();
    OPERATORS.get_or_init(register).as_ref().map_err(Error::clone)
}

/// Registers the op table now rather than at the first call, so that its operators can be looked up by name.
///
/// # Errors
/// If somebody else has registered operators of the same names.
pub fn load() -> Result<()> {
    operators().map(|_| ())
}

/// The operator of an op.
///
/// # Errors
/// As [`load`].
#[inline]
pub fn operator(op: Op) -> Result<&'static Operator> {
    operators().map(|operators| &operators.by_op[op as usize])
}

/// The op that an operator was made from.
pub fn op_of(operator: &Operator) -> Option<Op> {
    operators().ok()?.by_name.get(operator.name()).copied()
}

fn register() -> Result<Operators> {
    let mut fallbacks = Vec::new();
    for &key in PASSED {
        let mut library = Library::impl_block("_", key)?;
        library.fallback(Kernel::fallthrough())?;
        fallbacks.push(library);
    }
    let mut tracer = Library::impl_block("_", DispatchKey::Tracer)?;
    tracer.fallback(Kernel::boxed(crate::transforms::tracer::fallback).named("tracer"))?;
    let mut on_cpu = Library::impl_block("_", DispatchKey::CUDA)?;
    on_cpu.fallback(Kernel::boxed(cpu_fallback).named("cpu_fallback"))?;
    let mut modes = Library::impl_block("_", DispatchKey::PythonDispatcher)?;
    modes.fallback(Kernel::boxed(crate::dispatch::mode::fallback).named("modes"))?;
    let mut mapped = Library::impl_block("_", DispatchKey::FuncTorchBatched)?;
    mapped.fallback(Kernel::boxed(crate::transforms::batched::fallback).named("batched"))?;
    let mut definitions = Library::def_block("aten")?;
    let mut cpu = Library::impl_block("aten", DispatchKey::CPU)?;
    let mut cuda = Library::impl_block("aten", DispatchKey::CUDA)?;
    let mut meta = Library::impl_block("aten", DispatchKey::Meta)?;
    let mut batched = Library::impl_block("aten", DispatchKey::FuncTorchBatched)?;
    let mut autograd = Library::impl_block("aten", DispatchKey::Autograd)?;
    let mut views = Library::impl_block("aten", DispatchKey::ADInplaceOrView)?;
    let mut undefined = Library::fragment("aten")?;
    let mut by_op = Vec::with_capacity(Op::ALL.len());
    for &op in Op::ALL {
        let schema: Schema = op.schema().parse()?;
        let name = format!("aten::{}", schema.name);
        definitions.def(&op.schema())?;
        cpu.impl_(&name, Kernel::of_row(op, crate::ops::backend::cpu::kernel).named("cpu"))?;
        cuda.impl_(&name, Kernel::of_row(op, crate::ops::backend::cuda::kernel).named("cuda"))?;
        meta.impl_(&name, Kernel::of_row(op, crate::ops::backend::meta::kernel).named("meta"))?;
        batched.impl_(&name, Kernel::of_row(op, crate::transforms::batched::kernel).named("batched"))?;
        autograd.impl_(&name, Kernel::of_row(op, crate::autograd::kernel::kernel).named("autograd"))?;
        if op.is_view() {
            views.impl_(&name, Kernel::of_row(op, crate::autograd::inplace_or_view::view_kernel).named("view"))?;
        }
        let needs_tensor = |ty: &Type| ty.holds_tensors() && !matches!(ty, Type::List(..));
        if !schema.arguments.iter().any(|argument| needs_tensor(&argument.ty)) {
            // A factory has no tensor to take a backend from, nor has an empty list.
            let kernel = Kernel::of_row(op, crate::ops::backend::cpu::kernel).named("factory");
            undefined.impl_for(&name, DispatchKey::CompositeExplicitAutograd, kernel)?;
        }
        by_op.push(Dispatcher::global().lookup(&name)?);
    }
    fallbacks.extend([
        tracer,
        on_cpu,
        modes,
        mapped,
        definitions,
        cpu,
        cuda,
        meta,
        batched,
        autograd,
        views,
        undefined,
    ]);
    composites::register(&mut fallbacks)?;
    mutation::register(&mut fallbacks, &by_op)?;
    crate::transforms::autocast::register(&mut fallbacks)?;
    let by_name = Op::ALL.iter().zip(&by_op).map(|(&op, operator)| (operator.name().clone(), op)).collect();
    Ok(Operators { by_op, by_name, _libraries: fallbacks })
}

/// Calls an op: tensors in schema order, absent optional ones left out, and the other arguments in schema order.
///
/// A kernel of a row is reached directly; any other (a trace, a user's kernel) through values on a stack.
///
/// # Errors
/// If inference refuses the operands, no kernel is there for their keys, and what the kernel returns.
pub fn call(op: Op, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let operator = operator(op)?;
    let keys = operator.call_key_set(tensors.iter().fold(KeySet::EMPTY, |keys, tensor| keys | tensor.key_set()));
    if keys == ON_CPU {
        // Nearly all calls: the slots of these keys are known here.
        return run(op, operator, ON_CPU, tensors, attrs);
    }
    run(op, operator, keys, tensors, attrs)
}

/// As [`call`] of an op whose tensors, if it has any, do not say that it is to run on a GPU.
///
/// # Errors
/// As [`call`], or if there is no such GPU.
pub(crate) fn call_on(gpu: Device, op: Op, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let _current = DeviceGuard::new(gpu)?;
    let operator = operator(op)?;
    let keys = operator.call_key_set(KeySet::of(DispatchKey::CUDA));
    run(op, operator, keys, tensors, attrs)
}

/// What is left of the keys of a call on ordinary tensors, if no mode or guard is in force.
const ON_CPU: KeySet = KeySet::from_keys(&[DispatchKey::CPU, DispatchKey::AutogradCPU]);

/// As [`call`], by the kernel that `keys` lead to; tensors and thread-local sets are not asked.
pub(crate) fn redispatch(op: Op, keys: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    run(op, operator(op)?, keys, tensors, attrs)
}

#[inline(always)]
fn run(op: Op, operator: &Operator, keys: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let (mut keys, mut kernel) = (keys, operator.kernel(keys).and_then(Kernel::row));
    if kernel.is_some_and(is_autograd) && !crate::autograd::kernel::is_wanted(tensors) {
        // What that kernel would do, without calling it.
        keys = keys - AUTOGRAD_KEYS;
        kernel = operator.kernel(keys).and_then(Kernel::row);
    }
    match kernel {
        Some(kernel) => kernel(op, keys, tensors, attrs),
        None => run_boxed(op, operator, keys, tensors, attrs),
    }
}

fn is_autograd(kernel: RowFn) -> bool {
    std::ptr::fn_addr_eq(kernel, crate::autograd::kernel::kernel as RowFn)
}

/// As [`call`] of another operator with the same arguments, such as the in-place form.
pub(crate) fn call_as(op: Op, operator: &Operator, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let keys = operator.call_key_set(tensors.iter().fold(KeySet::EMPTY, |keys, tensor| keys | tensor.key_set()));
    run_boxed(op, operator, keys, tensors, attrs)
}

fn run_boxed(op: Op, operator: &Operator, keys: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let schema = operator.schema().ok_or_else(|| Error::argument(op.name(), "has no schema"))?;
    let mut stack = Stack::new();
    let (mut tensors, mut attrs) = (tensors.iter(), attrs.iter());
    for argument in &schema.arguments {
        stack.push(if argument.ty.holds_tensors() {
            argument_tensors(&argument.ty, &mut tensors, &mut attrs)
        } else {
            value_of(attrs.next().unwrap_or(&Attr::None), &argument.ty)
        });
    }
    operator.redispatch_boxed(keys, &mut stack)?;
    match stack.pop() {
        Some(Value::Tensor(tensor)) => Ok(tensor),
        Some(_) | None => Err(Error::argument(op.name(), "the kernel left no tensor")),
    }
}

fn argument_tensors<'a>(
    ty: &Type,
    tensors: &mut impl Iterator<Item = &'a &'a Tensor>,
    attrs: &mut impl Iterator<Item = &'a Attr>,
) -> Value {
    match ty {
        Type::Optional(_) => match attrs.next() {
            Some(present) if present.is_true() => {
                tensors.next().map_or(Value::None, |&tensor| Value::Tensor(tensor.clone()))
            }
            Some(_) | None => Value::None,
        },
        Type::List(..) => Value::TensorList(tensors.map(|&tensor| tensor.clone()).collect()),
        _ => tensors.next().map_or(Value::None, |&tensor| Value::Tensor(tensor.clone())),
    }
}

/// An argument as a value of its schema type.
fn value_of(attr: &Attr, ty: &Type) -> Value {
    match (ty, attr) {
        (_, Attr::None) => Value::None,
        (Type::Optional(inner), attr) => value_of(attr, inner),
        (Type::Int | Type::SymInt, Attr::Scalar(scalar)) => Value::Int(scalar.as_i64()),
        (Type::Float, Attr::Scalar(scalar)) => Value::Float(scalar.as_f64()),
        (Type::Bool, Attr::Scalar(scalar)) => Value::Bool(scalar.as_bool()),
        (_, Attr::Scalar(scalar)) => Value::Scalar(*scalar),
        (_, Attr::Ints(values)) => Value::IntList(values.iter().copied().collect()),
        (_, Attr::DType(dtype)) => Value::DType(*dtype),
        (_, Attr::MemoryFormat(format)) => Value::MemoryFormat(*format),
        (_, Attr::Str(word)) => Value::Str(word.as_ref().into()),
    }
}

/// A boxed call's arguments in the form of the op table; see [`call`].
///
/// # Errors
/// If a value is of a type that no row takes.
pub fn unpack(op: Op, stack: &Stack) -> Result<(SmallVec<[Tensor; 4]>, Attrs)> {
    let mut tensors = SmallVec::new();
    let mut attrs = Attrs::new();
    let schema = operator(op)?.schema().ok_or_else(|| Error::argument(op.name(), "has no schema"))?;
    for (argument, value) in schema.arguments.iter().zip(stack) {
        if let Type::Optional(inner) = &argument.ty
            && inner.holds_tensors()
        {
            attrs.push(Attr::bool(matches!(value, Value::Tensor(_))));
        }
        match value {
            Value::Tensor(tensor) => tensors.push(tensor.clone()),
            Value::TensorList(list) => tensors.extend(list.iter().cloned()),
            Value::None if argument.ty.holds_tensors() => {}
            other => attrs.push(attr_of(op, other)?),
        }
    }
    Ok((tensors, attrs))
}

fn attr_of(op: Op, value: &Value) -> Result<Attr> {
    Ok(match value {
        Value::None => Attr::None,
        Value::Int(value) => Attr::int(*value),
        Value::Float(value) => Attr::float(*value),
        Value::Bool(value) => Attr::bool(*value),
        Value::Scalar(scalar) => Attr::Scalar(*scalar),
        Value::IntList(values) => Attr::ints(values),
        Value::BoolList(values) => Attr::Ints(values.iter().map(|&value| value as i64).collect()),
        Value::DType(dtype) => Attr::DType(*dtype),
        Value::Str(word) => Attr::Str(word.as_ref().into()),
        Value::MemoryFormat(format) => Attr::from(*format),
        Value::Tensor(_)
        | Value::TensorList(_)
        | Value::OptionalTensorList(_)
        | Value::FloatList(_)
        | Value::ScalarList(_)
        | Value::Device(_)
        | Value::Layout(_)
        | Value::Object(_) => {
            return Err(Error::argument(
                op.name(),
                format!("an argument of type {} is not supported", value.type_name()),
            ));
        }
    })
}
