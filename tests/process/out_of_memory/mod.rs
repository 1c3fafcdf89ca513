//! Memory runs out: every allocation of every program fails once, and nothing is lost.
//!
//! Programs are those written here, and the calls of `tests/golden` (`golden.rs`). A program is run once to count its
//! allocations, then once for each of them with a [`Fault`] that lets it fail. These hold after each failure:
//!
//! - the call returned an error that names bytes and device;
//! - the inputs have their old values, and as much memory is in use as before;
//! - the same program without a fault gives the same bits.
//!
//! The account of memory covers the process, so each test runs in a process of its own.

#![allow(clippy::print_stdout, reason = "the counts are this test's output")]

mod golden;

use crate::alone::has_run_alone;
use opfuse::compile::{CompileOptions, Stance, compile_with};
use opfuse::device::allocator::{self, Fault};
use opfuse::{DType, Device, Error, Generator, Result, Tensor, cat, compile, embedding, stack, vmap};

type Program = Box<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>>;

/// A program, made anew for every fault, because its caches are part of it.
struct Case {
    name: &'static str,
    make: fn(&[Tensor]) -> Result<Program>,
}

/// A case of a function without state.
macro_rules! eager {
    ($name:literal, |$x:ident| $outputs:expr) => {
        Case {
            name: $name,
            make: |_| {
                Ok(Box::new(|inputs: &[Tensor]| {
                    let $x = inputs;
                    let outputs: Result<Vec<Tensor>> = (|| Ok($outputs.into()))();
                    outputs
                }))
            },
        }
    };
}

fn ramp(sizes: &[usize], seed: usize) -> Result<Tensor> {
    let value = |i: usize| (i as f32 * 0.37 + seed as f32 * 0.71).sin() * 3.0;
    Tensor::from_slice(&(0..sizes.iter().product()).map(value).collect::<Vec<f32>>(), sizes)
}

/// The inputs of every program: two small matrices, a vector, indices, and a matrix large enough for several threads.
fn inputs() -> Result<Vec<Tensor>> {
    let ids = Tensor::from_slice(&[3i64, 0, 5, 3], &[4])?;
    Ok(vec![ramp(&[6, 8], 0)?, ramp(&[6, 8], 1)?, ramp(&[8], 2)?, ids, ramp(&[384, 512], 3)?])
}

fn bits(tensor: &Tensor) -> Vec<u64> {
    match tensor.dtype() {
        DType::F32 => tensor.to_vec::<f32>().map(|all| all.iter().map(|x| u64::from(x.to_bits())).collect()),
        _ => tensor.to_dtype(DType::F64).and_then(|wide| wide.to_vec::<f64>()).map(|all| {
            let all: Vec<u64> = all.iter().map(|x| x.to_bits()).collect();
            all
        }),
    }
    .expect("there is memory, and the tensor has elements")
}

fn all_bits(tensors: &[Tensor]) -> Vec<Vec<u64>> {
    tensors.iter().map(bits).collect()
}

/// Bytes and blocks in use.
fn in_use() -> (usize, usize) {
    let stats = allocator::stats();
    (stats.live_bytes, stats.live_blocks)
}

#[track_caller]
fn check_error(name: &str, n: u64, error: &Error) {
    let Error::OutOfMemory { device, wanted, .. } = error else {
        panic!("{name}, allocation {n}: {error}");
    };
    let text = error.to_string();
    assert!(device == "cpu" && *wanted > 0 && text.contains(&format!("{wanted} bytes")), "{name}: {text}");
}

fn check(case: &Case) -> Result<()> {
    let Case { name, make } = case;
    let inputs = inputs()?;
    let before = all_bits(&inputs);
    // This call allocates what threads and the process keep.
    let want = all_bits(&make(&inputs)?(&inputs)?);
    let program = make(&inputs)?;
    let allocations = allocator::stats().allocations;
    drop(program(&inputs)?);
    let n_allocations = allocator::stats().allocations - allocations;
    drop(program);
    let used = in_use();
    for n in 0..n_allocations {
        let program = make(&inputs)?;
        let fault = Fault::after(n);
        let outcome = program(&inputs);
        // A fault cannot reach an allocation on a thread of the pool.
        assert!(fault.has_struck(), "{name}: allocation {n} of {n_allocations} was not made by this thread");
        drop(fault);
        match outcome {
            Ok(_) => panic!("{name}: allocation {n} of {n_allocations} failed, and nobody said so"),
            Err(error) => check_error(name, n, &error),
        }
        assert!(all_bits(&inputs) == before, "{name}: allocation {n} changed an input");
        assert!(all_bits(&program(&inputs)?) == want, "{name}: other bits after allocation {n} failed");
        drop(program);
        assert_eq!(in_use(), used, "{name}: memory is lost when allocation {n} fails");
    }
    Ok(())
}

fn check_all(cases: &[Case]) -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    cases.iter().try_for_each(check)
}

fn leaf(tensor: &Tensor) -> Result<Tensor> {
    let leaf = tensor.copy()?;
    leaf.set_requires_grad(true)?;
    Ok(leaf)
}

#[test]
fn eager_calls_survive_every_failed_allocation() -> Result<()> {
    check_all(&[
        eager!("pointwise", |x| [((&x[0] * &x[1])? + 0.5)?.relu()?, (2.0 / &x[2])?, x[0].pow(&x[1])?]),
        eager!("number types", |x| [x[0].to_dtype(DType::F16)?.exp()?, x[3].mul(3)?, x[0].lt(&x[1])?]),
        eager!("views", |x| {
            let columns = x[0].t()?.narrow(0, 1, 4)?.unsqueeze(1)?;
            [columns.add(&columns)?, columns.contiguous()?, x[0].reshape([12, 4])?, x[0].t()?.reshape([48])?]
        }),
        eager!("reductions", |x| [
            x[0].sum([-1], true)?,
            x[0].softmax(-1)?,
            x[0].amax((), false)?,
            x[4].mean([0], false)?
        ]),
        eager!("matrix products", |x| [x[0].matmul(&x[1].t()?)?, x[0].matmul(&x[2])?, x[4].matmul(&x[4].t()?)?]),
        eager!("cat, stack and pad", |x| [cat(&[&x[0], &x[1], &x[0]], 0)?, stack(&[&x[0], &x[1]], 1)?]),
        eager!("scans", |x| [x[0].cumsum(1)?, x[0].cumprod(0)?]),
        eager!("sorts", |x| {
            let (values, order) = x[0].sort(1, true)?;
            [values, order, x[0].argmax(1, false)?]
        }),
        eager!("indices", |x| [
            embedding(&x[0], &x[3])?,
            x[0].index_select(0, &x[3])?,
            x[0].gather(1, &x[0].argmax(1, true)?)?
        ]),
        eager!("random numbers", |_x| {
            let generator = Generator::new(Device::CPU);
            generator.manual_seed(5);
            [generator.rand(&[30], DType::F32)?, generator.randn(&[5, 4], DType::F32)?]
        }),
        eager!("many elements", |x| [((&x[4] * &x[4])? + &x[4])?.tanh()?, x[4].t()?.contiguous()?]),
    ])
}

#[test]
fn writes_survive_every_failed_allocation() -> Result<()> {
    check_all(&[
        eager!("in place", |x| {
            let (a, b) = (x[0].copy()?, x[1].copy()?);
            a.mul_(&b)?;
            a.narrow(0, 1, 2)?.add_(&x[2])?;
            b.copy_(&x[3].narrow(0, 0, 1)?)?;
            a.i((0, ..))?.fill_(7.5)?;
            [a, b]
        }),
        eager!("in place, reading aliases", |x| {
            let square = x[4].narrow(1, 0, 384)?.copy()?;
            square.add_(&square.t()?)?;
            square.cumsum_(0)?;
            [square]
        }),
    ])
}

#[test]
fn gradients_survive_every_failed_allocation() -> Result<()> {
    check_all(&[
        eager!("backward", |x| {
            let (a, w) = (leaf(&x[0])?, leaf(&x[2])?);
            let loss = ((&a * &w)?.tanh()?.matmul(&x[1].t()?)? * 0.5)?.sum((), false)?;
            loss.backward()?;
            [a.grad().expect("a gradient arrived"), w.grad().expect("a gradient arrived")]
        }),
        eager!("backward through writes", |x| {
            let a = leaf(&x[0])?;
            let b = (&a * 2.0)?;
            b.i((0, ..))?.mul_(&x[2])?;
            b.exp()?.sum((), false)?.backward()?;
            [a.grad().expect("a gradient arrived"), b.detach()?]
        }),
        Case {
            name: "compiled, with gradients",
            make: |_| {
                let f = compile(|a: &Tensor, w: &Tensor| (a * w)?.tanh()?.sum((), false));
                Ok(Box::new(move |x: &[Tensor]| {
                    let (a, w) = (leaf(&x[0])?, leaf(&x[2])?);
                    f.call((&a, &w))?.backward()?;
                    Ok(vec![a.grad().expect("a gradient arrived"), w.grad().expect("a gradient arrived")])
                }))
            },
        },
    ])
}

#[test]
fn mapped_functions_survive_every_failed_allocation() -> Result<()> {
    check_all(&[eager!("vmap", |x| {
        let row = |a: &Tensor, b: &Tensor| ((a * b)? + 1.0)?.softmax(0);
        [vmap(row).call((&x[0], &x[1]))?, vmap(|a: &Tensor| a.sort(0, false).map(|(values, _)| values)).call(&x[0])?]
    })])
}

/// The function that is compiled: pointwise ops, a reduction, a product, a copy of a view.
fn block(x: &Tensor, y: &Tensor, w: &Tensor) -> Result<Vec<Tensor>> {
    let gated = ((x * y)?.sigmoid()? + w)?;
    let normal = gated.sub(&gated.mean([-1], true)?)?.softmax(-1)?;
    Ok(vec![normal.matmul(&y.t()?)?, normal.t()?.contiguous()?, cat(&[&normal, x], 0)?])
}

#[test]
fn compiled_functions_survive_every_failed_allocation() -> Result<()> {
    check_all(&[
        Case {
            name: "first call",
            make: |_| {
                let f = compile(block);
                Ok(Box::new(move |x: &[Tensor]| f.call((&x[0], &x[1], &x[2]))))
            },
        },
        Case {
            name: "second call",
            make: |x| {
                let f = compile(block);
                f.call((&x[0], &x[1], &x[2]))?;
                Ok(Box::new(move |x: &[Tensor]| f.call((&x[0], &x[1], &x[2]))))
            },
        },
        Case {
            name: "other sizes",
            make: |x| {
                let f = compile(|x: &Tensor| (x * 2.0)?.exp()?.sum([-1], false));
                f.call(&x[0])?;
                Ok(Box::new(move |x: &[Tensor]| Ok(vec![f.call(&x[4])?])))
            },
        },
        Case {
            name: "writes to its input",
            make: |_| {
                let f = compile(|x: &Tensor| {
                    x.mul_(3.0)?;
                    x.add(1.0)
                });
                Ok(Box::new(move |x: &[Tensor]| {
                    let target = x[0].copy()?;
                    Ok(vec![f.call(&target)?, target])
                }))
            },
        },
        Case {
            name: "segments between values that are read",
            make: |_| {
                let f = compile_with(
                    |x: &Tensor| {
                        let y = x.mul(2.0)?.tanh()?;
                        let greatest = y.amax((), false)?.item::<f32>()?;
                        y.div(f64::from(greatest))?.exp()
                    },
                    CompileOptions { stance: Stance::Deferred, ..CompileOptions::default() },
                );
                Ok(Box::new(move |x: &[Tensor]| Ok(vec![f.call(&x[0])?])))
            },
        },
    ])
}

/// A capture that ran out of memory is not kept as a reason: the next call captures the function.
#[test]
fn captures_without_memory_are_not_remembered() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let inputs = inputs()?;
    let f = compile(|x: &Tensor| (x * 2.0)?.exp()?.sum([-1], false));
    for x in [&inputs[0], &inputs[4]] {
        let fault = Fault::after(0);
        check_error("capture", 0, &f.call(x).expect_err("there was no memory"));
        drop(fault);
        f.call(x)?;
        f.call(x)?;
    }
    assert_eq!((f.counts().eager, f.counts().entries, f.explain().eager), (0, 2, None));
    Ok(())
}

/// One write, and what it writes to.
type Write = (&'static str, fn(&Tensor, &[Tensor]) -> Result<()>);

/// A write that runs out of memory does not change its target or the version.
#[test]
fn a_failed_write_leaves_its_target() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let writes: [Write; 8] = [
        ("mul_ by a number", |t, _| t.mul_(0.5)),
        ("add_ of another dtype", |t, x| t.add_(&x[3].narrow(0, 0, 1)?)),
        ("add_ of an alias", |t, _| t.add_(&t.narrow(0, 0, 1)?)),
        ("copy_ of an alias", |t, _| t.copy_(&t.narrow(1, 0, 1)?)),
        ("cumsum_", |t, _| t.cumsum_(0)),
        ("masked_fill_", |t, x| t.masked_fill_(&t.lt(&x[1])?, 9.0)),
        ("index_add_", |t, x| t.index_add_(0, &x[3], &x[1].narrow(0, 0, 4)?)),
        ("set of a row", |t, x| t.set((1, ..), &x[2])),
    ];
    let inputs = inputs()?;
    for (name, write) in writes {
        let target = inputs[0].copy()?;
        let before = bits(&target);
        write(&target, &inputs)?;
        let want = bits(&target);
        target.copy_(&inputs[0])?;
        let (version, used) = (target.version(), in_use());
        for n in 0.. {
            let fault = Fault::after(n);
            let outcome = write(&target, &inputs);
            if !fault.has_struck() {
                outcome?;
                break;
            }
            drop(fault);
            check_error(name, n, &outcome.expect_err("there was no memory"));
            assert_eq!((bits(&target) == before, target.version()), (true, version), "{name}, allocation {n}");
            assert_eq!(in_use(), used, "{name}: memory is lost when allocation {n} fails");
        }
        assert!(bits(&target) == want, "{name}");
    }
    Ok(())
}

/// Reaching a limit is the same error. With a higher limit, the same call succeeds.
#[test]
fn reaching_a_limit_is_an_error_until_it_is_raised() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let x = ramp(&[512, 512], 0)?;
    let f = compile(|x: &Tensor| ((x * x)? + 1.0)?.sqrt());
    let want = bits(&f.call(&x)?);
    allocator::trim();
    allocator::set_limit(allocator::stats().live_bytes + x.numel());
    let outcomes = [f.call(&x), &x + &x, x.matmul(&x)];
    let limit = allocator::stats().limit;
    allocator::set_limit(usize::MAX);
    let message = outcomes[1].as_ref().expect_err("there is no room for the sum").to_string();
    assert!(message.contains("add(f32[512,512], f32[512,512]): out of memory"), "{message}");
    for error in outcomes.map(|outcome| outcome.expect_err("there is no room for the result")) {
        check_error("limit", 0, &error);
        assert!(error.to_string().contains(&format!("limit of {limit}")), "{error}");
    }
    assert!(bits(&f.call(&x)?) == want);
    Ok(())
}
