//! Tensors as text.

use half::f16;
use opfuse::Element;
use opfuse::ir::TensorType;
use opfuse::{DType, Tensor};

fn tensor<T: Element>(data: &[T], sizes: &[usize]) -> Tensor {
    Tensor::from_slice(data, sizes).expect("the data fits the sizes")
}

/// 0, 1, 2, … as f32.
fn counting(sizes: &[usize]) -> Tensor {
    let data: Vec<f32> = (0..sizes.iter().product::<usize>()).map(|i| i as f32).collect();
    tensor(&data, sizes)
}

#[test]
fn tensors_print_as_in_numpy() {
    let shows = |found: &Tensor, expected: &str| assert_eq!(found.to_string(), expected);
    shows(&tensor(&[1f32, 2.5, -3.], &[3]), "[ 1.   2.5 -3. ]");
    shows(&counting(&[2, 2]), "[[0. 1.]\n [2. 3.]]");
    shows(&counting(&[2, 1, 2]), "[[[0. 1.]]\n\n [[2. 3.]]]");
    shows(&counting(&[2, 2]).t().expect("a matrix"), "[[0. 2.]\n [1. 3.]]");
    shows(&tensor(&[1i64, -20, 300], &[3]), "[  1 -20 300]");
    shows(&tensor(&[true, false], &[2]), "[ true false]");
    shows(&tensor(&[true, true], &[2]), "[ true  true]");
    shows(&tensor(&[0.1f32, 1. / 3.], &[2]), "[0.1        0.33333334]");
    shows(&tensor(&[f16::from_f32(0.1)], &[1]), "[0.1]");
    shows(&tensor(&[1e-5f32, 1.5], &[2]), "[1.0e-05 1.5e+00]");
    // A number with fewer digits than its neighbour is padded with its own further digits.
    let halves = tensor(&[f16::from_f32(0.0994), f16::from_f32(0.5664), f16::from_bits(3)], &[3]);
    shows(&halves, "[9.943e-02 5.664e-01 1.788e-07]");
    shows(&tensor(&[-0.083935715f32, 0.99779993], &[2]), "[-0.08393572  0.99779993]");
    let wrapped = tensor(&[1.0069562f32, -0.70518327].repeat(4), &[8]);
    let pair = " 1.0069562  -0.70518327";
    shows(&wrapped, &format!("[{pair} {pair} {pair}\n {pair}]"));
    shows(&tensor(&[999999f32, 1e6], &[2]), "[9.99999e+05 1.00000e+06]");
    shows(&tensor(&[999999f64, 1e6], &[2]), "[ 999999. 1000000.]");
    shows(&tensor(&[1e10f64], &[1]), "[1.e+10]");
    shows(&tensor(&[1f32, f32::NAN, f32::NEG_INFINITY], &[3]), "[  1.  nan -inf]");
    shows(&tensor(&[7i32], &[]), "7");
    shows(&tensor(&[0.5f64], &[]), "0.5");
    shows(&counting(&[0]), "[]");
    shows(&counting(&[2, 0]), "[]");
    shows(&Tensor::arange(0, 1001, 1).expect("legal"), "[   0    1    2 ...  998  999 1000]");
    let matrix = Tensor::arange(0, 2000, 1).and_then(|x| x.view([1000, 2])).expect("legal").to_string();
    assert!(matrix.starts_with("[[   0    1]\n [   2    3]\n [   4    5]\n ...\n [1994 1995]\n"), "{matrix}");
    let wrapped = Tensor::arange(0, 100, 1).expect("legal").to_string();
    assert!(wrapped.lines().count() > 1 && wrapped.lines().all(|line| line.len() <= 75), "{wrapped}");
    let meta = Tensor::meta(&TensorType::contiguous(DType::F32, &[2, 3])).expect("no memory is needed");
    shows(&meta, "f32[2,3] on meta");
    assert_eq!(format!("{meta:?}"), "f32[2,3] on meta");
    assert_eq!(format!("{:?}", counting(&[2, 2])), "f32[2,2] on cpu: [0.0, 1.0, 2.0, 3.0]");
    assert_eq!(format!("{:?}", tensor(&[1u8; 9], &[9])), "u8[9] on cpu: [1, 1, 1, 1, 1, 1, 1, 1, …]");
}
