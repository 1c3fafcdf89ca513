//! Behaviour of the dispatcher, one test per line of its conformance list (`n…` is the line's number).
//!
//! Every test has a dispatcher of its own, so tests do not see each other's registrations. What the files share is
//! here.

mod autocast;
mod autograd;
mod batched;
mod calls;
mod coverage;
mod freed;
mod guards;
mod iterator;
mod keys;
mod matmul;
mod meta;
mod modes;
mod promotion;
mod registration;
mod returns;
mod schemas;
mod table;
mod views;

use opfuse::dispatch::{DispatchKey as K, Dispatcher, Kernel, KeySet, Library, Operator, Stack, Value, expand};
use opfuse::internals::dispatch::table::Source;
use opfuse::{Result, Tensor};

pub(crate) fn set(keys: &[K]) -> KeySet {
    KeySet::from_keys(keys)
}

pub(crate) fn tensor() -> Tensor {
    Tensor::from_slice(&[1.0f32], &[1]).expect("one element")
}

/// A dispatcher whose calls reach backends: every other key of a plain tensor falls through.
pub(crate) fn plain() -> (Dispatcher, Vec<Library>) {
    let dispatcher = Dispatcher::new();
    let skipped = expand(K::Autograd).add(K::BackendSelect).add(K::ADInplaceOrView)
        | opfuse::internals::dispatch::key::AUTOCAST_KEYS;
    let libraries = skipped.iter().map(|key| fallback(&dispatcher, key, Kernel::fallthrough())).collect();
    (dispatcher, libraries)
}

pub(crate) fn fallback(dispatcher: &Dispatcher, key: K, kernel: Kernel) -> Library {
    let mut library = Library::impl_block_in(dispatcher, "_", key).expect("a block");
    library.fallback(kernel).expect("the first fallback");
    library
}

pub(crate) fn fragment(dispatcher: &Dispatcher) -> Library {
    Library::fragment_in(dispatcher, "test").expect("a block")
}

/// An operator `test::op` whose kernels are named after their keys and return the position of the key in `keys`.
pub(crate) fn operator(dispatcher: &Dispatcher, keys: &[K]) -> (Library, Operator) {
    let mut library = fragment(dispatcher);
    library.def("op(Tensor x) -> int").expect("a definition");
    for (i, &key) in keys.iter().enumerate() {
        library.impl_for("op", key, returning(i as i64).named(key.name())).expect("a kernel");
    }
    let op = dispatcher.lookup("test::op").expect("defined above");
    (library, op)
}

pub(crate) fn returning(number: i64) -> Kernel {
    Kernel::boxed(move |_, _, stack: &mut Stack| {
        stack.clear();
        stack.push(Value::Int(number));
        Ok(())
    })
}

pub(crate) fn call(op: &Operator) -> Result<i64> {
    op.call::<(&Tensor,), i64>((&tensor(),))
}

#[track_caller]
pub(crate) fn assert_slots(op: &Operator, expected: &[(K, &str)]) {
    for &(key, kernel) in expected {
        let slot = op.slot(key);
        let found = if slot.source == Source::Fallback { "fallback" } else { slot.kernel.as_str() };
        assert_eq!(found, kernel, "slot of {key} in\n{}", op.dump_table());
    }
}

#[track_caller]
pub(crate) fn assert_error<T>(result: Result<T>, parts: &[&str]) {
    let Err(error) = result else { panic!("expected an error with {parts:?}") };
    for part in parts {
        assert!(error.to_string().contains(part), "{part:?} is missing in: {error}");
    }
}
