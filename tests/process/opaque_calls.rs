//! Operators from outside as calls of a compiled function.

use crate::alone::has_run_alone;
use crate::bits::bits;
use opfuse::compile::{CompileOptions, Determinism, compile_with};
use opfuse::dispatch::{DispatchKey, Dispatcher, Library, Value};
use opfuse::ir::TensorType;
use opfuse::{DType, Error, Result, Tensor, compile, manual_seed, vmap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls an operator by its name.
#[track_caller]
fn call(name: &str, arguments: Vec<Value>) -> Result<Vec<Tensor>> {
    let results = Dispatcher::global().lookup(name)?.invoke(arguments, Vec::new())?;
    Ok(results.iter().flat_map(Value::tensors).cloned().collect())
}

/// Calls an operator of one tensor.
#[track_caller]
pub(crate) fn one(name: &str, x: &Tensor) -> Result<Tensor> {
    Ok(call(name, vec![Value::Tensor(x.clone())])?.remove(0))
}

/// A type with the shape of a tensor, row-major.
fn like(x: &Tensor) -> Result<Tensor> {
    Tensor::meta(&TensorType::contiguous(x.dtype(), x.sizes()))
}

fn cubed(x: &Tensor) -> Result<Tensor> {
    Tensor::from_vec(x.to_vec::<f32>()?.into_iter().map(|x| x * x * x).collect(), x.sizes())
}

/// An operator `NAMESPACE::cube`, and a counter of calls of its kernel.
pub(crate) fn cube(namespace: &str) -> Result<(Library, Arc<AtomicUsize>)> {
    let n_calls = Arc::new(AtomicUsize::new(0));
    let mut library = Library::def_block(namespace)?;
    library.def("cube(Tensor x) -> Tensor")?;
    let counter = n_calls.clone();
    library.impl_for(&format!("{namespace}::cube"), DispatchKey::CPU, move |x: &Tensor| {
        counter.fetch_add(1, Ordering::Relaxed);
        cubed(x)
    })?;
    library.impl_for(&format!("{namespace}::cube"), DispatchKey::Meta, |x: &Tensor| like(x))?;
    Ok((library, n_calls))
}

pub(crate) fn x() -> Result<Tensor> {
    Tensor::from_slice(&[0.5f32, -1.0, 2.0, 0.25, 3.0, -0.0], &[2, 3])
}

#[test]
fn a_call_is_one_node_between_fused_parts() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let (_library, n_calls) = cube("opaque_one")?;
    let line = line!() + 1;
    let f = |x: &Tensor| one("opaque_one::cube", &x.add(1.0)?.relu()?)?.mul(2.0)?.exp();
    let compiled = compile(f);
    let expected = bits(&f(&x()?)?)?;
    for _ in 0..3 {
        assert_eq!(bits(&compiled.call(&x()?)?)?, expected);
    }
    assert_eq!(n_calls.load(Ordering::Relaxed), 4, "once a call");
    let report = compiled.explain();
    assert!(report.eager.is_none(), "{report}");
    assert_eq!((compiled.counts().hits, compiled.counts().deferred, compiled.counts().eager), (2, 0, 0));
    let [called] = &report.calls[..] else { panic!("{report}") };
    assert_eq!((called.operator.as_str(), called.reason.kind()), ("opaque_one::cube", "opaque_call"));
    assert_eq!((called.before.kernels_after, report.kernels_after), (1, 1), "{report}");
    assert_eq!(called.results, [TensorType::contiguous(DType::F32, &[2, 3])]);
    assert_eq!(called.place.as_ref().map(|place| (&*place.file, place.line)), Some((file!(), line)));
    let text = report.to_string();
    assert!(text.contains("calls opaque_one::cube -> f32[2,3] at "), "{text}");
    assert!(report.to_json().contains("\"operator\": \"opaque_one::cube\""));
    // Another layout is another program: the kernel sees what it sees in an eager call.
    let turned = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?.t()?;
    for _ in 0..2 {
        assert_eq!(bits(&compiled.call(&turned)?)?, bits(&f(&turned)?)?);
    }
    Ok(())
}

#[test]
fn layouts_of_operands_and_results_are_those_of_eager_calls() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let mut library = Library::def_block("opaque_layouts")?;
    library.def("show(Tensor x, Tensor[] more, Tensor? none=None, int[] at=[], float eps=0.5) -> Tensor")?;
    let kernel = |x: &Tensor, more: &[Tensor], none: Option<&Tensor>, at: &[i64], eps: f64| -> Result<Tensor> {
        let mut seen: Vec<f64> = vec![eps, at.len() as f64, f64::from(u8::from(none.is_some()))];
        for tensor in std::iter::once(x).chain(more) {
            seen.extend(tensor.sizes().iter().chain(tensor.strides()).map(|&size| size as f64));
            seen.push(f64::from(u8::from(tensor.is_contiguous())));
        }
        seen.resize(40, 0.0);
        Tensor::from_vec(seen, &[4, 10])?.t()
    };
    library.impl_for("opaque_layouts::show", DispatchKey::CPU, kernel)?;
    library.impl_for(
        "opaque_layouts::show",
        DispatchKey::Meta,
        |_: &Tensor, _: &[Tensor], _: Option<&Tensor>, _: &[i64], _: f64| {
            Tensor::meta(&TensorType::contiguous(DType::F64, &[4, 10]))?.t()
        },
    )?;
    let f = |x: &Tensor| -> Result<Vec<Tensor>> {
        let y = x.add(1.0)?;
        let more = vec![y.t()?, y.unsqueeze(0)?, x.clone(), y.expand([2, 2, 3])?, y.select(0, 1)?];
        let arguments = vec![
            Value::Tensor(y.mul(2.0)?),
            Value::TensorList(more),
            Value::None,
            Value::IntList(smallvec::smallvec![1, 2]),
            Value::Float(0.25),
        ];
        let shown = call("opaque_layouts::show", arguments)?.remove(0);
        Ok(vec![shown.add(y.sum_all()?)?, shown, y])
    };
    let compiled = compile(f);
    for x in [x()?, Tensor::from_slice(&[1.0f32; 6], &[3, 2])?.t()?] {
        for _ in 0..3 {
            for (found, expected) in compiled.call(&x)?.iter().zip(f(&x)?) {
                assert_eq!(bits(found)?, bits(&expected)?);
                assert_eq!(found.strides(), expected.strides());
            }
        }
    }
    assert_eq!(compiled.explain().calls.len(), 1, "{}", compiled.explain());
    Ok(())
}

#[test]
fn several_results_and_several_calls() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let mut library = Library::def_block("opaque_several")?;
    library.def("halves(Tensor x) -> (Tensor low, Tensor high)")?;
    library.def("rows(Tensor x) -> Tensor[]")?;
    library.impl_for("opaque_several::halves", DispatchKey::CPU, |x: &Tensor| -> Result<(Tensor, Tensor)> {
        Ok((x.floor()?, x.ceil()?))
    })?;
    library.impl_for("opaque_several::halves", DispatchKey::Meta, |x: &Tensor| -> Result<(Tensor, Tensor)> {
        Ok((like(x)?, like(x)?))
    })?;
    let rows = |x: &Tensor| -> Result<Vec<Tensor>> { (0..2).map(|row| x.select(0, row)?.copy()).collect() };
    library.impl_for("opaque_several::rows", DispatchKey::CPU, rows)?;
    library.impl_for("opaque_several::rows", DispatchKey::Meta, |x: &Tensor| -> Result<Vec<Tensor>> {
        let ty = TensorType::contiguous(x.dtype(), &x.sizes()[1..]);
        (0..2).map(|_| Tensor::meta(&ty)).collect()
    })?;
    let f = |x: &Tensor| -> Result<Vec<Tensor>> {
        let y = x.mul(1.5)?;
        let pair = call("opaque_several::halves", vec![Value::Tensor(y.clone())])?;
        let rows = call("opaque_several::rows", vec![Value::Tensor(pair[1].sub(&pair[0])?.add(&y)?)])?;
        let last = call("opaque_several::halves", vec![Value::Tensor(rows[1].mul(&rows[0])?)])?;
        Ok(vec![last[0].add(&y)?, pair[0].clone(), rows[0].clone(), last[1].exp()?, y])
    };
    let compiled = compile(f);
    for _ in 0..3 {
        for (found, expected) in compiled.call(&x()?)?.iter().zip(f(&x()?)?) {
            assert_eq!(bits(found)?, bits(&expected)?);
        }
    }
    assert_eq!(compiled.explain().calls.len(), 3, "{}", compiled.explain());
    assert_eq!(compiled.counts().hits, 2);
    Ok(())
}

#[test]
fn writes_to_results_and_operands_change_what_they_change_eagerly() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let (_library, _) = cube("opaque_writes")?;
    let f = |x: &Tensor, state: &Tensor| -> Result<Vec<Tensor>> {
        let y = x.add(1.0)?;
        let z = one("opaque_writes::cube", &y)?;
        y.mul_(3.0)?;
        state.add_(&z)?;
        z.add_(&y)?;
        let w = one("opaque_writes::cube", state)?;
        state.zero_()?;
        Ok(vec![y, z, w])
    };
    let compiled = compile(f);
    let (state, twin) = (x()?, x()?);
    for call in 0..3 {
        let (found, expected) = (compiled.call((&x()?, &state))?, f(&x()?, &twin)?);
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(bits(found)?, bits(expected)?, "call {call}");
        }
        assert_eq!(bits(&state)?, bits(&twin)?);
        state.add_(2.0)?;
        twin.add_(2.0)?;
        // Results are tensors of their own.
        found[1].add_(100.0)?;
        expected[1].add_(100.0)?;
        assert_eq!(bits(&found[0])?, bits(&expected[0])?);
        assert_eq!(bits(&found[2])?, bits(&expected[2])?);
    }
    assert_eq!(compiled.explain().calls.len(), 2, "{}", compiled.explain());
    Ok(())
}

#[test]
fn old_values_that_a_call_reads_are_written_elsewhere() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let (_library, _) = cube("opaque_swaps")?;
    let f = |x: &Tensor, y: &Tensor| -> Result<Vec<Tensor>> {
        // A view of an input, and a copy that passes may remove, are computed for the call and used after it.
        let (turned, copied) = (x.t()?, y.copy()?);
        let [z, w] = [one("opaque_swaps::cube", &turned)?, one("opaque_swaps::cube", &copied)?];
        x.copy_(&copied)?;
        y.copy_(&turned)?;
        Ok(vec![z, w, copied, turned])
    };
    let compiled = compile(f);
    let squares = || -> Result<[Tensor; 2]> {
        let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
        Ok([x.add(0.5)?, x])
    };
    let ([x, y], [v, w]) = (squares()?, squares()?);
    for call in 0..4 {
        let (found, expected) = (compiled.call((&x, &y))?, f(&v, &w)?);
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(bits(found)?, bits(expected)?, "result {at} of call {call}");
        }
        assert_eq!([bits(&x)?, bits(&y)?], [bits(&v)?, bits(&w)?], "call {call}");
    }
    Ok(())
}

#[test]
fn unused_calls_are_made_and_draws_keep_their_order() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let (_library, n_calls) = cube("opaque_draws")?;
    let mut drawing = Library::def_block("opaque_drawing")?;
    drawing.def("noisy(Tensor x) -> Tensor")?;
    drawing.impl_for("opaque_drawing::noisy", DispatchKey::CPU, |x: &Tensor| x.add(x.rand_like()?))?;
    drawing.impl_for("opaque_drawing::noisy", DispatchKey::Meta, |x: &Tensor| like(x))?;
    let f = |x: &Tensor| -> Result<Vec<Tensor>> {
        let first = x.rand_like()?;
        one("opaque_draws::cube", &first)?;
        let noisy = one("opaque_drawing::noisy", &first.add(x)?)?;
        Ok(vec![noisy, x.rand_like()?, first])
    };
    let compiled = compile(f);
    for seed in 0..3 {
        manual_seed(seed);
        let expected = f(&x()?)?;
        manual_seed(seed);
        for (found, expected) in compiled.call(&x()?)?.iter().zip(&expected) {
            assert_eq!(bits(found)?, bits(expected)?);
        }
    }
    assert_eq!(n_calls.load(Ordering::Relaxed), 6);
    assert_eq!(compiled.explain().calls.len(), 2, "{}", compiled.explain());
    Ok(())
}

#[test]
fn errors_of_kernels_come_out_and_nothing_is_poisoned() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let mut library = Library::def_block("opaque_errors")?;
    library.def("positive(Tensor x) -> Tensor")?;
    library.impl_for("opaque_errors::positive", DispatchKey::CPU, |x: &Tensor| -> Result<Tensor> {
        match x.to_vec::<f32>()?.iter().find(|x| **x < 0.0) {
            Some(found) => Err(Error::argument("positive", format!("{found} is negative"))),
            None => x.sqrt(),
        }
    })?;
    library.impl_for("opaque_errors::positive", DispatchKey::Meta, |x: &Tensor| like(x))?;
    let f = |x: &Tensor, state: &Tensor| -> Result<Tensor> {
        state.add_(1.0)?;
        let y = one("opaque_errors::positive", &x.mul(2.0)?)?;
        state.mul_(2.0)?;
        Ok(y)
    };
    let compiled = compile(f);
    let (state, twin) = (x()?, x()?);
    let good = x()?.square()?;
    for x in [&good, &good, &x()?, &good, &x()?] {
        let (found, expected) = (compiled.call((x, &state)), f(x, &twin));
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(bits(&found)?, bits(&expected)?),
            (Err(found), Err(expected)) => {
                let (found, expected) = (found.to_string(), expected.to_string());
                assert!(found.starts_with(&expected), "{found}");
                assert!(found[expected.len()..].starts_with(&format!(" (recorded at {}:", file!())), "{found}");
                assert!(found.ends_with(", as part of opaque_errors::positive)"), "{found}");
            }
            (found, expected) => panic!("{found:?} {expected:?}"),
        }
        assert_eq!(bits(&state)?, bits(&twin)?);
    }
    assert_eq!(compiled.explain().calls.len(), 1, "{}", compiled.explain());
    Ok(())
}

#[test]
fn a_kernel_may_call_operators_and_compiled_functions() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let mut library = Library::def_block("opaque_inner")?;
    library.def("norm(Tensor x) -> Tensor")?;
    let inner = compile(|x: &Tensor| x.sub(x.mean_all()?)?.div(x.square()?.sum_all()?.sqrt()?));
    library.impl_for("opaque_inner::norm", DispatchKey::CPU, move |x: &Tensor| inner.call(x)?.softmax(-1))?;
    library.impl_for("opaque_inner::norm", DispatchKey::Meta, |x: &Tensor| like(x))?;
    let f = |x: &Tensor| one("opaque_inner::norm", &x.matmul(&x.t()?)?)?.matmul(x)?.tanh();
    let compiled = compile(f);
    for _ in 0..3 {
        assert_eq!(bits(&compiled.call(&x()?)?)?, bits(&f(&x()?)?)?);
    }
    assert_eq!(compiled.explain().calls.len(), 1, "{}", compiled.explain());
    Ok(())
}

#[test]
fn registrations_that_change_are_seen() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let mut library = Library::def_block("opaque_changing")?;
    library.def("scale(Tensor x) -> Tensor")?;
    library.impl_for("opaque_changing::scale", DispatchKey::CPU, |x: &Tensor| x.mul(2.0))?;
    library.impl_for("opaque_changing::scale", DispatchKey::Meta, |x: &Tensor| like(x))?;
    let f = |x: &Tensor| one("opaque_changing::scale", &x.add(1.0)?)?.exp();
    let compiled = compile(f);
    let check = || -> Result<()> {
        for _ in 0..2 {
            assert_eq!(bits(&compiled.call(&x()?)?)?, bits(&f(&x()?)?)?);
        }
        Ok(())
    };
    check()?;
    {
        let mut other = Library::impl_block("opaque_changing", DispatchKey::CPU)?;
        other.impl_("scale", |x: &Tensor| x.mul(5.0))?;
        check()?;
        assert_eq!(compiled.explain().calls.len(), 1);
    }
    check()?;
    // A decomposition takes part in fusion.
    {
        let mut body = Library::impl_block("opaque_changing", DispatchKey::Tracer)?;
        body.impl_("scale", |x: &Tensor| x.mul(2.0))?;
        check()?;
        assert_eq!((compiled.explain().calls.len(), compiled.explain().kernels_after), (0, 1));
    }
    check()?;
    assert_eq!(compiled.explain().calls.len(), 1);
    drop(library);
    let gone = [compiled.call(&x()?), f(&x()?)].map(|y| y.expect_err("the operator is gone").to_string());
    assert_eq!(gone[0], gone[1]);
    Ok(())
}

#[test]
fn mapped_calls_are_made_per_slice() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let (_library, _) = cube("opaque_mapped")?;
    let f = |x: &Tensor| vmap(|row: &Tensor| one("opaque_mapped::cube", &row.add(1.0)?)?.exp()).call(x);
    let compiled = compile(f);
    for _ in 0..3 {
        assert_eq!(bits(&compiled.call(&x()?)?)?, bits(&f(&x()?)?)?);
    }
    Ok(())
}

#[test]
fn kernels_that_break_their_word_run_eagerly() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let mut library = Library::def_block("opaque_liars")?;
    library.def("same(Tensor x) -> Tensor")?;
    library.def("other(Tensor x) -> Tensor")?;
    library.def("writes(Tensor x) -> Tensor")?;
    library.impl_for("opaque_liars::same", DispatchKey::CPU, |x: &Tensor| Ok::<_, Error>(x.clone()))?;
    library.impl_for("opaque_liars::other", DispatchKey::CPU, |x: &Tensor| x.sum_all())?;
    library.impl_for("opaque_liars::writes", DispatchKey::CPU, |x: &Tensor| {
        x.add_(1.0)?;
        x.mul(2.0)
    })?;
    for name in ["same", "other", "writes"] {
        library.impl_for(&format!("opaque_liars::{name}"), DispatchKey::Meta, |x: &Tensor| like(x))?;
    }
    for name in ["opaque_liars::same", "opaque_liars::other"] {
        let f = |x: &Tensor| -> Result<Vec<Tensor>> {
            let y = x.add(1.0)?;
            let z = one(name, &y)?;
            y.mul_(2.0)?;
            Ok(vec![z.add(&y)?, z, y])
        };
        let compiled = compile(f);
        for _ in 0..4 {
            for (found, expected) in compiled.call(&x()?)?.iter().zip(f(&x()?)?) {
                assert_eq!(bits(found)?, bits(&expected)?, "{name}");
            }
        }
        let reason = compiled.explain().eager.expect("it is refused");
        assert_eq!(reason.kind(), "other_than_declared");
    }
    let compiled = compile(|x: &Tensor| one("opaque_liars::writes", &x.add(1.0)?));
    compiled.call(&x()?)?;
    let refused = compiled.call(&x()?).map(|_| ());
    if let Err(error) = refused {
        assert!(error.to_string().contains("writes to its operand 0"), "{error}");
    }
    assert_eq!(bits(&compiled.call(&x()?)?)?, bits(&x()?.add(2.0)?.mul(2.0)?)?);
    Ok(())
}

#[test]
fn operators_that_declare_aliases_or_no_shapes_run_between_segments() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let mut library = Library::def_block("opaque_segments")?;
    library.def("twice_(Tensor(a!) x) -> Tensor(a!)")?;
    library.def("blind(Tensor x) -> Tensor")?;
    library.impl_for("opaque_segments::twice_", DispatchKey::CPU, |x: &Tensor| {
        x.mul_(2.0)?;
        Ok::<_, Error>(x.clone())
    })?;
    library.impl_for("opaque_segments::blind", DispatchKey::CPU, cubed)?;
    let f = |x: &Tensor| {
        let y = x.add(1.0)?;
        one("opaque_segments::twice_", &y)?;
        one("opaque_segments::blind", &y)?.exp()
    };
    let compiled = compile(f);
    for _ in 0..3 {
        assert_eq!(bits(&compiled.call(&x()?)?)?, bits(&f(&x()?)?)?);
    }
    assert!(compiled.counts().deferred > 0);
    assert!(compiled.breaks().iter().all(|known| known.reason.kind() == "no_decomposition"), "{:?}", compiled.breaks());
    Ok(())
}

#[test]
fn reads_beside_calls_still_run_in_segments() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let (_library, _) = cube("opaque_reads")?;
    let f = |x: &Tensor| {
        let y = one("opaque_reads::cube", &x.add(1.0)?)?;
        match y.sum_all()?.item::<f32>()? > 0.0 {
            true => y.exp(),
            false => y.neg(),
        }
    };
    let compiled = compile(f);
    for x in [x()?, x()?, x()?.sub(9.0)?, x()?] {
        assert_eq!(bits(&compiled.call(&x)?)?, bits(&f(&x)?)?);
    }
    assert!(compiled.counts().deferred > 0);
    Ok(())
}

#[test]
fn threads_share_a_program_with_calls() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let (_library, n_calls) = cube("opaque_threads")?;
    let f = |x: &Tensor| one("opaque_threads::cube", &x.add(1.0)?)?.sum_all();
    let compiled = compile(f);
    let inputs: Vec<Tensor> = (0..4).map(|i| x()?.add(f64::from(i))).collect::<Result<_>>()?;
    let expected: Vec<_> = inputs.iter().map(|x| bits(&f(x)?)).collect::<Result<_>>()?;
    compiled.call(&inputs[0])?;
    let before = n_calls.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let run = |at: usize| {
            for _ in 0..50 {
                assert_eq!(compiled.call(&inputs[at]).and_then(|y| bits(&y)), Ok(expected[at].clone()));
            }
        };
        let threads: Vec<_> = (0..4).map(|at| scope.spawn(move || run(at))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no thread fails"));
    });
    assert_eq!(n_calls.load(Ordering::Relaxed) - before, 200);
    Ok(())
}

#[test]
fn checked_functions_and_empty_tensors() -> Result<()> {
    if has_run_alone() {
        return Ok(());
    }
    let (_library, _) = cube("opaque_checked")?;
    let options = CompileOptions { determinism: Determinism::Checked, ..CompileOptions::default() };
    let f = |x: &Tensor| one("opaque_checked::cube", &x.add(1.0)?)?.exp();
    let compiled = compile_with(f, options);
    for x in [x()?, x()?, Tensor::zeros(&[0, 3], DType::F32)?, Tensor::zeros(&[], DType::F32)?, x()?] {
        for _ in 0..2 {
            assert_eq!(bits(&compiled.call(&x)?)?, bits(&f(&x)?)?);
        }
    }
    assert!(compiled.explain().eager.is_none(), "{}", compiled.explain());
    Ok(())
}
