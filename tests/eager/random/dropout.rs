//! Dropout: what is kept, how it is scaled, and corner cases.

use super::{numbers, turn};
use opfuse::autograd::{GradOptions, grad};
use opfuse::{DType, Result, Tensor, compile};

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
fn corner_cases_of_dropout() -> Result<()> {
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

#[test]
fn gradients_pass_where_elements_were_kept() -> Result<()> {
    let _turn = turn();
    let leaf = Tensor::full(&[50], 3.0, DType::F64)?;
    leaf.set_requires_grad(true)?;
    let (out, mask) = leaf.native_dropout(0.75, true)?;
    assert!(out.requires_grad() && !mask.requires_grad());
    out.mul(&out)?.sum_all()?.backward()?;
    let gradient = leaf.grad().expect("it was used").to_vec::<f64>()?;
    let kept: Vec<f64> = mask.to_vec::<bool>()?.into_iter().map(|kept| if kept { 96.0 } else { 0.0 }).collect();
    assert_eq!(gradient, kept, "twice the element of 12, times the scale of 4");
    Ok(())
}

/// The backward pass multiplies by the mask of the forward pass, in every call.
#[test]
fn a_compiled_step_draws_one_mask_for_both_passes() -> Result<()> {
    let _turn = turn();
    let step = |x: &Tensor| -> Result<(Tensor, Tensor)> {
        let leaf = x.copy()?;
        leaf.set_requires_grad(true)?;
        let out = leaf.dropout(0.5, true)?;
        let gradient = grad(&[&out.sum_all()?], &[&leaf], &[], GradOptions::default())?.remove(0);
        Ok((out.detach()?, gradient.expect("it was used")))
    };
    let x = Tensor::ones(&[40], DType::F32)?;
    opfuse::manual_seed(6);
    let eager = [step(&x)?, step(&x)?, step(&x)?].map(|(out, gradient)| (numbers(&out), numbers(&gradient)));
    assert!(eager.iter().all(|(out, gradient)| out == gradient) && eager[0] != eager[1]);
    opfuse::manual_seed(6);
    let compiled = compile(step);
    for expected in eager {
        let (out, gradient) = compiled.call(&x)?;
        assert_eq!((numbers(&out), numbers(&gradient)), expected);
    }
    assert!(compiled.explain().eager.is_none(), "{}", compiled.explain());
    Ok(())
}
