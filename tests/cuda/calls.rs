//! The driver calls of a repeated call: it starts its kernels, and does nothing else.

use crate::driver::{calls_during, leave_context};
use crate::fakes;
use opfuse::device::{Stream, StreamGuard};
use opfuse::{DType, Device, Result, Tensor, compile};

const GPU: Device = Device::cuda(0);

fn table(rows: usize, columns: usize) -> Tensor {
    let numbers: Vec<f32> = (0..rows * columns).map(|n| ((n * 37 + 11) % 101) as f32 / 17.0 - 2.5).collect();
    Tensor::from_slice(&numbers, &[rows, columns]).expect("memory is there")
}

fn there(x: &Tensor) -> Tensor {
    x.to_device(GPU).expect("there is a device")
}

fn bits(x: &Tensor) -> Vec<u32> {
    x.to_vec::<f32>().expect("it can be read").into_iter().map(f32::to_bits).collect()
}

/// The driver calls of the twentieth call are exactly these.
fn check(name: &str, expected: &[(&str, i64)], call: impl Fn() -> Result<()>) {
    for _ in 0..19 {
        call().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let calls = calls_during(|| call().unwrap_or_else(|error| panic!("{name}: {error}")));
    assert_eq!(calls, expected, "{name}");
}

/// Products and kernels between them.
fn layers(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    x.matmul(w)?.add(1.0)?.tanh()?.matmul(w)?.softmax(-1)?.matmul(w)
}

#[test]
fn repeated_calls_only_start_kernels() {
    fakes::only(&[], || {
        let (x, w) = (table(9, 12), table(12, 12));
        let [x, w] = [&x, &w].map(there);
        let once = [("cuLaunchKernel", 1)];
        check("add", &once, || x.add(&x).map(drop));
        check("a number", &once, || x.mul(2.5).map(drop));
        let n = std::cell::Cell::new(0.5f32);
        check("another number each time", &once, || x.sub(n.replace(n.get() + 1.0)).map(drop));
        check("a sum", &once, || x.sum([0], false).map(drop));
        check("softmax", &once, || x.softmax(-1).map(drop));
        check("a product", &once, || x.matmul(&w).map(drop));
        check("a comparison", &once, || x.lt(0.25).map(drop));
        check("a write", &once, || x.mul_(1.0).map(drop));
        check("a write of a number", &once, || x.t()?.slice(0, 1, 3, 1)?.fill_(0.5).map(drop));
        let index = Tensor::from_slice(&[2i64, 0, 8, 8], &[4]).map(|x| there(&x)).expect("memory is there");
        check("rows at indices", &once, || x.index_select(0, &index).map(drop));
        check("an embedding", &once, || opfuse::embedding(&x, &index).map(drop));
        check("a division of integers", &once, || index.remainder(3).map(drop));
        check("a write at indices", &[("cuLaunchKernel", 3)], || {
            x.index_add(0, &index, &x.slice(0, 0, 4, 1)?).map(drop)
        });
        check("views", &[], || x.t()?.slice(0, 1, 3, 1).map(drop));

        let compiled = compile(|x: &Tensor, w: &Tensor| x.matmul(w)?.add(3.0));
        check("two kernels", &[("cuLaunchKernel", 2)], || compiled.call((&x, &w)).map(drop));
        let compiled = compile(layers);
        check("a graph", &[("cuGraphLaunch", 1)], || compiled.call((&x, &w)).map(drop));

        // New addresses are set in the kernels that use them: one kernel reads the input.
        let other = there(&table(9, 12));
        compiled.call((&other, &w)).expect("it runs, with its result in other memory too");
        let calls = calls_during(|| drop(compiled.call((&x, &w)).expect("it runs")));
        assert_eq!(calls, [("cuGraphExecKernelNodeSetParams_v2", 1), ("cuGraphLaunch", 1)]);
    });
}

/// Another library on the same thread may make its own context current.
#[test]
fn calls_work_after_another_library_changed_the_context() {
    fakes::only(&[], || {
        let x = table(3, 5);
        let there_x = there(&x);
        let on_second = x.to_device(Device::cuda(1)).expect("there is a second device");
        let add = |x: &Tensor| drop(x.add(x).expect("it runs"));
        [&there_x, &on_second].into_iter().for_each(add);
        for device in [&there_x, &on_second, &there_x] {
            let calls = calls_during(|| add(device));
            assert_eq!(calls, [("cuCtxSetCurrent", 1), ("cuLaunchKernel", 1)], "{}", device.device());
        }
        leave_context();
        let calls = calls_during(|| add(&there_x));
        assert_eq!(calls, [("cuCtxSetCurrent", 1), ("cuLaunchKernel", 2)], "the first one was refused");
        leave_context();
        let stream = Stream::new(GPU).expect("there is one");
        let _guard = StreamGuard::new(&stream).expect("the device is there");
        assert_eq!(bits(&there_x.add(&there_x).expect("it runs")), bits(&x.add(&x).expect("it adds")));
        leave_context();
        assert_eq!(bits(&there_x), bits(&x));
    });
}

/// Two streams that share memory wait for each other, which takes events. A stream alone takes none.
#[test]
fn streams_that_share_nothing_take_no_events() {
    fakes::only(&[], || {
        let x = table(3, 5);
        let streams = [0, 1].map(|_| Stream::new(GPU).expect("there is one"));
        let on = |stream: &Stream| {
            let _guard = StreamGuard::new(stream).expect("the device is there");
            there(&x)
        };
        let apart = streams.each_ref().map(on);
        let call = || {
            for (stream, x) in streams.iter().zip(&apart) {
                let _guard = StreamGuard::new(stream)?;
                x.add(x)?.mul(2.0)?;
            }
            Ok(())
        };
        check("two streams", &[("cuLaunchKernel", 4)], call);
    });
}

/// Numbers are part of the launch, whatever their dtype and that of the tensors, and are those of the call.
#[test]
fn numbers_are_those_of_the_call() {
    fakes::with(&[], || {
        use DType::{BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8};
        let x = table(4, 9);
        let [whole, fraction] = [[1i64, -3, 100], [7, 0, -1]];
        for dtype in [Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64] {
            let x = x.to_dtype(dtype).expect("it is converted");
            let there_x = there(&x);
            for n in whole.into_iter().chain(fraction) {
                let same = |name: &str, of: &dyn Fn(&Tensor) -> Result<Tensor>| {
                    let values = |x: &Tensor| of(x)?.to_dtype(F64)?.to_vec::<f64>();
                    let bits = |x: &Tensor| values(x).map(|all| all.into_iter().map(f64::to_bits).collect::<Vec<_>>());
                    let device = of(&there_x).map(|y| (y.device(), y.dtype()));
                    assert_eq!(device, of(&x).map(|y| (GPU, y.dtype())), "{name} of {dtype} and {n}");
                    assert_eq!(bits(&there_x), bits(&x), "{name} of {dtype} and {n}");
                };
                same("add", &|x| x.add(n));
                same("mul", &|x| x.mul(n as f32 / 4.0));
                same("lt", &|x| x.lt(n as f64 / 3.0));
                same("where", &|x| x.gt(0)?.where_(x, &Tensor::scalar(n)?));
                same("of rows", &|x| x.add(n)?.sum([1], true)?.sub(n));
                same("of a tensor", &|x| x.add(&Tensor::scalar(n as f32)?.to_dtype(dtype)?));
                same("filled", &|x| {
                    let y = x.mul(1)?;
                    y.slice(1, 2, 9, 3)?.fill_(n).map(|()| y)
                });
            }
        }
        let compiled = compile(|x: &Tensor, n: &Tensor| x.mul(n)?.sum([1], true)?.add(n));
        for n in 0..20 {
            let n = Tensor::scalar(n as f32 * 0.75).expect("memory is there");
            let found = compiled.call((&there(&x), &n)).expect("it runs");
            let expected = x.mul(&n).and_then(|y| y.sum([1], true)?.add(&n)).expect("the cpu computes it");
            assert_eq!(bits(&found), bits(&expected));
        }
    });
}
