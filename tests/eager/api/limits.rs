//! Sizes and numbers beyond the limits: clear errors, at once, and never an abort.

use super::*;

#[test]
fn too_many_pieces_are_refused() -> Result<()> {
    let x = counting(&[17]);
    let many = 1_000_000_000_000;
    let parts = ["1000000000000 pieces", "4194304 at most", "narrow"];
    check_error(x.tensor_split(many, 0), &[&["tensor_split"], &parts[..]].concat());
    check_error(counting(&[0]).chunk(many, 0), &[&["chunk"], &parts[..]].concat());
    let wide = Tensor::scalar(1f32)?.expand([many as i64])?;
    check_error(wide.unbind(0), &[&["unbind"], &parts[..]].concat());
    check_error(wide.split(1, 0), &[&["split"], &parts[..]].concat());
    assert_eq!(wide.split(many / 2, 0)?.len(), 2);
    assert_eq!(x.tensor_split(1000, 0)?.len(), 1000);
    Ok(())
}

#[test]
fn too_many_elements_are_refused() -> Result<()> {
    let out_of_memory = |found: Result<()>| assert!(matches!(found, Err(Error::OutOfMemory { .. })), "{found:?}");
    let wide = Tensor::scalar(1f32)?.expand([1 << 60])?;
    out_of_memory(wide.to_vec::<f32>().map(drop));
    check_error(wide.item::<f32>(), &["item", "not one number"]);
    let often = tensor(&[1i64 << 58, 3], &[2]);
    out_of_memory(counting(&[2]).repeat_interleave_each(&often, 0).map(drop));
    let often = tensor(&[i64::MAX, i64::MAX], &[2]);
    out_of_memory(counting(&[2]).repeat_interleave_each(&often, 0).map(drop));
    check_error(tensor(&[1i64, -1], &[2]).repeat_interleave_each(&tensor(&[1i64, -1], &[2]), 0), &["negative", "-1"]);
    assert_eq!(counting(&[5, 0]).repeat_interleave(3, 0)?.sizes(), [15, 0]);
    check_error(counting(&[5, 0]).repeat_interleave(usize::MAX, 0), &["repeat_interleave"]);
    Ok(())
}

#[test]
fn triangles_of_distant_diagonals_are_all_or_nothing() -> Result<()> {
    let x = counting(&[2, 3]);
    for diagonal in [i64::MAX, 3, i64::MAX - 1] {
        check(x.triu(diagonal), &[2, 3], &[0f32; 6]);
        assert_eq!(x.tril(diagonal)?.to_vec::<f32>()?, x.to_vec::<f32>()?);
    }
    for diagonal in [i64::MIN, -2, i64::MIN + 1] {
        check(x.tril(diagonal), &[2, 3], &[0f32; 6]);
        assert_eq!(x.triu(diagonal)?.to_vec::<f32>()?, x.to_vec::<f32>()?);
    }
    Ok(())
}

/// As in PyTorch: a number that becomes an element may lose its fraction, and nothing else.
#[test]
fn numbers_that_do_not_fit_are_refused() -> Result<()> {
    use DType::{BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8};
    let refused: &[(DType, &[f64])] = &[
        (U8, &[-1.5, -128.5, 256.0, 300.0, 1e10, f64::NAN, f64::INFINITY]),
        (I8, &[-128.5, -129.0, 128.0, 255.5, 1e10, f64::NEG_INFINITY]),
        (I16, &[65520.0, 3e9, 1e39, f64::NAN]),
        (I32, &[2147483648.0, 3e9, 1e10]),
        (I64, &[9223372036854775808.0, 9.3e18, f64::NAN]),
        (F32, &[1e39, -1e300]),
    ];
    let fine: &[(DType, &[f64])] = &[
        (U8, &[0.5, 127.9, 255.5]),
        (I8, &[-128.0, -1.5, 127.9]),
        (I64, &[-9223372036854775808.0, 1e18]),
        (F32, &[f32::MAX.into(), f64::NAN, f64::INFINITY]),
        (F16, &[1e10]),
        (BF16, &[1e10]),
        (Bool, &[300.0, -1.5, f64::NAN]),
        (F64, &[1e300]),
    ];
    let holds = tensor(&[true], &[1]);
    for &(dtype, values) in refused {
        for &value in values {
            let parts = ["cannot be converted", dtype.name(), "without overflow"];
            check_error(Tensor::full(&[1], value, dtype), &[&["full"], &parts[..]].concat());
            let x = Tensor::ones(&[1], dtype)?;
            check_error(x.fill_(value), &[&["fill_"], &parts[..]].concat());
            check_error(x.masked_fill(&holds, value), &[&["masked_fill"], &parts[..]].concat());
            check_error(x.masked_fill_(&holds, value), &[&["masked_fill"], &parts[..]].concat());
            assert_eq!(x.to_dtype(F64)?.item::<f64>()?, 1.0);
        }
    }
    for &(dtype, values) in fine {
        for &value in values {
            let x = Tensor::full(&[1], value, dtype)?;
            x.fill_(value)?;
            x.masked_fill_(&holds, value)?;
        }
    }
    check(Tensor::full(&[1], -1, U8), &[1], &[255u8]);
    check(Tensor::full(&[1], -255, U8), &[1], &[1u8]);
    check_error(Tensor::full(&[1], -256, U8), &["overflow"]);
    check_error(Tensor::full(&[1], i64::MAX, I32), &["overflow"]);
    check_error(Tensor::zeros(&[2], U8)?.constant_pad_nd([1, 1], -0.75), &["constant_pad_nd", "u8", "overflow"]);
    check(Tensor::full(&[1], i64::MAX, I64), &[1], &[i64::MAX]);
    Ok(())
}

/// Errors name the operator that was called, not its parts.
#[test]
fn errors_name_the_call() {
    let x = counting(&[2, 3]);
    let far = tensor(&[i64::MIN], &[1]);
    check_error(x.take(&far), &["take: "]);
    check_error(tensor(&[-1i64], &[1]).one_hot(None), &["one_hot: "]);
    check_error(x.sort(4, false), &["sort: Dimension out of range"]);
    check_error(x.softmax(3), &["softmax: "]);
    assert!(!x.softmax(3).expect_err("there is no such dim").to_string().starts_with('_'));
    check_error(Tensor::zeros(&[usize::MAX, 2], DType::F32), &["zeros: "]);
    check_error(Tensor::ones(&[usize::MAX, 2], DType::F32), &["ones: "]);
    check_error(counting(&[0]).min_all(), &["min: "]);
    check_error(x.max_dim(4, false), &["max: "]);
    check_error(Tensor::arange(0.0, 1.0, 1e-300), &["arange", "elements", "longer step"]);
    check_error(Tensor::arange(0.0, 1.0, -1.0), &["arange", "wrong way"]);
    check_error(x.add_scaled(&x, true), &["add", "alpha", "f32"]);
    check_error(x.sub_scaled(&x, true), &["sub", "alpha", "f32"]);
    check(tensor(&[true], &[1]).add_scaled(tensor(&[true], &[1]), true), &[1], &[true]);
}

#[test]
fn a_0_dim_tensor_is_indexed_like_one_dim() -> Result<()> {
    let one = Tensor::scalar(1f32)?;
    for [a, b] in [[0, -1], [-1, 0], [0, 0]] {
        check(one.transpose(a, b), &[], &[1f32]);
    }
    check_error(one.transpose(5, -9), &["transpose", "range of [-1, 0], but got 5"]);
    check_error(one.transpose(0, 1), &["transpose", "range of [-1, 0], but got 1"]);
    check_error(one.swapaxes(100, 3), &["range of [-1, 0], but got 100"]);
    for (holds, expected) in [(true, &[0i64][..]), (false, &[])] {
        let places = Dispatcher::global().lookup("aten::where")?;
        let found: Vec<Tensor> = places.call((&Tensor::scalar(holds)?,))?;
        assert_eq!(found.len(), 1);
        check(Ok(found[0].clone()), &[expected.len()], expected);
    }
    check(invoke("aten::repeat_interleave.Tensor", vec![Value::Tensor(tensor(&[1i32, 2], &[2]))]), &[3], &[0i32, 1, 1]);
    Ok(())
}

/// A repeated element of an expanded tensor is written once. Where values differ, any of them may stay.
#[test]
fn expanded_tensors_are_filled() -> Result<()> {
    let x = counting(&[2, 1, 3]);
    let wide = x.expand([2, 4, 3])?;
    wide.fill_(2.5)?;
    check(Ok(x.clone()), &[2, 1, 3], &[2.5f32; 6]);
    wide.select(1, 2)?.select(0, 0)?.zero_()?;
    check(Ok(x.clone()), &[2, 1, 3], &[0f32, 0., 0., 2.5, 2.5, 2.5]);
    wide.copy_(&wide)?;
    check_error(wide.copy_(&counting(&[3])), &["single memory location", "clone()"]);
    x.copy_(&x)?;
    check(Ok(x), &[2, 1, 3], &[0f32, 0., 0., 2.5, 2.5, 2.5]);
    Ok(())
}

#[test]
fn many_rows_without_elements_take_no_time_and_no_memory() {
    let x = Tensor::zeros(&[1 << 40, 0], DType::F32).expect("it has no elements");
    let calls: [(&str, opfuse::Result<Tensor>); 4] = [
        ("argsort", x.argsort(1, false)),
        ("cumsum", x.cumsum(1)),
        ("sort", x.sort(1, false).map(|(values, _)| values)),
        ("topk", x.topk(0, 1, true).map(|(values, _)| values)),
    ];
    for (op, result) in calls {
        assert_eq!(result.expect(op).sizes(), [1 << 40, 0], "{op}");
    }
    let error = x.to_vec2::<f32>().expect_err("its rows do not fit").to_string();
    assert!(error.contains("memory"), "{error}");
}

#[test]
fn statistics_of_one_value_are_refused() {
    let options = opfuse::nn::BatchNorm { training: true, ..opfuse::nn::BatchNorm::default() };
    let x = Tensor::ones(&[1, 3, 1], DType::F32).expect("it is small");
    for (op, result) in [("batch_norm", x.batch_norm(&options)), ("instance_norm", x.instance_norm(&options))] {
        let error = result.expect_err("each mean is the value itself").to_string();
        assert!(error.contains(op) && error.contains("more than 1 value per channel"), "{error}");
    }
    let two = Tensor::ones(&[2, 3], DType::F32).expect("it is small");
    two.batch_norm(&options).expect("two values have a variance");
}
