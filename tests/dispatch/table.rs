//! The table computed from registrations (lines 033 to 055).

use crate::{assert_error, assert_slots, fallback, fragment, operator, plain, returning, set, tensor};
use opfuse::Tensor;
use opfuse::dispatch::{DispatchKey as K, Dispatcher, KeySet, Library, Stack, Value, expand};
use opfuse::internals::dispatch::key::RUNTIME_KEYS;
use opfuse::internals::dispatch::table::Source;

const MATH: K = K::CompositeImplicitAutograd;
const EXPL: K = K::CompositeExplicitAutograd;
const NONF: K = K::CompositeExplicitAutogradNonFunctional;

/// Keys with a fallback for all operators, as the library registers them.
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

/// One line of the list: the keys that have a kernel, and the resulting slots. A slot shows the key whose kernel it
/// has. `F` is the fallback, `-` no kernel, and `A` the error of an ambiguous AutogradOther.
struct Row {
    line: u32,
    registered: &'static [K],
    slots: &'static [(K, Slot)],
}

#[derive(Clone, Copy)]
enum Slot {
    Of(K),
    F,
    A,
    None,
}

use Slot::{A, F, None as Missing, Of};

const ROWS: &[Row] = &[
    Row {
        line: 33, // line 033
        registered: &[],
        slots: &[
            (K::Undefined, Missing),
            (K::CPU, Missing),
            (K::CUDA, Missing),
            (K::SparseCUDA, Missing),
            (K::QuantizedCPU, Missing),
            (K::FPGA, Missing),
            (K::Meta, Missing),
            (K::AutogradCPU, F),
            (K::AutogradOther, F),
            (K::ADInplaceOrView, F),
            (K::BackendSelect, F),
            (K::Functionalize, F),
            (K::Tracer, F),
            (K::AutocastCPU, F),
            (K::FuncTorchBatched, F),
        ],
    },
    Row {
        line: 34, // line 034
        registered: &[MATH],
        slots: &[
            (K::Undefined, Of(MATH)),
            (K::CPU, Of(MATH)),
            (K::CUDA, Of(MATH)),
            (K::SparseCPU, Of(MATH)),
            (K::FPGA, Of(MATH)),
            (K::AutogradCPU, Of(MATH)),
            (K::AutogradOther, Of(MATH)),
            (K::AutogradPrivateUse1, Of(MATH)),
            (K::Functionalize, F),
            (K::FuncTorchBatched, F),
        ],
    },
    Row {
        line: 36, // line 036
        registered: &[NONF],
        slots: &[
            (K::XLA, Missing),
            (K::Lazy, Missing),
            (K::SparseCPU, Missing),
            (K::CPU, Of(NONF)),
            (K::Meta, Of(NONF)),
            (K::QuantizedCPU, Of(NONF)),
            (K::FPGA, Of(NONF)),
            (K::Undefined, Of(NONF)),
        ],
    },
    Row {
        line: 37, // line 037
        registered: &[K::CPU, MATH],
        slots: &[
            (K::CPU, Of(K::CPU)),
            (K::CUDA, Of(MATH)),
            (K::AutogradCPU, F),
            (K::AutogradCUDA, Of(MATH)),
            (K::AutogradOther, Of(MATH)),
        ],
    },
    Row {
        line: 39, // line 039
        registered: &[K::CPU, K::Autograd, MATH],
        slots: &[
            (K::AutogradCPU, Of(K::Autograd)),
            (K::AutogradCUDA, Of(MATH)),
            (K::AutogradOther, Of(MATH)),
            (K::CUDA, Of(MATH)),
        ],
    },
    Row {
        line: 40, // line 040
        registered: &[MATH, K::FPGA],
        slots: &[(K::AutogradOther, A), (K::AutogradCPU, Of(MATH)), (K::FPGA, Of(K::FPGA)), (K::CPU, Of(MATH))],
    },
    Row {
        line: 40,
        registered: &[MATH, K::QuantizedCPU],
        slots: &[(K::AutogradOther, A), (K::AutogradCPU, Of(MATH)), (K::QuantizedCPU, Of(K::QuantizedCPU))],
    },
    Row {
        line: 40,
        registered: &[MATH, K::SparseCPU],
        slots: &[(K::AutogradOther, A), (K::AutogradCUDA, Of(MATH)), (K::SparseCPU, Of(K::SparseCPU))],
    },
    Row {
        line: 42, // line 042
        registered: &[EXPL, MATH, K::FPGA],
        slots: &[(K::AutogradOther, A), (K::AutogradCPU, F), (K::CPU, Of(EXPL)), (K::FPGA, Of(K::FPGA))],
    },
    Row {
        line: 43, // line 043
        registered: &[K::CPU, EXPL],
        slots: &[
            (K::CPU, Of(K::CPU)),
            (K::CUDA, Of(EXPL)),
            (K::XLA, Of(EXPL)),
            (K::SparseCPU, Of(EXPL)),
            (K::FPGA, Of(EXPL)),
            (K::NestedTensorCPU, Missing),
            (K::Undefined, Of(EXPL)),
            (K::AutogradCPU, F),
            (K::AutogradCUDA, F),
            (K::AutogradOther, F),
        ],
    },
    Row {
        line: 45, // line 045
        registered: &[K::CPU, K::Autograd, MATH, EXPL],
        slots: &[
            (K::CPU, Of(K::CPU)),
            (K::CUDA, Of(EXPL)),
            (K::Undefined, Of(EXPL)),
            (K::AutogradCPU, Of(K::Autograd)),
            (K::AutogradCUDA, Of(K::Autograd)),
            (K::AutogradOther, Of(K::Autograd)),
        ],
    },
    Row {
        line: 46, // line 046
        registered: &[NONF, EXPL, MATH],
        slots: &[
            (K::CPU, Of(NONF)),
            (K::XLA, Of(EXPL)),
            (K::SparseCPU, Of(EXPL)),
            (K::Undefined, Of(NONF)),
            (K::AutogradCPU, F),
            (K::AutogradXLA, F),
            (K::AutogradOther, F),
        ],
    },
    Row {
        line: 48, // line 048
        registered: &[K::AutogradCPU, MATH],
        slots: &[
            (K::AutogradCPU, Of(K::AutogradCPU)),
            (K::CPU, Of(MATH)),
            (K::AutogradCUDA, Of(MATH)),
            (K::AutogradOther, Of(MATH)),
        ],
    },
    Row {
        line: 49, // line 049
        registered: &[K::AutogradCPU, K::Autograd, K::CPU],
        slots: &[
            (K::AutogradCPU, Of(K::AutogradCPU)),
            (K::AutogradCUDA, Of(K::Autograd)),
            (K::AutogradMeta, Of(K::Autograd)),
            (K::AutogradOther, Of(K::Autograd)),
            (K::CPU, Of(K::CPU)),
            (K::CUDA, Missing),
        ],
    },
    Row {
        line: 51, // line 051
        registered: &[K::Meta, MATH],
        slots: &[(K::Meta, Of(K::Meta)), (K::AutogradMeta, F), (K::CPU, Of(MATH)), (K::AutogradCPU, Of(MATH))],
    },
];

#[test]
fn n033_to_n051_computed_slots() {
    for Row { line, registered, slots } in ROWS {
        let (dispatcher, _fallbacks) = with_fallbacks();
        let (_library, op) = operator(&dispatcher, registered);
        for (key, expected) in *slots {
            let found = op.slot(*key);
            let right = match expected {
                Of(kernel) => found.kernel == kernel.name() && found.source != Source::Fallback,
                F => found.source == Source::Fallback,
                A => found.source == Source::AmbiguousAutogradOther,
                Missing => found.source == Source::Missing,
            };
            assert!(right, "line {line:03}: slot of {key} is {found:?} in\n{}", op.dump_table());
        }
    }
}

#[test]
fn n033_n034_dumps_say_where_a_slot_comes_from() {
    let (dispatcher, _fallbacks) = with_fallbacks();
    let (_library, op) = operator(&dispatcher, &[MATH]);
    let dump = op.dump_table();
    assert!(dump.contains("CPU: CompositeImplicitAutograd [math kernel]"), "{dump}");
    assert!(dump.contains("Tracer: ") && dump.contains("[backend fallback]"), "{dump}");
}

#[test]
fn n040_an_ambiguous_slot_refuses_calls_not_dumps() {
    let dispatcher = Dispatcher::new();
    let (_library, op) = operator(&dispatcher, &[MATH, K::FPGA]);
    assert!(op.dump_table().contains("[ambiguous autogradother]"));
    let mut stack: Stack = [Value::Tensor(tensor())].into_iter().collect();
    let called = op.redispatch_boxed(KeySet::of(K::AutogradOther), &mut stack);
    assert_error(called, &["test::op", "ambiguous autogradother"]);
}

#[test]
fn n045_n046_explicit_beats_implicit_on_every_backend() {
    let (dispatcher, _fallbacks) = with_fallbacks();
    let (_library, op) = operator(&dispatcher, &[MATH, EXPL]);
    for &key in RUNTIME_KEYS.iter().filter(|&&key| expand(EXPL).has(key)) {
        assert_slots(&op, &[(key, EXPL.name())]);
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
