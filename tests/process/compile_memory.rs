//! The memory of compiled functions: it does not grow with the number of shapes, and a first call takes no more than
//! later ones.
//!
//! The account covers the process, so each test runs in one of its own.

use crate::alone::has_run_alone;
use opfuse::compile::{CompileOptions, NewTypes, compile_with};
use opfuse::device::allocator;
use opfuse::internals::codegen::cache;
use opfuse::{DType, Result, Tensor, compile};

/// The resident bytes of this process, if the system reports them.
fn resident() -> Option<usize> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(pages.split_whitespace().nth(1)?.parse::<usize>().ok()? * 4096)
}

/// The sizes of shape `index`: one dim per digit.
fn sizes(index: usize) -> [usize; 5] {
    [1, 10, 100, 1000, 10_000].map(|place| index / place % 10 + 1)
}

#[test]
fn a_first_call_allocates_no_intermediate_values() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let f = compile(|x: &Tensor| {
        let values = (0..20).try_fold(vec![x.exp()?], |mut values, step| {
            values.push(values[step].mul(0.5)?.tanh()?);
            Ok::<_, opfuse::Error>(values)
        })?;
        values.iter().skip(1).try_fold(values[0].clone(), |sum, value| sum.add(value))
    });
    let x = Tensor::ones(&[1 << 20], DType::F32)?;
    let before = allocator::stats().live_bytes;
    allocator::reset_peak();
    f.call(&x)?;
    let taken = allocator::stats().peak_bytes - before;
    // The result, and scratch memory of kernels.
    assert!((4 << 20..6 << 20).contains(&taken), "{taken} bytes");
    Ok(())
}

/// A write of one row of a large tensor takes no memory for the other rows, eagerly and compiled.
#[test]
fn a_write_of_a_row_takes_memory_for_a_row() -> Result<()> {
    type Write = fn(&Tensor, &Tensor, &Tensor) -> Result<()>;
    let writes: [(&str, Write); 9] = [
        ("scatter_", |x, at, row| x.scatter_(0, &at.unsqueeze(1)?.expand([1, 1024])?, row)),
        ("scatter_value_", |x, at, _| x.scatter_value_(0, &at.unsqueeze(1)?.expand([1, 1024])?, 2.0)),
        ("scatter_reduce_", |x, at, row| x.scatter_reduce_(0, &at.unsqueeze(1)?.expand([1, 1024])?, row, "mean", true)),
        ("index_copy_", |x, at, row| x.index_copy_(0, at, row)),
        ("index_add_", |x, at, row| x.index_add_(0, at, row)),
        ("index_fill_", |x, at, _| x.index_fill_(0, at, 1.0)),
        ("index_put_", |x, at, row| x.index_put_(&[Some(at.clone())], row, true)),
        ("put_", |x, at, row| x.put_(at, &row.i((0, 0..1))?, false)),
        ("copy_", |x, _, row| x.i(7..8)?.copy_(&row.mul(2.0)?)),
    ];
    if has_run_alone() {
        return Ok(());
    }
    let (x, row) = (Tensor::zeros(&[1024, 1024], DType::F32)?, Tensor::ones(&[1, 1024], DType::F32)?);
    let at = Tensor::from_slice(&[5i64], &[1])?;
    for (name, write) in writes {
        let f = compile(write);
        for call in [&write as &dyn Fn(&Tensor, &Tensor, &Tensor) -> Result<()>, &|x, at, row| f.call((x, at, row))] {
            let before = allocator::stats().live_bytes;
            allocator::reset_peak();
            call(&x, &at, &row)?;
            let taken = allocator::stats().peak_bytes.saturating_sub(before);
            assert!(taken < 1 << 20, "{name}: {taken} bytes");
        }
    }
    Ok(())
}

#[test]
fn memory_is_flat_over_a_hundred_thousand_shapes() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    // Unoptimized builds run a tenth of them, spread over all.
    let step = if cfg!(debug_assertions) { 10 } else { 1 };
    let n_shapes = 100_000 / step;
    let f = compile_with(
        |x: &Tensor| x.mul(0.5)?.tanh()?.add(x),
        CompileOptions { capacity: 64, new_types: NewTypes::Capture, ..CompileOptions::default() },
    );
    let mut before = None;
    for n in 0..n_shapes {
        // The caches are full after half of them.
        if n == n_shapes / 2 {
            before = resident();
        }
        f.call(&Tensor::ones(&sizes(n * step % 100_000 + n * step / 100_000), DType::F32)?)?;
    }
    let counts = f.counts();
    assert_eq!((counts.entries, counts.captures), (64, n_shapes as u64));
    assert_eq!(counts.evictions, n_shapes as u64 - 64);
    assert!(cache::stats().compilations < 64, "{:?}", cache::stats());
    if let (Some(before), Some(after)) = (before, resident()) {
        let grown = after.saturating_sub(before);
        assert!(grown < 8 << 20, "{grown} bytes more of {before} after {n_shapes} shapes");
    }
    Ok(())
}
