//! First calls: the function is applied once, whatever it does, and tensors that it keeps have their values.

use super::check::{look, ramp};
use opfuse::compile::{BreakPolicy, CompileOptions, Counts, compile, compile_with};
use opfuse::device::Device;
use opfuse::error::NotCaptured;
use opfuse::{DType, Generator, Reason, Result, Tensor, cat};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

#[test]
fn a_function_is_applied_once() -> Result<()> {
    let runs = AtomicUsize::new(0);
    let whole = compile(|x: &Tensor| {
        runs.fetch_add(1, Ordering::Relaxed);
        x.exp()?.add(1.0)
    });
    let reads = compile(|x: &Tensor| {
        runs.fetch_add(1, Ordering::Relaxed);
        x.mul(x.exp()?.sum_all()?.item::<f32>()?)
    });
    let x = ramp(&[3], 0)?;
    assert_eq!(look(&whole.call(&x)?), look(&x.exp()?.add(1.0)?));
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert_eq!(look(&reads.call(&x)?), look(&x.mul(x.exp()?.sum_all()?.item::<f32>()?)?));
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    Ok(())
}

/// A trace cannot read a value. A function that branches on an input's value is therefore no trace, even at its start.
#[test]
fn a_function_that_branches_on_an_input_is_not_traced() -> Result<()> {
    let function = |x: &Tensor| if x.select(0, 0)?.item::<f32>()? > 0.0 { x.exp() } else { x.neg() };
    let f = compile(function);
    for x in [Tensor::full(&[2], 1.0, DType::F32)?, Tensor::full(&[2], -1.0, DType::F32)?] {
        assert_eq!(look(&f.call(&x)?), look(&function(&x)?));
    }
    assert_eq!(f.breaks()[0].reason, Reason::ReadsValue { op: "item".into() });
    Ok(())
}

type Step = fn(&Generator, &Tensor) -> Result<Tensor>;

/// Draws are those of an eager call, in its order, however the function is run.
#[test]
fn draws_are_those_of_eager() -> Result<()> {
    let whole: Step =
        |generator, x| generator.rand(&[64], DType::F32)?.mul(x)?.add(generator.randn(&[64], DType::F32)?);
    let sets: Step = |generator, x| {
        let noise = generator.rand(&[64], DType::F32)?;
        generator.manual_seed(3);
        noise.add(generator.rand(&[64], DType::F32)?)?.mul(x)
    };
    let reads: Step = |generator, x| {
        let (noise, more) = (generator.rand(&[64], DType::F32)?, generator.randn(&[64], DType::F32)?);
        let scale = noise.sum_all()?.item::<f32>()?;
        x.mul(scale)?.add(more)?.add(generator.rand(&[64], DType::F32)?)
    };
    for step in [whole, sets, reads] {
        let [own, other] = [7, 7].map(|seed| {
            let generator = Generator::new(Device::CPU);
            generator.manual_seed(seed);
            generator
        });
        let x = Tensor::full(&[64], 0.5, DType::F32)?;
        let f = compile(|x: &Tensor| step(&own, x));
        for call in 0..3 {
            assert_eq!(look(&f.call(&x)?), look(&step(&other, &x)?), "call {call}");
            assert_eq!(own.state(), other.state());
        }
    }
    Ok(())
}

#[test]
fn a_tensor_that_is_made_once_and_kept_is_captured() -> Result<()> {
    let table = OnceLock::new();
    let f = compile(|x: &Tensor| {
        if table.get().is_none() {
            table.set(x.cos()?).expect("nobody else sets it");
        }
        x.mul(table.get().expect("it was set"))
    });
    let (x, other) = (ramp(&[4], 0)?, ramp(&[4], 1)?);
    assert_eq!(look(&f.call(&x)?), look(&x.mul(x.cos()?)?));
    for _ in 0..2 {
        assert_eq!(look(&f.call(&other)?), look(&other.mul(x.cos()?)?));
    }
    assert!(f.explain().eager.is_none(), "{}", f.explain());
    let counts = f.counts();
    assert!(matches!(counts, Counts { calls: 3, captures: 1, deferred: 0, eager: 0, .. }), "{counts:?}");
    Ok(())
}

#[test]
fn a_function_that_always_keeps_something_is_never_stale() -> Result<()> {
    let state = Mutex::new(ramp(&[1, 3], 0)?);
    let grow = |state: &Mutex<Tensor>, x: &Tensor| {
        let mut state = state.lock().expect("nobody panics");
        *state = cat(&[&*state, x], 0)?;
        state.sum(0, false)
    };
    let f = compile(|x: &Tensor| grow(&state, x));
    let other = Mutex::new(ramp(&[1, 3], 0)?);
    for call in 0..5 {
        let x = ramp(&[1, 3], call)?;
        assert_eq!(look(&f.call(&x)?), look(&grow(&other, &x)?), "call {call}");
    }
    assert!(matches!(&f.breaks()[0].reason, Reason::NotCaptured(NotCaptured::KeepsTensors)), "{:?}", f.breaks());
    Ok(())
}

/// Writes before an error have happened, as in an eager call. A refused read is such an error.
#[test]
fn an_error_halfway_leaves_what_eager_leaves() -> Result<()> {
    let function = |x: &Tensor| {
        x.add_(1.0)?;
        x.add(Tensor::zeros(&[5], DType::F32)?)
    };
    let strict = CompileOptions { breaks: BreakPolicy::Error, ..CompileOptions::default() };
    let reads = |x: &Tensor| {
        x.add_(1.0)?;
        x.mul(x.sum_all()?.item::<f32>()?)
    };
    let x = ramp(&[3], 0)?;
    let expected = look(&x.add(1.0)?);
    assert_eq!(compile(function).call(&x).err(), function(&ramp(&[3], 0)?).err());
    assert_eq!(look(&x), expected);
    let y = ramp(&[3], 0)?;
    assert!(compile_with(reads, strict).call(&y).is_err());
    assert_eq!(look(&y), expected);
    Ok(())
}
