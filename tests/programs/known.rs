//! Differences that are meant, and classes of failures that are open.
//!
//! What is meant stands in [`is_documented`], which the comparison asks. What is open stands in [`KNOWN`]. A row is for
//! one class, and matches shrunk programs as narrowly as it can; a class that is mended loses its row.

use super::compare::Difference;
use super::program::{After, Arg, Case, Feed, Given, Guard, Place, Role, Statement};
use super::shrink::made;
use super::traits::{are_near, has, has_captured_leaf, has_overlap, has_result_of_captured_alone, uses, writes};
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
        name: "A4: plain numbers as inputs, and captured ones",
        matches: |case, _| {
            let mut given = case.calls.iter().chain([&case.captured]).flat_map(|call| &call.given);
            given.any(|given| matches!(given.place, Place::Number(_)))
        },
    },
    Known {
        name: "A1: results that depend on captured tensors alone lose their gradients from the second call on",
        matches: |case, found| {
            let is_lost = found.kind == "requires grad" && found.eager == "true" || found.place.contains("gradient");
            // Only some of its results depend on its first argument.
            let is_partial = uses(case, "native_layer_norm_backward")
                || uses(case, "broadcast_tensors")
                || uses(case, "native_batch_norm_backward")
                || writes(case);
            found.call > 0 && is_lost && has_captured_leaf(case) && (is_partial || has_result_of_captured_alone(case))
        },
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
        name: "B1: a declared input was not handed in",
        matches: |_, found| found.compiled.contains("a declared input was not handed in"),
    },
    Known {
        name: "B2: a captured tensor that is written counts as modified in backward",
        matches: |_, found| found.compiled.contains("has been modified by an inplace operation"),
    },
    Known { name: "data() in a trace", matches: |case, _| uses(case, "x.data") },
    Known {
        name: "handles of inputs and results are others in segments",
        matches: |_, found| found.kind == "identity" && found.compiled == "none",
    },
    Known {
        name: "B5: strides of a written part of a computed value",
        matches: |case, found| found.kind.starts_with("strides") && writes(case),
    },
    Known {
        name: "B6 and orders of accumulation: gradients differ by rounding",
        matches: |case, found| {
            let is_gradient = found.place.contains("gradient") && found.kind == "bits";
            let n_given = case.n_inputs() + case.captured.given.len();
            let returns_given = case.body.results.iter().any(|&var| var < n_given);
            is_gradient && case.settings.after != After::Nothing && (returns_given || are_near(found))
        },
    },
    Known {
        name: "requires_grad that is set inside",
        matches: |case, found| {
            has(&case.body, &|s| matches!(s, Statement::RequireGrad { .. }))
                && (found.kind == "requires grad" || found.compiled.contains("requires_grad flags"))
        },
    },
    Known { name: "A11: writes to inputs that overlap", matches: |case, _| writes(case) && has_overlap(case) },
    Known {
        name: "B5: results without elements share storage with inputs",
        matches: |_, found| found.kind == "aliases" && found.eager == "[]",
    },
    Known {
        name: "A5: versions in inference mode",
        matches: |case, found| {
            let is_inference = |s: &Statement| matches!(s, Statement::Open { kind: Guard::Inference, .. });
            found.kind == "version" && has(&case.body, &is_inference)
        },
    },
    Known {
        name: "the derivative of a write to a captured tensor with history is missing",
        matches: |case, found| {
            let has_history = |given: &Given| matches!(given.role, Role::Computed | Role::View);
            let is_nested = has(&case.body, &|s| matches!(s, Statement::Nested { .. }));
            is_nested && found.place.contains("gradient of leaf") && writes(case)
                || found.place.contains("gradient of leaf of captured")
                    && writes(case)
                    && case.captured.given.iter().any(has_history)
        },
    },
    Known {
        name: "B4: errors of values that are not used, or are overwritten",
        matches: |_, found| {
            found.kind == "outcome" && found.eager.starts_with("error") && !found.compiled.starts_with("error")
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
        name: "a leaf's view that is written without gradients",
        matches: |case, found| {
            let is_quiet = |s: &Statement| matches!(s, Statement::Open { kind: Guard::NoGrad, .. });
            let is_known = found.place.contains("gradient") || found.kind == "requires grad";
            let is_around = case.settings.around.contains(&Some(Guard::NoGrad));
            is_known && writes(case) && (is_around || has(&case.body, &is_quiet))
        },
    },
    Known {
        name: "leaf flags that are set inside",
        matches: |case, found| has(&case.body, &|s| matches!(s, Statement::RequireGrad { .. })) && found.kind == "leaf",
    },
    Known {
        name: "gradients accumulated in inference mode",
        matches: |_, found| found.compiled.contains("Inplace update to inference tensor outside InferenceMode"),
    },
    Known {
        name: "versions and draws of tensors without elements",
        matches: |case, found| {
            let is_empty = case.calls.iter().flat_map(|call| &call.given).any(|given| given.sizes.contains(&0));
            is_empty && ["version", "draws", "aliases"].contains(&found.kind)
        },
    },
    Known {
        name: "captured tensors that share memory",
        matches: |case, found| {
            let memories = || case.captured.given.iter().filter(|given| matches!(given.place, Place::Memory(_)));
            let places: BTreeSet<usize> = case
                .captured
                .given
                .iter()
                .filter_map(|given| match given.place {
                    Place::Memory(index) => Some(index),
                    Place::Input(_) | Place::Captured(_) | Place::Number(_) => None,
                })
                .collect();
            let is_lost = found.kind == "bits" && writes(case) || found.kind == "aliases";
            is_lost && places.len() < memories().count()
        },
    },
    Known {
        name: "A12: bools of other bytes",
        matches: |case, _| uses(case, "view_copy.dtype") || uses(case, "view.dtype"),
    },
    Known {
        name: "A11: writes to views that overlap",
        matches: |case, found| found.kind == "bits" && writes(case) && (uses(case, "unfold") || uses(case, "expand")),
    },
    Known {
        name: "C2: panics of backward operators that are called directly",
        matches: |case, found| found.kind == "panic" && uses(case, "_backward"),
    },
    Known {
        name: "captured tensors that are written with values that require gradients, or lose them",
        matches: |case, found| {
            let is_gradient =
                found.place.contains("backward") || found.place.contains("gradient") || found.kind == "requires grad";
            let is_nested = has(&case.body, &|s| matches!(s, Statement::Nested { .. }));
            let is_known = is_gradient
                || found.compiled.contains("a tensor that a trace made")
                || found.compiled.contains("through the graph a second time");
            is_known && writes(case) && (is_nested || !case.captured.given.is_empty())
        },
    },
    Known {
        name: "A3: results that share storage across detach and writes",
        matches: |case, found| found.kind == "aliases" && found.compiled == "[]" && writes(case),
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
        name: "second-order gradients are summed and rounded in another order",
        matches: |case, found| {
            found.place.contains("gradient") && found.kind == "bits" && case.settings.after == After::Twice
        },
    },
    Known {
        name: "inference tensors as inputs: saved without need, and written without an error",
        matches: |_, found| {
            found.compiled.contains("an inference tensor cannot be saved for backward")
                || found.eager.contains("Inplace update to inference tensor outside InferenceMode")
        },
    },
    Known {
        name: "A2: writes to views of computed values in inference mode are lost",
        matches: |case, found| {
            let is_inference = |s: &Statement| matches!(s, Statement::Open { kind: Guard::Inference, .. });
            let is_inside = has(&case.body, &is_inference) || case.settings.around.contains(&Some(Guard::Inference));
            found.kind == "bits" && writes(case) && is_inside
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
        name: "a detached alias that is written with what requires gradients",
        matches: |case, found| found.place.contains("gradient") && writes(case) && uses(case, "detach"),
    },
    Known {
        name: "a detached alias that is written: requires_grad",
        matches: |case, found| found.kind == "requires grad" && writes(case) && uses(case, "detach"),
    },
    Known {
        name: "B3: gradients inside are views that may not be written",
        matches: |_, found| found.compiled.contains("a view was created in no_grad mode"),
    },
    Known {
        name: "writes through views of expanded tensors",
        matches: |_, found| found.compiled.contains("its result cannot be written through here"),
    },
    Known {
        name: "second-order gradients that are zero: some or none",
        matches: |case, found| found.kind == "gradient" && case.settings.after == After::Twice,
    },
    Known { name: "A13: as_strided", matches: |case, _| uses(case, "as_strided") },
    Known {
        name: "an input that is written with what requires gradients gets no history",
        matches: |case, found| {
            let is_lost = found.kind == "requires grad" && found.eager == "true" || found.kind == "gradient";
            is_lost && !found.place.starts_with("result") && writes(case)
        },
    },
];

/// Whether a program belongs to a class so common that it hides others; such programs are not made. This is A1.
pub(crate) fn is_avoided(case: &Case) -> bool {
    let requires = has(&case.body, &|statement| matches!(statement, Statement::RequireGrad { .. }));
    (has_captured_leaf(case) || requires) && has_result_of_captured_alone(case)
}

/// Takes results of avoided classes out of a program.
pub(crate) fn avoid(case: &mut Case) {
    if !is_avoided(case) {
        return;
    }
    let all = std::mem::take(&mut case.body.results);
    for result in all {
        case.body.results.push(result);
        if has_result_of_captured_alone(case) {
            case.body.results.pop();
        }
    }
    if case.body.results.is_empty() {
        case.body.statements.retain(|statement| *statement != Statement::Drop { of: 0 });
        let mut vars = BTreeSet::new();
        made(&case.body, &mut vars);
        let out = vars.last().map_or(case.n_inputs() + case.captured.given.len(), |last| last + 1);
        let args = vec![Arg::Tensor(0), Arg::None];
        case.body.statements.push(Statement::Call { outs: vec![out], name: "aten::clone".into(), args });
        case.body.results.push(out);
    }
}

/// The open class of a failure.
pub(crate) fn known(case: &Case, found: &Difference) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.matches)(case, found)).map(|known| known.name)
}
