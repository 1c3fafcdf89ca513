//! Runs on a device that are counted and timed.

use crate::driver::calls_during;
use crate::fakes;
use opfuse::compile::{CompileOptions, Tuning};
use opfuse::{Device, Result, Tensor, compile, compile_with};

const GPU: Device = Device::cuda(0);

fn table(rows: usize, columns: usize) -> Tensor {
    let numbers: Vec<f32> = (0..rows * columns).map(|n| ((n * 37 + 11) % 101) as f32 / 17.0 - 2.5).collect();
    Tensor::from_slice(&numbers, &[rows, columns]).expect("memory is there")
}

fn bits(x: &Tensor) -> Vec<u32> {
    x.to_vec::<f32>().expect("it can be read").into_iter().map(f32::to_bits).collect()
}

fn layers(x: &Tensor, w: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let y = x.matmul(w)?.tanh()?.matmul(w)?.softmax(-1)?;
    x.add_(1.0)?;
    Ok((y.t()?, y, x.slice(0, 1, 3, 1)?))
}

/// The counted bytes are the modelled ones. Bits and effects are those of a call, and tensors stay on their device.
#[test]
fn counted_bytes_are_the_modelled_ones() {
    fakes::with(&[], || {
        let (x, w) = (table(5, 12), table(12, 12));
        let [there_x, there_w] = [&x, &w].map(|x| x.to_device(GPU).expect("there is a device"));
        let compiled = compile(layers);
        compiled.call((&there_x, &there_w)).expect("it runs");
        layers(&x, &w).expect("the cpu computes it");
        let ((a, b, c), traffic) = compiled.call_counted((&there_x, &there_w)).expect("it is counted");
        let (ea, eb, ec) = layers(&x, &w).expect("the cpu computes it");
        assert_eq!([&a, &b, &c].map(bits), [&ea, &eb, &ec].map(bits));
        assert_eq!(bits(&there_x), bits(&x), "the write is there");
        assert_eq!([a.device(), b.device(), c.device(), there_x.device()], [GPU; 4]);
        // Results that share memory still do.
        a.mul_(2.0).expect("it is written");
        assert_eq!(bits(&b), bits(&eb.mul(2.0).expect("the cpu computes it")));
        let explain = compiled.explain();
        assert_eq!(traffic.len(), explain.groups.len());
        for (group, counted) in explain.groups.iter().zip(&traffic) {
            assert_eq!((counted.read, counted.written), (group.bytes_read, group.bytes_written), "{explain}");
        }
    });
}

/// A graph that is tuned is timed by events in the stream, and keeps its bits.
#[test]
fn tuning_times_kernels_and_keeps_bits() {
    fakes::only(&[], || {
        let options = CompileOptions { tuning: Tuning::Measured, ..CompileOptions::default() };
        let function = |x: &Tensor| x.exp()?.sum([1], true)?.mul(x)?.softmax(-1);
        let compiled = compile_with(function, options);
        let x = table(20, 30);
        let there = x.to_device(GPU).expect("there is a device");
        let call = || {
            let found = compiled.call(&there).expect("it runs");
            assert_eq!(found.device(), GPU);
            assert_eq!(bits(&found), bits(&function(&x).expect("the cpu computes it")));
        };
        let calls = calls_during(|| (0..6).for_each(|_| call()));
        assert!(calls.iter().any(|&(name, n)| name == "cuEventElapsedTime_v2" && n > 0), "{calls:?}");
        assert!(compiled.explain().groups.iter().all(|group| group.device == Some(GPU)));
    });
}
