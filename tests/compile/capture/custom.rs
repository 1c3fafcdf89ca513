//! Functions with a derivative of their own, inside compiled functions.

use super::check::{look, ramp};
use super::twins::{Twins, check_all};
use opfuse::autograd::{Context, Function, GradOptions, apply, grad, no_grad};
use opfuse::{DType, Result, Tensor, compile};
use std::sync::Mutex;

/// `x * x * scale`, whose derivative is limited to ±1, so it is not linear in the gradient.
struct Limited {
    scale: f64,
}

impl Function for Limited {
    fn forward(&self, context: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        context.save(&inputs[0]);
        Ok(vec![inputs[0].square()?.mul(self.scale)?])
    }

    fn backward(&self, saved: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let slope = saved[0].mul(2.0 * self.scale)?.mul(&gradients[0])?;
        Ok(vec![Some(slope.clamp(Some(opfuse::Scalar::Float(-1.0)), Some(opfuse::Scalar::Float(1.0)))?)])
    }
}

/// Two results, of which the second is the first input. Its derivative adds a constant, whatever the gradients are.
struct Pair;

impl Function for Pair {
    fn forward(&self, context: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let product = inputs[0].mul(&inputs[1])?;
        context.save(&inputs[1]);
        context.save_result(0);
        Ok(vec![product, inputs[0].clone()])
    }

    fn backward(&self, saved: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let made = Tensor::from_slice(&[0.5f32, -0.5, 0.25, -0.25], &[4])?;
        let first = gradients[0].mul(&saved[0])?.add(gradients[1].div(&saved[1])?)?.add(&made)?;
        Ok(vec![Some(first), None])
    }
}

/// The same elements, with the gradient of a tensor that it holds added.
struct Holds(Tensor);

impl Function for Holds {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, _: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradients[0].mul(&self.0)?)])
    }
}

fn one(function: impl Function, inputs: &[&Tensor]) -> Result<Tensor> {
    Ok(apply(function, inputs)?.remove(0))
}

#[test]
fn custom_derivatives_are_captured_with_the_function() {
    check_all(&[
        Twins::of_leaves("of an input", |x, _| Ok(vec![one(Limited { scale: 0.5 }, &[&x[0]])?.mul(3.0)?])),
        Twins::new("of a captured tensor", |x, w| Ok(vec![one(Limited { scale: 2.0 }, &[&w[0]])?.mul(&x[0])?])),
        Twins::of_leaves("of something computed, beside other uses", |x, w| {
            let y = x[0].exp()?;
            Ok(vec![one(Limited { scale: 0.5 }, &[&y])?.mul(&w[0])?, y.mul(&x[0])?])
        }),
        Twins::of_leaves("two results, and both are used", |x, w| {
            let both = apply(Pair, &[&x[0], &w[1]])?;
            Ok(vec![both[0].mul(&both[1])?])
        }),
        Twins::of_leaves("two results are returned", |x, w| apply(Pair, &[&x[0], &w[1]])),
        Twins::of_leaves("one of two results is used", |x, w| Ok(vec![apply(Pair, &[&x[0], &w[1]])?[0].exp()?])),
        Twins::of_leaves("the same tensor, returned", |x, w| apply(Holds(w[1].clone()), &[&x[0]])),
        Twins::of_leaves("written to later", |x, w| {
            let y = one(Limited { scale: 0.5 }, &[&x[0].mul(&w[1])?])?;
            y.mul_(&w[1])?;
            Ok(vec![y])
        }),
        Twins::of_leaves("of what the function makes", |x, _| {
            let made = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[4])?;
            Ok(vec![apply(Pair, &[&x[0], &made])?[0].sum_all()?])
        }),
        Twins::of_leaves("inside one another", |x, w| {
            Ok(vec![one(Holds(w[1].clone()), &[&one(Limited { scale: 0.5 }, &[&x[0]])?])?])
        }),
    ]);
}

/// A backward pass that reaches one result of two: eager gives the user's derivative zeros, or does not call it.
#[test]
fn custom_derivatives_see_what_an_eager_backward_pass_brings() -> Result<()> {
    let function = |x: &Tensor, w: &Tensor| {
        let mut both = apply(Pair, &[x, w])?;
        both.push(one(Limited { scale: 0.5 }, &[x])?);
        both.push(x.exp()?);
        Ok(both)
    };
    let compiled = compile(|x: &Tensor, w: &Tensor| function(x, w));
    for roots in 1..16usize {
        let w = ramp(&[4], roots)?;
        let run = |call: &dyn Fn(&Tensor, &Tensor) -> Result<Vec<Tensor>>| {
            let x = ramp(&[4], 3)?;
            x.set_requires_grad(true)?;
            let results = call(&x, &w)?;
            let parts = results.iter().enumerate().filter(|(index, _)| roots >> index & 1 == 1);
            let mut loss = Tensor::zeros(&[], DType::F32)?;
            for (_, part) in parts {
                loss = loss.add(part.sum_all()?)?;
            }
            loss.backward()?;
            Ok::<_, opfuse::Error>(x.grad().map(|gradient| look(&gradient)))
        };
        assert_eq!(run(&|x, w| compiled.call((x, w)))?, run(&|x, w| function(x, w))?, "roots {roots:b}");
    }
    assert!(compiled.explain().eager.is_none(), "{}", compiled.explain());
    Ok(())
}

#[test]
fn custom_derivatives_have_derivatives_in_compiled_functions() -> Result<()> {
    let function = |x: &Tensor| one(Limited { scale: 0.01 }, &[&x.mul(2.0)?])?.mul(x);
    let compiled = compile(function);
    for call in 0..4 {
        let run = |call_it: &dyn Fn(&Tensor) -> Result<Tensor>| {
            let x = ramp(&[4], call)?;
            x.set_requires_grad(true)?;
            let options = GradOptions { create_graph: true, ..GradOptions::default() };
            let first = grad(&[&call_it(&x)?.sum_all()?], &[&x], &[], options)?.remove(0).expect("it is used");
            let second = grad(&[&first.square()?.sum_all()?], &[&x], &[], GradOptions::default())?;
            Ok::<_, opfuse::Error>((
                look(&first.detach()?),
                second.into_iter().flatten().map(|g| look(&g)).collect::<Vec<_>>(),
            ))
        };
        assert_eq!(run(&|x| compiled.call(x))?, run(&function)?, "call {call}");
    }
    assert!(compiled.explain().eager.is_none(), "{}", compiled.explain());
    Ok(())
}

#[test]
fn a_training_step_with_a_custom_derivative_is_one_graph() -> Result<()> {
    let step = |w: &Tensor, x: &Tensor| {
        let loss = one(Limited { scale: 0.5 }, &[&w.mul(x)?])?.sum_all()?;
        loss.backward()?;
        let gradient = w.grad().expect("the loss depends on it");
        let _unrecorded = no_grad();
        w.sub_(gradient.mul(0.1)?)?;
        w.set_grad(None)?;
        loss.detach()
    };
    let leaf = || {
        let w = ramp(&[4], 2)?;
        w.set_requires_grad(true)?;
        Ok::<_, opfuse::Error>(w)
    };
    let (eager, own) = (leaf()?, leaf()?);
    let compiled = compile(|x: &Tensor| step(&own, x));
    for call in 0..5 {
        let x = ramp(&[4], call)?;
        assert_eq!(look(&compiled.call(&x)?), look(&step(&eager, &x)?), "call {call}");
        assert_eq!(look(&own.detach()?), look(&eager.detach()?), "call {call}");
    }
    assert!(compiled.explain().eager.is_none(), "{}", compiled.explain());
    Ok(())
}

/// What counts, and what a backward pass does besides computing.
static COUNTER: Mutex<Option<Tensor>> = Mutex::new(None);

struct Counts;

impl Function for Counts {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].mul(2.0)?])
    }

    fn backward(&self, _: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        if let Some(counter) = &*COUNTER.lock().expect("nobody panics") {
            counter.add_(1.0)?;
        }
        Ok(vec![Some(gradients[0].mul(2.0)?)])
    }
}

#[test]
fn a_custom_derivative_with_effects_runs_when_an_eager_one_does() -> Result<()> {
    let counter = Tensor::zeros(&[1], DType::F32)?;
    *COUNTER.lock().expect("nobody panics") = Some(counter.clone());
    let compiled = compile(|x: &Tensor| one(Counts, &[x]));
    for call in 1..4 {
        let x = ramp(&[4], call)?;
        x.set_requires_grad(true)?;
        let y = compiled.call(&x)?;
        assert_eq!(counter.to_vec::<f32>()?, [(call - 1) as f32]);
        y.sum_all()?.backward()?;
        assert_eq!(counter.to_vec::<f32>()?, [call as f32]);
    }
    let reason = compiled.explain().eager.map(|reason| reason.to_string()).unwrap_or_default();
    assert!(reason.contains("a user-defined derivative or a hook writes"), "{reason}");
    Ok(())
}
