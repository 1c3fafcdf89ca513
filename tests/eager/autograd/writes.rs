//! Writes: versions, views, leaves, inference tensors.

use super::{gradient, leaf, refused, values};
use opfuse::autograd::{inference_mode, no_grad};
use opfuse::dispatch::DispatchKey;
use opfuse::{DType, Result, Tensor};

// line 112
#[test]
fn leaves_are_not_written_while_gradients_are_recorded() -> Result<()> {
    let x = leaf(&[1.0, 2.0], &[2]);
    refused(x.mul_(2.0), "a leaf Variable that requires grad is being used in an in-place operation");
    refused(x.select(0, 0)?.mul_(2.0), "a view of a leaf Variable that requires grad");
    let before = x.version();
    {
        let _quiet = no_grad();
        x.mul_(2.0)?;
        x.select(0, 0)?.add_(1.0)?;
    }
    assert_eq!((values(&x), x.version()), (vec![3.0, 4.0], before + 2));
    Ok(())
}

// line 114
#[test]
fn detach_shares_the_version_and_data_does_not() -> Result<()> {
    let x = (&leaf(&[1.0], &[1]) * 1.0)?;
    x.detach()?.mul_(2.0)?;
    assert_eq!((values(&x), x.version()), (vec![2.0], 1));
    x.data().mul_(2.0)?;
    assert_eq!((values(&x), x.version()), (vec![4.0], 1));
    Ok(())
}

// line 115
#[test]
fn a_write_to_a_saved_value_is_an_error() -> Result<()> {
    let x = leaf(&[1.0, 2.0], &[2]);
    let y = x.exp()?;
    let z = (&y * 1.0)?.sum((), false)?;
    y.detach()?.zero_()?;
    let text = "modified by an inplace operation: f64[2], which is output 0 of ExpBackward, is at version 1; expected \
                version 0";
    refused(z.backward(), text);
    let (a, b) = (x.exp()?, leaf(&[1.0, 1.0], &[2]));
    let z = (&a * &b)?.sum((), false)?;
    a.data().zero_()?;
    z.backward()?;
    assert_eq!(gradient(&b), [0.0, 0.0]);
    Ok(())
}

// line 118
#[test]
fn a_base_without_gradients_gets_them_from_what_is_written() -> Result<()> {
    let (base, value) = (Tensor::zeros(&[2, 2], DType::F64)?, leaf(&[5.0, 6.0], &[2]));
    let row = base.select(0, 1)?;
    row.copy_(&(&value * 2.0)?)?;
    assert!(base.requires_grad() && row.requires_grad());
    base.sum((), false)?.backward()?;
    assert_eq!((values(&base), gradient(&value)), (vec![0.0, 0.0, 10.0, 12.0], vec![2.0, 2.0]));
    Ok(())
}

// line 120
#[test]
fn views_made_in_no_grad_mode_are_not_written_through() -> Result<()> {
    let y = (&leaf(&[1.0, 2.0], &[2]) * 1.0)?;
    let view = {
        let _quiet = no_grad();
        y.select(0, 0)?
    };
    refused(view.mul_(2.0), "a view was created in no_grad mode");
    Ok(())
}

// line 121
#[test]
fn inference_tensors_stay_out_of_autograd() -> Result<()> {
    let made = {
        let _mode = inference_mode();
        Tensor::from_slice(&[1.0, 2.0], &[2])?
    };
    assert!(made.is_inference());
    let keys = made.key_set();
    assert!(
        !keys.has(DispatchKey::AutogradCPU) && !keys.has(DispatchKey::ADInplaceOrView) && keys.has(DispatchKey::CPU)
    );
    refused(made.mul_(2.0), "Inplace update to inference tensor outside InferenceMode is not allowed");
    refused((&made * &leaf(&[1.0, 1.0], &[2])).map(|_| ()), "an inference tensor cannot be saved for backward");
    assert!(made.select(0, 0)?.is_inference());
    assert!(!(&made + 1.0)?.is_inference());
    Ok(())
}

#[test]
fn a_write_replaces_the_history() -> Result<()> {
    let (x, value) = (leaf(&[1.0, 2.0], &[2]), leaf(&[7.0], &[1]));
    let y = (&x * 1.0)?;
    y.copy_(&value)?;
    y.sum((), false)?.backward()?;
    assert_eq!((values(&y), gradient(&value)), (vec![7.0, 7.0], vec![2.0]));
    assert!(x.grad().is_none());
    let z = (&x * 3.0)?;
    z.mul_(7.0)?;
    z.sum((), false)?.backward()?;
    assert_eq!(gradient(&x), [21.0, 21.0]);
    Ok(())
}

// line 166
#[test]
fn a_target_keeps_its_shape_and_dtype() -> Result<()> {
    let x = Tensor::zeros(&[4], DType::F64)?;
    let text = "output with shape [4] doesn't match the broadcast shape [3, 4]";
    refused(x.add_(&Tensor::ones(&[3, 4], DType::F64)?), text);
    let whole = Tensor::zeros(&[4], DType::I64)?;
    refused(whole.add_(0.5), "can't be cast to the desired output type i64");
    whole.add_(&Tensor::ones(&[1], DType::I32)?)?;
    assert_eq!(whole.to_vec::<i64>()?, [1; 4]);
    let text = "more than one element of the written-to tensor refers to a single memory location";
    refused(Tensor::zeros(&[1], DType::F64)?.expand([3])?.add_(1.0), text);
    Ok(())
}

#[test]
fn overlapping_reads_and_writes_are_ordered() -> Result<()> {
    let x = Tensor::from_slice(&[1.0, 2.0, 3.0, 4.0], &[4])?;
    x.slice(0, 1, None, 1)?.copy_(&x.slice(0, 0, 3, 1)?)?;
    assert_eq!(values(&x), [1.0, 1.0, 2.0, 3.0]);
    let square = Tensor::from_slice(&[1.0, 2.0, 3.0, 4.0], &[2, 2])?;
    square.add_(&square.t()?)?;
    assert_eq!(values(&square), [2.0, 5.0, 5.0, 8.0]);
    square.mul_(&square)?;
    assert_eq!(values(&square), [4.0, 25.0, 25.0, 64.0]);
    Ok(())
}

/// Writers to aliases of one tensor take turns.
#[test]
fn threads_write_to_aliases_one_at_a_time() -> Result<()> {
    let x = Tensor::zeros(&[4096], DType::I64)?;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let alias = x.detach().expect("an alias takes nothing");
            scope.spawn(move || (0..200).try_for_each(|_| alias.add_(1)).expect("an addition fits"));
        }
    });
    assert_eq!(x.to_vec::<i64>()?, [800; 4096]);
    Ok(())
}
// line 117
#[test]
fn a_write_through_a_view_gives_the_base_a_new_history() -> Result<()> {
    let x = leaf(&[1.0, 2.0, 3.0, 4.0], &[2, 2]);
    let y = (&x * 1.0)?;
    let row = y.select(0, 0)?;
    let before = row.grad_fn().expect("it comes from y");
    row.mul_(2.0)?;
    assert_eq!(y.grad_fn().map(|call| call.name()).as_deref(), Some("CopySlices"));
    assert!(!row.grad_fn().expect("it comes from y").is_same(&before));
    (y.sum((), false)? + row.sum((), false)?)?.backward()?;
    assert_eq!((values(&y), gradient(&x)), (vec![2.0, 4.0, 3.0, 4.0], vec![4.0, 4.0, 1.0, 1.0]));
    Ok(())
}

// line 127
#[test]
fn out_forms_are_not_differentiated() -> Result<()> {
    let (x, out) = (leaf(&[1.0, 2.0], &[2]), Tensor::zeros(&[2], DType::F64)?);
    let exp = opfuse::dispatch::Dispatcher::global().lookup("aten::exp.out")?;
    refused(
        exp.call::<_, Tensor>((&x, &out)),
        "functions with out=... arguments don't support automatic differentiation",
    );
    let _quiet = no_grad();
    assert!(exp.call::<_, Tensor>((&x, &out))?.is_alias_of(&out));
    assert_eq!(values(&out), values(&x.exp()?));
    Ok(())
}

// line 144
#[test]
fn a_view_of_a_view_has_the_root_as_base() -> Result<()> {
    let x = Tensor::zeros(&[4, 6], DType::F64)?;
    let view = x.slice(0, 1, None, 2)?.transpose(0, 1)?.select(0, 4)?;
    assert!(view.is_view() && view.base().is_some_and(|base| base.is_same(&x)) && view.is_alias_of(&x));
    assert_eq!((view.sizes(), view.strides(), view.storage_offset()), (&[2usize][..], &[12usize][..], 10));
    assert!(x.base().is_none());
    Ok(())
}

#[test]
fn writes_to_inference_tensors_are_not_counted_whichever_way_they_are_made() -> Result<()> {
    let _mode = inference_mode();
    let x = Tensor::from_slice(&[1.0, 2.0], &[2])?;
    x.add_(1.0)?;
    x.copy_(&x.mul(2.0)?)?;
    x.i(0..1)?.fill_(3.0)?;
    x.pow_(&x)?;
    x.set(0, 1.0)?;
    assert_eq!((x.is_inference(), x.version()), (true, 0));
    Ok(())
}
