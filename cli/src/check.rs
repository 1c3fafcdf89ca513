//! `opfuse check`: a program against recorded arrays.

use crate::{Fallible, Outcome, data};
use indicatif::ProgressBar;
use opfuse::autograd::no_grad;
use opfuse::exported::Program;
use opfuse::{DType, StateDict, Tensor};
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program.
    model: PathBuf,
    /// Recorded arrays: `0.in.0`, `0.in.1`, …, `0.out.0`, …, `1.in.0`, …. The first number is that of the call.
    /// `0.grad.NAME` is the gradient, by the parameter of that name, of the sum of the cubes of the first output.
    #[arg(long)]
    data: PathBuf,
    /// The largest error that passes, relative to the largest element of the output. By default 1e-4 for f32 and f64,
    /// and 0.02 for f16 and bf16.
    #[arg(long)]
    tolerance: Option<f64>,
}

/// What was found of an output, or of a gradient.
struct Found {
    /// What was compared.
    what: String,
    /// The largest difference.
    error: f64,
    /// The same relative to the largest element.
    relative: f64,
    /// The same in units of the last place of each element.
    ulps: f64,
    has_same_bits: bool,
    /// Why it does not pass.
    fault: Option<String>,
}

pub(crate) fn run(arguments: &Arguments, json: bool) -> Fallible<Outcome> {
    let all = opfuse::load(&arguments.data)?;
    // Each has the state of its own calls.
    let (eager, compiled) = (Program::load(&arguments.model)?, Program::load(&arguments.model)?);
    let calls: Vec<usize> = (0..).take_while(|call| all.contains_key(&format!("{call}.out.0"))).collect();
    if calls.is_empty() {
        return Err(format!("{}: it has no array 0.out.0", arguments.data.display()).into());
    }
    let (mut passed, mut failed, mut rows) = (0, 0, Vec::new());
    let progress = ProgressBar::new(calls.len() as u64);
    for call in calls {
        let outcome = outputs(&eager, &compiled, &all, call, arguments.tolerance).and_then(|mut found| {
            found.extend(gradients(&arguments.model, &all, call, arguments.tolerance)?);
            Ok(found)
        });
        match &outcome {
            Ok(found) if found.iter().all(|found| found.fault.is_none()) => passed += 1,
            Ok(_) | Err(_) => failed += 1,
        }
        if json {
            rows.push(row(call, &outcome));
        } else {
            progress.suspend(|| print(call, &outcome));
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    if json {
        println!("{:#}", json!({"calls": rows, "passed": passed, "failed": failed}));
    } else {
        println!("check: {passed} passed, {failed} failed");
    }
    Ok(if failed == 0 { Outcome::Fine } else { Outcome::Different })
}

fn print(call: usize, outcome: &Fallible<Vec<Found>>) {
    match outcome {
        Err(error) => println!("call {call}: FAILED: {error}"),
        Ok(found) => {
            for Found { what, error, relative, ulps, has_same_bits, fault } in found {
                let bits = if *has_same_bits { "compiled bits = eager bits" } else { "compiled bits differ" };
                let verdict = fault.as_ref().map_or("ok".to_owned(), |fault| format!("FAILED: {fault}"));
                println!(
                    "call {call} {what}: error {error:.3e}, relative {relative:.3e}, {ulps:.0} ulp, {bits}: {verdict}"
                );
            }
        }
    }
}

fn row(call: usize, outcome: &Fallible<Vec<Found>>) -> serde_json::Value {
    match outcome {
        Err(error) => json!({"call": call, "error": error.to_string()}),
        Ok(found) => {
            let outputs: Vec<_> = found
                .iter()
                .map(|found| {
                    json!({
                        "what": found.what, "error": found.error, "relative": found.relative, "ulps": found.ulps,
                        "same_bits": found.has_same_bits, "fault": found.fault,
                    })
                })
                .collect();
            json!({"call": call, "outputs": outputs})
        }
    }
}

/// Runs one recorded call, eagerly and compiled.
fn outputs(
    eager: &Program,
    compiled: &Program,
    all: &StateDict,
    call: usize,
    tolerance: Option<f64>,
) -> Fallible<Vec<Found>> {
    let _unrecorded = no_grad();
    // A program may write to its inputs, so each run has its own.
    let inputs = || data::writable(data::fitted(eager, data::recorded(all, call, "in"))?);
    let wanted = data::recorded(all, call, "out");
    let (found, again) = (eager.call_eager(&inputs()?)?, compiled.call(&inputs()?)?);
    if found.len() != wanted.len() {
        return Err(format!("the program has {} outputs, and {} were recorded", found.len(), wanted.len()).into());
    }
    let triples = found.iter().zip(&again).zip(&wanted).enumerate();
    let compared = triples.map(|(at, ((found, again), wanted))| {
        let largest = largest(wanted)?;
        Ok(Found { what: format!("output {at}"), ..compare(found, again, wanted, largest, tolerance)? })
    });
    compared.collect()
}

/// Gradients of the sum of the cubes of the first output, where a file has them.
///
/// A gradient that cancels has the error of those that do not, so all are relative to the largest.
fn gradients(model: &Path, all: &StateDict, call: usize, tolerance: Option<f64>) -> Fallible<Vec<Found>> {
    let prefix = format!("{call}.grad.");
    let wanted: Vec<(&str, &Tensor)> =
        all.iter().filter_map(|(name, array)| Some((name.strip_prefix(&prefix)?, array))).collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let mut largest_of_all = 0.0;
    for (_, wanted) in &wanted {
        largest_of_all = largest(wanted)?.max(largest_of_all);
    }
    let mut of_runs = Vec::new();
    for run in [Program::call_eager, Program::call] {
        let program = Program::load(model)?;
        let outputs = run(&program, &data::writable(data::fitted(&program, data::recorded(all, call, "in"))?)?)?;
        let first = outputs.first().ok_or("the program has no output")?;
        first.pow(3.0)?.sum_all()?.backward()?;
        of_runs.push(program);
    }
    let gradient = |program: &Program, name: &str| -> Fallible<Tensor> {
        let parameter = program.state().get(name).ok_or_else(|| format!("no parameter is {name}"))?;
        Ok(parameter.grad().ok_or_else(|| format!("{name} has no gradient"))?)
    };
    let compared = wanted.into_iter().map(|(name, wanted)| {
        let [found, again] = [&of_runs[0], &of_runs[1]].map(|program| gradient(program, name));
        let found = compare(&found?, &again?, wanted, largest_of_all, tolerance)?;
        Ok(Found { what: format!("gradient of {name}"), ..found })
    });
    compared.collect()
}

/// The largest finite magnitude.
fn largest(x: &Tensor) -> Fallible<f64> {
    Ok(values(x)?.iter().filter(|x| x.is_finite()).fold(0.0, |largest: f64, x| largest.max(x.abs())))
}

/// Compares a tensor with the recorded one. Errors are relative to `largest`.
fn compare(found: &Tensor, again: &Tensor, wanted: &Tensor, largest: f64, tolerance: Option<f64>) -> Fallible<Found> {
    let has_same_bits = bits(found)? == bits(again)? && found.sizes() == again.sizes();
    if found.sizes() != wanted.sizes() {
        let fault = Some(format!("it has sizes {:?}, and {:?} were recorded", found.sizes(), wanted.sizes()));
        let (error, relative, ulps) = (f64::NAN, f64::NAN, f64::NAN);
        return Ok(Found { what: String::new(), error, relative, ulps, has_same_bits, fault });
    }
    let (a, b) = (values(found)?, values(wanted)?);
    let (mut error, mut ulps, mut is_odd) = (0.0f64, 0.0f64, false);
    for (&a, &b) in a.iter().zip(&b) {
        if a == b || a.is_nan() && b.is_nan() {
            continue;
        }
        is_odd |= !(a - b).is_finite();
        error = error.max((a - b).abs());
        ulps = ulps.max((a - b).abs() / unit(b, found.dtype()));
    }
    let relative = if error == 0.0 { 0.0 } else { error / largest };
    let allowed = tolerance.unwrap_or(match found.dtype() {
        DType::F16 | DType::BF16 => 0.02,
        DType::F32 | DType::F64 | DType::Complex64 | DType::Complex128 => 1e-4,
        DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0.0,
    });
    let fault = match () {
        () if is_odd => Some("a NaN or an infinity is not where it was recorded".to_owned()),
        () if relative.is_nan() || relative > allowed => Some(format!("the relative error is above {allowed:e}")),
        () if !has_same_bits => Some("compiled and eager bits differ".to_owned()),
        () => None,
    };
    Ok(Found { what: String::new(), error, relative, ulps, has_same_bits, fault })
}

/// The distance between numbers of a dtype near `x`.
fn unit(x: f64, dtype: DType) -> f64 {
    let (digits, least) = match dtype {
        DType::F16 => (10, -24),
        DType::BF16 => (7, -133),
        DType::F32 | DType::Complex64 => (23, -149),
        DType::F64 | DType::Complex128 => (52, -1074),
        DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => return 1.0,
    };
    let exponent = if x == 0.0 { least } else { x.abs().log2().floor() as i32 - digits };
    2f64.powi(exponent.max(least))
}

/// The parts of complex numbers. A real tensor is itself.
fn real(x: &Tensor) -> opfuse::Result<Tensor> {
    if x.is_complex() { x.view_as_real() } else { Ok(x.clone()) }
}

fn values(x: &Tensor) -> opfuse::Result<Vec<f64>> {
    real(x)?.to_dtype(DType::F64)?.contiguous()?.to_vec::<f64>()
}

/// The elements without a conversion, so that NaNs and negative zeros count.
fn bits(x: &Tensor) -> opfuse::Result<Vec<u64>> {
    let x = real(x)?.contiguous()?;
    Ok(match x.dtype() {
        DType::F64 => x.to_vec::<f64>()?.into_iter().map(f64::to_bits).collect(),
        DType::F32 => x.to_vec::<f32>()?.into_iter().map(|x| x.to_bits().into()).collect(),
        DType::F16 => x.to_vec::<opfuse::f16>()?.into_iter().map(|x| x.to_bits().into()).collect(),
        DType::BF16 => x.to_vec::<opfuse::bf16>()?.into_iter().map(|x| x.to_bits().into()).collect(),
        DType::Bool
        | DType::U8
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::Complex64
        | DType::Complex128 => x.to_dtype(DType::I64)?.to_vec::<i64>()?.into_iter().map(|x| x as u64).collect(),
    })
}
