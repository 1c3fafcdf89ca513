//! Views and the storage behind them (lines 144 to 150).

use crate::assert_error;
use opfuse::dispatch::modes::{CallLog, push_mode};
use opfuse::{DType, Tensor};
use std::sync::Arc;

fn matrix(rows: usize, columns: usize) -> Tensor {
    let end = (rows * columns) as i64;
    Tensor::arange_of(0, end, 1, DType::F32).and_then(|x| x.view([rows as i64, columns as i64])).expect("a matrix")
}

#[test]
fn n144_a_view_of_a_view_has_the_root_as_base() {
    let x = matrix(6, 8).copy().expect("a copy");
    let (inner, outer) = (x.slice(0, 1, None, 2).expect("a view"), x.slice(1, 2, None, 1).expect("a view"));
    let view = inner.slice(1, 2, None, 3).and_then(|view| view.t()).expect("a view");
    for view in [&inner, &outer, &view] {
        assert!(view.base().expect("a base").is_same(&x) && view.is_alias_of(&x));
    }
    assert!(x.base().is_none());
    assert_eq!((view.sizes(), view.strides(), view.storage_offset()), (&[2, 3][..], &[3, 16][..], 10));
    assert_eq!(view.to_vec::<f32>(), Ok(vec![10.0, 26.0, 42.0, 13.0, 29.0, 45.0]));
}

#[test]
fn n145_what_is_there_already_comes_back() {
    let x = matrix(3, 4);
    assert!(x.contiguous().expect("itself").is_same(&x));
    assert!(x.to_dtype(DType::F32).expect("itself").is_same(&x));
    let view = x.reshape([4, 3]).expect("a view");
    assert!(view.is_alias_of(&x) && !view.is_same(&x));
    let log = Arc::new(CallLog::default());
    let guard = push_mode(log.clone());
    let copy = x.t().and_then(|x| x.reshape(12)).expect("a copy");
    drop(guard);
    assert!(!copy.is_alias_of(&x) && copy.is_contiguous());
    assert_eq!(log.names()[..2], ["t", "clone"]);
}

#[test]
fn n150_elements_seen_in_another_dtype() {
    let x = matrix(2, 4);
    let cases: [(DType, &[usize], &[usize]); 3] =
        [(DType::F64, &[2, 2], &[2, 1]), (DType::I16, &[2, 8], &[8, 1]), (DType::I32, &[2, 4], &[4, 1])];
    for (dtype, sizes, strides) in cases {
        let view = x.view_dtype(dtype).expect("a view");
        assert_eq!((view.sizes(), view.strides(), view.is_alias_of(&x)), (sizes, strides, true), "{dtype}");
    }
    assert_error(matrix(2, 3).view_dtype(DType::F64), &["view"]);
    assert_error(x.t().and_then(|x| x.view_dtype(DType::F64)), &["view"]);
    assert_error(x.t().and_then(|x| x.view_dtype(DType::I16)), &["view"]);
}
