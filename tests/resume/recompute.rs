//! `checkpoint`: the bits of a plain call, with random draws and autocast, eager and compiled.

use crate::same;
use opfuse::nn::{Dropout, Forward, Linear, Module, Sequential, Tanh, checkpoint};
use opfuse::{DType, Result, Tensor, autocast, compile, manual_seed};

/// Loss, gradient of the input, and gradients of the parameters.
fn run(model: &Sequential, x: &Tensor, recomputes: bool, in_bf16: bool) -> Result<Vec<Tensor>> {
    manual_seed(9);
    model.zero_grad()?;
    let x = x.copy()?;
    x.set_requires_grad(true)?;
    let loss = {
        let _autocast = in_bf16.then(|| autocast(DType::BF16)).transpose()?;
        let own = model.clone();
        let y = match recomputes {
            true => checkpoint(move |x| Ok(vec![own.forward(&x[0])?]), &[&x])?.remove(0),
            false => own.forward(&x)?,
        };
        y.to_dtype(DType::F32)?.square()?.sum_all()?
    };
    // What is drawn in between is not drawn again.
    let noise = Tensor::rand(&[1], DType::F32)?;
    loss.backward()?;
    let after = Tensor::rand(&[1], DType::F32)?;
    let gradients = model.parameters().iter().filter_map(Tensor::grad).collect::<Vec<_>>();
    Ok([vec![loss.detach()?, noise, after, x.grad().expect("it has one")], gradients].concat())
}

#[test]
fn gradients_have_the_bits_of_a_plain_call() -> Result<()> {
    let _draws = crate::draws();
    let model =
        Sequential::new().with(Linear::new(6, 8)?).with(Tanh {}).with(Dropout::new(0.4)).with(Linear::new(8, 3)?);
    let x = Tensor::randn(&[5, 6], DType::F32)?;
    for in_bf16 in [false, true] {
        let expected = run(&model, &x, false, in_bf16)?;
        let found = run(&model, &x, true, in_bf16)?;
        assert_eq!(found.len(), 8);
        for (found, expected) in found.iter().zip(&expected) {
            same(&format!("bf16 {in_bf16}"), found, expected);
        }
    }
    Ok(())
}

#[test]
fn a_compiled_step_takes_it_as_a_part() -> Result<()> {
    let _draws = crate::draws();
    let model = Sequential::new().with(Linear::new(6, 8)?).with(Tanh {}).with(Linear::new(8, 3)?);
    let x = Tensor::randn(&[5, 6], DType::F32)?;
    let step = |x: &Tensor| -> Result<Tensor> {
        let hidden = model.forward(x)?;
        let own = model.clone();
        let y = checkpoint(move |x| Ok(vec![own.forward(&x[1])?.mul(x[0].sum_all()?)?]), &[&hidden, x])?;
        y[0].square()?.mean_all()?.backward()?;
        let gradient = model.parameters()[0].grad().expect("it has one");
        model.zero_grad()?;
        gradient.add(0.0)
    };
    let expected = step(&x)?;
    let compiled = compile(step);
    for _ in 0..2 {
        same("gradient", &compiled.call(&x)?, &expected);
    }
    assert_eq!(compiled.counts().eager, 0, "{}", compiled.explain());
    Ok(())
}

#[test]
fn gradients_of_gradients_are_refused() -> Result<()> {
    let _draws = crate::draws();
    let x = Tensor::scalar(2.0f32)?;
    x.set_requires_grad(true)?;
    let y = checkpoint(|x| Ok(vec![x[0].pow(3.0)?]), &[&x])?;
    let options = opfuse::autograd::GradOptions { create_graph: true, ..Default::default() };
    let error = opfuse::autograd::grad(&[&y[0]], &[&x], &[], options).expect_err("it is refused").to_string();
    assert!(error.contains("checkpoint"), "{error}");
    Ok(())
}
