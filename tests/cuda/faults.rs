//! Faults that kernels find in their operands: the host does not wait for them, and gets the error before it uses a
//! wrong value.

use crate::driver::{self, calls_during};
use crate::fakes;
use opfuse::device::{Event, Stream, StreamGuard};
use opfuse::internals::runtime::cuda::{counts, reset_counts};
use opfuse::{Device, Error, Result, Tensor, compile, embedding};

const GPU: Device = Device::cuda(0);

/// Rows, and indices of them.
fn table(seed: usize) -> Tensor {
    let numbers: Vec<f32> = (0..30).map(|n| ((n * 37 + seed * 11) % 23) as f32 - 7.5).collect();
    Tensor::from_slice(&numbers, &[6, 5]).expect("memory is there")
}

fn indices(all: &[i64]) -> Tensor {
    Tensor::from_slice(all, &[all.len()]).expect("memory is there")
}

fn there(x: &Tensor) -> Tensor {
    x.to_device(GPU).expect("there is a device")
}

fn bits(x: &Tensor) -> Result<Vec<u32>> {
    Ok(x.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect())
}

/// Checks that the error names the index, the op and the device.
fn check<T>(found: Result<T>, op: &str, index: i64) {
    let error = found.err().unwrap_or_else(|| panic!("{op} tells nothing of index {index}")).to_string();
    for word in [op, "index", "cuda:0", "[0, 5]", &format!("got {index})")] {
        assert!(error.contains(word), "{word:?} is missing: {error}");
    }
}

/// Whether the host has waited for a device, or asked for a copy.
fn has_waited(calls: &[(&str, i64)]) -> bool {
    calls
        .iter()
        .any(|(name, _)| !["cuLaunchKernel", "cuGraphLaunch", "cuGraphExecKernelNodeSetParams_v2"].contains(name))
}

fn on<T>(stream: &Stream, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let _guard = StreamGuard::new(stream)?;
    work()
}

#[test]
fn a_fault_is_reported_when_a_value_is_read() {
    fakes::with(&[], || {
        let (x, x_there) = (table(1), there(&table(1)));
        let (good, bad) = (there(&indices(&[0, 5, 2])), there(&indices(&[1, 6])));
        let y = embedding(&x_there, &bad).and_then(|y| y.mul(2.0)).expect("nobody waits");
        // Values computed from a wrong one are wrong too.
        let z = y.sum([0], false).and_then(|y| y.exp()).expect("nobody waits");
        check(bits(&z), "embedding", 6);
        // The error is reported once, and the stream goes on.
        assert!(bits(&z).is_ok());
        let rows = |x: &Tensor, at: &Tensor| x.index_select(0, at).and_then(|y| bits(&y));
        assert_eq!(rows(&x_there, &good), rows(&x, &indices(&[0, 5, 2])));
        check(rows(&x_there, &bad), "index_select", 6);
        check(rows(&x_there, &there(&indices(&[0, -7, 2]))), "index_select", -7);
        assert_eq!(bits(&x_there), bits(&x), "operands are as they were");
        // Elements at out-of-range indices are zeros.
        let y = x_there.index_select(0, &bad).expect("nobody waits");
        check(bits(&y), "index_select", 6);
        let expected = x.index_select(0, &indices(&[1])).and_then(|y| bits(&y)).expect("the cpu reads it");
        assert_eq!(bits(&y).expect("it was told"), [&expected[..], &[0; 5]].concat());
        // Reading one number, printing, and copying read values, too.
        check(x_there.index_select(0, &bad).and_then(|y| y.sum((), false)?.item::<f32>()), "index_select", 6);
        check(x_there.index_select(0, &bad).and_then(|y| y.to_device(Device::CPU)), "index_select", 6);
        if !fakes::on_device() {
            check(x_there.index_select(0, &bad).and_then(|y| y.to_device(Device::cuda(1))), "index_select", 6);
        }
    });
}

#[test]
fn a_fault_is_reported_when_the_host_has_waited() {
    fakes::with(&[], || {
        let x = there(&table(1));
        let bad = there(&indices(&[1, 6]));
        let stream = Stream::current(GPU).expect("there is one");
        let y = embedding(&x, &bad).expect("nobody waits");
        check(stream.synchronize(), "embedding", 6);
        assert_eq!(stream.synchronize(), Ok(()));
        assert!(bits(&y).is_ok());
        let event = Event::new();
        let y = x.index_select(0, &bad).expect("nobody waits");
        event.record(&stream).expect("the device is there");
        check(event.synchronize(), "index_select", 6);
        assert_eq!(event.synchronize(), Ok(()));
        drop(y);
        let n = there(&indices(&[3, 0]));
        let y = n.remainder(&n).expect("nobody waits");
        let error = stream.synchronize().expect_err("it is told").to_string();
        assert!(error.contains("ZeroDivisionError") && error.contains("cuda:0"), "{error}");
        assert_eq!(y.to_vec::<i64>(), Ok(vec![0, 0]));
        // The first fault is named.
        x.index_select(0, &bad).and_then(|_| n.remainder(&n)).expect("nobody waits");
        check(stream.synchronize(), "index_select", 6);
        assert_eq!(stream.synchronize(), Ok(()));
    });
}

#[test]
fn a_fault_is_reported_at_a_later_launch() {
    fakes::only(&[], || {
        let x = there(&table(1));
        let (good, bad) = (there(&indices(&[0, 5, 2])), there(&indices(&[1, 6])));
        let call = |at: &Tensor| embedding(&x, at).and_then(|y| y.mul(2.0));
        (0..3).for_each(|_| drop(call(&good).expect("it runs")));
        let calls = calls_during(|| drop(call(&bad).expect("nobody waits")));
        assert!(!has_waited(&calls), "{calls:?}");
        let calls = calls_during(|| drop(call(&good).expect("nothing has run yet")));
        assert!(!has_waited(&calls), "{calls:?}");
        driver::run_all();
        // The reporting call starts nothing.
        let calls = calls_during(|| check(call(&good), "embedding", 6));
        assert!(calls.iter().all(|&(name, _)| name != "cuLaunchKernel"), "{calls:?}");
        assert!(call(&good).and_then(|y| bits(&y)).is_ok());
        // An operand that would be written to keeps its values.
        drop(call(&bad).expect("nobody waits"));
        driver::run_all();
        check(x.mul_(3.0), "embedding", 6);
        assert_eq!(bits(&x), bits(&table(1)));
    });
}

/// Several kernels, one of which reads at indices and one of which divides.
fn layers(x: &Tensor, at: &Tensor) -> Result<Tensor> {
    let rows = embedding(x, at)?.add(1.0)?.tanh()?;
    let left = at.remainder(4)?.to_dtype(opfuse::DType::F32)?;
    rows.matmul(&x.t()?)?.softmax(-1)?.matmul(x)?.cumsum(0)?.add(&left.unsqueeze(1)?)
}

#[test]
fn compiled_and_replayed_calls_report_faults() {
    fakes::with(&[], || {
        let (x, good) = (table(1), indices(&[0, 5, 2]));
        let (x_there, good_there, bad) = (there(&x), there(&good), there(&indices(&[4, 77, 1])));
        let expected = layers(&x, &good).and_then(|y| bits(&y));
        let function = compile(layers);
        check(function.call((&x_there, &bad)).and_then(|y| bits(&y)), "embedding", 77);
        reset_counts();
        for call in 0..40 {
            assert_eq!(function.call((&x_there, &good_there)).and_then(|y| bits(&y)), expected, "call {call}");
            if call % 7 == 3 {
                check(function.call((&x_there, &bad)).and_then(|y| bits(&y)), "embedding", 77);
            }
        }
        let counts = counts();
        assert!(counts.graphs == 1 && counts.replays > 30 && counts.fallbacks.is_empty(), "{counts:?}");
        if fakes::on_device() {
            return;
        }
        let calls = calls_during(|| {
            for _ in 0..5 {
                drop(function.call((&x_there, &good_there)).expect("it runs"));
            }
        });
        assert_eq!(calls, [("cuGraphLaunch", 5)], "the record stays where it is");
        let calls = calls_during(|| drop(function.call((&x_there, &bad)).expect("nobody waits")));
        assert!(!has_waited(&calls), "{calls:?}");
        driver::run_all();
        check(function.call((&x_there, &good_there)), "embedding", 77);
        assert_eq!(function.call((&x_there, &good_there)).and_then(|y| bits(&y)), expected);
    });
}

/// A function that reads a value gets the error at that read.
#[test]
fn a_fault_is_reported_at_a_graph_break() {
    fakes::with(&[], || {
        let function = compile(|x: &Tensor, at: &Tensor| {
            let rows = embedding(x, at)?;
            let most = rows.amax((), false)?.item::<f32>()?;
            rows.mul(most)
        });
        let (x, good, bad) = (there(&table(1)), there(&indices(&[0, 5])), there(&indices(&[6, 0])));
        for _ in 0..4 {
            check(function.call((&x, &bad)), "embedding", 6);
            assert!(function.call((&x, &good)).and_then(|y| bits(&y)).is_ok());
        }
    });
}

#[test]
fn a_fault_is_reported_on_its_own_stream() {
    fakes::with(&[], || {
        let streams = [0, 1].map(|_| Stream::new(GPU).expect("there is one"));
        let operands =
            |stream| on(stream, || Ok((there(&table(1)), there(&indices(&[1, 6])), there(&indices(&[1, 5])))));
        let [(x, bad, _), (other_x, _, good)] = streams.each_ref().map(|stream| operands(stream).expect("it is there"));
        let faulty = on(&streams[0], || x.index_select(0, &bad)).expect("nobody waits");
        let right = on(&streams[1], || other_x.index_select(0, &good)).expect("nobody waits");
        assert_eq!(
            on(&streams[1], || bits(&right)),
            table(1).index_select(0, &indices(&[1, 5])).and_then(|y| bits(&y))
        );
        assert_eq!(streams[1].synchronize(), Ok(()));
        check(streams[0].synchronize(), "index_select", 6);
        assert_eq!(streams[0].synchronize(), Ok(()));
        drop(faulty);

        // Another stream uses the value: it has waited for the stream that computed it.
        let faulty = on(&streams[0], || x.index_select(0, &bad)).expect("nobody waits");
        let more = on(&streams[1], || faulty.add(1.0)).expect("nobody waits");
        check(on(&streams[1], || bits(&more)), "index_select", 6);
        assert_eq!(streams.each_ref().map(Stream::synchronize), [Ok(()), Ok(())]);
        // After that event the two streams are independent.
        let faulty = on(&streams[0], || x.index_select(0, &bad)).expect("nobody waits");
        assert_eq!(streams[1].synchronize(), Ok(()));
        assert!(on(&streams[1], || other_x.add(1.0).and_then(|y| bits(&y))).is_ok());
        // A third stream gets it through the second.
        let third = Stream::new(GPU).expect("there is one");
        let more = on(&streams[1], || faulty.add(1.0)).expect("nobody waits");
        let last = on(&third, || more.add(1.0)).expect("nobody waits");
        check(on(&third, || bits(&last)), "index_select", 6);
    });
}

/// The stream that computed a value may have been dropped.
#[test]
fn faults_of_dropped_streams_are_reported() {
    fakes::with(&[], || {
        for round in 0..60 {
            let stream = Stream::new(GPU).expect("there is one");
            let faulty = || there(&table(1)).index_select(0, &there(&indices(&[1, 6])));
            let y = on(&stream, faulty).expect("nobody waits");
            if round % 3 == 0 {
                drop(y);
                drop(stream);
                continue;
            }
            drop(stream);
            check(bits(&y), "index_select", 6);
            assert!(bits(&y).is_ok());
        }
        if !fakes::on_device() {
            let [records] = driver::calls(["cuMemHostAlloc"]);
            assert!(records < 10, "records are used again, but memory was asked for {records} times");
        }
    });
}

/// Each thread that has used the stream gets the error, so that none uses a wrong value. Threads that use it later do
/// not.
#[test]
fn each_thread_of_a_stream_gets_the_error() {
    fakes::with(&[], || {
        let x = there(&table(1));
        let (good, bad) = (there(&indices(&[0, 5, 2])), there(&indices(&[1, 6])));
        let expected = table(1).index_select(0, &indices(&[0, 5, 2])).and_then(|y| bits(&y)).expect("the cpu reads it");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (x, good, bad, expected) = (&x, &good, &bad, &expected);
                scope.spawn(move || {
                    for call in 0..30 {
                        if call % 5 == thread {
                            // This thread gets the error before it has a value, or has got it in one of its calls.
                            check(x.index_select(0, bad).and_then(|y| bits(&y)), "index_select", 6);
                        }
                        match x.index_select(0, good).and_then(|y| bits(&y)) {
                            Ok(found) => assert_eq!(found, *expected, "thread {thread}, call {call}"),
                            told => check(told, "index_select", 6),
                        }
                    }
                });
            }
        });
        // The threads have reported everything that was launched before.
        let _ = Stream::current(GPU).and_then(|stream| stream.synchronize());
        let late = std::thread::scope(|scope| scope.spawn(|| x.add(1.0).and_then(|y| bits(&y))).join());
        assert!(late.expect("it ends").is_ok());
        // A thread that has not used the stream reads what another thread has computed.
        let y = x.index_select(0, &bad).expect("nobody waits");
        let read = std::thread::scope(|scope| scope.spawn(|| bits(&y)).join());
        check(read.expect("it ends"), "index_select", 6);
        check(bits(&y), "index_select", 6);
        assert!(bits(&y).is_ok());
    });
}

#[test]
fn gradients_of_an_embedding_report_faults() {
    fakes::with(&[], || {
        let gradient = |x: &Tensor, at: &Tensor| -> Result<Tensor> {
            let x = x.detach()?;
            x.set_requires_grad(true)?;
            embedding(&x, at)?.tanh()?.sum((), false)?.backward()?;
            x.grad().ok_or_else(|| Error::Internal { message: "a leaf has a gradient".into() })
        };
        let x = table(1);
        let x_there = there(&x);
        for at in [&[0, 5, 2, 5][..], &[3], &[1; 40]] {
            let (here, at_there) = (indices(at), there(&indices(at)));
            assert_eq!(
                gradient(&x_there, &at_there).and_then(|y| bits(&y)),
                gradient(&x, &here).and_then(|y| bits(&y)),
                "{at:?}"
            );
        }
        let good = there(&indices(&[0, 5, 2]));
        (0..3).for_each(|_| drop(gradient(&x_there, &good).expect("it runs")));
        if !fakes::on_device() {
            let calls = calls_during(|| drop(gradient(&x_there, &good).expect("it runs")));
            assert!(!has_waited(&calls), "{calls:?}");
        }
        check(gradient(&x_there, &there(&indices(&[0, 9]))).and_then(|y| bits(&y)), "embedding", 9);
    });
}

/// A write in place writes the elements with valid indices, and touches nothing else.
#[test]
fn writes_at_invalid_indices_are_left_out() {
    fakes::with(&[], || {
        let (x, bad) = (there(&table(1)), there(&indices(&[1, 6, -1])));
        let source = there(&Tensor::full(&[3, 5], 1.0f32, None).expect("memory is there"));
        let y = x.index_add(0, &bad, &source).expect("nobody waits");
        let error = bits(&y).expect_err("it is told").to_string();
        assert!(error.contains("cuda:0") && error.contains("index"), "{error}");
        let mut expected = table(1).to_vec::<f32>().expect("it is read");
        expected[5..10].iter_mut().for_each(|number| *number += 1.0);
        assert_eq!(y.to_vec::<f32>(), Ok(expected));
        assert_eq!(bits(&x), bits(&table(1)));
    });
}
