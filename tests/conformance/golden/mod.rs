//! Single operator calls against golden data.
//!
//! `tests/golden` holds, per operator, calls with their arguments and the reference's results. `SCHEMA.md` there
//! describes the format. Each case is called through the boxed dispatcher and compared whole: values, dtypes, sizes,
//! strides, aliasing, storage after a write, class of an error, gradients. Then it is called as a compiled function,
//! which must give the bits of the eager call on every tier.
//!
//! `OPFUSE_GOLDEN` names another folder of that format, `OPFUSE_GOLDEN_OPS=add,mul` some of its operators,
//! `OPFUSE_GOLDEN_TIERS=vm` some tiers (`none` for none), `OPFUSE_GOLDEN_LISTED=n` how many failures are listed.

mod call;
mod case;
mod compare;
mod compiled;
mod gradients;
mod inventory;
pub(crate) mod mapped;
mod report;
mod tensors;

use call::Outcome;
use case::{After, ArgKind, Case, Expected};
use opfuse::Error;
use opfuse::compile::Stance;
use opfuse::internals::codegen::tier::Tier;
use report::{OpReport, Report, Tally, Verdict};
use serde_json::Value as Json;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tensors::Store;

/// Runs the cases of a folder, or of those of its operators that the environment names, and prints the counts.
///
/// A failure is always an error. So is a skip, unless the folder is not our own and the operator is not of the first
/// tier.
pub(crate) fn run(folder: &Path, own: bool) -> Result<(), String> {
    opfuse::dispatch::load().map_err(|error| error.to_string())?;
    let wanted = std::env::var("OPFUSE_GOLDEN_OPS").ok();
    let wanted: Option<Vec<&str>> = wanted.as_ref().map(|names| names.split(',').map(str::trim).collect());
    let ops = operators(folder, wanted.as_deref())?;
    let report = Report { ops: run_all(folder, &ops, &tiers()?) };
    report.print(std::env::var("OPFUSE_GOLDEN_LISTED").ok().and_then(|number| number.parse().ok()));
    let mut complaints = report.complaints(|op| !own && op.tier != "T1");
    let manifest = json(&folder.join("manifest.json"))?;
    complaints.extend(inventory::missing(folder, &manifest, &report, wanted.is_none()));
    if complaints.is_empty() { Ok(()) } else { Err(format!("{} complaints: {}", complaints.len(), complaints[0])) }
}

/// Names and tiers of the folder's operators.
fn operators(folder: &Path, wanted: Option<&[&str]>) -> Result<Vec<(String, String)>, String> {
    let manifest = json(&folder.join("manifest.json"))?;
    let ops = manifest["ops"].as_object().ok_or("manifest.json names no ops")?;
    let tier = |op: &Json| op["tier"].as_str().unwrap_or("without tier").to_string();
    if let Some(unknown) = wanted.into_iter().flatten().find(|&&name| !ops.contains_key(name)) {
        return Err(format!("{} has no operator {unknown:?}", folder.display()));
    }
    let chosen = ops.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted.contains(&name.as_str())));
    let chosen: Vec<_> = chosen.map(|(name, op)| (name.clone(), tier(op))).collect();
    if chosen.is_empty() { Err(format!("{} has no operators", folder.display())) } else { Ok(chosen) }
}

/// The tiers to compile on.
fn tiers() -> Result<Vec<Tier>, String> {
    let Ok(names) = std::env::var("OPFUSE_GOLDEN_TIERS") else { return Ok(Tier::ALL.to_vec()) };
    let names = names.split(',').map(str::trim).filter(|&name| name != "none");
    names.map(|name| Tier::from_name(name).ok_or_else(|| format!("there is no tier {name:?}"))).collect()
}

/// Runs all operators on as many threads as there are cores; reports come in the order of `ops`.
fn run_all(folder: &Path, ops: &[(String, String)], tiers: &[Tier]) -> Vec<OpReport> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, OpReport)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((op, tier)) = ops.get(index) else { return };
                    let report = run_op(folder, op, tier, tiers);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((index, report));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, report)| report).collect()
}

fn run_op(folder: &Path, op: &str, tier: &str, tiers: &[Tier]) -> OpReport {
    // Deferred calls run the same kernels, so one tier shows what they do.
    let deferred = tiers.first().map(|&tier| (tier, Stance::Deferred));
    let modes = tiers.iter().map(|&tier| (tier, Stance::Default)).chain(deferred);
    let mut report = OpReport {
        op: op.into(),
        tier: tier.into(),
        passed: 0,
        failures: Vec::new(),
        skips: Vec::new(),
        faults: Vec::new(),
        with_grads: 0,
        errors: 0,
        gradients: Tally::default(),
        compiled: modes.map(|mode| (mode, Tally::default())).collect(),
    };
    if let Err(what) = run_file(folder, op, &mut report) {
        report.failures.push(format!("{op}: {what}"));
    }
    report
}

fn run_file(folder: &Path, op: &str, report: &mut OpReport) -> Result<(), String> {
    let cases = json(&folder.join(format!("{op}.json")))?;
    let bytes = std::fs::read(folder.join(format!("{op}.safetensors"))).map_err(|error| error.to_string())?;
    let store = Store::new(&bytes)?;
    let cases = cases.as_array().ok_or("the file holds no list of cases")?;
    for json in cases {
        let case = match Case::parse(json) {
            Ok(case) => case,
            Err(what) => {
                report.failures.push(what);
                continue;
            }
        };
        report.with_grads += usize::from(case.grads.is_some());
        report.errors += usize::from(matches!(case.expected, Expected::Error(_)));
        let verdict = catch_unwind(AssertUnwindSafe(|| check(&case, &store, report)));
        match verdict
            .unwrap_or_else(|panic| Verdict::Failed(vec![format!("panicked: {}", crate::panics::message(&*panic))]))
        {
            Verdict::Passed => report.passed += 1,
            Verdict::Skipped(reason) => report.skips.push((case.id, reason)),
            Verdict::Faulty(fault) => report.faults.push((case.id, fault)),
            Verdict::Failed(differences) => {
                let Case { id, operator, tag, .. } = &case;
                report.failures.push(format!("{id} {operator} [{tag}]: {}", differences.join("; ")));
            }
        }
    }
    if cases.is_empty() { Err("there are no cases".into()) } else { Ok(()) }
}

/// Operators whose reference does not write an `out` of some layouts, so that the data is the old memory.
const LEFT_UNWRITTEN: [&str; 1] = ["aten::gelu.out"];

/// Operators that refuse by design what the reference accepts, and the reason; see `tests/dispatch/deviations.md`.
const REFUSED: [(&str, &str); 1] = [("aten::resize_", "the shape of a tensor never changes")];

/// Whether the data shows that the reference did not write its result, so that there is nothing to compare with.
fn is_unwritten(case: &Case, store: &Store<'_>) -> bool {
    let Expected::Outputs(_, after) = &case.expected else { return false };
    let unwritten = |after: &After| {
        let before = case.args.iter().find(|arg| arg.name == after.name).map(|arg| &arg.kind);
        matches!(before, Some(ArgKind::Tensor(window)) if store.bytes(&window.key) == store.bytes(&after.key))
    };
    LEFT_UNWRITTEN.contains(&case.operator.as_str()) && after.iter().any(unwritten)
}

/// Runs one case and compares everything it records.
fn check(case: &Case, store: &Store<'_>, report: &mut OpReport) -> Verdict {
    if is_unwritten(case, store) {
        return Verdict::Faulty("the reference left its out unwritten".into());
    }
    let Some(operator) = call::operator(case) else {
        return Verdict::Skipped("no operator".into());
    };
    let arguments = match call::arguments(case, &operator, store) {
        Ok(arguments) => arguments,
        Err(what) => return Verdict::Failed(vec![format!("arguments: {what}")]),
    };
    let outcome = call::call(&operator, arguments.clone());
    let refused = REFUSED.iter().find(|(operator, _)| *operator == case.operator);
    if let (Some((_, why)), Outcome::Failed(Error::NotImplemented { .. })) = (refused, &outcome) {
        return Verdict::Skipped((*why).into());
    }
    let mut differences = match (&outcome, &case.expected) {
        (Outcome::Panicked(message), _) => vec![format!("panicked: {message}")],
        (Outcome::Failed(error), Expected::Error(class)) => compare::error(error, *class).into_iter().collect(),
        (Outcome::Failed(error), Expected::Outputs(..)) => vec![format!("failed: {error}")],
        (Outcome::Returned(_), Expected::Error(class)) => vec![format!("an error of class {class:?} is missing")],
        (Outcome::Returned(found), Expected::Outputs(outputs, after)) => {
            let mut differences = compare::outputs(case, found, outputs, &arguments, store);
            differences.extend(compare::after(case, after, &arguments, store));
            differences
        }
    };
    match &case.grads {
        Some(grads) => {
            report.gradients.done += 1;
            differences.extend(gradients::check(case, grads, &operator, store));
        }
        None if case.no_gradient => report.gradients.not_done("the reference refuses"),
        None => {}
    }
    for (mode, tally) in &mut report.compiled {
        differences.extend(compiled::check(case, &operator, store, (&outcome, &arguments), *mode, tally));
    }
    if differences.is_empty() { Verdict::Passed } else { Verdict::Failed(differences) }
}

fn json(path: &Path) -> Result<Json, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}
