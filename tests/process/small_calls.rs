//! Small eager calls take shortcuts that must not change results. A repeated call is found by its op, arguments and
//! layouts. Its kernel runs without locks, and its result uses recycled memory.

use crate::alone::has_run_alone;
use opfuse::device::allocator;
use opfuse::{DType, Result, Tensor, autograd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn tensor(values: impl IntoIterator<Item = i64>) -> Tensor {
    let values: Vec<f32> = values.into_iter().map(|value| value as f32).collect();
    Tensor::from_slice(&values, &[values.len()]).expect("memory is there")
}

fn values(tensor: &Tensor) -> Vec<i64> {
    tensor.to_dtype(DType::I64).and_then(|tensor| tensor.to_vec()).expect("it has values")
}

type Call = (&'static str, fn(&Tensor, &Tensor) -> Result<Tensor>, fn(i64, i64) -> i64);

/// Calls on whole numbers that a float holds exactly, with their results.
const CALLS: &[Call] = &[
    ("add", |a, b| a + b, |a, b| a + b),
    ("sub", |a, b| a - b, |a, b| a - b),
    ("mul", |a, b| a * b, |a, b| a * b),
    ("add_scaled 2", |a, b| a.add_scaled(b, 2), |a, b| a + 2 * b),
    ("add_scaled -1", |a, b| a.add_scaled(b, -1), |a, b| a - b),
    ("add_scaled 3.0", |a, b| a.add_scaled(b, 3.0), |a, b| a + 3 * b),
    ("number on the right", |a, _| a + 5, |a, _| a + 5),
    ("float on the right", |a, _| a * 2.0, |a, _| a * 2),
    ("number on the left", |a, _| 7 - a, |a, _| 7 - a),
    ("an element", |a, b| a + b.select(0, 0)?, |a, _| a - 3),
    ("itself", |a, _| a + a, |a, _| 2 * a),
    ("neg", |a, _| -a, |a, _| -a),
    ("relu", |a, _| a.relu(), |a, _| a.max(0)),
    ("greater", |a, b| a.gt(b), |a, b| i64::from(a > b)),
    ("three operands", |a, b| a.addcmul(b, b, 1), |a, b| a + b * b),
    ("integers", |a, b| a.to_dtype(DType::I32)? + b.to_dtype(DType::I32)?, |a, b| a + b),
    ("mixed dtypes", |a, b| a + b.to_dtype(DType::I16)?, |a, b| a + b),
    ("doubles", |a, b| a.to_dtype(DType::F64)? * b.to_dtype(DType::F64)?, |a, b| a * b),
    ("a part", |a, b| a.slice(0, 0, None, 1)? + b, |a, b| a + b),
    ("backwards", |a, b| a.flip([0])?.flip([0])? - b, |a, b| a - b),
];

/// The first operand counts from −10, the second from −3 and by threes. Names the calls that are wrong.
fn wrong_calls(n: usize) -> Vec<String> {
    let (a, b) = (|index: usize| index as i64 - 10, |index: usize| 3 * index as i64 - 3);
    // Elements around the operands, which must not matter.
    let inside = |number: &dyn Fn(usize) -> i64| {
        let all = [vec![99], (0..n).map(number).collect(), vec![-99]].concat();
        tensor(all).slice(0, 1, Some(n as i64 + 1), 1).expect("it is inside")
    };
    let strided = |number: &dyn Fn(usize) -> i64| {
        let all = tensor((0..2 * n).map(|index| if index.is_multiple_of(2) { number(index / 2) } else { 77 }));
        all.slice(0, 0, None, 2).expect("it is inside")
    };
    let dense = [tensor((0..n).map(a)), tensor((0..n).map(b))];
    let operands = [dense, [inside(&a), inside(&b)], [strided(&a), strided(&b)]];
    let mut wrong = Vec::new();
    for (name, call, expected) in CALLS {
        for (kind, [left, right]) in operands.iter().enumerate() {
            if n == 0 && *name == "an element" {
                continue;
            }
            let expected: Vec<i64> = (0..n).map(|index| expected(a(index), b(index))).collect();
            for time in 1..=3 {
                match call(left, right) {
                    Ok(got) if values(&got) == expected => {}
                    other => wrong.push(format!("{name} of {n}, operands {kind}, time {time}: {other:?}")),
                }
            }
        }
    }
    wrong
}

#[test]
fn repeated_calls_give_the_same() {
    if has_run_alone() {
        return;
    }
    // More calls than a thread's cache holds, twice, in an order in which each evicts others.
    for n in (0..70).chain([127, 128, 129, 511, 512, 513, 1000]).chain([0, 1, 63, 64, 65]) {
        assert_eq!(wrong_calls(n), Vec::<String>::new());
    }
}

type Write = (&'static str, fn(&Tensor, &Tensor) -> Result<()>, fn(i64, i64) -> i64);

/// Writes to the first operand, whose first element is −10, and its elements afterwards.
const WRITES: &[Write] = &[
    ("add_", |a, b| a.add_(b), |a, b| a + b),
    ("add_scaled_", |a, b| a.add_scaled_(b, 3), |a, b| a + 3 * b),
    ("mul_ by a number", |a, _| a.mul_(2.0), |a, _| 2 * a),
    ("add_ of a whole number", |a, _| a.add_(7), |a, _| a + 7),
    ("neg_", |a, _| a.neg_(), |a, _| -a),
    ("relu_", |a, _| a.relu_(), |a, _| a.max(0)),
    ("itself", |a, _| a.add_(a), |a, _| 2 * a),
    ("another handle of itself", |a, _| a.mul_(a.detach()?), |a, _| a * a),
    ("an element of itself", |a, _| a.add_(a.select(0, 0)?), |a, _| a - 10),
    ("itself as a column", |a, _| a.add_(a.unsqueeze(1)?.squeeze(1)?), |a, _| 2 * a),
    ("another dtype", |a, b| a.sub_(b.to_dtype(DType::I16)?), |a, b| a - b),
    ("three operands", |a, b| a.addcmul_(b, b, 1), |a, b| a + b * b),
];

/// A repeated write takes a shortcut, does the same, and increments the version.
#[test]
fn repeated_writes_do_the_same() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    for n in [1, 3, 63, 64, 65, 128, 200, 1000] {
        let (a, b) = (tensor((0..n).map(|i| i - 10)), tensor((0..n).map(|i| 3 * i - 3)));
        let inside = tensor(0..n + 2).slice(0, 1, Some(n + 1), 1)?;
        let strided = tensor(0..2 * n).slice(0, 0, None, 2)?;
        for (name, write, expected) in WRITES {
            let expected: Vec<i64> = (0..n).map(|i| expected(i - 10, 3 * i - 3)).collect();
            for target in [&a.copy()?, &inside, &strided] {
                for time in 1..=3 {
                    target.copy_(&a)?;
                    let version = target.version();
                    write(target, &b)?;
                    assert_eq!(target.version(), version + 1, "{name} of {n}, time {time}");
                    assert!(values(target) == expected, "{name} of {n}, time {time}: {target}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn threads_do_not_disturb_each_other() {
    if has_run_alone() {
        return;
    }
    thread::scope(|scope| {
        for first in 0..4 {
            scope.spawn(move || {
                for n in [1, 64, 3, 0, 200].into_iter().cycle().skip(first).take(15) {
                    assert_eq!(wrong_calls(n), Vec::<String>::new());
                }
            });
        }
    });
}

/// A read sees the whole of a write or nothing of it.
#[test]
fn reads_see_all_of_a_write_or_nothing() {
    if has_run_alone() {
        return;
    }
    for n in [1, 64, 500, 40_000] {
        let x = tensor(std::iter::repeat_n(0, n));
        let zeros = tensor(std::iter::repeat_n(0, n));
        let whole = x.slice(0, 0, None, 1).expect("it is all of it");
        let is_done = AtomicBool::new(false);
        let rounds = if n > 1000 { 50 } else { 1000 };
        thread::scope(|scope| {
            for reader in 0..3 {
                let (x, whole, zeros, is_done) = (&x, &whole, &zeros, &is_done);
                scope.spawn(move || {
                    let mut last = 0;
                    while !is_done.load(Ordering::Relaxed) {
                        let sum = match reader {
                            0 => x + whole,
                            1 => whole.add_scaled(zeros, 1).and_then(|x| &x + &x),
                            _ => zeros.addcmul(x, x, 0).and_then(|none| (x - none)? * 2),
                        };
                        let sum = values(&sum.expect("memory is there"));
                        // A sum of the same operand read twice: it may change between calls, but not within one.
                        assert!(sum.iter().all(|&value| value == sum[0]), "{reader}: {sum:?}");
                        assert!(sum[0] >= last, "{reader}: time goes back from {last} to {sum:?}");
                        last = sum[0];
                    }
                });
            }
            scope.spawn(|| {
                for round in 0..rounds {
                    match round % 3 {
                        0 => x.add_(1),
                        1 => whole.add_(tensor(std::iter::repeat_n(1, n))),
                        _ => x.copy_(&tensor(std::iter::repeat_n(round + 1, n))),
                    }
                    .expect("nothing is borrowed");
                }
                is_done.store(true, Ordering::Relaxed);
            });
        });
        assert_eq!(values(&x), vec![rounds; n]);
    }
}

#[test]
fn repeated_calls_see_writes_to_their_operands() {
    if has_run_alone() {
        return;
    }
    for n in [1i64, 3, 64, 100] {
        let (x, one) = (tensor(0..n), tensor([1]));
        let last = x.slice(0, -1, None, 1).expect("there is one");
        for round in 0..5 {
            assert_eq!(
                values(&(&x + &x).expect("fits")),
                (0..n).map(|i| 2 * (i + round * (i + 1 == n) as i64)).collect::<Vec<_>>()
            );
            last.add_(&one).expect("fits");
        }
    }
    // Operands that overlap the target are read before it is written.
    for n in [2i64, 64, 65, 300] {
        let x = tensor(0..n);
        let [low, high] = [(0, n - 1), (1, n)].map(|(start, end)| x.slice(0, start, Some(end), 1).expect("inside"));
        for _ in 0..2 {
            let expected = values(&(&low + &high).expect("fits"));
            low.add_(&high).expect("fits");
            assert_eq!(values(&low), expected);
        }
    }
}

#[test]
fn errors_do_not_change_later_calls() {
    if has_run_alone() {
        return;
    }
    let (x, y) = (tensor(0..3), tensor(0..4));
    let meta = Tensor::meta(&x.ty()).expect("it needs no memory");
    for _ in 0..3 {
        let error = (&x + &y).expect_err("3 and 4 do not broadcast").to_string();
        assert!(error.contains("[3]") && error.contains("[4]"), "{error}");
        assert!((&x + &meta).is_err(), "one has no data");
        assert!(x.bitwise_and(&x).is_err(), "floats have no bits");
        assert!(x.add_(&y).is_err());
        assert_eq!(values(&(&x + &x).expect("fits")), [0, 2, 4]);
    }
}

/// Modes and settings of a thread apply to repeated calls, too.
#[test]
fn modes_see_every_repeated_call() {
    if has_run_alone() {
        return;
    }
    let (x, y) = (tensor(0..3), tensor(3..6));
    let add = || (&x + &y).expect("fits");
    assert!(!add().requires_grad() && !add().is_inference());
    x.set_requires_grad(true).expect("it is a float");
    assert!(add().requires_grad());
    {
        let _quiet = autograd::no_grad();
        assert!(!add().requires_grad());
    }
    {
        let _inference = autograd::inference_mode();
        assert!(add().is_inference() && !add().requires_grad());
    }
    assert!(add().requires_grad());
    assert!(x.add_(&y).is_err(), "it is a leaf whose gradients are wanted");
    let made_quietly = {
        let _inference = autograd::inference_mode();
        let made = add();
        for _ in 0..3 {
            made.add_(&y).expect("inference may write to it");
        }
        made
    };
    assert!(made_quietly.add_(&y).is_err(), "it is an inference tensor");
}

/// Results are made and dropped on many threads, and all memory is freed.
#[test]
fn results_may_be_dropped_on_other_threads() {
    if has_run_alone() {
        return;
    }
    let live = || allocator::stats().live_blocks;
    let x = tensor(0..100);
    let before = live();
    for _ in 0..20 {
        let results: Vec<Tensor> = (0..300).map(|_| (&x + &x).expect("fits")).collect();
        let (copies, weak) = (results.clone(), results[0].detach().expect("it is a handle"));
        thread::scope(|scope| {
            for part in [results, copies] {
                scope.spawn(|| drop(part));
            }
        });
        assert_eq!(values(&weak)[99], 198);
    }
    let left = live().saturating_sub(before);
    assert!(left < 300, "{left} blocks are left of {}", 20 * 300);
}
