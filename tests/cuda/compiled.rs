//! Compiled functions on a device: the bits of the CPU, kernels on the device, and reasons for what runs elsewhere.

use crate::fakes;
use opfuse::autograd::no_grad;
use opfuse::internals::runtime::cuda::{counts, reset_counts};
use opfuse::{DType, Device, Explain, Result, Tensor, compile};

const GPU: Device = Device::cuda(0);

fn table(rows: usize, columns: usize) -> Tensor {
    let numbers: Vec<f32> = (0..rows * columns).map(|n| ((n * 37 + 11) % 101) as f32 / 17.0 - 2.5).collect();
    Tensor::from_slice(&numbers, &[rows, columns]).expect("memory is there")
}

fn bits(x: &Tensor) -> Vec<u32> {
    x.to_vec::<f32>().expect("it can be read").into_iter().map(f32::to_bits).collect()
}

/// Calls a function on the CPU, compiled on the device twice, and eagerly there; its report.
fn check(name: &str, function: fn(&Tensor, &Tensor) -> Result<Tensor>, x: &Tensor, y: &Tensor) -> Explain {
    let expected = function(x, y).unwrap_or_else(|error| panic!("{name}: {error}"));
    let [a, b] = [x, y].map(|x| x.to_device(GPU).expect("there is a device"));
    let compiled = compile(function);
    for call in 0..3 {
        let found = compiled.call((&a, &b)).unwrap_or_else(|error| panic!("{name}, call {call}: {error}"));
        assert_eq!((found.device(), bits(&found)), (GPU, bits(&expected)), "{name}, call {call}");
    }
    let eager = function(&a, &b).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(bits(&eager), bits(&expected), "{name}");
    let explain = compiled.explain();
    assert!(explain.eager.is_none(), "{name}: {explain}");
    explain
}

#[test]
fn functions_have_the_bits_of_the_cpu() {
    fakes::with(&[], || {
        let (x, y) = (table(7, 50), table(1, 50));
        let chain = check("chain", |x, y| ((x * y)? + 1.0)?.tanh()?.maximum(y), &x, &y);
        assert_eq!((chain.kernels_after, chain.groups[0].device), (1, Some(GPU)), "{chain}");
        assert!(chain.to_string().contains("[cuda:0]"), "{chain}");

        let softmax = check("softmax", |x, y| (x + y)?.softmax(-1), &x, &y);
        assert_eq!((softmax.kernels_after, softmax.groups[0].device), (1, Some(GPU)), "{softmax}");

        let norm = |x: &Tensor, y: &Tensor| x.layer_norm([50], Some(y), None, 1e-5);
        check("layer norm", norm, &x, &table(1, 50).reshape([50]).expect("it has 50 elements"));
        check("views", |x, y| x.t()?.reshape([50, 7])?.t()?.add(&y.slice(1, 0, 50, 1)?.exp()?), &x, &y);
        check("made there", |x, _| x.add(&x.ones_like()?)?.mul(&Tensor::zeros_like(x)?.add(3.0)?), &x, &y);

        reset_counts();
        let product = check("product", |x, y| x.matmul(&y.t()?)?.relu()?.add(1.0), &x, &y);
        assert!(product.groups.iter().all(|group| group.device == Some(GPU)), "{product}");
        assert_eq!(counts().fallbacks, []);
        let sums = check(
            "a long chain",
            |x, _| x.unsqueeze(0)?.expand([60, 7, 50])?.reshape([21_000])?.cumsum(0)?.add(1.0),
            &x,
            &y,
        );
        assert!(sums.to_string().contains("each is sequential"), "{sums}");
        assert_eq!(counts().fallbacks.len(), 1);
        let gathered = check(
            "gather",
            |x, y| x.index_select(0, &y.slice(1, 0, 3, 1)?.mul(0.0)?.to_dtype(DType::I64)?.reshape([3])?),
            &x,
            &y,
        );
        assert!(gathered.groups.iter().all(|group| group.device == Some(GPU)), "{gathered}");
    });
}

#[test]
fn gradients_run_on_the_device() {
    fakes::with(&[], || {
        let function = |x: &Tensor, w: &Tensor| (x * w)?.sigmoid()?.square()?.sum_all();
        let gradients = |device: Device, compiled: bool| -> Result<Vec<Vec<u32>>> {
            let leaves = [table(4, 9), table(1, 9)].map(|x| x.to_device(device).expect("it is there"));
            for leaf in &leaves {
                leaf.set_requires_grad(true)?;
            }
            let [x, w] = &leaves;
            for _ in 0..2 {
                let loss = if compiled { compile(function).call((x, w))? } else { function(x, w)? };
                loss.backward()?;
            }
            let _none = no_grad();
            Ok(leaves.iter().map(|leaf| bits(&leaf.grad().expect("it got one"))).collect())
        };
        let expected = gradients(Device::CPU, false).expect("the cpu works");
        for compiled in [false, true] {
            assert_eq!(gradients(GPU, compiled).as_ref(), Ok(&expected), "compiled: {compiled}");
        }
    });
}

#[test]
fn writes_and_draws_are_those_of_the_cpu() {
    fakes::with(&[], || {
        let run = |device: Device| -> Result<Vec<Vec<u32>>> {
            opfuse::manual_seed(7);
            let x = table(3, 5).to_device(device)?;
            let part = x.select(0, 1)?;
            part.mul_(10.0)?;
            x.add_(&x.t()?.contiguous()?.reshape([3, 5])?)?;
            x.i((.., 2))?.copy_(&Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3])?)?;
            let noise = Tensor::rand_like(&x)?;
            let normal = Tensor::randn_like(&x)?;
            let drawn = compile(|x: &Tensor| x.add(&Tensor::rand_like(x)?));
            let (first, second) = (drawn.call(&x)?, drawn.call(&x)?);
            assert_ne!(bits(&first), bits(&second));
            Ok([x, noise, normal, first, second].iter().map(bits).collect())
        };
        assert_eq!(run(GPU), run(Device::CPU));
    });
}

#[test]
fn tensors_of_two_devices_are_not_one_executable() {
    fakes::with(&[], || {
        let x = table(2, 3);
        let there = x.to_device(GPU).expect("there is a device");
        let both = compile(|a: &Tensor, b: &Tensor| Ok::<_, opfuse::Error>((a.add(a)?, b.mul(2.0)?)));
        for _ in 0..2 {
            let (a, b) = both.call((&there, &x)).expect("each runs where it is");
            assert_eq!((a.device(), b.device()), (GPU, Device::CPU));
            assert_eq!(
                (bits(&a), bits(&b)),
                (bits(&x.add(&x).expect("it adds")), bits(&x.mul(2.0).expect("it doubles")))
            );
        }
        let reasons: Vec<String> = both.breaks().iter().map(|known| known.reason.to_string()).collect();
        assert!(reasons.iter().any(|reason| reason.contains("of cuda:0 and of cpu")), "{reasons:?}");
    });
}
