//! Reductions and normalizations.

use super::*;

#[test]
fn reductions_compute_their_values() {
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
    check_error(counting(&[0]).max_all(), &["max: ", "no identity"]);
    check_error(tensor(&[1i64], &[1]).mean_all(), &["mean", "i64"]);
}

#[test]
fn normalizations_compute_their_values() {
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

/// Folding a few columns at once has the bits of folding each alone: eagerly and compiled, over an outer dim and a
/// middle one.
#[test]
fn few_columns_have_the_bits_of_each_alone() -> Result<()> {
    let folds: [fn(&Tensor, i64) -> Result<Tensor>; 4] = [
        |x, dim| x.sum([dim], false),
        |x, dim| x.amax([dim], false),
        |x, dim| x.argmax(dim, false),
        |x, dim| x.mul(x)?.sub(0.5)?.sum([dim], false),
    ];
    for (length, columns) in [(7, 1), (24, 3), (129, 2), (129, 15), (9000, 3), (9000, 16), (20_000, 8)] {
        let values: Vec<f32> = (0..2 * length * columns).map(|i| (i * 7919 % 1009) as f32 / 1009.0 - 0.3).collect();
        let x = Tensor::from_slice(&values, &[2, length, columns])?;
        let same = |a: &Tensor, b: &Tensor| a.eq(b)?.all((), false)?.item::<bool>();
        let column = |x: &Tensor, column: usize| x.select(-1, column as i64)?.contiguous();
        for fold in folds {
            let compiled = opfuse::compile(move |x: &Tensor| fold(x, -2));
            let all = fold(&x, -2)?;
            assert_eq!(all.sizes(), [2, columns]);
            assert!(same(&all, &compiled.call(&x)?)?, "{length} x {columns}");
            assert!(same(&all.select(0, 1)?, &fold(&x.select(0, 1)?, 0)?)?, "{length} x {columns}");
            for at in 0..columns {
                let alone = fold(&column(&x, at)?, -1)?;
                assert!(same(&column(&all, at)?, &alone)?, "{length} x {columns}, column {at}");
            }
        }
    }
    Ok(())
}

/// A sum with a `dtype` is computed in it: a narrow one wraps, and fractions are cut off first.
#[test]
fn sums_are_computed_in_the_given_dtype() -> Result<()> {
    let invoke = |name: &str, arguments: Vec<Value>, dtype: DType| -> Result<Tensor> {
        let named = vec![("dtype", Value::DType(dtype))];
        let results = Dispatcher::global().lookup(name)?.invoke(arguments, named)?;
        results.iter().flat_map(Value::tensors).next().cloned().ok_or_else(|| Error::argument(name, "left nothing"))
    };
    let whole = tensor(&[100i64, 100, 100, 7], &[4]);
    let parts = tensor(&[100.7f32, 100.6, 100.9, 7.5], &[4]);
    let signs = tensor(&[300i32, -5, 2, 3], &[4]);
    // The operator, the dtype, and the expected results.
    let cases = [
        ("aten::sum", DType::U8, [51, 51, 44]),
        ("aten::sum", DType::I8, [51, 51, 44]),
        ("aten::sum", DType::I16, [307, 307, 300]),
        ("aten::sum", DType::I32, [307, 307, 300]),
        ("aten::sum", DType::Bool, [1, 1, 1]),
        ("aten::nansum", DType::U8, [51, 51, 44]),
        ("aten::nansum", DType::I16, [307, 307, 300]),
        ("aten::prod", DType::U8, [192, 192, 216]),
        ("aten::prod", DType::I8, [-64, -64, -40]),
        ("aten::prod", DType::I16, [-12352, -12352, -9000]),
        ("aten::prod", DType::I32, [7_000_000, 7_000_000, -9000]),
    ];
    for (name, to, expected) in cases {
        for (x, expected) in [&whole, &parts, &signs].into_iter().zip(expected) {
            let found = invoke(name, vec![Value::Tensor(x.clone())], to)?;
            assert_eq!(found.dtype(), to, "{name} in {to}");
            assert_eq!(found.to_dtype(DType::I64)?.item::<i64>()?, expected, "{name} in {to}");
        }
    }
    for x in [&whole, &parts].map(|x| Value::Tensor(x.clone())) {
        check(invoke("aten::cumsum", vec![x.clone(), Value::Int(0)], DType::I8), &[4], &[100i8, -56, 44, 51]);
        let dims = Value::IntList(std::iter::once(0).collect());
        check(invoke("aten::sum.dim_IntList", vec![x, dims], DType::I8), &[], &[51i8]);
    }
    Ok(())
}
