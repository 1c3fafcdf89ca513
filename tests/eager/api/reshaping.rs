//! Reordered dims, common shapes, pieces, grids, copies of views.

use super::*;
use opfuse::{Indexing, broadcast_tensors, meshgrid};

fn sizes(tensors: &[Tensor]) -> Vec<Vec<usize>> {
    tensors.iter().map(|tensor| tensor.sizes().to_vec()).collect()
}

#[test]
fn dims_are_reordered() -> Result<()> {
    let x = counting(&[2, 3, 4, 5]);
    let cases: &[(&[i64], &[i64], &[usize])] = &[
        (&[0], &[-1], &[3, 4, 5, 2]),
        (&[-1], &[0], &[5, 2, 3, 4]),
        (&[0, 1], &[2, 3], &[4, 5, 2, 3]),
        (&[3, 0], &[1, 0], &[2, 5, 3, 4]),
        (&[], &[], &[2, 3, 4, 5]),
    ];
    for (from, to, expected) in cases {
        let moved = x.movedim(*from, *to)?;
        assert!(moved.is_alias_of(&x));
        assert_eq!(moved.sizes(), *expected, "{from:?} to {to:?}");
    }
    assert_eq!(x.swapaxes(1, -1)?.sizes(), [2, 5, 4, 3]);
    assert_eq!(Tensor::scalar(1f32)?.movedim(0, -1)?.sizes(), [0usize; 0]);
    check_error(x.movedim([0, 0], [1, 2]), &["movedim", "repeated dim"]);
    check_error(x.movedim([0, 1], [1, -3]), &["movedim", "repeated dim"]);
    check_error(x.movedim([0, 1], [1]), &["movedim", "same number of dims"]);
    check_error(x.movedim(4, 0), &["movedim", "out of range"]);
    Ok(())
}

#[test]
fn tensors_are_broadcast_to_a_common_shape() -> Result<()> {
    let (row, column) = (counting(&[3]), counting(&[2, 1]));
    let all = broadcast_tensors(&[&row, &column])?;
    assert_eq!(sizes(&all), [[2, 3], [2, 3]]);
    assert!(all[0].is_alias_of(&row) && all[1].is_alias_of(&column));
    check(row.expand_as(&all[1]), &[2, 3], &[0f32, 1., 2., 0., 1., 2.]);
    check(column.broadcast_to([2, 2]), &[2, 2], &[0f32, 0., 1., 1.]);
    assert_eq!(counting(&[6]).view_as(&all[0])?.sizes(), [2, 3]);
    assert_eq!(all[0].reshape_as(&counting(&[6]))?.sizes(), [6]);
    check_error(broadcast_tensors(&[&row, &counting(&[2])]), &["broadcast_tensors", "3", "2"]);
    Ok(())
}

#[test]
fn grids_are_made_of_vectors() -> Result<()> {
    let (x, y) = (tensor(&[1i64, 2, 3], &[3]), tensor(&[7i64, 8], &[2]));
    let grid = meshgrid(&[&x, &y], Indexing::Ij)?;
    check(Ok(grid[0].clone()), &[3, 2], &[1i64, 1, 2, 2, 3, 3]);
    check(Ok(grid[1].clone()), &[3, 2], &[7i64, 8, 7, 8, 7, 8]);
    let grid = meshgrid(&[&x, &y], Indexing::Xy)?;
    check(Ok(grid[0].clone()), &[2, 3], &[1i64, 2, 3, 1, 2, 3]);
    check(Ok(grid[1].clone()), &[2, 3], &[7i64, 7, 7, 8, 8, 8]);
    assert_eq!(sizes(&meshgrid(&[&x, &Tensor::scalar(1i64)?, &y], Indexing::Xy)?)[1], [1, 3, 2]);
    check_error(meshgrid(&[], Indexing::Ij), &["meshgrid", "non-empty"]);
    check_error(meshgrid(&[&x, &counting(&[2])], Indexing::Ij), &["meshgrid", "same dtype"]);
    check_error(meshgrid(&[&counting(&[1, 2])], Indexing::Ij), &["meshgrid", "[1, 2]"]);
    Ok(())
}

#[test]
fn tensors_are_cut_into_pieces() -> Result<()> {
    let x = counting(&[7, 2]);
    assert_eq!(sizes(&x.split_with_sizes([0, 3, 4], 0)?), [[0, 2], [3, 2], [4, 2]]);
    assert_eq!(sizes(&x.tensor_split(3, 0)?), [[3, 2], [2, 2], [2, 2]]);
    assert_eq!(sizes(&x.tensor_split(3, 1)?), [[7, 1], [7, 1], [7, 0]]);
    assert_eq!(sizes(&x.tensor_split_at([2, -1, 9], 0)?), [[2, 2], [4, 2], [1, 2], [0, 2]]);
    assert_eq!(sizes(&x.tensor_split_by(&tensor(&[2i64, 3], &[2]), 0)?), [[2, 2], [1, 2], [4, 2]]);
    assert_eq!(sizes(&x.tensor_split_by(&Tensor::scalar(2i64)?, 0)?), [[4, 2], [3, 2]]);
    check(Ok(x.tensor_split(3, 0)?[1].clone()), &[2, 2], &[6f32, 7., 8., 9.]);
    check_error(x.split_with_sizes([3, 3], 0), &["split_with_sizes", "sum exactly to 7", "[3, 3]"]);
    check_error(x.split_with_sizes([8, -1], 0), &["split_with_sizes", "non-negative"]);
    check_error(x.tensor_split(0, 0), &["tensor_split", "larger than 0"]);
    check_error(x.tensor_split_by(&counting(&[2]), 0), &["tensor_split", "i64"]);
    check_error(Tensor::scalar(1f32)?.split(1, 0), &["split", "at least a 1-dimensional tensor"]);
    check_error(x.narrow(0, 5, 3), &["narrow", "exceeds dimension size (7)"]);
    Ok(())
}

#[test]
fn elements_are_rearranged() -> Result<()> {
    let x = counting(&[2, 3]);
    check(x.roll(1, 1), &[2, 3], &[2f32, 0., 1., 5., 3., 4.]);
    check(x.roll(-1, ()), &[2, 3], &[1f32, 2., 3., 4., 5., 0.]);
    check(x.roll([3, -4], [0, 1]), &[2, 3], &[4f32, 5., 3., 1., 2., 0.]);
    check(x.tile(2), &[2, 6], &[0f32, 1., 2., 0., 1., 2., 3., 4., 5., 3., 4., 5.]);
    check(x.tile([2, 1, 1]).and_then(|x| x.select(0, 1)), &[2, 3], &[0f32, 1., 2., 3., 4., 5.]);
    check(x.rot90(1, [0, 1]), &[3, 2], &[2f32, 5., 1., 4., 0., 3.]);
    check(x.rot90(-3, [1, 0]), &[3, 2], &[3f32, 0., 4., 1., 5., 2.]);
    check(x.rot90(2, [0, 1]), &[2, 3], &[5f32, 4., 3., 2., 1., 0.]);
    check(x.diag(1), &[2], &[1f32, 5.]);
    check(tensor(&[7f32, 8.], &[2]).diag(-1), &[3, 3], &[0f32, 0., 0., 7., 0., 0., 0., 8., 0.]);
    check(x.diag_embed(0, 0, 1).and_then(|x| x.select(0, 1)), &[3, 2], &[0f32, 0., 1., 4., 0., 0.]);
    check_error(x.roll([1, 2], 0), &["roll", "must align"]);
    check_error(x.rot90(1, [0, -2]), &["rot90", "different"]);
    check_error(counting(&[1, 1, 1]).diag(0), &["diag", "Got 3D"]);
    Ok(())
}

#[test]
fn copies_of_views_are_dense() -> Result<()> {
    let x = counting(&[2, 3]);
    let copied = |name: &str, arguments: Vec<Value>| invoke(name, [vec![Value::Tensor(x.clone())], arguments].concat());
    let int = Value::Int;
    let ints = |values: &[i64]| Value::IntList(values.iter().copied().collect());
    let cases: Vec<(&str, Vec<Value>, &[usize])> = vec![
        ("aten::view_copy", vec![ints(&[3, 2])], &[3, 2]),
        ("aten::permute_copy", vec![ints(&[1, 0])], &[3, 2]),
        ("aten::transpose_copy.int", vec![int(0), int(1)], &[3, 2]),
        ("aten::slice_copy.Tensor", vec![int(1), int(1)], &[2, 2]),
        ("aten::select_copy.int", vec![int(1), int(1)], &[2]),
        ("aten::expand_copy", vec![ints(&[2, 2, 3])], &[2, 2, 3]),
        ("aten::alias_copy", vec![], &[2, 3]),
        ("aten::squeeze_copy", vec![], &[2, 3]),
        ("aten::diagonal_copy", vec![], &[2]),
        ("aten::as_strided_copy", vec![ints(&[2]), ints(&[1])], &[2]),
    ];
    for (name, arguments, expected) in cases {
        let copy = copied(name, arguments)?;
        assert!(!copy.is_alias_of(&x) && copy.is_contiguous(), "{name} gave a view");
        assert_eq!(copy.sizes(), expected, "{name}");
    }
    Ok(())
}
