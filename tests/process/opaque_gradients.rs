//! Gradients through operators from outside, which a compiled function calls.

use crate::alone::has_run_alone;
use crate::bits::bits;
use crate::opaque_calls::{cube, one, x};
use opfuse::autograd::{Context, Function, apply, no_grad};
use opfuse::dispatch::{DispatchKey, Library, below_autograd};
use opfuse::{Error, Result, Tensor, compile};
use std::sync::atomic::Ordering;

fn leaf() -> Result<Tensor> {
    let leaf = x()?;
    leaf.set_requires_grad(true)?;
    Ok(leaf)
}

/// Registers `NAMESPACE::cube` with a derivative, which calls `NAMESPACE::slope`.
fn with_derivative(namespace: &'static str, slope: fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Library> {
    struct Cube(&'static str, fn(&Tensor, &Tensor) -> Result<Tensor>);
    impl Function for Cube {
        fn forward(&self, context: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
            let _below = below_autograd();
            context.save(&inputs[0]);
            Ok(vec![one(self.0, &inputs[0])?])
        }

        fn backward(&self, saved: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
            Ok(vec![Some((self.1)(&saved[0], &gradients[0])?)])
        }
    }
    let name = format!("{namespace}::cube");
    let (mut library, _) = cube(namespace)?;
    let of: &'static str = Box::leak(name.clone().into_boxed_str());
    library.impl_for(&name, DispatchKey::Autograd, move |x: &Tensor| Ok(apply(Cube(of, slope), &[x])?.remove(0)))?;
    Ok(library)
}

/// Gradients of a loss of a function, compiled against eager.
fn same_gradients(f: impl Fn(&Tensor) -> Result<Tensor> + Copy + Send + Sync, calls: usize) -> Result<()> {
    let compiled = compile(f);
    for _ in 0..3 {
        let (found, expected) = (leaf()?, leaf()?);
        let (a, b) = (compiled.call(&found)?, f(&expected)?);
        assert_eq!(bits(&a)?, bits(&b)?);
        a.square()?.sum_all()?.backward()?;
        b.square()?.sum_all()?.backward()?;
        let gradient = |leaf: &Tensor| leaf.grad().map(|grad| bits(&grad)).transpose();
        assert_eq!(gradient(&found)?, gradient(&expected)?);
    }
    let report = compiled.explain();
    assert!(report.eager.is_none(), "{report}");
    assert_eq!(report.calls.len(), calls, "{report}");
    let _quiet = no_grad();
    assert_eq!(bits(&compiled.call(&leaf()?)?)?, bits(&f(&leaf()?)?)?);
    Ok(())
}

#[test]
fn derivatives_are_compiled() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let _library = with_derivative("opaque_derived", |x, gradient| x.square()?.mul(3.0)?.mul(gradient))?;
    same_gradients(|x| one("opaque_derived::cube", &x.sin()?)?.mul(x), 1)?;
    same_gradients(|x| one("opaque_derived::cube", &one("opaque_derived::cube", x)?.add(x)?), 2)
}

#[test]
fn a_training_step_calls_operators_in_both_passes() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let (_helper, n_calls) = cube("opaque_helper")?;
    let _library = with_derivative("opaque_step", |x, gradient| {
        // The slope of x³ by the operator: ((x + 1)³ - (x - 1)³ - 2) / 2.
        let [up, down] = [one("opaque_helper::cube", &x.add(1.0)?)?, one("opaque_helper::cube", &x.sub(1.0)?)?];
        up.sub(&down)?.sub(2.0)?.mul(0.5)?.mul(gradient)
    })?;
    let step = |w: &Tensor, x: &Tensor| -> Result<Tensor> {
        let loss = one("opaque_step::cube", &w.mul(x)?)?.square()?.mean_all()?;
        loss.backward()?;
        let _quiet = no_grad();
        let slope = w.grad().ok_or_else(|| Error::argument("step", "w was used"))?;
        w.sub_(&slope.mul(0.01)?)?;
        w.set_grad(None)?;
        loss.detach()
    };
    let compiled = compile(step);
    let (w, twin) = (leaf()?, leaf()?);
    for call in 0..4 {
        let before = n_calls.load(Ordering::Relaxed);
        let (found, expected) = (compiled.call((&w, &x()?))?, step(&twin, &x()?)?);
        assert_eq!(bits(&found)?, bits(&expected)?, "call {call}");
        assert_eq!(bits(&w)?, bits(&twin)?, "call {call}");
        assert_eq!(n_calls.load(Ordering::Relaxed) - before, 4);
    }
    assert!(compiled.explain().eager.is_none(), "{}", compiled.explain());
    assert_eq!(compiled.explain().calls.len(), 3, "{}", compiled.explain());
    Ok(())
}

#[test]
fn operators_without_a_derivative_say_so() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let (_library, _) = cube("opaque_without")?;
    let f = |x: &Tensor| one("opaque_without::cube", &x.add(1.0)?)?.mul(2.0);
    let compiled = compile(f);
    for _ in 0..2 {
        let (found, expected) = (compiled.call(&leaf()?)?, f(&leaf()?)?);
        assert_eq!(bits(&found)?, bits(&expected)?);
        let [found, expected] =
            [found, expected].map(|y| y.sum_all().and_then(|y| y.backward()).expect_err("it has none"));
        assert_eq!(found.to_string(), expected.to_string());
        assert!(found.to_string().contains("it has no derivative"), "{found}");
    }
    // A gradient that would end before it reaches an input passes the call, too.
    let ended = |x: &Tensor| {
        let y = x.add(1.0)?;
        y.zero_()?;
        one("opaque_without::cube", &y)?.mul(2.0)
    };
    let compiled = compile(ended);
    for _ in 0..3 {
        let [found, expected] = [compiled.call(&leaf()?)?, ended(&leaf()?)?];
        assert_eq!(bits(&found)?, bits(&expected)?);
        let [found, expected] =
            [found, expected].map(|y| y.sum_all().and_then(|y| y.backward()).expect_err("it has none"));
        assert_eq!(found.to_string(), expected.to_string());
    }
    // Where no gradient passes the call, it is part of the program.
    let beside = |x: &Tensor| one("opaque_without::cube", &x.detach()?)?.mul(x);
    same_gradients(beside, 1)
}
