//! Views: values, memory and errors.

use super::*;

#[test]
fn views_share_their_storage() {
    let x = counting(&[2, 3, 4]);
    let cases: Vec<(&str, Result<Tensor>, Vec<usize>)> = vec![
        ("view", x.view([6, -1]), vec![6, 4]),
        ("view of sizes", x.view(counting(&[4, 6]).sizes()), vec![4, 6]),
        ("permute", x.permute([-1, 0, 1]), vec![4, 2, 3]),
        ("transpose", x.transpose(0, -1), vec![4, 3, 2]),
        ("t", x.select(0, 0).and_then(|x| x.t()), vec![4, 3]),
        ("expand", x.unsqueeze(0).and_then(|x| x.expand([5, -1, 3, -1])), vec![5, 2, 3, 4]),
        ("squeeze", x.view([1, 24, 1]).and_then(|x| x.squeeze(0)), vec![24, 1]),
        ("squeeze all", x.view([1, 24, 1]).and_then(|x| x.squeeze(())), vec![24]),
        ("unsqueeze", x.unsqueeze(-1), vec![2, 3, 4, 1]),
        ("select", x.select(1, -1), vec![2, 4]),
        ("slice", x.slice(-1, -3, None, 2), vec![2, 3, 2]),
        ("slice past the end", x.slice(0, 1, 100, 1), vec![1, 3, 4]),
        ("narrow", x.narrow(2, -3, 2), vec![2, 3, 2]),
        ("flatten", x.flatten(0, -1), vec![24]),
        ("flatten some", x.flatten(1, 2), vec![2, 12]),
        ("flatten one", x.flatten(1, 1), vec![2, 3, 4]),
        ("unflatten", x.unflatten(-1, [2, -1]), vec![2, 3, 2, 2]),
        ("reshape", x.reshape([3, 8]), vec![3, 8]),
    ];
    for (name, view, sizes) in cases {
        let view = view.expect(name);
        assert!(view.is_alias_of(&x), "{name} copied");
        assert_eq!(view.sizes(), sizes, "{name}");
    }
    let copied = x.permute([1, 0, 2]).and_then(|x| x.reshape([6, 4])).expect("legal");
    assert!(!copied.is_alias_of(&x));
    check(copied.select(0, 1), &[4], &[12f32, 13., 14., 15.]);
    check(counting(&[]).flatten(0, -1), &[1], &[0f32]);
    check(counting(&[0, 3]).reshape([3, -1]), &[3, 0], &[] as &[f32]);
}

#[test]
fn pieces_are_views() {
    let x = counting(&[5, 2]);
    let sizes = |pieces: Result<Vec<Tensor>>, dim: usize| -> Vec<usize> {
        pieces.expect("legal").iter().map(|piece| piece.sizes()[dim]).collect()
    };
    assert_eq!(sizes(x.split(2, 0), 0), [2, 2, 1]);
    assert_eq!(sizes(x.split(100, 1), 1), [2]);
    assert_eq!(sizes(x.chunk(3, 0), 0), [2, 2, 1]);
    assert_eq!(sizes(x.chunk(4, 0), 0), [2, 2, 1], "pieces of two run out after three");
    assert_eq!(sizes(counting(&[0]).chunk(2, 0), 0), [0, 0]);
    assert_eq!(sizes(counting(&[0]).split(0, 0), 0), [0]);
    let last = x.split(2, -2).expect("legal").pop();
    check(last.ok_or_else(|| Error::argument("split", "no piece")), &[1, 2], &[8f32, 9.]);
    let columns = x.unbind(1).expect("legal");
    assert_eq!(columns.len(), 2);
    check(Ok(columns[1].clone()), &[5], &[1f32, 3., 5., 7., 9.]);
    check_error(x.split(0, 0), &["split", "dimension size of 5"]);
    check_error(x.chunk(0, 0), &["chunk"]);
    check_error(counting(&[]).unbind(0), &["unbind", "0-dim"]);
}

#[test]
fn illegal_views_are_refused() {
    let x = counting(&[2, 3]);
    check_error(x.view([4, -1]), &["view", "[4, -1]", "6"]);
    check_error(x.t().and_then(|x| x.view(6)), &["view", "use reshape"]);
    check_error(x.reshape([7]), &["reshape", "[7]"]);
    check_error(x.permute([0, 0]), &["permute"]);
    check_error(x.permute([0]), &["permute"]);
    check_error(x.transpose(0, 2), &["transpose", "out of range", "[-2, 1]", "got 2"]);
    check_error(counting(&[1, 1, 1]).t(), &["t:", "3 dims"]);
    check_error(x.expand([4, 3]), &["expand", "[4, 3]"]);
    check_error(x.expand([-1, 2, 3]), &["expand"]);
    check_error(x.squeeze(5), &["squeeze", "out of range"]);
    check_error(x.unsqueeze(4), &["unsqueeze", "out of range"]);
    check_error(x.select(1, 3), &["select", "index", "[-3, 2]", "got 3"]);
    check_error(x.slice(0, None, None, 0), &["slice", "step"]);
    check_error(x.narrow(1, 2, 2), &["narrow", "length"]);
    check_error(x.narrow(1, 4, 0), &["narrow", "start"]);
    check_error(x.flatten(1, 0), &["flatten", "cannot come after"]);
    check_error(x.unflatten(1, [2, 2]), &["unflatten"]);
    check_error(x.unflatten(1, []), &["unflatten"]);
    check_error(x.flatten(i64::MIN, i64::MAX), &["flatten", "out of range"]);
    check_error(x.narrow(0, i64::MIN, usize::MAX), &["narrow"]);
    check_error(x.narrow(0, 0, usize::MAX), &["narrow"]);
    check_error(x.view([i64::MAX, i64::MAX]), &["view"]);
    check_error(x.expand([i64::MAX, 2, 3]), &["expand"]);
}

#[test]
fn as_strided_gives_windows_of_memory() -> Result<()> {
    let x = counting(&[3, 4]);
    check(x.as_strided([2, 3], [1, 4], None), &[2, 3], &[0f32, 4., 8., 1., 5., 9.]);
    check(x.slice(0, 1, None, 1)?.as_strided([2], [5], 1), &[2], &[1f32, 6.]);
    check(x.slice(0, 1, None, 1)?.as_strided([2], [5], None), &[2], &[4f32, 9.]);
    check(x.as_strided([2, 2], [0, 1], 10), &[2, 2], &[10f32, 11., 10., 11.]);
    check(x.as_strided([3, 0], [9, 9], 100), &[3, 0], &[] as &[f32]);
    check(x.diagonal(1, 0, 1), &[3], &[1f32, 6., 11.]);
    check(x.diagonal(-1, 0, 1), &[2], &[4f32, 9.]);
    check(x.diagonal(7, 1, 0), &[0], &[] as &[f32]);
    check(x.unfold(1, 2, 2), &[3, 2, 2], &[0f32, 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11.]);
    check(x.unfold(-1, 3, 1)?.select(0, 0), &[2, 3], &[0f32, 1., 2., 1., 2., 3.]);
    for view in [x.alias()?, x.detach()?, x.diagonal(0, 0, 1)?, x.unfold(0, 1, 1)?, x.as_strided([1], [1], 3)?] {
        assert!(view.is_alias_of(&x), "{view:?} is no view");
    }
    let wide = tensor(&[1f32, 2., 3., 4., 5., 6., 7., 8.], &[2, 4]);
    assert_eq!(wide.view_dtype(DType::F64)?.sizes(), [2, 2]);
    assert_eq!(wide.view_dtype(DType::I16)?.sizes(), [2, 8]);
    check(wide.view_dtype(DType::I32)?.view_dtype(DType::F32), &[2, 4], &[1f32, 2., 3., 4., 5., 6., 7., 8.]);
    check(wide.select(0, 1)?.view_dtype(DType::U8)?.slice(0, 2, 4, 1), &[2], &[160u8, 64]);
    check(wide.slice(1, 2, None, 1)?.view_dtype(DType::I64)?.view_dtype(DType::F32), &[2, 2], &[3f32, 4., 7., 8.]);
    Ok(())
}

#[test]
fn as_strided_outside_memory_is_refused() -> Result<()> {
    let x = counting(&[3, 4]);
    check_error(x.as_strided([3, 4], [4, 1], 5), &["as_strided", "out of bounds", "48"]);
    check_error(x.as_strided([3, 4], [4], None), &["as_strided", "mismatch in length of strides and shape"]);
    check_error(x.as_strided([3], [-1], None), &["as_strided", "negative"]);
    check_error(x.as_strided([3], [1], -1), &["as_strided", "negative"]);
    check_error(x.diagonal(0, 1, -1), &["diagonal dimensions cannot be identical"]);
    check_error(x.diagonal(0, 0, 2), &["diagonal", "out of range"]);
    check_error(x.unfold(0, 4, 1), &["unfold", "maximum size", "is 3"]);
    check_error(x.unfold(0, 1, 0), &["unfold", "positive"]);
    check_error(x.slice(1, 1, None, 1)?.view_dtype(DType::F64), &["view", "divisible"]);
    check_error(x.t()?.view_dtype(DType::F64), &["view", "self.stride(-1) must be 1"]);
    check_error(Tensor::scalar(1f32)?.view_dtype(DType::F64), &["view", "self.dim() cannot be 0"]);
    check_error(counting(&[2, 3]).view_dtype(DType::F64), &["view", "self.size(-1) must be divisible by 2"]);
    Ok(())
}

/// Checks the gradient of `counting([2, 3])` for the sum of a window of a view of it, weighted by 1, 2, 3, …
#[track_caller]
fn check_window_gradient(window: impl Fn(&Tensor) -> Result<Tensor>, expected: &[f32]) {
    let run = || -> Result<Option<Tensor>> {
        let leaf = counting(&[2, 3]);
        leaf.set_requires_grad(true)?;
        let seen = window(&leaf)?;
        let weights = Tensor::arange_of(1, seen.numel() as i64 + 1, 1, DType::F32)?.view(seen.sizes())?;
        (seen * weights)?.sum_all()?.backward()?;
        Ok(leaf.grad())
    };
    let found = run().expect("the window is legal").expect("the leaf has a gradient");
    check(Ok(found), &[2, 3], expected);
}

#[test]
fn gradients_flow_through_as_strided() {
    // Windows that overlap, of a transposed view.
    check_window_gradient(|x| x.t()?.as_strided([3, 2], [1, 1], 1), &[0., 1., 5., 9., 6., 0.]);
    // Offsets count from the storage, not from the view.
    check_window_gradient(|x| x.slice(1, 1, None, 1)?.as_strided([2], [3], 2), &[0., 0., 1., 0., 0., 2.]);
    check_window_gradient(|x| x.slice(1, 1, None, 1)?.as_strided([2], [3], None), &[0., 1., 0., 0., 2., 0.]);
    // Elements outside the view get no gradient.
    check_window_gradient(|x| x.slice(1, 1, None, 1)?.as_strided([3], [1], 0), &[0., 2., 3., 0., 0., 0.]);
    check_window_gradient(|x| x.select(0, 0)?.expand([2, 3])?.as_strided([3], [1], 0), &[1., 2., 3., 0., 0., 0.]);
    check_window_gradient(|x| x.as_strided([2, 0], [1, 1], None), &[0.; 6]);
    check_window_gradient(|x| x.unfold(1, 2, 1)?.select(0, 1), &[0., 0., 0., 1., 5., 4.]);
    check_window_gradient(|x| x.diagonal(1, 0, 1), &[0., 1., 0., 0., 0., 2.]);
}

#[test]
fn a_view_of_many_views_costs_as_much_as_the_first() -> Result<()> {
    let base = Tensor::from_slice(&[1.0f32, 2.0], &[2])?;
    let mut view = base.clone();
    // Copies of the view ops before would be five thousand million.
    for _ in 0..100_000 {
        view = view.view([2])?;
    }
    view.mul_(3.0)?;
    assert_eq!(base.to_vec::<f32>()?, [3.0, 6.0]);
    Ok(())
}
