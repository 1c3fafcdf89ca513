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

/// A training step of some blocks with dropout, each of which is computed again if `recomputes` holds.
fn step_of(blocks: &[Sequential], recomputes: bool) -> impl Fn(&Tensor) -> Result<Vec<Tensor>> + use<> {
    let blocks = blocks.to_vec();
    move |x: &Tensor| {
        let mut hidden = x.clone();
        for block in &blocks {
            let own = block.clone();
            let added = match recomputes {
                true => checkpoint(move |x| Ok(vec![own.forward(&x[0])?]), &[&hidden])?.remove(0),
                false => own.forward(&hidden)?,
            };
            hidden = hidden.add(&added)?;
        }
        let loss = hidden.square()?.mean_all()?;
        loss.backward()?;
        let parameters = blocks.iter().flat_map(Module::parameters).collect::<Vec<_>>();
        let gradients = parameters.iter().map(|parameter| parameter.grad().expect("it has one"));
        let results = gradients.map(|gradient| gradient.mul(1.0)).collect::<Result<Vec<_>>>()?;
        parameters.iter().try_for_each(|parameter| parameter.set_grad(None))?;
        Ok([vec![loss.detach()?], results].concat())
    }
}

#[test]
fn a_compiled_step_takes_less_memory_and_keeps_its_bits() -> Result<()> {
    let _draws = crate::draws();
    let block = || {
        Ok(Sequential::new()
            .with(Linear::new(32, 128)?)
            .with(Tanh {})
            .with(Dropout::new(0.2))
            .with(Linear::new(128, 32)?))
    };
    let blocks = (0..6).map(|_| block()).collect::<Result<Vec<Sequential>>>()?;
    let x = Tensor::randn(&[256, 32], DType::F32)?;
    x.set_requires_grad(true)?;
    let compiled = [false, true].map(|recomputes| compile(step_of(&blocks, recomputes)));
    for _ in 0..2 {
        manual_seed(5);
        let expected = step_of(&blocks, false)(&x)?;
        x.set_grad(None)?;
        for step in &compiled {
            manual_seed(5);
            let found = step.call(&x)?;
            x.set_grad(None)?;
            assert_eq!(step.counts().eager, 0, "{}", step.explain());
            assert_eq!(found.len(), expected.len());
            found.iter().zip(&expected).for_each(|(found, expected)| same("loss and gradients", found, expected));
        }
    }
    let [kept, again] = compiled.each_ref().map(|step| step.explain().peak_bytes);
    // One hidden layer of a block is 131,072 bytes, and tanh and dropout keep more than one.
    assert!(again + 4 * 131_072 < kept && 2 * again < kept, "{again} bytes with checkpoints, {kept} without");
    Ok(())
}

#[test]
fn a_compiled_function_recomputes_in_a_later_backward_pass() -> Result<()> {
    let _draws = crate::draws();
    let model =
        Sequential::new().with(Linear::new(16, 64)?).with(Tanh {}).with(Dropout::new(0.3)).with(Linear::new(64, 16)?);
    let forward = |recomputes: bool| {
        let model = model.clone();
        move |x: &Tensor| -> Result<Tensor> {
            let own = model.clone();
            match recomputes {
                true => checkpoint(move |x| Ok(vec![own.forward(&x[0])?]), &[x])?.remove(0).square(),
                false => own.forward(x)?.square(),
            }
        }
    };
    let compiled = compile(forward(true));
    let plain = forward(false);
    let run = |call: &dyn Fn(&Tensor) -> Result<Tensor>| -> Result<Vec<Tensor>> {
        manual_seed(3);
        model.zero_grad()?;
        let x = Tensor::ones(&[300, 16], DType::F32)?;
        x.set_requires_grad(true)?;
        let y = call(&x)?;
        y.sum_all()?.backward()?;
        let gradients = model.parameters().iter().filter_map(Tensor::grad).collect::<Vec<_>>();
        Ok([vec![y.detach()?, x.grad().expect("it has one")], gradients].concat())
    };
    for call in 0..3 {
        let expected = run(&|x| plain(x))?;
        let found = run(&|x| compiled.call(x))?;
        assert_eq!(found.len(), 6);
        found.iter().zip(&expected).for_each(|(found, expected)| same(&format!("call {call}"), found, expected));
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
