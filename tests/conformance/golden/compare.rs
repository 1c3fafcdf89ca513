//! Results against those of the reference.
//!
//! Every comparison returns what differs as text, or nothing.

use super::call::{class, tensors};
use super::case::{After, Case, ErrorClass, Output, TensorOutput, Tolerance};
use super::tensors::{Store, whole_storage};
use opfuse::dispatch::{Stack, Value};
use opfuse::{DType, Error, Scalar, Tensor};

/// The elements of a tensor: floating ones widened, all others as whole numbers.
enum Elements {
    Floats(Vec<f64>),
    Wholes(Vec<i64>),
}

/// An error against the class expected.
pub(crate) fn error(found: &Error, expected: ErrorClass) -> Option<String> {
    let class = class(found);
    (class != expected).then(|| format!("the error is of class {class:?} instead of {expected:?}: {found}"))
}

/// Results against those of the case; `arguments` are what the call was given.
pub(crate) fn outputs(
    case: &Case,
    found: &[Value],
    expected: &[Output],
    arguments: &Stack,
    store: &Store<'_>,
) -> Vec<String> {
    if found.len() != expected.len() {
        return vec![format!("{} outputs instead of {}", found.len(), expected.len())];
    }
    let mut differences = Vec::new();
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let found = match (found, expected) {
            (Value::Tensor(found), Output::Tensor(expected)) => {
                let mut differences = described(found, expected);
                differences.extend(alias(case, found, expected, arguments));
                differences.extend(expected.values.as_ref().and_then(|(key, tolerance)| {
                    let reference = store.get(key);
                    reference.and_then(|reference| values(found, &reference, *tolerance)).err()
                }));
                differences
            }
            (found, Output::Host(expected)) => host(found, *expected).into_iter().collect(),
            (found, Output::Tensor(_)) => vec![format!("a value of type {} instead of a tensor", found.type_name())],
        };
        differences.extend(found.into_iter().map(|difference| format!("output {i}: {difference}")));
    }
    differences
}

/// Storage windows after the call, element by element.
pub(crate) fn after(case: &Case, after: &[After], arguments: &Stack, store: &Store<'_>) -> Vec<String> {
    let arguments = tensors(&case.args, arguments);
    let check = |after: &After| -> Result<(), String> {
        let (_, tensor) =
            arguments.iter().find(|(name, _)| *name == after.name).ok_or("there is no such tensor argument")?;
        // Written values have the tolerance of results. Elements that were not written have the same bits anyway.
        let tolerance = written_tolerance(case, tensor.dtype());
        values(&whole_storage(tensor)?, &store.get(&after.key)?, tolerance)
    };
    after
        .iter()
        .filter_map(|after| check(after).err().map(|what| format!("storage of {} after the call: {what}", after.name)))
        .collect()
}

/// Dtype, sizes and strides.
fn described(found: &Tensor, expected: &TensorOutput) -> Vec<String> {
    let mut differences = Vec::new();
    if found.dtype() != expected.dtype {
        differences.push(format!("dtype {} instead of {}", found.dtype(), expected.dtype));
    }
    if found.sizes() != expected.sizes {
        differences.push(format!("sizes {:?} instead of {:?}", found.sizes(), expected.sizes));
    } else if expected.strides_are_exact {
        let differ = |dim: usize| found.sizes()[dim] > 1 && found.strides()[dim] != expected.strides[dim];
        if (0..found.dim()).any(differ) {
            differences.push(format!("strides {:?} instead of {:?}", found.strides(), expected.strides));
        }
    }
    differences
}

/// Checks which storage a result shares.
fn alias(case: &Case, found: &Tensor, expected: &TensorOutput, arguments: &Stack) -> Option<String> {
    let arguments = tensors(&case.args, arguments);
    let Some((name, offset)) = &expected.alias else {
        let shared = arguments.iter().find(|(_, tensor)| found.numel() > 0 && found.is_alias_of(tensor));
        return shared.map(|(name, _)| format!("it shares the storage of {name} but should be a copy"));
    };
    let Some((_, tensor)) = arguments.iter().find(|(argument, _)| argument == name) else {
        return Some(format!("the case has no tensor argument {name}"));
    };
    if !found.is_alias_of(tensor) {
        return Some(format!("it is a copy but should share the storage of {name}"));
    }
    (found.storage_offset() != *offset).then(|| format!("offset {} instead of {offset}", found.storage_offset()))
}

/// Values within the tolerance: a NaN equals a NaN, infinities must match, whole numbers and bools are equal.
pub(crate) fn values(found: &Tensor, reference: &Tensor, tolerance: Tolerance) -> Result<(), String> {
    if found.sizes() != reference.sizes() {
        return Err(format!("{:?} elements instead of {:?}", found.sizes(), reference.sizes()));
    }
    let place = |wrong: usize| format!("at element {wrong} of {:?}", found.sizes());
    match (elements(found)?, elements(reference)?) {
        (Elements::Floats(found), Elements::Floats(reference)) => {
            let mut pairs = found.iter().zip(&reference);
            match pairs.position(|(&x, &reference)| !near(x, reference, tolerance)) {
                None => Ok(()),
                Some(i) => {
                    let (x, reference) = (found[i], reference[i]);
                    Err(format!("{x:?} instead of {reference:?} {} ({tolerance:?})", place(i)))
                }
            }
        }
        (Elements::Wholes(found), Elements::Wholes(reference)) => {
            match found.iter().zip(&reference).position(|(x, reference)| x != reference) {
                None => Ok(()),
                Some(i) => Err(format!("{} instead of {} {}", found[i], reference[i], place(i))),
            }
        }
        (Elements::Floats(_), Elements::Wholes(_)) | (Elements::Wholes(_), Elements::Floats(_)) => {
            Err(format!("values of dtype {} instead of {}", found.dtype(), reference.dtype()))
        }
    }
}

fn near(x: f64, reference: f64, tolerance: Tolerance) -> bool {
    if reference.is_nan() {
        return x.is_nan();
    }
    x == reference
        || (x - reference).abs() <= tolerance.atol + tolerance.rtol * reference.abs() && reference.is_finite()
}

fn host(found: &Value, expected: Scalar) -> Option<String> {
    let same = match (found, expected) {
        (Value::Int(found), Scalar::Int(expected)) => *found == expected,
        (Value::Bool(found), Scalar::Bool(expected)) => *found == expected,
        (Value::Float(found), Scalar::Float(expected)) => found == &expected || found.is_nan() && expected.is_nan(),
        (Value::Scalar(found), expected) => return host(&plain(*found), expected),
        (_, _) => false,
    };
    (!same).then(|| format!("{found:?} instead of {expected:?}"))
}

fn plain(scalar: Scalar) -> Value {
    match scalar {
        Scalar::Bool(flag) => Value::Bool(flag),
        Scalar::Int(number) => Value::Int(number),
        Scalar::Float(number) => Value::Float(number),
    }
}

/// The tolerance of the first output of that dtype.
fn written_tolerance(case: &Case, dtype: DType) -> Tolerance {
    let super::case::Expected::Outputs(outputs, _) = &case.expected else { return Tolerance::default() };
    let of = |output: &Output| match output {
        Output::Tensor(TensorOutput { dtype: found, values: Some((_, tolerance)), .. }) if *found == dtype => {
            Some(*tolerance)
        }
        Output::Tensor(_) | Output::Host(_) => None,
    };
    outputs.iter().find_map(of).unwrap_or_default()
}

fn elements(tensor: &Tensor) -> Result<Elements, String> {
    macro_rules! read {
        ($ty:ty) => {
            tensor.to_vec::<$ty>().map_err(|error| error.to_string())?.into_iter()
        };
    }
    Ok(match tensor.dtype() {
        DType::F16 => Elements::Floats(read!(half::f16).map(f64::from).collect()),
        DType::BF16 => Elements::Floats(read!(half::bf16).map(f64::from).collect()),
        DType::F32 => Elements::Floats(read!(f32).map(f64::from).collect()),
        DType::Complex64 | DType::Complex128 => unreachable!("no case is complex"),
        DType::F64 => Elements::Floats(read!(f64).collect()),
        DType::I8 => Elements::Wholes(read!(i8).map(i64::from).collect()),
        DType::I16 => Elements::Wholes(read!(i16).map(i64::from).collect()),
        DType::I32 => Elements::Wholes(read!(i32).map(i64::from).collect()),
        DType::I64 => Elements::Wholes(read!(i64).collect()),
        DType::U8 => Elements::Wholes(read!(u8).map(i64::from).collect()),
        DType::Bool => Elements::Wholes(read!(bool).map(i64::from).collect()),
    })
}
