//! Programs as they are printed: those that failed once, and two that show what is printed.
//!
//! A printed program goes here when what it found is mended.

#![allow(unused_imports, reason = "a printed program needs some of these")]

use super::calls::{
    call, counting, default, first, first_of, gradient, gradients, inference, inferred, item, leaf, lower, not_lower,
    over, quiet, rate, recording,
};
use super::compare::check;
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
