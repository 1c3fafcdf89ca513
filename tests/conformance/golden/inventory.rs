//! Whether a folder of golden data and a run of it are whole.
//!
//! The manifest says how many operators each tier has, and how many cases, gradients and errors each operator has. All
//! of them must be there and must have been run. So a missing operator, file or entry is detected.

use super::report::{OpReport, Report};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What the manifest lists and the run did not have; `whole` says whether all operators were to run.
pub(super) fn missing(folder: &Path, manifest: &Json, report: &Report, whole: bool) -> Vec<String> {
    let mut lines: Vec<String> = report.ops.iter().filter_map(|op| uncounted(manifest, op)).collect();
    if whole {
        lines.extend(totals(manifest));
        lines.extend(unnamed(folder, manifest));
        let tiers = counted(report.ops.iter().map(|op| &*op.tier));
        lines.extend(differ("operators run of the tiers", &tiers, &numbers(&manifest["tiers"])));
    }
    lines
}

/// How an operator's cases differ in number from what the manifest says.
fn uncounted(manifest: &Json, op: &OpReport) -> Option<String> {
    let entry = &manifest["ops"][&op.op];
    let found = op.passed + op.failures.len() + op.skips.len() + op.faults.len();
    let wrong = |what: &str, found: usize| {
        let expected = entry[what].as_u64();
        (expected != Some(found as u64)).then(|| format!("{}: {found} {what} instead of {expected:?}", op.op))
    };
    wrong("cases", found).or_else(|| wrong("with_grads", op.with_grads)).or_else(|| wrong("errors", op.errors))
}

/// Sums that are not those of the manifest's own entries.
fn totals(manifest: &Json) -> Vec<String> {
    let ops = || manifest["ops"].as_object().into_iter().flatten().map(|(_, op)| op);
    let sum = |field: &str| ops().filter_map(|op| op[field].as_u64()).sum::<u64>();
    let tiers = counted(ops().filter_map(|op| op["tier"].as_str()));
    let fields = ["cases", "with_grads", "errors"].map(|field| (field, sum(field)));
    let wrong = |(field, found): (&str, u64)| {
        let expected = manifest[field].as_u64();
        (expected != Some(found)).then(|| format!("manifest.json: {found} {field} instead of {expected:?}"))
    };
    let operators = [("operators", ops().count() as u64)];
    let mut lines: Vec<String> = fields.into_iter().chain(operators).filter_map(wrong).collect();
    lines.extend(differ("manifest.json: operators of the tiers", &tiers, &numbers(&manifest["tiers"])));
    lines
}

/// Files that the manifest names and the folder lacks, and the other way round.
fn unnamed(folder: &Path, manifest: &Json) -> Vec<String> {
    let names = |list: &Json| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_string())).collect()
    };
    let ops = manifest["ops"].as_object().into_iter().flatten();
    let mut named: BTreeSet<String> = ops.flat_map(|(_, op)| names(&op["files"])).collect();
    named.extend(names(&manifest["extra"]));
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![format!("{} is no folder", folder.display())] };
    let is_data = |name: &String| name.ends_with(".json") || name.ends_with(".safetensors");
    let there = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).filter(is_data);
    let there: BTreeSet<String> = there.filter(|name| name != "manifest.json").collect();
    let differences = named.symmetric_difference(&there);
    differences.map(|name| format!("{name} is in the folder or in its manifest alone")).collect()
}

fn counted<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    names.for_each(|name| *counts.entry(name.to_string()).or_default() += 1);
    counts
}

fn numbers(json: &Json) -> BTreeMap<String, u64> {
    json.as_object().into_iter().flatten().filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect()
}

fn differ(what: &str, found: &BTreeMap<String, u64>, expected: &BTreeMap<String, u64>) -> Option<String> {
    (found != expected).then(|| format!("{what}: {found:?} instead of {expected:?}"))
}
