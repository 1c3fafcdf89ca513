//! The methods, operators and factories of tensors, against values computed by hand.

mod default_dtype;
mod elements;
mod functions;
mod in_place;
mod index_writes;
mod joins;
mod limits;
mod memory;
mod messages;
#[cfg(feature = "ndarray")]
mod nd_views;
mod numbers;
mod operators;
mod pointwise;
mod products;
mod reductions;
mod reshaping;
mod science;
mod subscript;
mod views;

use half::{bf16, f16};
use opfuse::dispatch::{Dispatcher, Value};
use opfuse::ir::{Op, TensorType};
use opfuse::{DType, Error, Result, Scalar, Tensor};
use opfuse::{Element, cat, embedding, stack};

fn tensor<T: Element>(data: &[T], sizes: &[usize]) -> Tensor {
    Tensor::from_slice(data, sizes).expect("the data fits the sizes")
}

/// 0, 1, 2, … as f32.
fn counting(sizes: &[usize]) -> Tensor {
    let data: Vec<f32> = (0..sizes.iter().product::<usize>()).map(|i| i as f32).collect();
    tensor(&data, sizes)
}

#[track_caller]
fn check<T: Element>(found: Result<Tensor>, sizes: &[usize], expected: &[T]) {
    let found = found.expect("the call is legal");
    assert_eq!(found.dtype(), T::DTYPE, "dtype of {found:?}");
    assert_eq!(found.sizes(), sizes, "sizes of {found:?}");
    assert_eq!(found.to_vec::<T>().expect("it has data"), expected, "elements of {found:?}");
}

#[track_caller]
fn check_close(found: Result<Tensor>, sizes: &[usize], expected: &[f64]) {
    let found = found.expect("the call is legal");
    assert_eq!(found.sizes(), sizes, "sizes of {found:?}");
    let elements: Vec<f32> = found.to_vec().expect("an f32 tensor");
    assert_eq!(elements.len(), expected.len());
    for (index, (&element, &expected)) in elements.iter().zip(expected).enumerate() {
        let error = (f64::from(element) - expected).abs();
        assert!(error <= 1e-6 * expected.abs().max(1.0), "element {index}: {element} is not {expected} in {found:?}");
    }
}

#[track_caller]
fn check_error<T: std::fmt::Debug>(found: Result<T>, parts: &[&str]) {
    let message = found.expect_err("the call is illegal").to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is missing in: {message}");
    }
}

/// Calls an operator by name with positional arguments.
fn invoke(name: &str, arguments: Vec<Value>) -> Result<Tensor> {
    // Any call registers the operators.
    Tensor::zeros(&[1], DType::F32)?;
    let results = Dispatcher::global().lookup(name)?.invoke(arguments, Vec::new())?;
    match results.into_iter().next() {
        Some(Value::Tensor(tensor)) => Ok(tensor),
        other => Err(Error::argument(name, format!("left {other:?}"))),
    }
}
