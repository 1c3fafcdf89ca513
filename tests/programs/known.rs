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
        name: "a gradient that is returned, and another one of the same value that is kept",
        matches: |_, found| found.kind == "bits" && found.place.contains("result"),
    },
    Known {
        name: "a gradient of zeros, after a write that severs a history: some or none",
        matches: |_, found| {
            found.place.contains("gradient") && found.kind == "dtype" || found.place.starts_with("clearing")
        },
    },
    Known {
        name: "a view of other elements, of strides that only the compiled call has",
        matches: |_, found| found.compiled.contains("different element sizes"),
    },
    Known {
        name: "a zero divisor that the compiled call does not find",
        matches: |_, found| found.eager.contains("ZeroDivisionError"),
    },
    Known {
        name: "memory that is larger in the compiled call than in the eager one",
        matches: |_, found| found.eager.contains("out of bounds for storage"),
    },
];

/// The open class of a failure.
pub(crate) fn known(case: &Case, found: &Difference) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.matches)(case, found)).map(|known| known.name)
}
