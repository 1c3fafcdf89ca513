//! Programs on complex numbers that failed once.

use super::calls::{call, first_of, over, over_pairs};
use super::compare::check;
use super::found::PLAIN;
use super::given::{Before, Made};
use opfuse::dispatch::Value;
use opfuse::{DType, Result, Tensor};

fn captured() -> Result<Made> {
    let mut made = Made::default();
    made.memories.push(Tensor::from_slice(&[0.5f32, -1.5, 2.0, 0.25], &[4])?);
    made.tensors.push(over_pairs(&made.memories[0], &[2], &[1], 0)?);
    Ok(made)
}

fn inputs(_call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
    let mut made = Made::default();
    made.memories.push(Tensor::from_slice(&[-3.0f32, 0.75], &[2])?);
    made.tensors.push(over(&made.memories[0], &[2], &[1], 0)?);
    Ok(made)
}

#[test]
fn a_complex_tensor_that_is_returned_is_the_same_one() {
    fn one_and_one(w: &[Tensor], _x: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![w[0].clone(), w[0].clone()])
    }
    fn broadcast(w: &[Tensor], _x: &[Tensor]) -> Result<Vec<Tensor>> {
        let tensors = Value::TensorList(vec![w[0].clone(), w[0].clone()]);
        let [one, other] = first_of(call("aten::broadcast_tensors", vec![tensors])?)?;
        Ok(vec![one.clone(), one, other])
    }
    fn pieces(w: &[Tensor], _x: &[Tensor]) -> Result<Vec<Tensor>> {
        let pieces = w[0].chunk(2, 0)?;
        Ok(vec![pieces[1].clone(), pieces[0].clone(), pieces[1].clone()])
    }
    for function in [one_and_one, broadcast, pieces] {
        check(captured, inputs, 3, &PLAIN, function);
    }
}

#[test]
fn bytes_of_real_numbers_are_no_complex_ones() {
    fn function(_w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        let bytes = vec![Value::Tensor(x[0].clone()), Value::DType(DType::Complex64)];
        let [seen] = first_of(call("aten::view.dtype", bytes)?)?;
        Ok(vec![seen])
    }
    check(captured, inputs, 2, &PLAIN, function);
    let x = Tensor::from_slice(&[1.0f32, 2.0], &[2]).expect("memory is there");
    let error = x.view_dtype(DType::Complex64).expect_err("the parts of a complex number are pairs");
    assert!(error.to_string().contains("view_as_complex"), "{error}");
}
