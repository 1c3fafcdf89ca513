//! Key set operations against `_keysets.json`.
//!
//! A case gives two lists of key names; what the sets made of them iterate, unite to, and so on is compared key by
//! key. Names are read with the public parser, so a missing key is a failure too.

use opfuse::dispatch::{DispatchKey, KeySet};
use serde_json::Value;
use std::path::Path;

/// Runs every case; returns how many pass, and a line per case that does not.
pub(crate) fn run(folder: &Path) -> (usize, Vec<String>) {
    let path = folder.join("_keysets.json");
    let cases: Value = match std::fs::read_to_string(&path).map(|text| serde_json::from_str(&text)) {
        Ok(Ok(cases)) => cases,
        Ok(Err(error)) => return (0, vec![format!("{}: {error}", path.display())]),
        Err(error) => return (0, vec![format!("{}: {error}", path.display())]),
    };
    let mut passed = 0;
    let mut failures = Vec::new();
    for (number, case) in cases["cases"].as_array().into_iter().flatten().enumerate() {
        match check(case) {
            Ok(()) => passed += 1,
            Err(message) => failures.push(format!("keyset case {number}: {message}")),
        }
    }
    if passed == 0 && failures.is_empty() {
        failures.push(format!("{}: no cases", path.display()));
    }
    (passed, failures)
}

fn check(case: &Value) -> Result<(), String> {
    let a = set_of(&case["a"])?;
    let b = set_of(&case["b"])?;
    expect_keys("iter_a", a, &case["iter_a"])?;
    expect_top("top_a", a, &case["top_a"])?;
    for (name, set) in [("union", a | b), ("intersection", a & b), ("difference", a - b)] {
        expect_keys(name, set, &case[name])?;
        let top = format!("top_{name}");
        expect_top(&top, set, &case[&top])?;
    }
    if let Some(removed) = case["remove"].as_str() {
        expect_keys("after_remove", a.remove(key(removed)?), &case["after_remove"])?;
    }
    if case["equal"].as_bool() != Some(a == b) {
        return Err(format!("equality of {a} and {b} should be {}", case["equal"]));
    }
    for (name, expected) in case["has"].as_object().into_iter().flatten() {
        if expected.as_bool() != Some(a.has(key(name)?)) {
            return Err(format!("{a} has {name} should be {expected}"));
        }
    }
    Ok(())
}

fn key(name: &str) -> Result<DispatchKey, String> {
    name.parse().map_err(|error| format!("{error}"))
}

fn set_of(names: &Value) -> Result<KeySet, String> {
    names.as_array().into_iter().flatten().map(|name| key(name.as_str().unwrap_or_default())).collect()
}

fn expect_keys(what: &str, set: KeySet, expected: &Value) -> Result<(), String> {
    let found: Vec<&str> = set.iter().map(DispatchKey::name).collect();
    let expected: Vec<&str> = expected.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?} instead of {expected:?}")) }
}

fn expect_top(what: &str, set: KeySet, expected: &Value) -> Result<(), String> {
    let found = set.highest();
    if found.slot() != Some(set.slot()) {
        return Err(format!("{what}: slot {} is not that of {found}", set.slot()));
    }
    if expected.as_str() == Some(found.name()) { Ok(()) } else { Err(format!("{what}: {found} instead of {expected}")) }
}
