//! Tensors that come in by name: arguments of a call, and the state of a program.

use crate::dispatch::key::grad_mode::no_grad;
use crate::error::{Error, Result};
use crate::formats::StateDict;
use std::collections::BTreeSet;

/// Compares the names of tensors with those that are wanted.
///
/// # Errors
/// Which names are missing or unknown.
pub(super) fn compare_names(op: &str, wanted: &[&str], found: &StateDict) -> Result<()> {
    let known: BTreeSet<&str> = wanted.iter().copied().collect();
    let missing: Vec<&str> = wanted.iter().filter(|name| !found.contains_key(**name)).copied().collect();
    let unknown: Vec<&str> = found.keys().map(String::as_str).filter(|name| !known.contains(name)).collect();
    let parts = [("missing", missing), ("unknown", unknown)];
    let listed: Vec<String> = parts
        .iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(kind, names)| format!("{} {kind}: {}", names.len(), names.join(", ")))
        .collect();
    if listed.is_empty() { Ok(()) } else { Err(Error::argument(op, listed.join("; "))) }
}

/// Copies the tensors of `from` into those of the same names.
///
/// # Errors
/// If names, dtypes or sizes differ. Nothing is copied then.
pub(super) fn load(own: &StateDict, from: &StateDict) -> Result<()> {
    let names: Vec<&str> = own.keys().map(String::as_str).collect();
    compare_names("load_state", &names, from)?;
    let pairs = || own.iter().filter_map(|(name, own)| from.get(name).map(|new| (name, own, new)));
    let other: Vec<String> = pairs()
        .filter(|(_, own, new)| (own.dtype(), own.sizes()) != (new.dtype(), new.sizes()))
        .map(|(name, own, new)| {
            format!("{name} is {}{:?} instead of {}{:?}", new.dtype(), new.sizes(), own.dtype(), own.sizes())
        })
        .collect();
    if !other.is_empty() {
        return Err(Error::argument("load_state", format!("{} of another type: {}", other.len(), other.join(", "))));
    }
    let _unrecorded = no_grad();
    pairs().try_for_each(|(_, own, new)| own.copy_(new))
}
