//! Differences that are meant, and classes of failures that are open.
//!
//! What is meant stands in [`is_documented`], which the comparison asks. What is open stands in [`KNOWN`]. A row is for
//! one class, and matches shrunk programs as narrowly as it can; a class that is mended loses its row.

use super::compare::Difference;
use super::program::{Case, Statement};

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
        name: "a view of another dtype that an operator from outside reads, too, is returned as a copy",
        matches: |case, found| {
            let calls = |part: &str| case.body.statements.iter().any(|statement| statement.calls(part));
            found.kind == "aliases" && calls("programs::") && calls("aten::view.dtype")
        },
    },
    Known {
        name: "a result that saves nothing beside one that does: its second backward pass is refused",
        matches: |case, found| {
            let is_second = found.compiled.contains("backward through the graph a second time");
            found.kind == "outcome"
                && found.place == "backward"
                && found.eager == "none"
                && is_second
                && case.body.statements.iter().any(Statement::is_custom)
        },
    },
    Known {
        name: "the gradient of a captured leaf with overlapping elements, by a function's own derivative: its strides",
        matches: |case, found| {
            found.kind == "strides"
                && found.place.starts_with("gradient of leaf of captured")
                && case.body.statements.iter().any(Statement::is_custom)
        },
    },
];

/// The open class of a failure.
pub(crate) fn known(case: &Case, found: &Difference) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.matches)(case, found)).map(|known| known.name)
}
