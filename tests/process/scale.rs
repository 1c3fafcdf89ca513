//! Much of something: many views, many operands, long chains, and little stack.
//!
//! A bound of time is far above what the work takes, and far below what work takes that grows with the square.

use crate::alone::has_run_alone;
use opfuse::{DType, Result, Tensor, cat, compile};
use std::time::{Duration, Instant};

/// What linear work must take less than, on a busy machine too.
const LONG: Duration = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 20 });

fn timed(what: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    run()?;
    assert!(start.elapsed() < LONG, "{what} took {:?}", start.elapsed());
    Ok(())
}

fn one() -> Result<Tensor> {
    Tensor::from_slice(&[1.0f32, 2.0], &[2])
}

#[test]
fn views_of_views_take_time_for_each() -> Result<()> {
    timed("views of views", || {
        let mut view = one()?;
        for _ in 0..40_000 {
            view = view.view([2])?;
        }
        assert_eq!(view.to_vec::<f32>()?, [1.0, 2.0]);
        Ok(())
    })
}

#[test]
fn many_results_are_joined_in_time_for_each() -> Result<()> {
    timed("a concatenation", || {
        let parts: Vec<Tensor> = (0..50_000).map(|_| one()?.neg()).collect::<Result<_>>()?;
        let all: Vec<&Tensor> = parts.iter().collect();
        assert_eq!(cat(&all, 0)?.sum_all()?.item::<f32>()?, -150_000.0);
        Ok(())
    })
}

#[test]
fn long_chains_run_backward_in_time_for_each_call() -> Result<()> {
    let chain = |x: &Tensor| (0..50_000).try_fold(x.clone(), |x, step| if step % 2 == 0 { x.neg() } else { x.sin() });
    let check = |f: &dyn Fn(&Tensor) -> Result<Tensor>| -> Result<Vec<u32>> {
        let x = one()?;
        x.set_requires_grad(true)?;
        f(&x)?.sum_all()?.backward()?;
        let gradient = x.grad().expect("it is a leaf").to_vec::<f32>()?;
        Ok(gradient.iter().map(|value| value.to_bits()).collect())
    };
    let expected = check(&chain)?;
    let compiled = compile(chain);
    compiled.call(&one()?)?;
    for _ in 0..2 {
        assert_eq!(check(&|x| compiled.call(x))?, expected);
    }
    timed("a backward pass", || check(&|x| compiled.call(x)).map(drop))
}

#[test]
fn threads_with_little_stack_make_first_calls() {
    if has_run_alone() {
        return;
    }
    // A debug build needs more for a frame.
    let stack = if cfg!(debug_assertions) { 512 } else { 64 } << 10;
    let run = || -> Result<()> {
        let x = Tensor::ones(&[4, 4], DType::F32)?;
        x.set_requires_grad(true)?;
        let f = compile(|x: &Tensor| x.matmul(x)?.softmax(-1)?.exp());
        for _ in 0..3 {
            f.call(&x)?.sum_all()?.backward()?;
        }
        let y = x.detach()?.mul(2.0)?;
        y.i(0..2)?.add_(1.0)?;
        assert_eq!(y.sum_all()?.item::<f32>()?, 40.0);
        assert!(format!("{y}").contains("3"));
        Ok(())
    };
    let thread = std::thread::Builder::new().stack_size(stack).spawn(run).expect("a thread");
    thread.join().expect("it does not overflow").expect("the calls work");
}
