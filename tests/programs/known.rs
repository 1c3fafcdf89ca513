//! Differences that are meant, and classes of failures that are open.
//!
//! What is meant stands in [`is_documented`], which the comparison asks. What is open stands in [`KNOWN`]. A row is for
//! one class, and matches shrunk programs as narrowly as it can; a class that is mended loses its row.

use super::compare::Difference;
use super::program::Case;

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
        name: "a view of a number that was computed in inference mode",
        matches: |_, found| found.kind == "inference" && found.eager == "true",
    },
    Known {
        name: "a captured tensor with overlapping elements, which an input is, too, and which is copied into itself",
        matches: |_, found| found.eager.ends_with(" results") && found.compiled.contains("a single memory location"),
    },
];

/// The open class of a failure.
pub(crate) fn known(case: &Case, found: &Difference) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.matches)(case, found)).map(|known| known.name)
}
