//! Results of compiled functions that share memory: autograd sees the same views as after eager calls.

use super::{gradient, leaf, refused, values};
use opfuse::autograd::no_grad;
use opfuse::{DType, Result, Tensor, compile};

type Pair = (Tensor, Tensor);

/// Checks that the first call and later ones do the same as an eager call.
#[track_caller]
fn check<R: PartialEq + std::fmt::Debug>(
    name: &str,
    function: impl Fn(&Tensor) -> Result<Pair> + Send + Sync + Copy,
    work: impl Fn(&dyn Fn(&Tensor) -> Result<Pair>) -> Result<R>,
) {
    let expected = work(&function).unwrap_or_else(|error| panic!("{name}: {error}"));
    let compiled = compile(move |x: &Tensor| function(x));
    for call in 0..3 {
        let found = work(&|x| compiled.call(x)).unwrap_or_else(|error| panic!("{name}, call {call}: {error}"));
        assert_eq!(found, expected, "{name}, call {call}");
    }
    assert!(compiled.explain().eager.is_none(), "{name}: {}", compiled.explain());
}

fn ones() -> Tensor {
    leaf(&[1.0; 4], &[2, 2])
}

/// The gradient of a leaf after `work` on the results made of it.
fn slope(f: &dyn Fn(&Tensor) -> Result<Pair>, work: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Vec<f64>> {
    let w = ones();
    let (y, v) = f(&w)?;
    work(&y, &v)?.sum((), false)?.backward()?;
    Ok(gradient(&w))
}

fn write_second(first: &Tensor, second: &Tensor) -> Result<Tensor> {
    second.mul_(5.0)?;
    Ok(first.clone())
}

fn write_first(first: &Tensor, second: &Tensor) -> Result<Tensor> {
    first.mul_(5.0)?;
    Ok(second.clone())
}

#[test]
fn a_write_reaches_the_history_of_the_other_result() {
    type Function = fn(&Tensor) -> Result<Pair>;
    let functions: [(&str, Function, [Vec<f64>; 2]); 5] = [
        (
            "a row of a result",
            |x| {
                let y = (x * 2.0)?;
                Ok((y.clone(), y.i(0)?))
            },
            [vec![10.0, 10.0, 2.0, 2.0], vec![10.0, 10.0, 0.0, 0.0]],
        ),
        (
            "the view comes first",
            |x| {
                let y = (x * 2.0)?;
                Ok((y.t()?.i(0)?, y))
            },
            [vec![10.0, 0.0, 10.0, 0.0], vec![10.0, 2.0, 10.0, 2.0]],
        ),
        (
            "overlapping views of what is no result",
            |x| {
                let y = (x * 2.0)?.view([4])?;
                Ok((y.narrow(0, 0, 3)?, y.narrow(0, 1, 3)?))
            },
            [vec![2.0, 10.0, 10.0, 0.0], vec![0.0, 10.0, 10.0, 2.0]],
        ),
        (
            "the same result twice",
            |x| {
                let y = (x * 2.0)?;
                Ok((y.clone(), y))
            },
            [vec![10.0; 4], vec![10.0; 4]],
        ),
        (
            "a result that was written to through its view",
            |x| {
                let y = (x * 2.0)?;
                let v = y.i(1)?;
                v.mul_(3.0)?;
                Ok((y, v))
            },
            [vec![2.0, 2.0, 30.0, 30.0], vec![0.0, 0.0, 30.0, 30.0]],
        ),
    ];
    for (name, function, expected) in functions {
        let run = |f: &dyn Fn(&Tensor) -> Result<Pair>| Ok([slope(f, write_second)?, slope(f, write_first)?]);
        assert_eq!(run(&function).expect("every call is right"), expected, "{name}");
        check(name, function, run);
    }
}

/// A view of an input is a view of the given tensor, whether gradients flow to it already or only later.
#[test]
fn a_view_of_an_input_is_a_view_of_the_given_tensor() -> Result<()> {
    let halves = |x: &Tensor| Ok((x.narrow(0, 1, 2)?, x.view([-1])?));
    check("a base with history", halves, |f| {
        let w = leaf(&[1.0; 4], &[4]);
        let base = (&w * 2.0)?;
        let (v, _) = f(&base)?;
        assert!(v.is_view() && v.base().is_some_and(|of| of.is_same(&base)) && v.is_alias_of(&base));
        v.mul_(5.0)?;
        (&base * 3.0)?.sum((), false)?.backward()?;
        assert_eq!(gradient(&w), [6.0, 30.0, 30.0, 6.0]);
        Ok(())
    });
    check("a base that gets its history", halves, |f| {
        let (w, base) = (leaf(&[1.0, 2.0], &[2]), Tensor::zeros(&[4], DType::F64)?);
        let (v, all) = f(&base)?;
        v.copy_(&w)?;
        (&base * 3.0)?.sum((), false)?.backward()?;
        assert_eq!((gradient(&w), values(&all)), (vec![3.0, 3.0], vec![0.0, 1.0, 2.0, 0.0]));
        Ok(())
    });
    check("a view of a view", halves, |f| {
        let w = leaf(&[1.0; 8], &[2, 4]);
        let base = (&w * 2.0)?;
        let (v, _) = f(&base.i(1)?)?;
        assert!(v.base().is_some_and(|of| of.is_same(&base)));
        v.mul_(5.0)?;
        base.sum((), false)?.backward()?;
        assert_eq!(gradient(&w), [2.0, 2.0, 2.0, 2.0, 2.0, 10.0, 10.0, 2.0]);
        Ok(())
    });
    check(
        "an input and its row",
        |x| Ok((x.clone(), x.i(0)?)),
        |f| {
            let w = ones();
            let base = (&w * 2.0)?;
            let (same, v) = f(&base)?;
            assert!(same.is_same(&base));
            v.mul_(5.0)?;
            same.sum((), false)?.backward()?;
            assert_eq!(gradient(&w), [10.0, 10.0, 2.0, 2.0]);
            Ok(())
        },
    );
    Ok(())
}

#[test]
fn writes_that_are_refused_after_eager_calls_are_refused() -> Result<()> {
    let leafs = compile(|x: &Tensor| x.i(0));
    let quiet = compile(|x: &Tensor| {
        let _quiet = no_grad();
        x.i(0)
    });
    for _ in 0..3 {
        let w = ones();
        refused(leafs.call(&w)?.mul_(2.0), "a view of a leaf Variable that requires grad");
        let v = quiet.call(&(&w * 2.0)?)?;
        assert!(!v.requires_grad());
        refused(v.mul_(2.0), "a view was created in no_grad mode");
    }
    Ok(())
}

/// Captured tensors are inputs like others.
#[test]
fn a_view_of_a_captured_tensor_is_a_view_of_it() -> Result<()> {
    let w = leaf(&[1.0; 4], &[2, 2]);
    let base = (&w * 2.0)?;
    let captured = base.t()?;
    let f = compile(move |x: &Tensor| Ok(((x * 1.0)?, captured.i(0)?)));
    for factor in [5.0, 7.0, 2.0] {
        let (_, v) = f.call(&Tensor::ones(&[1], DType::F64)?)?;
        assert!(v.base().is_some_and(|of| of.is_same(&base)));
        v.mul_(factor)?;
    }
    base.sum((), false)?.backward()?;
    assert_eq!(gradient(&w), [140.0, 2.0, 140.0, 2.0]);
    Ok(())
}
