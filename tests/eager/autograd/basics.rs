//! The tape, for functions without writes.

use super::{gradient, leaf, refused, values};
use opfuse::autograd::{self, GradOptions, backward, enable_grad, grad, gradcheck, inference_mode, no_grad};
use opfuse::{DType, Tensor, compile};

#[test]
fn gradients_flow_to_leaves_and_add_up() -> opfuse::Result<()> {
    let (x, w) = (leaf(&[1.0, 2.0, 3.0], &[3]), leaf(&[2.0], &[1]));
    let y = (&x * &w)?.exp()?.sum((), false)?;
    assert!(y.requires_grad() && !y.is_leaf() && x.is_leaf() && x.grad_fn().is_none());
    y.backward()?;
    let e: Vec<f64> = [1.0f64, 2.0, 3.0].iter().map(|x| (2.0 * x).exp()).collect();
    let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-9 * b.abs());
    assert!(close(&gradient(&x), &e.iter().map(|e| 2.0 * e).collect::<Vec<_>>()));
    assert!(close(&gradient(&w), &[e[0] + 2.0 * e[1] + 3.0 * e[2]]));
    let once = gradient(&x);
    (&x * 1.0)?.sum((), false)?.backward()?;
    assert_eq!(gradient(&x), once.iter().map(|g| g + 1.0).collect::<Vec<_>>());
    x.set_grad(None)?;
    assert!(x.grad().is_none());
    Ok(())
}

// line 123
#[test]
fn grad_mode_nests() -> opfuse::Result<()> {
    let x = leaf(&[1.0], &[1]);
    {
        let _off = no_grad();
        assert!(!autograd::is_grad_enabled() && !(&x * 2.0)?.requires_grad());
        {
            let _on = enable_grad();
            assert!(autograd::is_grad_enabled() && (&x * 2.0)?.requires_grad());
        }
        assert!(!autograd::is_grad_enabled());
    }
    {
        let _inference = inference_mode();
        assert!(!autograd::is_grad_enabled());
    }
    assert!(autograd::is_grad_enabled());
    Ok(())
}

// line 124
#[test]
fn an_impossible_backward_pass_is_refused_with_a_reason() -> opfuse::Result<()> {
    let x = leaf(&[1.0, 2.0], &[2]);
    let y = (&x * &x)?;
    refused(y.backward(), "grad can be implicitly created only for scalar outputs");
    y.backward_with(&Tensor::ones(&[2], DType::F64)?)?;
    refused(y.backward_with(&Tensor::ones(&[2], DType::F64)?), "Trying to backward through the graph a second time");
    refused(Tensor::ones(&[], DType::F64)?.backward(), "does not require grad and does not have a grad_fn");
    let z = (&x * &x)?.sum((), false)?;
    let twice = GradOptions { retain_graph: true, ..GradOptions::default() };
    backward(&[&z], &[], twice)?;
    backward(&[&z], &[], GradOptions::default())?;
    assert_eq!(gradient(&x), [2.0 * 3.0, 4.0 * 3.0]);
    Ok(())
}

/// `backward` frees saved tensors only, so nodes that saved nothing can run again, as those before a loop do.
#[test]
fn calls_that_saved_nothing_run_again() -> opfuse::Result<()> {
    type Call = fn(&Tensor) -> opfuse::Result<Tensor>;
    let linear: [(Call, f64); 11] = [
        (|x| x.t(), 1.0),
        (|x| x.view([4]), 1.0),
        (|x| x.unsqueeze(0)?.expand([3, 2, 2]), 3.0),
        (|x| x.narrow(0, 1, 1), 0.5),
        (|x| x.neg(), -1.0),
        (|x| x * 2.5, 2.5),
        (|x| x + x, 2.0),
        (|x| x.sum((), false), 1.0),
        (|x| opfuse::cat(&[x, x], 1), 2.0),
        (|x| x.to_dtype(DType::F32), 1.0),
        (|x| compile(|x: &Tensor| (x * 2.0)?.t()).call(x), 2.0),
    ];
    for (index, (call, slope)) in linear.into_iter().enumerate() {
        let x = leaf(&[1.0, 2.0, 3.0, 4.0], &[2, 2]);
        let y = call(&x)?;
        for _ in 0..3 {
            y.sum((), false)?.backward()?;
        }
        let sum: f64 = gradient(&x).iter().sum();
        assert_eq!(sum, 3.0 * 4.0 * slope, "call {index}");
    }
    let saving: [Call; 4] = [
        |x| x.exp(),
        |x| x * x,
        |x| compile(|x: &Tensor| x.exp()).call(x),
        |x| {
            let f = compile(|x: &Tensor| x.exp());
            f.call(x)?;
            f.call(x)
        },
    ];
    for call in saving {
        let y = call(&leaf(&[1.0, 2.0], &[2]))?;
        y.sum((), false)?.backward()?;
        refused(y.sum((), false)?.backward(), "Trying to backward through the graph a second time");
    }
    Ok(())
}

/// The same for a compiled function, whose second backward pass is recorded.
#[test]
fn a_compiled_function_that_saved_nothing_runs_again() -> opfuse::Result<()> {
    let f = compile(|x: &Tensor| x * 3.0);
    for call in 0..2 {
        let x = leaf(&[1.0, 2.0], &[2]);
        let y = f.call(&x)?;
        y.sum((), false)?.backward()?;
        let options = GradOptions { create_graph: true, ..GradOptions::default() };
        let weight = leaf(&[5.0], &[1]);
        let first = grad(&[&(&y * &weight)?.sum((), false)?], &[&x], &[], options)?.remove(0).expect("x was used");
        assert!(first.requires_grad(), "call {call}: {:?} {:?}", y.grad_fn(), values(&first));
        first.sum((), false)?.backward()?;
        assert_eq!((values(&first), gradient(&weight)), (vec![15.0; 2], vec![6.0]));
    }
    Ok(())
}

// line 126
#[test]
fn only_floats_require_gradients() -> opfuse::Result<()> {
    let whole = Tensor::from_slice(&[1i64], &[1])?;
    refused(whole.set_requires_grad(true), "only Tensors of floating point dtype can require gradients");
    let y = (&leaf(&[1.0], &[1]) * 2.0)?;
    refused(y.set_requires_grad(false), "you can only change requires_grad flags of leaf variables");
    Ok(())
}

#[test]
fn grad_does_not_touch_leaves() -> opfuse::Result<()> {
    let (x, w, unused) = (leaf(&[3.0], &[1]), leaf(&[5.0], &[1]), leaf(&[1.0], &[1]));
    let y = (&x * &w)?;
    let options = GradOptions { retain_graph: true, ..GradOptions::default() };
    let found = grad(&[&y], &[&w], &[], options)?;
    assert_eq!(found[0].as_ref().map(values), Some(vec![3.0]));
    assert!(x.grad().is_none() && w.grad().is_none());
    refused(grad(&[&y], &[&unused], &[], options), "appears to not have been used in the graph");
    let allowed = GradOptions { allow_unused: true, ..options };
    assert!(grad(&[&y], &[&unused, &x], &[], allowed)?[0].is_none());
    // The gradient of an intermediate value may be requested, too.
    let (inner, x) = ((&x * 2.0)?, x);
    let z = (&inner * &inner)?;
    assert_eq!(
        grad(&[&z], &[&inner, &x], &[], options)?.iter().flatten().map(values).collect::<Vec<_>>(),
        [[12.0], [24.0]]
    );
    Ok(())
}

#[test]
fn higher_derivatives_are_computed() -> opfuse::Result<()> {
    let x = leaf(&[2.0], &[1]);
    let options = GradOptions { create_graph: true, ..GradOptions::default() };
    let mut value = ((&x * &x)? * &x)?;
    let mut seen = Vec::new();
    for _ in 0..3 {
        value = grad(&[&value], &[&x], &[], options)?.remove(0).expect("x was used");
        seen.push(values(&value)[0]);
    }
    assert_eq!(seen, [12.0, 12.0, 6.0]);
    Ok(())
}

#[test]
fn composites_differentiate_through_their_parts() -> opfuse::Result<()> {
    let x = leaf(&(0..12).map(|i| (i as f64 * 0.37).sin()).collect::<Vec<_>>(), &[3, 4]);
    let w = leaf(&(0..8).map(|i| (i as f64 * 0.73).cos()).collect::<Vec<_>>(), &[4, 2]);
    let mlp = |inputs: &[Tensor]| inputs[0].matmul(&inputs[1])?.tanh()?.softmax(1)?.log()?.mean((), false);
    gradcheck(mlp, &[&x, &w], 1e-8, 1e-6)?;
    let norm = |inputs: &[Tensor]| inputs[0].layer_norm([4], None, None, 1e-5)?.transpose(0, 1)?.var([0], 1, false);
    gradcheck(norm, &[&x], 1e-7, 1e-5)
}

#[test]
fn detach_cuts_the_history_and_views_carry_it() -> opfuse::Result<()> {
    let x = leaf(&[1.0, 2.0, 3.0, 4.0], &[2, 2]);
    assert!(!x.detach()?.requires_grad());
    let picked = x.transpose(0, 1)?.select(0, 1)?;
    (&picked * 3.0)?.sum((), false)?.backward()?;
    assert_eq!(gradient(&x), [0.0, 3.0, 0.0, 3.0]);
    Ok(())
}

#[test]
fn a_long_tape_is_dropped_without_deep_recursion() -> opfuse::Result<()> {
    let x = leaf(&[1.0], &[1]);
    let mut y = x.clone();
    for _ in 0..50_000 {
        y = (&y + 0.0)?;
    }
    y.backward()?;
    assert_eq!(gradient(&x), [1.0]);
    Ok(())
}

#[test]
fn a_long_tape_with_saved_values_is_dropped_without_deep_recursion() -> opfuse::Result<()> {
    let x = leaf(&[1.0], &[1]);
    let mut y = x.clone();
    for step in 0..50_000 {
        // Operands are saved with their histories, and results.
        y = if step % 2 == 0 { y.sin()? } else { y.exp()?.mul(&y)? };
    }
    // No backward pass has freed anything.
    drop(y);
    Ok(())
}

#[test]
fn as_strided_counts_offsets_from_the_storage() -> opfuse::Result<()> {
    let window = |x: &Tensor| x.as_strided([2, 2], [1, 1], 3);
    let compiled = compile(window);
    // From element 2 on, the window reads the elements 1, 2, 2 and 3; from element 4 on, the first twice is before it.
    for (start, expected) in [(2, [0.0, 1.0, 2.0, 1.0]), (4, [2.0, 1.0, 0.0, 0.0]), (2, [0.0, 1.0, 2.0, 1.0])] {
        for is_compiled in [false, true] {
            let memory = Tensor::from_slice(&[0.0f64; 8], &[8])?;
            let x = memory.slice(0, start, start + 4, 1)?;
            x.set_requires_grad(true)?;
            let y = if is_compiled { compiled.call(&x)? } else { window(&x)? };
            y.sum((), false)?.backward()?;
            assert_eq!(gradient(&x), expected, "from {start} on, compiled: {is_compiled}");
        }
    }
    let reason = compiled.explain().eager.expect("an input may begin anywhere");
    assert!(reason.to_string().contains("as_strided"), "{reason}");
    Ok(())
}

#[test]
fn a_count_of_elements_is_recorded_but_gives_no_gradient() -> opfuse::Result<()> {
    let x = leaf(&[1.0, 0.0, -2.0], &[3]);
    let count = x.norm(0.0, (), false)?;
    assert_eq!((values(&count), count.requires_grad()), (vec![2.0], true));
    (count + x.sum((), false)?)?.backward()?;
    assert_eq!(gradient(&x), [1.0; 3]);
    let alone =
        grad(&[&x.norm(0.0, (), false)?], &[&x], &[], GradOptions { allow_unused: true, ..GradOptions::default() })?;
    assert!(alone[0].is_none());
    Ok(())
}

#[test]
fn a_std_of_equal_elements_has_zero_derivatives() -> opfuse::Result<()> {
    let x = leaf(&[2.0; 3], &[3]);
    let options = GradOptions { create_graph: true, ..GradOptions::default() };
    let slope = grad(&[&x.std([0], 1, false)?], &[&x], &[], options)?.remove(0).expect("x was used");
    assert_eq!(values(&slope), [0.0; 3]);
    let bend = grad(&[&slope.select(0, 0)?], &[&x], &[], GradOptions::default())?.remove(0).expect("x was used");
    assert_eq!(values(&bend), [0.0; 3]);
    Ok(())
}

#[test]
fn a_norm_of_negative_order_of_a_zero_is_0() -> opfuse::Result<()> {
    for (elements, norm, slopes) in [([4.0, 4.0], 2.0, [0.25, 0.25]), ([4.0, 0.0], 0.0, [0.0, 0.0])] {
        let x = leaf(&elements, &[2]);
        let found = x.norm(-1.0, (), false)?;
        assert_eq!(values(&found), [norm], "{elements:?}");
        found.backward()?;
        assert_eq!(gradient(&x), slopes, "{elements:?}");
    }
    Ok(())
}

#[test]
fn scattered_products_with_zeros_have_gradients() -> opfuse::Result<()> {
    let places = Tensor::from_slice(&[0i64; 3], &[3])?;
    for (factors, slopes) in
        [([2.0, 1.0, 3.0], [15.0, 30.0, 10.0]), ([0.0, 2.0, 3.0], [30.0, 0.0, 0.0]), ([0.0, 0.0, 3.0], [0.0, 0.0, 0.0])]
    {
        let (x, source) = (leaf(&[5.0], &[1]), leaf(&factors, &[3]));
        x.scatter_reduce(0, &places, &source, "prod", true)?.sum((), false)?.backward()?;
        assert_eq!(gradient(&source), slopes, "{factors:?}");
        assert_eq!(gradient(&x), [factors.iter().product::<f64>()], "{factors:?}");
    }
    Ok(())
}

#[test]
fn leaves_own_their_gradients() -> opfuse::Result<()> {
    let (x, y) = (leaf(&[1.0], &[1]), leaf(&[2.0], &[1]));
    let start = Tensor::from_slice(&[3.0], &[1])?;
    (&x + &y)?.backward_with(&start)?;
    let (of_x, of_y) = (x.grad().expect("it arrived"), y.grad().expect("it arrived"));
    assert!(!of_x.is_alias_of(&start) && !of_y.is_alias_of(&start) && !of_x.is_alias_of(&of_y));
    of_x.fill_(7.0)?;
    assert_eq!((gradient(&x), gradient(&y), values(&start)), (vec![7.0], vec![3.0], vec![3.0]));
    Ok(())
}

/// Every holder of a gradient, or of its memory, sees what is added to it.
#[test]
fn gradients_are_added_in_place() -> opfuse::Result<()> {
    let w = leaf(&[1.0, 2.0], &[2]);
    let buffer = Tensor::zeros(&[4], DType::F64)?;
    w.set_grad(Some(&buffer.narrow(0, 0, 2)?))?;
    let held = w.grad().expect("it was set");
    for _ in 0..2 {
        w.sum((), false)?.backward()?;
    }
    assert_eq!((values(&buffer), values(&held)), (vec![2.0, 2.0, 0.0, 0.0], vec![2.0, 2.0]));
    assert!(w.grad().is_some_and(|gradient| gradient.is_same(&held)));
    // A recorded backward pass does not change the old gradient.
    let options = GradOptions { create_graph: true, ..GradOptions::default() };
    backward(&[&(&w * &w)?.sum((), false)?], &[], options)?;
    let sum = w.grad().expect("it arrived");
    assert!(sum.requires_grad() && !sum.is_same(&held));
    assert_eq!((values(&sum), values(&held)), (vec![4.0, 6.0], vec![2.0, 2.0]));
    Ok(())
}

/// A gradient that may be added to later is dense and shares its memory with no other tensor.
#[test]
fn a_first_gradient_has_memory_of_its_own() -> opfuse::Result<()> {
    let (x, y) = (leaf(&[1.0, 2.0], &[2]), leaf(&[3.0, 4.0], &[2]));
    let step = |x: &Tensor, y: &Tensor| -> opfuse::Result<()> {
        (x + y)?.sum((), false)?.backward()?;
        (x * 2.0)?.sum((), false)?.backward()
    };
    step(&x, &y)?;
    assert_eq!((gradient(&x), gradient(&y)), (vec![3.0; 2], vec![1.0; 2]));
    let strides = x.grad().expect("it arrived").strides().to_vec();
    assert_eq!(strides, [1]);
    // The same in a function that is traced.
    let f = compile(move |x: &Tensor, y: &Tensor| {
        step(x, y)?;
        x.detach()
    });
    for calls in 1..4 {
        f.call((&x, &y))?;
        assert_eq!((gradient(&x), gradient(&y)), (vec![3.0 + 3.0 * calls as f64; 2], vec![1.0 + calls as f64; 2]));
    }
    assert!(f.explain().eager.is_none(), "{}", f.explain());
    // A compiled step adds to the gradient that is held.
    let held = x.grad().expect("it is there");
    f.call((&x, &y))?;
    assert_eq!(values(&held), gradient(&x));
    Ok(())
}
