//! Plain numbers in structures that change from call to call: they become inputs, and keep the bits of eager calls.

use super::check::{look, ramp};
use opfuse::autograd::no_grad;
use opfuse::compile::compile;
use opfuse::{DType, Result, Tensor, TensorStruct};

#[derive(TensorStruct)]
struct Step {
    weight: Tensor,
    moment: Tensor,
    rate: f64,
    count: i64,
}

fn step(dtype: DType, rate: f64, count: i64) -> Result<Step> {
    let [weight, moment] = [ramp(&[6], 1)?.to_dtype(dtype)?, ramp(&[6], 2)?.to_dtype(dtype)?];
    Ok(Step { weight, moment, rate, count })
}

/// Numbers that a schedule gives, odd ones among them.
const RATES: [f64; 12] = [0.1, 0.09, 1e-40, 0.3, -0.0, 0.0, f64::INFINITY, f64::NAN, 1.0, -1.0, 1e300, 0.7];

/// Rates as operands, in Rust, in numbers of numbers, as a constant, and a count that promotes integers.
fn update(step: &Step, x: &Tensor) -> Result<Tensor> {
    let decay = 1.0 - step.rate;
    step.moment.copy_(&(step.moment.mul(decay)? + x.mul(step.rate)?)?)?;
    step.weight.sub_(step.moment.mul(Tensor::number(step.rate)?.mul(0.5)?)?)?;
    (step.weight.mul(2.0)? + x.to_dtype(DType::I32)?.mul(step.count)?.div(step.count + 1)?)?.add(step.rate)
}

#[test]
fn numbers_that_change_are_inputs_with_the_bits_of_eager_calls() -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        let f = compile(update);
        let (eager, compiled) = (step(dtype, 0.0, 0)?, step(dtype, 0.0, 0)?);
        for (call, rate) in RATES.into_iter().enumerate() {
            let x = ramp(&[6], call + 5)?.to_dtype(dtype)?;
            let of = |one: &Step| Step {
                weight: one.weight.clone(),
                moment: one.moment.clone(),
                rate,
                count: call as i64 * 1_000_003,
            };
            let expected = update(&of(&eager), &x)?;
            let found = f.call((&of(&compiled), &x))?;
            assert_eq!(look(&found), look(&expected), "{dtype} {rate}");
            for (one, other) in [(&eager.weight, &compiled.weight), (&eager.moment, &compiled.moment)] {
                assert_eq!(look(other), look(one), "{dtype} {rate}");
            }
        }
        let counts = f.counts();
        assert_eq!((counts.eager, counts.deferred), (0, 0), "{counts:?}");
        assert_eq!((counts.captures, counts.hits), (3, RATES.len() as u64 - 3), "{counts:?}");
        let report = f.explain();
        assert!(report.changing_numbers > 0 && report.to_string().contains("changed, so they are inputs"), "{report}");
    }
    Ok(())
}

/// A whole training step: forward, backward and update.
fn train(step: &Step, x: &Tensor) -> Result<Tensor> {
    let loss = x.mul(&step.weight)?.sigmoid()?.square()?.sum_all()?;
    loss.backward()?;
    let gradient = step.weight.grad().expect("the loss depends on it");
    let _quiet = no_grad();
    step.weight.sub_(gradient.mul(step.rate)?)?;
    step.weight.set_grad(None)?;
    loss.detach()
}

#[test]
fn a_rate_that_decays_compiles_nothing_after_the_third_step() -> Result<()> {
    let f = compile(train);
    let leaf = || -> Result<Step> {
        let step = step(DType::F32, 0.0, 0)?;
        step.weight.set_requires_grad(true)?;
        Ok(step)
    };
    let (eager, compiled) = (leaf()?, leaf()?);
    for call in 0..40 {
        let x = ramp(&[6], call)?;
        let of = |one: &Step| Step {
            weight: one.weight.clone(),
            moment: one.moment.clone(),
            rate: 0.5 * 0.9f64.powi(call as i32),
            count: 0,
        };
        let expected = train(&of(&eager), &x)?;
        let found = f.call((&of(&compiled), &x))?;
        assert_eq!((look(&found), look(&compiled.weight)), (look(&expected), look(&eager.weight)), "{call}");
    }
    let counts = f.counts();
    assert_eq!((counts.eager, counts.captures, counts.hits), (0, 3, 37), "{counts:?}");
    assert!(counts.entries <= 2, "{counts:?}");
    Ok(())
}

#[test]
fn functions_that_branch_on_a_number_are_never_stale() -> Result<()> {
    let function = |step: &Step, x: &Tensor| {
        let y = if step.rate > 0.5 { x.mul(step.rate)? } else { x.add(step.rate)? };
        // Another number changes only now and then.
        y.mul(if step.count % 3 == 0 { 2.0 } else { 4.0 })
    };
    let f = compile(function);
    for call in 0..60u32 {
        let rate = (f64::from(call) * 0.37).fract();
        let (step, x) = (step(DType::F32, rate, i64::from(call) / 7)?, ramp(&[6], 3)?);
        assert_eq!(look(&f.call((&step, &x))?), look(&function(&step, &x)?), "{call}");
    }
    // The history and the aliases of results count, too.
    let severs = |step: &Step, x: &Tensor| {
        let _quiet = (step.rate > 0.5).then(no_grad);
        let y = x.mul(&step.weight)?.mul(step.rate)?;
        Ok(if step.count % 2 == 0 { (y.clone(), y) } else { (y.clone(), y.alias()?) })
    };
    let f = compile(severs);
    for call in 0..30 {
        let step = step(DType::F32, (f64::from(call) * 0.37).fract(), i64::from(call) / 3)?;
        step.weight.set_requires_grad(true)?;
        let (expected, found) = (severs(&step, &ramp(&[6], 3)?)?, f.call((&step, &ramp(&[6], 3)?))?);
        assert_eq!(look(&found.1), look(&expected.1), "{call}");
        assert_eq!(found.0.requires_grad(), expected.0.requires_grad(), "{call}");
        assert_eq!(found.0.is_same(&found.1), expected.0.is_same(&expected.1), "{call}");
    }
    Ok(())
}

#[test]
fn errors_leave_a_function_with_changing_numbers_usable() -> Result<()> {
    let function = |step: &Step, x: &Tensor| {
        step.weight.add_(step.rate)?;
        if step.rate > 100.0 { x.reshape([7]) } else { x.mul(step.rate)?.add(&step.weight) }
    };
    let f = compile(function);
    let (eager, compiled) = (step(DType::F32, 0.0, 0)?, step(DType::F32, 0.0, 0)?);
    for rate in [0.5, 0.25, 0.75, 200.0, 0.125, 300.0, 0.5, 1.5] {
        let x = ramp(&[6], 3)?;
        let of = |one: &Step| Step { weight: one.weight.clone(), moment: one.moment.clone(), rate, count: 0 };
        let text = |result: Result<Tensor>| result.map(|y| look(&y)).map_err(|error| error.to_string());
        assert_eq!(text(f.call((&of(&compiled), &x))), text(function(&of(&eager), &x)), "{rate}");
        assert_eq!(look(&compiled.weight), look(&eager.weight), "{rate}");
    }
    Ok(())
}

#[test]
fn threads_share_a_function_with_changing_numbers() -> Result<()> {
    let f = compile(|step: &Step, x: &Tensor| x.mul(step.rate)?.add(&step.weight)?.mul(1.0 - step.rate));
    let eager = |step: &Step, x: &Tensor| x.mul(step.rate)?.add(&step.weight)?.mul(1.0 - step.rate);
    std::thread::scope(|scope| {
        let run = |thread: usize| {
            for call in 0..100 {
                let step = step(DType::F32, (thread * 100 + call) as f64 * 1e-3, 0)?;
                let x = ramp(&[6], call)?;
                assert_eq!(look(&f.call((&step, &x))?), look(&eager(&step, &x)?));
            }
            Ok(())
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })
}
