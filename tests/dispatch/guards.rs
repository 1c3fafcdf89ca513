//! Guards of a thread's settings, dropped in every order: what holds is what the live guards say.

use opfuse::autograd::{inference_mode, is_grad_enabled, is_inference_mode, no_grad, set_grad_enabled};
use opfuse::dispatch::modes::{CallCounter, push_mode};
use opfuse::dispatch::{DispatchKey, exclude, include};
use opfuse::internals::dispatch::key::local_key_sets;
use opfuse::{DType, Numerics, Tensor, autocast, no_autocast};
use std::any::Any;
use std::sync::Arc;

/// Makes three guards and drops them in every order; `seen` is asked whenever one went, and answers what is wrong.
fn in_every_order(make: [&dyn Fn() -> Box<dyn Any>; 3], seen: &dyn Fn([bool; 3]) -> Option<String>) {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut guards = make.map(|make| Some(make()));
        assert_eq!(seen([true; 3]), None, "all live");
        for at in order {
            guards[at] = None;
            let live = [0, 1, 2].map(|guard| guards[guard].is_some());
            assert_eq!(seen(live), None, "dropped in the order {order:?}, live {live:?}");
        }
    }
}

/// What is wrong, if `found` is not what the youngest live guard sets.
fn youngest<T: PartialEq + std::fmt::Debug>(live: [bool; 3], sets: [T; 3], base: T, found: T) -> Option<String> {
    let wanted = live.into_iter().zip(sets).rev().find(|(is_live, _)| *is_live).map_or(base, |(_, set)| set);
    (found != wanted).then(|| format!("found {found:?}, wanted {wanted:?}"))
}

#[test]
fn guards_dropped_in_any_order_leave_the_grad_mode_of_the_live_ones() {
    let off = || Box::new(no_grad()) as Box<dyn Any>;
    let on = || Box::new(set_grad_enabled(true)) as Box<dyn Any>;
    in_every_order([&off, &on, &off], &|live| youngest(live, [false, true, false], true, is_grad_enabled()));
    in_every_order([&off, &off, &off], &|live| youngest(live, [false; 3], true, is_grad_enabled()));
}

#[test]
fn guards_dropped_in_any_order_leave_inference_mode_of_the_live_ones() {
    let inference = || Box::new(inference_mode()) as Box<dyn Any>;
    let base = local_key_sets();
    in_every_order([&inference, &inference, &inference], &|live| {
        let is_on = live.contains(&true);
        let is_right =
            is_inference_mode() == is_on && is_grad_enabled() != is_on && (local_key_sets() == base) != is_on;
        (!is_right).then(|| format!("{:?}", local_key_sets()))
    });
}

#[test]
fn guards_dropped_in_any_order_leave_the_keys_of_the_live_ones() {
    let (profiler, sparse) = (DispatchKey::FuncTorchDynamicLayerBackMode, DispatchKey::Python);
    let include_both = || Box::new(include(opfuse::dispatch::KeySet::from_keys(&[profiler, sparse]))) as Box<dyn Any>;
    let include_one = || Box::new(include(sparse)) as Box<dyn Any>;
    let exclude_one = || Box::new(exclude(profiler)) as Box<dyn Any>;
    let base = local_key_sets();
    in_every_order([&include_both, &include_one, &exclude_one], &|live| {
        let sets = local_key_sets();
        let wanted = [live[0], live[0] || live[1], live[2]];
        let found = [sets.included.has(profiler), sets.included.has(sparse), sets.excluded.has(profiler)];
        let is_base = live.contains(&true) || sets == base;
        (found != wanted || !is_base).then(|| format!("{sets:?}"))
    });
}

#[test]
fn guards_dropped_in_any_order_leave_the_autocast_of_the_live_ones() {
    let x = Tensor::ones(&[2, 2], DType::F32).expect("it is small");
    let half = || Box::new(autocast(DType::F16).expect("f16 is lower")) as Box<dyn Any>;
    let off = || Box::new(no_autocast()) as Box<dyn Any>;
    let brain = || Box::new(autocast(DType::BF16).expect("bf16 is lower")) as Box<dyn Any>;
    in_every_order([&half, &off, &brain], &|live| {
        let found = x.mm(&x).expect("the shapes fit").dtype();
        youngest(live, [DType::F16, DType::F32, DType::BF16], DType::F32, found)
    });
}

#[test]
fn guards_dropped_in_any_order_leave_the_modes_of_the_live_ones() {
    let x = Tensor::ones(&[2], DType::F32).expect("it is small");
    let counters = [(); 3].map(|()| Arc::new(CallCounter::default()));
    let push = |at: usize| {
        let counter = counters[at].clone();
        move || Box::new(push_mode(counter.clone())) as Box<dyn Any>
    };
    in_every_order([&push(0), &push(1), &push(2)], &|live| {
        let before = [0, 1, 2].map(|at| counters[at].total());
        x.exp().expect("any dtype has it");
        let saw = [0, 1, 2].map(|at| counters[at].total() > before[at]);
        (saw != live).then(|| format!("seen by {saw:?}"))
    });
}

#[test]
fn guards_dropped_in_any_order_leave_the_numerics_and_stance_of_the_live_ones() {
    use opfuse::compile::{Stance, stance};
    let numerics = |choice: Numerics| move || Box::new(opfuse::numerics(choice)) as Box<dyn Any>;
    let (fast, strict) = (Numerics::Fast, Numerics::Strict);
    in_every_order([&numerics(fast), &numerics(strict), &numerics(fast)], &|live| {
        youngest(live, [fast, strict, fast], strict, opfuse::internals::eager::current_numerics())
    });
    let f = opfuse::compile(|x: &Tensor| x.exp());
    let x = Tensor::ones(&[2], DType::F32).expect("it is small");
    let eager = || Box::new(stance(Stance::Eager)) as Box<dyn Any>;
    let default = || Box::new(stance(Stance::Default)) as Box<dyn Any>;
    in_every_order([&eager, &default, &eager], &|live| {
        let before = f.counts().eager;
        f.call(&x).expect("it computes");
        youngest(live, [true, false, true], false, f.counts().eager > before)
    });
}

#[test]
fn a_guard_in_a_thread_local_value_may_outlive_the_state_of_its_thread() {
    thread_local! {
        static KEPT: std::cell::RefCell<Vec<Box<dyn Any>>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let run = || {
        let kept: Vec<Box<dyn Any>> = vec![
            Box::new(no_grad()),
            Box::new(inference_mode()),
            Box::new(autocast(DType::BF16).expect("bf16 is lower")),
            Box::new(push_mode(Arc::new(CallCounter::default()))),
            Box::new(opfuse::numerics(Numerics::Fast)),
        ];
        KEPT.with_borrow_mut(|all| all.extend(kept));
    };
    std::thread::spawn(run).join().expect("guards are dropped at the end of their thread");
}
