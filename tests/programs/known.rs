//! Differences that are meant, and classes of failures that are open.
//!
//! What is meant stands in [`is_documented`], which the comparison asks. What is open stands in [`KNOWN`]. A row is for
//! one class, and matches shrunk programs as narrowly as it can; a class that is mended loses its row.

use super::compare::Difference;
use super::program::{After, Arg, Block, Case, Given, Guard, Place, Role, Statement, Var};
use super::shrink::made;
use std::collections::BTreeSet;

/// Whether outcomes of a call differ as documented.
pub(crate) fn is_documented(eager: &str, compiled: &str) -> bool {
    // Errors of types are found before errors of values.
    let is_of_values = eager.contains("ZeroDivisionError") || eager.contains("out of bounds");
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
        name: "A1: results that depend on captured tensors alone lose their gradients from the second call on",
        matches: |case, found| {
            let is_lost = found.kind == "requires grad" && found.eager == "true" || found.place.contains("gradient");
            // Only some of its results depend on its first argument.
            let is_partial =
                uses(case, "native_layer_norm_backward") || uses(case, "broadcast_tensors") || writes(case);
            found.call > 0 && is_lost && has_captured_leaf(case) && (is_partial || has_result_of_captured_alone(case))
        },
    },
    Known {
        name: "backward finds no fault with values that were overwritten, or with saved values that were freed",
        matches: |_, found| {
            let is_refused = |part| found.eager.contains(part);
            let refused =
                is_refused("modified by an inplace operation") || is_refused("through the graph a second time");
            found.place == "backward" && refused
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
            is_gradient && case.settings.after != After::Nothing && are_near(found)
        },
    },
    Known {
        name: "requires_grad that is set inside",
        matches: |case, found| {
            has(&case.body, &|s| matches!(s, Statement::RequireGrad { .. })) && found.kind == "requires grad"
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
            found.place.contains("gradient of leaf of captured")
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
            let is_other = |given: &Given| matches!(given.place, Place::Captured(_) | Place::Input(_));
            let is_both = case.calls.iter().flat_map(|call| &call.given).any(is_other);
            is_both && ["bits", "dtype", "gradient", "aliases"].contains(&found.kind)
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
            found.place.contains("gradient of input") && writes(case) && has(&case.body, &is_quiet)
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
            is_lost && places.len() < case.captured.given.len()
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
    Known { name: "C2: _adaptive_avg_pool2d_backward", matches: |case, _| uses(case, "_adaptive_avg_pool2d_backward") },
    Known {
        name: "captured tensors that are written with values that require gradients, or lose them",
        matches: |case, found| {
            let is_gradient = found.place.contains("backward") || found.place.contains("gradient");
            let is_known = is_gradient
                || found.compiled.contains("a tensor that a trace made")
                || found.compiled.contains("through the graph a second time");
            is_known && writes(case) && !case.captured.given.is_empty()
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
        name: "A4: plain numbers as inputs, and captured ones",
        matches: |case, _| {
            let mut given = case.calls.iter().chain([&case.captured]).flat_map(|call| &call.given);
            given.any(|given| matches!(given.place, Place::Number(_)))
        },
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
            found.kind == "bits" && has(&case.body, &twice) && writes(case)
        },
    },
    Known {
        name: "second-order gradients of lower precision",
        matches: |case, found| {
            let is_gradient = found.place.contains("gradient") && found.kind == "bits";
            let text = format!("{case:?}");
            is_gradient && case.settings.after == After::Twice && (text.contains("F16") || text.contains("BF16"))
        },
    },
    Known {
        name: "A2: writes to views of computed values in inference mode are lost",
        matches: |case, found| {
            let is_inference = |s: &Statement| matches!(s, Statement::Open { kind: Guard::Inference, .. });
            found.kind == "bits" && writes(case) && has(&case.body, &is_inference)
        },
    },
    Known { name: "draws after an error of values", matches: |_, found| found.kind == "draws" && found.fails },
    Known {
        name: "captured tensors under an outer inference mode",
        matches: |case, found| {
            found.kind == "requires grad" && case.settings.around.contains(&Some(Guard::Inference)) && found.call > 0
        },
    },
    Known {
        name: "a detached alias that is written with what requires gradients",
        matches: |case, found| found.place.contains("gradient") && writes(case) && uses(case, "detach"),
    },
    Known {
        name: "writes through views of expanded tensors",
        matches: |_, found| found.compiled.contains("its result cannot be written through here"),
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

fn has_captured_leaf(case: &Case) -> bool {
    case.captured.given.iter().any(|given| given.role != Role::Plain)
}

/// Whether a result follows from captured tensors alone.
fn has_result_of_captured_alone(case: &Case) -> bool {
    let mut of_inputs: BTreeSet<Var> = (0..case.n_inputs()).collect();
    spread(&case.body, &mut of_inputs);
    // A captured tensor itself is returned as it is.
    let n_given = case.n_inputs() + case.captured.given.len();
    case.body.results.iter().any(|var| !of_inputs.contains(var) && *var >= n_given)
}

/// Adds what is computed from these variables.
fn spread(block: &Block, of: &mut BTreeSet<Var>) {
    for statement in &block.statements {
        match statement {
            Statement::Nested { params, args, body, outs, .. } => {
                let given = params.iter().zip(args).filter(|(_, arg)| of.contains(arg));
                of.extend(given.map(|(param, _)| *param).collect::<Vec<Var>>());
                spread(body, of);
                let found = outs.iter().zip(&body.results).filter(|(_, result)| of.contains(result));
                of.extend(found.map(|(out, _)| *out).collect::<Vec<Var>>());
            }
            Statement::Branch { then, otherwise, outs, .. } => {
                spread(then, of);
                spread(otherwise, of);
                let both = then.results.iter().zip(&otherwise.results);
                let found = outs.iter().zip(both).filter(|(_, (one, other))| of.contains(one) && of.contains(other));
                of.extend(found.map(|(out, _)| *out).collect::<Vec<Var>>());
            }
            other => {
                // `x.expand_as(y)` does not depend on the elements of `y`.
                let is_like = match other {
                    Statement::Call { name, .. } => name.contains("_as"),
                    Statement::Method { method, .. } => method.text.contains("_as("),
                    _ => false,
                };
                let n_uses = if is_like { 1 } else { usize::MAX };
                if other.clone().uses_mut().into_iter().take(n_uses).any(|var| of.contains(var)) {
                    of.extend(other.outs());
                }
            }
        }
    }
}

/// Whether some statement fits, inside blocks too.
fn has(block: &Block, fits: &dyn Fn(&Statement) -> bool) -> bool {
    let mut statements = block.statements.iter();
    statements.any(|statement| fits(statement) || statement.blocks().into_iter().any(|block| has(block, fits)))
}

/// Whether an operator or a method with that in its name is called.
fn uses(case: &Case, part: &str) -> bool {
    has(&case.body, &|statement| match statement {
        Statement::Call { name, .. } => name.contains(part),
        Statement::Method { method, .. } => method.text.replace(' ', "").contains(part),
        _ => false,
    })
}

fn writes(case: &Case) -> bool {
    has(&case.body, &|statement| match statement {
        Statement::Call { name, .. } => {
            let short = name.split('.').next().unwrap_or_default();
            short.ends_with('_') || name.contains("out")
        }
        Statement::Method { method, .. } => method.writes,
        _ => false,
    })
}

/// Whether two elements of a given tensor share memory.
fn has_overlap(case: &Case) -> bool {
    case.calls.iter().chain([&case.captured]).flat_map(|call| &call.given).any(|given| {
        let mut places = vec![0];
        for (&size, &stride) in given.sizes.iter().zip(&given.strides) {
            places = places.iter().flat_map(|at| (0..size).map(move |index| at + index * stride)).collect();
        }
        let count = places.len();
        places.sort_unstable();
        places.dedup();
        places.len() < count
    })
}

/// Whether floats differ by rounding alone, relative to the largest one.
fn are_near(found: &Difference) -> bool {
    let numbers = |text: &str| -> Option<Vec<f64>> {
        let bits = text.split(' ').map(|bits| u64::from_str_radix(bits, 16).ok()).collect::<Option<Vec<u64>>>()?;
        let is_wide = bits.iter().any(|&bits| bits > u64::from(u32::MAX));
        Some(
            bits.iter()
                .map(|&b| if is_wide { f64::from_bits(b) } else { f64::from(f32::from_bits(b as u32)) })
                .collect(),
        )
    };
    let (Some(eager), Some(compiled)) = (numbers(&found.eager), numbers(&found.compiled)) else { return false };
    let largest = eager.iter().filter(|number| number.is_finite()).fold(1e-3f64, |most, number| most.max(number.abs()));
    eager.len() == compiled.len()
        && eager.iter().zip(&compiled).all(|(x, y)| x.to_bits() == y.to_bits() || (x - y).abs() <= 1e-4 * largest)
}

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
