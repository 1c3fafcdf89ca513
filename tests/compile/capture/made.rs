//! Tensors that the function makes itself of values in Rust: each call makes its own, whoever writes to them later.

use super::check::ramp;
use crate::bits::bits;
use opfuse::autograd::{Context, Function, apply, grad, no_grad};
use opfuse::compile::{CompileOptions, Stance};
use opfuse::{Result, Tensor, compile, compile_with, vmap};
use std::sync::{Mutex, OnceLock};

type Body<'a> = &'a (dyn Fn(&Tensor) -> Result<Vec<Tensor>> + Sync + Send);

/// How many calls are made.
const CALLS: usize = 4;

fn made() -> Result<Tensor> {
    Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[4])
}

/// The type, strides and elements.
fn shown(tensor: &Tensor) -> String {
    format!("{} {:?} {:?}", tensor.ty(), tensor.strides(), bits(tensor))
}

/// What can be seen of the results of all calls, each of which writes to all results of the calls before it.
fn observe(requires_grad: bool, run: impl Fn(&Tensor) -> Result<Vec<Tensor>>) -> Result<Vec<String>> {
    let mut all: Vec<Tensor> = Vec::new();
    let mut seen = Vec::new();
    for call in 0..CALLS {
        let x = ramp(&[4], call)?;
        x.set_requires_grad(requires_grad)?;
        let results = run(&x)?;
        for result in &results {
            let same: Vec<bool> = all.iter().chain(&results).map(|other| other.is_same(result)).collect();
            let aliases: Vec<bool> = all.iter().chain(&results).map(|other| other.is_alias_of(result)).collect();
            let flags = (result.requires_grad(), result.is_leaf());
            seen.push(format!("call {call}: {} {same:?} {aliases:?} {flags:?}", shown(result)));
        }
        for result in results.iter().filter(|result| result.requires_grad() && !result.is_leaf()) {
            result.sum_all()?.backward_with(&Tensor::scalar(2.0f32)?)?;
        }
        seen.push(format!("call {call}: {:?}", x.grad().map(|gradient| shown(&gradient))));
        all.extend(results);
        let _unrecorded = no_grad();
        all.iter().try_for_each(|result| result.add_(10.0 * (call + 1) as f64).map(|_| ()))?;
        seen.extend(all.iter().map(shown));
    }
    Ok(seen)
}

/// Compares both twins. With gradients and without, in whole graphs and in segments.
fn check(name: &str, body: Body<'_>, is_compiled: bool) {
    for (requires_grad, stance) in [false, true]
        .into_iter()
        .flat_map(|flows| [Stance::Default, Stance::Deferred].into_iter().map(move |stance| (flows, stance)))
    {
        let options = CompileOptions { stance, ..CompileOptions::default() };
        let compiled = compile_with(|x: &Tensor| body(x), options);
        let (eager, found) = (observe(requires_grad, body), observe(requires_grad, |x| compiled.call(x)));
        assert_eq!(found, eager, "{name}, gradients {requires_grad}, {stance:?}");
        let reason = compiled.explain().eager;
        assert!(!is_compiled || stance == Stance::Deferred || reason.is_none(), "{name}: {reason:?}");
    }
}

struct Scale;

impl Function for Scale {
    fn forward(&self, context: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        context.save(&inputs[1]);
        Ok(vec![inputs[0].mul(&inputs[1])?, inputs[1].clone()])
    }

    fn backward(&self, saved: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradients[0].mul(&saved[0])?), None])
    }
}

#[test]
fn what_the_function_makes_of_values_is_new_in_each_call() {
    let cases: [(&str, Body<'_>); 12] = [
        ("returned", &|_| Ok(vec![made()?])),
        ("used and returned", &|x| {
            let t = made()?;
            Ok(vec![x.mul(&t)?, t])
        }),
        ("returned twice", &|x| {
            let t = made()?;
            Ok(vec![t.clone(), x.exp()?, t])
        }),
        ("a view is returned", &|x| Ok(vec![made()?.i(1..3)?, x.neg()?])),
        ("a view is returned before its base", &|x| {
            let t = made()?;
            Ok(vec![t.reshape([2, 2])?.t()?, x.add(&t)?, t])
        }),
        ("two views are returned", &|_| {
            let t = made()?;
            Ok(vec![t.i(..3)?, t.i(1..)?])
        }),
        ("an alias without history", &|x| {
            let t = made()?;
            Ok(vec![t.detach()?, x.mul(&t)?])
        }),
        ("of a vector and of numbers", &|x| {
            let t = Tensor::from_vec(vec![5.0f32; 4], &[4])?;
            Ok(vec![x.add(&t)?, t, Tensor::full(&[2], 3.0, opfuse::DType::F32)?, Tensor::scalar(7.0f32)?])
        }),
        ("made for slices", &|x| {
            let rows = vmap(|row: &Tensor| row.mul(made()?.i(0)?)).call(x)?;
            Ok(vec![rows])
        }),
        ("made in a compiled function inside", &|x| {
            let inner = compile(|x: &Tensor| {
                let t = made()?;
                Ok((x.mul(&t)?, t))
            });
            let (product, t) = inner.call(x)?;
            Ok(vec![product, t.i(1..)?, t])
        }),
        ("made for a gradient inside", &|x| {
            let w = made()?;
            w.set_requires_grad(true)?;
            let found = grad(&[&w.mul(x)?.sum_all()?], &[&w], &[], Default::default())?;
            Ok(vec![found.into_iter().flatten().next().expect("it was used").detach()?.mul(2.0)?])
        }),
        ("with strides of its own", &|x| {
            let t = made()?.reshape([2, 2])?.t()?;
            Ok(vec![t.clone(), t.mul(x.i(0)?)?])
        }),
    ];
    cases.iter().for_each(|(name, body)| check(name, *body, true));
}

#[test]
fn writes_to_what_the_function_makes_of_values_stay_in_their_call() {
    let cases: [(&str, Body<'_>); 8] = [
        ("written and returned", &|x| {
            let t = made()?;
            t.mul_(&x.detach()?)?;
            Ok(vec![t])
        }),
        ("written and used", &|x| {
            let t = made()?;
            t.add_(1.0)?;
            t.mul_(2.0)?;
            Ok(vec![x.mul(&t)?])
        }),
        ("used, written, and used", &|x| {
            let t = made()?;
            let before = x.mul(&t)?;
            t.add_(1.0)?;
            Ok(vec![before.detach()?, t.exp()?])
        }),
        ("written through a view", &|x| {
            let t = made()?;
            t.i(1..3)?.copy_(&x.detach()?.i(0..2)?)?;
            Ok(vec![t.i(2..)?, t.neg()?])
        }),
        ("written, and a view and itself returned", &|x| {
            let t = made()?;
            let view = t.i(1..)?;
            t.add_(&x.detach()?)?;
            Ok(vec![view, t])
        }),
        ("counted in each call", &|x| {
            let t = Tensor::from_slice(&[0i64], &[1])?;
            t.add_(1)?;
            Ok(vec![t, x.abs()?])
        }),
        ("written with a history", &|x| {
            let t = made()?;
            t.copy_(&x.mul(3.0)?)?;
            Ok(vec![t.mul(2.0)?, t])
        }),
        ("a leaf, written without history", &|x| {
            let w = made()?;
            w.set_requires_grad(true)?;
            {
                let _unrecorded = no_grad();
                w.add_(1.0)?;
            }
            Ok(vec![x.mul(&w)?])
        }),
    ];
    cases.iter().for_each(|(name, body)| check(name, *body, true));
}

#[test]
fn what_the_function_makes_of_values_may_be_an_argument_of_a_custom_function() {
    check("an argument of a custom function", &|x| apply(Scale, &[x, &made()?]), false);
}

/// Eager calls keep the tensor of each call. What is kept must be the tensor that the call returned.
#[test]
fn what_is_made_of_values_and_kept_is_the_tensor_of_its_call() -> Result<()> {
    for is_computed in [false, true] {
        for requires_grad in [false, true] {
            let kept = Mutex::new(Vec::new());
            let f = compile(|x: &Tensor| {
                let t = if is_computed { x.detach()?.exp()? } else { made()? };
                kept.lock().expect("nobody panics").push(t.clone());
                Ok((x.mul(&t)?, t))
            });
            for call in 0..CALLS {
                let x = ramp(&[4], call)?;
                x.set_requires_grad(requires_grad)?;
                let (product, t) = f.call(&x)?;
                let kept = kept.lock().expect("nobody panics");
                // The first call with gradients traces the function again, on shapes.
                let own = kept.iter().rev().find(|kept| kept.is_same(&t));
                assert!(own.is_some(), "computed {is_computed}, gradients {requires_grad}, call {call}");
                assert_eq!(shown(&product.detach()?), shown(&x.detach()?.mul(&t)?));
            }
        }
    }
    Ok(())
}

#[test]
fn what_is_made_of_values_once_and_returned_is_the_same_tensor_in_each_call() -> Result<()> {
    for is_computed in [false, true] {
        for requires_grad in [false, true] {
            let table = OnceLock::new();
            let f = compile(|x: &Tensor| {
                if table.get().is_none() {
                    table.set(if is_computed { x.detach()?.exp()? } else { made()? }).expect("nobody else sets it");
                }
                let table: &Tensor = table.get().expect("it was set");
                Ok((x.mul(table)?, table.clone()))
            });
            for call in 0..CALLS {
                let x = ramp(&[4], call)?;
                x.set_requires_grad(requires_grad)?;
                let (product, found) = f.call(&x)?;
                let table = table.get().expect("it was set");
                assert!(found.is_same(table), "computed {is_computed}, gradients {requires_grad}, call {call}");
                assert_eq!(shown(&product.detach()?), shown(&x.detach()?.mul(table)?));
            }
            assert!(f.explain().eager.is_none(), "{}", f.explain());
        }
    }
    Ok(())
}
