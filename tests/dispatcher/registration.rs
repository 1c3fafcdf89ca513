//! Computed tables and the life cycle of registrations (lines 033 to 070).

use crate::{assert_error, assert_slots, call, fallback, fragment, operator, plain, returning, set, tensor};
use opfuse::Tensor;
use opfuse::dispatch::{
    DispatchKey as K, Dispatcher, Kernel, KeySet, Library, OperatorEvent, OperatorName, Source, Stack, Value, expand,
};
use std::sync::{Arc, Mutex};

fn with_fallbacks() -> (Dispatcher, Vec<Library>) {
    let dispatcher = Dispatcher::new();
    let skipped = expand(K::Autograd).remove(K::AutogradNestedTensor)
        | set(&[
            K::BackendSelect,
            K::ADInplaceOrView,
            K::Functionalize,
            K::Tracer,
            K::FuncTorchBatched,
            K::AutocastCPU,
        ]);
    let libraries = skipped.iter().map(|key| fallback(&dispatcher, key, returning(-1))).collect();
    (dispatcher, libraries)
}

#[test]
fn n033_definition_only() {
    let (dispatcher, _fallbacks) = with_fallbacks();
    let (_library, op) = operator(&dispatcher, &[]);
    assert_slots(&op, &[(K::Undefined, ""), (K::CPU, ""), (K::SparseCUDA, ""), (K::FPGA, "")]);
    for key in [K::AutogradCPU, K::ADInplaceOrView, K::BackendSelect, K::Functionalize, K::Tracer, K::FuncTorchBatched]
    {
        assert_slots(&op, &[(key, "fallback")]);
    }
    assert!(op.dump_table().contains("[backend fallback]"));
}

#[test]
fn n034_n037_decomposition_and_backend_kernel() {
    let (dispatcher, _fallbacks) = with_fallbacks();
    let math = "CompositeImplicitAutograd";
    let (library, op) = operator(&dispatcher, &[K::CompositeImplicitAutograd]);
    assert_slots(
        &op,
        &[(K::Undefined, math), (K::CPU, math), (K::AutogradOther, math), (K::Functionalize, "fallback")],
    );
    assert!(op.dump_table().contains("CPU: CompositeImplicitAutograd [math kernel]"));
    drop(library);
    let (_library, op) = operator(&dispatcher, &[K::CPU, K::CompositeImplicitAutograd]);
    assert_slots(&op, &[(K::CPU, "CPU"), (K::CUDA, math), (K::AutogradCPU, "fallback"), (K::AutogradCUDA, math)]);
    assert_slots(&op, &[(K::AutogradOther, math)]);
}

#[test]
fn n036_non_functional_kernel() {
    let dispatcher = Dispatcher::new();
    let (_library, op) = operator(&dispatcher, &[K::CompositeExplicitAutogradNonFunctional]);
    let kernel = "CompositeExplicitAutogradNonFunctional";
    assert_slots(&op, &[(K::XLA, ""), (K::Lazy, ""), (K::SparseCPU, ""), (K::CPU, kernel), (K::Meta, kernel)]);
    assert_slots(&op, &[(K::QuantizedCPU, kernel), (K::FPGA, kernel), (K::Undefined, kernel)]);
}

#[test]
fn n040_ambiguous_autograd_other() {
    for backend in [K::FPGA, K::QuantizedCPU, K::SparseCPU] {
        let dispatcher = Dispatcher::new();
        let (_library, op) = operator(&dispatcher, &[K::CompositeImplicitAutograd, backend]);
        assert_eq!(op.slot(K::AutogradOther).source, Source::AmbiguousAutogradOther);
        assert_slots(&op, &[(K::AutogradCPU, "CompositeImplicitAutograd")]);
        assert!(op.dump_table().contains("[ambiguous autogradother]"));
        let mut stack: Stack = [Value::Tensor(tensor())].into_iter().collect();
        let called = op.redispatch_boxed(KeySet::of(K::AutogradOther), &mut stack);
        assert_error(called, &["test::op", "ambiguous autogradother"]);
    }
}

#[test]
fn n052_tables_do_not_depend_on_the_path() {
    let keys = [K::CPU, K::Autograd, K::CompositeImplicitAutograd, K::FPGA];
    let states: Vec<String> = (0..1 << keys.len())
        .map(|subset: usize| {
            let (dispatcher, _fallbacks) = with_fallbacks();
            let present: Vec<K> =
                keys.iter().enumerate().filter(|(i, _)| subset >> i & 1 == 1).map(|(_, &key)| key).collect();
            let (_library, op) = operator(&dispatcher, &present);
            op.dump_registrations().replace("debug: ", "") + &op.dump_table()
        })
        .collect();
    let orders = permutations(keys.len());
    for added in &orders {
        for removed in orders.iter().step_by(5) {
            let (dispatcher, _fallbacks) = with_fallbacks();
            let (_library, op) = operator(&dispatcher, &[]);
            let mut present = 0;
            let mut kernels: Vec<Option<Library>> = keys.iter().map(|_| None).collect();
            let check = |present: usize| {
                let state = op.dump_registrations().replace("debug: ", "") + &op.dump_table();
                assert_eq!(state, states[present], "added {added:?}, removed {removed:?}");
                dispatcher.check_invariants().expect("tables are up to date");
            };
            for &i in added {
                let mut library = fragment(&dispatcher);
                library.impl_for("op", keys[i], returning(0).named(keys[i].name())).expect("a kernel");
                kernels[i] = Some(library);
                present |= 1 << i;
                check(present);
            }
            for &i in removed {
                kernels[i] = None;
                present &= !(1 << i);
                check(present);
            }
        }
    }
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let shorter = permutations(n - 1);
    let insert = |order: &Vec<usize>, at: usize| {
        let mut order = order.clone();
        order.insert(at, n - 1);
        order
    };
    shorter.iter().flat_map(|order| (0..n).map(move |at| insert(order, at))).collect()
}

#[test]
fn n054_late_fallback_fills_and_empties_the_slot() {
    let dispatcher = Dispatcher::new();
    let (_library, op) = operator(&dispatcher, &[]);
    let library = fallback(&dispatcher, K::Tracer, returning(0));
    assert_slots(&op, &[(K::Tracer, "fallback")]);
    drop(library);
    assert_slots(&op, &[(K::Tracer, "")]);
}

#[test]
fn n055_call_without_tensors_runs_the_composite_kernel() {
    let (dispatcher, _fallbacks) = plain();
    let mut library = fragment(&dispatcher);
    library.def_kernel("count(Tensor[] xs) -> int", |xs: &[Tensor]| Ok(xs.len() as i64)).expect("a definition");
    let op = dispatcher.lookup("test::count").expect("defined");
    assert_eq!(op.call::<(&[Tensor],), i64>((&[],)), Ok(0));
    assert_eq!(op.call::<(&[Tensor],), i64>((&[tensor(), tensor()],)), Ok(2));
}

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
