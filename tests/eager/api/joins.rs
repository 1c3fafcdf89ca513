//! Elements by index, joined tensors, factories.

use super::*;

#[test]
fn elements_are_picked_by_index() {
    let x = counting(&[3, 2]);
    let index = tensor(&[2i64, 0, 2], &[3]);
    check(x.index_select(0, &index), &[3, 2], &[4f32, 5., 0., 1., 4., 5.]);
    check(x.t().and_then(|x| x.index_select(-1, &index)), &[2, 3], &[4f32, 0., 4., 5., 1., 5.]);
    check(x.gather(0, &tensor(&[2i64, 0, 1, 1], &[2, 2])), &[2, 2], &[4f32, 1., 2., 3.]);
    check(x.gather(1, &tensor(&[1i64, 0, 0], &[3, 1])), &[3, 1], &[1f32, 2., 4.]);
    check(embedding(&x, &tensor(&[1i32, 1, 0, 2], &[2, 2])), &[2, 2, 2], &[2f32, 3., 2., 3., 0., 1., 4., 5.]);
    check_error(x.index_select(0, &tensor(&[3i64], &[1])), &["index", "out of range", "[0, 2]", "got 3"]);
    check_error(x.index_select(2, &index), &["index_select", "out of range"]);
    check_error(x.index_select(0, &counting(&[1])), &["index_select", "f32"]);
    check_error(x.gather(0, &index), &["gather", "[3]"]);
    check_error(embedding(&x, &tensor(&[9i64], &[1])), &["index", "out of range", "got 9"]);
    check_error(embedding(&counting(&[3]), &index), &["embedding", "2-d"]);
}

#[test]
fn tensors_are_joined() {
    let (a, b) = (counting(&[1, 2]), counting(&[2, 2]));
    check(cat(&[&a, &b], 0), &[3, 2], &[0f32, 1., 0., 1., 2., 3.]);
    check(cat(&[&b, &b], -1), &[2, 4], &[0f32, 1., 0., 1., 2., 3., 2., 3.]);
    check(cat(&[&a, &tensor(&[7i64, 8], &[1, 2])], 0), &[2, 2], &[0f32, 1., 7., 8.]);
    check(stack(&[&b, &b], 1), &[2, 2, 2], &[0f32, 1., 0., 1., 2., 3., 2., 3.]);
    check(stack(&[&counting(&[]), &counting(&[])], -1), &[2], &[0f32, 0.]);
    check_error(cat(&[], 0), &["cat", "non-empty"]);
    check_error(stack(&[], 0), &["stack", "non-empty"]);
    check_error(cat(&[&a, &b], 1), &["cat", "[1, 2]", "[2, 2]"]);
    check_error(stack(&[&a, &b], 0), &["stack", "[1, 2]", "[2, 2]"]);
    check_error(cat(&[&a], 2), &["cat", "out of range"]);
}

#[test]
fn factories_fill_tensors() {
    check(Tensor::zeros(&[2], DType::I32), &[2], &[0i32, 0]);
    check(Tensor::ones(&[1, 2], DType::Bool), &[1, 2], &[true, true]);
    check(Tensor::full(&[2], 2.5, DType::F64), &[2], &[2.5f64, 2.5]);
    check(Tensor::full(&[2], 2.5, None), &[2], &[2.5f32, 2.5]);
    check(Tensor::full(&[], 3, None), &[], &[3i64]);
    check(Tensor::full(&[0], true, None), &[0], &[] as &[bool]);
    check(Tensor::arange(0, 5, 2), &[3], &[0i64, 2, 4]);
    check(Tensor::arange(1.0, 0.0, -0.5), &[2], &[1f32, 0.5]);
    check(Tensor::arange_of(0, 3, 1, DType::F64), &[3], &[0f64, 1., 2.]);
    // Of integers: the count follows from the numbers given, and then start and step are truncated.
    check(Tensor::arange_of(5, 0, -0.5, DType::I64), &[10], &[5i64; 10]);
    check(Tensor::arange_of(0.5, 4.0, 1.5, DType::I32), &[3], &[0i32, 1, 2]);
    check(Tensor::arange_of(-1.5, 3.0, 1, DType::I16), &[5], &[-1i16, 0, 1, 2, 3]);
    check(Tensor::eye(2, DType::F32), &[2, 2], &[1f32, 0., 0., 1.]);
    check(counting(&[2]).zeros_like(), &[2], &[0f32, 0.]);
    check(counting(&[2, 1]).t().and_then(|x| x.full_like(7)), &[1, 2], &[7f32, 7.]);
    check(counting(&[3, 3]).tril(0), &[3, 3], &[0f32, 0., 0., 3., 4., 0., 6., 7., 8.]);
    check(counting(&[2, 3]).triu(1), &[2, 3], &[0f32, 1., 2., 0., 0., 5.]);
    let empty = Tensor::empty(&[2, 3], DType::I16).expect("memory is there");
    assert_eq!((empty.sizes(), empty.to_vec::<i16>().map(|elements| elements.len())), (&[2, 3][..], Ok(6)));
    let meta = Tensor::meta(&TensorType::contiguous(DType::F32, &[2])).expect("no memory is needed");
    assert_eq!(meta.ones_like().expect("legal").device(), meta.device());
    check_error(Tensor::arange(0, 5, 0), &["arange", "0"]);
    check_error(Tensor::arange(0, 5, -1), &["arange"]);
    check_error(Tensor::zeros(&[usize::MAX, usize::MAX], DType::F32), &["too many elements"]);
    check_error(Tensor::empty(&[usize::MAX], DType::F32), &["too many elements"]);
    check_error(Tensor::eye(usize::MAX, DType::F32), &["too many elements"]);
    // An expanded tensor has more elements than memory.
    let wide = Tensor::zeros(&[1, 1], DType::F32).and_then(|x| x.expand([1, 1 << 40]));
    let index = Tensor::zeros(&[1], DType::I64).and_then(|x| x.expand([1 << 40]));
    check_error(wide.and_then(|wide| wide.index_select(0, &index?)), &["index_select", "too many elements"]);
    check_error(counting(&[2]).tril(0), &["tril", "[2]"]);
}

#[test]
fn tensors_are_padded_and_parts_are_replaced() -> Result<()> {
    let x = counting(&[2, 3]);
    check(x.constant_pad_nd([1, 2], 4), &[2, 6], &[4f32, 0., 1., 2., 4., 4., 4., 3., 4., 5., 4., 4.]);
    check(x.constant_pad_nd([-1, 0, 0, 1], 0.5), &[3, 2], &[1f32, 2., 4., 5., 0.5, 0.5]);
    check(x.constant_pad_nd([0, 0, -1, 1], -1), &[2, 3], &[3f32, 4., 5., -1., -1., -1.]);
    check(x.constant_pad_nd((), 1), &[2, 3], &[0f32, 1., 2., 3., 4., 5.]);
    check(x.constant_pad_nd([-1, -2], 1), &[2, 0], &[] as &[f32]);
    check(tensor(&[7u8], &[1]).constant_pad_nd([1, 1], 2.9), &[3], &[2u8, 7, 2]);
    check(x.select_scatter(&tensor(&[9i64, 8], &[2]), 1, -1), &[2, 3], &[0f32, 1., 9., 3., 4., 8.]);
    check(x.slice_scatter(&counting(&[2, 2]), 1, None, None, 2), &[2, 3], &[0f32, 1., 1., 2., 4., 3.]);
    check(x.diagonal_scatter(&tensor(&[7f32, 8.], &[2]), 1, 0, 1), &[2, 3], &[0f32, 7., 2., 3., 4., 8.]);
    check_error(x.constant_pad_nd([-3, -4], 0), &["constant_pad_nd", "negative"]);
    check_error(x.constant_pad_nd([1], 0), &["constant_pad_nd", "pair"]);
    check_error(x.constant_pad_nd([i64::MAX, 1], 0), &["constant_pad_nd", "too"]);
    check_error(x.select_scatter(&x, 0, 0), &["select_scatter", "src size = [2, 3]", "slice size = [3]"]);
    Ok(())
}

#[test]
fn tensors_are_reversed_and_repeated() -> Result<()> {
    let x = counting(&[2, 3]);
    check(x.flip([1]), &[2, 3], &[2f32, 1., 0., 5., 4., 3.]);
    check(x.flip([0, -1]), &[2, 3], &[5f32, 4., 3., 2., 1., 0.]);
    check(x.flip(()), &[2, 3], &[0f32, 1., 2., 3., 4., 5.]);
    check(
        x.repeat([2, 1, 2]).and_then(|y| y.select(0, 1)),
        &[2, 6],
        &[0f32, 1., 2., 0., 1., 2., 3., 4., 5., 3., 4., 5.],
    );
    check(x.repeat([0, 1]), &[0, 3], &[] as &[f32]);
    check_error(x.flip([0, -2]), &["flip", "multiple times"]);
    check_error(x.repeat([2]), &["repeat", "can not be smaller"]);
    check_error(x.repeat([1, -1]), &["repeat", "negative"]);
    Ok(())
}
