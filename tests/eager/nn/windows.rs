//! Products of windows, which are read where they lie, against products of copies: equal bits.

use super::{Numbers, check_error};
use opfuse::device::pool;
use opfuse::dispatch::{Dispatcher, Value};
use opfuse::nn::Convolution;
use opfuse::{DType, Result, Tensor};

/// Calls `_window_product`.
fn window_product(left: &Tensor, windows: &Tensor, inner: i64) -> Result<Tensor> {
    opfuse::dispatch::load()?;
    let operator = Dispatcher::global().lookup("aten::_window_product").expect("it is registered");
    let tensor = |tensor: &Tensor| Value::Tensor(tensor.clone());
    let results = operator.invoke(vec![tensor(left), tensor(windows), Value::Int(inner)], Vec::new())?;
    match results.into_iter().next() {
        Some(Value::Tensor(result)) => Ok(result),
        other => panic!("the operator returns a tensor, not {other:?}"),
    }
}

/// The same by a copy of the windows.
fn by_copy(left: &Tensor, windows: &Tensor, inner: usize) -> Tensor {
    let (a, b) = (left.sizes(), windows.sizes());
    let count = |sizes: &[usize]| sizes.iter().product::<usize>() as i64;
    let columns = [count(&b[..2]), count(&b[2..2 + inner]), count(&b[2 + inner..])];
    // Sums of 16-bit floats are f32.
    let wide = if windows.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let [left, windows] = [left, windows].map(|x| x.to_dtype(wide).expect("floats are converted"));
    let left = left.reshape([count(&a[..2]), a[2] as i64, a[3] as i64]).expect("batches are joined");
    let product = left.bmm(&windows.contiguous().and_then(|copy| copy.view(columns)).expect("a copy has any shape"));
    let sizes: Vec<i64> = a[..3].iter().chain(&b[2 + inner..]).map(|&size| size as i64).collect();
    product.and_then(|product| product.view(sizes)).expect("the copy is multiplied")
}

fn bits(x: &Tensor) -> Vec<u64> {
    let wide = x.to_dtype(DType::F64).and_then(|x| x.to_vec::<f64>()).expect("floats have f64 values");
    wide.into_iter().map(f64::to_bits).collect()
}

/// Sizes of some dims and strides of a view of memory, which may overlap, repeat or skip elements.
fn view_of(numbers: &mut Numbers, dims: usize, most: usize) -> (Vec<i64>, Vec<i64>) {
    let sizes: Vec<i64> = (0..dims).map(|_| numbers.below(most) as i64 + i64::from(numbers.below(12) > 0)).collect();
    let strides = (0..dims).map(|dim| match numbers.below(5) {
        0 => 1,
        1 => sizes[dim + 1..].iter().product(),
        _ => numbers.below(20) as i64,
    });
    let strides = strides.collect();
    (sizes, strides)
}

fn data(numbers: &mut Numbers, length: usize, dtype: DType) -> Tensor {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e-310];
    let number = |numbers: &mut Numbers| match numbers.below(50) {
        0 => odd[numbers.below(odd.len())],
        _ => numbers.below(1 << 20) as f64 / f64::from(1 << 19) - 1.0,
    };
    let list: Vec<f64> = (0..length).map(|_| number(numbers)).collect();
    Tensor::from_slice(&list, &[length]).and_then(|list| list.to_dtype(dtype)).expect("a list is a tensor")
}

#[test]
fn windows_give_the_bits_of_their_copy() {
    let mut numbers = Numbers(5);
    for round in 0..600 {
        let dtype = [DType::F32, DType::F64, DType::BF16, DType::F16][round % 4];
        let (inner, outer) = (numbers.below(4), numbers.below(4));
        let most = if round % 10 == 0 { 12 } else { 5 };
        let (mut sizes, strides) = view_of(&mut numbers, 2 + inner + outer, most);
        sizes[..2].iter_mut().for_each(|size| *size = (*size).min(3));
        let reach: i64 = sizes.iter().zip(&strides).map(|(&size, &stride)| (size - 1).max(0) * stride).sum();
        let offset = numbers.below(5) as i64;
        let memory = data(&mut numbers, (offset + reach + 1) as usize, dtype);
        let windows = memory.as_strided(&sizes[..], &strides[..], offset).expect("the memory reaches");
        let depth: i64 = sizes[2..2 + inner].iter().product();
        let rows = if round % 5 < 2 { numbers.below(3) } else { numbers.below(40) } as i64;
        let left = data(&mut numbers, (sizes[0] * sizes[1] * rows * depth) as usize, dtype);
        let left = left.view([sizes[0], sizes[1], rows, depth]).expect("the sizes fit");
        let expected = by_copy(&left, &windows, inner);
        // The factors of a row may have the inner dims.
        let left = match round % 3 {
            0 if inner > 0 => left.view([&[sizes[0], sizes[1], rows], &sizes[2..2 + inner]].concat()),
            1 if inner > 1 => {
                let split = left.view([&[sizes[0], sizes[1], rows], &sizes[2..2 + inner]].concat());
                let turned = split.and_then(|x| x.transpose(2, 3)).and_then(|x| x.contiguous());
                turned.and_then(|x| x.transpose(2, 3))
            }
            _ => Ok(left),
        };
        let left = left.expect("the sizes fit");
        for threads in [1, 2] {
            let found = pool::with_threads(threads, || window_product(&left, &windows, inner as i64));
            let found = found.expect("the shapes fit");
            assert_eq!(found.sizes(), expected.sizes());
            assert_eq!(bits(&found), bits(&expected), "{sizes:?} {strides:?}, {inner} inner dims, {rows} rows");
        }
    }
}

#[test]
fn convolutions_have_the_bits_of_copied_columns() {
    let mut numbers = Numbers(6);
    // Long chains, several blocks of columns, and a kernel that steps over elements.
    let cases = [([2, 70, 20, 33], 40, 3, 1, 1), ([1, 3, 90, 91], 17, 7, 2, 3), ([3, 5, 9, 40], 1, 5, 3, 0)];
    for (sizes, out, kernel, stride, padding) in cases {
        let n: usize = sizes.iter().product();
        let x = data(&mut numbers, n, DType::F32).view(sizes.map(|size| size as i64)).expect("the sizes fit");
        let weight = data(&mut numbers, out * sizes[1] * kernel * kernel, DType::F32);
        let weight = weight.view([out, sizes[1], kernel, kernel].map(|size| size as i64)).expect("the sizes fit");
        let pad = padding as i64;
        let options = Convolution { stride: (stride as i64).into(), padding: pad.into(), ..Convolution::default() };
        let found = x.conv2d(&weight, None, &options).expect("the shapes fit");
        let windows = x.constant_pad_nd([pad; 4], 0).expect("it pads");
        let windows = windows.unfold(2, kernel, stride).and_then(|x| x.unfold(3, kernel, stride)).expect("they fit");
        let columns = windows.permute([0, 1, 4, 5, 2, 3]).and_then(|x| x.unsqueeze(1)).expect("a view");
        let rows = weight.view([1, 1, out as i64, -1]).expect("the weight is dense");
        let rows = rows.expand([sizes[0] as i64, 1, out as i64, -1]).expect("it repeats");
        let expected = by_copy(&rows, &columns, 3);
        assert_eq!(bits(&found), bits(&expected), "{sizes:?}, kernel {kernel}, stride {stride}");
    }
}

#[test]
fn misfits_of_window_products_are_named() {
    let zeros = |sizes: &[usize], dtype| Tensor::zeros(sizes, dtype).expect("there is memory");
    let windows = zeros(&[1, 2, 3, 4], DType::F32);
    let left = zeros(&[1, 2, 5, 3], DType::F32);
    assert_eq!(window_product(&left, &windows, 1).expect("they fit").sizes(), [1, 2, 5, 4]);
    let shapes = ["window_product", "[1, 2, 5, 3]", "[1, 2, 3, 4]"];
    check_error(window_product(&left, &windows, 2), &shapes);
    for inner in [-1, 3, i64::MAX] {
        check_error(window_product(&left, &windows, inner), &shapes);
    }
    check_error(window_product(&left, &zeros(&[2], DType::F32), 0), &["window_product", "[2]"]);
    check_error(window_product(&left, &zeros(&[1, 2, 3, 4], DType::F64), 1), &["window_product", "f64"]);
    check_error(window_product(&zeros(&[1, 2, 5, 3], DType::I64), &windows, 1), &["window_product", "i64"]);
}
