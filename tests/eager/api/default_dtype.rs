//! The default dtype: what it decides, in eager calls, derivatives and compiled functions.

use opfuse::dispatch::{Dispatcher, Stack, Value};
use opfuse::{DType, Error, Result, Tensor, compile, default_dtype, set_default_dtype, vmap};

fn whole() -> Result<Tensor> {
    Tensor::from_slice(&[1i64, 3, 1 << 24 | 1], &[3])
}

/// The dtype of a factory called by its schema, with no dtype.
fn made(name: &str, arguments: Vec<Value>) -> Result<DType> {
    let mut stack: Stack = arguments.into_iter().collect();
    let operator = Dispatcher::global().lookup(name)?;
    let n_arguments = operator.schema().map_or(0, |schema| schema.arguments.len());
    stack.resize(n_arguments, Value::None);
    operator.call_boxed(&mut stack)?;
    match stack.pop() {
        Some(Value::Tensor(tensor)) => Ok(tensor.dtype()),
        _ => Err(Error::argument("test", "no tensor")),
    }
}

#[test]
fn integers_become_the_default_float_wherever_a_call_needs_one() -> Result<()> {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let _guard = set_default_dtype(dtype)?;
        assert_eq!(default_dtype(), dtype);
        let (x, flags) = (whole()?, whole()?.gt(2)?);
        let found = [
            x.mul(0.1)?,
            x.div(&x)?,
            x.exp()?,
            x.logsumexp([0], false)?,
            flags.where_(&x, &Tensor::number(0.5)?)?,
            flags.where_(1.0, -1.0)?,
            flags.where_(1, 0.5)?,
            flags.add(0.5)?,
            x.sin()?,
        ];
        assert!(found.iter().all(|found| found.dtype() == dtype), "{dtype}: {found:?}");
        // What needs none stays.
        let kept = [x.add(1)?, x.floor_divide(2)?, x.sum_all()?, flags.where_(1, 0)?];
        assert!(kept.iter().all(|kept| kept.dtype() == DType::I64), "{dtype}: {kept:?}");
        let half = Tensor::ones(&[3], DType::F16)?;
        assert_eq!(half.mul(0.1)?.dtype(), DType::F16);
        assert_eq!(half.add(&x)?.dtype(), DType::F16);
    }
    Ok(())
}

#[test]
fn comparisons_are_made_in_the_default_float() -> Result<()> {
    let x = whole()?;
    assert_eq!(x.eq(16_777_216.0)?.to_vec::<bool>()?, [false, false, true]);
    let _guard = set_default_dtype(DType::F64)?;
    assert_eq!(x.eq(16_777_216.0)?.to_vec::<bool>()?, [false, false, false]);
    Ok(())
}

#[test]
fn factories_without_a_dtype_have_the_default_one() -> Result<()> {
    let size = || Value::IntList(vec![2i64].as_slice().into());
    let half = || Value::Scalar(0.5.into());
    for dtype in [DType::F64, DType::F16, DType::F32] {
        let _guard = set_default_dtype(dtype)?;
        for name in ["aten::zeros", "aten::ones", "aten::empty.memory_format", "aten::rand", "aten::randn"] {
            assert_eq!(made(name, vec![size()])?, dtype, "{name}");
        }
        assert_eq!(made("aten::full", vec![size(), half()])?, dtype);
        assert_eq!(made("aten::full", vec![size(), Value::Scalar(1i64.into())])?, DType::I64);
        assert_eq!(made("aten::arange", vec![Value::Scalar(2.5.into())])?, dtype);
        assert_eq!(made("aten::eye", vec![Value::Int(2)])?, dtype);
        assert_eq!(made("aten::scalar_tensor", vec![half()])?, dtype);
    }
    Ok(())
}

#[test]
fn guards_dropped_in_any_order_leave_the_default_dtype_of_the_live_ones() -> Result<()> {
    let outer = set_default_dtype(DType::F64)?;
    let inner = set_default_dtype(DType::F16)?;
    drop(outer);
    assert_eq!((default_dtype(), whole()?.exp()?.dtype()), (DType::F16, DType::F16));
    drop(inner);
    assert_eq!((default_dtype(), whole()?.exp()?.dtype()), (DType::F32, DType::F32));
    let error = set_default_dtype(DType::I64).expect_err("it is no floating dtype");
    assert!(error.to_string().contains("set_default_dtype"), "{error}");
    std::thread::scope(|scope| {
        let _guard = set_default_dtype(DType::F64)?;
        let other = scope.spawn(default_dtype).join().expect("it does not panic");
        assert_eq!(other, DType::F32);
        Ok(())
    })
}

#[test]
fn compiled_functions_use_the_default_dtype_of_the_call() -> Result<()> {
    let f = compile(|x: &Tensor| x.mul(0.1)?.exp());
    for _ in 0..3 {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let _guard = set_default_dtype(dtype)?;
            let (eager, found) = (whole()?.mul(0.1)?.exp()?, f.call(&whole()?)?);
            assert_eq!(found.dtype(), dtype);
            assert_eq!(found.to_dtype(DType::F64)?.to_vec::<f64>()?, eager.to_dtype(DType::F64)?.to_vec::<f64>()?);
        }
    }
    assert_eq!(f.counts().captures, 3);
    Ok(())
}

#[test]
fn mapped_calls_and_calls_that_write_use_the_default_dtype() -> Result<()> {
    let _guard = set_default_dtype(DType::F64)?;
    let mapped = vmap(|x: &Tensor| x.mul(0.1)).call(&whole()?)?;
    assert_eq!(mapped.to_vec::<f64>()?, whole()?.mul(0.1)?.to_vec::<f64>()?);
    let target = Tensor::zeros(&[3], DType::F64)?;
    target.copy_(&whole()?.div(3)?)?;
    assert_eq!(target.to_vec::<f64>()?[0], 1.0 / 3.0);
    assert!(whole()?.div_(3).is_err(), "a float cannot be stored in integers");
    Ok(())
}

#[test]
fn gradients_have_the_same_bits_under_any_default_dtype() -> Result<()> {
    let gradient = |dtype: DType| -> Result<Vec<f32>> {
        let _guard = set_default_dtype(dtype)?;
        let x = Tensor::from_slice(&[1.5f32, 2.5, 0.75], &[3])?;
        x.set_requires_grad(true)?;
        x.pow(&Tensor::from_slice(&[2i64, 3, -1], &[3])?)?.sum_all()?.backward()?;
        x.grad().ok_or_else(|| Error::argument("test", "no gradient"))?.to_vec()
    };
    assert_eq!(gradient(DType::F64)?, gradient(DType::F32)?);
    Ok(())
}

#[test]
fn a_choice_of_numbers_keeps_their_bits() -> Result<()> {
    let flags = whole()?.gt(2)?;
    let f = compile(|flags: &Tensor| flags.where_(0.1, -0.1));
    assert_eq!(f.call(&flags)?.dtype(), DType::F32);
    let _guard = set_default_dtype(DType::F64)?;
    for _ in 0..2 {
        assert_eq!(f.call(&flags)?.to_vec::<f64>()?, [-0.1, 0.1, 0.1]);
    }
    assert_eq!(flags.where_(0.1, -0.1)?.to_vec::<f64>()?, [-0.1, 0.1, 0.1]);
    Ok(())
}
