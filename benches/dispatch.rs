//! What a call costs before any element is computed: eager adds, dispatch alone, and calls of a compiled function.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

#[allow(dead_code, reason = "this bench uses a part of the module")]
mod timing;
#[allow(dead_code, reason = "this bench uses a part of the module")]
mod workloads;

use opfuse::dispatch::{DispatchKey, Dispatcher, Library, Stack, Value};
use opfuse::internals::eager;
use opfuse::internals::eager::Argument;
use opfuse::ir::{Attr, Attrs, Op, Scalar};
use opfuse::{Result, Tensor, compile};
use std::hint::black_box;
use timing::{Effort, Timing, in_turns};
use workloads::uniform;

fn main() -> Result<()> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let effort = if quick { Effort::QUICK } else { Effort::FULL };
    println!("{:<58}{:>10}{:>10}", "ns per call", "best", "median");
    dispatch_alone(effort)?;
    let [(one, _), (few, compiled)] = [calls(effort, 1)?, calls(effort, 64)?];
    row_writes(effort)?;
    println!();
    verdict("W20a, eager a + b on 1 element", one, 100.0);
    verdict("W20b, eager a + b on 64 elements", few, 100.0);
    verdict("W20c, compiled relu(a * b + c) on 64 elements", compiled, 300.0);
    Ok(())
}

/// Says whether a call took at most so many nanoseconds.
fn verdict(name: &str, timing: Timing, limit: f64) {
    let word = if timing.nanos() <= limit { "reached" } else { "missed" };
    println!("{name}: {:.0} ns, at most {limit:.0} wanted: {word}", timing.nanos());
}

fn print(name: &str, timing: Timing) {
    println!("{name:<58}{:>10.1}{:>10.1}", timing.nanos(), timing.median * 1e9);
}

/// An operator of two tensors whose kernel does nothing.
fn dispatch_alone(effort: Effort) -> Result<()> {
    let (a, b) = (uniform(1, &[64])?, uniform(2, &[64])?);
    // The first call registers the library's operators and the keys that calls fall through.
    (&a + &b)?;
    let mut library = Library::def_block("bench")?;
    library.def("nothing(Tensor a, Tensor b) -> int")?;
    library.impl_for("nothing", DispatchKey::CPU, |_: &Tensor, _: &Tensor| Ok(0_i64))?;
    let operator = Dispatcher::global().lookup("bench::nothing")?;
    let typed = operator.typed::<(&Tensor, &Tensor), i64>()?;
    let mut stack = Stack::new();
    let [typed, untyped, boxed] = in_turns(
        effort,
        [
            &mut || drop(black_box(typed.call((black_box(&a), black_box(&b))))),
            &mut || drop(black_box(operator.call::<(&Tensor, &Tensor), i64>((black_box(&a), black_box(&b))))),
            &mut || {
                stack.clear();
                stack.extend([Value::Tensor(a.clone()), Value::Tensor(b.clone())]);
                drop(black_box(operator.call_boxed(&mut stack)));
            },
        ],
    );
    print("typed dispatch of an operator that does nothing", typed);
    print("the same, signature checked per call", untyped);
    print("the same, boxed, stack included", boxed);
    Ok(())
}

/// Writes of one row of a large tensor, which cost what a row costs.
fn row_writes(effort: Effort) -> Result<()> {
    let (cache, row, at) = (uniform(4, &[4096, 256])?, uniform(5, &[1, 256])?, Tensor::from_slice(&[7i64], &[1])?);
    let by_view = |cache: &Tensor, row: &Tensor| cache.i(7..8)?.copy_(row);
    let by_index = |cache: &Tensor, row: &Tensor, at: &Tensor| cache.index_copy_(0, at, row);
    let (view_compiled, index_compiled) = (compile(by_view), compile(by_index));
    let [view, view_compiled, index, index_compiled] = in_turns(
        effort,
        [
            &mut || drop(black_box(by_view(&cache, &row))),
            &mut || drop(black_box(view_compiled.call((&cache, &row)))),
            &mut || drop(black_box(by_index(&cache, &row, &at))),
            &mut || drop(black_box(index_compiled.call((&cache, &row, &at)))),
        ],
    );
    print("eager write through a view, 1 row of 4096 x 256", view);
    print("  compiled", view_compiled);
    print("  eager index_copy_", index);
    print("  compiled", index_compiled);
    Ok(())
}

/// Gives the times of an eager and of a compiled call.
fn calls(effort: Effort, n: usize) -> Result<(Timing, Timing)> {
    let (a, b, c) = (uniform(1, &[n])?, uniform(2, &[n])?, uniform(3, &[n])?);
    let attrs: Attrs = std::iter::once(Attr::Scalar(Scalar::Int(1))).collect();
    let arguments = [&a, &b].map(|tensor| Argument { array: tensor.array(), number: false });
    let [p, q] = [&a, &b].map(Tensor::detach);
    let (p, q) = (p?, q?);
    p.set_requires_grad(true)?;
    q.set_requires_grad(true)?;
    let function = compile(|a: &Tensor, b: &Tensor, c: &Tensor| ((a * b)? + c)?.relu());
    function.call((&a, &b, &c))?;
    // Its elements stay what they are: numbers that shrink would become denormal, which is slow.
    let (target, ones) = (a.copy()?, a.ones_like()?);
    let [add, array_add, unary, number, written, by_number, recorded, compiled, three] = in_turns(
        effort,
        [
            &mut || drop(black_box(black_box(&a) + black_box(&b))),
            &mut || drop(black_box(eager::run(Op::Add, &arguments, &attrs))),
            &mut || drop(black_box(black_box(&a).relu())),
            &mut || drop(black_box(black_box(&a) * 0.5)),
            &mut || drop(black_box(black_box(&target).mul_(black_box(&ones)))),
            &mut || drop(black_box(black_box(&target).mul_(1.0))),
            &mut || drop(black_box(black_box(&p) + black_box(&q))),
            &mut || drop(black_box(function.call((&a, &b, &c)))),
            &mut || drop(black_box(((&a * &b).and_then(|t| t + &c)).and_then(|t| t.relu()))),
        ],
    );
    print(&format!("eager add, {n} elements"), add);
    print("  of that, on arrays: without dispatch", array_add);
    print("  eager add, recorded for gradients", recorded);
    print("  eager relu", unary);
    print("  eager a * 0.5", number);
    print("  eager a.mul_(&b)", written);
    print("  eager a.mul_(1.0)", by_number);
    print(&format!("compiled relu(a*b+c), {n} elements"), compiled);
    print("  the same as three eager ops", three);
    Ok((add, compiled))
}
