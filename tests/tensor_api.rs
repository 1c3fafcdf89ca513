//! The methods, operators and factories of tensors, against values computed by hand.

use half::{bf16, f16};
use opfuse::dispatch::{Dispatcher, Element, Value, cat, embedding, stack};
use opfuse::ir::{Op, TensorType};
use opfuse::{DType, Error, Result, Scalar, Tensor};

fn tensor<T: Element>(data: &[T], sizes: &[usize]) -> Tensor {
    Tensor::from_slice(data, sizes).expect("the data fits the sizes")
}

/// 0, 1, 2, … as f32.
fn counting(sizes: &[usize]) -> Tensor {
    let data: Vec<f32> = (0..sizes.iter().product::<usize>()).map(|i| i as f32).collect();
    tensor(&data, sizes)
}

#[track_caller]
fn check<T: Element>(found: Result<Tensor>, sizes: &[usize], expected: &[T]) {
    let found = found.expect("the call is legal");
    assert_eq!(found.dtype(), T::DTYPE, "dtype of {found:?}");
    assert_eq!(found.sizes(), sizes, "sizes of {found:?}");
    assert_eq!(found.to_vec::<T>().expect("it has data"), expected, "elements of {found:?}");
}

#[track_caller]
fn check_close(found: Result<Tensor>, sizes: &[usize], expected: &[f64]) {
    let found = found.expect("the call is legal");
    assert_eq!(found.sizes(), sizes, "sizes of {found:?}");
    let elements: Vec<f32> = found.to_vec().expect("an f32 tensor");
    assert_eq!(elements.len(), expected.len());
    for (index, (&element, &expected)) in elements.iter().zip(expected).enumerate() {
        let error = (f64::from(element) - expected).abs();
        assert!(error <= 1e-6 * expected.abs().max(1.0), "element {index}: {element} is not {expected} in {found:?}");
    }
}

#[track_caller]
fn check_error<T: std::fmt::Debug>(found: Result<T>, parts: &[&str]) {
    let message = found.expect_err("the call is illegal").to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is missing in: {message}");
    }
}

#[test]
fn elements_go_in_and_come_out() {
    fn round_trip<T: Element>(data: &[T]) {
        check(Tensor::from_slice(data, &[data.len()]), &[data.len()], data);
        check(Tensor::from_vec(data.to_vec(), &[1, data.len()]), &[1, data.len()], data);
        check(Tensor::scalar(data[0]), &[], &data[..1]);
        assert_eq!(Tensor::scalar(data[1]).expect("memory is there").item::<T>(), Ok(data[1]));
    }
    round_trip(&[true, false, true]);
    round_trip(&[0u8, 255, 7]);
    round_trip(&[-128i8, 127, 0]);
    round_trip(&[i16::MIN, i16::MAX, 3]);
    round_trip(&[i32::MIN, i32::MAX, 3]);
    round_trip(&[i64::MIN, i64::MAX, 3]);
    round_trip(&[f16::MAX, f16::NEG_INFINITY, f16::from_f32(0.5)]);
    round_trip(&[bf16::MAX, bf16::NEG_INFINITY, bf16::from_f32(0.5)]);
    round_trip(&[f32::MIN_POSITIVE, f32::INFINITY, -0.0]);
    round_trip(&[f64::MIN_POSITIVE, f64::NEG_INFINITY, 1e300]);
    let nan = f32::from_bits(0x7fc0_1234);
    assert_eq!(tensor(&[nan], &[1]).to_vec::<f32>().expect("data")[0].to_bits(), nan.to_bits());
}

#[test]
fn reading_follows_strides() {
    let x = counting(&[2, 3, 4]);
    check(x.permute([2, 0, 1]), &[4, 2, 3], &{
        let mut expected = Vec::new();
        (0..4).for_each(|c| (0..2).for_each(|a| (0..3).for_each(|b| expected.push((a * 12 + b * 4 + c) as f32))));
        expected
    });
    check(x.slice(2, 1, None, 2), &[2, 3, 2], &[1f32, 3., 5., 7., 9., 11., 13., 15., 17., 19., 21., 23.]);
    check(x.select(0, -1).and_then(|x| x.select(0, 1)), &[4], &[16f32, 17., 18., 19.]);
    check(counting(&[3, 1]).expand([3, 2]), &[3, 2], &[0f32, 0., 1., 1., 2., 2.]);
    check(x.slice(1, 3, None, 1), &[2, 0, 4], &[] as &[f32]);
    check(x.select(2, 2).and_then(|x| x.select(1, 0)).and_then(|x| x.select(0, 1)), &[], &[14f32]);
}

#[test]
fn conversions_from_arrays() {
    check(Tensor::try_from([1i32, 2]), &[2], &[1i32, 2]);
    check(Tensor::try_from([[1f64, 2.], [3., 4.], [5., 6.]]), &[3, 2], &[1f64, 2., 3., 4., 5., 6.]);
    check(Tensor::try_from([[[true], [false]]]), &[1, 2, 1], &[true, false]);
    check(Tensor::try_from(vec![7u8]), &[1], &[7u8]);
    check(Tensor::try_from(&[7i64, 8][..]), &[2], &[7i64, 8]);
}

#[test]
fn reading_the_wrong_way() {
    let x = counting(&[2, 3]);
    check_error(x.to_vec::<f64>(), &["to_vec", "f32", "f64", "to_dtype(DType::F64)"]);
    check_error(x.item::<f32>(), &["item", "[2, 3]", "6 elements"]);
    check_error(counting(&[0]).item::<f32>(), &["0 elements"]);
    check_error(Tensor::from_slice(&[1f32; 5], &[2, 3]), &["[2, 3]", "6", "5"]);
    check_error(Tensor::from_slice(&[1f32; 5], &[usize::MAX, 2]), &["too many elements"]);
    let meta = Tensor::meta(&TensorType::contiguous(DType::F32, &[2])).expect("no memory is needed");
    check_error(meta.to_vec::<f32>(), &["Cannot copy out of meta tensor; no data!"]);
    assert_eq!(counting(&[1, 1]).item::<f32>(), Ok(0.0));
}

#[test]
fn regular_rows() {
    let x = tensor(&[-2f32, -0.5, 0., 4.], &[4]);
    check(x.abs(), &[4], &[2f32, 0.5, 0., 4.]);
    check(x.neg(), &[4], &[2f32, 0.5, -0., -4.]);
    check(x.square(), &[4], &[4f32, 0.25, 0., 16.]);
    check(x.relu(), &[4], &[0f32, 0., 0., 4.]);
    check(x.floor(), &[4], &[-2f32, -1., 0., 4.]);
    check(x.lt(0.0), &[4], &[true, true, false, false]);
    check(x.ge(&x), &[4], &[true; 4]);
    check(x.maximum(1), &[4], &[1f32, 1., 1., 4.]);
    check(x.logical_not(), &[4], &[false, false, true, false]);
    check_close(x.exp(), &[4], &[(-2f64).exp(), (-0.5f64).exp(), 1., 4f64.exp()]);
    check_close(x.sigmoid(), &[4], &[-2f64, -0.5, 0., 4.].map(|x| 1. / (1. + (-x).exp())));
    check_close(tensor(&[1i64, 4], &[2]).sqrt(), &[2], &[1., 2.]);
    check_close(tensor(&[2f32, 3.], &[2]).pow(2.0), &[2], &[4., 9.]);
    check(tensor(&[12i32, 10], &[2]).bitwise_and(6), &[2], &[4i32, 2]);
    check_error(tensor(&[true], &[1]).neg(), &["neg", "bool"]);
    check_error(x.bitwise_not(), &["bitwise_not", "f32"]);
    check_error(x.silu().and_then(|_| tensor(&[1i64], &[1]).silu()), &["silu", "i64"]);
}

#[test]
fn operators() -> Result<()> {
    let (a, b) = (tensor(&[1f32, 2., 3.], &[3]), tensor(&[4f32, 5., 6.], &[3]));
    check(&a + &b, &[3], &[5f32, 7., 9.]);
    check(a.clone() - b.clone(), &[3], &[-3f32; 3]);
    check(&a * b.clone(), &[3], &[4f32, 10., 18.]);
    check(b.clone() / &a, &[3], &[4f32, 2.5, 2.]);
    check((&a * &b)? + 1.0, &[3], &[5f32, 11., 19.]);
    check(&a + &b * &a, &[3], &[5f32, 12., 21.]);
    check(-&a, &[3], &[-1f32, -2., -3.]);
    check(-a.clone(), &[3], &[-1f32, -2., -3.]);
    check(1.0 - &a, &[3], &[0f32, -1., -2.]);
    check(6.0 / a.clone(), &[3], &[6f32, 3., 2.]);
    check(2 * &a, &[3], &[2f32, 4., 6.]);
    check(&a - 1, &[3], &[0f32, 1., 2.]);
    check(&a * 2f32, &[3], &[2f32, 4., 6.]);
    check(&a * true, &[3], &[1f32, 2., 3.]);
    check(&a * Scalar::Int(3), &[3], &[3f32, 6., 9.]);
    check(3i64 + &tensor(&[1i32], &[1]), &[1], &[4i32]);
    check_error(&a + counting(&[2]).neg().and_then(|x| x.add(&a)), &["add", "(2)", "(3)"]);
    Ok(())
}

#[test]
fn promotion_of_operands() {
    let of = |dtype: DType, sizes: &[usize]| Tensor::ones(sizes, dtype).expect("memory is there");
    let dtype = |result: Result<Tensor>| result.expect("legal").dtype();
    let (i64s, f16s, bools) = (of(DType::I64, &[2]), of(DType::F16, &[2]), of(DType::Bool, &[2]));
    assert_eq!(dtype(&i64s + 1), DType::I64);
    assert_eq!(dtype(&i64s + 1.5), DType::F32);
    assert_eq!(dtype(&i64s / 2), DType::F32);
    assert_eq!(dtype(&f16s * 1e10), DType::F16);
    assert_eq!(dtype(&f16s + &of(DType::F32, &[])), DType::F16);
    assert_eq!(dtype(&f16s + &of(DType::BF16, &[2])), DType::F32);
    assert_eq!(dtype(&bools + 1), DType::I64);
    assert_eq!(dtype(&bools + true), DType::Bool);
    assert_eq!(dtype(&i64s + Tensor::scalar(1.5f64)), DType::F64);
    check_error(&bools - &bools, &["sub", "bool"]);
    check(of(DType::U8, &[2]).add(255), &[2], &[0u8, 0]);
}

#[test]
fn irregular_pointwise_rows() {
    let x = tensor(&[-1f32, 0., 2.], &[3]);
    check(x.add_scaled(&x, 2), &[3], &[-3f32, 0., 6.]);
    check(x.sub_scaled(1.0, 0.5), &[3], &[-1.5f32, -0.5, 1.5]);
    check_close(x.gelu(), &[3], &[-0.158_655_25, 0., 1.954_499_7]);
    check_close(x.gelu_tanh(), &[3], &[-0.158_808_01, 0., 1.954_597_7]);
    let positive = x.gt(0).expect("legal");
    check(positive.where_(&x, 7.0), &[3], &[7f32, 7., 2.]);
    check(positive.where_(1, tensor(&[10f32, 20.], &[2, 1])), &[2, 3], &[10f32, 10., 1., 20., 20., 1.]);
    check(x.masked_fill(&positive, f64::NEG_INFINITY), &[3], &[-1f32, 0., f32::NEG_INFINITY]);
    check(x.clamp(Some(Scalar::Int(0)), Some(Scalar::Int(1))), &[3], &[0f32, 0., 1.]);
    check(x.clamp_min(-0.5), &[3], &[-0.5f32, 0., 2.]);
    check(x.clamp_max(0), &[3], &[-1f32, 0., 0.]);
    check_error(x.clamp(None, None), &["clamp", "min", "max"]);
    check_error(x.where_(1, 2), &["where", "bool"]);
    check_error(x.masked_fill(&x, 1), &["masked_fill", "bool"]);
}

#[test]
fn conversions_and_copies() {
    let x = tensor(&[-1.9f32, 2.9, 300., 0.], &[2, 2]);
    assert!(x.to_dtype(DType::F32).expect("legal").is_same(&x));
    check(x.to_dtype(DType::I64), &[2, 2], &[-1i64, 2, 300, 0]);
    check(x.to_dtype(DType::Bool), &[2, 2], &[true, true, true, false]);
    check(tensor(&[300f32], &[1]).to_dtype(DType::U8), &[1], &[44u8]);
    assert!(x.contiguous().expect("legal").is_same(&x));
    let turned = x.t().expect("a matrix");
    assert!(turned.is_alias_of(&x) && !turned.is_contiguous());
    let dense = turned.contiguous().expect("legal");
    assert!(dense.is_contiguous() && !dense.is_alias_of(&x));
    check(Ok(dense), &[2, 2], &[-1.9f32, 300., 2.9, 0.]);
    let copy = turned.copy().expect("legal");
    assert!(!copy.is_alias_of(&x) && copy.strides() == turned.strides());
    check(Ok(copy), &[2, 2], &[-1.9f32, 300., 2.9, 0.]);
    let number = Tensor::number(2.0).and_then(|x| x.to_dtype(DType::F64)).expect("legal");
    assert_eq!(number.as_number(), None, "a converted number has a width of its own");
}

#[test]
fn reductions() {
    let x = counting(&[2, 3]);
    check(x.sum(0, false), &[3], &[3f32, 5., 7.]);
    check(x.sum(-1, true), &[2, 1], &[3f32, 12.]);
    check(x.sum([0, 1], false), &[], &[15f32]);
    check(x.sum((), true), &[1, 1], &[15f32]);
    check(x.sum_all(), &[], &[15f32]);
    check(tensor(&[true, true, false], &[3]).sum_all(), &[], &[2i64]);
    check(x.mean(1, false), &[2], &[1f32, 4.]);
    check(x.mean_all(), &[], &[2.5f32]);
    check(x.prod(1, false), &[2], &[0f32, 60.]);
    check(tensor(&[2i32, 3, 4], &[3]).prod_all(), &[], &[24i64]);
    check(x.amax(0, false), &[3], &[3f32, 4., 5.]);
    check(x.amin([1], true), &[2, 1], &[0f32, 3.]);
    check(x.max_all(), &[], &[5f32]);
    check(x.min_all(), &[], &[0f32]);
    check(x.any(1, false), &[2], &[true, true]);
    check(x.all((), false), &[], &[false]);
    check(x.argmax(None, false), &[], &[5i64]);
    check(x.argmax(0, false), &[3], &[1i64, 1, 1]);
    check(x.argmin(1, true), &[2, 1], &[0i64, 0]);
    check(x.var(1, 1, false), &[2], &[1f32, 1.]);
    check_close(x.var(1, 0, false), &[2], &[2. / 3., 2. / 3.]);
    check_close(x.std((), 0, false), &[], &[(35f64 / 12.).sqrt()]);
    check_close(x.logsumexp(1, false), &[2], &[2.407_605_964, 5.407_605_964]);
    let (values, indices) = tensor(&[3f32, 9., 9., 1., 0., -1.], &[2, 3]).max_dim(1, false).expect("legal");
    check(Ok(values), &[2], &[9f32, 1.]);
    check(Ok(indices), &[2], &[1i64, 0]);
    let (values, indices) = x.t().and_then(|x| x.min_dim(-2, true)).expect("legal");
    check(Ok(values), &[1, 2], &[0f32, 3.]);
    check(Ok(indices), &[1, 2], &[0i64, 0]);
    check(counting(&[0, 2]).sum(0, false), &[2], &[0f32, 0.]);
    check_error(x.sum(2, false), &["sum", "Dimension out of range (expected to be in range of [-2, 1], but got 2)"]);
    check_error(x.sum([0, -2], false), &["sum", "multiple times"]);
    check_error(counting(&[0]).max_all(), &["amax"]);
    check_error(tensor(&[1i64], &[1]).mean_all(), &["mean", "i64"]);
}

#[test]
fn normalizations() {
    let x = tensor(&[0f32, 0., 1000., 1000.], &[2, 2]);
    check(x.softmax(-1), &[2, 2], &[0.5f32; 4]);
    check_close(x.softmax(0), &[2, 2], &[0., 0., 1., 1.]);
    check_close(x.log_softmax(1), &[2, 2], &[-(2f64.ln()); 4]);
    check_error(x.softmax(2), &["softmax", "out of range"]);
    let y = tensor(&[1f32, 3., -1., 1.], &[2, 2]);
    check_close(y.layer_norm([2], None, None, 0.0), &[2, 2], &[-1., 1., -1., 1.]);
    let (weight, bias) = (tensor(&[2f32, 3.], &[2]), tensor(&[10f32, 20.], &[2]));
    check_close(y.layer_norm(2, Some(&weight), Some(&bias), 0.0), &[2, 2], &[8., 23., 8., 23.]);
    check_close(y.layer_norm(2, None, Some(&bias), 0.0), &[2, 2], &[9., 21., 9., 21.]);
    check_close(y.layer_norm([2, 2], None, None, 3.0), &[2, 2], &[0., 2., -2., 0.].map(|x: f64| x / 5f64.sqrt()));
    check_error(y.layer_norm([3], None, None, 0.0), &["layer_norm", "[3]"]);
}

#[test]
fn views_share_their_storage() {
    let x = counting(&[2, 3, 4]);
    let cases: Vec<(&str, Result<Tensor>, Vec<usize>)> = vec![
        ("view", x.view([6, -1]), vec![6, 4]),
        ("view of sizes", x.view(counting(&[4, 6]).sizes()), vec![4, 6]),
        ("permute", x.permute([-1, 0, 1]), vec![4, 2, 3]),
        ("transpose", x.transpose(0, -1), vec![4, 3, 2]),
        ("t", x.select(0, 0).and_then(|x| x.t()), vec![4, 3]),
        ("expand", x.unsqueeze(0).and_then(|x| x.expand([5, -1, 3, -1])), vec![5, 2, 3, 4]),
        ("squeeze", x.view([1, 24, 1]).and_then(|x| x.squeeze(0)), vec![24, 1]),
        ("squeeze all", x.view([1, 24, 1]).and_then(|x| x.squeeze(())), vec![24]),
        ("unsqueeze", x.unsqueeze(-1), vec![2, 3, 4, 1]),
        ("select", x.select(1, -1), vec![2, 4]),
        ("slice", x.slice(-1, -3, None, 2), vec![2, 3, 2]),
        ("slice past the end", x.slice(0, 1, 100, 1), vec![1, 3, 4]),
        ("narrow", x.narrow(2, -3, 2), vec![2, 3, 2]),
        ("flatten", x.flatten(0, -1), vec![24]),
        ("flatten some", x.flatten(1, 2), vec![2, 12]),
        ("flatten one", x.flatten(1, 1), vec![2, 3, 4]),
        ("unflatten", x.unflatten(-1, [2, -1]), vec![2, 3, 2, 2]),
        ("reshape", x.reshape([3, 8]), vec![3, 8]),
    ];
    for (name, view, sizes) in cases {
        let view = view.expect(name);
        assert!(view.is_alias_of(&x), "{name} copied");
        assert_eq!(view.sizes(), sizes, "{name}");
    }
    let copied = x.permute([1, 0, 2]).and_then(|x| x.reshape([6, 4])).expect("legal");
    assert!(!copied.is_alias_of(&x));
    check(copied.select(0, 1), &[4], &[12f32, 13., 14., 15.]);
    check(counting(&[]).flatten(0, -1), &[1], &[0f32]);
    check(counting(&[0, 3]).reshape([3, -1]), &[3, 0], &[] as &[f32]);
}

#[test]
fn pieces() {
    let x = counting(&[5, 2]);
    let sizes = |pieces: Result<Vec<Tensor>>, dim: usize| -> Vec<usize> {
        pieces.expect("legal").iter().map(|piece| piece.sizes()[dim]).collect()
    };
    assert_eq!(sizes(x.split(2, 0), 0), [2, 2, 1]);
    assert_eq!(sizes(x.split(100, 1), 1), [2]);
    assert_eq!(sizes(x.chunk(3, 0), 0), [2, 2, 1]);
    assert_eq!(sizes(x.chunk(4, 0), 0), [2, 2, 1], "pieces of two run out after three");
    assert_eq!(sizes(counting(&[0]).chunk(2, 0), 0), [0, 0]);
    assert_eq!(sizes(counting(&[0]).split(0, 0), 0), [0]);
    let last = x.split(2, -2).expect("legal").pop();
    check(last.ok_or_else(|| Error::argument("split", "no piece")), &[1, 2], &[8f32, 9.]);
    let columns = x.unbind(1).expect("legal");
    assert_eq!(columns.len(), 2);
    check(Ok(columns[1].clone()), &[5], &[1f32, 3., 5., 7., 9.]);
    check_error(x.split(0, 0), &["split", "0 elements"]);
    check_error(x.chunk(0, 0), &["chunk"]);
    check_error(counting(&[]).unbind(0), &["unbind", "0-dim"]);
}

#[test]
fn illegal_views() {
    let x = counting(&[2, 3]);
    check_error(x.view([4, -1]), &["view", "[4, -1]", "6"]);
    check_error(x.t().and_then(|x| x.view(6)), &["view", "use reshape"]);
    check_error(x.reshape([7]), &["reshape", "[7]"]);
    check_error(x.permute([0, 0]), &["permute"]);
    check_error(x.permute([0]), &["permute"]);
    check_error(x.transpose(0, 2), &["transpose", "out of range", "[-2, 1]", "got 2"]);
    check_error(counting(&[1, 1, 1]).t(), &["t:", "3 dims"]);
    check_error(x.expand([4, 3]), &["expand", "[4, 3]"]);
    check_error(x.expand([-1, 2, 3]), &["expand"]);
    check_error(x.squeeze(5), &["squeeze", "out of range"]);
    check_error(x.unsqueeze(4), &["unsqueeze", "out of range"]);
    check_error(x.select(1, 3), &["select", "index", "[-3, 2]", "got 3"]);
    check_error(x.slice(0, None, None, 0), &["slice", "step"]);
    check_error(x.narrow(1, 2, 2), &["narrow", "length"]);
    check_error(x.narrow(1, 4, 0), &["narrow", "start"]);
    check_error(x.flatten(1, 0), &["flatten", "comes after"]);
    check_error(x.unflatten(1, [2, 2]), &["unflatten"]);
    check_error(x.unflatten(1, []), &["unflatten"]);
    check_error(x.flatten(i64::MIN, i64::MAX), &["flatten", "out of range"]);
    check_error(x.narrow(0, i64::MIN, usize::MAX), &["narrow"]);
    check_error(x.narrow(0, 0, usize::MAX), &["narrow"]);
    check_error(x.view([i64::MAX, i64::MAX]), &["view"]);
    check_error(x.expand([i64::MAX, 2, 3]), &["expand"]);
}

#[test]
fn products_of_every_rank() {
    let (v2, v3) = (tensor(&[1f32, 2.], &[2]), tensor(&[1f32, 2., 3.], &[3]));
    let (m23, m32) = (counting(&[2, 3]), counting(&[3, 2]));
    check(v3.matmul(&v3), &[], &[14f32]);
    check(m23.matmul(&v3), &[2], &[8f32, 26.]);
    check(v2.matmul(&m23), &[3], &[6f32, 9., 12.]);
    check(m23.matmul(&m32), &[2, 2], &[10f32, 13., 28., 40.]);
    check(m23.mm(&m32), &[2, 2], &[10f32, 13., 28., 40.]);
    check(m23.mv(&v3), &[2], &[8f32, 26.]);
    check(v3.dot(&v3), &[], &[14f32]);
    check(v2.outer(&v3), &[2, 3], &[1f32, 2., 3., 2., 4., 6.]);
    check(v2.addmm(&m23, &m32), &[2, 2], &[11f32, 15., 29., 42.]);
    check(v2.addmm_scaled(&m23, &m32, 2, 0.5), &[2, 2], &[7f32, 10.5, 16., 24.]);
    let (b1, b2) = (counting(&[1, 2, 3]), counting(&[1, 3, 2]));
    check(b1.bmm(&b2), &[1, 2, 2], &[10f32, 13., 28., 40.]);
    check(v2.baddbmm(&b1, &b2), &[1, 2, 2], &[11f32, 15., 29., 42.]);
    check(tensor(&[2i64, 3], &[1, 2]).matmul(&tensor(&[5i64, 7], &[2, 1])), &[1, 1], &[31i64]);
}

/// The definition of matmul, one element at a time.
fn matmul_by_definition(a: &Tensor, b: &Tensor, out: &[usize]) -> Vec<f32> {
    let (rank, k) = (out.len() + 2, *a.sizes().last().expect("a dim"));
    let column = b.dim() == 1;
    let at = |x: &Tensor, lead: &[usize], last: &[usize]| -> f32 {
        // Aligned at the last dims; a batch of 1 stands for every index.
        let batch = x.dim() - last.len();
        let lead = &lead[lead.len() - batch..];
        let index =
            lead.iter().zip(x.sizes()).map(|(&i, &size)| if size == 1 { 0 } else { i }).chain(last.iter().copied());
        let index: Vec<usize> = index.collect();
        let position = index.iter().zip(x.sizes()).fold(0, |position, (i, size)| position * size + i);
        x.to_vec::<f32>().expect("data")[position]
    };
    let mut result = Vec::new();
    for position in 0..out.iter().product::<usize>() {
        let mut index = Vec::with_capacity(rank);
        let mut rest = position;
        for &size in out.iter().rev() {
            index.insert(0, rest % size);
            rest /= size;
        }
        let n = if column { None } else { index.pop() };
        let m = if a.dim() == 1 { None } else { index.pop() };
        let product = |k: usize| {
            let left: Vec<usize> = m.into_iter().chain([k]).collect();
            let right: Vec<usize> = [k].into_iter().chain(n).collect();
            at(a, &index, &left) * at(b, &index, &right)
        };
        result.push((0..k).map(product).sum());
    }
    result
}

#[test]
fn matmul_broadcasts_batches() {
    let cases: &[(&[usize], &[usize], &[usize])] = &[
        (&[2, 3, 4], &[4, 5], &[2, 3, 5]),
        (&[2, 3, 4], &[4], &[2, 3]),
        (&[2, 2, 3, 4], &[4, 2], &[2, 2, 3, 2]),
        (&[4], &[3, 4, 2], &[3, 2]),
        (&[2, 4], &[3, 4, 5], &[3, 2, 5]),
        (&[2, 3, 4], &[2, 4, 5], &[2, 3, 5]),
        (&[2, 1, 3, 4], &[4, 4, 2], &[2, 4, 3, 2]),
        (&[1, 3, 4], &[5, 4, 2], &[5, 3, 2]),
        (&[3, 1, 1, 2], &[2, 2, 1], &[3, 2, 1, 1]),
    ];
    for &(a, b, out) in cases {
        let (left, right) = (counting(a), counting(b));
        let expected = matmul_by_definition(&left, &right, out);
        check(left.matmul(&right), out, &expected);
        // The same numbers from memory in another order.
        let backwards = |x: &Tensor| {
            let dims: Vec<i64> = (0..x.dim() as i64).rev().collect();
            x.permute(&dims).and_then(|x| x.contiguous()).and_then(|x| x.permute(&dims)).expect("legal")
        };
        check(backwards(&left).matmul(&right), out, &expected);
        check(left.matmul(&backwards(&right)), out, &expected);
    }
    check(counting(&[2, 0]).matmul(&counting(&[0, 3])), &[2, 3], &[0f32; 6]);
    check(counting(&[2, 0, 4]).matmul(&counting(&[4, 3])), &[2, 0, 3], &[] as &[f32]);
    check(counting(&[2, 3, 0]).matmul(&counting(&[0, 1])), &[2, 3, 1], &[0f32; 6]);
    check(counting(&[0, 2, 3]).matmul(&counting(&[1, 3, 4])), &[0, 2, 4], &[] as &[f32]);
}

#[test]
fn linear_layers() {
    let weight = tensor(&[1f32, 0., 1., 0., 1., 0.], &[2, 3]);
    let bias = tensor(&[100f32, 200.], &[2]);
    check(counting(&[3]).linear(&weight, None), &[2], &[2f32, 1.]);
    check(counting(&[2, 3]).linear(&weight, Some(&bias)), &[2, 2], &[102f32, 201., 108., 204.]);
    check(counting(&[2, 1, 3]).linear(&weight, Some(&bias)), &[2, 1, 2], &[102f32, 201., 108., 204.]);
    check_error(counting(&[2, 2]).linear(&weight, None), &["linear", "[2, 2]", "[2, 3]"]);
    check_error(counting(&[2, 3]).linear(&weight, Some(&counting(&[1]))), &["linear", "[1]"]);
    check_error(counting(&[]).linear(&weight, None), &["linear"]);
}

#[test]
fn illegal_products() {
    let f64s = Tensor::ones(&[3, 2], DType::F64).expect("memory is there");
    check_error(counting(&[2, 3]).matmul(&counting(&[2, 3])), &["matmul", "[2, 3]", "inner sizes 3 and 2"]);
    check_error(counting(&[]).matmul(&counting(&[2])), &["matmul", "at least one dim"]);
    check_error(counting(&[2, 3]).matmul(&f64s), &["f32", "f64"]);
    check_error(counting(&[3]).mm(&counting(&[3, 1])), &["mm"]);
    check_error(counting(&[2, 2, 3]).bmm(&counting(&[1, 3, 2])), &["bmm", "[2, 2, 3]"]);
    check_error(counting(&[2, 2, 3]).matmul(&counting(&[3, 3, 2])), &["matmul", "(2)", "(3)"]);
    check_error(counting(&[3]).dot(&counting(&[2])), &["dot"]);
    check_error(counting(&[3, 3]).mv(&counting(&[3, 1])), &["mv"]);
    check_error(counting(&[3, 3]).outer(&counting(&[3])), &["outer"]);
    check_error(counting(&[3, 3]).addmm(&counting(&[2, 3]), &counting(&[3, 2])), &["addmm"]);
}

#[test]
fn elements_by_index() {
    let x = counting(&[3, 2]);
    let index = tensor(&[2i64, 0, 2], &[3]);
    check(x.index_select(0, &index), &[3, 2], &[4f32, 5., 0., 1., 4., 5.]);
    check(x.t().and_then(|x| x.index_select(-1, &index)), &[2, 3], &[4f32, 0., 4., 5., 1., 5.]);
    check(x.gather(0, &tensor(&[2i64, 0, 1, 1], &[2, 2])), &[2, 2], &[4f32, 1., 2., 3.]);
    check(x.gather(1, &tensor(&[1i64, 0, 0], &[3, 1])), &[3, 1], &[1f32, 2., 4.]);
    check(embedding(&x, &tensor(&[1i32, 1, 0, 2], &[2, 2])), &[2, 2, 2], &[2f32, 3., 2., 3., 0., 1., 4., 5.]);
    check_error(x.index_select(0, &tensor(&[3i64], &[1])), &["index", "out of range", "[0, 2]", "got 3"]);
    check_error(x.index_select(2, &index), &["index_select", "out of range"]);
    check_error(x.index_select(0, &counting(&[1])), &["index_select", "f32"]);
    check_error(x.gather(0, &index), &["gather", "[3]"]);
    check_error(embedding(&x, &tensor(&[9i64], &[1])), &["index", "out of range", "got 9"]);
    check_error(embedding(&counting(&[3]), &index), &["embedding", "2-d"]);
}

#[test]
fn joined_tensors() {
    let (a, b) = (counting(&[1, 2]), counting(&[2, 2]));
    check(cat(&[&a, &b], 0), &[3, 2], &[0f32, 1., 0., 1., 2., 3.]);
    check(cat(&[&b, &b], -1), &[2, 4], &[0f32, 1., 0., 1., 2., 3., 2., 3.]);
    check(cat(&[&a, &tensor(&[7i64, 8], &[1, 2])], 0), &[2, 2], &[0f32, 1., 7., 8.]);
    check(stack(&[&b, &b], 1), &[2, 2, 2], &[0f32, 1., 0., 1., 2., 3., 2., 3.]);
    check(stack(&[&counting(&[]), &counting(&[])], -1), &[2], &[0f32, 0.]);
    check_error(cat(&[], 0), &["cat", "non-empty"]);
    check_error(stack(&[], 0), &["stack", "non-empty"]);
    check_error(cat(&[&a, &b], 1), &["cat", "[1, 2]", "[2, 2]"]);
    check_error(stack(&[&a, &b], 0), &["stack", "[1, 2]", "[2, 2]"]);
    check_error(cat(&[&a], 2), &["cat", "out of range"]);
}

#[test]
fn factories() {
    check(Tensor::zeros(&[2], DType::I32), &[2], &[0i32, 0]);
    check(Tensor::ones(&[1, 2], DType::Bool), &[1, 2], &[true, true]);
    check(Tensor::full(&[2], 2.5, DType::F64), &[2], &[2.5f64, 2.5]);
    check(Tensor::full(&[2], 2.5, None), &[2], &[2.5f32, 2.5]);
    check(Tensor::full(&[], 3, None), &[], &[3i64]);
    check(Tensor::full(&[0], true, None), &[0], &[] as &[bool]);
    check(Tensor::arange(0, 5, 2), &[3], &[0i64, 2, 4]);
    check(Tensor::arange(1.0, 0.0, -0.5), &[2], &[1f32, 0.5]);
    check(Tensor::arange_of(0, 3, 1, DType::F64), &[3], &[0f64, 1., 2.]);
    check(Tensor::eye(2, DType::F32), &[2, 2], &[1f32, 0., 0., 1.]);
    check(counting(&[2]).zeros_like(), &[2], &[0f32, 0.]);
    check(counting(&[2, 1]).t().and_then(|x| x.full_like(7)), &[1, 2], &[7f32, 7.]);
    check(counting(&[3, 3]).tril(0), &[3, 3], &[0f32, 0., 0., 3., 4., 0., 6., 7., 8.]);
    check(counting(&[2, 3]).triu(1), &[2, 3], &[0f32, 1., 2., 0., 0., 5.]);
    let empty = Tensor::empty(&[2, 3], DType::I16).expect("memory is there");
    assert_eq!((empty.sizes(), empty.to_vec::<i16>().map(|elements| elements.len())), (&[2, 3][..], Ok(6)));
    let meta = Tensor::meta(&TensorType::contiguous(DType::F32, &[2])).expect("no memory is needed");
    assert_eq!(meta.ones_like().expect("legal").device(), meta.device());
    check_error(Tensor::arange(0, 5, 0), &["arange", "0"]);
    check_error(Tensor::arange(0, 5, -1), &["arange"]);
    check_error(Tensor::zeros(&[usize::MAX, usize::MAX], DType::F32), &["too many elements"]);
    check_error(Tensor::empty(&[usize::MAX], DType::F32), &["too many elements"]);
    check_error(Tensor::eye(usize::MAX, DType::F32), &["too many elements"]);
    check_error(counting(&[2]).tril(0), &["tril", "[2]"]);
}

/// Calls an operator by name with positional arguments.
fn invoke(name: &str, arguments: Vec<Value>) -> Result<Tensor> {
    // Any call registers the operators.
    Tensor::zeros(&[1], DType::F32)?;
    let results = Dispatcher::global().lookup(name)?.invoke(arguments, Vec::new())?;
    match results.into_iter().next() {
        Some(Value::Tensor(tensor)) => Ok(tensor),
        other => Err(Error::argument(name, format!("left {other:?}"))),
    }
}

#[test]
fn composites_are_operators() -> Result<()> {
    let x = || Value::Tensor(counting(&[2, 3]));
    let ints = |values: &[i64]| Value::IntList(values.iter().copied().collect());
    check(invoke("aten::matmul", vec![x(), Value::Tensor(counting(&[3]))]), &[2], &[5f32, 14.]);
    check(invoke("aten::linear", vec![x(), x()]), &[2, 2], &[5f32, 14., 14., 50.]);
    check(invoke("aten::reshape", vec![x(), ints(&[3, -1])]), &[3, 2], &[0f32, 1., 2., 3., 4., 5.]);
    check(invoke("aten::flatten.using_ints", vec![x()]), &[6], &[0f32, 1., 2., 3., 4., 5.]);
    check(invoke("aten::narrow", vec![x(), Value::Int(1), Value::Int(1), Value::Int(1)]), &[2, 1], &[1f32, 4.]);
    check(invoke("aten::sum", vec![x()]), &[], &[15f32]);
    check(invoke("aten::max.dim", vec![x(), Value::Int(1)]), &[2], &[2f32, 5.]);
    check(invoke("aten::mul.Scalar", vec![x(), Value::Int(2)]), &[2, 3], &[0f32, 2., 4., 6., 8., 10.]);
    check(invoke("aten::add.Scalar", vec![x(), Value::Int(1)]), &[2, 3], &[1f32, 2., 3., 4., 5., 6.]);
    check(invoke("aten::zeros", vec![ints(&[2])]), &[2], &[0f32, 0.]);
    check(invoke("aten::ones_like", vec![x()]), &[2, 3], &[1f32; 6]);
    check(invoke("aten::contiguous", vec![x()]), &[2, 3], &[0f32, 1., 2., 3., 4., 5.]);
    check(invoke("aten::stack", vec![Value::TensorList(vec![counting(&[1]); 2])]), &[2, 1], &[0f32, 0.]);
    check_close(invoke("aten::softmax.int", vec![x(), Value::Int(0)]).and_then(|x| x.sum(0, false)), &[3], &[1.; 3]);
    let op = Dispatcher::global().lookup("aten::split.Tensor")?;
    match op.invoke(vec![x(), Value::Int(2), Value::Int(1)], Vec::new())?.as_slice() {
        [Value::TensorList(pieces)] => assert_eq!(pieces.len(), 2),
        other => panic!("split left {other:?}"),
    }
    let meta = Tensor::meta(&TensorType::contiguous(DType::F32, &[4, 3]))?;
    let product = invoke("aten::linear", vec![Value::Tensor(meta.clone()), Value::Tensor(meta.clone())])?;
    assert_eq!((product.sizes(), product.has_data()), (&[4, 4][..], false));
    check_error(invoke("aten::linear", vec![Value::Tensor(meta), x()]), &["expected all tensors on meta", "cpu"]);
    check_error(invoke("aten::split.Tensor", vec![x(), Value::Int(-1)]), &["split", "-1"]);
    check_error(invoke("aten::reshape", vec![x()]), &["missing value for argument 'shape'"]);
    Ok(())
}

#[test]
fn meta_tensors_have_shapes() {
    let meta = |sizes: &[usize]| Tensor::meta(&TensorType::contiguous(DType::F32, sizes)).expect("no memory is needed");
    let product = meta(&[8, 2, 3]).matmul(&meta(&[3, 5])).and_then(|x| x.softmax(-1)).expect("legal");
    assert_eq!(product.sizes(), [8, 2, 5]);
    assert_eq!(meta(&[1 << 40]).exp().expect("no memory is needed").numel(), 1 << 40);
    check_error(meta(&[2]).add(counting(&[3])), &["add"]);
}

#[test]
fn every_row_has_an_operator() -> Result<()> {
    Tensor::zeros(&[1], DType::F32)?;
    for op in Op::ALL {
        let name = op.schema();
        let name = name.split('(').next().unwrap_or_default();
        Dispatcher::global().lookup(&format!("aten::{name}"))?;
    }
    Ok(())
}
