//! Converts arguments of a row of the op table to values on a stack, and back.

use crate::dispatch::schema::{Schema, Type};
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::ir::{Attr, Attrs, Op};
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;

/// Arguments of a row, in the order of its schema, as the stack of a boxed call.
pub(crate) fn pack(schema: &Schema, tensors: &[&Tensor], attrs: &[Attr]) -> Stack {
    let mut stack = Stack::new();
    let (mut tensors, mut attrs) = (tensors.iter(), attrs.iter());
    for argument in &schema.arguments {
        stack.push(if argument.ty.holds_tensors() {
            argument_tensors(&argument.ty, &mut tensors, &mut attrs)
        } else {
            value_of(attrs.next().unwrap_or(&Attr::None), &argument.ty)
        });
    }
    stack
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

/// The arguments of a boxed call, in the form that rows take.
///
/// # Errors
/// If a value has a type that no row takes.
pub(crate) fn unpack(op: Op, schema: &Schema, stack: &Stack) -> Result<(SmallVec<[Tensor; 4]>, Attrs)> {
    let mut tensors = SmallVec::new();
    let mut attrs = Attrs::new();
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
