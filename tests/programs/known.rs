//! Differences that are meant, and classes of failures that are open.
//!
//! What is meant stands in [`is_documented`], which the comparison asks. What is open stands in [`KNOWN`]. A row is for
//! one class, and matches shrunk programs as narrowly as it can; a class that is mended loses its row.

use super::compare::Difference;
use super::program::{After, Case, Feed, Given, Guard, Place, Statement};
use super::traits::{has, uses, writes};

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
        name: "strides of dims of size 1 of a view that was written",
        matches: |case, found| found.kind == "strides of one" && writes(case),
    },
    Known {
        name: "backward finds no fault with what was overwritten or freed, or frees more",
        matches: |case, found| {
            let refused = |text: &str| {
                text.contains("modified by an inplace operation") || text.contains("through the graph a second time")
            };
            let feeds = case.calls.iter().flat_map(|call| &call.given).any(|given| given.feed != Feed::Fresh);
            found.place == "backward" && (refused(&found.eager) || feeds && refused(&found.compiled))
        },
    },
    Known {
        name: "an input that is a captured tensor too, or another input",
        matches: |case, found| {
            let is_other = |given: &Given| {
                matches!(given.place, Place::Captured(_) | Place::Input(_)) || given.feed != Feed::Fresh
            };
            let is_both = case.calls.iter().flat_map(|call| &call.given).any(is_other);
            is_both && ["bits", "dtype", "gradient", "aliases", "requires grad"].contains(&found.kind)
        },
    },
    Known {
        name: "writes before an error in segments are lost",
        matches: |case, found| {
            let reads = has(&case.body, &|s| matches!(s, Statement::Read { .. }));
            (reads || case.settings.deferred)
                && found.kind == "bits"
                && writes(case)
                && !found.place.starts_with("result")
        },
    },
    Known {
        name: "versions and draws of tensors without elements",
        matches: |case, found| {
            let mut given = case.calls.iter().chain([&case.captured]).flat_map(|call| &call.given);
            let is_empty = given.any(|given| given.sizes.contains(&0));
            is_empty && ["version", "draws", "aliases"].contains(&found.kind)
        },
    },
    Known {
        name: "A12: bools of other bytes",
        matches: |case, _| uses(case, "view_copy.dtype") || uses(case, "view.dtype"),
    },
    Known {
        name: "versions of writes that fail, or change nothing",
        matches: |case, found| found.kind == "version" && writes(case),
    },
    Known {
        name: "writes before an error are lost",
        matches: |case, found| {
            found.kind == "bits" && !found.place.starts_with("result") && writes(case) && found.fails
        },
    },
    Known {
        name: "two gradients of one tensor are one tensor",
        matches: |case, found| {
            let twice = |s: &Statement| matches!(s, Statement::Grad { outs, .. } if outs.len() > 1);
            let is_written = found.kind == "bits" && writes(case);
            has(&case.body, &twice) && (is_written || found.kind == "identity")
        },
    },
    Known {
        name: "inference tensors as inputs: saved without need, and written without an error",
        matches: |_, found| {
            found.compiled.contains("an inference tensor cannot be saved for backward")
                || found.eager.contains("Inplace update to inference tensor outside InferenceMode")
        },
    },
    Known { name: "draws after an error of values", matches: |_, found| found.kind == "draws" && found.fails },
    Known {
        name: "captured tensors under an outer inference mode",
        matches: |case, found| {
            ["requires grad", "bits", "dtype", "gradient"].contains(&found.kind)
                && case.settings.around.contains(&Some(Guard::Inference))
        },
    },
    Known {
        name: "second-order gradients that are zero: some or none",
        matches: |case, found| found.kind == "gradient" && case.settings.after == After::Twice,
    },
    Known {
        name: "as_strided outside a storage that is smaller than in the first call, or beside writes",
        matches: |case, found| {
            uses(case, "as_strided") && (found.kind == "outcome" || found.kind == "bits" && writes(case))
        },
    },
    Known {
        name: "a detached view that is written, and another view of its base",
        matches: |case, found| found.kind == "aliases" && writes(case) && uses(case, "detach"),
    },
    Known {
        name: "a gradient of zeros, after a write that severs a history: some or none",
        matches: |case, found| {
            let is_gradient = found.place.contains("gradient") && (found.kind == "gradient" || found.kind == "dtype");
            is_gradient && writes(case)
        },
    },
    Known {
        name: "second-order gradients after a write to a captured tensor",
        matches: |case, found| {
            found.compiled.contains("modified by an inplace operation") && case.settings.after == After::Twice
        },
    },
    Known {
        name: "gradients inside that are recorded, or written to",
        matches: |case, found| {
            let is_told = found.compiled.contains("without data from outside")
                || found.compiled.contains("a view was created in no_grad mode");
            is_told && has(&case.body, &|s| matches!(s, Statement::Grad { .. }))
        },
    },
    Known {
        name: "which of two errors is told",
        matches: |_, found| {
            found.kind == "outcome" && found.eager.starts_with("error") && found.compiled.starts_with("error")
        },
    },
    Known {
        name: "a view that an earlier call made without gradients is written",
        matches: |_, found| found.eager.contains("a view was created in no_grad mode"),
    },
    Known {
        name: "requires_grad of an input that is set inside",
        matches: |case, found| {
            let is_seen = ["outcome", "requires grad"].contains(&found.kind);
            is_seen && has(&case.body, &|s| matches!(s, Statement::RequireGrad { .. }))
        },
    },
    Known {
        name: "backward after a backward inside, through a history that a write ended",
        matches: |case, found| {
            let is_backward = has(&case.body, &|s| matches!(s, Statement::Backward { .. }));
            is_backward && found.place == "backward" && found.compiled.contains("through the graph a second time")
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
        name: "gradients of what a captured view was made from, after a write without gradients",
        matches: |case, found| {
            let has_guard = has(&case.body, &|s| matches!(s, Statement::Open { .. }));
            found.place.starts_with("gradient of leaf of captured") && found.kind == "bits" && writes(case) && has_guard
        },
    },
];

/// The open class of a failure.
pub(crate) fn known(case: &Case, found: &Difference) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.matches)(case, found)).map(|known| known.name)
}
