//! Tensors as arrays of the ndarray crate.

use super::*;
use ndarray::{ArrayD, arr0, arr2};
use opfuse::Index;
use opfuse::NdView;

#[test]
fn tensors_are_viewed_as_arrays_in_place() -> Result<()> {
    let x = counting(&[3, 4]);
    for (part, expected) in [
        (x.clone(), vec![0f32, 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11.]),
        (x.i((1.., 2..))?, vec![6., 7., 10., 11.]),
        (x.t()?.i((Index::step(.., 3), 1..))?, vec![4., 8., 7., 11.]),
        (x.i((0, 1..2))?.expand([2, 3, 1])?, vec![1.; 6]),
        (x.i((3.., ..))?, vec![]),
        (x.i((2, 3))?, vec![11.]),
    ] {
        let elements = part.to_ndarray::<f32>()?;
        let view = elements.view();
        assert_eq!(view.shape(), part.sizes());
        assert_eq!(view.iter().copied().collect::<Vec<f32>>(), expected);
        check(Tensor::try_from(view), part.sizes(), &expected);
    }
    let first: NdView<f32> = x.to_ndarray()?;
    assert_eq!(first.view().as_ptr(), x.to_ndarray::<f32>()?.view().as_ptr());
    assert_eq!(format!("{:?}", tensor(&[1u8, 2], &[2]).to_ndarray::<u8>()?.view().as_slice()), "Some([1, 2])");
    assert!(tensor(&[true, false], &[2]).to_ndarray::<bool>()?.view()[[0]]);
    Ok(())
}

#[test]
fn a_view_keeps_writers_out() -> Result<()> {
    let x = counting(&[3]);
    let view = x.to_ndarray::<f32>()?;
    check_error(x.add_(1.0), &["borrowed"]);
    check_error(x.i(0..1)?.zero_(), &["borrowed"]);
    drop(view);
    x.add_(1.0)?;
    check(Ok(x), &[3], &[1f32, 2., 3.]);
    Ok(())
}

#[test]
fn arrays_become_tensors() -> Result<()> {
    let matrix = arr2(&[[1i64, 2, 3], [4, 5, 6]]);
    check(Tensor::try_from(&matrix), &[2, 3], &[1i64, 2, 3, 4, 5, 6]);
    check(Tensor::try_from(matrix.t()), &[3, 2], &[1i64, 4, 2, 5, 3, 6]);
    check(Tensor::try_from(matrix.reversed_axes()), &[3, 2], &[1i64, 4, 2, 5, 3, 6]);
    check(Tensor::try_from(arr0(2.5f64)), &[], &[2.5f64]);
    let back = ArrayD::<f32>::try_from(&counting(&[2, 2]).t()?)?;
    assert_eq!(back, arr2(&[[0f32, 2.], [1., 3.]]).into_dyn());
    check_error(counting(&[2]).to_ndarray::<f64>(), &["to_ndarray", "f32", "f64"]);
    let meta = Tensor::meta(&TensorType::contiguous(DType::F32, &[2]))?;
    check_error(meta.to_ndarray::<f32>(), &["Cannot copy out of meta tensor"]);
    Ok(())
}
