//! The worker pool from outside: coverage, joins, panics, nesting, many callers.
//!
//! There is one pool, and a caller that finds it taken runs alone. The tests run one at a time, so that loops are
//! really split. They use more threads than a machine may have cores, which exercises sleeping and waking.

use opfuse::device::pool::{num_threads, parallel_for, run, set_num_threads, with_threads};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// The pool for this test alone, with eight threads.
fn turn() -> MutexGuard<'static, ()> {
    let turn = super::turn();
    set_num_threads(8);
    turn
}

fn count(counter: &AtomicUsize, by: usize) {
    counter.fetch_add(by, Relaxed);
}

#[test]
fn every_task_runs_once() {
    let _turn = turn();
    for n_tasks in [0, 1, 2, 7, 64, 1000] {
        for threads in [1, 2, 3, 8, 100] {
            let counts: Vec<AtomicUsize> = (0..n_tasks).map(|_| AtomicUsize::new(0)).collect();
            run(n_tasks, threads, &|task| count(&counts[task], 1));
            assert!(counts.iter().all(|count| count.load(Relaxed) == 1), "{n_tasks} on {threads}");
        }
    }
}

#[test]
fn ranges_tile_the_loop() {
    let _turn = turn();
    for total in [0, 1, 5, 63, 64, 65, 1000, 4096, 100_003] {
        for threads in [1, 2, 3, 8] {
            let ranges = Mutex::new(Vec::new());
            parallel_for(total, threads, |range| ranges.lock().expect("no panics").push(range));
            let mut ranges: Vec<Range<usize>> = ranges.into_inner().expect("no panics");
            ranges.sort_by_key(|range| range.start);
            let mut end = 0;
            for range in &ranges {
                assert!(range.start == end && range.end > end, "{total} on {threads}: {ranges:?}");
                assert!(range.len() <= 64 || range.start.is_multiple_of(64), "{total} on {threads}: {ranges:?}");
                end = range.end;
            }
            assert_eq!(end, total);
            assert!(threads > 1 || ranges.len() <= 1);
        }
    }
}

#[test]
fn tasks_run_at_the_same_time() {
    let _turn = turn();
    // Each task waits for all others, which ends only if all of them run.
    let started = AtomicUsize::new(0);
    let begin = Instant::now();
    run(6, 6, &|_| {
        count(&started, 1);
        while started.load(Relaxed) < 6 {
            assert!(begin.elapsed() < Duration::from_secs(60), "the tasks run one after the other");
            thread::yield_now();
        }
    });
}

#[test]
fn the_caller_sees_plain_writes_of_workers() {
    let _turn = turn();
    for round in 0..5000_usize {
        let mut values = [0; 8];
        let cells: Vec<Mutex<&mut usize>> = values.iter_mut().map(Mutex::new).collect();
        run(8, 3, &|task| **cells[task].lock().expect("no panics") = round + task);
        drop(cells);
        assert!(values.iter().enumerate().all(|(task, &value)| value == round + task));
    }
}

#[test]
fn many_callers_may_run_loops_at_once() {
    let _turn = turn();
    thread::scope(|scope| {
        for caller in 0..6_usize {
            scope.spawn(move || {
                for round in 0..1000 {
                    let sum = AtomicUsize::new(0);
                    let total = 100 + caller * 17 + round;
                    parallel_for(total, 4, |range| count(&sum, range.sum()));
                    assert_eq!(sum.into_inner(), total * (total - 1) / 2);
                }
            });
        }
    });
}

#[test]
fn nested_loops_run_on_the_thread_of_their_task() {
    let _turn = turn();
    let total = AtomicUsize::new(0);
    run(16, 4, &|_| {
        let seen = Mutex::new(Vec::new());
        run(10, 4, &|task| seen.lock().expect("no panics").push((task, thread::current().id())));
        let here = thread::current().id();
        let expected: Vec<_> = (0..10).map(|task| (task, here)).collect();
        assert_eq!(seen.into_inner().expect("no panics"), expected);
        parallel_for(1000, 4, |range| assert_eq!(range, 0..1000));
        count(&total, 1);
    });
    assert_eq!(total.into_inner(), 16);
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
    let _turn = turn();
    for round in 0..200_usize {
        let (started, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let threads = 1 + round % 4;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            run(50, threads, &|task| {
                count(&started, 1);
                if task % 20 == round % 20 {
                    panic_any(task);
                }
                count(&ended, 1);
            });
        }));
        let task = *outcome.expect_err("a task panicked").downcast::<usize>().expect("the task's own payload");
        assert_eq!(task % 20, round % 20);
        let (started, ended) = (started.into_inner(), ended.into_inner());
        assert!(ended < started && started <= 50, "{ended} of {started}");
        // The next loop is split again.
        let (seen, begun) = (AtomicUsize::new(0), AtomicUsize::new(0));
        run(2, 2, &|_| {
            count(&begun, 1);
            while begun.load(Relaxed) < 2 {
                thread::yield_now();
            }
            count(&seen, 1);
        });
        assert_eq!(seen.into_inner(), 2);
    }
}

#[test]
fn late_tasks_are_waited_for() {
    let _turn = turn();
    // Long enough for the caller to sleep, and for workers to sleep between rounds.
    for _ in 0..10 {
        let ended = AtomicUsize::new(0);
        run(3, 3, &|_| {
            thread::sleep(Duration::from_millis(2));
            count(&ended, 1);
        });
        assert_eq!(ended.into_inner(), 3);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn joins_are_right_after_pauses_of_any_length() {
    let _turn = turn();
    // Pauses around the length of the spin hit workers that are about to sleep.
    for pause in 0..1500_u64 {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_nanos(pause * 40) {
            std::hint::spin_loop();
        }
        let sum = AtomicUsize::new(0);
        run(4, 4, &|task| count(&sum, task));
        assert_eq!(sum.into_inner(), 6);
    }
}

#[test]
fn thread_limits_nest_and_are_restored() {
    let _turn = turn();
    assert_eq!(num_threads(), 8);
    with_threads(3, || {
        assert_eq!(num_threads(), 3);
        with_threads(5, || assert_eq!(num_threads(), 3));
        with_threads(0, || assert_eq!(num_threads(), 1));
        assert!(catch_unwind(|| with_threads(2, || panic_any(()))).is_err());
        assert_eq!(num_threads(), 3);
        assert_eq!(thread::scope(|scope| scope.spawn(num_threads).join().expect("it only asks")), 8);
    });
    assert_eq!(num_threads(), 8);
    set_num_threads(0);
    assert!(num_threads() >= 1);
    with_threads(1, || parallel_for(1000, 8, |range| assert_eq!(range, 0..1000)));
}

#[test]
fn the_variable_sets_the_default() {
    const VARIABLE: &str = "OPFUSE_NUM_THREADS";
    if let Some(threads) = std::env::var(VARIABLE).ok().and_then(|text| text.parse::<usize>().ok()) {
        let _turn = turn();
        set_num_threads(0);
        assert_eq!(num_threads(), threads.max(1));
        return;
    }
    // It is read once, so it takes a process of its own: this test again, with the variable set.
    let myself = std::env::current_exe().expect("a test has a path");
    let arguments = ["pool::the_variable_sets_the_default", "--exact"];
    let output = std::process::Command::new(myself).args(arguments).env(VARIABLE, "3").output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}
