//! Loops and branches of `func`: a plain loop is the oracle, eagerly, compiled, mapped, and for gradients.

mod corners;

use opfuse::autograd::{GradOptions, grad, gradcheck};
use opfuse::compile::{BreakPolicy, CompileOptions, Determinism};
use opfuse::func::{self, cond, fori_loop, jacrev, scan, scan_times, while_loop};
use opfuse::internals::codegen::tier::Tier;
use opfuse::{DType, Error, Result, Tensor, TensorStruct, compile, compile_with, stack, vmap};
use std::sync::atomic::{AtomicUsize, Ordering};

fn ramp(sizes: &[usize], seed: f64) -> Result<Tensor> {
    let n = sizes.iter().product::<usize>();
    let values: Vec<f64> = (0..n).map(|i| ((i as f64 + seed) * 0.73).sin()).collect();
    Tensor::from_slice(&values, sizes)
}

fn bits(x: &Tensor) -> (Vec<usize>, Vec<u64>) {
    let values = x.to_vec::<f64>().expect("f64");
    (x.sizes().to_vec(), values.iter().map(|x| x.to_bits()).collect())
}

fn all_bits(all: &[&Tensor]) -> Vec<(Vec<usize>, Vec<u64>)> {
    all.iter().map(|x| bits(x)).collect()
}

fn assert_close(one: &Tensor, other: &Tensor) {
    assert_eq!(one.sizes(), other.sizes());
    let (one, other) = (one.to_vec::<f64>().expect("f64"), other.to_vec::<f64>().expect("f64"));
    for (a, b) in one.iter().zip(&other) {
        assert!((a - b).abs() <= 1e-11 * (1.0 + b.abs()), "{a} is not {b}: {one:?}, {other:?}");
    }
}

/// A damped oscillator, with a push in each step. It returns its places.
fn step(w: &Tensor, (place, speed): &(Tensor, Tensor), push: &Tensor) -> Result<((Tensor, Tensor), Tensor)> {
    let force = ((place * w)? + (speed * 0.1)?)?;
    let speed = ((speed - (force * 0.01)?)? + push)?;
    let place = (place + (&speed * 0.01)?)?;
    Ok(((place.clone(), speed), place))
}

type Swung = (Tensor, Tensor, Tensor);

fn swing(w: &Tensor, place: &Tensor, pushes: &Tensor) -> Result<Swung> {
    let init = (place.clone(), place.zeros_like()?);
    let ((place, speed), places) = scan(|carry: &(Tensor, Tensor), push: &Tensor| step(w, carry, push), &init, pushes)?;
    Ok((place, speed, places))
}

fn swing_by_hand(w: &Tensor, place: &Tensor, pushes: &Tensor) -> Result<Swung> {
    let mut carry = (place.clone(), place.zeros_like()?);
    let mut places = Vec::new();
    for at in 0..pushes.sizes()[0] {
        let (next, place) = step(w, &carry, &pushes.select(0, at as i64)?)?;
        carry = next;
        places.push(place);
    }
    Ok((carry.0, carry.1, stack(&places.iter().collect::<Vec<_>>(), 0)?))
}

fn energy((place, speed, places): Swung) -> Result<Tensor> {
    (place * speed)?.sum_all()? + places.square()?.sum_all()?
}

/// Arguments of an oscillator that takes so many steps.
fn arguments(n_steps: usize, flows: bool) -> Result<[Tensor; 3]> {
    let all = [ramp(&[5], 1.0)?, ramp(&[5], 9.0)?, ramp(&[n_steps, 5], 3.0)?];
    all.iter().filter(|_| flows).try_for_each(|x| x.set_requires_grad(true))?;
    Ok(all)
}

fn gradients(of: &[Tensor]) -> Vec<Tensor> {
    of.iter().map(|x| x.grad().expect("a gradient flows")).collect()
}

#[test]
fn a_scan_has_the_bits_of_a_plain_loop() -> Result<()> {
    for n_steps in [1, 2, 40] {
        let [w, place, pushes] = arguments(n_steps, false)?;
        let (one, other) = (swing(&w, &place, &pushes)?, swing_by_hand(&w, &place, &pushes)?);
        let expected = all_bits(&[&other.0, &other.1, &other.2]);
        assert_eq!(all_bits(&[&one.0, &one.1, &one.2]), expected, "{n_steps} steps");
        for tier in [None].into_iter().chain(Tier::ALL.map(Some)) {
            let f = compile_with(swing, CompileOptions { tier, ..CompileOptions::default() });
            for call in 0..3 {
                let one = f.call((&w, &place, &pushes))?;
                assert_eq!(all_bits(&[&one.0, &one.1, &one.2]), expected, "{n_steps} steps, {tier:?}, call {call}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_compiled_scan_is_one_call_between_fused_parts() -> Result<()> {
    let n_bodies = AtomicUsize::new(0);
    let f = compile(|w: &Tensor, place: &Tensor, pushes: &Tensor| {
        let (w, init) = (w.exp()?, (place.sin()?, place.zeros_like()?));
        let body = |carry: &(Tensor, Tensor), push: &Tensor| {
            n_bodies.fetch_add(1, Ordering::Relaxed);
            step(&w, carry, push)
        };
        let ((place, speed), places) = scan(body, &init, pushes)?;
        ((place * speed)?.tanh()? + places.sum([0], false)?)?.relu()
    });
    let by_hand = |w: &Tensor, place: &Tensor, pushes: &Tensor| {
        let (place, speed, places) = swing_by_hand(&w.exp()?, &place.sin()?, pushes)?;
        ((place * speed)?.tanh()? + places.sum([0], false)?)?.relu()
    };
    // Other lengths are other types.
    for n_steps in [3, 1000, 2, 3] {
        let [w, place, pushes] = arguments(n_steps, false)?;
        for _ in 0..2 {
            let found = f.call((&w, &place, &pushes))?;
            assert_eq!(bits(&found), bits(&by_hand(&w, &place, &pushes)?), "{n_steps} steps");
        }
        assert_eq!(f.explain().calls.len(), 1, "{}", f.explain());
    }
    assert!(n_bodies.load(Ordering::Relaxed) < 20, "the body is traced, and not run");
    Ok(())
}

#[test]
fn gradients_flow_to_carry_slices_and_captured_tensors() -> Result<()> {
    for n_steps in [1, 2, 7] {
        let by_hand = arguments(n_steps, true)?;
        energy(swing_by_hand(&by_hand[0], &by_hand[1], &by_hand[2])?)?.backward()?;
        let eager = arguments(n_steps, true)?;
        energy(swing(&eager[0], &eager[1], &eager[2])?)?.backward()?;
        let eager = gradients(&eager);
        eager.iter().zip(&gradients(&by_hand)).for_each(|(one, other)| assert_close(one, other));
        // Compiled, they have the bits of the eager call, in the backward pass of a program and in a training step.
        let f = compile(|w: &Tensor, place: &Tensor, pushes: &Tensor| energy(swing(w, place, pushes)?));
        let [w, place, pushes] = arguments(n_steps, true)?;
        for _ in 0..3 {
            f.call((&w, &place, &pushes))?.backward()?;
            let found = gradients(&[w.clone(), place.clone(), pushes.clone()]);
            found.iter().zip(&eager).for_each(|(one, other)| assert_eq!(bits(one), bits(other)));
            [&w, &place, &pushes].into_iter().try_for_each(|x| x.set_grad(None))?;
        }
        let explain = f.explain();
        assert_eq!((explain.calls.len(), explain.backward.map(|backward| backward.calls.len())), (1, Some(1)));
        let slopes = |w: &Tensor, place: &Tensor, pushes: &Tensor| {
            let found = grad(&[&energy(swing(w, place, pushes)?)?], &[w, place, pushes], &[], GradOptions::default())?;
            Ok(found.into_iter().flatten().collect::<Vec<Tensor>>())
        };
        let f = compile(slopes);
        for _ in 0..3 {
            let found = f.call((&w, &place, &pushes))?;
            found.iter().zip(&eager).for_each(|(one, other)| assert_eq!(bits(one), bits(other)));
        }
    }
    Ok(())
}

#[test]
fn gradients_agree_with_differences() -> Result<()> {
    let inputs = arguments(4, false)?;
    gradcheck(|x| energy(swing(&x[0], &x[1], &x[2])?), &inputs.each_ref(), 1e-7, 1e-5)?;
    // One part is used after the loop alone, another by the loop alone.
    let only = |x: &[Tensor]| {
        let (_, ys) = scan(|c: &Tensor, x: &Tensor| Ok((c.tanh()?, (c * x)?)), &x[0], &x[1])?;
        ys.sum_all()? + x[0].square()?.sum_all()?
    };
    gradcheck(only, &[&ramp(&[3], 2.0)?, &ramp(&[4, 3], 5.0)?], 1e-7, 1e-5)?;
    let branch = |x: &[Tensor]| {
        let y = cond(&x[0].sum_all()?.gt(0.0)?, |y: &Tensor| y * &x[0], |y: &Tensor| y.sin()? * &x[1], &x[1])?;
        y.square()?.sum_all()
    };
    for sign in [-1.0, 1.0] {
        gradcheck(branch, &[&ramp(&[3], 2.0)?.abs()?.mul(sign)?, &ramp(&[3], 5.0)?], 1e-7, 1e-5)?;
    }
    let longer = |x: &[Tensor]| {
        while_loop(|y: &Tensor| y.abs()?.sum_all()?.lt(9.0), |y: &Tensor| y * &x[1], &x[0], 50)?.square()?.sum_all()
    };
    gradcheck(longer, &[&ramp(&[3], 2.0)?, &ramp(&[3], 5.0)?.abs()?.add(1.5)?], 1e-7, 1e-5)
}

#[test]
fn gradients_are_differentiated_again() -> Result<()> {
    let norm = |f: fn(&Tensor, &Tensor, &Tensor) -> Result<Swung>| {
        let [w, place, pushes] = arguments(3, true)?;
        let options = GradOptions { create_graph: true, ..GradOptions::default() };
        let slopes = grad(&[&energy(f(&w, &place, &pushes)?)?], &[&w, &place, &pushes], &[], options)?;
        let squares = slopes.iter().flatten().map(|slope| slope.square()?.sum_all()).collect::<Result<Vec<_>>>()?;
        (&(&squares[0] + &squares[1])? + &squares[2])?.backward()?;
        Ok::<_, Error>(gradients(&[w, place, pushes]))
    };
    norm(swing)?.iter().zip(&norm(swing_by_hand)?).for_each(|(one, other)| assert_close(one, other));
    let hessian = |f: fn(&Tensor, &Tensor, &Tensor) -> Result<Swung>| {
        let energy = move |w: &Tensor, place: &Tensor, pushes: &Tensor| energy(f(w, place, pushes)?);
        let [w, place, pushes] = arguments(3, false)?;
        let of = func::hessian(energy);
        Ok::<_, Error>((of.call((&w, &place, &pushes))?, compile(of).call((&w, &place, &pushes))?))
    };
    let ((eager, compiled), (expected, _)) = (hessian(swing)?, hessian(swing_by_hand)?);
    assert_close(&eager, &expected);
    assert_close(&compiled, &expected);
    for sign in [1.0, -1.0] {
        let w = ramp(&[3], 1.0)?;
        let branch = |x: &Tensor| {
            cond(&x.sum_all()?.gt(0.0)?, |x: &Tensor| x.exp()? * &w, |x: &Tensor| x.pow(3.0), x)?.sum_all()
        };
        let x = ramp(&[3], 1.0)?.abs()?.mul(sign)?;
        let slope = if sign > 0.0 { (x.exp()? * &w)? } else { x.mul(6.0)? };
        assert_close(&func::hessian(branch).call(&x)?.diagonal(0, 0, 1)?, &slope);
    }
    // A detached value is a constant for both gradients.
    let detached = |x: &Tensor| -> Result<Tensor> {
        let (last, ()) = scan_times(|c: &Tensor| (c.sin()? * (c * c.detach()?)?).map(|c| (c, ())), x, 2)?;
        last.sum_all()
    };
    let by_hand = |x: &Tensor| {
        let once = |c: &Tensor| c.sin()? * (c * c.detach()?)?;
        once(&once(x)?)?.sum_all()
    };
    let x = ramp(&[3], 1.0)?;
    assert_close(&func::grad(detached).call(&x)?, &func::grad(by_hand).call(&x)?);
    assert_close(&func::hessian(detached).call(&x)?, &func::hessian(by_hand).call(&x)?);
    // An inner loop is one call, whose gradient is not known a second time.
    let energy = |w: &Tensor, x: &Tensor| nested(w, x)?.1.sum_all();
    let again = func::hessian(energy).call((&x, &x));
    assert!(matches!(&again, Err(Error::NotImplemented { op, .. }) if op == "scan_times"), "{again:?}");
    Ok(())
}

/// A carry of several kinds.
#[derive(TensorStruct)]
struct Count {
    sum: Tensor,
    n: Tensor,
    weights: Vec<Tensor>,
}

#[test]
fn carries_are_structures_with_whole_numbers_and_numbers() -> Result<()> {
    let count = |init: &Tensor, xs: &Tensor| {
        let first = Count { sum: Tensor::number(0.0)?, n: Tensor::scalar(0i64)?, weights: vec![init.clone()] };
        let (last, _): (Count, ()) = scan(
            |carry: &Count, x: &Tensor| {
                let sum = (&carry.sum + x.sum_all()?)?;
                let weights = vec![(&carry.weights[0] * x)?.add(carry.n.to_dtype(DType::F64)?)?];
                Ok((Count { sum, n: carry.n.add(1)?, weights }, ()))
            },
            &first,
            xs,
        )?;
        Ok((last.sum, last.n, last.weights[0].clone()))
    };
    let (init, xs) = (ramp(&[3], 1.0)?, ramp(&[6, 3], 4.0)?);
    let (mut sum, mut weight) = (0.0, init.clone());
    for at in 0..6 {
        let x = xs.select(0, at)?;
        sum += x.sum_all()?.item::<f64>()?;
        weight = (weight * x)?.add(at as f64)?;
    }
    let f = compile(count);
    for (found, n, found_weight) in [count(&init, &xs)?, f.call((&init, &xs))?, f.call((&init, &xs))?] {
        assert_eq!((found.item::<f64>()?, n.item::<i64>()?, bits(&found_weight)), (sum, 6, bits(&weight)));
    }
    Ok(())
}

#[test]
fn no_steps_return_the_carry_and_empty_results() -> Result<()> {
    let [w, place, pushes] = arguments(0, true)?;
    let f = compile(swing);
    for (last, speed, places) in [swing(&w, &place, &pushes)?, f.call((&w, &place, &pushes))?] {
        assert_eq!((bits(&last), places.sizes()), (bits(&place), &[0, 5][..]));
        assert_eq!(bits(&speed), bits(&place.zeros_like()?));
        last.sum_all()?.backward()?;
        assert_eq!(place.grad().map(|slope| bits(&slope)), Some(bits(&place.ones_like()?)));
        place.set_grad(None)?;
    }
    assert_eq!(fori_loop(5..5, |i: &Tensor, x: &Tensor| x * i, &Tensor::scalar(4i64)?)?.item::<i64>()?, 4);
    Ok(())
}

#[test]
fn results_share_no_memory_with_arguments() -> Result<()> {
    let f = |x: &Tensor| {
        let (last, ys): (_, Tensor) =
            scan_times(|c: &(Tensor, Tensor)| Ok((c.clone(), x.clone())), &(x.clone(), x.clone()), 2)?;
        Ok((last.0, last.1, ys))
    };
    let x = ramp(&[4], 1.0)?;
    for (one, other, ys) in [f(&x)?, compile(f).call(&x)?] {
        one.zero_()?;
        assert_eq!((bits(&other), bits(&ys.select(0, 1)?)), (bits(&x), bits(&x)));
    }
    assert_eq!(bits(&x), bits(&ramp(&[4], 1.0)?));
    Ok(())
}

/// An inner loop in each step of an outer one.
fn nested(w: &Tensor, x: &Tensor) -> Result<(Tensor, Tensor)> {
    let outer = |c: &Tensor| {
        let inner = fori_loop(1..4, |i: &Tensor, c: &Tensor| (c * w)?.add(i), &c.mul(0.5)?)?;
        let inner = cond(&inner.sum_all()?.gt(10.0)?, |y: &Tensor| y.sqrt(), |y: &Tensor| y * w, &inner)?;
        Ok((inner.sin()?, inner))
    };
    scan_times(outer, x, 5)
}

fn nested_by_hand(w: &Tensor, x: &Tensor) -> Result<(Tensor, Tensor)> {
    let (mut carry, mut ys) = (x.clone(), Vec::new());
    for _ in 0..5 {
        let mut inner = carry.mul(0.5)?;
        for i in 1..4 {
            inner = (inner * w)?.add(i as f64)?;
        }
        let inner = if inner.sum_all()?.item::<f64>()? > 10.0 { inner.sqrt()? } else { (inner * w)? };
        carry = inner.sin()?;
        ys.push(inner);
    }
    Ok((carry, stack(&ys.iter().collect::<Vec<_>>(), 0)?))
}

type Pair<'a> = &'a dyn Fn(&Tensor, &Tensor) -> Result<(Tensor, Tensor)>;

#[test]
fn loops_and_branches_nest() -> Result<()> {
    let (w, x) = (ramp(&[4], 1.0)?.abs()?, ramp(&[4], 3.0)?.abs()?);
    let expected = nested_by_hand(&w, &x)?;
    let f = compile(nested);
    for (last, ys) in [nested(&w, &x)?, f.call((&w, &x))?, f.call((&w, &x))?] {
        assert_eq!(all_bits(&[&last, &ys]), all_bits(&[&expected.0, &expected.1]));
    }
    assert_eq!(f.explain().calls.len(), 1, "{}", f.explain());
    let slopes = |f: Pair<'_>| {
        let (w, x) = (w.detach()?.copy()?, x.detach()?.copy()?);
        w.set_requires_grad(true)?;
        x.set_requires_grad(true)?;
        let (last, ys) = f(&w, &x)?;
        (last.sum_all()? + ys.square()?.sum_all()?)?.backward()?;
        Ok::<_, Error>(gradients(&[w, x]))
    };
    let (by_hand, eager) = (slopes(&nested_by_hand)?, slopes(&nested)?);
    let compiled = slopes(&|w, x| f.call((w, x)))?;
    for at in 0..2 {
        assert_close(&eager[at], &by_hand[at]);
        assert_eq!(bits(&compiled[at]), bits(&eager[at]));
    }
    Ok(())
}

#[test]
fn branches_are_taken_by_value_in_one_program() -> Result<()> {
    let w = ramp(&[3], 8.0)?;
    let f = |x: &Tensor| {
        let y = x.mul(2.0)?;
        cond(&y.sum_all()?.gt(0.0)?, |y: &Tensor| (y * &w)?.exp(), |y: &Tensor| y.neg(), &y)?.add(1.0)
    };
    let by_hand = |x: &Tensor| -> Result<Tensor> {
        let y = x.mul(2.0)?;
        if y.sum_all()?.item::<f64>()? > 0.0 { (y * &w)?.exp()?.add(1.0) } else { y.neg()?.add(1.0) }
    };
    let g = compile(f);
    for sign in [1.0, -1.0, 1.0, 1.0, -1.0] {
        let x = ramp(&[3], 1.0)?.abs()?.mul(sign)?;
        let expected = bits(&by_hand(&x)?);
        assert_eq!((bits(&f(&x)?), bits(&g.call(&x)?)), (expected.clone(), expected));
    }
    assert_eq!((g.explain().calls.len(), g.captures().len()), (1, 1));
    // The branch that is not taken has zeros as gradients.
    w.set_requires_grad(true)?;
    for (sign, is_zero) in [(1.0, false), (-1.0, true)] {
        let mut found = Vec::new();
        for compiled in [false, true] {
            let x = ramp(&[3], 1.0)?.abs()?.mul(sign)?;
            x.set_requires_grad(true)?;
            let y = if compiled { g.call(&x)? } else { f(&x)? };
            y.sum_all()?.backward()?;
            found.push(all_bits(&[&gradients(&[x])[0], &gradients(std::slice::from_ref(&w))[0]]));
            assert_eq!(w.grad().map(|slope| slope.abs()?.sum_all()?.item::<f64>()).transpose()? == Some(0.0), is_zero);
            w.set_grad(None)?;
        }
        assert_eq!(found[0], found[1]);
    }
    let other = cond(&Tensor::scalar(true)?, |x: &Tensor| x.sum_all(), |x: &Tensor| x.neg(), &w);
    let message = other.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(message.contains("cond") && message.contains("f64[3]") && message.contains("f64[]"), "{message}");
    Ok(())
}

#[test]
fn while_loops_end_by_their_condition_or_limit() -> Result<()> {
    let grow = |x: &Tensor| {
        let small = |(x, _): &(Tensor, Tensor)| x.sum_all()?.lt(1000.0);
        let body = |(x, n): &(Tensor, Tensor)| Ok(((x * 1.5)?, n.add(1)?));
        while_loop(small, body, &(x.abs()?, Tensor::scalar(0i64)?), 30)
    };
    let f = compile(grow);
    for scale in [1.0, 100.0, 1e4, 1.0] {
        let x = ramp(&[3], 1.0)?.mul(scale)?;
        let (mut by_hand, mut n) = (x.abs()?, 0);
        while by_hand.sum_all()?.item::<f64>()? < 1000.0 {
            (by_hand, n) = ((by_hand * 1.5)?, n + 1);
        }
        for (found, steps) in [grow(&x)?, f.call(&x)?] {
            assert_eq!((bits(&found), steps.item::<i64>()?), (bits(&by_hand), n));
        }
    }
    assert_eq!((f.explain().calls.len(), f.captures().len()), (1, 1));
    let tiny = Tensor::zeros(&[3], DType::F64)?;
    for message in [grow(&tiny).err(), f.call(&tiny).err()] {
        let message = message.map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains("while_loop") && message.contains("step 30"), "{message}");
    }
    let no_bool = while_loop(|x: &Tensor| Ok(x.clone()), |x: &Tensor| Ok(x.clone()), &tiny, None);
    assert!(no_bool.is_err_and(|error| error.to_string().contains("f64[3]")));
    Ok(())
}

#[test]
fn a_carry_that_changes_its_type_is_an_error_that_says_how() -> Result<()> {
    let x = ramp(&[2], 1.0)?;
    let message = |result: Result<()>| result.err().map(|error| error.to_string()).unwrap_or_default();
    let longer = message(scan_times(|c: &Tensor| Ok((opfuse::cat(&[c, c], 0)?, ())), &x, 3).map(|_: (Tensor, ())| ()));
    assert!(["scan_times", "step 0", "f64[2]", "f64[4]"].iter().all(|part| longer.contains(part)), "{longer}");
    let narrower = message(fori_loop(0..3, |_: &Tensor, c: &Tensor| c.to_dtype(DType::F32), &x).map(|_| ()));
    assert!(["fori_loop", "step 0", "f64[2]", "f32[2]"].iter().all(|part| narrower.contains(part)), "{narrower}");
    let fewer = |c: &Vec<Tensor>| Ok((c[1..].to_vec(), ()));
    let fewer = message(scan_times(fewer, &vec![x.clone(), x.clone()], 3).map(|_: (_, ())| ()));
    assert!(fewer.contains("1 tensors where there were 2"), "{fewer}");
    let later = message(
        fori_loop(0..3, |i: &Tensor, c: &Tensor| if i.item::<i64>()? == 2 { c.sum_all() } else { Ok(c.clone()) }, &x)
            .map(|_| ()),
    );
    assert!(["fori_loop", "step 2", "f64[]"].iter().all(|part| later.contains(part)), "{later}");
    let apart = message(
        scan(|c: &Tensor, _: &(Tensor, Tensor)| Ok((c.clone(), ())), &x, &(x.clone(), ramp(&[3], 1.0)?))
            .map(|_: (Tensor, ())| ()),
    );
    assert!(apart.contains("f64[2], f64[3]"), "{apart}");
    let out_of_range = |c: &Tensor, i: &Tensor| Ok((c.clone(), c.index_select(0, &i.reshape([1])?)?));
    let far = Tensor::from_slice(&[0i64, 1, 9], &[3])?;
    let far = message(scan(out_of_range, &x, &far).map(|_: (Tensor, Tensor)| ()));
    assert!(far.contains("step 2 of scan"), "{far}");
    Ok(())
}

#[test]
fn a_body_that_does_more_runs_step_by_step() -> Result<()> {
    let reads = |x: &Tensor| {
        fori_loop(0..4, |i: &Tensor, c: &Tensor| if i.item::<i64>()? % 2 == 0 { c.add(1.0) } else { c.mul(2.0) }, x)
    };
    let x = ramp(&[3], 1.0)?;
    let expected = x.add(1.0)?.mul(2.0)?.add(1.0)?.mul(2.0)?;
    let f = compile(reads);
    for found in [reads(&x)?, f.call(&x)?, f.call(&x)?] {
        assert_eq!(bits(&found), bits(&expected));
    }
    let total = Tensor::zeros(&[3], DType::F64)?;
    let writes = |x: &Tensor| {
        let step = |_: &Tensor, c: &Tensor| {
            total.add_(c)?;
            c.mul(2.0)
        };
        fori_loop(0..3, step, x)
    };
    writes(&x)?;
    assert_close(&total, &x.mul(7.0)?);
    compile(writes).call(&x)?;
    assert_close(&total, &x.mul(14.0)?);
    // Each step draws other numbers.
    let (_, noise) = scan_times(|c: &Tensor| Ok((c.clone(), c.rand_like()?)), &x, 2)?;
    assert_ne!(bits(&noise.select(0, 0)?), bits(&noise.select(0, 1)?));
    let draws = compile(|x: &Tensor| Ok(scan_times(|c: &Tensor| Ok((c.clone(), c.rand_like()?)), x, 2)?.1));
    let (one, other) = (draws.call(&x)?, draws.call(&x)?);
    let rows = [one.select(0, 0)?, one.select(0, 1)?, other.select(0, 0)?, other.select(0, 1)?];
    let different: std::collections::HashSet<_> = rows.iter().map(bits).collect();
    assert_eq!(different.len(), 4);
    Ok(())
}

#[test]
fn gradients_of_while_loops_say_what_to_use_instead() -> Result<()> {
    let loss = |x: &Tensor| while_loop(|y: &Tensor| y.sum_all()?.lt(9.0), |y: &Tensor| y * x, x, 50)?.sum_all();
    let x = ramp(&[3], 2.0)?.abs()?.add(1.5)?;
    let slope = func::grad(loss).call(&x)?;
    let f = compile(move |x: &Tensor| func::grad(loss).call(x));
    assert_eq!(bits(&f.call(&x)?), bits(&slope));
    let breaks = f.breaks();
    let is_it = |reason: &opfuse::Reason| reason.to_string().contains("gradients flow through while_loop");
    assert!(breaks.iter().any(|one| is_it(&one.reason) && one.reason.hint().contains("`fori_loop`")), "{breaks:?}");
    let options = CompileOptions { breaks: BreakPolicy::Error, ..CompileOptions::default() };
    let refused = compile_with(move |x: &Tensor| func::grad(loss).call(x), options).call(&x);
    let refused = refused.expect_err("it breaks").to_string();
    assert!(refused.contains("while_loop") && refused.contains("`fori_loop` or `scan`"), "{refused}");
    Ok(())
}

#[test]
fn mapped_scans_are_scans_of_each_slice() -> Result<()> {
    let (ws, places) = (ramp(&[4, 5], 1.0)?, ramp(&[4, 5], 7.0)?);
    let (pushes, shared) = (ramp(&[4, 3, 5], 2.0)?, ramp(&[3, 5], 6.0)?);
    let row = |x: &Tensor, at: i64| x.select(0, at);
    let by_slices = |f: &dyn Fn(i64) -> Result<Swung>| {
        let all = (0..4).map(f).collect::<Result<Vec<_>>>()?;
        let joined = |part: &dyn Fn(&Swung) -> Tensor| {
            let parts: Vec<Tensor> = all.iter().map(part).collect();
            stack(&parts.iter().collect::<Vec<_>>(), 0)
        };
        Ok::<_, Error>([joined(&|x| x.0.clone())?, joined(&|x| x.1.clone())?, joined(&|x| x.2.clone())?])
    };
    let check = |found: Swung, expected: &[Tensor; 3]| {
        assert_eq!(all_bits(&[&found.0, &found.1, &found.2]), all_bits(&expected.each_ref()));
    };
    // All are mapped; slices are shared; the captured tensor alone is mapped.
    let expected = by_slices(&|at| swing(&row(&ws, at)?, &row(&places, at)?, &row(&pushes, at)?))?;
    check(vmap(swing).call((&ws, &places, &pushes))?, &expected);
    let f = compile(vmap(swing));
    for _ in 0..2 {
        check(f.call((&ws, &places, &pushes))?, &expected);
    }
    assert_eq!(f.explain().calls.len(), 1, "{}", f.explain());
    let expected = by_slices(&|at| swing(&row(&ws, at)?, &row(&places, at)?, &shared))?;
    check(vmap(swing).in_dims([Some(0), Some(0), None]).call((&ws, &places, &shared))?, &expected);
    let expected = by_slices(&|at| swing(&row(&ws, at)?, &row(&places, 0)?, &shared))?;
    check(vmap(swing).in_dims([Some(0), None, None]).call((&ws, &row(&places, 0)?, &shared))?, &expected);
    // Gradients outside and inside.
    let loss = |w: &Tensor, place: &Tensor, pushes: &Tensor| energy(swing(w, place, pushes)?);
    let each = (0..4).map(|at| func::grad(loss).call((&row(&ws, at)?, &row(&places, at)?, &row(&pushes, at)?)));
    let each = each.collect::<Result<Vec<_>>>()?;
    let expected = stack(&each.iter().collect::<Vec<_>>(), 0)?;
    assert_close(&vmap(func::grad(loss)).call((&ws, &places, &pushes))?, &expected);
    let total = |w: &Tensor, place: &Tensor, pushes: &Tensor| vmap(loss).call((w, place, pushes))?.sum_all();
    assert_close(&func::grad(total).call((&ws, &places, &pushes))?, &expected);
    // A mapped backward pass.
    let (w, place) = (row(&ws, 0)?, row(&places, 0)?);
    let jacobian = |f: fn(&Tensor, &Tensor, &Tensor) -> Result<Swung>| {
        jacrev(move |w: &Tensor, place: &Tensor, pushes: &Tensor| Ok(f(w, place, pushes)?.2))
            .call((&w, &place, &shared))
    };
    assert_close(&jacobian(swing)?, &jacobian(swing_by_hand)?);
    Ok(())
}

#[test]
fn mapped_predicates_choose_by_slice() -> Result<()> {
    let f = |x: &Tensor| cond(&x.sum_all()?.gt(0.0)?, |x: &Tensor| x.exp(), |x: &Tensor| x.neg(), x);
    let x = ramp(&[6, 3], 1.0)?;
    let each = (0..6).map(|at| f(&x.select(0, at)?)).collect::<Result<Vec<_>>>()?;
    assert_eq!(bits(&vmap(f).call(&x)?), bits(&stack(&each.iter().collect::<Vec<_>>(), 0)?));
    let shared = Tensor::scalar(false)?;
    let g = |x: &Tensor| cond(&shared, |x: &Tensor| x.exp(), |x: &Tensor| x.neg(), x);
    assert_eq!(bits(&vmap(g).call(&x)?), bits(&x.neg()?));
    Ok(())
}

#[test]
fn a_checked_function_with_a_loop_stays_compiled() -> Result<()> {
    let options = CompileOptions { determinism: Determinism::Checked, ..CompileOptions::default() };
    let f = compile_with(|w: &Tensor, x: &Tensor, xs: &Tensor| energy(swing(w, x, xs)?), options);
    let [w, place, pushes] = arguments(3, true)?;
    for _ in 0..3 {
        f.call((&w, &place, &pushes))?.backward()?;
    }
    assert_eq!(f.explain().calls.len(), 1, "{}", f.explain());
    Ok(())
}
