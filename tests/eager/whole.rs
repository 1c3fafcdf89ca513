//! Composite operators on large tensors: one program has the bits of the parts, and what could see the parts sees them.

use crate::values::bits;
use opfuse::dispatch::modes::{CallLog, push_mode};
use opfuse::{Result, Tensor, autograd};
use std::sync::Arc;

/// Values with zeros of both signs, a NaN, and infinities.
fn values(rows: usize, columns: usize) -> Result<Tensor> {
    let odd = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40];
    let value = |i: usize| match i % 997 {
        at if at < odd.len() => odd[at],
        at => (at as f32 - 500.0) / 77.0,
    };
    let all: Vec<f32> = (0..rows * columns).map(value).collect();
    Tensor::from_slice(&all, &[rows, columns])
}

type Call = fn(&Tensor) -> Result<Tensor>;

const CALLS: [(&str, Call); 8] = [
    ("norm", |x| x.norm(2, -1, false)),
    ("norm of all", |x| x.norm(2, (), false)),
    ("norm 3", |x| x.norm(3, 0, true)),
    ("norm 1", |x| x.norm(1, 0, false)),
    ("largest", |x| x.norm(f64::INFINITY, (), false)),
    ("nan_to_num", |x| x.nan_to_num(None, None, None)),
    ("std", |x| x.std(-1, 1, false)),
    ("cosine_similarity", |x| x.cosine_similarity(&x.neg()?, 1, 1e-8)),
];

#[test]
fn later_calls_have_the_bits_of_the_first() -> Result<()> {
    let x = values(300, 130)?;
    let layouts = [x.clone(), x.transpose(0, 1)?, x.slice(1, 0, None, 2)?, x.slice(0, 5, None, 1)?];
    for (name, call) in CALLS {
        for x in &layouts {
            let first = bits(&call(x)?);
            for again in 0..3 {
                assert_eq!(bits(&call(x)?), first, "{name} of {:?}, call {again}", x.sizes());
            }
            // Another tensor of the same kind.
            let other = x.mul(0.5)?.add(1.0)?;
            let dense = bits(&call(&other)?);
            assert_eq!(bits(&call(&other)?), dense, "{name} of other values");
        }
    }
    Ok(())
}

#[test]
fn modes_and_gradients_see_the_parts() -> Result<()> {
    let x = values(256, 256)?;
    for _ in 0..4 {
        x.norm(2, -1, false)?;
    }
    let log = Arc::new(CallLog::default());
    {
        let _mode = push_mode(log.clone());
        x.norm(2, -1, false)?;
    }
    assert!(log.to_string().contains("sqrt"), "a mode sees the parts, not only: {log}");
    let x = x.nan_to_num(Some(0.25), Some(2.0), Some(-2.0))?;
    x.set_requires_grad(true)?;
    for _ in 0..3 {
        let y = x.norm(2, -1, false)?;
        assert!(y.requires_grad());
        y.sum((), false)?.backward()?;
        assert!(x.grad().is_some());
        x.set_grad(None)?;
        let _quiet = autograd::no_grad();
        assert!(!x.norm(2, -1, false)?.requires_grad());
    }
    Ok(())
}

#[test]
fn mistakes_are_described_as_before() -> Result<()> {
    let x = values(256, 256)?;
    let first = x.norm(2, 5, false).expect_err("there is no dim 5").to_string();
    for _ in 0..3 {
        assert_eq!(x.norm(2, 5, false).expect_err("there is no dim 5").to_string(), first);
    }
    Ok(())
}
