//! Meta tensors and traces (lines 141, 142).

use crate::assert_error;
use opfuse::{DType, Device, Reason, Result, Tensor, cat, compile};

type Calls = &'static [fn(&Tensor, &Tensor) -> Result<Tensor>];

/// Calls of every kind of op, on a matrix of 4 by 6 and a row of 6.
const CALLS: Calls = &[
    |x, y| x.add(y),
    |x, y| y.sub(x),
    |x, y| x.div(y)?.exp()?.relu(),
    |x, y| x.gt(y)?.where_(x, y),
    |x, _| x.to_dtype(DType::I32)?.add(1.5),
    |x, _| x.clamp_min(0.25),
    |x, y| x.t()?.add(&y.unsqueeze(1)?),
    |x, _| x.slice(1, 1, None, 2)?.neg(),
    |x, _| x.sum([0], false),
    |x, _| x.mean((), true),
    |x, _| x.argmax(-1, true),
    |x, _| x.softmax(0)?.log_softmax(1),
    |x, y| x.layer_norm([6], Some(y), Some(y), 1e-5),
    |x, _| x.mm(&x.t()?),
    |x, y| x.matmul(y),
    |x, _| x.reshape([2, 12])?.unsqueeze(0)?.expand([3, 2, 12]),
    |x, y| cat(&[x, &y.unsqueeze(0)?], 0),
    |x, _| x.tril(1),
    |x, _| x.var([1], 0, true),
    |x, _| x.full_like(3),
];

#[test]
fn n142_meta_results_have_the_type_of_real_ones() {
    let matrix = Tensor::arange_of(0, 24, 1, DType::F32).and_then(|x| x.view([4, 6])).expect("a matrix");
    let row = Tensor::arange_of(1, 7, 1, DType::F32).expect("a row");
    let wide = Tensor::arange_of(0, 96, 1, DType::F32).and_then(|x| x.view([8, 12])).expect("a matrix");
    let layouts = [
        matrix.clone(),
        matrix.view([6, 4]).and_then(|x| x.t()).expect("a view"),
        wide.slice(0, 0, 8, 2).and_then(|x| x.slice(1, 0, 12, 2)).expect("a view"),
        row.unsqueeze(0).and_then(|x| x.expand([4, 6])).expect("a view"),
    ];
    for x in &layouts {
        let (meta_x, meta_row) =
            (x.to_device(Device::META).expect("types"), row.to_device(Device::META).expect("types"));
        for (index, call) in CALLS.iter().enumerate() {
            let real = call(x, &row).unwrap_or_else(|error| panic!("call {index}: {error}"));
            let meta = call(&meta_x, &meta_row).unwrap_or_else(|error| panic!("call {index}: {error}"));
            assert_eq!(meta.ty(), real.ty(), "call {index} on strides {:?}", x.strides());
            assert!(meta.device() == Device::META && !meta.has_data());
        }
    }
}

#[test]
fn n142_meta_tensors_have_no_data() {
    let x = Tensor::ones(&[1], DType::F32).and_then(|x| x.to_device(Device::META)).expect("a type");
    assert_error(x.item::<f32>(), &["item", "Cannot copy out of meta tensor; no data!"]);
    assert_error(x.to_vec::<f32>(), &["Cannot copy out of meta tensor; no data!"]);
    assert_error(x.to_device(Device::CPU), &["Cannot copy out of meta tensor; no data!"]);
    let y = Tensor::ones(&[1], DType::F32).expect("ones");
    assert_error(x.add(&y), &["expected all tensors on meta", "found one on cpu"]);
}

#[test]
fn n141_a_trace_lists_calls_with_their_arguments() {
    let x = Tensor::ones(&[2], DType::F32).expect("ones");
    let f = compile(|x: &Tensor| x.add(1)?.mul(2));
    f.call(&x).expect("a result");
    let dot = f.to_dot();
    assert!(dot.contains("add") && dot.contains("mul"), "{dot}");
    // Reading a bool from a traced tensor is reported, and the function runs in segments.
    let f = compile(|x: &Tensor| if x.gt(0.0)?.all((), false)?.item::<bool>()? { x.neg() } else { x.exp() });
    f.call(&x).expect("a result");
    assert_eq!(f.breaks()[0].reason, Reason::ReadsValue { op: "item".into() });
}
