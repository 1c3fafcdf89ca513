//! Differences that are meant, and classes of failures that are open.
//!
//! What is meant stands in [`is_documented`], which the comparison asks. What is open stands in [`KNOWN`]. A row is for
//! one class, and matches shrunk programs as narrowly as it can; a class that is mended loses its row.

use super::compare::Difference;
use super::program::{Case, Statement, Tensors};
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
        name: "the gradient of an input that was copied into itself through a transposed view: its strides",
        matches: |case, found| {
            found.kind == "strides"
                && found.place.starts_with("gradient of")
                && found.place.contains("input")
                && case.body.statements.iter().any(Statement::copies_itself)
        },
    },
    Known {
        name: "a derivative that uses no gradient: a factorization on the way to it, which nothing needs, may fail",
        matches: |case, found| is_missed_backward(case, found) && found.eager.starts_with("error LinearAlgebra"),
    },
    Known {
        name: "a derivative that uses no gradient: one of another shape than the value that was overwritten since",
        matches: |case, found| {
            is_missed_backward(case, found) && found.eager.contains("a gradient has the shape of its value")
        },
    },
    Known {
        name: "a complex product of matrices that is overwritten whole: eager multiplies zeros by what it saved",
        matches: |case, found| {
            let is_complex = case.calls.iter().chain([&case.captured]).any(Tensors::is_complex);
            is_overwritten(case, found) && is_complex && calls(case, &["matmul"])
        },
    },
    Known {
        name: "a value that is overwritten whole: eager sends zeros to what it was, whose signs change on the way",
        matches: |case, found| is_overwritten(case, found) && differs_in_zeros(found),
    },
];

/// Whether a program calls what has one of these parts in its name.
fn calls(case: &Case, parts: &[&str]) -> bool {
    let mut names = BTreeSet::new();
    collect(&case.body, &mut names);
    names.iter().any(|name| parts.iter().any(|part| name.contains(part)))
}

/// Whether gradients have other bits, and a value may be overwritten whole.
fn is_overwritten(case: &Case, found: &Difference) -> bool {
    found.kind == "bits" && found.place.starts_with("gradient of") && calls(case, &["fill_", "copy_", "zero_"])
}

/// Whether bits differ in signs of zeros alone.
fn differs_in_zeros(found: &Difference) -> bool {
    let is_zero = |word: &str| {
        word == "0" || word.strip_prefix('8').is_some_and(|rest| rest.len() >= 3 && rest.bytes().all(|b| b == b'0'))
    };
    let (eager, compiled) = (found.eager.split_whitespace(), found.compiled.split_whitespace());
    eager.clone().count() == compiled.clone().count()
        && eager.zip(compiled).all(|(one, other)| one == other || is_zero(one) && is_zero(other))
}

/// Whether only the eager backward pass fails, and a derivative uses no gradient.
fn is_missed_backward(case: &Case, found: &Difference) -> bool {
    (found.kind, &*found.place, &*found.compiled) == ("outcome", "backward", "none")
        && case.body.statements.iter().any(Statement::uses_no_gradient)
}

/// The open class of a failure.
pub(crate) fn known(case: &Case, found: &Difference) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.matches)(case, found)).map(|known| known.name)
}
