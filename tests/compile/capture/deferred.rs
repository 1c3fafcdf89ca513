//! Deferred calls: captured state, handles that are kept, calls that cannot be recorded, errors, gradients.

use super::check::{look, ramp};
use opfuse::compile::{CompileOptions, Compiled, Function, Stance, compile, compile_with};
use opfuse::{Error, Reason, Result, Tensor, cat, embedding};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

fn deferred<A, F: Function<A>>(function: F) -> Compiled<F, A> {
    compile_with(function, CompileOptions { stance: Stance::Deferred, ..CompileOptions::default() })
}

/// A cache that grows by a row per call, as one of keys and values does.
#[test]
fn captured_state_is_that_of_the_call() -> Result<()> {
    let (own, other) = (Mutex::new(ramp(&[1, 3], 0)?), Mutex::new(ramp(&[1, 3], 0)?));
    let step = |state: &Mutex<Tensor>, x: &Tensor| {
        let mut state = state.lock().expect("nobody panics");
        *state = cat(&[&*state, &x.tanh()?], 0)?;
        state.matmul(&x.t()?)?.softmax(0)
    };
    let f = deferred(|x: &Tensor| step(&own, x));
    for call in 0..6 {
        let x = ramp(&[1, 3], call)?;
        assert_eq!(look(&f.call(&x)?), look(&step(&other, &x)?), "call {call}");
    }
    assert_eq!(look(&own.lock().expect("nobody panics")), look(&other.lock().expect("nobody panics")));
    assert_eq!((f.counts().deferred, f.counts().eager), (6, 0));
    Ok(())
}

#[test]
fn state_of_any_kind_is_never_stale() -> Result<()> {
    let calls = AtomicUsize::new(0);
    let f = deferred(|x: &Tensor| match calls.fetch_add(1, Ordering::Relaxed) {
        n if n % 2 == 0 => Ok(vec![x.mul(n as f64)?]),
        n => Ok(vec![x.exp()?.add(n as f64)?, x.clone()]),
    });
    let x = ramp(&[5], 0)?;
    for call in 0..6 {
        let expected = if call % 2 == 0 { x.mul(call as f64)? } else { x.exp()?.add(call as f64)? };
        let found = f.call(&x)?;
        assert_eq!((look(&found[0]), found.len()), (look(&expected), 1 + call % 2), "call {call}");
    }
    Ok(())
}

#[test]
fn kept_handles_get_their_values() -> Result<()> {
    let aside: Mutex<Vec<Tensor>> = Mutex::default();
    let f = deferred(|x: &Tensor| {
        let y = x.exp()?;
        aside.lock().expect("nobody panics").extend([y.clone(), y.transpose(0, 1)?, y.add(1.0)?]);
        y.mul_(2.0)?;
        y.sum_all()
    });
    let x = ramp(&[2, 3], 0)?;
    f.call(&x)?;
    let aside = aside.lock().expect("nobody panics");
    let y = x.exp()?;
    assert_eq!(look(&aside[2]), look(&y.add(1.0)?));
    y.mul_(2.0)?;
    assert_eq!((look(&aside[0]), look(&aside[1])), (look(&y), look(&y.transpose(0, 1)?)));
    // They are ordinary tensors: views see a write.
    aside[0].zero_()?;
    assert_eq!(aside[1].to_vec::<f32>()?, [0.0; 6]);
    Ok(())
}

#[test]
fn the_calls_before_and_after_a_read_are_one_kernel_each() -> Result<()> {
    let f = compile(|x: &Tensor| {
        let y = x.mul(2.0)?.tanh()?.add(x)?;
        let greatest = y.amax((), false)?.item::<f32>()?;
        y.div(f64::from(greatest))?.exp()?.neg()
    });
    for call in 0..4 {
        let x = ramp(&[40], call)?;
        let y = x.mul(2.0)?.tanh()?.add(&x)?;
        let expected = y.div(f64::from(y.amax((), false)?.item::<f32>()?))?.exp()?.neg()?;
        assert_eq!(look(&f.call(&x)?), look(&expected));
    }
    // The value that was read is an input of the second segment, so both were compiled once.
    let (counts, segments) = (f.counts(), f.segments());
    assert_eq!((counts.deferred, counts.segments, counts.segment_captures), (3, 2, 2), "{counts:?}");
    assert!(segments.iter().all(|segment| segment.kernels_after == 1), "{segments:?}");
    let breaks = f.breaks();
    assert_eq!((&breaks[0].reason, breaks[0].count, breaks.len()), (&Reason::ReadsValue { op: "item".into() }, 4, 1));
    assert!(f.explain().eager.is_none());
    Ok(())
}

#[test]
fn an_error_is_returned_by_the_read_or_at_the_end() -> Result<()> {
    let reads = AtomicUsize::new(0);
    let f = deferred(|table: &Tensor, at: &Tensor| {
        let row = embedding(table, at)?;
        table.add_(1.0)?;
        let sum = row.sum_all()?.item::<f32>();
        reads.fetch_add(1, Ordering::Relaxed);
        sum.and(row.exp())
    });
    let table = ramp(&[3, 2], 0)?;
    let (good, bad) = (Tensor::from_slice(&[1i64], &[1])?, Tensor::from_slice(&[3i64], &[1])?);
    let before = look(&table);
    let error = f.call((&table, &bad)).expect_err("3 is outside");
    assert!(matches!(&error, Error::OutOfRange { op, got: 3, .. } if op == "embedding"), "{error}");
    // The write came after the call that failed.
    assert_eq!((look(&table), reads.load(Ordering::Relaxed)), (before, 1));
    let expected = embedding(&table, &good)?.exp()?;
    assert_eq!(look(&f.call((&table, &good))?), look(&expected));
    Ok(())
}

#[test]
fn gradients_inside_are_those_of_an_eager_run() -> Result<()> {
    let step = |weight: &Tensor, x: &Tensor| -> Result<Tensor> {
        let loss = x.matmul(weight)?.tanh()?.square()?.sum_all()?;
        loss.backward()?;
        let gradient = weight.grad().ok_or_else(|| Error::argument("test", "no gradient"))?;
        let _quiet = opfuse::autograd::no_grad();
        let rate = if gradient.abs()?.amax((), false)?.item::<f32>()? > 1.0 { 0.01 } else { 0.1 };
        weight.sub_(&gradient.mul(rate)?)?;
        weight.set_grad(None)?;
        loss.detach()?.add(0.0)
    };
    let train = |call: &dyn Fn(&Tensor) -> Result<Tensor>, weight: &Tensor| -> Result<Vec<String>> {
        let losses = (0..4).map(|at| Ok(look(&call(&ramp(&[5, 3], at)?)?))).collect::<Result<Vec<_>>>()?;
        Ok([losses, vec![look(weight)]].concat())
    };
    let leaf = || -> Result<Tensor> {
        let weight = ramp(&[3, 2], 3)?;
        weight.set_requires_grad(true)?;
        Ok(weight)
    };
    let (eager, own, given) = (leaf()?, leaf()?, leaf()?);
    let expected = train(&|x| step(&eager, x), &eager)?;
    // A captured weight is found by the calls. A weight as an input makes the function run eagerly.
    let captured = deferred(|x: &Tensor| step(&own, x));
    assert_eq!(train(&|x| captured.call(x), &own)?, expected);
    assert_eq!((captured.counts().deferred, captured.counts().eager), (4, 0));
    let with_weight = deferred(step);
    assert_eq!(train(&|x| with_weight.call((&given, x)), &given)?, expected);
    assert_eq!((with_weight.counts().deferred, with_weight.counts().eager), (0, 4));
    assert!(with_weight.explain().to_string().contains("gradients"), "{}", with_weight.explain());
    Ok(())
}

#[test]
fn segments_that_differ_in_every_call_run_eagerly() -> Result<()> {
    let f = deferred(|x: &Tensor| {
        // The value that was read is the size of the second segment.
        let n = x.sum_all()?.item::<f32>()? as i64;
        Tensor::arange(0, n, 1)?.to_dtype(opfuse::DType::F32)?.mul(2.0)?.sum_all()
    });
    for n in 1..200 {
        let x = Tensor::from_slice(&[n as f32], &[1])?;
        assert_eq!(f.call(&x)?.to_vec::<f32>()?, [(n * (n - 1)) as f32]);
    }
    let counts = f.counts();
    assert!(counts.eager > 0 && counts.deferred > 0 && counts.segments <= 8 * 256, "{counts:?}");
    assert!(f.explain().to_string().contains("differ"), "{}", f.explain());
    Ok(())
}

#[test]
fn concurrent_deferred_calls_compile_each_segment_once() -> Result<()> {
    let f = deferred(|x: &Tensor| {
        let y = x.exp()?;
        if y.sum_all()?.item::<f32>()? > 0.0 { y.mul(2.0)?.softmax(-1) } else { y.neg() }
    });
    let x = ramp(&[7, 9], 0)?;
    let expected = look(&x.exp()?.mul(2.0)?.softmax(-1)?);
    let barrier = Barrier::new(32);
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                barrier.wait();
                assert_eq!(look(&f.call(&x).expect("it runs")), expected);
            });
        }
    });
    assert_eq!((f.counts().segments, f.counts().segment_captures), (2, 2), "{:?}", f.counts());
    Ok(())
}
