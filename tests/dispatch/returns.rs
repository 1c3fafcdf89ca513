//! What in-place calls return, redispatch to fallthrough keys, kernels that take another's place, and kernels that pass
//! a call on (lines 060, 102, 106).

use crate::{assert_error, call, fragment, operator, plain, returning, set, tensor};
use opfuse::Tensor;
use opfuse::dispatch::{DispatchKey as K, Kernel, KeySet, Operator, Stack, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A kernel that leaves new tensors.
fn leaves_others(n: usize) -> Kernel {
    Kernel::boxed(move |_, _, stack: &mut Stack| {
        stack.clear();
        stack.extend((0..n).map(|_| Value::Tensor(tensor())));
        Ok(())
    })
}

#[test]
fn n106_a_call_that_writes_returns_its_argument() {
    let (dispatcher, _fallbacks) = plain();
    let mut library = fragment(&dispatcher);
    let schemas = [
        "foo_(Tensor(a!) self, Tensor other) -> Tensor(a!)",
        "foo.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
        "pair(Tensor(a!) self, Tensor(b!) other) -> (Tensor(b!), Tensor(a!))",
        "new(Tensor self, Tensor other) -> Tensor",
    ];
    for schema in schemas {
        library.def(schema).expect("a schema");
    }
    for (name, n) in [("foo_", 1), ("foo.out", 1), ("pair", 2), ("new", 1)] {
        library.impl_for(name, K::CPU, leaves_others(n)).expect("a kernel");
    }
    let op = |name: &str| dispatcher.lookup(name).expect("defined");
    let (x, y) = (tensor(), tensor());
    let typed: Tensor = op("test::foo_").call((&x, &y)).expect("it runs");
    assert!(typed.is_same(&x));
    let out: Tensor = op("test::foo.out").call((&x, &y)).expect("it runs");
    assert!(out.is_same(&y));
    let (first, second): (Tensor, Tensor) = op("test::pair").call((&x, &y)).expect("it runs");
    assert!(first.is_same(&y) && second.is_same(&x));
    let new: Tensor = op("test::new").call((&x, &y)).expect("it runs");
    assert!(!new.is_same(&x) && !new.is_same(&y));
    let results = op("test::foo_").invoke(vec![Value::Tensor(x.clone()), Value::Tensor(y)], vec![]).expect("it runs");
    assert!(matches!(results.as_slice(), [Value::Tensor(found)] if found.is_same(&x)));
}

#[test]
fn n102_redispatch_to_a_fallthrough_key_is_an_error_that_says_so() {
    let (dispatcher, _fallbacks) = plain();
    let (mut library, op) = operator(&dispatcher, &[K::CPU]);
    library.impl_for("op", K::AutogradCPU, Kernel::fallthrough()).expect("a kernel");
    let keys = set(&[K::CPU, K::AutogradCPU]);
    assert_eq!(call(&op), Ok(0));
    let parts = ["test::op", "fallthrough kernel of AutogradCPU", "do not redispatch to it"];
    assert_error(op.redispatch::<(&Tensor,), i64>(keys, (&tensor(),)), &parts);
    let mut stack: Stack = [Value::Tensor(tensor())].into_iter().collect();
    assert_error(op.redispatch_boxed(keys, &mut stack), &parts);
    assert_eq!(op.redispatch::<(&Tensor,), i64>(KeySet::of(K::CPU), (&tensor(),)), Ok(0));
}

#[test]
fn n060_the_dump_says_where_a_shadowed_kernel_was_registered() {
    let (dispatcher, _fallbacks) = plain();
    let (_library, op) = operator(&dispatcher, &[K::CPU]);
    let mut newer = fragment(&dispatcher);
    newer.impl_for("op", K::CPU, returning(8).named("newer")).expect("a kernel");
    let dump = op.dump_registrations();
    assert!(dump.contains("CPU (inactive): CPU [ boxed ], registered at tests/dispatch/main.rs:"), "{dump}");
}

/// Passes the call on to the backend, and doubles the result.
fn doubled(op: &Operator, keys: KeySet, x: &Tensor) -> opfuse::Result<i64> {
    Ok(2 * op.redispatch::<(&Tensor,), i64>(keys - KeySet::of(K::AutogradCPU), (x,))?)
}

#[test]
fn n102_a_typed_kernel_passes_a_call_on_by_the_operator_that_it_is_given() {
    let (dispatcher, _fallbacks) = plain();
    let (mut library, op) = operator(&dispatcher, &[]);
    library.impl_for("op", K::CPU, |_: &Tensor| Ok(21)).expect("a kernel");
    library.impl_for("op", K::AutogradCPU, doubled).expect("a kernel");
    assert_eq!(call(&op), Ok(42));
    let mut stack: Stack = [Value::Tensor(tensor())].into_iter().collect();
    op.call_boxed(&mut stack).expect("a kernel");
    assert!(matches!(stack.as_slice(), [Value::Int(42)]), "{stack:?}");
    // A closure that captures may do the same.
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let counting = move |op: &Operator, keys: KeySet, x: &Tensor| {
        seen.fetch_add(1, Ordering::Relaxed);
        op.redispatch::<(&Tensor,), i64>(keys - KeySet::of(K::AutogradCPU), (x,))
    };
    library.impl_for("op", K::AutogradCPU, counting).expect("a kernel");
    assert_eq!((call(&op), count.load(Ordering::Relaxed)), (Ok(21), 1));
    assert!(op.typed::<(&Tensor,), i64>().is_ok());
}
