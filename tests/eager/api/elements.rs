//! Elements from and to Rust values, and conversions.

use super::*;

#[test]
fn elements_are_written_and_read() {
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
fn arrays_and_vectors_become_tensors() {
    check(Tensor::try_from([1i32, 2]), &[2], &[1i32, 2]);
    check(Tensor::try_from([[1f64, 2.], [3., 4.], [5., 6.]]), &[3, 2], &[1f64, 2., 3., 4., 5., 6.]);
    check(Tensor::try_from([[[true], [false]]]), &[1, 2, 1], &[true, false]);
    check(Tensor::try_from(vec![7u8]), &[1], &[7u8]);
    check(Tensor::try_from(&[7i64, 8][..]), &[2], &[7i64, 8]);
    check(Tensor::try_from(&[7i64, 8]), &[2], &[7i64, 8]);
    check(Tensor::try_from(&vec![7i64, 8]), &[2], &[7i64, 8]);
    check(Tensor::try_from([[[[1u8, 2]], [[3, 4]]]]), &[1, 2, 1, 2], &[1u8, 2, 3, 4]);
    check(Tensor::try_from(vec![vec![1f32, 2.], vec![3., 4.]]), &[2, 2], &[1f32, 2., 3., 4.]);
    check(Tensor::try_from(vec![vec![vec![1i8], vec![2]]; 2]), &[2, 2, 1], &[1i8, 2, 1, 2]);
    check(Tensor::try_from(vec![vec![vec![vec![true, false]; 1]; 2]; 1]), &[1, 2, 1, 2], &[true, false, true, false]);
    check(Tensor::try_from(Vec::<Vec<f32>>::new()), &[0, 0], &[] as &[f32]);
    check(Tensor::try_from(vec![Vec::<i16>::new(); 3]), &[3, 0], &[] as &[i16]);
    check(Tensor::try_from(2.5f64), &[], &[2.5f64]);
    check(Tensor::try_from(bf16::ONE), &[], &[bf16::ONE]);
    check_error(Tensor::try_from(vec![vec![1f32, 2.], vec![3.]]), &["vector 0 has 2", "vector 1 has 1"]);
    check_error(Tensor::try_from(vec![vec![vec![1f32]], vec![vec![2.], vec![3.]]]), &["vector 1 has 2"]);
    check_error(Tensor::try_from(vec![vec![vec![1f32]], vec![vec![2., 3.]]]), &["one length"]);
}

#[test]
fn tensors_become_vectors_and_numbers() -> Result<()> {
    let x = counting(&[2, 1, 2]);
    assert_eq!(Vec::<f32>::try_from(&x)?, [0., 1., 2., 3.]);
    assert_eq!(x.to_vec3::<f32>()?, [[[0., 1.]], [[2., 3.]]]);
    assert_eq!(x.squeeze(1)?.t()?.to_vec2::<f32>()?, [[0., 2.], [1., 3.]]);
    assert_eq!(Vec::<Vec<f32>>::try_from(x.select(0, 1)?)?, [[2., 3.]]);
    assert_eq!(Vec::<Vec<Vec<f32>>>::try_from(&x)?, x.to_vec3()?);
    assert_eq!(counting(&[2, 0]).to_vec2::<f32>()?, [[], []] as [[f32; 0]; 2]);
    assert_eq!(f32::try_from(&x.i((1, 0, 1))?)?, 3.0);
    assert_eq!(i64::try_from(Tensor::scalar(-7i64)?)?, -7);
    check_error(f64::try_from(&Tensor::scalar(1f32)?), &["item", "f32", "f64"]);
    check_error(f32::try_from(&x), &["item", "4 elements"]);
    check_error(x.to_vec2::<f32>(), &["to_vec2", "[2, 1, 2]", "2 dims"]);
    check_error(Vec::<Vec<i64>>::try_from(counting(&[1, 1])), &["f32", "i64"]);
    Ok(())
}

#[test]
fn reading_as_another_type_or_shape_is_refused() {
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
fn conversions_and_copies_keep_values() {
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
