//! Break policies and stances.

use super::check::{look, ramp};
use opfuse::compile::{BreakPolicy, CompileOptions, Determinism, Stance, compile, compile_with, stance};
use opfuse::{Error, Reason, Result, Tensor};
use std::sync::atomic::{AtomicUsize, Ordering};

fn reads(x: &Tensor) -> Result<Tensor> {
    let y = x.exp()?;
    if y.sum_all()?.item::<f32>()? > 10.0 { y.mul(2.0) } else { y.neg() }
}

#[test]
fn a_graph_break_may_be_an_error() -> Result<()> {
    let options = CompileOptions { breaks: BreakPolicy::Error, ..CompileOptions::default() };
    let f = compile_with(reads, options.clone());
    for size in [3, 3, 4, 3] {
        let error = f.call(&ramp(&[size], 0)?).expect_err("it reads");
        assert!(matches!(&error, Error::Argument { op, what } if op == "item" && what.contains("reads")), "{error}");
    }
    // A function without a break is compiled. One that swallows the error still fails.
    let g = compile_with(|x: &Tensor| x.exp()?.add(1.0), options.clone());
    let x = ramp(&[3], 0)?;
    assert_eq!(look(&g.call(&x)?), look(&x.exp()?.add(1.0)?));
    assert_eq!(g.explain().kernels_after, 1);
    let h = compile_with(|x: &Tensor| x.mul(f64::from(x.sum_all()?.item::<f32>().unwrap_or(1.0))), options);
    for _ in 0..2 {
        let error = h.call(&x).expect_err("it reads");
        assert!(error.to_string().contains("item"), "{error}");
    }
    Ok(())
}

#[test]
fn a_graph_break_may_make_the_whole_function_eager() -> Result<()> {
    let f = compile_with(reads, CompileOptions { breaks: BreakPolicy::Eager, ..CompileOptions::default() });
    for size in [3, 3, 4] {
        let x = ramp(&[size], 0)?;
        assert_eq!(look(&f.call(&x)?), look(&reads(&x)?));
        assert_eq!(f.explain().eager, Some(Reason::ReadsValue { op: "item".into() }));
    }
    assert_eq!(f.counts().breaks, 2);
    Ok(())
}

#[test]
fn stances_of_the_thread_override_those_of_the_function() -> Result<()> {
    let runs = AtomicUsize::new(0);
    let f = compile(|x: &Tensor| {
        runs.fetch_add(1, Ordering::Relaxed);
        x.exp()
    });
    let x = ramp(&[3], 0)?;
    f.call(&x)?;
    {
        let _eager = stance(Stance::Eager);
        f.call(&x)?;
        assert_eq!(f.explain().eager, Some(Reason::Disabled));
        {
            let _default = stance(Stance::Default);
            f.call(&x)?;
        }
        f.call(&x)?;
    }
    f.call(&x)?;
    assert_eq!(runs.load(Ordering::Relaxed), 3);
    assert_eq!(f.explain().eager, None);
    let counts = f.counts();
    assert_eq!((counts.calls, counts.hits, counts.eager), (5, 2, 2));
    let eager = CompileOptions { stance: Stance::Eager, ..CompileOptions::default() };
    let g = compile_with(|x: &Tensor| x.exp(), eager);
    assert_eq!(look(&g.call(&x)?), look(&x.exp()?));
    assert_eq!((g.counts().captures, g.counts().eager), (0, 1));
    Ok(())
}

#[test]
fn failing_on_recompile_says_what_differs() -> Result<()> {
    let options = CompileOptions { stance: Stance::FailOnRecompile, ..CompileOptions::default() };
    let f = compile_with(|x: &Tensor| x.exp(), options);
    let x = ramp(&[3, 4], 0)?;
    f.call(&x)?;
    let needs_gradients = ramp(&[3, 4], 0)?;
    needs_gradients.set_requires_grad(true)?;
    let others = [
        (ramp(&[5, 4], 0)?, "input 0 has shape [5, 4], not [3, 4]"),
        (ramp(&[3], 0)?, "input 0 has 1 dims, not 2"),
        (x.to_dtype(opfuse::DType::F64)?, "input 0 has dtype f64, not f32"),
        (ramp(&[4, 3], 0)?.transpose(0, 1)?, "input 0 has strides [1, 3], not [4, 1]"),
        (needs_gradients, "input 0 differs in requires_grad"),
    ];
    for (other, what) in others {
        let error = f.call(&other).expect_err("its types are others");
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(look(&f.call(&x)?), look(&x.exp()?));
    }
    assert_eq!((f.counts().captures, f.counts().entries), (1, 1));
    Ok(())
}

type Unsteady<'a> = dyn Fn(&Tensor) -> Result<Vec<Tensor>> + Sync + 'a;

#[test]
fn checked_determinism_finds_functions_that_differ() -> Result<()> {
    let options = CompileOptions { determinism: Determinism::Checked, ..CompileOptions::default() };
    let calls = AtomicUsize::new(0);
    let count = || calls.fetch_add(1, Ordering::Relaxed);
    // A number, a structure, an op, and a tensor made of values that differ at every call.
    let functions: [&Unsteady<'_>; 4] = [
        &|x| Ok(vec![x.mul(count() as f64)?]),
        &|x| Ok(vec![x.exp()?; count() % 3 + 1]),
        &|x| Ok(vec![if count() % 2 == 0 { x.exp()? } else { x.neg()? }]),
        &|x| Ok(vec![x.mul(Tensor::from_slice(&[count() as f32; 3], &[3])?)?]),
    ];
    let x = ramp(&[3], 0)?;
    for (index, function) in functions.iter().enumerate() {
        let f = compile_with(|x: &Tensor| function(x), options.clone());
        calls.store(0, Ordering::Relaxed);
        f.call(&x)?;
        for call in 0..4 {
            // The check of the first call calls the function, too.
            let at = call + 2;
            calls.store(at, Ordering::Relaxed);
            let expected: Vec<String> = function(&x)?.iter().map(look).collect();
            calls.store(if call == 0 { at - 1 } else { at }, Ordering::Relaxed);
            let found: Vec<String> = f.call(&x)?.iter().map(look).collect();
            assert_eq!(found, expected, "function {index}, call {call}");
        }
        let breaks = f.breaks();
        assert!(breaks[0].reason.to_string().contains("something else"), "function {index}: {breaks:?}");
        assert_eq!(f.counts().deferred, 4, "function {index}: {:?}", f.counts());
    }
    Ok(())
}
