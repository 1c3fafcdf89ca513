//! Kernels that compiled functions share: how often kernels are compiled.
//!
//! The counters belong to the process, so each test runs in one of its own.

use crate::alone::has_run_alone;
use crate::values::{bits, ramp, softmax_by_parts};
use opfuse::internals::codegen::cache;
use opfuse::{DType, Result, Tensor, compile};
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_thousand_batch_sizes_share_their_kernels() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let runs = AtomicUsize::new(0);
    let f = compile(|x: &Tensor| {
        runs.fetch_add(1, Ordering::Relaxed);
        softmax_by_parts(&x.mul(0.123)?.add(0.5)?)
    });
    // Sizes 2 and 3 compile every variant of the kernels.
    f.call(&ramp(&[2, 40]))?;
    let before = cache::stats().compilations;
    for rows in 3..1003 {
        let x = ramp(&[rows, 40]);
        let y = f.call(&x)?;
        if rows % 97 == 0 {
            assert_eq!(bits(&y), bits(&softmax_by_parts(&x.mul(0.123)?.add(0.5)?)?));
        }
    }
    let compiled_meanwhile = cache::stats().compilations - before;
    // The eager calls above compile their own one-op kernels, a handful at most.
    assert!(compiled_meanwhile <= 24, "{compiled_meanwhile} kernels were compiled for sizes alone");
    assert!(f.counts().entries <= opfuse::internals::compile::options::CAPACITY);
    Ok(())
}

/// Counts that a backward pass divides by are arguments of kernels, like those of the forward pass.
#[test]
fn gradients_of_a_new_size_compile_nothing() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let f = compile(|x: &Tensor| x.tanh()?.var([1], 1, false)?.mean((), false));
    let run = |rows: usize| {
        let x = ramp(&[rows, 40]);
        x.set_requires_grad(true)?;
        f.call(&x)?.backward()
    };
    run(2)?;
    run(3)?;
    let before = cache::stats().compilations;
    (4..40).try_for_each(run)?;
    let compiled_meanwhile = cache::stats().compilations - before;
    assert!(compiled_meanwhile <= 8, "{compiled_meanwhile} kernels were compiled for sizes alone");
    Ok(())
}

#[test]
fn numbers_stay_arguments() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let f = compile(|x: &Tensor, scale: &Tensor| x.mul(scale)?.tanh());
    let x = ramp(&[100]);
    f.call((&x, 2.0))?;
    f.call((&x, 2.5))?;
    // The eager calls that results are compared with have kernels of their own.
    x.mul(2.5)?.tanh()?;
    let before = cache::stats().compilations;
    for step in 0..10 {
        let scale = 0.1 * step as f64;
        let y = f.call((&x, scale))?;
        assert_eq!(y.dtype(), DType::F32);
        assert_eq!(bits(&y), bits(&x.mul(scale)?.tanh()?));
    }
    assert_eq!(cache::stats().compilations, before);
    Ok(())
}
