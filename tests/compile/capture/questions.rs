//! Functions that ask what types do not show: an input's offset, whether tensors are the same, whether one is a leaf.

use super::check::{look, ramp};
use opfuse::autograd::no_grad;
use opfuse::compile::{CompileOptions, Compiled, Function, Stance, compile, compile_with};
use opfuse::error::NotCaptured;
use opfuse::{Error, Reason, Result, Tensor};

fn is_compiled<A, F: Function<A>>(f: &Compiled<F, A>, n_captures: u64) {
    let counts = f.counts();
    assert!(f.explain().eager.is_none(), "{}", f.explain());
    assert_eq!((counts.captures, counts.eager, counts.deferred), (n_captures, 0, 0), "{counts:?}");
}

#[test]
fn an_inputs_offset_is_that_of_the_call() -> Result<()> {
    let at_input = |x: &Tensor| x.mul(x.storage_offset() as f64);
    let at_view = |x: &Tensor| x.slice(0, 1, None, 1)?.mul(x.slice(0, 1, None, 1)?.storage_offset() as f64);
    let nobody_asks = |x: &Tensor| x.slice(0, 1, None, 1)?.mul(3.0);
    let (f, g, h) = (compile(at_input), compile(at_view), compile(nobody_asks));
    let base = ramp(&[8, 4], 0)?;
    for row in [0, 1, 2, 0, 2, 1] {
        let x = base.select(0, row)?;
        assert_eq!(look(&f.call(&x)?), look(&at_input(&x)?), "row {row}");
        assert_eq!(look(&g.call(&x)?), look(&at_view(&x)?), "row {row}");
        assert_eq!(look(&h.call(&x)?), look(&nobody_asks(&x)?), "row {row}");
    }
    is_compiled(&f, 3);
    is_compiled(&g, 3);
    is_compiled(&h, 1);
    Ok(())
}

/// The same while gradients are recorded, where handles have memory of their own.
#[test]
fn a_leafs_offset_is_that_of_the_call() -> Result<()> {
    let function = |x: &Tensor| (x.as_strided([2], [1], 1)? * (x.storage_offset() + 2) as f64)?.exp()?.sum_all();
    let f = compile(function);
    for start in [0, 1, 0, 1] {
        let run = |function: &dyn Fn(&Tensor) -> Result<Tensor>| {
            let x = ramp(&[9], 0)?.slice(0, start, start + 4, 1)?.detach()?;
            x.set_requires_grad(true)?;
            let y = function(&x)?;
            y.backward()?;
            let gradient = x.grad().ok_or_else(|| Error::argument("test", "no gradient"))?;
            Ok::<_, Error>([look(&y.detach()?), look(&gradient)])
        };
        assert_eq!(run(&|x| f.call(x))?, run(&function)?, "start {start}");
    }
    is_compiled(&f, 2);
    Ok(())
}

#[test]
fn whether_inputs_are_the_same_is_that_of_the_call() -> Result<()> {
    let (x, y) = (ramp(&[3], 0)?, ramp(&[3], 1)?);
    let held = x.clone();
    let function = move |x: &Tensor, y: &Tensor| match () {
        () if x.is_same(&held) && y.is_same(&held) => x * 7.0,
        () if x.is_same(y) => x * 2.0,
        () if x.is_alias_of(y) => x * 3.0,
        () if x.slice(0, 1, None, 1)?.is_alias_of(&held) => x * 5.0,
        () => x * 11.0,
    };
    let f = compile(&function);
    let others = [(&x, &y), (&x, &x), (&y, &x), (&x, &x.alias()?), (&y, &y), (&y, &y.alias()?), (&x, &y), (&x, &x)];
    for (call, (x, y)) in others.into_iter().enumerate() {
        assert_eq!(look(&f.call((x, y))?), look(&function(x, y)?), "call {call}");
    }
    is_compiled(&f, 6);
    Ok(())
}

#[test]
fn whether_an_input_is_a_leaf_or_a_view_is_that_of_the_call() -> Result<()> {
    let leaf = |x: &Tensor| if x.is_leaf() { x * 2.0 } else { x * 3.0 };
    let view = |x: &Tensor| if x.is_view() { x * 2.0 } else { x * 3.0 };
    let w = ramp(&[3], 0)?;
    w.set_requires_grad(true)?;
    let inner = (&w * 1.0)?;
    let (f, g) = (compile(leaf), compile(view));
    for x in [&w, &inner, &w, &w.alias()?, &inner, &w.alias()?] {
        assert_eq!(look(&f.call(x)?.detach()?), look(&leaf(x)?.detach()?));
        assert_eq!(look(&g.call(x)?.detach()?), look(&view(x)?.detach()?));
        let _quiet = no_grad();
        assert_eq!(look(&f.call(x)?), look(&leaf(x)?));
        assert_eq!(look(&g.call(x)?), look(&view(x)?));
    }
    is_compiled(&f, 4);
    is_compiled(&g, 4);
    Ok(())
}

/// There are at most eight programs for the same types, so conditions that differ in every call are given up.
#[test]
fn conditions_that_differ_in_every_call_are_given_up() -> Result<()> {
    let function = |x: &Tensor| x.mul(x.storage_offset() as f64);
    let f = compile(function);
    let base = ramp(&[32, 4], 0)?;
    for row in (0..32).chain(0..32) {
        let x = base.select(0, row)?;
        assert_eq!(look(&f.call(&x)?), look(&function(&x)?), "row {row}");
    }
    let counts = f.counts();
    assert!(counts.captures < 12 && counts.deferred > 0, "{counts:?}");
    let breaks = f.breaks();
    assert!(
        matches!(
            &breaks[0].reason,
            Reason::NotCaptured(NotCaptured::TooManyVariants { last, .. }) if last.contains("begins at element 28")
        ),
        "{breaks:?}"
    );
    Ok(())
}

#[test]
fn failing_on_recompile_names_the_failed_condition() -> Result<()> {
    let options = CompileOptions { stance: Stance::FailOnRecompile, ..CompileOptions::default() };
    let f = compile_with(|x: &Tensor| x.mul(x.storage_offset() as f64), options.clone());
    let base = ramp(&[2, 4], 0)?;
    let (first, second) = (base.select(0, 0)?, base.select(0, 1)?);
    f.call(&first)?;
    let error = f.call(&second).expect_err("it begins elsewhere");
    assert!(error.to_string().contains("input 0 begins at element 0 of its memory"), "{error}");
    assert_eq!(look(&f.call(&first)?), look(&first.mul(0.0)?));
    let w = ramp(&[3], 0)?;
    let own = w.clone();
    let g = compile_with(move |x: &Tensor| own.grad().map_or_else(|| x.exp(), |gradient| x.mul(&gradient)), options);
    let x = ramp(&[3], 1)?;
    g.call(&x)?;
    w.set_grad(Some(&x))?;
    let error = g.call(&x).expect_err("there is a gradient now");
    assert!(error.to_string().contains("has no gradient"), "{error}");
    Ok(())
}
