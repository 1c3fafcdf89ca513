//! Rows and composites as operators.

use super::*;

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
fn operators_on_meta_tensors_give_shapes() {
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
