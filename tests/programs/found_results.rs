//! Programs about what results are, which failed once: their sizes, strides, views and histories.

use super::calls::{call, first_of, leaf, over};
use super::compare::check;
use super::customs::custom;
use super::found::PLAIN;
use super::given::{Before, Made};
use super::program::{After, Settings};
use opfuse::dispatch::Value;
use opfuse::{DType, Result, Scalar, Tensor, compile};

#[test]
fn an_output_that_the_kernel_also_reads_in_another_order_keeps_its_sizes() {
    fn captured() -> Result<Made> {
        Ok(Made::default())
    }
    fn inputs(_call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.tensors.push(Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, -6.0, 7.0, 8.0, 9.0], &[9])?);
        Ok(made)
    }
    fn function(_w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        let seen = x[0].reshape([1i64, -1])?.relu()?.exp()?.le(3)?;
        let is_in = seen.isin(&seen)?;
        Ok(vec![seen, is_in.clone(), is_in.i(&is_in)?])
    }
    check(captured, inputs, 3, &Settings { after: After::Nothing, ..PLAIN }, function);
}

#[test]
fn a_result_that_saves_nothing_beside_one_that_does_runs_backward_again() -> Result<()> {
    let x = leaf(Tensor::from_slice(&[0.25f32, -2.0], &[2])?)?;
    let compiled = compile(|x: &Tensor| -> Result<Vec<Tensor>> {
        let [limited] = first_of(custom(0, x)?)?;
        Ok(vec![limited, x.add(1)?])
    });
    for _ in 0..3 {
        x.set_grad(None)?;
        let made = compiled.call((&x,))?;
        // The first pass frees what the first result saved. The second result saved nothing.
        for result in [0, 1, 1] {
            made[result].sum_all()?.backward()?;
        }
        let again = made[0].sum_all()?.backward().expect_err("its values were freed");
        assert!(again.to_string().contains("a second time"), "{again}");
        assert_eq!(x.grad().map(|grad| grad.to_vec::<f32>()).transpose()?, Some(vec![2.5, 1.0]));
    }
    Ok(())
}

#[test]
fn a_view_of_another_dtype_of_a_leaf_is_a_view() {
    fn captured() -> Result<Made> {
        let mut made = Made::default();
        made.tensors.push(leaf(Tensor::from_slice(&[1.5f32, -2.0], &[2])?)?);
        Ok(made)
    }
    fn inputs(_call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.tensors.push(Tensor::from_slice(&[0.5f32, 3.0], &[2])?);
        Ok(made)
    }
    fn function(w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        let bits = w[0].view_dtype(DType::I32)?;
        let [read] = first_of(call("programs::positive", vec![Value::Tensor(bits.abs()?)])?)?;
        Ok(vec![bits, read, x[0].add(1)?])
    }
    check(captured, inputs, 3, &Settings { after: After::Nothing, ..PLAIN }, function);
}

#[test]
fn a_gradient_of_a_leaf_through_a_captured_view_has_eagers_strides() {
    fn captured() -> Result<Made> {
        let mut made = Made::default();
        let elements: Vec<f32> = (0..16).map(|at| at as f32 * 0.25 - 1.5).collect();
        made.memories.push(Tensor::from_vec(elements, &[16])?);
        let plain = over(&made.memories[0], &[2, 4, 2, 4], &[3, 0, 3, 3], 0)?;
        let given = made.leaf(plain)?.alias()?;
        made.tensors.push(given);
        Ok(made)
    }
    fn inputs(_call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.tensors.push(Tensor::from_slice(&[-1.6f32], &[1])?);
        Ok(made)
    }
    fn function(w: &[Tensor], _x: &[Tensor]) -> Result<Vec<Tensor>> {
        let [limited] = first_of(custom(0, &w[0])?)?;
        limited.mean_all()?.backward()?;
        Ok(Vec::new())
    }
    check(captured, inputs, 2, &Settings { after: After::Nothing, ..PLAIN }, function);
}

#[test]
fn dims_of_one_element_order_the_others_as_in_eager_calls() {
    fn captured() -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[1.0f32, 1.3, 1.7, -2.4, -1.0, -0.1, -3.3, 2.6], &[8])?);
        let given = over(&made.memories[0], &[2, 1, 2, 1], &[2, 1, 1, 4], 4)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn inputs(_call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.tensors.push(Tensor::from_slice(&[0.5f32], &[1])?);
        Ok(made)
    }
    fn function(w: &[Tensor], _x: &[Tensor]) -> Result<Vec<Tensor>> {
        let part = w[0].i((.., 0i64))?;
        part.sigmoid_()?;
        Ok(vec![(&w[0] / &part.full_like(-0.5)?)?])
    }
    check(captured, inputs, 1, &Settings { after: After::Nothing, ..PLAIN }, function);
}

#[test]
fn as_strided_after_a_call_from_outside_counts_from_the_memory_of_its_value() {
    fn captured() -> Result<Made> {
        Ok(Made::default())
    }
    fn inputs(call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        let elements: Vec<i16> = (0..8).map(|at| at * 3 + call as i16).collect();
        made.memories.push(Tensor::from_slice(&elements, &[8])?);
        let given = over(&made.memories[0], &[4], &[1], 3)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn function(_w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        let same = x[0].mul(Scalar::Bool(true))?;
        let part = same.slice(0, 1, 4, 1)?;
        let [read] = first_of(call("programs::positive", vec![Value::Tensor(same.clone())])?)?;
        let [again] = first_of(call("programs::positive", vec![Value::Tensor(read.clone())])?)?;
        let [first] =
            first_of(call("aten::as_strided", vec![Value::Tensor(same), ints(&[2]), ints(&[2]), Value::Int(1)])?)?;
        let [last] =
            first_of(call("aten::as_strided", vec![Value::Tensor(part), ints(&[2]), ints(&[1]), Value::Int(0)])?)?;
        Ok(vec![first, last, again])
    }
    check(captured, inputs, 4, &PLAIN, function);
}

#[test]
fn a_backward_pass_before_a_call_that_fails_leaves_its_gradient() {
    fn captured() -> Result<Made> {
        let mut made = Made::default();
        made.tensors.push(leaf(Tensor::from_slice(&[1.5f32, -2.0, 0.25, 3.0], &[2, 2])?)?);
        Ok(made)
    }
    fn inputs(_call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.tensors.push(Tensor::from_slice(&[0.5f32, f32::NAN, -1.0, 2.0], &[2, 2])?);
        Ok(made)
    }
    fn function(w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        w[0].exp()?.sum(&[0i64, 1][..], false)?.backward()?;
        // It finds the NaN when the calls run.
        let values = x[0].linalg_svdvals()?;
        w[0].set_grad(None)?;
        Ok(vec![values])
    }
    check(captured, inputs, 1, &Settings { after: After::Nothing, ..PLAIN }, function);
}

#[test]
fn an_operator_from_outside_reads_the_number_of_each_call() {
    fn captured() -> Result<Made> {
        Ok(Made::default())
    }
    fn inputs(call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.tensors.push(Tensor::number(Scalar::Float(0.25 * call as f64))?);
        Ok(made)
    }
    fn function(_w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        let same = Value::Tensor(x[0].clone());
        let [copy] = first_of(call(
            "aten::to.other",
            vec![same.clone(), same.clone(), Value::Bool(true), Value::Bool(true), Value::None],
        )?)?;
        let half = Value::Tensor(x[0].mul(0.5)?);
        let [blend] =
            first_of(call("programs::blend", vec![same, Value::Tensor(copy.clone()), Value::Scalar(Scalar::Int(2))])?)?;
        let [other] =
            first_of(call("programs::blend", vec![half, Value::Tensor(copy), Value::Scalar(Scalar::Int(1))])?)?;
        Ok(vec![blend, other])
    }
    check(captured, inputs, 4, &Settings { after: After::Nothing, ..PLAIN }, function);
}

#[test]
fn what_a_function_makes_is_its_own_however_many_tensors_it_makes() -> Result<()> {
    // Ids come in blocks of 4,096.
    let many = || (0..5_000).try_for_each(|number| Tensor::number(Scalar::Int(number)).map(drop));
    let compiled = compile(|x: &Tensor| -> Result<Vec<Tensor>> {
        many()?;
        let own = Tensor::from_slice(&[1.0f32, 2.0], &[2])?;
        many()?;
        many()?;
        Ok(vec![own, x.mul(2)?])
    });
    for _ in 0..3 {
        let results = compiled.call((&Tensor::ones(&[2], DType::F32)?,))?;
        assert_eq!(results[0].to_vec::<f32>()?, [1.0, 2.0]);
        results[0].add_(1)?;
    }
    Ok(())
}

fn ints(values: &[i64]) -> Value {
    Value::IntList(values.into())
}
