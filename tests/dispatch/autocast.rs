//! Mixed precision (lines 138, 139).

use crate::assert_error;
use opfuse::device::DeviceKind;
use opfuse::nn::Reduction;
use opfuse::{AutocastState, autocast_on, no_autocast_on};
use opfuse::{DType, Result, Tensor, cat, compile, stack};
use opfuse::{autocast, no_autocast};

fn ones(dtype: DType) -> Tensor {
    Tensor::ones(&[2, 2], dtype).expect("ones")
}

fn dtype(result: Result<Tensor>) -> DType {
    result.unwrap_or_else(|error| panic!("{error}")).dtype()
}

#[test]
fn n138_products_are_lowered_and_the_rest_promotes() {
    let (x, low, wide) = (ones(DType::F32), ones(DType::BF16), ones(DType::F64));
    let bias = Tensor::ones(&[2], DType::F32).expect("ones");
    let _guard = autocast(DType::BF16).expect("bf16");
    for result in [x.mm(&x), x.matmul(&x), x.linear(&x, Some(&bias)), x.addmm(&x, &x), x.mm(&low)] {
        assert_eq!(dtype(result), DType::BF16);
    }
    let batch = x.unsqueeze(0).expect("a dim");
    assert_eq!(dtype(batch.bmm(&batch)), DType::BF16);
    assert_eq!(dtype(batch.baddbmm(&batch, &batch)), DType::BF16);
    assert_eq!(dtype(x.add(&x)), DType::F32);
    assert_eq!(dtype(low.add(&x)), DType::F32);
    assert_eq!(dtype(cat(&[&low, &x], 0)), DType::F32);
    assert_eq!(dtype(cat(&[&low, &low], 0)), DType::BF16);
    assert_eq!(dtype(stack(&[&low, &x], 0)), DType::F32);
    assert_eq!(dtype(wide.matmul(&wide)), DType::F64);
    assert_eq!(dtype(low.prod(0, false)), DType::F32);
    assert_eq!(dtype(low.mse_loss(&low, Reduction::Mean)), DType::F32);
    // On the CPU these keep their dtype.
    assert_eq!(dtype(low.exp()), DType::BF16);
    assert_eq!(dtype(low.sum([0], false)), DType::BF16);
}

#[test]
fn n139_scopes_nest() {
    let x = ones(DType::F32);
    let product = || dtype(x.mm(&x));
    assert_eq!(product(), DType::F32);
    {
        let _outer = autocast(DType::BF16).expect("bf16");
        assert_eq!(product(), DType::BF16);
        {
            let _inner = no_autocast();
            assert_eq!(product(), DType::F32);
            let _innermost = autocast(DType::F16).expect("f16");
            assert_eq!(product(), DType::F16);
        }
        assert_eq!(product(), DType::BF16);
        let _cpu = no_autocast_on(DeviceKind::Cpu).expect("it has autocast");
        assert_eq!(product(), DType::F32);
        assert_eq!(AutocastState::current().dtype(DeviceKind::Cuda), Some(DType::BF16));
    }
    assert_eq!(product(), DType::F32);
    let _other = autocast_on(DeviceKind::Cuda, DType::F16).expect("it has autocast");
    assert_eq!(product(), DType::F32);
}

#[test]
fn n139_gradients_of_f32_weights_are_f32() {
    let (x, w) = (ones(DType::F32), ones(DType::F32));
    w.set_requires_grad(true).expect("a leaf");
    let _guard = autocast(DType::BF16).expect("bf16");
    let product = x.mm(&w).expect("a product");
    assert_eq!(product.dtype(), DType::BF16);
    product.sum((), false).and_then(|sum| sum.backward()).expect("a way back");
    assert_eq!(w.grad().expect("a gradient").dtype(), DType::F32);
    assert_eq!(w.grad().expect("a gradient").to_vec::<f32>(), Ok(vec![2.0; 4]));
}

#[test]
fn only_16_bit_floats_are_lower() {
    assert_error(autocast(DType::F32), &["autocast", "found dtype f32", "bf16 or f16"]);
    assert_error(autocast_on(DeviceKind::Meta, DType::F16), &["meta", "no autocast"]);
    assert_eq!(AutocastState::current(), AutocastState::default());
}

#[test]
fn compiled_functions_obey_the_scope_of_the_call() {
    let product = compile(|a: &Tensor, b: &Tensor| a.mm(b)?.add(b));
    let (a, b) = (ones(DType::F32), ones(DType::F32));
    let both = || product.call((&a, &b));
    assert_eq!(dtype(both()), DType::F32);
    let eager = {
        let _guard = autocast(DType::BF16).expect("bf16");
        (dtype(a.mm(&b)), dtype(both()), product.to_dot().contains("bf16"))
    };
    assert_eq!(eager, (DType::BF16, DType::F32, true));
    assert_eq!(product.counts().entries, 2);
    both().expect("compiled before");
    assert_eq!(product.counts().entries, 2);
}
