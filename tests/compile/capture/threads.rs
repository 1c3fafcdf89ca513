//! Many threads, and functions that call themselves and each other.

use super::check::{look, ramp};
use opfuse::compile::{Compiled, compile};
use opfuse::{Error, Result, Tensor};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};

fn body(x: &Tensor) -> Result<Tensor> {
    x.mul(3.25)?.exp()?.softmax(-1)
}

const N_THREADS: usize = 32;

#[test]
fn concurrent_first_calls_compile_once() -> Result<()> {
    for needs_gradients in [false, true] {
        let runs = AtomicUsize::new(0);
        let f = compile(|x: &Tensor| {
            runs.fetch_add(1, Ordering::Relaxed);
            body(x)
        });
        let x = ramp(&[17, 65], 1)?;
        x.set_requires_grad(needs_gradients)?;
        let expected = look(&body(&x)?);
        let barrier = Barrier::new(N_THREADS);
        std::thread::scope(|scope| {
            for _ in 0..N_THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    assert_eq!(look(&f.call(&x).expect("it runs")), expected);
                });
            }
        });
        // With gradients, the first call may run the function before it is traced together with its backward pass.
        assert!(runs.load(Ordering::Relaxed) <= if needs_gradients { 2 } else { 1 });
        let counts = f.counts();
        assert_eq!((counts.calls, counts.captures, counts.entries), (N_THREADS as u64, 1, 1), "{counts:?}");
        assert_eq!(counts.eager, 0, "{counts:?}");
    }
    Ok(())
}

#[test]
fn threads_with_shapes_of_their_own_compile_each_shape_once() -> Result<()> {
    let f = compile(body);
    let barrier = Barrier::new(N_THREADS);
    std::thread::scope(|scope| {
        for thread in 0..N_THREADS {
            let (f, barrier) = (&f, &barrier);
            scope.spawn(move || {
                let x = ramp(&[thread / 4 + 1, 9], thread).expect("the counts agree");
                barrier.wait();
                for _ in 0..3 {
                    assert_eq!(look(&f.call(&x).expect("it runs")), look(&body(&x).expect("it runs")));
                }
            });
        }
    });
    let counts = f.counts();
    assert_eq!((counts.captures, counts.entries), (N_THREADS as u64 / 4, N_THREADS / 4), "{counts:?}");
    Ok(())
}

#[test]
fn concurrent_first_calls_that_fail_leave_it_working() -> Result<()> {
    let f = compile(|a: &Tensor, b: &Tensor| a.add(b)?.exp());
    let (a, b) = (ramp(&[3, 4], 0)?, ramp(&[5], 1)?);
    let barrier = Barrier::new(N_THREADS);
    std::thread::scope(|scope| {
        for _ in 0..N_THREADS {
            scope.spawn(|| {
                barrier.wait();
                assert!(matches!(f.call((&a, &b)), Err(Error::Broadcast { .. })));
            });
        }
    });
    assert_eq!(look(&f.call((&a, &a))?), look(&a.add(&a)?.exp()?));
    Ok(())
}

type Unary = Compiled<fn(&Tensor) -> Result<Tensor>, (Tensor,)>;

/// Halves its argument until it is small enough to count the steps by its shape.
fn recursive(x: &Tensor) -> Result<Tensor> {
    static F: OnceLock<Unary> = OnceLock::new();
    let f = F.get_or_init(|| compile(recursive as fn(&Tensor) -> Result<Tensor>));
    match x.sizes()[0] {
        0 => f.call(&ramp(&[3], 2)?),
        1 => x.exp(),
        n => f.call(&x.slice(0, 0, n as i64 - 1, 1)?)?.add(&x.slice(0, 0, 1, 1)?),
    }
}

fn even(x: &Tensor) -> Result<Tensor> {
    static F: OnceLock<Unary> = OnceLock::new();
    let f = F.get_or_init(|| compile(odd as fn(&Tensor) -> Result<Tensor>));
    if x.sizes()[0] == 1 { x.exp() } else { f.call(&x.slice(0, 1, None, 1)?) }
}

fn odd(x: &Tensor) -> Result<Tensor> {
    static F: OnceLock<Unary> = OnceLock::new();
    let f = F.get_or_init(|| compile(even as fn(&Tensor) -> Result<Tensor>));
    if x.sizes()[0] == 1 { x.neg() } else { f.call(&x.slice(0, 1, None, 1)?) }
}

fn doubled(x: &Tensor) -> Result<Tensor> {
    // The same types again: the entry is asked for while it is being built.
    static F: OnceLock<Unary> = OnceLock::new();
    static DEPTH: AtomicUsize = AtomicUsize::new(0);
    let f = F.get_or_init(|| compile(doubled as fn(&Tensor) -> Result<Tensor>));
    if DEPTH.fetch_add(1, Ordering::SeqCst) % 3 == 2 { x.exp() } else { f.call(x)?.add(1.0) }
}

#[test]
fn functions_that_call_themselves_or_each_other_return() -> Result<()> {
    for needs_gradients in [false, true] {
        let x = ramp(&[4], 0)?;
        x.set_requires_grad(needs_gradients)?;
        let expected = look(
            &x.slice(0, 0, 1, 1)?
                .exp()?
                .add(&x.slice(0, 0, 1, 1)?)?
                .add(&x.slice(0, 0, 1, 1)?)?
                .add(&x.slice(0, 0, 1, 1)?)?,
        );
        for _ in 0..3 {
            assert_eq!(look(&recursive(&x)?), expected);
        }
        assert_eq!(look(&even(&x)?), look(&x.slice(0, 3, None, 1)?.neg()?));
        let f = compile(doubled);
        assert_eq!(f.call(&x)?.sizes(), [4]);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    assert!(even(&x).is_ok() && odd(&x).is_ok() && recursive(&x).is_ok());
                });
            }
        });
    }
    Ok(())
}

#[test]
fn nested_compiled_functions_are_part_of_the_outer_one() -> Result<()> {
    let inner = compile(|x: &Tensor| x.mul(2.0)?.relu());
    let x = ramp(&[11], 0)?;
    let expected = look(&x.add(1.0)?.mul(2.0)?.relu()?.exp()?);
    let outer = compile(|x: &Tensor| inner.call(&x.add(1.0)?)?.exp());
    for _ in 0..3 {
        assert_eq!(look(&outer.call(&x)?), expected);
    }
    assert_eq!(outer.explain().kernels_after, 1, "{}", outer.explain());
    // Inside, it ran as part of a trace, and its report says so. Outside it is compiled by itself, also from an eager
    // function.
    assert_eq!((inner.counts().captures, inner.counts().eager), (0, 1));
    assert!(inner.explain().eager.is_some());
    let eager = |x: &Tensor| inner.call(&x.add(1.0)?)?.exp();
    for _ in 0..3 {
        assert_eq!(look(&eager(&x)?), expected);
    }
    assert_eq!((inner.counts().captures, inner.counts().eager), (1, 1));
    assert_eq!(inner.explain().kernels_after, 1);
    Ok(())
}
