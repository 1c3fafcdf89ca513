//! Views and their storage (lines 144 to 150).

use crate::assert_error;
use opfuse::dispatch::modes::{CallLog, push_mode};
use opfuse::dispatch::{Dispatcher, Stack, Value};
use opfuse::{DType, Error, Result, Tensor};
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
fn n145_calls_that_change_nothing_return_their_input() {
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
    assert_eq!(
        (log.names(), log.names_at(1)),
        (["t", "reshape"].map(String::from).to_vec(), ["clone", "_unsafe_view"].map(String::from).to_vec())
    );
}

#[test]
fn n150_view_dtype_reinterprets_elements() {
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

/// Calls an operator that writes to `x`, whose other arguments are `rest`.
fn in_place(name: &str, x: &Tensor, rest: &[Value]) -> Result<Tensor> {
    opfuse::dispatch::load()?;
    let mut stack: Stack = std::iter::once(Value::Tensor(x.clone())).chain(rest.iter().cloned()).collect();
    Dispatcher::global().lookup(&format!("aten::{name}"))?.call_boxed(&mut stack)?;
    stack[0].tensors().next().cloned().ok_or_else(|| Error::argument(name, "it left no tensor"))
}

#[test]
fn n147_sizes_are_not_changed_in_place() {
    let (x, view) = (matrix(2, 3), matrix(2, 3).t().expect("a view"));
    let sizes = |sizes: &[i64]| [Value::IntList(sizes.into()), Value::None];
    let hint = &["[2, 3]", "cannot become [9, 9]", "empty", "as_strided"];
    assert_error(in_place("resize_", &x, &sizes(&[9, 9])), &[hint, &["resize_"][..]].concat());
    assert_error(in_place("resize_as_", &x, &[Value::Tensor(matrix(9, 9)), Value::None]), hint);
    assert_error(in_place("set_.source_Tensor", &x, &[Value::Tensor(matrix(9, 9))]), &["set_", "[9, 9]", "copy_"]);
    assert_error(in_place("resize_", &x, &sizes(&[-1])), &["resize_"]);
    assert!(in_place("resize_", &x, &sizes(&[2, 3])).expect("no change").is_same(&x));
    assert!(in_place("set_.source_Tensor", &x, &[Value::Tensor(x.clone())]).expect("no change").is_same(&x));
    assert_eq!((x.sizes(), view.sizes(), x.version()), (&[2, 3][..], &[3, 2][..], 0));
    x.set_requires_grad(true).expect("a leaf");
    assert_error(in_place("resize_", &x, &sizes(&[2, 3])), &["cannot resize variables that require grad"]);
}

#[test]
fn n148_in_place_views_accept_only_the_same_shape() {
    let x = matrix(2, 3);
    let ints = |numbers: &[i64]| Value::IntList(numbers.into());
    let changes: &[(&str, &[Value], &str)] = &[
        ("t_", &[], "[3, 2]"),
        ("transpose_", &[Value::Int(0), Value::Int(-1)], "[3, 2]"),
        ("swapaxes_", &[Value::Int(0), Value::Int(1)], "[3, 2]"),
        ("swapdims_", &[Value::Int(0), Value::Int(1)], "[3, 2]"),
        ("unsqueeze_", &[Value::Int(0)], "[1, 2, 3]"),
        ("as_strided_", &[ints(&[3]), ints(&[1]), Value::None], "[3]"),
    ];
    for (name, rest, becomes) in changes {
        let view = name.trim_end_matches('_');
        let what = format!("cannot become {becomes} in place");
        assert_error(in_place(name, &x, rest), &[&format!("{name}: "), &what, &format!("use the result of {view}")]);
    }
    let keeps: &[(&str, &[Value])] = &[
        ("transpose_", &[Value::Int(1), Value::Int(-1)]),
        ("squeeze_", &[]),
        ("squeeze_.dim", &[Value::Int(0)]),
        ("squeeze_.dims", &[ints(&[0, 1])]),
        ("as_strided_", &[ints(&[2, 3]), ints(&[3, 1]), Value::None]),
    ];
    for (name, rest) in keeps {
        assert!(in_place(name, &x, rest).unwrap_or_else(|error| panic!("{name}: {error}")).is_same(&x));
    }
    assert_error(in_place("squeeze_", &matrix(1, 3), &[]), &["squeeze_", "[1, 3]", "cannot become [3]"]);
    assert!(matches!(in_place("transpose_", &x, &[Value::Int(0), Value::Int(2)]), Err(Error::OutOfRange { .. })));
    assert_eq!((x.sizes(), x.version()), (&[2, 3][..], 0));
}
