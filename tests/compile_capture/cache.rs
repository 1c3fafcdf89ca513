//! The cache of a compiled function: its limit, its counters, its memory.

use super::check::{look, ramp};
use opfuse::compile::{CompileOptions, compile, compile_with};
use opfuse::{Result, Tensor};

fn body(x: &Tensor) -> Result<Tensor> {
    x.mul(0.5)?.tanh()?.add(x)
}

#[test]
fn the_entry_used_longest_ago_goes_first() -> Result<()> {
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

#[test]
fn no_capacity_is_an_eager_run_with_a_reason() -> Result<()> {
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
    let f = compile(|x: &Tensor, y: &Tensor| x.mul(0.3125)?.sin()?.add(y)?.abs()?.sqrt());
    let mut entries = Vec::new();
    for rows in 2..1002 {
        let x = ramp(&[rows, 3], rows)?;
        f.call((&x, &x))?;
        let report = f.explain();
        assert_eq!(report.kernels_after, 1);
        entries.push(report.groups[0].compile_time);
    }
    // The time a kernel took to compile is noted once, with the kernel: all reports are of the same one.
    entries.dedup();
    assert_eq!(entries.len(), 1, "{} kernels for 1000 shapes", entries.len());
    Ok(())
}
