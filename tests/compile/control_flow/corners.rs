//! Odd sizes, dtypes and modes of loops, and what happens around them.

use super::{all_bits, arguments, assert_close, bits, energy, gradients, ramp, swing, swing_by_hand};
use opfuse::autograd::{GradOptions, grad, inference_mode, no_grad};
use opfuse::compile::{CompileOptions, Stance};
use opfuse::func::{cond, fori_loop, scan, scan_times, while_loop};
use opfuse::{DType, Error, Result, Tensor, TensorStruct, autocast, compile, compile_with, stack};

#[test]
fn layouts_and_dtypes_of_operands_do_not_matter() -> Result<()> {
    let dense = [ramp(&[4, 6], 1.0)?, ramp(&[5, 4, 6], 2.0)?, ramp(&[6], 3.0)?];
    let others = [
        dense[0].t()?.contiguous()?.t()?,
        dense[1].permute([2, 0, 1])?.contiguous()?.permute([1, 2, 0])?,
        ramp(&[12], 3.0)?,
    ];
    let sums = |init: &Tensor, xs: &Tensor, w: &Tensor| {
        scan(|c: &Tensor, x: &Tensor| Ok((((c * 0.5)? + x)?.mul(w)?, c.t()?)), init, xs)
    };
    let by_hand = |init: &Tensor, xs: &Tensor, w: &Tensor| -> Result<(Tensor, Tensor)> {
        let (mut c, mut ys) = (init.clone(), Vec::new());
        for at in 0..xs.sizes()[0] {
            ys.push(c.t()?);
            c = ((&c * 0.5)? + xs.select(0, at as i64)?)?.mul(w)?;
        }
        Ok((c, stack(&ys.iter().collect::<Vec<_>>(), 0)?))
    };
    let f = compile(sums);
    for dtype in [DType::F64, DType::F32, DType::BF16] {
        for [init, xs, w] in [&dense, &others] {
            // Of the second kind, the carry is expanded and the captured tensor is a slice.
            let init = if init.is_contiguous() { init.clone() } else { init.narrow(0, 0, 1)?.expand([4, 6])? };
            let all = [&init, xs, &w.narrow(0, 0, 6)?].map(|x| x.to_dtype(dtype));
            let [init, xs, w] = all;
            let (init, xs, w) = (init?, xs?, w?);
            let expected = by_hand(&init, &xs, &w)?;
            for found in [sums(&init, &xs, &w)?, f.call((&init, &xs, &w))?, f.call((&init, &xs, &w))?] {
                assert_eq!(found.0.dtype(), dtype);
                let wide = |x: &Tensor| x.to_dtype(DType::F64).map(|x| bits(&x));
                assert_eq!((wide(&found.0)?, wide(&found.1)?), (wide(&expected.0)?, wide(&expected.1)?));
            }
        }
    }
    let nothing = Tensor::zeros(&[3, 0], DType::F64)?;
    let (last, ys) = scan(|c: &Tensor, x: &Tensor| Ok(((c + x)?, x.sum_all()?)), &ramp(&[0], 1.0)?, &nothing)?;
    assert_eq!((last.sizes(), bits(&ys)), (&[0][..], bits(&Tensor::zeros(&[3], DType::F64)?)));
    let nan = fori_loop(0..3, |_: &Tensor, c: &Tensor| c.sqrt(), &Tensor::try_from([-1.0, 16.0])?)?;
    assert!(nan.to_vec::<f64>()?[0].is_nan() && nan.to_vec::<f64>()?[1] > 1.0);
    Ok(())
}

#[test]
fn modes_are_those_of_the_call() -> Result<()> {
    let [w, place, pushes] = arguments(3, true)?;
    let eager = swing(&w, &place, &pushes)?;
    assert!(eager.0.requires_grad() && eager.2.requires_grad());
    {
        let _unrecorded = no_grad();
        let found = swing(&w, &place, &pushes)?;
        assert!(!found.0.requires_grad());
        assert_eq!(bits(&found.2), bits(&eager.2));
    }
    {
        let _inference = inference_mode();
        let found = swing(&w, &place, &pushes)?;
        assert!(found.0.is_inference() && found.2.is_inference());
        assert_eq!(bits(&found.2), bits(&eager.2));
        let found = compile(swing).call((&w, &place, &pushes))?;
        assert!(found.0.is_inference() && found.2.is_inference());
    }
    let (a, x) = (ramp(&[4, 4], 1.0)?.to_dtype(DType::F32)?, ramp(&[4], 2.0)?.to_dtype(DType::F32)?);
    let step = |_: &Tensor, c: &Tensor| a.matmul(c)?.to_dtype(DType::F32);
    let _half = autocast(DType::BF16)?;
    let by_hand = step(&x, &step(&x, &x)?)?;
    assert_eq!(fori_loop(0..2, step, &x)?.to_vec::<f32>()?, by_hand.to_vec::<f32>()?);
    Ok(())
}

/// Gradients of three results that are not all used.
#[test]
fn results_without_a_gradient_are_as_in_an_eager_call() -> Result<()> {
    let f = compile(swing);
    let uses: [fn(&super::Swung) -> Result<Tensor>; 4] = [
        |all| all.0.sum_all(),
        |all| all.2.square()?.sum_all(),
        |all| (&all.1 * &all.0)?.sum_all(),
        |all| all.1.sum_all()? + all.2.sum_all()?,
    ];
    for (at, used) in uses.iter().enumerate() {
        let mut found = Vec::new();
        for is_compiled in [false, true, true] {
            let [w, place, pushes] = arguments(4, true)?;
            let all = if is_compiled { f.call((&w, &place, &pushes))? } else { swing(&w, &place, &pushes)? };
            used(&all)?.backward()?;
            let slopes = gradients(&[w, place, pushes]);
            found.push(all_bits(&slopes.iter().collect::<Vec<_>>()));
        }
        assert_eq!((&found[1], &found[2]), (&found[0], &found[0]), "use {at}");
    }
    Ok(())
}

#[test]
fn a_compiled_loop_is_differentiated_again() -> Result<()> {
    let squares = |f: &dyn Fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>| {
        let [w, place, pushes] = arguments(3, true)?;
        let options = GradOptions { create_graph: true, ..GradOptions::default() };
        let slopes = grad(&[&f(&w, &place, &pushes)?], &[&w, &place], &[], options)?;
        let total = slopes.iter().flatten().map(|slope| slope.square()?.sum_all()).collect::<Result<Vec<_>>>()?;
        (&total[0] + &total[1])?.backward()?;
        Ok::<_, Error>(gradients(&[w, place, pushes]))
    };
    let f = compile(|w: &Tensor, place: &Tensor, pushes: &Tensor| energy(swing(w, place, pushes)?));
    let expected = squares(&|w, place, pushes| energy(swing_by_hand(w, place, pushes)?))?;
    for _ in 0..2 {
        let found = squares(&|w, place, pushes| f.call((w, place, pushes)))?;
        found.iter().zip(&expected).for_each(|(one, other)| assert_close(one, other));
    }
    Ok(())
}

#[test]
fn gradients_add_up_and_saved_values_are_freed_once() -> Result<()> {
    let f = compile(|w: &Tensor, place: &Tensor, pushes: &Tensor| energy(swing(w, place, pushes)?));
    let mut found = Vec::new();
    for is_compiled in [false, true] {
        let [w, place, pushes] = arguments(3, true)?;
        let once = |w: &Tensor| match is_compiled {
            true => f.call((w, &place, &pushes)),
            false => energy(swing(w, &place, &pushes)?),
        };
        // The captured tensor has contributions from before, from two loops, and from after.
        let total = (((w.sum_all()? + once(&w)?)? + once(&w.mul(0.5)?)?)? + w.square()?.sum_all()?)?;
        total.backward()?;
        let again = total.backward();
        assert!(again.is_err_and(|error| error.to_string().contains("retain_graph")));
        found.push(all_bits(&gradients(&[w, place, pushes]).iter().collect::<Vec<_>>()));
    }
    assert_eq!(found[0], found[1]);
    Ok(())
}

#[test]
fn only_what_requires_gradients_gets_some() -> Result<()> {
    for at in 0..3 {
        let all = arguments(3, false)?;
        all[at].set_requires_grad(true)?;
        energy(swing(&all[0], &all[1], &all[2])?)?.backward()?;
        let by_hand = arguments(3, false)?;
        by_hand[at].set_requires_grad(true)?;
        energy(swing_by_hand(&by_hand[0], &by_hand[1], &by_hand[2])?)?.backward()?;
        all.iter().enumerate().for_each(|(other, x)| assert_eq!(x.grad().is_some(), other == at));
        assert_close(&gradients(&all[at..=at])[0], &gradients(&by_hand[at..=at])[0]);
    }
    Ok(())
}

#[test]
fn loops_run_between_segments() -> Result<()> {
    let f = |w: &Tensor, place: &Tensor, pushes: &Tensor| {
        let scale = w.exp()?.sum_all()?.item::<f64>()?;
        let (last, _, places) = swing(&w.mul(scale)?, place, pushes)?;
        let scale = last.sum_all()?.item::<f64>()?;
        places.mul(scale)?.sum([0], false)
    };
    let [w, place, pushes] = arguments(4, false)?;
    let expected = bits(&f(&w, &place, &pushes)?);
    for stance in [Stance::Default, Stance::Deferred] {
        let g = compile_with(f, CompileOptions { stance, ..CompileOptions::default() });
        for _ in 0..3 {
            assert_eq!(bits(&g.call((&w, &place, &pushes))?), expected, "{stance:?}");
        }
    }
    Ok(())
}

#[test]
fn writes_before_and_after_a_loop_are_seen_in_order() -> Result<()> {
    let f = |w: &Tensor, x: &Tensor| {
        w.mul_(2.0)?;
        let y = fori_loop(0..3, |i: &Tensor, c: &Tensor| (c * w)?.add(i), x)?;
        w.add_(1.0)?;
        let part = w.narrow(0, 0, 2)?;
        part.zero_()?;
        fori_loop(0..2, |_: &Tensor, c: &Tensor| c + w, &y)
    };
    let g = compile(f);
    for _ in 0..3 {
        let (one, other, x) = (ramp(&[4], 1.0)?, ramp(&[4], 1.0)?, ramp(&[4], 5.0)?);
        assert_eq!(bits(&g.call((&one, &x))?), bits(&f(&other, &x)?));
        assert_eq!(bits(&one), bits(&other));
    }
    Ok(())
}

/// A number that changes from call to call.
#[derive(TensorStruct)]
struct Rated {
    x: Tensor,
    rate: f64,
}

#[test]
fn plain_numbers_in_a_body_are_those_of_the_call() -> Result<()> {
    let f = |rated: &Rated| {
        let rate = rated.rate;
        fori_loop(0..3, move |_: &Tensor, c: &Tensor| c.mul(rate)?.add(1.0), &rated.x)?.mul(rate)
    };
    let g = compile(f);
    for rate in [0.5, 0.25, 0.125, 0.5, 2.0, 3.0, 4.0, 5.0] {
        let rated = Rated { x: ramp(&[3], 1.0)?, rate };
        assert_eq!(bits(&g.call(&rated)?), bits(&f(&rated)?), "{rate}");
    }
    Ok(())
}

#[test]
fn threads_share_a_compiled_loop() -> Result<()> {
    let [w, place, pushes] = arguments(50, false)?;
    let expected = bits(&swing(&w, &place, &pushes)?.2);
    let f = compile(swing);
    std::thread::scope(|scope| {
        let call = || f.call((&w, &place, &pushes)).map(|all| bits(&all.2));
        let all: Vec<_> = (0..4).map(|_| scope.spawn(call)).collect();
        for one in all {
            assert_eq!(one.join().expect("no panic")?, expected);
        }
        Ok(())
    })
}

#[test]
fn errors_of_values_name_the_step_and_leave_everything_as_it_was() -> Result<()> {
    let f = |table: &Tensor, at: &Tensor| {
        table.add_(1.0)?;
        scan(
            |c: &Tensor, at: &Tensor| Ok((c.add(table.index_select(0, &at.reshape([1])?)?)?, ())),
            &ramp(&[1], 1.0)?,
            at,
        )
    };
    let g = compile(|table: &Tensor, at: &Tensor| f(table, at).map(|(last, ()): (Tensor, ())| last));
    let table = ramp(&[4], 2.0)?;
    let good = Tensor::from_slice(&[0i64, 3, 1], &[3])?;
    g.call((&table, &good))?;
    let bad = Tensor::from_slice(&[0i64, 4, 1], &[3])?;
    let before = bits(&table);
    let message = g.call((&table, &bad)).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(message.contains("step 1 of scan"), "{message}");
    // The function has written before it failed, and so has the eager call.
    assert_ne!(bits(&table), before);
    g.call((&table, &good))?;
    Ok(())
}

#[test]
fn a_branch_in_a_while_loop_in_a_scan_has_the_bits_of_the_loops() -> Result<()> {
    let f = |x: &Tensor, n: &Tensor| {
        let step = |c: &Tensor, n: &Tensor| {
            let state = (c.clone(), n.clone());
            let odd = |(_, n): &(Tensor, Tensor)| n.remainder(2)?.eq(1);
            let body = |state: &(Tensor, Tensor)| {
                let (c, n) = state;
                let c = cond(&odd(state)?, |c: &Tensor| c.mul(3.0)?.add(1.0), |c: &Tensor| c.mul(0.5), c)?;
                Ok((c, n.sub(1)?))
            };
            let (c, n) = while_loop(|(_, n): &(Tensor, Tensor)| n.gt(0), body, &state, 20)?;
            Ok((c.clone(), (c, n)))
        };
        let (last, (all, n)) = scan(step, x, n)?;
        Ok((last, all, n))
    };
    let (x, n) = (ramp(&[3], 1.0)?, Tensor::from_slice(&[3i64, 0, 4, 1], &[4])?);
    let (mut c, mut all) = (x.clone(), Vec::new());
    for mut n in [3, 0, 4, 1] {
        while n > 0 {
            c = if n % 2 == 1 { c.mul(3.0)?.add(1.0)? } else { c.mul(0.5)? };
            n -= 1;
        }
        all.push(c.clone());
    }
    let all = stack(&all.iter().collect::<Vec<_>>(), 0)?;
    let g = compile(f);
    for (last, found, n) in [f(&x, &n)?, g.call((&x, &n))?, g.call((&x, &n))?] {
        assert_eq!((bits(&last), bits(&found), n.to_vec::<i64>()?), (bits(&c), bits(&all), vec![0; 4]));
    }
    assert_eq!(g.explain().calls.len(), 1, "{}", g.explain());
    Ok(())
}

#[test]
fn a_profile_counts_a_loop_as_a_part_of_its_function() -> Result<()> {
    let f = compile(|x: &Tensor| scan_times(|c: &Tensor| Ok((c.sin()?, c.clone())), &x.exp()?, 4));
    let x = ramp(&[3], 1.0)?;
    f.call(&x)?;
    let ((last, all), profile) = f.profile(&x)?;
    assert_eq!((bits(&last), bits(&all)), (bits(&f.call(&x)?.0), bits(&f.call(&x)?.1)));
    assert!(!profile.to_string().is_empty());
    Ok(())
}
