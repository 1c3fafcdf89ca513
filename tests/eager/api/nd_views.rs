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

#[test]
fn arrays_by_value_are_adopted_and_given_back() -> Result<()> {
    use ndarray::{Array2, ShapeBuilder, s};
    let array = Array2::from_shape_fn((3, 4).f(), |(row, column)| (4 * row + column) as f32);
    let start = array.as_ptr();
    let x = Tensor::try_from(array)?;
    assert_eq!((x.as_slice::<f32>().is_err(), x.strides()), (true, &[1, 3][..]));
    assert_eq!((x.t()?.as_slice::<f32>()?.as_ptr(), x.i((1, 2))?.item::<f32>()?), (start, 6.0));

    let array = Array2::from_shape_fn((3, 4), |(row, column)| (4 * row + column) as i32);
    let part = Tensor::try_from(array.slice_move(s![1.., 1..;2]))?;
    check(Ok(part.clone()), &[2, 2], &[5, 7, 9, 11]);
    assert_eq!(part.storage_offset(), 5);
    part.add_(1)?;
    check(Ok(part), &[2, 2], &[6, 8, 10, 12]);

    let before = opfuse::device::foreign::copies();
    let flipped = Array2::from_shape_fn((2, 2), |(row, column)| (2 * row + column) as i64).slice_move(s![..;-1, ..]);
    check(Tensor::try_from(flipped), &[2, 2], &[2i64, 3, 0, 1]);
    assert!(opfuse::device::foreign::copies() > before);
    check(Tensor::try_from(Array2::<f64>::zeros((0, 3))), &[0, 3], &[0.0f64; 0]);

    let array = Array2::from_elem((2, 3), 1.5f64);
    let start_of_last = array.as_ptr();
    let back = ArrayD::<f64>::try_from(Tensor::try_from(array)?)?;
    assert_eq!((back.as_ptr(), back.shape()), (start_of_last, &[2, 3][..]));
    Ok(())
}
