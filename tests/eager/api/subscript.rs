//! Indexing by numbers, ranges, new dims and tensors.

use super::*;
use opfuse::Indices;
use opfuse::{Ellipsis, Index, NewAxis};

fn cube() -> Tensor {
    Tensor::arange(0, 24, 1).and_then(|x| x.view([2, 3, 4])).expect("24 elements")
}

#[track_caller]
fn gives(indices: impl Indices, sizes: &[usize], first_and_last: (i64, i64)) {
    let cube = cube();
    let part = cube.i(indices).expect("the index is legal");
    assert!(part.is_alias_of(&cube), "{part:?} is no view");
    assert_eq!(part.sizes(), sizes, "{part:?}");
    let all: Vec<i64> = part.to_vec().expect("data");
    assert_eq!((all[0], all[all.len() - 1]), first_and_last, "{part:?}");
}

#[test]
fn every_kind_of_index_gives_its_part() {
    gives(0, &[3, 4], (0, 11));
    gives(-1i64, &[3, 4], (12, 23));
    gives(1usize, &[3, 4], (12, 23));
    gives((1, 2, 3), &[], (23, 23));
    gives((.., 1..3), &[2, 2, 4], (4, 23));
    gives((0, .., -1), &[3], (3, 11));
    gives((.., .., 1..), &[2, 3, 3], (1, 23));
    gives((.., ..2), &[2, 2, 4], (0, 19));
    gives((.., ..-1), &[2, 2, 4], (0, 19));
    gives((.., ..=-2), &[2, 2, 4], (0, 19));
    gives((.., ..=-1), &[2, 3, 4], (0, 23));
    gives((.., -2i64..=-1), &[2, 2, 4], (4, 23));
    gives((.., 0..=0usize), &[2, 1, 4], (0, 15));
    gives((.., 1..100), &[2, 2, 4], (4, 23));
    gives((Ellipsis, 1), &[2, 3], (1, 21));
    gives((1, Ellipsis), &[3, 4], (12, 23));
    gives((Ellipsis, 0, 0, 0), &[], (0, 0));
    gives((NewAxis, 0, None, Ellipsis, NewAxis), &[1, 1, 3, 4, 1], (0, 11));
    gives((.., .., Index::step(.., 2)), &[2, 3, 2], (0, 22));
    gives((.., Index::slice(None, -1, 1)), &[2, 2, 4], (0, 19));
    gives((.., .., Index::slice(1, -1, 2)), &[2, 3, 1], (1, 21));
    gives(vec![Index::from(1), Index::from(..), Index::from(2)], &[3], (14, 22));
    gives((), &[2, 3, 4], (0, 23));
    assert_eq!(cube().i((.., Index::slice(3, 1, 1))).expect("no elements").sizes(), [2, 0, 4]);
    assert_eq!(cube().i(usize::MAX..).expect("no elements").sizes(), [0, 3, 4]);
}

#[test]
fn index_tensors_pick_elements() -> Result<()> {
    let x = cube();
    let picks = tensor(&[2i64, 0], &[2]);
    check(x.i((0, &picks, 1)), &[2], &[9i64, 1]);
    check(x.i((.., picks.clone(), ..2)), &[2, 2, 2], &[8i64, 9, 0, 1, 20, 21, 12, 13]);
    check(x.i((tensor(&[1i64, 0], &[2]), &picks)).and_then(|x| x.select(1, 0)), &[2], &[20i64, 0]);
    check(x.i((&x % 7)?.eq(0)?), &[4], &[0i64, 7, 14, 21]);
    let rows = tensor(&[true, false, false, false, false, true], &[2, 3]);
    check(x.i((&rows, 3)), &[2], &[3i64, 23]);
    Ok(())
}

#[test]
fn parts_are_written() -> Result<()> {
    let x = counting(&[2, 3]);
    x.set((.., 1), 9)?;
    check(Ok(x.clone()), &[2, 3], &[0f32, 9., 2., 3., 9., 5.]);
    x.set((0, 1..), tensor(&[7f64, 8.], &[2]))?;
    check(Ok(x.clone()), &[2, 3], &[0f32, 7., 8., 3., 9., 5.]);
    x.set((.., tensor(&[0i64, 2], &[2])), -1.0)?;
    check(Ok(x.clone()), &[2, 3], &[-1f32, 7., -1., -1., 9., -1.]);
    x.set(x.lt(0)?, 0)?;
    check(Ok(x.clone()), &[2, 3], &[0f32, 7., 0., 0., 9., 0.]);
    check_error(x.set(0, counting(&[4])), &["3", "4"]);
    Ok(())
}

#[test]
fn leading_dims_of_one_element_are_dropped_from_what_is_written() -> Result<()> {
    let x = cube();
    x.set(0, Tensor::full(&[1, 1, 3, 4], 7, opfuse::DType::I64)?)?;
    assert_eq!(x.i((0, 2, 3))?.item::<i64>()?, 7);
    check_error(x.set(0, Tensor::full(&[2, 3, 4], 7, opfuse::DType::I64)?), &["sizes"]);
    Ok(())
}

#[test]
fn illegal_indices_are_refused() {
    let x = cube();
    check_error(x.i((0, 0, 0, 0)), &["too many indices for tensor of dimension 3: 4"]);
    check_error(x.i((.., 3)), &["out of range", "[-3, 2]", "got 3"]);
    check_error(x.i((Ellipsis, Ellipsis)), &["single Ellipsis"]);
    check_error(x.i(Index::step(.., 0)), &["step"]);
    check_error(x.i(Index::step(.., -1)), &["step", "flip"]);
    check_error(x.i(tensor(&[0.5f32], &[1])), &["index"]);
    check_error(Tensor::scalar(1f32).and_then(|x| x.i(0)), &["too many indices"]);
}
