//! Gradients of compiled functions, and compiled functions that compute gradients.

use super::{gradient, leaf, values};
use opfuse::autograd::{GradOptions, grad, no_grad};
use opfuse::internals::transforms::tracer::trace;
use opfuse::{DType, Result, Tensor, compile};

fn model(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    x.matmul(w)?.tanh()?.softmax(1)?.sum([0], false)
}

fn inputs() -> (Tensor, Tensor) {
    let wave = |n: usize, step: f64| (0..n).map(|i| (i as f64 * step).sin()).collect::<Vec<_>>();
    (leaf(&wave(12, 0.37), &[3, 4]), leaf(&wave(8, 0.73), &[4, 2]))
}

fn bits(tensor: &Tensor) -> Vec<u64> {
    values(tensor).iter().map(|value| value.to_bits()).collect()
}

/// Both gradients of a weighted sum of the outputs.
fn gradients(f: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<[Vec<u64>; 2]> {
    let (x, w) = inputs();
    f(&x, &w)?.backward_with(&Tensor::from_slice(&[0.3, -1.7], &[2])?)?;
    Ok([&x, &w].map(|leaf| gradient(leaf).iter().map(|value| value.to_bits()).collect()))
}

#[test]
fn a_compiled_function_is_differentiated_with_the_same_bits() -> Result<()> {
    let eager = gradients(model)?;
    let f = compile(model);
    for _ in 0..3 {
        assert_eq!(gradients(|x, w| f.call((x, w)))?, eager);
    }
    assert!(f.explain().eager.is_none(), "{}", f.explain());
    let (x, w) = inputs();
    let y = f.call((&x, &w))?;
    assert_eq!(y.grad_fn().map(|call| call.name()).as_deref(), Some("CompiledBackward"));
    let _quiet = no_grad();
    assert!(!f.call((&x, &w))?.requires_grad());
    Ok(())
}

#[test]
fn second_derivatives_go_through_a_compiled_function() -> Result<()> {
    let f = compile(|x: &Tensor| (x * x)? * x);
    let x = leaf(&[2.0, 3.0], &[2]);
    let options = GradOptions { create_graph: true, ..GradOptions::default() };
    for _ in 0..2 {
        let first = grad(&[&f.call(&x)?.sum((), false)?], &[&x], &[], options)?.remove(0).expect("x was used");
        let second = grad(&[&first.sum((), false)?], &[&x], &[], options)?.remove(0).expect("x was used");
        assert_eq!((values(&first), values(&second)), (vec![12.0, 27.0], vec![12.0, 18.0]));
    }
    Ok(())
}

/// Second derivatives also flow through the upstream gradient: the slope of `exp(x * x)` is `2 x exp(x * x)`.
#[test]
fn second_derivatives_go_through_what_follows_a_compiled_function() -> Result<()> {
    let f = compile(|x: &Tensor| x * x);
    let options = GradOptions { create_graph: true, ..GradOptions::default() };
    let mut seen = Vec::new();
    for call in [0, 1, 1] {
        let x = leaf(&[0.5, -1.0], &[2]);
        let y = if call == 0 { (&x * &x)? } else { f.call(&x)? };
        let first = grad(&[&y.exp()?.sum((), false)?], &[&x], &[], options)?.remove(0).expect("x was used");
        let second = grad(&[&first.sum((), false)?], &[&x], &[], options)?.remove(0).expect("x was used");
        seen.push(values(&second));
    }
    assert!(
        seen[0][1] > 16.0 && seen.iter().all(|found| found.iter().zip(&seen[0]).all(|(a, b)| (a - b).abs() < 1e-12))
    );
    Ok(())
}

#[test]
fn gradients_reach_captured_tensors() -> Result<()> {
    let w = leaf(&[2.0, -1.0], &[2]);
    let own = w.clone();
    let f = compile(move |x: &Tensor| (x * &own)?.exp());
    let x = Tensor::from_slice(&[0.5, 0.25], &[2])?;
    let mut seen = Vec::new();
    for _ in 0..3 {
        w.set_grad(None)?;
        f.call(&x)?.sum((), false)?.backward()?;
        seen.push(gradient(&w));
    }
    w.set_grad(None)?;
    (&x * &w)?.exp()?.sum((), false)?.backward()?;
    assert_eq!(seen, vec![gradient(&w); 3]);
    Ok(())
}

#[test]
fn a_function_that_computes_gradients_is_compiled() -> Result<()> {
    let slope = |x: &Tensor, w: &Tensor| {
        let (x, w) = (x.detach()?, w.detach()?);
        w.set_requires_grad(true)?;
        let loss = model(&x, &w)?.sum((), false)?;
        grad(&[&loss], &[&w], &[], GradOptions::default())?
            .remove(0)
            .ok_or_else(|| opfuse::Error::argument("slope", "w"))
    };
    let (x, w) = inputs();
    let _quiet = no_grad();
    let _recorded = opfuse::autograd::enable_grad();
    let expected = bits(&slope(&x, &w)?);
    let f = compile(slope);
    for _ in 0..3 {
        assert_eq!(bits(&f.call((&x, &w))?), expected);
    }
    assert!(f.explain().eager.is_none(), "{}", f.explain());
    Ok(())
}

/// Forward, backward and the update of the parameters as one graph.
#[test]
fn a_training_step_is_one_graph() -> Result<()> {
    let start = || Ok::<_, opfuse::Error>((leaf(&[0.5, -0.25], &[2, 1]), leaf(&[0.125], &[1])));
    let step = |w: &Tensor, b: &Tensor, x: &Tensor, y: &Tensor| -> Result<Tensor> {
        let error = x.matmul(w)?.add(b)?.sub(y)?;
        let loss = (&error * &error)?.mean((), false)?;
        loss.backward()?;
        let _quiet = no_grad();
        for parameter in [w, b] {
            let gradient = parameter.grad().ok_or_else(|| opfuse::Error::argument("step", "no gradient"))?;
            parameter.sub_((&gradient * 0.1)?)?;
            parameter.set_grad(None)?;
        }
        loss.detach()
    };
    let x = Tensor::from_slice(&[1.0, 2.0, -1.0, 0.5, 0.25, -2.0], &[3, 2])?;
    let y = Tensor::from_slice(&[1.0, -1.0, 0.5], &[3, 1])?;
    let run = |step: &dyn Fn(&Tensor, &Tensor) -> Result<Tensor>| -> Result<Vec<Vec<u64>>> {
        let (w, b) = start()?;
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push(bits(&step(&w, &b)?));
            seen.extend([bits(&w), bits(&b)]);
            assert!(w.grad().is_none());
        }
        Ok(seen)
    };
    let eager = run(&|w, b| step(w, b, &x, &y))?;
    let f = compile(step);
    let compiled = run(&|w, b| f.call((w, b, &x, &y)))?;
    assert!(f.explain().eager.is_none(), "{}", f.explain());
    assert_eq!(compiled, eager);
    Ok(())
}

// line 130
#[test]
fn a_write_through_a_view_is_traced_as_values() -> Result<()> {
    let x = Tensor::from_slice(&[1.0, 2.0, 3.0, 4.0], &[2, 2])?;
    let function = |x: &[Tensor]| {
        let y = x[0].copy()?;
        y.view([-1])?.mul_(2.0)?;
        Ok(y)
    };
    let (_, captured) = trace(&[x], function, |y| vec![y.clone()])?;
    let graph = captured.map_err(|reason| opfuse::Error::argument("trace", reason.to_string()))?.graph;
    let ops: Vec<&str> = graph.nodes().filter_map(|(_, node)| node.op()).map(|op| op.name()).collect();
    // The view is written back as a row-major copy, which is the value itself here and is simplified away.
    assert_eq!(ops, ["clone", "view", "mul", "clone", "view"], "{graph}");
    Ok(())
}

// line 132
#[test]
fn written_inputs_are_copied_back_once() -> Result<()> {
    let f = compile(|x: &Tensor| {
        let y = (x + 1.0)?;
        y.view([-1])?.mul_(2.0)?;
        x.add_(&y)?;
        x.mul_(2.0)?;
        Ok(y)
    });
    for values_in in [[1.0f64, 2.0, 3.0, 4.0], [0.5, 0.25, 8.0, -1.0]] {
        let x = Tensor::from_slice(&values_in, &[2, 2])?;
        let y = f.call(&x)?;
        let expected_y = values_in.map(|value| (value + 1.0) * 2.0);
        assert_eq!(values(&y), expected_y);
        assert_eq!(values(&x), [0, 1, 2, 3].map(|i| (values_in[i] + expected_y[i]) * 2.0));
    }
    assert!(f.explain().eager.is_none(), "{}", f.explain());
    let whole = Tensor::zeros(&[2, 2], DType::I64)?;
    let g = compile(|x: &Tensor| {
        x.add_(1)?;
        x.clone().mul(3)
    });
    assert_eq!((g.call(&whole)?.to_vec::<i64>()?, whole.to_vec::<i64>()?), (vec![3; 4], vec![1; 4]));
    assert_eq!((g.call(&whole)?.to_vec::<i64>()?, whole.to_vec::<i64>()?), (vec![6; 4], vec![2; 4]));
    Ok(())
}

/// The divisor of a mean follows from the sizes of each call, also in derivatives of any order.
#[test]
fn counts_follow_the_sizes_of_the_call() -> Result<()> {
    let losses: [fn(&Tensor) -> Result<Tensor>; 3] = [
        |x| x.tanh()?.mean((), false),
        |x| x.var([0], 1, false)?.sqrt()?.mean((), false),
        |x| x.layer_norm([x.sizes()[1] as i64], None, None, 1e-5)?.square()?.mul(x)?.mean([1], true)?.sum((), false),
    ];
    let options = GradOptions { create_graph: true, ..GradOptions::default() };
    let slope = |loss: fn(&Tensor) -> Result<Tensor>, x: &Tensor| -> Result<Tensor> {
        Ok(grad(&[&loss(x)?], &[x], &[], options)?.remove(0).expect("x is used"))
    };
    let curve = |loss: fn(&Tensor) -> Result<Tensor>, x: &Tensor| -> Result<Tensor> {
        let slope = slope(loss, x)?;
        let root = slope.mul(&slope)?.sum((), false)?;
        Ok(grad(&[&root], &[x], &[], GradOptions::default())?.remove(0).expect("x is used"))
    };
    for loss in losses {
        let (whole, first) = (compile(loss), compile(|x: &Tensor| slope(loss, x)));
        let second = compile(|x: &Tensor| {
            let x = x.detach()?;
            x.set_requires_grad(true)?;
            curve(loss, &x)
        });
        for rows in [3, 5, 4, 5, 3] {
            let elements: Vec<f64> = (0..rows * 4).map(|i| (i as f64 * 0.37).sin()).collect();
            let x = leaf(&elements, &[rows, 4]);
            let (slope, curve) = (slope(loss, &x)?, curve(loss, &x)?);
            whole.call(&x)?.backward()?;
            assert_eq!(bits(&x.grad().expect("it was asked for")), bits(&slope), "{rows} rows");
            assert_eq!(bits(&first.call(&x)?), bits(&slope), "{rows} rows");
            assert_eq!(bits(&second.call(&x)?), bits(&curve), "{rows} rows");
        }
        for explain in [whole.explain(), first.explain(), second.explain()] {
            assert!(explain.eager.is_none(), "{explain}");
        }
    }
    Ok(())
}
