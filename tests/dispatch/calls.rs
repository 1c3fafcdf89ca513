//! Calls: missing kernels, fallthrough, thread-local sets, redispatch, boxing, threads (lines 084 to 111).

use crate::{assert_error, call, fallback, fragment, operator, plain, returning, set, tensor};
use opfuse::dispatch;
use opfuse::dispatch::{DispatchKey as K, Dispatcher, Kernel, KeySet, Operator, Stack, Value};
use opfuse::internals::dispatch::key::{LocalKeySets, RUNTIME_KEYS, local_key_sets};
use opfuse::{Error, Result, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn n084_no_kernel_for_no_tensors() {
    let (dispatcher, _fallbacks) = plain();
    let mut library = fragment(&dispatcher);
    library.def("foo(Tensor[] xs) -> int").expect("a definition");
    library.impl_for("foo", K::CPU, |_: &[Tensor]| Ok(1_i64)).expect("a kernel");
    let op = dispatcher.lookup("test::foo").expect("defined");
    let parts = ["no tensor arguments", "no fallback function is registered for schema test::foo", "[CPU, "];
    assert_error(op.call::<(&[Tensor],), i64>((&[],)), &parts);
    assert!(matches!(op.call::<(&[Tensor],), i64>((&[],)), Err(Error::NotImplemented { .. })));
}

#[test]
fn n084_no_kernel_for_a_backend() {
    let (dispatcher, _fallbacks) = plain();
    let (_library, op) = operator(&dispatcher, &[K::CUDA]);
    assert_error(call(&op), &["could not run 'test::op' with arguments from the 'CPU' backend", "[CUDA"]);
}

#[test]
fn n085_fallthrough_on_the_only_backend() {
    let (dispatcher, _fallbacks) = plain();
    let (mut library, op) = operator(&dispatcher, &[]);
    library.impl_for("op", K::CPU, Kernel::fallthrough()).expect("a kernel");
    assert_error(call(&op), &["no tensor arguments", "test::op"]);
    assert_eq!(op.call_key_set(KeySet::of(K::CPU)).highest(), K::Undefined);
}

#[test]
fn n087_kernels_receive_the_keys_without_fallthrough() {
    let (dispatcher, _fallbacks) = plain();
    let (mut library, op) = operator(&dispatcher, &[K::CPU]);
    let keys_as_bits = |keys: KeySet, _: &Tensor| Ok(keys.bits() as i64);
    library.impl_for("op", K::AutogradCPU, keys_as_bits).expect("a kernel");
    let arguments = set(&[K::CPU, K::ADInplaceOrView, K::AutogradCPU, K::AutocastCPU]);
    let keys = op.call_key_set(arguments);
    assert_eq!(keys, set(&[K::CPU, K::AutogradCPU]));
    assert_eq!(op.redispatch::<(&Tensor,), i64>(keys, (&tensor(),)), Ok(keys.bits() as i64));
}

#[test]
fn n088_fallthrough_is_per_backend() {
    let (dispatcher, _fallbacks) = plain();
    let (mut library, op) = operator(&dispatcher, &[K::CPU, K::Meta, K::AutogradMeta]);
    library.impl_for("op", K::AutogradCPU, Kernel::fallthrough()).expect("a kernel");
    assert_eq!(op.call_key_set(set(&[K::CPU, K::AutogradCPU])).highest(), K::CPU);
    assert_eq!(op.call_key_set(set(&[K::Meta, K::AutogradMeta])).highest(), K::AutogradMeta);
}

#[test]
fn n090_backend_is_chosen_after_the_local_sets() {
    let (dispatcher, _fallbacks) = plain();
    let (_library, op) = operator(&dispatcher, &[K::CPU, K::Meta, K::AutogradMeta]);
    let cpu = set(&[K::CPU, K::AutogradCPU]);
    assert_eq!(op.call_key_set(cpu).highest(), K::CPU);
    let _guard = dispatch::include(K::Meta);
    assert_eq!(op.call_key_set(cpu).highest(), K::AutogradMeta);
}

#[test]
fn n091_direct_kernel_beats_a_fallthrough_fallback() {
    let (dispatcher, _fallbacks) = plain();
    let (_library, op) = operator(&dispatcher, &[K::CPU, K::AutogradCPU]);
    let mut library = fragment(&dispatcher);
    library.def("other(Tensor x) -> int").expect("a definition");
    library.impl_for("other", K::CPU, returning(9)).expect("a kernel");
    let other = dispatcher.lookup("test::other").expect("defined");
    let keys = set(&[K::CPU, K::AutogradCPU]);
    assert_eq!(op.call_key_set(keys).highest(), K::AutogradCPU);
    assert_eq!(other.call_key_set(keys).highest(), K::CPU);
}

#[test]
fn n093_sets_of_a_fresh_thread() {
    let sets = std::thread::spawn(local_key_sets).join().expect("no panic");
    assert_eq!(sets.included, set(&[K::BackendSelect, K::ADInplaceOrView]));
    assert_eq!(sets.excluded, opfuse::internals::dispatch::key::AUTOCAST_KEYS);
    let autocast = RUNTIME_KEYS.iter().filter(|key| key.name().starts_with("Autocast"));
    assert!(autocast.clone().all(|&key| sets.excluded.has(key)) && autocast.count() == sets.excluded.iter().count());
}

#[test]
fn n094_guards_undo_what_they_added() {
    let before = local_key_sets();
    let outer = dispatch::exclude(K::Tracer);
    let inner = dispatch::exclude(set(&[K::Tracer, K::Python]));
    drop(inner);
    assert!(local_key_sets().excluded.has(K::Tracer) && !local_key_sets().excluded.has(K::Python));
    drop(outer);
    assert!(!local_key_sets().excluded.has(K::Tracer));
    let guard = dispatch::include(set(&[K::AutogradCUDA, K::ADInplaceOrView]));
    drop(guard);
    assert_eq!(local_key_sets(), before);
}

#[test]
fn n096_keys_of_a_call() {
    let dispatcher = Dispatcher::new();
    let (_library, op) = operator(&dispatcher, &[]);
    let _skipped = fallback(&dispatcher, K::Python, Kernel::fallthrough());
    let _guard = opfuse::internals::dispatch::key::force(LocalKeySets {
        included: set(&[K::Tracer, K::Python, K::Functionalize]),
        excluded: set(&[K::Functionalize, K::AutogradCPU]),
    });
    assert_eq!(op.call_key_set(set(&[K::CPU, K::AutogradCPU])), set(&[K::CPU, K::Tracer]));
}

#[test]
fn n097_n109_mode_fallback() {
    let (dispatcher, _fallbacks) = plain();
    let (_inner_library, inner) = operator(&dispatcher, &[K::CPU]);
    let mut library = fragment(&dispatcher);
    library.def("outer(Tensor x) -> int").expect("a definition");
    let nested = move |x: &Tensor| Ok(inner.call::<(&Tensor,), i64>((x,))? + inner.call::<(&Tensor,), i64>((x,))? + 1);
    library.impl_for("outer", K::CPU, nested).expect("a kernel");
    let outer = dispatcher.lookup("test::outer").expect("defined");
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let mode = Kernel::boxed(move |op, _, stack| {
        seen.fetch_add(1, Ordering::Relaxed);
        let _guard = dispatch::exclude(K::TestingOnlyGenericMode);
        op.call_boxed(stack)
    });
    let _mode = fallback(&dispatcher, K::TestingOnlyGenericMode, mode);
    let call = || outer.call::<(&Tensor,), i64>((&tensor(),));
    assert_eq!((call(), count.load(Ordering::Relaxed)), (Ok(1), 0));
    let guard = dispatch::include(K::TestingOnlyGenericMode);
    assert_eq!((call(), count.load(Ordering::Relaxed)), (Ok(1), 1));
    drop(guard);
    assert_eq!((call(), count.load(Ordering::Relaxed)), (Ok(1), 1));
}

#[test]
fn n099_force_guards() {
    let _outer = dispatch::include(K::Tracer);
    let before = local_key_sets();
    let forced = LocalKeySets { included: KeySet::of(K::Python), excluded: KeySet::EMPTY };
    let guard = opfuse::internals::dispatch::key::force(forced);
    assert_eq!(local_key_sets(), forced);
    drop(guard);
    assert_eq!(local_key_sets(), before);
}

#[test]
fn n100_below_autograd() {
    let dispatcher = Dispatcher::new();
    let (_library, op) = operator(&dispatcher, &[]);
    let arguments = set(&[K::CPU, K::AutogradCPU, K::ADInplaceOrView]);
    {
        let _guard = dispatch::below_autograd();
        assert_eq!(op.call_key_set(arguments).highest(), K::ADInplaceOrView);
    }
    {
        let _guard = dispatch::below_ad_inplace_or_view();
        assert_eq!(op.call_key_set(arguments).highest(), K::BackendSelect);
    }
    assert_eq!(op.call_key_set(arguments).highest(), K::AutogradCPU);
}

#[test]
fn n102_redispatch_obeys_the_given_keys_alone() {
    let (dispatcher, _fallbacks) = plain();
    let (_library, op) = operator(&dispatcher, &[K::CPU, K::CUDA, K::AutogradCPU]);
    let _guards = (dispatch::include(K::AutogradCPU), dispatch::exclude(K::CUDA));
    let x = tensor();
    assert_eq!(op.redispatch::<(&Tensor,), i64>(KeySet::of(K::CUDA), (&x,)), Ok(1));
    assert_eq!(op.redispatch::<(&Tensor,), i64>(set(&[K::CPU, K::AutogradCPU]), (&x,)), Ok(2));
}

#[test]
fn n103_calls_below_a_redispatch_start_at_the_top() {
    for below in [false, true] {
        let (dispatcher, _fallbacks) = plain();
        let (mut inner, leaf) = operator(&dispatcher, &[K::CPU]);
        let recorded = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&recorded);
        let autograd = Kernel::boxed(move |op: &Operator, keys: KeySet, stack: &mut Stack| {
            seen.fetch_add(1, Ordering::Relaxed);
            let _guard = below.then(dispatch::below_autograd);
            op.redispatch_boxed(keys - opfuse::internals::dispatch::key::AUTOGRAD_KEYS, stack)
        });
        inner.impl_for("op", K::AutogradCPU, autograd).expect("a kernel");
        let seen = Arc::clone(&recorded);
        let mut library = fragment(&dispatcher);
        library.def("outer(Tensor x) -> int").expect("a definition");
        let autograd = Kernel::boxed(move |op: &Operator, keys: KeySet, stack: &mut Stack| {
            seen.fetch_add(10, Ordering::Relaxed);
            let _guard = below.then(dispatch::below_autograd);
            op.redispatch_boxed(keys - opfuse::internals::dispatch::key::AUTOGRAD_KEYS, stack)
        });
        library.impl_for("outer", K::AutogradCPU, autograd).expect("a kernel");
        let calls_leaf = Kernel::boxed(move |_, _, stack: &mut Stack| {
            let mut arguments: Stack = [Value::Tensor(tensor())].into_iter().collect();
            let _guard = dispatch::include(K::AutogradCPU);
            leaf.call_boxed(&mut arguments)?;
            *stack = arguments;
            Ok(())
        });
        library.impl_for("outer", K::CPU, calls_leaf).expect("a kernel");
        let outer = dispatcher.lookup("test::outer").expect("defined");
        let keys = set(&[K::CPU, K::AutogradCPU]);
        assert_eq!(outer.redispatch::<(&Tensor,), i64>(keys, (&tensor(),)), Ok(0));
        assert_eq!(recorded.load(Ordering::Relaxed), if below { 10 } else { 11 });
    }
}

#[test]
fn n105_typed_kernel_called_boxed() {
    let (dispatcher, _fallbacks) = plain();
    let mut library = fragment(&dispatcher);
    library.def("op(Tensor x, int[] sizes, str? mode, bool flag) -> (int, bool)").expect("a definition");
    let kernel = |_: &Tensor, sizes: &[i64], mode: Option<&str>, flag: bool| {
        Ok((sizes.iter().sum::<i64>() + mode.map_or(0, |mode| mode.len() as i64), !flag))
    };
    library.impl_for("op", K::CPU, kernel).expect("a kernel");
    let op = dispatcher.lookup("test::op").expect("defined");
    let sizes = Value::IntList([1, 2, 3].into_iter().collect());
    let mut stack: Stack =
        [Value::Tensor(tensor()), sizes, Value::Str("ab".into()), Value::Bool(true)].into_iter().collect();
    op.call_boxed(&mut stack).expect("the types fit");
    assert!(matches!(stack.as_slice(), [Value::Int(8), Value::Bool(false)]), "{stack:?}");
    let mut wrong: Stack =
        [Value::Tensor(tensor()), Value::Int(1), Value::None, Value::Bool(true)].into_iter().collect();
    assert_error(op.call_boxed(&mut wrong), &["test::op", "'int[]' for argument 2", "found type 'int'"]);
    let mut short: Stack = [Value::Tensor(tensor())].into_iter().collect();
    assert_error(op.call_boxed(&mut short), &["expected 4 argument(s)", "found 1"]);
}

#[test]
fn n106_boxed_kernel_called_typed() {
    let (dispatcher, _fallbacks) = plain();
    let mut library = fragment(&dispatcher);
    library.def("none(Tensor x) -> ()").expect("a definition");
    library.def("one(Tensor x) -> int").expect("a definition");
    library.def("three(Tensor x) -> (int, float, Tensor)").expect("a definition");
    library
        .impl_for(
            "none",
            K::CPU,
            Kernel::boxed(|_, _, stack| {
                stack.clear();
                Ok(())
            }),
        )
        .expect("a kernel");
    library.impl_for("one", K::CPU, returning(4)).expect("a kernel");
    let three = Kernel::boxed(|_, _, stack: &mut Stack| {
        stack.insert(0, Value::Int(1));
        stack.insert(1, Value::Float(2.0));
        Ok(())
    });
    library.impl_for("three", K::CPU, three).expect("a kernel");
    let op = |name: &str| dispatcher.lookup(name).expect("defined");
    let x = tensor();
    assert_eq!(op("test::none").call::<(&Tensor,), ()>((&x,)), Ok(()));
    assert_eq!(op("test::one").call::<(&Tensor,), i64>((&x,)), Ok(4));
    let (int, float, _) = op("test::three").call::<(&Tensor,), (i64, f64, Tensor)>((&x,)).expect("three results");
    assert_eq!((int, float), (1, 2.0));
    assert_error(op("test::one").call::<(&Tensor,), bool>((&x,)), &["expected results (bool)", "returned (int)"]);
}

#[test]
fn n108_boxed_and_typed_kernels_agree() {
    let (dispatcher, _fallbacks) = plain();
    let mut library = fragment(&dispatcher);
    library.def("op(Tensor x, int n) -> int").expect("a definition");
    fn typed(_: &Tensor, n: i64) -> Result<i64> {
        Ok(n + 1)
    }
    library.impl_for("op", K::CPU, typed).expect("a kernel");
    let boxed = Kernel::boxed(|_, _, stack: &mut Stack| {
        let Some(Value::Int(n)) = stack.pop() else { return Err(Error::argument("test::op", "no number")) };
        stack.clear();
        stack.push(Value::Int(n + 1));
        Ok(())
    });
    library.impl_for("op", K::CUDA, boxed.named("boxed")).expect("a kernel");
    let op = dispatcher.lookup("test::op").expect("defined");
    for key in [K::CPU, K::CUDA] {
        let keys = KeySet::of(key);
        assert_eq!(op.redispatch::<(&Tensor, i64), i64>(keys, (&tensor(), 4)), Ok(5));
        let mut stack: Stack = [Value::Tensor(tensor()), Value::Int(4)].into_iter().collect();
        op.redispatch_boxed(keys, &mut stack).expect("a kernel");
        assert!(matches!(stack.as_slice(), [Value::Int(5)]), "{stack:?}");
    }
    let dump = op.dump_registrations();
    assert!(dump.contains("typed [ boxed unboxed ]") && dump.contains("CUDA: boxed [ boxed ]"), "{dump}");
}

#[test]
fn n111_invalid_kernel() {
    let dispatcher = Dispatcher::new();
    let (_library, op) = operator(&dispatcher, &[]);
    let called = Kernel::invalid().call::<(&Tensor,), i64>(&op, KeySet::EMPTY, (&tensor(),));
    assert_error(called, &["called although nothing was registered"]);
}

#[test]
fn calls_and_registrations_from_many_threads() {
    let (dispatcher, _fallbacks) = plain();
    let (_library, op) = operator(&dispatcher, &[K::CPU]);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    assert!(matches!(call(&op), Ok(0 | 1)));
                }
            });
        }
        scope.spawn(|| {
            for i in 0..200 {
                let mut library = fragment(&dispatcher);
                library.impl_for("op", K::CPU, returning(1)).expect("a kernel");
                // Toggles the autograd mask while calls run.
                let skip = if i % 2 == 0 { Kernel::fallthrough() } else { returning(1) };
                library.impl_for("op", K::AutogradCPU, skip).expect("a kernel");
            }
        });
    });
    dispatcher.check_invariants().expect("tables are up to date");
    assert_eq!(call(&op), Ok(0));
}
