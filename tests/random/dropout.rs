//! Dropout: what is kept, what it is scaled by, and the corners.

use super::{numbers, turn};
use opfuse::{DType, Result, Tensor};

#[test]
fn kept_elements_are_scaled_and_the_rest_is_zero() -> Result<()> {
    let _turn = turn();
    let x = Tensor::arange(1, 10_001, 1)?.to_dtype(DType::F32)?;
    for p in [0.1, 0.5, 0.8] {
        let dropped = numbers(&x.dropout(p, true)?);
        let kept = dropped.iter().filter(|x| **x != 0.0).count() as f64 / 10_000.0;
        assert!((kept - (1.0 - p)).abs() < 0.02, "{p}: {kept}");
        for (at, &value) in dropped.iter().enumerate() {
            let whole = (at + 1) as f64 / (1.0 - p);
            assert!(value == 0.0 || (value - whole).abs() < 1e-5 * whole, "{p}: element {at} is {value}");
        }
        let (out, mask) = x.native_dropout(p, true)?;
        let again = x.native_dropout_backward(&mask, 1.0 / (1.0 - p))?;
        assert_eq!((mask.dtype(), out.to_vec::<f32>()?), (DType::Bool, again.to_vec::<f32>()?));
    }
    Ok(())
}

#[test]
fn corners() -> Result<()> {
    let _turn = turn();
    let x = Tensor::from_slice(&[1.0f32, -2.0, f32::NAN], &[3])?;
    for (p, training) in [(0.0, true), (0.7, false), (1.0, false)] {
        assert!(x.dropout(p, training)?.is_same(&x), "{p} {training}");
    }
    let gone = x.dropout(1.0, true)?.to_vec::<f32>()?;
    assert!(gone[0] == 0.0 && gone[1] == 0.0 && gone[2].is_nan());
    let (out, mask) = x.native_dropout(1.0, true)?;
    assert_eq!((out.to_vec::<f32>()?[..2].to_vec(), mask.to_vec::<bool>()?), (vec![0.0, -0.0], vec![false; 3]));
    let (out, mask) = x.native_dropout(0.5, false)?;
    assert!(!out.is_alias_of(&x) && mask.to_vec::<bool>()? == [true; 3]);
    let empty = Tensor::zeros(&[0, 4], DType::F32)?;
    assert!(empty.dropout(0.5, true)?.is_same(&empty));
    assert_eq!(empty.native_dropout(0.5, true)?.1.sizes(), [0, 4]);
    for p in [1.5, -0.1, f64::NAN] {
        let error = x.dropout(p, true).expect_err("it is no probability").to_string();
        assert!(error.contains("dropout probability has to be between 0 and 1, but got"), "{error}");
        assert!(x.native_dropout(p, true).is_err());
    }
    assert!(Tensor::ones(&[3], DType::I64)?.dropout(0.5, true).is_err());
    Ok(())
}

#[test]
fn dropout_follows_the_layout_of_its_input() -> Result<()> {
    let _turn = turn();
    let x = Tensor::ones(&[5, 7], DType::F64)?.t()?;
    let (out, mask) = x.native_dropout(0.5, true)?;
    assert_eq!((out.strides(), mask.strides()), (&[1, 7][..], &[1, 7][..]));
    let meta = Tensor::meta(&x.ty())?.dropout(0.5, true)?;
    assert_eq!((meta.sizes(), meta.has_data()), (&[7, 5][..], false));
    Ok(())
}
