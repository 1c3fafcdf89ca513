//! The life cycle of registrations (lines 057 to 070).

use crate::{assert_error, assert_slots, call, fallback, fragment, operator, plain, returning};
use opfuse::Tensor;
use opfuse::dispatch::{DispatchKey as K, Dispatcher, Kernel, Library, OperatorName};
use opfuse::internals::dispatch::dispatcher::OperatorEvent;
use std::sync::{Arc, Mutex};

#[test]
fn n057_n058_lookup_errors() {
    let (dispatcher, _fallbacks) = plain();
    assert_error(dispatcher.find_schema("test::op", "out"), &["Could not find schema for test::op.out"]);
    let missing = dispatcher.find_schema("test::op", "out").expect_err("nothing there").to_string();
    assert!(!missing.contains("implementation"), "{missing}");
    let mut library = fragment(&dispatcher);
    library.impl_for("op", K::CPU, |_x: &Tensor| Ok(7_i64)).expect("a kernel");
    let hint = "Could not find schema for test::op. but we found an implementation; did you forget to def()";
    assert_error(dispatcher.find_schema("test::op", ""), &[hint]);
    library.def("op(Tensor x) -> int").expect("it matches");
    assert_eq!(call(&dispatcher.lookup("test::op").expect("defined")), Ok(7));
}

#[test]
fn n060_newest_kernel_is_active_and_older_ones_come_back() {
    let (dispatcher, _fallbacks) = plain();
    let (_library, op) = operator(&dispatcher, &[K::CPU]);
    let mut newer = fragment(&dispatcher);
    newer.impl_for("op", K::CPU, returning(8).named("newer")).expect("a kernel");
    assert_eq!(call(&op), Ok(8));
    let dump = op.dump_registrations();
    assert!(dump.contains("CPU: newer [ boxed ]\nCPU (inactive): CPU [ boxed ]"), "{dump}");
    drop(newer);
    assert_eq!(call(&op), Ok(0));
    assert!(!op.dump_registrations().contains("inactive"));
}

#[test]
fn n061_kernel_without_key_is_a_decomposition() {
    let dispatcher = Dispatcher::new();
    let (mut library, op) = operator(&dispatcher, &[]);
    library.impl_("op", returning(1).named("first")).expect("a kernel");
    assert_slots(&op, &[(K::CPU, "first"), (K::Undefined, "first")]);
    assert!(op.has_kernel_for(K::CompositeImplicitAutograd));
    library.impl_("op", returning(2).named("second")).expect("a kernel");
    assert_slots(&op, &[(K::CPU, "second"), (K::AutogradCUDA, "second")]);
}

#[test]
fn n063_second_fallback_is_refused() {
    let dispatcher = Dispatcher::new();
    let _first = fallback(&dispatcher, K::Tracer, returning(0));
    let mut second = Library::impl_block_in(&dispatcher, "_", K::Tracer).expect("a block");
    let text = "Tried to register multiple backend fallbacks for the same dispatch key Tracer";
    assert_error(second.fallback(returning(1)).map(|_| ()), &[text, "main.rs", "registration.rs"]);
    dispatcher.check_invariants().expect("unchanged");
}

#[test]
fn n064_failed_registration_changes_nothing() {
    let (dispatcher, _fallbacks) = plain();
    let (mut library, op) = operator(&dispatcher, &[K::CPU]);
    let before = op.dump_registrations() + &op.dump_table();
    assert!(library.impl_for("op", K::CUDA, |x: i64| Ok(x)).is_err());
    assert!(library.impl_for("op", K::Dense, returning(0)).is_err());
    assert!(library.impl_for("op", K::Undefined, returning(0)).is_err());
    assert!(library.def("op(Tensor x) -> int").is_err());
    assert!(library.def_kernel("fresh(Tensor x) -> int", |x: f64| Ok(x)).is_err());
    assert_eq!(op.dump_registrations() + &op.dump_table(), before);
    assert_eq!(dispatcher.operator_names(), [OperatorName::new("test::op", "")]);
    dispatcher.check_invariants().expect("unchanged");
    drop(library);
    assert_eq!(dispatcher.operator_names(), []);
}

#[test]
fn n066_namespace_must_match_the_block() {
    let dispatcher = Dispatcher::new();
    let mut library = Library::def_block_in(&dispatcher, "a").expect("a block");
    let parts = ["xplicitly provided namespace (b)", "does not match namespace of enclosing block (a)"];
    assert_error(library.def("b::foo(Tensor x) -> Tensor").map(|_| ()), &parts);
    assert_error(library.impl_("b::foo", returning(0)).map(|_| ()), &parts);
    library.def("a::foo(Tensor x) -> Tensor").expect("the same namespace");
    assert_error(Library::def_block_in(&dispatcher, "a"), &["only a single definition block", "a"]);
}

#[test]
fn n067_blocks_refuse_what_belongs_elsewhere() {
    let dispatcher = Dispatcher::new();
    let mut cpu = Library::impl_block_in(&dispatcher, "a", K::CPU).expect("a block");
    let inconsistent = cpu.impl_for("foo", K::CUDA, returning(0)).map(|_| ());
    assert_error(inconsistent, &["dispatch key (CUDA) is inconsistent with", "block (CPU)"]);
    assert_error(
        cpu.def("foo(Tensor x) -> Tensor").map(|_| ()),
        &["cannot define operators inside of an implementation"],
    );
    assert_error(cpu.fallback(returning(0)).map(|_| ()), &["namespace _"]);
    let mut definitions = Library::def_block_in(&dispatcher, "a").expect("a block");
    assert_error(definitions.fallback(returning(0)).map(|_| ()), &["fallback inside a definition block"]);
    cpu.impl_for("foo", K::CPU, returning(0)).expect("the block's own key");
}

#[test]
fn n069_listeners() {
    let dispatcher = Dispatcher::new();
    let (library, _op) = operator(&dispatcher, &[]);
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let listener = dispatcher.add_listener(move |event, op| {
        assert!(op.schema().is_some(), "told of while the operator is valid");
        seen.lock().expect("no panic inside").push((event, op.name().to_string()));
    });
    let mut other = fragment(&dispatcher);
    other.def("later(Tensor x) -> Tensor").expect("a definition");
    drop(library);
    drop(listener);
    drop(other);
    let events = events.lock().expect("no panic inside");
    let expected = [
        (OperatorEvent::Defined, "test::op"),
        (OperatorEvent::Defined, "test::later"),
        (OperatorEvent::Removed, "test::op"),
    ];
    assert!(events.iter().map(|(event, name)| (*event, name.as_str())).eq(expected), "{events:?}");
}

#[test]
fn n070_invariants_hold_after_any_sequence() {
    let dispatcher = Dispatcher::new();
    let keys = [K::CPU, K::AutogradCPU, K::Autograd, K::CompositeExplicitAutograd, K::SparseCPU, K::Tracer];
    let mut held: Vec<Library> = Vec::new();
    let mut random = 12345_usize;
    for step in 0..500 {
        random = random.wrapping_mul(1_103_515_245).wrapping_add(12345) & 0x7fff_ffff;
        let choice = random >> 8;
        let key = keys[choice % keys.len()];
        let kernel = if choice & 64 == 0 { returning(0) } else { Kernel::fallthrough() };
        match choice / 128 % 4 {
            0 if !held.is_empty() => drop(held.swap_remove(choice % held.len())),
            1 => {
                let mut library = Library::impl_block_in(&dispatcher, "_", key).expect("a block");
                if library.fallback(kernel).is_ok() {
                    held.push(library);
                }
            }
            _ => {
                let mut library = fragment(&dispatcher);
                library.impl_for(["a", "b"][choice & 1], key, kernel).expect("a kernel");
                held.push(library);
            }
        }
        dispatcher.check_invariants().unwrap_or_else(|error| panic!("step {step}: {error}"));
    }
}
