//! Differences that are meant, and classes of failures that are open.
//!
//! What is meant stands in [`is_documented`], which the comparison asks. What is open stands in [`KNOWN`]. A row is for
//! one class, and matches shrunk programs as narrowly as it can; a class that is mended loses its row.

use super::compare::Difference;
use super::program::Case;
use super::shrink::collect;
use std::collections::BTreeSet;

/// Whether outcomes of a call differ as documented.
pub(crate) fn is_documented(eager: &str, compiled: &str) -> bool {
    // Errors of types are found before errors of values.
    let is_of_values =
        eager.contains("ZeroDivisionError") || eager.contains("out of bounds") || eager.contains("out of range");
    if is_of_values && eager.starts_with("error") && compiled.starts_with("error") {
        return true;
    }
    // A compiled function has something to do.
    eager == "0 results" && compiled.contains("returned no tensors and wrote to none")
}

/// An open class.
pub(crate) struct Known {
    /// What, and where it is written down.
    pub(crate) name: &'static str,
    pub(crate) matches: fn(&Case, &Difference) -> bool,
}

pub(crate) const KNOWN: &[Known] = &[
    Known {
        name: "the strides of a gradient that a leaf takes over, where the function itself runs the backward pass",
        matches: |_, found| found.kind == "strides" && found.place.starts_with("gradient of "),
    },
    Known {
        name: "whether a view is an inference tensor: of a number, or made in a nested mode",
        matches: |_, found| found.kind == "inference",
    },
    Known {
        name: "a captured tensor with overlapping elements, which an input is, too, and which is copied into itself",
        matches: |_, found| found.eager.ends_with(" results") && found.compiled.contains("a single memory location"),
    },
    Known {
        name: "a hook of a captured tensor that is returned, where the function itself runs a backward pass through it",
        matches: |case, found| case.settings.hooks && found.kind == "bits" && has(case, &["Backward", "Grad"]),
    },
    Known {
        name: "requires_grad that the function sets",
        matches: |case, found| {
            has(case, &["RequireGrad"]) && (found.place.contains("gradient") || found.kind == "outcome")
        },
    },
];

/// Whether a program has one of these statements.
fn has(case: &Case, statements: &[&str]) -> bool {
    let mut names = BTreeSet::new();
    collect(&case.body, &mut names);
    statements.iter().any(|statement| names.contains(*statement))
}

/// The open class of a failure.
pub(crate) fn known(case: &Case, found: &Difference) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.matches)(case, found)).map(|known| known.name)
}
