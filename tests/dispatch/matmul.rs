//! The products that `matmul` decomposes into (lines 151 to 157).

use crate::assert_error;
use opfuse::dispatch::modes::{CallLog, push_mode};
use opfuse::{DType, Result, Tensor};
use std::sync::Arc;

fn numbers(sizes: &[usize]) -> Tensor {
    let n = sizes.iter().product::<usize>();
    let values: Vec<f64> = (0..n).map(|i| (i as f64 * 0.7).sin()).collect();
    Tensor::from_slice(&values, sizes).expect("as many elements")
}

/// The product, and the names of the calls that `matmul` made.
fn logged(a: &Tensor, b: &Tensor) -> (Result<Tensor>, Vec<String>) {
    let log = Arc::new(CallLog::default());
    let _guard = push_mode(log.clone());
    let product = a.matmul(b);
    (product, log.names_at(1))
}

fn count(names: &[String], name: &str) -> usize {
    names.iter().filter(|other| *other == name).count()
}

/// The product by its definition.
fn expected(a: &Tensor, b: &Tensor) -> Tensor {
    let left = if a.dim() == 1 { a.unsqueeze(0) } else { Ok(a.clone()) }.expect("a view");
    let right = if b.dim() == 1 { b.unsqueeze(1) } else { Ok(b.clone()) }.expect("a view");
    let terms = left.unsqueeze(-1).and_then(|left| left.mul(&right.unsqueeze(-3)?)).expect("they broadcast");
    let mut product = terms.sum([-2], false).expect("a sum");
    if a.dim() == 1 {
        product = product.squeeze([-2]).expect("a view");
    }
    if b.dim() == 1 { product.squeeze([-1]).expect("a view") } else { product }
}

#[track_caller]
fn check(a: &Tensor, b: &Tensor) -> Vec<String> {
    let (product, names) = logged(a, b);
    let (product, expected) = (product.unwrap_or_else(|error| panic!("{error}")), expected(a, b));
    assert_eq!(product.sizes(), expected.sizes());
    let (found, expected) = (product.to_vec::<f64>().expect("values"), expected.to_vec::<f64>().expect("values"));
    assert!(found.iter().zip(&expected).all(|(x, y)| (x - y).abs() < 1e-12), "{found:?} is not {expected:?}");
    names
}

#[test]
fn n151_products_without_batches() {
    let cases: &[(&[usize], &[usize], &[&str])] = &[
        (&[4], &[4], &["dot"]),
        (&[3, 4], &[4], &["mv"]),
        (&[4], &[4, 5], &["unsqueeze", "mm", "_unsafe_view"]),
        (&[3, 4], &[4, 5], &["mm"]),
    ];
    for (a, b, calls) in cases {
        assert_eq!(check(&numbers(a), &numbers(b)), *calls, "{a:?} {b:?}");
    }
}

#[test]
fn n153_batches_on_both_sides() {
    let cases: &[(&[usize], &[usize], &[usize])] =
        &[(&[2, 3, 4], &[2, 4, 5], &[2, 3, 5]), (&[2, 1, 3, 4], &[4, 4, 2], &[2, 4, 3, 2])];
    for (a, b, sizes) in cases {
        let (a, b) = (numbers(a), numbers(b));
        let names = check(&a, &b);
        assert_eq!((count(&names, "bmm"), count(&names, "mm")), (1, 0), "{names:?}");
        assert!(count(&names, "expand") == 2 && count(&names, "_unsafe_view") > 0, "{names:?}");
        assert_eq!(a.matmul(&b).expect("a product").sizes(), *sizes);
    }
}

#[test]
fn n154_batches_on_one_side() {
    for left in [&[4][..], &[3, 4]] {
        // Batches that fold into rows are one product of matrices, without a copy.
        let folded = numbers(&[2, 5, 4]).transpose(1, 2).expect("a view");
        let names = check(&numbers(left), &folded);
        assert!(count(&names, "transpose") > 0 && count(&names, "bmm") == 0, "{names:?}");
        assert_eq!(count(&names, "mm") + count(&names, "mv"), 1, "{names:?}");
        let names = check(&numbers(left), &numbers(&[2, 4, 5]));
        assert_eq!(count(&names, "mm") + count(&names, "mv") + count(&names, "bmm"), 1, "{names:?}");
    }
    let names = check(&numbers(&[2, 3, 4]), &numbers(&[4, 5]));
    assert_eq!((count(&names, "mm"), count(&names, "bmm")), (1, 0), "{names:?}");
}

#[test]
fn n156_illegal_products_are_refused() {
    assert_error(numbers(&[2, 3, 4]).bmm(&numbers(&[1, 4, 5])), &["bmm", "[2, 3, 4] and [1, 4, 5]"]);
    assert_error(numbers(&[4]).mm(&numbers(&[4, 5])), &["mm", "both must be 2-d"]);
    assert_error(numbers(&[3, 4]).mm(&numbers(&[4])), &["mm", "both must be 2-d"]);
    let narrow = Tensor::ones(&[4, 5], DType::F32).expect("ones");
    assert_error(numbers(&[3, 4]).matmul(&narrow), &["found dtype f32 but expected f64"]);
    let truth = Tensor::ones(&[2, 2], DType::Bool).expect("ones");
    assert_error(truth.matmul(&truth), &["mm", "bool"]);
}

#[test]
fn n157_products_without_elements() {
    let cases: &[(&[usize], &[usize], &[usize])] = &[
        (&[0, 4], &[4, 5], &[0, 5]),
        (&[3, 4], &[4, 0], &[3, 0]),
        (&[3, 0], &[0, 5], &[3, 5]),
        (&[2, 3, 0], &[2, 0, 5], &[2, 3, 5]),
        (&[0], &[0], &[]),
        (&[0, 3, 4], &[4, 5], &[0, 3, 5]),
        (&[3, 0], &[0], &[3]),
    ];
    for (a, b, sizes) in cases {
        let product = numbers(a).matmul(&numbers(b)).unwrap_or_else(|error| panic!("{a:?} {b:?}: {error}"));
        assert_eq!(product.sizes(), *sizes);
        assert!(product.to_vec::<f64>().expect("values").iter().all(|&x| x == 0.0), "an empty sum is zero");
    }
}
