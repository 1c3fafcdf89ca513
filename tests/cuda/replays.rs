//! Programs of several kernels, started one by one and as one CUDA graph: the CPU's bits from any thread, with any
//! memory.

use crate::driver;
use crate::fakes;
use opfuse::device::{Stream, StreamGuard};
use opfuse::internals::runtime::cuda::{counts, reset_counts};
use opfuse::{Device, Explain, Result, Tensor, compile};

const GPU: Device = Device::cuda(0);

type Binary = fn(&Tensor, &Tensor) -> Result<Tensor>;

fn table(rows: usize, columns: usize, seed: usize) -> Tensor {
    let number = |n: usize| ((n * 37 + 11 + seed * 29) % 101) as f32 / 17.0 - 2.5;
    let numbers: Vec<f32> = (0..rows * columns).map(number).collect();
    Tensor::from_slice(&numbers, &[rows, columns]).expect("memory is there")
}

fn bits(x: &Tensor) -> Vec<u32> {
    x.to_vec::<f32>().expect("it can be read").into_iter().map(f32::to_bits).collect()
}

/// Products and kernels between them, with values that are used late, views, and two results.
fn layers(x: &Tensor, w: &Tensor) -> Result<(Tensor, Tensor)> {
    let first = x.matmul(w)?.add(1.0)?.tanh()?;
    let second = first.matmul(w)?.softmax(-1)?;
    let third = second.matmul(&w.t()?)?.mul(&first)?;
    Ok((third.sub(x)?.cumsum(0)?.t()?, second.sum([0], false)?))
}

/// The results, on the CPU.
fn expected(x: &Tensor, w: &Tensor) -> [Vec<u32>; 2] {
    let (a, b) = layers(x, w).expect("the cpu computes it");
    [bits(&a), bits(&b)]
}

fn there(x: &Tensor) -> Tensor {
    x.to_device(GPU).expect("there is a device")
}

#[test]
fn replays_have_the_bits_of_the_cpu() {
    fakes::with(&[], || {
        let inputs: Vec<[Tensor; 2]> = (0..4).map(|seed| [table(9, 12, seed), table(12, 12, seed + 7)]).collect();
        let function = compile(layers);
        reset_counts();
        let mut kept = Vec::new();
        for call in 0..40 {
            let [x, w] = &inputs[call * 7 % 4];
            // New memory for inputs each time, and sometimes results that stay, so that addresses change.
            let (a, b) = function.call((&there(x), &there(w))).expect("it runs");
            if call % 3 == 0 {
                kept.push((call, a, b));
            } else {
                assert_eq!([bits(&a), bits(&b)], expected(x, w), "call {call}");
            }
        }
        for (call, a, b) in &kept {
            let [x, w] = &inputs[call * 7 % 4];
            assert_eq!([bits(a), bits(b)], expected(x, w), "call {call}, kept");
        }
        let counts = counts();
        assert_eq!((counts.graphs, counts.replays, counts.fallbacks.len()), (1, 31, 0));
        // The first call is eager, and compiles; the others have as many kernels as the plan.
        let explain = function.explain();
        assert!(counts.launches >= 39 * explain.kernels_after as u64, "{counts:?}");
        assert!(explain.to_string().contains("started as one CUDA graph after 8 calls"), "{explain}");
        driver::check_graphs(1);
        drop(function);
        driver::check_graphs(0);
    });
}

#[test]
fn shapes_have_graphs_of_their_own() {
    fakes::with(&[], || {
        let function = compile(layers);
        for call in 0..60 {
            let rows = [3, 8, 17][call % 3];
            let (x, w) = (table(rows, 12, call), table(12, 12, call + 1));
            let (a, b) = function.call((&there(&x), &there(&w))).expect("it runs");
            assert_eq!([bits(&a), bits(&b)], expected(&x, &w), "call {call}");
        }
        driver::check_graphs(3);
    });
}

#[test]
fn inputs_with_other_offsets_are_replayed() {
    fakes::with(&[], || {
        let all = table(40, 12, 3);
        let (there_all, w) = (there(&all), table(12, 12, 4));
        let there_w = there(&w);
        let function = compile(|x: &Tensor, w: &Tensor| layers(&x.slice(1, 0, 12, 1)?, w));
        let columns = table(40, 13, 5);
        let there_columns = there(&columns);
        for call in 0..40i64 {
            // Rows begin where vectors may, columns do not.
            let (x, there_x) = match call % 2 {
                0 => (all.slice(0, call % 5, call % 5 + 9, 1), there_all.slice(0, call % 5, call % 5 + 9, 1)),
                _ => (columns.slice(1, 1, 13, 1), there_columns.slice(1, 1, 13, 1)),
            };
            let (x, there_x) = (x.expect("it is a view"), there_x.expect("it is a view"));
            let (a, b) = function.call((&there_x, &there_w)).expect("it runs");
            assert_eq!([bits(&a), bits(&b)], expected(&x, &w), "call {call}");
        }
        assert!(counts().replays > 10, "{:?}", counts());
    });
}

#[test]
fn results_may_be_inputs_and_views() {
    fakes::with(&[], || {
        let function = |x: &Tensor, w: &Tensor| {
            let y = x.matmul(w)?.tanh()?.matmul(w)?.softmax(-1)?;
            Ok::<_, opfuse::Error>((y.t()?, x.slice(0, 1, 3, 1)?, x.clone(), y))
        };
        let compiled = compile(function);
        let (all, w) = (table(11, 12, 2), table(12, 12, 3));
        let (there_all, there_w) = (there(&all), there(&w));
        for call in 0..20i64 {
            let part = |x: &Tensor| x.slice(0, call % 4, call % 4 + 6, 1).expect("it is a view");
            let (a, b, c, d) = compiled.call((&part(&there_all), &there_w)).expect("it runs");
            let (ea, eb, ec, ed) = function(&part(&all), &w).expect("the cpu computes it");
            assert_eq!([&a, &b, &c, &d].map(bits), [&ea, &eb, &ec, &ed].map(bits), "call {call}");
        }
        assert!(counts().replays > 5, "{:?}", counts());
    });
}

/// Threads on one stream and on several call one function at once. The memory of each is freed and reused.
#[test]
fn threads_and_streams_replay_at_once() {
    fakes::with(&[], || {
        let function = compile(layers);
        let w = table(12, 12, 1);
        let there_w = there(&w);
        reset_counts();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (function, w, there_w) = (&function, &w, &there_w);
                scope.spawn(move || {
                    let stream = if thread < 2 { Stream::default_of(GPU) } else { Stream::new(GPU) };
                    let _guard = StreamGuard::new(&stream.expect("there is one")).expect("the device is there");
                    for call in 0..25 {
                        let x = table(5, 12, thread * 31 + call);
                        let (a, b) = function.call((&there(&x), there_w)).expect("it runs");
                        assert_eq!([bits(&a), bits(&b)], expected(&x, w), "thread {thread}, call {call}");
                    }
                });
            }
        });
        let counts = counts();
        assert!((1..=3).contains(&counts.graphs) && counts.replays > 20, "{counts:?}");
    });
}

/// A stream that changes a graph while another still runs it, and memory that the first has given back.
#[test]
fn overlapping_runs_keep_their_memory() {
    fakes::with(&[], || {
        let function = compile(layers);
        let w = table(12, 12, 1);
        let (there_w, inputs) = (there(&w), [table(5, 12, 8), table(5, 12, 9)]);
        let on_device = inputs.each_ref().map(there);
        let streams = [0, 1].map(|_| Stream::new(GPU).expect("there is one"));
        let mut results = Vec::new();
        for call in 0..30 {
            // The fake runs nothing until the host waits, so all of these are pending.
            let _guard = StreamGuard::new(&streams[call / 2 % 2]).expect("the device is there");
            results.push((call % 2, function.call((&on_device[call % 2], &there_w)).expect("it runs")));
        }
        for (input, (a, b)) in &results {
            assert_eq!([bits(a), bits(b)], expected(&inputs[*input], &w));
        }
        assert!(counts().replays > 10, "{:?}", counts());
    });
}

#[test]
fn a_driver_that_refuses_graphs_starts_launches() {
    for what in ["instantiate", "set", "launch"] {
        fakes::with(&[("OPFUSE_FAKE_REFUSE", what)], || {
            reset_counts();
            let function = compile(layers);
            let w = table(12, 12, 1);
            let mut kept = Vec::new();
            for call in 0..20 {
                let x = table(5, 12, call);
                let there_x = there(&x);
                let (a, b) = function.call((&there_x, &there(&w))).expect("it runs");
                assert_eq!([bits(&a), bits(&b)], expected(&x, &w), "call {call}");
                // Results that are kept have other memory than the next ones.
                kept.push((there_x, a, b));
            }
            let counts = counts();
            assert!(counts.replays <= 1, "{counts:?}");
            driver::check_graphs(0);
        });
    }
}

/// A failed kernel of a CUDA graph is reported asynchronously, as any other.
#[test]
fn a_failed_kernel_of_a_graph_is_reported_asynchronously() {
    fakes::with(&[("OPFUSE_FAKE_FAIL", "100")], || {
        let function = compile(layers);
        let (x, w) = (there(&table(5, 12, 0)), there(&table(12, 12, 1)));
        let results: Vec<_> = (0..40).map(|_| function.call((&x, &w)).expect("nobody waits yet")).collect();
        assert!(counts().replays > 10);
        let read: Vec<Result<Vec<f32>>> = results.iter().map(|(a, _)| a.to_vec::<f32>()).collect();
        let error = read.iter().find_map(|read| read.as_ref().err()).expect("one of them failed").to_string();
        assert!(error.contains("CUDA_ERROR_LAUNCH_FAILED"), "{error}");
        let error = function.call((&x, &w)).expect_err("the device stays unusable").to_string();
        assert!(error.contains("cuda:0"), "{error}");
    });
}

#[test]
fn programs_that_are_not_replayed_have_reasons() {
    fakes::with(&[], || {
        let report = |function: Binary| -> Explain {
            let compiled = compile(function);
            let (x, w) = (table(12, 12, 0), table(12, 12, 1));
            for _ in 0..12 {
                let found = compiled.call((&there(&x), &there(&w))).expect("it runs");
                assert_eq!(bits(&found), bits(&function(&x, &w).expect("the cpu computes it")));
            }
            compiled.explain()
        };
        let cases: [(Binary, &str); 2] = [
            (
                |x, w| {
                    let chain = x.matmul(w)?.unsqueeze(0)?.expand([200, 12, 12])?.reshape([200 * 144])?.cumsum(0)?;
                    chain.slice(0, 0, 144, 1)?.reshape([12, 12])?.matmul(w)
                },
                "the cpu computes a step",
            ),
            (|x, w| x.add(w)?.tanh(), "fewer than 3 kernels"),
        ];
        for (function, reason) in cases {
            let explain = report(function);
            assert!(explain.to_string().contains(reason), "{reason}: {explain}");
            assert!(explain.replay.is_some_and(|replay| replay.is_err()));
        }
        assert_eq!(counts().graphs, 0);
    });
}
