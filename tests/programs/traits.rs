//! What can be said of a program without running it.

use super::compare::Difference;
use super::program::{Block, Case, Role, Statement, Var};
use std::collections::BTreeSet;

/// Whether gradients may flow to captured tensors.
pub(crate) fn has_captured_leaf(case: &Case) -> bool {
    case.captured.given.iter().any(|given| given.role != Role::Plain)
}

/// Whether a result follows from captured tensors alone.
pub(crate) fn has_result_of_captured_alone(case: &Case) -> bool {
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
                    Statement::Call { name, .. } => name.contains("_as") || name.ends_with(".other"),
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
pub(crate) fn has(block: &Block, fits: &dyn Fn(&Statement) -> bool) -> bool {
    let mut statements = block.statements.iter();
    statements.any(|statement| fits(statement) || statement.blocks().into_iter().any(|block| has(block, fits)))
}

/// Whether an operator or a method with that in its name is called.
pub(crate) fn uses(case: &Case, part: &str) -> bool {
    has(&case.body, &|statement| match statement {
        Statement::Call { name, .. } => name.contains(part),
        Statement::Method { method, .. } => method.text.replace(' ', "").contains(part),
        _ => false,
    })
}

/// Whether some statement writes.
pub(crate) fn writes(case: &Case) -> bool {
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
pub(crate) fn has_overlap(case: &Case) -> bool {
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
pub(crate) fn are_near(found: &Difference) -> bool {
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
    let largest = eager.iter().filter(|number| number.is_finite()).fold(0.1f64, |most, number| most.max(number.abs()));
    eager.len() == compiled.len()
        && eager.iter().zip(&compiled).all(|(x, y)| x.to_bits() == y.to_bits() || (x - y).abs() <= 1e-4 * largest)
}
