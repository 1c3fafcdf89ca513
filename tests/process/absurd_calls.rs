//! Absurd calls of every operator, made from its schema: operands of any dtype and layout, numbers at the ends of their
//! ranges, lists of any length. A call is refused or gives a result. None panics, and the process stays in its memory.

use crate::alone::has_run_alone;
use crate::effort::seeds;
use crate::panics::message;
use crate::values::Numbers;
use opfuse::dispatch::{Dispatcher, Operator, Stack, TensorLayout, Type, Value};
use opfuse::internals::device::allocator;
use opfuse::ir::MemoryFormat;
use opfuse::{DType, Device, Scalar, Tensor};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Most calls stay far below this many bytes.
const MEMORY: usize = 64 << 20;
/// All dtypes. Complex ones are in it twice.
const DTYPES: [DType; 14] = [
    DType::Bool,
    DType::U8,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
    DType::Complex64,
    DType::Complex64,
    DType::Complex128,
    DType::Complex128,
];
const SIZES: &[usize] = &[0, 1, 1, 2, 3, 4];
const INTS: &[i64] = &[0, 1, -1, 2, 3, -3, 7, i64::MAX, i64::MIN, 1 << 40];
const FLOATS: &[f64] = &[0.0, -0.0, 0.5, 1.0, -1.0, 2.0, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
const WORDS: &[&str] = &["", "floor", "trunc", "none", "tanh", "mean", "sum", "linear", "ij,jk->ik", "no such word"];

fn tensor(numbers: &mut Numbers) -> Tensor {
    let rank = numbers.pick(&[0usize, 1, 1, 2, 2, 3, 4, 5]);
    let sizes: Vec<usize> = (0..rank).map(|_| numbers.pick(SIZES)).collect();
    let dtype = numbers.pick(&DTYPES);
    let tensor = numbers.tensor(&sizes, dtype).expect("there is memory");
    let changed = match numbers.next() % 6 {
        0 if rank > 1 => tensor.transpose(0, -1),
        1 => tensor
            .unsqueeze(0)
            .and_then(|one| one.expand(&[&[2], &sizes.iter().map(|&n| n as i64).collect::<Vec<_>>()[..]].concat()[..])),
        2 if rank > 0 && sizes[0] > 1 => tensor.narrow(0, 1, 1),
        _ => Ok(tensor.clone()),
    };
    let changed = changed.unwrap_or(tensor);
    if changed.dtype().is_float() && numbers.next().is_multiple_of(5) {
        changed.set_requires_grad(true).expect("a leaf of floats");
    }
    changed
}

fn value(numbers: &mut Numbers, ty: &Type) -> Value {
    let length = numbers.pick(&[0usize, 1, 1, 2, 2, 3, 5]);
    match ty {
        Type::Optional(_) if numbers.next().is_multiple_of(2) => Value::None,
        Type::Optional(inner) => value(numbers, inner),
        Type::Tensor => Value::Tensor(tensor(numbers)),
        Type::Int | Type::SymInt => Value::Int(numbers.pick(INTS)),
        Type::Float => Value::Float(numbers.pick(FLOATS)),
        Type::Bool => Value::Bool(numbers.next().is_multiple_of(2)),
        Type::Str => Value::Str(numbers.pick(WORDS).into()),
        Type::Scalar if numbers.next().is_multiple_of(2) => Value::Scalar(Scalar::Int(numbers.pick(INTS))),
        Type::Scalar => Value::Scalar(Scalar::Float(numbers.pick(FLOATS))),
        Type::ScalarType => Value::DType(numbers.pick(&DTYPES)),
        Type::Device => Value::Device(numbers.pick(&[Device::CPU, Device::META])),
        Type::Layout => Value::Layout(TensorLayout::Strided),
        Type::MemoryFormat => {
            Value::MemoryFormat(numbers.pick(&[MemoryFormat::Contiguous, MemoryFormat::ChannelsLast]))
        }
        Type::Generator => Value::None,
        Type::List(inner, _) => match **inner {
            Type::Tensor => Value::TensorList((0..length).map(|_| tensor(numbers)).collect()),
            Type::Int | Type::SymInt => Value::IntList((0..length).map(|_| numbers.pick(INTS)).collect()),
            Type::Float => Value::FloatList((0..length).map(|_| numbers.pick(FLOATS)).collect()),
            Type::Bool => Value::BoolList((0..length).map(|_| numbers.next().is_multiple_of(2)).collect()),
            Type::Scalar => Value::ScalarList((0..length).map(|_| Scalar::Float(numbers.pick(FLOATS))).collect()),
            Type::Optional(_) => {
                Value::OptionalTensorList((0..length).map(|at| (at != 1).then(|| tensor(numbers))).collect())
            }
            _ => Value::None,
        },
    }
}

/// The arguments of a call. One in ten has an argument too many or too few, or one of another type.
fn arguments(numbers: &mut Numbers, operator: &Operator) -> Stack {
    let Some(schema) = operator.schema() else { return Stack::new() };
    let mut stack: Stack = schema.arguments.iter().map(|parameter| value(numbers, &parameter.ty)).collect();
    match numbers.next() % 30 {
        0 => drop(stack.pop()),
        1 => stack.push(Value::Int(1)),
        2 if !stack.is_empty() => {
            let at = numbers.next() as usize % stack.len();
            stack[at] = Value::Str("a word".into());
        }
        _ => {}
    }
    stack
}

#[test]
fn absurd_calls_of_every_operator_are_refused_or_run() {
    if has_run_alone() {
        return;
    }
    opfuse::dispatch::load().expect("the built-in operators load");
    allocator::set_limit(MEMORY);
    std::panic::set_hook(Box::new(|_| {}));
    let mut panics: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let (mut ran, mut refused) = (0, 0);
    for name in Dispatcher::global().operator_names() {
        let Some(operator) = Dispatcher::global().find(&name) else { continue };
        for seed in seeds(40, 400) {
            let mut numbers = Numbers::new(seed);
            let mut stack = arguments(&mut numbers, &operator);
            let shown = format!("{stack:.300?}");
            match catch_unwind(AssertUnwindSafe(|| operator.call_boxed(&mut stack))) {
                Ok(Ok(())) => ran += 1,
                Ok(Err(error)) => {
                    assert!(!error.to_string().contains("bug in opfuse"), "{name:?}, seed {seed}: {error}\n{shown}");
                    refused += 1;
                }
                Err(panic) => {
                    let what = message(&*panic);
                    let seen =
                        panics.entry(format!("{name:?}")).or_insert((0, format!("seed {seed}: {what}\n{shown}")));
                    seen.0 += 1;
                }
            }
        }
    }
    let _ = std::panic::take_hook();
    let all: Vec<String> =
        panics.iter().map(|(name, (count, first))| format!("{name}: {count}, first {first}")).collect();
    assert!(panics.is_empty(), "{} operators panicked\n{}", panics.len(), all.join("\n"));
    assert!(ran > 1000 && refused > 1000, "{ran} calls ran, {refused} were refused");
}
