//! The cache of a compiled function: its limit, its counters, its memory.

use super::check::{look, ramp};
use opfuse::compile::{CompileOptions, NewTypes, compile, compile_with};
use opfuse::error::Reason;
use opfuse::internals::compile::backoff::AT_ONCE;
use opfuse::{DType, Result, Tensor};

fn body(x: &Tensor) -> Result<Tensor> {
    x.mul(0.5)?.tanh()?.add(x)
}

#[test]
fn the_least_recently_used_entry_is_evicted_first() -> Result<()> {
    let options = CompileOptions { capacity: 2, ..CompileOptions::default() };
    let f = compile_with(body, options);
    // Sizes of the calls, and counters after each: hits, captures, evictions.
    let calls = [
        (1, (0, 1, 0)),
        (2, (0, 2, 0)),
        (1, (1, 2, 0)),
        (3, (1, 3, 1)),
        (1, (2, 3, 1)),
        (2, (2, 4, 2)),
        (3, (2, 5, 3)),
    ];
    for (index, (size, expected)) in calls.into_iter().enumerate() {
        let x = ramp(&[size, 3], size)?;
        assert_eq!(look(&f.call(&x)?), look(&body(&x)?));
        let counts = f.counts();
        assert_eq!((counts.hits, counts.captures, counts.evictions), expected, "call {index}");
        assert_eq!((counts.calls, counts.entries), (index as u64 + 1, (index + 1).min(2)), "call {index}");
    }
    Ok(())
}

/// A hundred ops on a tiny tensor: a capture takes far longer than a run.
fn long_body(x: &Tensor) -> Result<Tensor> {
    (0..50).try_fold(x.clone(), |x, step| x.mul(0.9)?.add(f64::from(step)))
}

#[test]
fn new_types_in_every_call_back_off() -> Result<()> {
    let f = compile(long_body);
    let call = |n: usize| -> Result<()> {
        let x = ramp(&[n], n)?;
        assert_eq!(look(&f.call(&x)?), look(&long_body(&x)?));
        Ok(())
    };
    let n_types = 2 * AT_ONCE;
    for n in 1..=n_types {
        call(n as usize)?;
    }
    let counts = f.counts();
    assert!((AT_ONCE..AT_ONCE + 8).contains(&counts.captures), "{counts:?}");
    assert_eq!(counts.captures + counts.eager, n_types, "{counts:?}");
    let report = f.explain();
    assert!(matches!(report.eager, Some(Reason::NewTypes { .. })), "{report}");
    // Types that come again and again are captured in the end.
    let waited = (0..100_000).find(|_| call(n_types as usize).is_err() || f.counts().captures > counts.captures);
    assert!(waited.is_some(), "{:?}", f.counts());
    assert!(f.explain().eager.is_none(), "{}", f.explain());
    Ok(())
}

#[test]
fn long_runs_and_options_turn_the_back_off_off() -> Result<()> {
    let options = CompileOptions { new_types: NewTypes::Capture, ..CompileOptions::default() };
    let (at_once, long) = (compile_with(long_body, options), compile(body));
    for n in 1..AT_ONCE as usize + 8 {
        at_once.call(&ramp(&[n], n)?)?;
        // So long that a capture is short beside it on a busy machine, too.
        long.call(&Tensor::ones(&[(1 << 24) + n], DType::F32)?)?;
    }
    assert_eq!((at_once.counts().captures, at_once.counts().eager), (AT_ONCE + 7, 0));
    assert_eq!((long.counts().captures, long.counts().eager), (AT_ONCE + 7, 0));
    Ok(())
}

#[test]
fn a_cache_of_size_zero_runs_eagerly_with_a_reason() -> Result<()> {
    let f = compile_with(body, CompileOptions { capacity: 0, ..CompileOptions::default() });
    for _ in 0..2 {
        let x = ramp(&[3], 0)?;
        assert_eq!(look(&f.call(&x)?), look(&body(&x)?));
    }
    let counts = f.counts();
    assert_eq!((counts.calls, counts.eager, counts.entries, counts.captures), (2, 2, 0, 0));
    assert!(f.explain().to_string().contains("capacity"), "{}", f.explain());
    Ok(())
}

#[test]
fn limits_of_zero_still_run() -> Result<()> {
    let mut options = CompileOptions::default();
    options.fusion.max_fuse_depth = 0;
    options.fusion.max_function_args = 0;
    let f = compile_with(body, options);
    for size in [3, 3, 4, 0] {
        let x = ramp(&[size], size)?;
        assert_eq!(look(&f.call(&x)?), look(&body(&x)?));
    }
    Ok(())
}

/// One kernel serves every shape: it is compiled once.
#[test]
fn a_thousand_shapes_compile_one_kernel() -> Result<()> {
    let options = CompileOptions { new_types: NewTypes::Capture, ..CompileOptions::default() };
    let f = compile_with(|x: &Tensor, y: &Tensor| x.mul(0.3125)?.sin()?.add(y)?.abs()?.sqrt(), options);
    let mut entries = Vec::new();
    for rows in 2..1002 {
        let x = ramp(&[rows, 3], rows)?;
        f.call((&x, &x))?;
        let report = f.explain();
        assert_eq!(report.kernels_after, 1);
        entries.push(report.groups[0].compile_time);
    }
    // The compile time is kept with the kernel, so all reports show the same one.
    entries.dedup();
    assert_eq!(entries.len(), 1, "{} kernels for 1000 shapes", entries.len());
    Ok(())
}
