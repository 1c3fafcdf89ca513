//! Gradients of eager calls: the tape, writes through views, hooks, functions of the user's own, higher derivatives.
//!
//! Numbers in comments (`line 112`, for one) are those of the dispatcher's conformance list.

mod anomaly;
mod basics;
mod compiled;
mod functions;
mod shared;
mod writes;

use opfuse::{Error, Result, Tensor};

fn leaf(values: &[f64], sizes: &[usize]) -> Tensor {
    let leaf = Tensor::from_slice(values, sizes).expect("the sizes fit");
    leaf.set_requires_grad(true).expect("it is a float leaf");
    leaf
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_vec().expect("it is f64 and has data")
}

fn gradient(tensor: &Tensor) -> Vec<f64> {
    values(&tensor.grad().expect("a gradient arrived"))
}

#[track_caller]
fn refused<T>(result: Result<T>, text: &str) {
    let error: Error = result.err().unwrap_or_else(|| panic!("it was not refused: {text}"));
    assert!(error.to_string().contains(text), "{error}\ndoes not contain\n{text}");
}
