//! Compiled functions: capture, guards, caches, reasons, bad input, threads.

use crate::values::{bits, ramp, softmax_by_parts};
use opfuse::compile::{CompileOptions, Stance};
use opfuse::device::{Device, pool};
use opfuse::internals::codegen::kernel::FOLD_BLOCK;
use opfuse::internals::codegen::tier::Tier;
use opfuse::internals::transforms::tracer::trace;
use opfuse::ir::TensorType;
use opfuse::{DType, Error, Reason, Result, Tensor, cat, compile, compile_with, embedding};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

fn layer_norm_by_parts(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let centred = x.sub(&x.mean([-1], true)?)?;
    let variance = centred.square()?.mean([-1], true)?;
    centred.mul(&variance.add(1e-5)?.rsqrt()?)?.mul(weight)?.add(bias)
}

#[test]
fn softmax_and_layer_norm_are_one_kernel() -> Result<()> {
    let (x, w) = (ramp(&[7, 33]), ramp(&[33]));
    let softmax = compile(softmax_by_parts);
    assert_eq!(bits(&softmax.call(&x)?), bits(&softmax_by_parts(&x)?));
    assert_eq!(softmax.explain().kernels_after, 1, "{}", softmax.explain());
    let norm = compile(layer_norm_by_parts);
    assert_eq!(bits(&norm.call((&x, &w, &w))?), bits(&layer_norm_by_parts(&x, &w, &w)?));
    assert_eq!(norm.explain().kernels_after, 1, "{}", norm.explain());
    let residual = compile(|x: &Tensor, r: &Tensor, w: &Tensor| {
        let sum = x.add(r)?;
        Ok((layer_norm_by_parts(&sum, w, w)?, sum))
    });
    let (normed, sum) = residual.call((&x, &x, &w))?;
    assert_eq!(bits(&sum), bits(&x.add(&x)?));
    assert_eq!(bits(&normed), bits(&layer_norm_by_parts(&sum, &w, &w)?));
    assert_eq!(residual.explain().kernels_after, 1, "{}", residual.explain());
    Ok(())
}

#[test]
fn the_first_call_and_later_ones_agree_on_every_tier() -> Result<()> {
    let (x, w) = (ramp(&[5, 70]), ramp(&[70]));
    let expected = bits(&layer_norm_by_parts(&x, &w, &w)?.gelu_tanh()?);
    for tier in [None].into_iter().chain(Tier::ALL.map(Some)) {
        let options = CompileOptions { tier, ..CompileOptions::default() };
        let f = compile_with(|x: &Tensor, w: &Tensor| layer_norm_by_parts(x, w, w)?.gelu_tanh(), options);
        for call in 0..3 {
            assert_eq!(bits(&f.call((&x, &w))?), expected, "{tier:?}, call {call}");
        }
    }
    Ok(())
}

#[test]
fn a_captured_tensor_is_an_input_and_not_a_constant() -> Result<()> {
    let weight = ramp(&[4]);
    let held = weight.clone();
    let f = compile(move |x: &Tensor| x.mul(&held)?.relu());
    let x = ramp(&[3, 4]);
    for _ in 0..2 {
        assert_eq!(bits(&f.call(&x)?), bits(&x.mul(&weight)?.relu()?));
    }
    let wider = ramp(&[6, 4]);
    assert_eq!(bits(&f.call(&wider)?), bits(&wider.mul(&weight)?.relu()?));
    Ok(())
}

#[test]
fn the_same_tensor_twice_is_two_inputs() -> Result<()> {
    let f = compile(|a: &Tensor, b: &Tensor| a.sub(b)?.exp());
    let (x, y) = (ramp(&[9]), ramp(&[9]).neg()?);
    assert_eq!(bits(&f.call((&x, &x))?), bits(&x.sub(&x)?.exp()?));
    assert_eq!(bits(&f.call((&x, &y))?), bits(&x.sub(&y)?.exp()?));
    Ok(())
}

#[test]
fn inputs_views_and_duplicates_may_be_returned() -> Result<()> {
    let f = compile(|x: &Tensor| {
        let y = x.exp()?;
        Ok(vec![x.clone(), y.clone(), y.transpose(0, 1)?, y, x.select(0, 1)?])
    });
    let x = ramp(&[2, 3]);
    for _ in 0..2 {
        let out = f.call(&x)?;
        let y = x.exp()?;
        let expected = [x.clone(), y.clone(), y.transpose(0, 1)?, y, x.select(0, 1)?];
        for (found, expected) in out.iter().zip(&expected) {
            assert_eq!((found.sizes(), found.strides()), (expected.sizes(), expected.strides()));
            assert_eq!(bits(found), bits(expected));
        }
        assert!(out[4].is_alias_of(&x) && out[2].is_alias_of(&out[3]));
    }
    Ok(())
}

#[test]
fn reading_a_value_splits_the_function_with_a_reason() -> Result<()> {
    let f = compile(|x: &Tensor| {
        let total = x.sum_all()?.item::<f32>()?;
        if total > 0.0 { x.mul(2.0) } else { x.neg() }
    });
    for x in [ramp(&[5]), ramp(&[5]).abs()?.neg()?, ramp(&[8])] {
        let eager = if x.sum_all()?.item::<f32>()? > 0.0 { x.mul(2.0)? } else { x.neg()? };
        assert_eq!(bits(&f.call(&x)?), bits(&eager));
        assert_eq!(f.breaks()[0].reason, Reason::ReadsValue { op: "item".into() });
    }
    assert_eq!((f.counts().deferred, f.counts().eager), (2, 0));
    Ok(())
}

#[test]
fn odd_inputs_run() -> Result<()> {
    let f = compile(|x: &Tensor| x.mul(2.0)?.add(1.0)?.relu()?.sum([0], true));
    let base = ramp(&[6, 8]);
    let cases = [
        ramp(&[0, 3]),
        ramp(&[1, 1]),
        base.transpose(0, 1)?,
        base.slice(1, 1, None, 3)?,
        base.select(0, 2)?.unsqueeze(0)?.expand([5, 8])?,
        ramp(&[4]),
        ramp(&[]),
    ];
    for x in cases {
        let eager = |x: &Tensor| x.mul(2.0)?.add(1.0)?.relu()?.sum([0], true);
        match eager(&x) {
            Ok(expected) => {
                for _ in 0..2 {
                    let found = f.call(&x)?;
                    assert_eq!(
                        (found.sizes(), found.strides()),
                        (expected.sizes(), expected.strides()),
                        "{:?}",
                        x.sizes()
                    );
                    assert_eq!(bits(&found), bits(&expected));
                }
            }
            Err(error) => assert_eq!(f.call(&x).err(), Some(error)),
        }
    }
    Ok(())
}

#[test]
fn long_folds_do_not_depend_on_threads() -> Result<()> {
    let x = ramp(&[3 * 16 * FOLD_BLOCK + 77]);
    let f = compile(|x: &Tensor| Ok((x.sum_all()?, x.amax((), false)?, x.argmin(None, false)?)));
    let one = pool::with_threads(1, || f.call(&x))?;
    let two = pool::with_threads(2, || f.call(&x))?;
    assert_eq!((bits(&one.0), bits(&one.1)), (bits(&two.0), bits(&two.1)));
    assert_eq!(one.2.to_vec::<i64>()?, two.2.to_vec::<i64>()?);
    assert_eq!(bits(&one.0), bits(&x.sum_all()?));
    Ok(())
}

#[test]
fn concurrent_first_calls_compile_once() {
    let traces = AtomicUsize::new(0);
    let f = compile(|x: &Tensor| {
        traces.fetch_add(1, Ordering::Relaxed);
        softmax_by_parts(&x.mul(3.25)?)
    });
    let x = ramp(&[17, 65]);
    let expected = bits(&softmax_by_parts(&x.mul(3.25).expect("f32")).expect("f32"));
    let (threads, barrier) = (16, Barrier::new(16));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                barrier.wait();
                assert_eq!(bits(&f.call(&x).expect("runs")), expected);
            });
        }
    });
    assert_eq!(traces.load(Ordering::Relaxed), 1);
}

#[test]
fn errors_leave_everything_usable() -> Result<()> {
    let f = compile(|a: &Tensor, b: &Tensor| a.add(b)?.exp());
    let (a, b) = (ramp(&[3, 4]), ramp(&[3, 5]));
    let error = f.call((&a, &b)).expect_err("4 is not 5");
    assert!(matches!(error, Error::Broadcast { dim: 1, left: 4, right: 5, .. }), "{error}");
    assert_eq!(bits(&f.call((&a, &a))?), bits(&a.add(&a)?.exp()?));
    assert!(f.call((&a, &b)).is_err());
    assert_eq!(bits(&f.call((&a, &a))?), bits(&a.add(&a)?.exp()?));

    let table = ramp(&[4, 3]);
    let rows = compile(|table: &Tensor, ids: &Tensor| embedding(table, ids)?.mul(2.0));
    let good = Tensor::from_slice(&[0i64, 3], &[2])?;
    let bad = Tensor::from_slice(&[0i64, 4], &[2])?;
    rows.call((&table, &good))?;
    for _ in 0..2 {
        let error = rows.call((&table, &bad)).expect_err("4 is outside");
        assert!(matches!(&error, Error::OutOfRange { op, got: 4, high: 3, .. } if op == "embedding"), "{error}");
        assert_eq!(bits(&rows.call((&table, &good))?), bits(&embedding(&table, &good)?.mul(2.0)?));
    }
    Ok(())
}

#[test]
fn a_panic_inside_is_an_error_and_the_next_call_works() -> Result<()> {
    let calls = AtomicUsize::new(0);
    let f = compile(|x: &Tensor| {
        assert!(calls.fetch_add(1, Ordering::Relaxed) > 0, "the first call fails");
        x.exp()
    });
    let x = ramp(&[4]);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let error = f.call(&x).expect_err("it panics");
    std::panic::set_hook(hook);
    assert!(matches!(&error, Error::Panicked { message } if message.contains("the first call fails")), "{error}");
    assert!(error.to_string().contains("the compiled function panicked"), "{error}");
    assert_eq!(bits(&f.call(&x)?), bits(&x.exp()?));
    assert_eq!(bits(&f.call(&x)?), bits(&x.exp()?));
    // Also where gradients are recorded, and where the function runs eagerly.
    let second = |x: &[Tensor]| &x[0] + &x[1];
    let options = CompileOptions { stance: Stance::Eager, ..CompileOptions::default() };
    let leaf = ramp(&[4]);
    leaf.set_requires_grad(true)?;
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let errors = [
        compile(second).call([&x]).expect_err("it panics"),
        compile(second).call([&leaf]).expect_err("it panics"),
        compile_with(second, options).call([&x]).expect_err("it panics"),
    ];
    std::panic::set_hook(hook);
    for error in errors {
        assert!(matches!(&error, Error::Panicked { message } if message.contains("index out of bounds")), "{error}");
    }
    Ok(())
}

#[test]
fn a_function_that_returns_nothing_is_refused() {
    let f = compile(|_: &[Tensor]| Ok(Vec::<Tensor>::new()));
    let error = f.call(&[ramp(&[2])][..]).expect_err("nothing is returned");
    assert!(matches!(error, Error::Argument { .. }), "{error}");
    let g = compile(|a: &Tensor| a.exp());
    assert!(g.call(&ramp(&[2])).is_ok());
}

#[test]
fn inputs_may_be_any_form_of_a_slice_of_tensors() -> Result<()> {
    let f = compile(|x: &[Tensor]| x[0].add(&x[1]));
    let inputs = vec![ramp(&[3]), ramp(&[3]).exp()?];
    let expected = bits(&inputs[0].add(&inputs[1])?);
    assert_eq!(bits(&f.call(&inputs)?), expected);
    assert_eq!(bits(&f.call(&inputs[..])?), expected);
    assert_eq!(bits(&f.call([&inputs[0], &inputs[1]])?), expected);
    assert_eq!((f.counts().calls, f.counts().entries), (3, 1));
    Ok(())
}

#[test]
fn meta_inputs_run_on_shapes_alone() -> Result<()> {
    let meta = Tensor::meta(&TensorType::contiguous(DType::F32, &[2, 3]))?;
    let f = compile(softmax_by_parts);
    let y = f.call(&meta)?;
    assert_eq!((y.sizes(), y.device()), (&[2usize, 3][..], Device::META));
    Ok(())
}

#[test]
fn tensors_of_a_trace_are_harmless_outside() -> Result<()> {
    let leaked: Mutex<Vec<Tensor>> = Mutex::default();
    let f = compile(|x: &Tensor| {
        let y = x.exp()?;
        leaked.lock().expect("nobody panics").push(y.clone());
        y.mul(2.0)
    });
    f.call(&ramp(&[3]))?;
    f.call(&ramp(&[4]))?;
    // After a call, tensors that the function keeps have values.
    let leaked = leaked.into_inner().expect("nobody panics");
    assert_eq!(bits(&leaked[0]), bits(&ramp(&[3]).exp()?));
    assert_eq!(bits(&leaked[1]), bits(&ramp(&[4]).exp()?));
    // After a trace alone they have none.
    let (shape, _) = trace(&[ramp(&[3])], |x| x[0].exp(), |y| vec![y.clone()])?;
    assert!(matches!(shape.add(1.0), Err(Error::Device { .. })));
    assert!(shape.to_vec::<f32>().is_err());
    let g = compile(|x: &Tensor| x.relu());
    assert!(g.call(&shape).is_err());
    assert!(g.call(&ramp(&[2])).is_ok());
    assert!(ramp(&[2]).add(&Tensor::meta(&TensorType::contiguous(DType::F32, &[2]))?).is_err());
    Ok(())
}

#[test]
fn nested_compiled_functions_become_one_graph() -> Result<()> {
    let inner = compile(|x: &Tensor| x.mul(2.0)?.relu());
    let outer = compile(move |x: &Tensor| inner.call(&x.add(1.0)?)?.exp());
    let x = ramp(&[11]);
    let expected = bits(&x.add(1.0)?.mul(2.0)?.relu()?.exp()?);
    for _ in 0..2 {
        assert_eq!(bits(&outer.call(&x)?), expected);
    }
    assert_eq!(outer.explain().kernels_after, 1, "{}", outer.explain());
    Ok(())
}

#[test]
fn explain_names_every_kept_edge() -> Result<()> {
    let f = compile(|x: &Tensor, w: &Tensor| cat(&[&x.mm(&w.exp()?)?.add(1.0)?.relu()?, x], 1)?.sum([0], false));
    let (x, w) = (ramp(&[4, 3]), ramp(&[3, 5]));
    f.call((&x, &w))?;
    let text = f.explain().to_string();
    for part in
        ["exp -> ", "the product's own rows", "in a kernel with work on other rows", "add, relu", "bytes unfused"]
    {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    let dot = f.to_dot();
    assert!(dot.starts_with("digraph") && dot.contains("subgraph cluster_"), "{dot}");
    Ok(())
}
