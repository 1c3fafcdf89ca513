//! What a kernel captures is freed when the kernel is unregistered, and not while a call runs it.

use crate::{call, fallback, fragment, operator, plain, returning, tensor};
use opfuse::dispatch::{DispatchKey as K, Kernel, Library, Operator};
use opfuse::{Result, Tensor};
use std::sync::{Arc, Mutex};

/// Counts its clones.
type Captured = Arc<Vec<u8>>;

fn captured() -> Captured {
    Arc::new(vec![7; 16])
}

fn boxed(captured: &Captured) -> Kernel {
    let captured = Arc::clone(captured);
    Kernel::boxed(move |op, keys, stack| returning(captured.len() as i64).call_boxed(op, keys, stack))
}

#[test]
fn captures_of_scoped_kernels_are_freed() {
    let (dispatcher, _fallbacks) = plain();
    let (_library, op) = operator(&dispatcher, &[K::CPU]);
    let owned = captured();
    for round in 0..200 {
        let mut newer = fragment(&dispatcher);
        let typed = Arc::clone(&owned);
        match round % 2 {
            0 => newer.impl_for("op", K::CPU, boxed(&owned)),
            _ => newer.impl_for("op", K::CPU, move |_: &Tensor| Ok(typed.len() as i64)),
        }
        .expect("a kernel");
        assert_eq!(call(&op), Ok(16));
        drop(newer);
        assert_eq!(call(&op), Ok(0));
        assert_eq!(Arc::strong_count(&owned), 1 + usize::from(round % 2 == 0), "round {round}");
    }
    dispatcher.check_invariants().expect("the tables are complete");
}

#[test]
fn captures_of_fallbacks_are_freed() {
    let (dispatcher, _fallbacks) = plain();
    let (_library, op) = operator(&dispatcher, &[]);
    let owned = captured();
    for _ in 0..100 {
        let library = fallback(&dispatcher, K::CPU, boxed(&owned));
        assert_eq!(call(&op), Ok(16));
        drop(library);
        assert_eq!(Arc::strong_count(&owned), 1);
        assert!(call(&op).is_err());
    }
}

#[test]
fn captures_of_removed_operators_and_shadowed_kernels_are_freed() {
    let (dispatcher, _fallbacks) = plain();
    let owned = captured();
    let mut library = fragment(&dispatcher);
    library.def("gone(Tensor x) -> int").expect("a definition");
    library.impl_for("gone", K::CPU, boxed(&owned)).expect("a kernel");
    let mut newer = fragment(&dispatcher);
    newer.impl_for("gone", K::CPU, returning(3)).expect("a kernel");
    let gone = dispatcher.lookup("test::gone").expect("defined");
    drop(library);
    assert_eq!(Arc::strong_count(&owned), 1, "it was shadowed");
    assert_eq!(call(&gone), Ok(3));
}

#[test]
fn a_kernel_may_unregister_itself() {
    let (dispatcher, _fallbacks) = plain();
    let (_library, op) = operator(&dispatcher, &[K::CPU]);
    let owned = captured();
    let inside = Arc::clone(&owned);
    let registration: Arc<Mutex<Option<Library>>> = Arc::default();
    let own = Arc::clone(&registration);
    let mut newer = fragment(&dispatcher);
    let kernel = move |x: &Tensor| -> Result<i64> {
        drop(own.lock().expect("no panic inside").take());
        // It runs on, with what it captured.
        Ok((inside.len() + x.numel()) as i64)
    };
    newer.impl_for("op", K::CPU, kernel).expect("a kernel");
    *registration.lock().expect("no panic inside") = Some(newer);
    assert_eq!(call(&op), Ok(17));
    assert_eq!(Arc::strong_count(&owned), 1, "the end of the call freed it");
    assert_eq!(call(&op), Ok(0));
}

#[test]
fn kernels_come_and_go_under_calls_of_other_threads() {
    let (dispatcher, _fallbacks) = plain();
    let (_library, op) = operator(&dispatcher, &[K::CPU]);
    let owned = captured();
    let calls = |op: &Operator| {
        let x = tensor();
        for _ in 0..20_000 {
            let typed = op.call::<(&Tensor,), i64>((&x,)).expect("there always is a kernel");
            assert!(typed == 0 || typed == 16, "{typed}");
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| calls(&op))).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            let mut newer = fragment(&dispatcher);
            newer.impl_for("op", K::CPU, boxed(&owned)).expect("a kernel");
            drop(newer);
        }
    });
    assert_eq!(Arc::strong_count(&owned), 1);
}
