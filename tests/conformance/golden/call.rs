//! One call of an operator through the dispatcher, boxed, with every argument of its schema.

use super::case::{Arg, ArgKind, Case, ErrorClass};
use super::tensors::Store;
use crate::panics::message;
use opfuse::MemoryFormat;
use opfuse::device::Generator;
use opfuse::dispatch::{Dispatcher, Operator, Stack, Type, Value};
use opfuse::{DType, Device, Error, Scalar, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The outcome of a call.
pub(crate) enum Outcome {
    /// The results, lists of tensors flattened.
    Returned(Vec<Value>),
    Failed(Error),
    Panicked(String),
}

/// The operator of a case, if there is one.
pub(crate) fn operator(case: &Case) -> Option<Operator> {
    Dispatcher::global().lookup(&case.operator).ok()
}

/// The arguments of a case as values of the schema's types; tensors are made anew.
pub(crate) fn arguments(case: &Case, operator: &Operator, store: &Store<'_>) -> Result<Stack, String> {
    let schema = operator.schema().ok_or("the operator has no schema")?;
    let ours: Vec<&str> = schema.arguments.iter().map(|argument| argument.name.as_str()).collect();
    let theirs: Vec<&str> = case.args.iter().map(|arg| arg.name.as_str()).collect();
    if ours != theirs {
        return Err(format!("the schema has arguments {ours:?}, the case {theirs:?}"));
    }
    let arguments = case.args.iter().zip(&schema.arguments);
    let stack: Stack =
        arguments.map(|(arg, parameter)| value(&arg.kind, &parameter.ty, store)).collect::<Result<_, String>>()?;
    schema.check_stack(&stack).map_err(|error| error.to_string())?;
    Ok(stack)
}

/// Calls the operator; a panic inside is caught.
pub(crate) fn call(operator: &Operator, mut stack: Stack) -> Outcome {
    match catch_unwind(AssertUnwindSafe(|| operator.call_boxed(&mut stack).map(|()| stack))) {
        Ok(Ok(stack)) => Outcome::Returned(flattened(stack)),
        Ok(Err(error)) => Outcome::Failed(error),
        Err(panic) => Outcome::Panicked(message(&*panic)),
    }
}

/// The class of an error.
pub(crate) fn class(error: &Error) -> ErrorClass {
    match error {
        Error::OutOfRange { .. } | Error::Index { .. } => ErrorClass::Index,
        Error::NotImplemented { .. } => ErrorClass::NotImplemented,
        _ => ErrorClass::Other,
    }
}

/// The tensor arguments in order, by name; those of a list as `name.i`.
pub(crate) fn tensors<'a>(args: &[Arg], stack: &'a Stack) -> Vec<(String, &'a Tensor)> {
    let mut out = Vec::new();
    for (arg, value) in args.iter().zip(stack) {
        match (&arg.kind, value) {
            (ArgKind::Tensor(_), Value::Tensor(tensor)) => out.push((arg.name.clone(), tensor)),
            (ArgKind::TensorList(items), Value::TensorList(list)) => {
                let stored = items.iter().zip(list).enumerate().filter(|(_, (item, _))| item.is_stored());
                out.extend(stored.map(|(i, (_, tensor))| (format!("{}.{i}", arg.name), tensor)));
            }
            (ArgKind::TensorList(_), Value::OptionalTensorList(list)) => {
                let present = list.iter().enumerate().filter_map(|(i, item)| Some((i, item.as_ref()?)));
                out.extend(present.map(|(i, tensor)| (format!("{}.{i}", arg.name), tensor)));
            }
            (_, _) => {}
        }
    }
    out
}

/// The stack with other tensors in the places of its stored ones.
pub(crate) fn with_tensors(args: &[Arg], template: &Stack, inputs: &[Tensor]) -> Stack {
    let mut inputs = inputs.iter().cloned();
    let mut next = |tensor: &Tensor| inputs.next().unwrap_or_else(|| tensor.clone());
    let fill = |(arg, value): (&Arg, &Value)| match value {
        Value::Tensor(tensor) if arg.kind.is_stored() => Value::Tensor(next(tensor)),
        Value::TensorList(list) => Value::TensorList(
            arg.kind
                .items()
                .iter()
                .zip(list)
                .map(|(item, tensor)| if item.is_stored() { next(tensor) } else { tensor.clone() })
                .collect(),
        ),
        Value::OptionalTensorList(list) => {
            Value::OptionalTensorList(list.iter().map(|item| item.as_ref().map(&mut next)).collect())
        }
        other => other.clone(),
    };
    args.iter().zip(template).map(fill).collect()
}

impl ArgKind {
    /// Whether it is a tensor of the data, not a plain number.
    pub(crate) fn is_stored(&self) -> bool {
        matches!(self, ArgKind::Tensor(_))
    }

    /// The items of a list of tensors.
    pub(crate) fn items(&self) -> &[ArgKind] {
        if let ArgKind::TensorList(items) = self { items } else { &[] }
    }
}

/// Results in order, with lists of tensors flattened.
pub(crate) fn flattened(stack: Stack) -> Vec<Value> {
    let mut out = Vec::new();
    for value in stack {
        match value {
            Value::TensorList(tensors) => out.extend(tensors.into_iter().map(Value::Tensor)),
            other => out.push(other),
        }
    }
    out
}

/// A result as a tensor: a number becomes one, an absent one is left out.
pub(crate) fn as_tensor(value: &Value) -> Option<Result<Tensor, Error>> {
    match value {
        Value::Tensor(tensor) => Some(Ok(tensor.clone())),
        Value::Int(number) => Some(Tensor::number(*number)),
        Value::Float(number) => Some(Tensor::number(*number)),
        Value::Bool(flag) => Some(Tensor::number(*flag)),
        Value::Scalar(number) => Some(Tensor::number(*number)),
        _ => None,
    }
}

/// A dtype as the reference numbers it.
fn numbered_dtype(number: i64) -> Result<DType, String> {
    Ok(match number {
        0 => DType::U8,
        1 => DType::I8,
        2 => DType::I16,
        3 => DType::I32,
        4 => DType::I64,
        5 => DType::F16,
        6 => DType::F32,
        7 => DType::F64,
        11 => DType::Bool,
        15 => DType::BF16,
        other => return Err(format!("dtype number {other} is none of ours")),
    })
}

/// An argument as a value of the type that the schema names.
fn value(kind: &ArgKind, ty: &Type, store: &Store<'_>) -> Result<Value, String> {
    if let (Type::Optional(inner), false) = (ty, matches!(kind, ArgKind::None)) {
        return value(kind, inner, store);
    }
    Ok(match (kind, ty) {
        // A generator of its own instead of the default one, so that the same call gives the same numbers.
        (ArgKind::None, Type::Optional(inner)) if **inner == Type::Generator => {
            Value::from(&Generator::new(Device::CPU))
        }
        (ArgKind::None, _) => Value::None,
        (ArgKind::Int(number), Type::ScalarType) => Value::DType(numbered_dtype(*number)?),
        (ArgKind::Tensor(window), _) => Value::Tensor(store.argument(window)?),
        (ArgKind::Wrapped(number), _) => Value::Tensor(Tensor::number(*number).map_err(|error| error.to_string())?),
        (ArgKind::TensorList(items), Type::List(element, _)) => {
            let items = items.iter().map(|item| value(item, element, store)).collect::<Result<Vec<_>, String>>()?;
            let tensors =
                items.into_iter().map(|item| if let Value::Tensor(tensor) = item { Some(tensor) } else { None });
            if matches!(**element, Type::Optional(_)) {
                Value::OptionalTensorList(tensors.collect())
            } else {
                Value::TensorList(tensors.collect::<Option<_>>().ok_or("a list of tensors has a gap")?)
            }
        }
        (ArgKind::Int(number), Type::Scalar) => Value::Scalar(Scalar::Int(*number)),
        (ArgKind::Int(number), Type::Float) => Value::Float(*number as f64),
        (ArgKind::Int(number), Type::List(..)) => Value::IntList([*number].as_slice().into()),
        // A default dtype or layout is given by its number.
        (ArgKind::Int(number), Type::MemoryFormat) => Value::MemoryFormat(
            [
                MemoryFormat::Contiguous,
                MemoryFormat::Preserve,
                MemoryFormat::ChannelsLast,
                MemoryFormat::ChannelsLast3d,
            ]
            .get(*number as usize)
            .copied()
            .ok_or_else(|| format!("{number} is no memory format"))?,
        ),
        (ArgKind::Int(number), _) => Value::Int(*number),
        (ArgKind::Float(number), Type::Scalar) => Value::Scalar(Scalar::Float(*number)),
        (ArgKind::Float(number), _) => Value::Float(*number),
        (ArgKind::Bool(flag), Type::Scalar) => Value::Scalar(Scalar::Bool(*flag)),
        (ArgKind::Bool(flag), _) => Value::Bool(*flag),
        (ArgKind::Str(text), _) => Value::Str(text.as_str().into()),
        (ArgKind::IntList(numbers), Type::List(element, _)) if **element == Type::Float => {
            Value::FloatList(numbers.iter().map(|&number| number as f64).collect())
        }
        (ArgKind::IntList(numbers), Type::List(element, _)) if **element == Type::Scalar => {
            Value::ScalarList(numbers.iter().map(|&number| Scalar::Int(number)).collect())
        }
        (ArgKind::IntList(numbers), _) => Value::IntList(numbers.as_slice().into()),
        (ArgKind::FloatList(numbers), Type::List(element, _)) if **element == Type::Scalar => {
            Value::ScalarList(numbers.iter().map(|&number| Scalar::Float(number)).collect())
        }
        (ArgKind::FloatList(numbers), _) => Value::FloatList(numbers.clone()),
        (ArgKind::BoolList(flags), _) => Value::BoolList(flags.clone()),
        (ArgKind::DType(dtype), _) => Value::DType(*dtype),
        (ArgKind::Device(device), _) => Value::Device(*device),
        (ArgKind::Layout(layout), _) => Value::Layout(*layout),
        (ArgKind::MemoryFormat(format), _) => Value::MemoryFormat(*format),
        (ArgKind::TensorList(_), other) => return Err(format!("a list of tensors is given for a {other}")),
    })
}
