//! Hooks, and functions with a derivative of the user's own.

use super::{gradient, leaf, refused, values};
use opfuse::autograd::{Context, Function, GradOptions, apply, grad};
use opfuse::{Result, Tensor, compile};
use std::sync::{Arc, Mutex};

/// Cubes, with a derivative that counts its calls.
struct Cube(Arc<Mutex<u32>>);

impl Function for Cube {
    fn forward(&self, context: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        context.save(&inputs[0]);
        Ok(vec![((&inputs[0] * &inputs[0])? * &inputs[0])?])
    }

    fn backward(&self, saved: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        *self.0.lock().expect("nobody panics") += 1;
        Ok(vec![Some((((&saved[0] * &saved[0])? * 3.0)? * &gradients[0])?)])
    }
}

#[test]
fn a_custom_function_uses_its_own_derivative() -> Result<()> {
    let (x, asked) = (leaf(&[2.0], &[1]), Arc::new(Mutex::new(0)));
    let y = apply(Cube(asked.clone()), &[&x])?.remove(0);
    assert_eq!(y.grad_fn().map(|call| call.name()).as_deref(), Some("CubeBackward"));
    let options = GradOptions { create_graph: true, ..GradOptions::default() };
    let first = grad(&[&y], &[&x], &[], options)?.remove(0).expect("x was used");
    let second = grad(&[&first], &[&x], &[], options)?.remove(0).expect("x was used");
    assert_eq!((values(&first), values(&second), *asked.lock().expect("nobody panics")), (vec![12.0], vec![12.0], 1));
    Ok(())
}

#[test]
fn hooks_see_and_change_gradients() -> Result<()> {
    let x = leaf(&[1.0], &[1]);
    let inner = (&x * 2.0)?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let id = inner.register_hook(move |gradient| {
        log.lock().expect("nobody panics").push(gradient.to_vec::<f64>()?[0]);
        Ok(Some((gradient * 10.0)?))
    })?;
    inner.retain_grad()?;
    (&inner * 3.0)?.backward()?;
    assert_eq!((gradient(&x), gradient(&inner)), (vec![60.0], vec![30.0]));
    assert_eq!(*seen.lock().expect("nobody panics"), [3.0]);
    assert!(inner.remove_hook(id) && !inner.remove_hook(id));
    let leaf_hook = x.register_hook(|gradient| Ok(Some((gradient * 0.5)?)))?;
    x.set_grad(None)?;
    (&x * 4.0)?.backward()?;
    assert_eq!(gradient(&x), [2.0]);
    assert!(x.remove_hook(leaf_hook));
    refused(Tensor::from_slice(&[1.0], &[1])?.register_hook(|_| Ok(None)), "doesn't require gradient");
    for wrong in [leaf(&[1.0, 1.0], &[2]), leaf(&[1.0], &[1]).to_dtype(opfuse::DType::F32)?] {
        let hook = x.register_hook(move |_| Ok(Some(wrong.clone())))?;
        refused((&x * 4.0)?.backward(), "a hook returned");
        assert!(x.remove_hook(hook));
    }
    Ok(())
}

/// After a backward pass that fails half-way, everything stays usable.
#[test]
fn an_error_in_the_backward_pass_is_returned() -> Result<()> {
    let x = leaf(&[1.0], &[1]);
    let inner = (&x * 2.0)?;
    let id = inner.register_hook(|_| Err(opfuse::Error::argument("hook", "not today")))?;
    refused((&inner * 3.0)?.backward(), "not today");
    assert!(x.grad().is_none() && opfuse::autograd::is_grad_enabled());
    inner.remove_hook(id);
    (&inner * 3.0)?.backward()?;
    assert_eq!(gradient(&x), [6.0]);
    Ok(())
}

/// A compiled function with a custom function is one graph, with the derivative of the custom function. The leaf may be
/// an input or captured.
#[test]
fn a_custom_function_is_compiled_with_its_own_derivative() -> Result<()> {
    let asked = Arc::new(Mutex::new(0));
    let w = leaf(&[2.0], &[1]);
    let (count, captured) = (asked.clone(), w.clone());
    let given = compile(move |x: &Tensor| Ok(apply(Cube(count.clone()), &[x])?.remove(0)));
    let count = asked.clone();
    let kept = compile(move |x: &Tensor| {
        let cube = apply(Cube(count.clone()), &[&captured])?.remove(0);
        Ok(((&cube * x)?, cube))
    });
    for call in 1..4 {
        let x = leaf(&[2.0], &[1]);
        given.call(&x)?.backward()?;
        assert_eq!(gradient(&x), [12.0]);
        let (product, cube) = kept.call(&Tensor::from_slice(&[10.0], &[1])?)?;
        assert_eq!((values(&product), values(&cube)), (vec![80.0], vec![8.0]));
        product.backward()?;
        apply(Cube(asked.clone()), &[&w])?[0].backward()?;
        assert_eq!(gradient(&w), [132.0 * f64::from(call)]);
    }
    assert!(given.explain().eager.is_none() && kept.explain().eager.is_none(), "{}", kept.explain());
    Ok(())
}

/// Multiplies, and keeps only what the wanted gradients read.
struct Product(Arc<Mutex<Vec<(bool, bool)>>>);

impl Function for Product {
    fn forward(&self, context: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let needs = (context.needs_input_grad(0), context.needs_input_grad(1));
        assert!(!context.needs_input_grad(2));
        self.0.lock().expect("nobody panics").push(needs);
        inputs.iter().for_each(|input| context.save(input));
        Ok(vec![(&inputs[0] * &inputs[1])?])
    }

    fn backward(&self, saved: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        self.0.lock().expect("nobody panics").push((saved[0].requires_grad(), saved[1].requires_grad()));
        Ok(vec![Some((&saved[1] * &gradients[0])?), None])
    }
}

#[test]
fn a_custom_function_knows_which_gradients_are_wanted_and_what_its_inputs_require() -> Result<()> {
    let (x, y, seen) = (leaf(&[2.0], &[1]), Tensor::from_slice(&[3.0], &[1])?, Arc::new(Mutex::new(Vec::new())));
    apply(Product(seen.clone()), &[&x, &y])?[0].backward()?;
    assert_eq!(gradient(&x), [3.0]);
    // Once in the forward pass, and once in the backward pass.
    assert_eq!(*seen.lock().expect("nobody panics"), [(true, false), (true, false)]);
    let quiet = opfuse::autograd::no_grad();
    apply(Product(seen.clone()), &[&x, &y])?;
    drop(quiet);
    assert_eq!(seen.lock().expect("nobody panics").last(), Some(&(false, false)));
    Ok(())
}
