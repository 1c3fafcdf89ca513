//! The same calls as mapped functions: `vmap` over two slices gives what two calls give.
//!
//! One slice has the arguments of the case, the other the same tensors with their elements in reverse order. All tensor
//! arguments are mapped, then the first alone, then all but the first. Sums may run in another order (a matrix product
//! becomes a batched one), so results are compared by a tolerance of their dtype and size. What cannot be mapped is
//! counted under its reason.

use super::call::{Outcome, arguments, call, flattened, operator};
use super::case::{Case, Expected, Output};
use super::report::Tally;
use super::tensors::Store;
use crate::panics::message;
use opfuse::dispatch::{Operator, Stack, Value};
use opfuse::internals::transforms::vmap::slow_calls;
use opfuse::{DType, Error, Randomness, Tensor, stack, vmap};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Runs the cases of a folder; prints the counts and the ops that ran slice by slice, and returns what differed.
pub(crate) fn run(folder: &Path) -> Result<Vec<String>, String> {
    opfuse::dispatch::load().map_err(|error| error.to_string())?;
    let wanted = std::env::var("OPFUSE_GOLDEN_OPS").ok();
    let wanted: Option<Vec<&str>> = wanted.as_ref().map(|names| names.split(',').map(str::trim).collect());
    let ops = super::operators(folder, wanted.as_deref())?;
    let next = std::sync::atomic::AtomicUsize::new(0);
    let done = std::sync::Mutex::new((Tally::default(), Vec::new(), BTreeSet::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let (mut tally, mut failures) = (Tally::default(), Vec::new());
                while let Some((op, _)) = ops.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    if let Err(what) = run_file(folder, op, &mut tally, &mut failures) {
                        failures.push(format!("{op}: {what}"));
                    }
                }
                let mut done = done.lock().expect("no panic inside");
                done.0.add(&tally);
                done.1.extend(failures);
                done.2.extend(slow_calls().into_iter().map(|(reason, _)| reason.to_string()));
            });
        }
    });
    let (tally, failures, slow) = done.into_inner().expect("no panic inside");
    slow.iter().for_each(|reason| println!("{reason}"));
    println!("golden mapped: {tally}");
    Ok(failures)
}

fn run_file(folder: &Path, op: &str, tally: &mut Tally, failures: &mut Vec<String>) -> Result<(), String> {
    let bytes = std::fs::read(folder.join(format!("{op}.safetensors"))).map_err(|error| error.to_string())?;
    let store = Store::new(&bytes)?;
    let cases = super::json(&folder.join(format!("{op}.json")))?;
    for json in cases.as_array().ok_or("the file holds no list of cases")? {
        let case = Case::parse(json)?;
        for which in [Mapped::All, Mapped::First, Mapped::Others] {
            let checked = catch_unwind(AssertUnwindSafe(|| check(&case, &store, which)));
            match checked.unwrap_or_else(|panic| Err(differs(message(&*panic)))) {
                Ok(()) => tally.done += 1,
                Err(Problem::NotDone(reason)) => tally.not_done(&reason),
                Err(Problem::Differs(what)) => failures.push(format!("{} {which:?} [{}]: {what}", case.id, case.tag)),
            }
        }
    }
    Ok(())
}

/// Which tensor arguments are mapped.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mapped {
    All,
    First,
    Others,
}

enum Problem {
    NotDone(String),
    Differs(String),
}

fn not_done<T>(reason: &str) -> Result<T, Problem> {
    Err(Problem::NotDone(reason.into()))
}

fn differs<E: ToString>(what: E) -> Problem {
    Problem::Differs(what.to_string())
}

fn check(case: &Case, store: &Store<'_>, which: Mapped) -> Result<(), Problem> {
    let Expected::Outputs(outputs, _) = &case.expected else { return not_done("an error is expected") };
    let Some(operator) = operator(case) else { return not_done("no operator") };
    let Ok(template) = arguments(case, &operator, store) else { return not_done("the schema has other arguments") };
    if ["aten::as_strided", "aten::as_strided_scatter"].contains(&&*case.operator) {
        return not_done("it reads memory beyond its operand");
    }
    let given: Vec<Tensor> = template.iter().flat_map(Value::tensors).cloned().collect();
    let is_mapped = |(index, tensor): (usize, &Tensor)| {
        tensor.as_number().is_none()
            && match which {
                Mapped::All => true,
                Mapped::First => index == 0,
                Mapped::Others => index != 0,
            }
    };
    let mapped: Vec<bool> = given.iter().enumerate().map(is_mapped).collect();
    if !mapped.contains(&true) || (which != Mapped::All && given.len() < 2) {
        return not_done("no other tensor to map");
    }
    let undefined = |output: &Output| matches!(output, Output::Tensor(tensor) if tensor.values.is_none());
    if outputs.iter().any(|output| matches!(output, Output::Host(_)) || undefined(output)) {
        return not_done("the results are host values, random or undefined");
    }
    // The other slice of every tensor, then both as one.
    let other = |(tensor, &mapped): (&Tensor, &bool)| if mapped { reversed(tensor) } else { Ok(tensor.clone()) };
    let others = given.iter().zip(&mapped).map(other).collect::<opfuse::Result<Vec<_>>>().map_err(differs)?;
    let mut expected = Vec::new();
    for slice in [&given, &others] {
        // Copies, for calls that write.
        let slice = slice.iter().map(copied).collect::<opfuse::Result<Vec<_>>>().map_err(differs)?;
        match call(&operator, with_tensors(&template, &slice)) {
            Outcome::Returned(values) => expected.push(tensors_of(&values)),
            Outcome::Failed(_) => return not_done("a slice of reversed elements is refused"),
            Outcome::Panicked(what) => return Err(differs(what)),
        }
    }
    let differ = |(a, b): (&Tensor, &Tensor)| a.sizes() != b.sizes();
    let of_data = expected[0].len() != expected[1].len() || expected[0].iter().zip(&expected[1]).any(differ);
    let dim = if which == Mapped::All { 0 } else { -1 };
    let both = given.iter().zip(&others).zip(&mapped);
    let both = both.map(|((a, b), &mapped)| if mapped { stack(&[a, b], dim) } else { copied(a) });
    let both = both.collect::<opfuse::Result<Vec<_>>>().map_err(differs)?;
    let in_dims: Vec<Option<i64>> = mapped.iter().map(|&mapped| mapped.then_some(dim)).collect();
    let found = map(&operator, &template, &both, in_dims);
    let found = match found {
        Err(error) if ["inside vmap", "has no batching rule"].iter().any(|text| error.to_string().contains(text)) => {
            return not_done(&format!("refused: {error}"));
        }
        Err(_) if of_data => return not_done("the size of the result depends on data"),
        found => found.map_err(differs)?,
    };
    if found.len() != expected[0].len() {
        return Err(differs(format!("{} results, not {}", found.len(), expected[0].len())));
    }
    for (index, found) in found.iter().enumerate() {
        for (slice, expected) in expected.iter().enumerate() {
            let part = found.select(0, slice as i64).map_err(differs)?;
            near(&part, &expected[index])
                .map_err(|what| differs(format!("output {index} of slice {slice}: {what}")))?;
        }
    }
    Ok(())
}

fn map(
    operator: &Operator,
    template: &Stack,
    both: &[Tensor],
    in_dims: Vec<Option<i64>>,
) -> opfuse::Result<Vec<Tensor>> {
    let function = |slices: &[Tensor]| {
        let mut stack = with_tensors(template, slices);
        operator.call_boxed(&mut stack)?;
        Ok::<_, Error>(tensors_of(&flattened(stack)))
    };
    vmap(function).in_dims(in_dims).randomness(Randomness::Different).call(both)
}

/// The tensors among results; absent ones are left out.
fn tensors_of(values: &[Value]) -> Vec<Tensor> {
    values.iter().flat_map(Value::tensors).cloned().collect()
}

fn with_tensors(template: &Stack, tensors: &[Tensor]) -> Stack {
    let mut stack = template.clone();
    stack.iter_mut().flat_map(Value::tensors_mut).zip(tensors).for_each(|(place, tensor)| *place = tensor.clone());
    stack
}

/// A copy of the tensor, unless it is a plain number.
fn copied(tensor: &Tensor) -> opfuse::Result<Tensor> {
    if tensor.as_number().is_some() { Ok(tensor.clone()) } else { tensor.copy() }
}

/// The same elements in reverse order.
fn reversed(tensor: &Tensor) -> opfuse::Result<Tensor> {
    let count = tensor.numel() as i64;
    let backwards = Tensor::arange(count - 1, -1, -1)?;
    tensor.reshape(count)?.index_select(0, &backwards)?.view(tensor.sizes())
}

fn near(found: &Tensor, expected: &Tensor) -> Result<(), String> {
    if (found.dtype(), found.sizes()) != (expected.dtype(), expected.sizes()) {
        let (dtype, sizes) = (expected.dtype(), expected.sizes());
        return Err(format!("{} of {:?}, not {dtype} of {sizes:?}", found.dtype(), found.sizes()));
    }
    let tolerance = match found.dtype() {
        DType::F16 => 5e-3,
        DType::BF16 => 4e-2,
        DType::F32 => 1e-4,
        DType::Complex64 | DType::Complex128 => unreachable!("no case is complex"),
        DType::F64 => 1e-9,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::Bool => 0.0,
    };
    let read = |tensor: &Tensor| tensor.to_dtype(DType::F64)?.to_vec::<f64>();
    let (found, expected) = (read(found).map_err(|e| e.to_string())?, read(expected).map_err(|e| e.to_string())?);
    let scale = expected.iter().filter(|x| x.is_finite()).fold(1.0f64, |most, x| most.max(x.abs()));
    let is_near = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * scale;
    match found.iter().zip(&expected).position(|pair| !is_near(pair)) {
        None => Ok(()),
        Some(at) => Err(format!("{} at element {at}, not {}", found[at], expected[at])),
    }
}
