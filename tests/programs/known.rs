//! Differences that are meant, and classes of failures that are open.
//!
//! What is meant stands in [`is_documented`], which the comparison asks. What is open stands in [`KNOWN`]. A row is for
//! one class, and matches shrunk programs as narrowly as it can; a class that is mended loses its row.

use super::compare::Difference;
use super::program::{Case, Guard, Statement};
use super::traits::{has, writes};

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
        name: "inference tensors as inputs, and gradients that are inference tensors",
        matches: |case, found| {
            let is_inference = |s: &Statement| matches!(s, Statement::Open { kind: Guard::Inference, .. });
            let is_around = case.settings.around.contains(&Some(Guard::Inference));
            let is_told = found.eager.contains("Inplace update to inference tensor outside InferenceMode");
            is_told || found.kind == "version" && (is_around || has(&case.body, &is_inference))
        },
    },
    Known {
        name: "a gradient of zeros, after a write that severs a history: some or none",
        matches: |case, found| {
            let is_gradient = found.place.contains("gradient") && (found.kind == "gradient" || found.kind == "dtype");
            is_gradient && writes(case)
        },
    },
    Known {
        name: "a gradient of results without elements: zeros or none",
        matches: |_, found| {
            let is_none = |text: &str| text == "Ok(())" || text == "none";
            found.kind == "dtype" && found.place.contains("gradient") && is_none(&found.compiled)
        },
    },
    Known {
        name: "a gradient that is returned, and another one of the same value that is kept",
        matches: |case, found| {
            let is_backward = has(&case.body, &|s| matches!(s, Statement::Backward { .. }));
            let is_gradient = has(&case.body, &|s| matches!(s, Statement::Grad { .. }));
            found.kind == "bits" && found.place.contains("result") && is_backward && is_gradient
        },
    },
    Known {
        name: "a view that an earlier call made without gradients is written",
        matches: |_, found| found.eager.contains("a view was created in no_grad mode"),
    },
    Known {
        name: "gradients of what a captured view was made from, after a write without gradients",
        matches: |case, found| {
            let has_guard = has(&case.body, &|s| matches!(s, Statement::Open { .. }));
            found.place.starts_with("gradient of leaf of captured") && found.kind == "bits" && writes(case) && has_guard
        },
    },
    Known {
        name: "strides of a gradient that is left on a captured tensor",
        matches: |_, found| found.place.starts_with("gradient of captured") && found.kind.starts_with("strides"),
    },
];

/// The open class of a failure.
pub(crate) fn known(case: &Case, found: &Difference) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.matches)(case, found)).map(|known| known.name)
}
