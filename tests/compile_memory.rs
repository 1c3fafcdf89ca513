//! The memory of compiled functions: it does not grow with the shapes seen, and a first call takes no more than others.
//!
//! A process of its own, because what others take would be counted too; so its tests take turns.

use opfuse::codegen::cache;
use opfuse::compile::{CompileOptions, NewTypes, compile_with};
use opfuse::device::allocator;
use opfuse::{DType, Result, Tensor, compile};
use std::sync::{Mutex, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// Bytes of this process that are in memory, if the system says so.
fn resident() -> Option<usize> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(pages.split_whitespace().nth(1)?.parse::<usize>().ok()? * 4096)
}

/// The sizes of shape `index`: one dim per digit.
fn sizes(index: usize) -> [usize; 5] {
    [1, 10, 100, 1000, 10_000].map(|place| index / place % 10 + 1)
}

#[test]
fn a_first_call_has_no_memory_for_what_is_between() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
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
    // The result, and what kernels take for themselves.
    assert!((4 << 20..6 << 20).contains(&taken), "{taken} bytes");
    Ok(())
}

#[test]
fn memory_is_flat_over_a_hundred_thousand_shapes() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // Unoptimized builds see a tenth of them, from all parts.
    let step = if cfg!(debug_assertions) { 10 } else { 1 };
    let n_shapes = 100_000 / step;
    let f = compile_with(
        |x: &Tensor| x.mul(0.5)?.tanh()?.add(x),
        CompileOptions { capacity: 64, new_types: NewTypes::Capture, ..CompileOptions::default() },
    );
    let mut before = None;
    for n in 0..n_shapes {
        // Half of them go by until everything that is bounded is full.
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
