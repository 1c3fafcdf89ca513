//! Runs that depend on the random numbers of the process: checkpoints that continue by bits, and functions that are
//! computed again. One test runs at a time, because others would draw in between.

mod recompute;
mod runs;

use opfuse::Tensor;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The right to draw, until the end of a test.
pub(crate) fn draws() -> MutexGuard<'static, ()> {
    static DRAWS: Mutex<()> = Mutex::new(());
    DRAWS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Equal bits and sizes of tensors of f32.
pub(crate) fn same(what: &str, found: &Tensor, expected: &Tensor) {
    assert_eq!(found.sizes(), expected.sizes(), "{what}");
    let bits = |x: &Tensor| {
        let values = x.detach().and_then(|x| x.to_vec::<f32>()).expect("it has values");
        values.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    assert_eq!(bits(found), bits(expected), "{what}");
}
