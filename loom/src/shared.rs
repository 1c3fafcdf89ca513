//! Handles that share a value.

#![allow(dead_code, reason = "models use a part of it")]

include!(concat!(env!("OUT_DIR"), "/shared.rs"));

use loom::cell::UnsafeCell;
use loom::thread;

/// A value that must not be read while it is dropped.
struct Value(UnsafeCell<u64>);

thread_local! { static SPARE: Spare<Value> = const { Spare::new() }; }

impl Pooled for Value {
    fn spare() -> &'static LocalKey<Spare<Value>> {
        &SPARE
    }
}

impl Value {
    fn shared() -> Shared<Value> {
        Shared::new(Value(UnsafeCell::new(7)))
    }

    fn check(&self) {
        // SAFETY: loom fails the model if there is a writer.
        self.0.with(|value| assert_eq!(unsafe { *value }, 7, "a value that was dropped is read"));
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: loom fails the model if there is another user.
        self.0.with_mut(|value| unsafe {
            assert_eq!(*value, 7, "a value is dropped once");
            *value = 0;
        });
    }
}

#[test]
fn two_handles_drop_the_value_once_after_all_reads() {
    loom::model(|| {
        let one = Value::shared();
        let other = one.clone();
        let thread = thread::spawn(move || other.check());
        one.check();
        drop(one);
        thread.join().expect("it does not panic");
    });
}

#[test]
fn handles_may_be_cloned_while_others_are_dropped() {
    loom::model(|| {
        let one = Value::shared();
        let other = one.clone();
        let thread = thread::spawn(move || {
            let third = other.clone();
            drop(other);
            third.check();
        });
        drop(one);
        thread.join().expect("it does not panic");
    });
}

#[test]
fn a_weak_handle_gives_a_living_value_or_none() {
    loom::model(|| {
        let one = Value::shared();
        let weak = one.downgrade();
        let thread = thread::spawn(move || {
            if let Some(value) = weak.upgrade() {
                value.check();
            }
        });
        one.check();
        drop(one);
        thread.join().expect("it does not panic");
    });
}

#[test]
fn weak_handles_on_several_threads_free_once() {
    loom::model(|| {
        let one = Value::shared();
        let weak = [one.downgrade(), one.downgrade()];
        let threads = weak.map(|weak| thread::spawn(move || weak.upgrade().iter().for_each(|value| value.check())));
        drop(one);
        assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
    });
}

#[test]
fn a_value_is_changed_by_its_only_handle_alone() {
    loom::model(|| {
        let mut one = Value::shared();
        let other = one.clone();
        let thread = thread::spawn(move || other.check());
        if let Some(value) = one.get_mut() {
            // SAFETY: loom fails the model if there is another user.
            value.0.with_mut(|value| unsafe { *value = 7 });
        }
        thread.join().expect("it does not panic");
    });
}
