//! Programs as they are printed: those that failed once, and two that show what is printed.
//!
//! A printed program goes here when what it found is mended.

#![allow(unused_imports, reason = "a printed program needs some of these")]

use super::calls::{
    call, counting, default, first, first_of, gradient, gradients, inference, inferred, item, leaf, lower, not_lower,
    over, over_pairs, quiet, rate, recording,
};
use super::compare::check;
use super::customs::{custom, made};
use super::given::{Before, Made};
use super::methods::Tensors;
use super::program::Guard::{Autocast, Default, EnableGrad, Inference, Mode, NoAutocast, NoGrad};
use super::program::{After, Feed, Settings};
use opfuse::dispatch::Value;
use opfuse::{DType, Ellipsis, Index, MemoryFormat, NewAxis, Result, Scalar, Tensor, bf16, compile, f16, vmap};

/// Settings of programs that need no others.
pub(crate) const PLAIN: Settings = Settings {
    tier: None,
    threads: 1,
    draws: false,
    deferred: false,
    checked: false,
    whole: false,
    capacity: 256,
    fusion: 0,
    around: [None, None, None, None],
    after: After::Backward,
    clears: false,
    rates: false,
    hooks: false,
    shared: false,
};

#[test]
fn a_training_step_writes_to_what_it_learns() {
    fn captured() -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[0.5f32, -1.25f32, 2.0f32], &[3])?);
        let given = leaf(over(&made.memories[0], &[3], &[1], 0)?)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn inputs(call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[call as f32, 0.25f32, -3.0f32, 1.5f32, 0.75f32, -0.5f32], &[6])?);
        let given = over(&made.memories[0], &[2, 3], &[1, 2], 0)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn function(w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        let t0 = x[0].clone();
        let t1 = w[0].clone();
        t1.set_grad(None)?;
        let t2 = (&t0 * &t1)?;
        let t3 = t2.tanh()?;
        let [t4] = first_of(call("aten::mean", vec![Value::Tensor(t3.clone()), Value::None])?)?;
        t4.backward()?;
        let g0 = quiet()?;
        let t5 = gradient(&t1)?;
        let step = Value::Scalar(Scalar::Float(-0.125));
        call("aten::add_.Tensor", vec![Value::Tensor(t1.clone()), Value::Tensor(t5.clone()), step])?;
        drop(g0);
        let [t6] = first_of(call("aten::detach", vec![Value::Tensor(t4.clone())])?)?;
        Ok(vec![t6.clone()])
    }
    check(captured, inputs, 4, &PLAIN, function);
}

#[test]
fn a_value_decides_what_is_written() {
    fn captured() -> Result<Made> {
        Ok(Made::default())
    }
    fn inputs(call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[call as f32 - 1.5, 0.25f32, -3.0f32, 1.5f32], &[4])?);
        let given = over(&made.memories[0], &[2, 2], &[2, 1], 0)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn function(_w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        let t0 = x[0].clone();
        let inner = |p: &[Tensor]| -> Result<Vec<Tensor>> {
            let t1 = p[0].clone();
            let t2 = t1.softmax(-1i64)?;
            Ok(vec![t2.clone()])
        };
        let [t3] = first_of(vmap(inner).in_dims(vec![Some(1)]).call(&[t0.clone()][..])?)?;
        let n0 = first(&t0)?;
        let [t4] = if n0 > 0.0 {
            t3.select(0i64, 1i64)?.mul_(Scalar::Float(n0))?;
            [t3.clone()]
        } else {
            t0.fill_(Scalar::Int(1))?;
            [t0.transpose(0i64, 1i64)?]
        };
        let t5 = (&t4 + &t0)?;
        Ok(vec![t5.clone(), t3.clone()])
    }
    check(captured, inputs, 4, &PLAIN, function);
}

#[test]
fn a_hook_of_a_captured_tensor_runs_in_a_backward_pass_of_the_function() {
    fn captured() -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[-0.83436924f32], &[1])?);
        let given = {
            let plain = over(&made.memories[0], &[1], &[1], 0)?;
            made.leaf(plain)?.alias()?
        };
        made.tensors.push(given);
        Ok(made)
    }
    fn inputs(call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[call as f32], &[1])?);
        let given = over(&made.memories[0], &[1], &[1], 0)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn function(w: &[Tensor], _x: &[Tensor]) -> Result<Vec<Tensor>> {
        let t1 = w[0].clone();
        let [_t2] = first_of(gradients(&t1, &[&t1], true)?)?;
        Ok(vec![t1.clone()])
    }
    let settings = Settings { hooks: true, ..PLAIN };
    check(captured, inputs, 4, &settings, function);
}

#[test]
fn a_gradient_flows_through_a_write_to_what_the_function_makes() {
    fn captured() -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[-0.103477165f32], &[1])?);
        let given = leaf(over(&made.memories[0], &[1], &[1], 0)?)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn inputs(call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[call as f32], &[1])?);
        let given = leaf(over(&made.memories[0], &[], &[], 0)?)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn copies(w: &[Tensor], _x: &[Tensor]) -> Result<Vec<Tensor>> {
        let t2 = made(DType::F32, &[2, 2], 3)?;
        t2.copy_(&w[0])?;
        Ok(vec![t2.clone()])
    }
    fn divides(_w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        let t5 = made(DType::F32, &[1, 1], 3)?;
        let tensors = [&t5, &x[0], &t5].map(|tensor| Value::Tensor(tensor.clone()));
        let arguments = tensors.into_iter().chain([Value::Scalar(Scalar::Int(1))]).collect();
        let [t8] = first_of(call("aten::addcdiv_", arguments)?)?;
        Ok(vec![t8.clone()])
    }
    check(captured, inputs, 4, &PLAIN, copies);
    check(captured, inputs, 4, &PLAIN, divides);
}

#[test]
fn copies_of_large_tensors_share_no_memory() -> Result<()> {
    let x = Tensor::ones(&[130, 300], DType::F32)?;
    for name in ["aten::squeeze_copy", "aten::alias_copy", "aten::t_copy", "aten::detach_copy"] {
        for call_number in 0..4 {
            let [copy] = first_of(call(name, vec![Value::Tensor(x.clone())])?)?;
            assert!(!copy.is_alias_of(&x), "{name}, call {call_number}");
        }
    }
    Ok(())
}

#[test]
fn a_tensor_that_is_captured_and_given_is_copied_into_itself_where_no_other_may_be() {
    fn inferred_one() -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[1.0f32, 2.0], &[2])?);
        let given = inferred(&over(&made.memories[0], &[2], &[1], 0)?)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn captured() -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[1.0f32, 2.0], &[2])?);
        let given = over(&made.memories[0], &[3, 2], &[0, 1], 0)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn inputs(_call: usize, w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.tensors.push(w[0].clone());
        Ok(made)
    }
    fn function(w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        x[0].copy_(&w[0])?;
        w[0].copy_(&x[0])?;
        Ok(vec![x[0].mul(2.0)?])
    }
    for deferred in [false, true] {
        check(captured, inputs, 4, &Settings { deferred, ..PLAIN }, function);
        check(inferred_one, inputs, 4, &Settings { deferred, ..PLAIN }, function);
    }
}

#[test]
fn views_of_numbers_are_inference_tensors_if_the_numbers_are() {
    fn captured() -> Result<Made> {
        Ok(Made::default())
    }
    fn inputs(_call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.tensors.push(Tensor::number(Scalar::Float(1.5))?);
        made.tensors.push(Tensor::from_slice(&[1.0f32, 2.0], &[2])?);
        Ok(made)
    }
    fn function(_w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        let inside = inference()?;
        let (view, other) = (x[0].reshape([1])?, x[1].reshape([2, 1])?);
        let number = Tensor::number(Scalar::Float(2.5))?;
        drop(inside);
        Ok(vec![view, other, number.reshape([1, 1])?, x[0].unsqueeze(0)?, x[1].mul(2.0)?])
    }
    for around in [None, Some(Inference)] {
        for deferred in [false, true] {
            check(captured, inputs, 4, &Settings { deferred, around: [around; 4], ..PLAIN }, function);
        }
    }
}

#[test]
fn a_leaf_takes_over_a_gradient_with_its_strides() {
    fn captured() -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[6])?);
        let given = leaf(over(&made.memories[0], &[2, 3], &[3, 1], 0)?)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn inputs(call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[call as f32, 0.5, -1.0, 2.0, 4.0, 8.0], &[6])?);
        let given = over(&made.memories[0], &[3, 2], &[2, 1], 0)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn transposed(w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        w[0].set_grad(None)?;
        w[0].t()?.mul(&x[0])?.sum_all()?.backward()?;
        Ok(vec![x[0].neg()?])
    }
    fn twice(w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        w[0].set_grad(None)?;
        let part = w[0].t()?.t()?.t()?.mul(&x[0])?;
        part.add(w[0].t()?)?.sum_all()?.backward()?;
        Ok(vec![x[0].neg()?, gradient(&w[0])?])
    }
    fn kept(w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        let y = w[0].t()?;
        let [found] = first_of(gradients(&y.mul(&x[0])?, &[&y], false)?)?;
        w[0].set_grad(None)?;
        y.mul(&x[0])?.sum_all()?.backward()?;
        Ok(vec![found])
    }
    for function in [transposed, twice, kept] {
        check(captured, inputs, 4, &PLAIN, function);
    }
}

#[test]
fn a_write_of_no_elements_through_a_view_has_a_derivative() {
    fn captured() -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[-1.6659988f32], &[1])?);
        let given = leaf(over(&made.memories[0], &[], &[], 0)?)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn inputs(call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[call as f32], &[1])?);
        let given = over(&made.memories[0], &[1], &[1], 0)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn function(w: &[Tensor], _x: &[Tensor]) -> Result<Vec<Tensor>> {
        let t2 = w[0].add(1)?;
        t2.expand([0i64])?.mul_(&t2)?;
        Ok(vec![t2.clone()])
    }
    check(captured, inputs, 4, &PLAIN, function);
    let w = leaf(Tensor::scalar(2.0f32).expect("there is memory")).expect("it is a float");
    let y = function(std::slice::from_ref(&w), &[]).expect("nothing is written").remove(0);
    y.backward().expect("a write of nothing has a derivative");
    assert_eq!(gradient(&w).and_then(|gradient| gradient.to_vec::<f32>()), Ok(vec![1.0]));
}

#[test]
fn an_input_that_the_function_makes_a_leaf_cannot_be_written_to() {
    fn captured() -> Result<Made> {
        Ok(Made::default())
    }
    fn inputs(call: usize, _w: &[Tensor], before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[call as f32, 1.0], &[2])?);
        let given = match before.get(Feed::Result(0)) {
            Some(tensor) => tensor,
            None => over(&made.memories[0], &[2, 1], &[1, 1], 0)?,
        };
        made.tensors.push(given);
        Ok(made)
    }
    fn view(_w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        x[0].add_(1)?;
        x[0].set_requires_grad(true)?;
        Ok(vec![x[0].squeeze(1)?])
    }
    fn itself(_w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        x[0].set_requires_grad(true)?;
        x[0].add_(1)?;
        Ok(vec![x[0].mul(2.0)?])
    }
    fn neither(_w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        x[0].set_requires_grad(true)?;
        x[0].set_requires_grad(false)?;
        x[0].add_(1)?;
        Ok(vec![x[0].mul(2.0)?])
    }
    for function in [view, itself, neither] {
        check(captured, inputs, 3, &Settings { after: After::Nothing, ..PLAIN }, function);
    }
}

#[test]
fn a_write_before_a_failed_check_happens_once() {
    fn captured() -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[0i64, 0i64, 0i64, 0i64], &[4])?);
        let given = over(&made.memories[0], &[4], &[1], 0)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn inputs(_call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[1.234931f32], &[1])?);
        let given = over(&made.memories[0], &[1], &[1], 0)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn function(w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        let t0 = x[0].clone();
        let t1 = w[0].clone();
        t1.set(&t1, rate())?;
        let t2 = t1.slice(0i64, -1i64, None, 3i64)?;
        let t5 = t2.index_select(0i64, &t2)?;
        let [t8] = first_of(call("aten::argmin", vec![Value::Tensor(t0.clone()), Value::None, Value::Bool(false)])?)?;
        t5.fill_(rate())?;
        call(
            "aten::index_fill_.int_Tensor",
            vec![Value::Tensor(t5.clone()), Value::Int(0), Value::Tensor(t5.clone()), Value::Tensor(t8.clone())],
        )?;
        t1.add_(Scalar::Int(0))?;
        Ok(vec![])
    }
    let settings = Settings { after: After::Nothing, ..PLAIN };
    check(captured, inputs, 1, &settings, function);
}

#[test]
fn a_draw_of_a_function_that_returns_nothing_counts_once() {
    fn captured() -> Result<Made> {
        Ok(Made::default())
    }
    fn inputs(call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        match call {
            0 => {
                let mut made = Made::default();
                made.memories.push(Tensor::from_slice(&[1.7049173f32], &[1])?);
                let given = over(&made.memories[0], &[1], &[1], 0)?;
                made.tensors.push(given);
                Ok(made)
            }
            _ => {
                let mut made = Made::default();
                made.memories.push(Tensor::from_slice(&[true], &[1])?);
                let given = over(&made.memories[0], &[1], &[1], 0)?;
                made.tensors.push(given);
                Ok(made)
            }
        }
    }
    fn function(_w: &[Tensor], _x: &[Tensor]) -> Result<Vec<Tensor>> {
        call(
            "aten::randint",
            vec![Value::Int(6), Value::IntList(vec![1].into()), Value::None, Value::None, Value::None, Value::None],
        )?;
        Ok(vec![])
    }
    let settings = Settings { draws: true, after: After::Nothing, ..PLAIN };
    check(captured, inputs, 2, &settings, function);
}

#[test]
fn a_view_that_inference_mode_made_is_not_written_to() {
    fn captured() -> Result<Made> {
        Ok(Made::default())
    }
    fn inputs(call: usize, _w: &[Tensor], before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[[2.230634f32, -1.8042734f32][call]], &[1])?);
        let given = match before.get(Feed::Result(1)) {
            Some(tensor) => tensor,
            None => {
                let plain = over(&made.memories[0], &[1], &[1], 0)?;
                made.leaf(plain)?.mul(1.5)?
            }
        };
        made.tensors.push(given);
        Ok(made)
    }
    fn function(_w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        let t0 = x[0].clone();
        call("aten::relu6_", vec![Value::Tensor(t0.clone())])?;
        let _g0 = inference()?;
        let t4 = t0.view(-1)?;
        Ok(vec![t0.clone(), t4.clone()])
    }
    let settings = Settings { after: After::Nothing, ..PLAIN };
    check(captured, inputs, 2, &settings, function);
}

#[test]
fn a_derivative_that_saves_nothing_runs_twice() {
    fn captured() -> Result<Made> {
        Ok(Made::default())
    }
    fn inputs(call: usize, _w: &[Tensor], before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[call as f32 - 1.5f32], &[1])?);
        let given = match before.get(Feed::Result(0)) {
            Some(tensor) => tensor,
            None => leaf(over(&made.memories[0], &[1], &[1], 0)?)?,
        };
        made.tensors.push(given);
        Ok(made)
    }
    fn function(_w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        let t0 = x[0].clone();
        let [t3] = first_of(custom(3, &t0)?)?;
        Ok(vec![t3.clone()])
    }
    check(captured, inputs, 3, &PLAIN, function);
}

#[test]
fn a_leaf_that_a_function_is_given_and_captures_is_one_tensor() {
    fn captured() -> Result<Made> {
        Ok(Made::default())
    }
    fn inputs(call: usize, _w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[call as f32], &[1])?);
        let given = leaf(over(&made.memories[0], &[1], &[1], 0)?)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn by_the_captured(_w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        let t0 = x[0].full_like(Scalar::Int(0))?;
        let inner = |p: &[Tensor]| -> Result<Vec<Tensor>> {
            t0.set_requires_grad(true)?;
            Ok(vec![p[0].add(Scalar::Float(-0.0))?, p[1].mul(2.0)?])
        };
        compile(inner).call(&[t0.clone(), t0.clone()][..])
    }
    fn by_the_given(_w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        let t0 = x[0].full_like(Scalar::Int(0))?;
        let inner = |p: &[Tensor]| -> Result<Vec<Tensor>> {
            p[0].set_requires_grad(true)?;
            Ok(vec![t0.add(1)?, p[1].mul(2.0)?])
        };
        compile(inner).call(&[t0.clone(), t0.clone()][..])
    }
    for function in [by_the_captured, by_the_given] {
        check(captured, inputs, 2, &Settings { after: After::Nothing, ..PLAIN }, function);
    }
}

#[test]
fn a_tensor_that_is_given_and_captured_is_read_after_writes_by_both_names() {
    fn captured() -> Result<Made> {
        let mut made = Made::default();
        made.memories.push(Tensor::from_slice(&[1.5f32], &[1])?);
        let given = over(&made.memories[0], &[1], &[1], 0)?;
        made.tensors.push(given);
        Ok(made)
    }
    fn inputs(_call: usize, w: &[Tensor], _before: &Before) -> Result<Made> {
        let mut made = Made::default();
        made.tensors.push(w[0].clone());
        Ok(made)
    }
    fn plain(w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        w[0].mul_(-0.0)?;
        x[0].add_(1)?;
        Ok(vec![w[0].exp()?])
    }
    fn through_data(w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        w[0].mul_(-0.0)?;
        x[0].add_(1)?;
        let _data = w[0].data();
        Ok(vec![w[0].exp()?])
    }
    fn through_detach(w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        w[0].mul_(-0.0)?;
        x[0].add_(1)?;
        let _data = w[0].detach()?;
        Ok(vec![w[0].exp()?])
    }
    fn of_data(w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        w[0].mul_(-0.0)?;
        x[0].add_(1)?;
        let data = w[0].data();
        Ok(vec![data.add(1)?])
    }
    for function in [plain, through_data, through_detach, of_data] {
        check(captured, inputs, 3, &Settings { after: After::Nothing, ..PLAIN }, function);
    }
}
