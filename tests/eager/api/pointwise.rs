//! Pointwise rows, operators and promotion.

use super::*;

#[test]
fn regular_pointwise_rows_compute_their_values() {
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
fn rust_operators_compute_their_values() -> Result<()> {
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
fn operands_are_promoted() {
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
fn irregular_pointwise_rows_compute_their_values() {
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
    check(x.clamp(0, 1), &[3], &[0f32, 0., 1.]);
    check(x.clamp(-0.5, 1.0), &[3], &[-0.5f32, 0., 1.]);
    check(x.clamp(None, 1.0), &[3], &[-1f32, 0., 1.]);
    check(x.clamp(0.5, None), &[3], &[0.5f32, 0.5, 2.]);
    let (low, high) = (tensor(&[0f32, 0.5, 0.], &[3]), tensor(&[1f32, 3.], &[2, 1]));
    check(x.clamp(&low, &high), &[2, 3], &[0f32, 0.5, 1., 0., 0.5, 2.]);
    check(x.clamp(0, high), &[2, 3], &[0f32, 0., 1., 0., 0., 2.]);
    check(x.clamp(&low, None), &[3], &[0f32, 0.5, 2.]);
    check(tensor(&[-4i64, 7], &[2]).clamp(0, 3), &[2], &[0i64, 3]);
    check(tensor(&[-4i64, 7], &[2]).clamp(0, 2.5), &[2], &[0f32, 2.5]);
    for clamped in [x.clamp(0, &low), x.clamp_(0, &low).map(|()| x.clone())] {
        check(clamped, &[3], &[0f32, 0., 0.]);
    }
    x.fill_(3).and_then(|()| x.clamp_(None, 2)).expect("x is a plain tensor");
    check(x.copy(), &[3], &[2f32, 2., 2.]);
    check_error(x.where_(1, 2), &["where", "bool"]);
    check_error(x.masked_fill(&x, 1), &["masked_fill", "bool"]);
}

#[test]
fn rust_operators_take_every_number_type() -> Result<()> {
    let whole = tensor(&[7i32, -7, 12], &[3]);
    check(&whole % 5, &[3], &[2i32, 3, 2]);
    check(&whole & 6u8, &[3], &[6i32, 0, 4]);
    check(&whole | 1i8, &[3], &[7i32, -7, 13]);
    check(3 ^ &whole, &[3], &[4i32, -6, 15]);
    check(100i64 % &whole, &[3], &[2i32, -5, 4]);
    check(!&whole, &[3], &[-8i32, 6, -13]);
    let mask = whole.gt(0)?;
    check(!&mask, &[3], &[false, true, false]);
    check(&mask & true, &[3], &[true, false, true]);
    check(mask.clone() ^ whole.gt(10), &[3], &[true, false, false]);
    let x = tensor(&[1f32, -2.], &[2]);
    check(f16::from_f32(0.5) * &x, &[2], &[0.5f32, -1.]);
    check(&x - bf16::ONE, &[2], &[0f32, -3.]);
    check(1 - &x, &[2], &[0f32, 3.]);
    check(2 / x.clone(), &[2], &[2f32, -1.]);
    check((&x % 1.5)?.neg(), &[2], &[-1f32, -1.]);
    check((&x * &x).and_then(|y| (y + 1.0)? * &x), &[2], &[2f32, -10.]);
    check(&x * &x + &x, &[2], &[2f32, 2.]);
    check(&x - &x * &x - x.clone(), &[2], &[-1f32, -4.]);
    // The type of a literal on the left is inferred.
    let doubled = (2.0 * &x)?;
    check(doubled.abs(), &[2], &[2f32, 4.]);
    check((1 + &x)?.abs(), &[2], &[2f32, 1.]);
    check((&x * 2f32)? - 1i16, &[2], &[1f32, -5.]);
    check(2.0 * (&x + 1)? / &x, &[2], &[4f32, 1.]);
    check_error(&x * counting(&[3]) + &x, &["mul", "2", "3"]);
    check_error(&x & 1, &["bitwise_and", "f32"]);
    check_error(&x % counting(&[3]), &["remainder", "2", "3"]);
    Ok(())
}

/// As in PyTorch 2.15, 0-dim factors and divisors are not rounded to 16 bits: in eager calls, in place, and compiled.
#[test]
fn sixteen_bit_floats_are_scaled_by_whole_numbers_of_f32() -> Result<()> {
    const INF: f32 = f32::INFINITY;
    type Case = (DType, f64, &'static [f32], &'static [f32], &'static [f32]);
    let cases: [Case; 5] = [
        (DType::F16, 0.1, &[3.0, 6.0, 7.0, 12.0], &[0.300_048_83, 0.600_097_66, 0.700_195_3, 1.200_195_3], &[]),
        (DType::BF16, 0.1, &[9.0, 13.0, 18.0, 21.0], &[0.898_437_5, 1.296_875, 1.796_875, 2.093_75], &[]),
        (DType::F16, 0.3, &[1.0, 2.0, 4.0, 5.0], &[], &[3.333_984_4, 6.667_968_8, 13.335_937_5, 16.671_875]),
        (DType::BF16, 0.3, &[7.0, 9.0, 11.0, 14.0], &[], &[23.375, 30.0, 36.75, 46.75]),
        (DType::F16, 1e5, &[1e-4, 0.0, 100.0], &[10.0, 0.0, INF], &[0.0, 0.0, 0.001_000_404_4]),
    ];
    for (dtype, number, x, products, quotients) in cases {
        let x = Tensor::from_slice(x, &[x.len()])?.to_dtype(dtype)?;
        // A number, and a tensor without dims.
        let factor = Tensor::scalar(number as f32)?;
        let numbers = |tensor: Tensor| tensor.to_dtype(DType::F32)?.to_vec::<f32>();
        let times = opfuse::compile(move |x: &Tensor| x.mul(number));
        let over = opfuse::compile(move |x: &Tensor| x.div(number));
        if !products.is_empty() {
            let in_place = x.copy()?;
            in_place.mul_(number)?;
            for found in [x.mul(number)?, x.mul(&factor)?, in_place, times.call(&x)?, times.call(&x)?] {
                assert_eq!((found.dtype(), numbers(found)?), (dtype, products.to_vec()), "times {number}");
            }
        }
        if !quotients.is_empty() {
            for found in [x.div(number)?, x.div(&factor)?, over.call(&x)?, over.call(&x)?] {
                assert_eq!((found.dtype(), numbers(found)?), (dtype, quotients.to_vec()), "over {number}");
            }
        }
    }
    Ok(())
}
