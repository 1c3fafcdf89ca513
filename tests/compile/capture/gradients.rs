//! Gradients from before a call, and other state that types do not show: eager against compiled over several calls.

use super::check::ramp;
use opfuse::autograd::{enable_grad, no_grad};
use opfuse::compile::{CompileOptions, Compiled, Determinism, Function, Stance, compile, compile_with};
use opfuse::{Error, Result, Tensor};

/// Everything observable about tensors, gradients included.
fn look(tensors: &[&Tensor]) -> Vec<String> {
    let see = |tensor: &Tensor| {
        let bits = |tensor: &Tensor| tensor.to_vec::<f32>().map(|all| all.iter().map(|x| x.to_bits()).collect());
        let values: Result<Vec<u32>> = bits(tensor);
        let gradient: Option<Result<Vec<u32>>> = tensor.grad().map(|gradient| bits(&gradient));
        format!("{values:?} requires {} leaf {} gradient {gradient:?}", tensor.requires_grad(), tensor.is_leaf())
    };
    tensors.iter().map(|tensor| see(tensor)).collect()
}

fn leaf(sizes: &[usize], seed: usize) -> Result<Tensor> {
    let leaf = ramp(sizes, seed)?;
    leaf.set_requires_grad(true)?;
    Ok(leaf)
}

fn gradient(tensor: &Tensor) -> Result<Tensor> {
    tensor.grad().ok_or_else(|| Error::argument("test", "no gradient"))
}

fn is_compiled<A, F: Function<A>>(f: &Compiled<F, A>, max_captures: u64) {
    let counts = f.counts();
    assert!(f.explain().eager.is_none(), "{}", f.explain());
    assert!(counts.captures <= max_captures && counts.eager == 0 && counts.deferred == 0, "{counts:?}");
}

type Step = fn(&Tensor, &Tensor) -> Result<Tensor>;
type Before = fn(usize, &Tensor, &Tensor) -> Result<()>;

fn descend(w: &Tensor) -> Result<()> {
    let _quiet = no_grad();
    w.sub_((gradient(w)? * 0.125)?)
}

fn loss(w: &Tensor, x: &Tensor) -> Result<Tensor> {
    (x * w)?.tanh()?.square()?.sum_all()
}

fn backward(w: &Tensor, x: &Tensor) -> Result<Tensor> {
    let loss = loss(w, x)?;
    loss.backward()?;
    loss.detach()
}

/// A forward pass, a backward pass, and an optimizer step.
fn learn(w: &Tensor, x: &Tensor) -> Result<Tensor> {
    let loss = backward(w, x)?;
    descend(w)?;
    Ok(loss)
}

/// Training steps, what happens before each of their calls, and how many captures they may take.
const STEPS: &[(&str, Step, Before, u64)] = &[
    (
        "the usual loop",
        |w, x| {
            w.set_grad(None)?;
            learn(w, x)
        },
        |_, _, _| Ok(()),
        1,
    ),
    (
        "put aside at the end",
        |w, x| {
            let loss = learn(w, x)?;
            w.set_grad(None)?;
            Ok(loss)
        },
        |_, _, _| Ok(()),
        1,
    ),
    ("put aside outside", learn, |_, w, _| w.set_grad(None), 1),
    ("never put aside", learn, |_, _, _| Ok(()), 2),
    ("put aside now and then", learn, |call, w, _| if call % 3 == 0 { w.set_grad(None) } else { Ok(()) }, 2),
    (
        "accumulated twice inside",
        |w, x| {
            backward(w, x)?;
            backward(w, &(x * 0.3)?)
        },
        |call, w, _| if call == 3 { w.set_grad(None) } else { Ok(()) },
        2,
    ),
    (
        "the step inside adds to what is there, and takes it",
        |w, x| {
            backward(w, x)?;
            let sum = gradient(w)?;
            w.set_grad(None)?;
            sum.copy()
        },
        |_, w, x| {
            loss(w, x)?.backward()?;
            loss(w, x)?.backward()
        },
        1,
    ),
    (
        "backward outside, step inside",
        |w, _| {
            descend(w)?;
            w.detach()?.copy()
        },
        |_, w, x| {
            w.set_grad(None)?;
            loss(w, x)?.backward()
        },
        1,
    ),
    (
        "backward outside, step and put aside inside",
        |w, _| {
            descend(w)?;
            w.set_grad(None)?;
            w.detach()?.copy()
        },
        |_, w, x| loss(w, x)?.backward(),
        1,
    ),
    (
        "a step if there is a gradient",
        |w, x| {
            if w.grad().is_some() {
                descend(w)?;
            }
            w.detach()?.mul(x)
        },
        |call, w, x| match call % 3 {
            0 => w.set_grad(None),
            1 => w.set_grad(Some(&x.exp()?)),
            _ => Ok(()),
        },
        2,
    ),
    (
        "a gradient is scaled in place",
        |w, x| {
            gradient(w)?.mul_(0.5)?;
            backward(w, x)
        },
        |call, w, x| if call == 0 { w.set_grad(Some(&x.exp()?)) } else { Ok(()) },
        1,
    ),
    (
        "a gradient is put in place of another",
        |w, x| {
            w.set_grad(Some(&x.exp()?))?;
            let given = gradient(w)?;
            given.mul(2.0)
        },
        |_, _, _| Ok(()),
        1,
    ),
    (
        "under no_grad",
        |w, x| {
            let _quiet = no_grad();
            let old = w.grad();
            w.set_grad(Some(&x.neg()?))?;
            old.map_or_else(|| x.exp(), |old| old.mul(x))
        },
        |call, w, _| if call == 2 { w.set_grad(None) } else { Ok(()) },
        2,
    ),
];

#[test]
fn gradients_from_before_a_call_are_those_of_the_call() -> Result<()> {
    let checked = CompileOptions { determinism: Determinism::Checked, ..CompileOptions::default() };
    let deferred = CompileOptions { stance: Stance::Deferred, ..CompileOptions::default() };
    for (name, step, before, max_captures) in STEPS {
        for (kind, options) in
            [("default", CompileOptions::default()), ("checked", checked.clone()), ("deferred", deferred.clone())]
        {
            for quiet in [false, true] {
                let [eager, held, given] = [leaf(&[4], 1)?, leaf(&[4], 1)?, leaf(&[4], 1)?];
                let own = held.clone();
                let captured = compile_with(move |x: &Tensor| step(&own, x), options.clone());
                let with_weight = compile_with(step, options.clone());
                for call in 0..7 {
                    let x = ramp(&[4], call)?;
                    for w in [&eager, &held, &given] {
                        before(call, w, &x)?;
                    }
                    let _quiet = quiet.then(no_grad);
                    let expected = step(&eager, &x);
                    let expected = expected.map(|y| [look(&[&y]), look(&[&eager])]).map_err(|error| error.to_string());
                    let found =
                        captured.call(&x).map(|y| [look(&[&y]), look(&[&held])]).map_err(|error| error.to_string());
                    assert_eq!(found, expected, "{name}, {kind}, captured, call {call}, quiet {quiet}");
                    let found = with_weight.call((&given, &x));
                    let found = found.map(|y| [look(&[&y]), look(&[&given])]).map_err(|error| error.to_string());
                    assert_eq!(found, expected, "{name}, {kind}, given, call {call}, quiet {quiet}");
                }
                if kind == "default" && !quiet {
                    is_compiled(&captured, *max_captures);
                    is_compiled(&with_weight, *max_captures);
                }
            }
        }
    }
    Ok(())
}

/// `requires_grad` may change between two calls.
#[test]
fn a_captured_tensor_that_comes_to_require_gradients_is_noticed() -> Result<()> {
    let outside: Step = |w, x| (x * w)?.exp();
    let inside: Step = |w, x| {
        let y = (x * w)?.exp()?;
        let loss = y.sum_all()?;
        if loss.requires_grad() {
            loss.backward()?;
        }
        y.detach()
    };
    for step in [outside, inside] {
        let [eager, held] = [ramp(&[4], 1)?, ramp(&[4], 1)?];
        let own = held.clone();
        let f = compile(move |x: &Tensor| step(&own, x));
        for (call, requires) in [false, false, true, true, false, true, false].into_iter().enumerate() {
            let x = ramp(&[4], call)?;
            let run = |w: &Tensor, step: &dyn Fn(&Tensor) -> Result<Tensor>| {
                w.set_requires_grad(requires)?;
                w.set_grad(None)?;
                let y = step(&x)?;
                if y.requires_grad() {
                    y.sum_all()?.backward()?;
                }
                Ok::<_, Error>(look(&[&y.detach()?, w]))
            };
            assert_eq!(run(&held, &|x| f.call(x))?, run(&eager, &|x| step(&eager, x))?, "call {call}");
        }
        is_compiled(&f, 2);
    }
    Ok(())
}

#[test]
fn hooks_of_leaves_run_whenever_they_were_registered() -> Result<()> {
    let step: Step = |w, x| {
        w.set_grad(None)?;
        backward(w, x)
    };
    let [eager, held, given] = [leaf(&[4], 1)?, leaf(&[4], 1)?, leaf(&[4], 1)?];
    let own = held.clone();
    let captured = compile(move |x: &Tensor| step(&own, x));
    let with_weight = compile(step);
    let mut hooks = Vec::new();
    for call in 0..8 {
        for w in [&eager, &held, &given] {
            match call {
                2 => hooks.push(w.register_hook(|gradient| gradient.mul(100.0).map(Some))?),
                4 => hooks.push(w.register_hook(|gradient| gradient.add(1.0).map(Some))?),
                6 => hooks.iter().for_each(|&hook| {
                    w.remove_hook(hook);
                }),
                _ => {}
            }
        }
        let x = ramp(&[4], call)?;
        let expected = look(&[&step(&eager, &x)?, &eager]);
        assert_eq!(look(&[&captured.call(&x)?, &held]), expected, "captured, call {call}");
        assert_eq!(look(&[&with_weight.call((&given, &x))?, &given]), expected, "given, call {call}");
    }
    is_compiled(&captured, 3);
    is_compiled(&with_weight, 3);
    Ok(())
}

/// A program cannot register a hook or set `requires_grad` of its inputs, so such functions run eagerly.
#[test]
fn a_function_that_changes_its_inputs_history_runs_eagerly() -> Result<()> {
    let hooks: Step = |w, x| {
        w.register_hook(|gradient| gradient.mul(2.0).map(Some))?;
        (w * x)?.exp()
    };
    let flags: Step = |w, x| {
        let fresh = x.copy()?;
        fresh.set_requires_grad(true)?;
        x.set_requires_grad(true)?;
        (w * x)?.exp()
    };
    let through: Step = |w, x| {
        w.mul(x)?.sum_all()?.backward()?;
        x.exp()
    };
    for (step, is_leaf) in [(hooks, true), (flags, true), (through, false)] {
        let f = compile(step);
        for call in 0..3 {
            let run = |step: &dyn Fn(&Tensor, &Tensor) -> Result<Tensor>| {
                let (root, x) = (leaf(&[4], 1)?, ramp(&[4], call)?);
                let w = if is_leaf { root.clone() } else { root.mul(3.0)? };
                let y = step(&w, &x)?;
                if y.requires_grad() {
                    y.sum_all()?.backward()?;
                }
                Ok::<_, Error>(look(&[&y.detach()?, &root, &x]))
            };
            assert_eq!(run(&|w, x| f.call((w, x)))?, run(&step)?, "call {call}");
        }
        assert!(f.explain().eager.is_some(), "{}", f.explain());
    }
    // Also where no gradients flow to the inputs at first.
    let flag = |x: &Tensor| {
        x.set_requires_grad(true)?;
        x.exp()
    };
    let f = compile(flag);
    for call in 0..3 {
        let run = |flag: &dyn Fn(&Tensor) -> Result<Tensor>| {
            let x = ramp(&[4], call)?;
            flag(&x)?.sum_all()?.backward()?;
            Ok::<_, Error>(look(&[&x]))
        };
        assert_eq!(run(&|x| f.call(x))?, run(&flag)?, "call {call}");
    }
    Ok(())
}

/// A leaf that the function makes needs no guard, because only the function holds it.
#[test]
fn a_leaf_of_the_function_needs_no_guard() -> Result<()> {
    let step = |x: &Tensor| {
        let w = Tensor::from_slice(&[0.5f32, -1.0, 2.0, 0.25], &[4])?;
        w.set_requires_grad(true)?;
        backward(&w, x)?;
        gradient(&w)
    };
    let f = compile(step);
    for call in 0..4 {
        let x = ramp(&[4], call)?;
        assert_eq!(look(&[&f.call(&x)?]), look(&[&step(&x)?]), "call {call}");
    }
    is_compiled(&f, 1);
    Ok(())
}

#[test]
fn gradients_may_be_switched_on_inside() -> Result<()> {
    let step = |x: &Tensor| {
        let _recorded = enable_grad();
        x.exp()
    };
    let f = compile(step);
    let run = |step: &dyn Fn(&Tensor) -> Result<Tensor>| {
        let x = leaf(&[4], 1)?;
        let y = {
            let _quiet = no_grad();
            step(&x)?
        };
        assert!(y.requires_grad());
        y.sum_all()?.backward()?;
        Ok::<_, Error>(look(&[&y.detach()?, &x]))
    };
    let expected = run(&step)?;
    for _ in 0..3 {
        assert_eq!(run(&|x| f.call(x))?, expected);
    }
    is_compiled(&f, 1);
    Ok(())
}

/// An input that is returned unchanged is the same tensor, with and without gradients.
#[test]
fn an_input_that_is_returned_is_itself() -> Result<()> {
    let held = leaf(&[4], 2)?;
    let inputs: [fn() -> Result<Tensor>; 3] = [|| ramp(&[4], 1), || leaf(&[4], 1), || leaf(&[4], 1)?.mul(2.0)];
    for input in inputs {
        let own = held.clone();
        let f = compile(move |x: &Tensor| Ok((x.clone(), x.exp()?, own.clone())));
        for call in 0..3 {
            let input = input()?;
            let (same, other, captured) = f.call(&input)?;
            assert!(same.is_same(&input) && captured.is_same(&held), "call {call}");
            assert_eq!((other.requires_grad(), same.is_leaf()), (input.requires_grad(), input.is_leaf()));
            held.set_grad(None)?;
            (same.add(&other)? + &captured)?.sum_all()?.backward()?;
            assert_eq!(gradient(&held)?.to_vec::<f32>()?, [1.0; 4]);
        }
        is_compiled(&f, 1);
    }
    // A leaf keeps the gradient that the function put there, even if nothing else comes from outside.
    let (own, other) = (held.clone(), ramp(&[4], 3)?);
    let put = other.clone();
    let f = compile(move |x: &Tensor| {
        own.set_grad(Some(&put))?;
        x.exp()
    });
    for _ in 0..3 {
        held.set_grad(None)?;
        let x = leaf(&[4], 1)?;
        f.call(&x)?.sum_all()?.backward()?;
        assert!(gradient(&held)?.is_same(&other) && x.grad().is_some());
    }
    is_compiled(&f, 1);
    // A gradient that is read and returned is the leaf's own tensor.
    let own = held.clone();
    let f = compile(move |x: &Tensor| Ok((gradient(&own)?, x.exp()?)));
    for call in 0..3 {
        held.set_grad(Some(&ramp(&[4], call)?))?;
        let (found, _) = f.call(&ramp(&[4], 0)?)?;
        assert!(found.is_same(&gradient(&held)?));
    }
    Ok(())
}
