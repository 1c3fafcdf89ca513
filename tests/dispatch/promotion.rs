//! Promotion, broadcasting, dims and conversions (lines 159 to 171).

use crate::assert_error;
use opfuse::dispatch::Dispatcher;
use opfuse::{DType, Error, Result, Scalar, Tensor};

fn of(dtype: DType, sizes: &[usize]) -> Tensor {
    Tensor::ones(sizes, dtype).expect("ones")
}

fn sum(a: &Tensor, b: &Tensor) -> DType {
    a.add(b).expect("a sum").dtype()
}

#[test]
fn n159_tensors_without_dims_raise_the_category_only() {
    use DType::*;
    for (dims, none, result) in [(F32, F64, F32), (I64, F64, F64), (F16, F32, F16), (I32, I64, I32), (Bool, I32, I32)] {
        let (a, b) = (of(dims, &[2]), of(none, &[]));
        assert_eq!((sum(&a, &b), sum(&b, &a)), (result, result), "{dims} and {none}");
    }
}

#[test]
fn n160_common_dtypes() {
    use DType::*;
    for (a, b, result) in [(U8, I8, I16), (F16, BF16, F32), (I64, F16, F16), (Bool, U8, U8), (I32, F64, F64)] {
        assert_eq!((sum(&of(a, &[2]), &of(b, &[2])), sum(&of(b, &[2]), &of(a, &[2]))), (result, result), "{a} and {b}");
    }
    let numbers: [(DType, &[usize], Scalar, DType); 4] = [
        (Bool, &[2], Scalar::Int(1), I64),
        (Bool, &[2], Scalar::Bool(true), Bool),
        (I64, &[], Scalar::Float(1.0), DType::DEFAULT_FLOAT),
        (F16, &[], Scalar::Float(1.0), F16),
    ];
    for (dtype, sizes, number, result) in numbers {
        let found = of(dtype, sizes).add(number).expect("a sum").dtype();
        assert_eq!(found, result, "{dtype} and {number:?}");
    }
}

/// Numbers among the arguments of a call promote as plain numbers do.
#[test]
fn n160_numbers_as_arguments() {
    use DType::*;
    let half = Some(Scalar::Float(0.5));
    let whole = Some(Scalar::Int(1));
    for (dtype, number, result) in
        [(I32, half, F32), (I32, whole, I32), (U8, whole, U8), (F16, half, F16), (F64, whole, F64)]
    {
        let x = of(dtype, &[2]);
        let found = [x.clamp(number, None), x.clamp(None, number), x.pow(number.expect("a number"))];
        for found in found {
            assert_eq!(found.expect("a result").dtype(), result, "{dtype} and {number:?}");
        }
    }
    assert_eq!(of(I64, &[2]).clamp(half, whole).and_then(|x| x.to_vec::<f32>()), Ok(vec![1.0; 2]));
}

#[test]
fn n162_integers_divide_into_floats() {
    let (a, b) = (of(DType::I32, &[2]), of(DType::U8, &[2]));
    assert_eq!(a.div(&b).expect("a quotient").dtype(), DType::DEFAULT_FLOAT);
    let zero = Tensor::zeros(&[2], DType::I32).expect("zeros");
    assert_eq!(a.div(&zero).and_then(|x| x.to_vec::<f32>()), Ok(vec![f32::INFINITY; 2]));
    assert!(zero.div(&zero).and_then(|x| x.to_vec::<f32>()).expect("NaN").iter().all(|x| x.is_nan()));
}

#[test]
fn n163_comparisons_promote_first() {
    let whole = Tensor::from_slice(&[16_777_217_i64], &[1]).expect("one");
    let float = Tensor::from_slice(&[16_777_216.0_f32], &[1]).expect("one");
    let equal = whole.eq(&float).expect("a comparison");
    assert_eq!((equal.dtype(), equal.to_vec::<bool>()), (DType::Bool, Ok(vec![true])));
    let byte = Tensor::from_slice(&[1_u8], &[1]).expect("one");
    assert_eq!(byte.eq(-1).and_then(|x| x.to_vec::<bool>()), Ok(vec![false]));
}

#[test]
fn n165_sizes_that_do_not_broadcast() {
    let text = "the size of tensor a (4) must match the size of tensor b (5) at non-singleton dimension 1";
    assert_error(of(DType::F32, &[3, 4]).add(of(DType::F32, &[3, 5])), &[text]);
    // The dim is one of the result; operands are aligned at its last dims.
    let text = "the size of tensor a (4) must match the size of tensor b (5) at non-singleton dimension 2";
    assert_error(of(DType::F32, &[4]).add(of(DType::F32, &[2, 3, 5])), &[text]);
}

#[test]
fn n168_sizes_0_and_1() {
    let none = of(DType::F32, &[2, 0]);
    assert_eq!(none.add(of(DType::F32, &[2, 1])).expect("a sum").sizes(), [2, 0]);
    assert_error(none.add(of(DType::F32, &[2, 3])), &["tensor a (0)", "tensor b (3)", "dimension 1"]);
}

#[test]
fn n169_dims_out_of_range() {
    let x = of(DType::F32, &[2, 3]);
    let text = "Dimension out of range (expected to be in range of [-2, 1], but got 2)";
    let calls: [Result<Tensor>; 4] = [x.sum([2], false), x.softmax(2), x.transpose(2, 0), x.select(2, 0)];
    for result in calls {
        assert!(matches!(&result, Err(Error::OutOfRange { .. })));
        assert_error(result, &[text]);
    }
    let number = of(DType::F32, &[]);
    for dim in [0, -1] {
        assert_eq!(number.sum([dim], false).expect("a sum").sizes(), [0_usize; 0]);
    }
    assert_error(number.sum([1], false), &["[-1, 0], but got 1"]);
    assert_error(x.sum([0, -2], false), &["dim 0 appears multiple times"]);
    assert_error(x.permute([0, 0]), &["permute", "name each dim once"]);
}

#[test]
fn n171_conversions() {
    let x = Tensor::from_slice(&[-1.9_f32, 2.9], &[2]).expect("two");
    assert_eq!(x.to_dtype(DType::I32).and_then(|y| y.to_vec::<i32>()), Ok(vec![-1, 2]));
    let x = Tensor::from_slice(&[0.0_f32, -0.0, 0.1, -3.0, f32::NAN], &[5]).expect("five");
    assert_eq!(x.to_dtype(DType::Bool).and_then(|y| y.to_vec::<bool>()), Ok(vec![false, false, true, true, true]));
    let x = Tensor::from_slice(&[300.0_f32], &[1]).expect("one");
    assert_eq!(x.to_dtype(DType::U8).and_then(|y| y.to_vec::<u8>()), Ok(vec![44]));
}

#[test]
fn n166_targets_keep_their_shape() {
    let (small, large) = (of(DType::F32, &[4]), of(DType::F32, &[3, 4]));
    assert_error(small.add_(&large), &["output with shape [4] doesn't match the broadcast shape [3, 4]"]);
    let add = Dispatcher::global().lookup("aten::add.out").expect("an operator");
    for sizes in [&[4][..], &[0], &[4, 3], &[1, 3, 4]] {
        let out = of(DType::F32, sizes);
        let result: Result<Tensor> = add.call((&large, &small, Scalar::Int(1), &out));
        assert_error(result, &["add", &format!("out has shape {sizes:?}"), "Tensor::empty(&[3, 4], DType::F32)"]);
        assert_eq!((out.sizes(), out.version()), (sizes, 0));
    }
    let out = Tensor::empty(&[3, 4], DType::F32).expect("memory");
    let result: Tensor = add.call((&large, &small, Scalar::Int(1), &out)).expect("a sum");
    assert!(result.is_same(&out));
    assert_eq!(out.to_vec::<f32>(), Ok(vec![2.0; 12]));
}
