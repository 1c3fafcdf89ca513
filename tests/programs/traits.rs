//! What can be said of a program without running it.

use super::program::{Block, Case, Statement};

/// Whether some statement fits, inside blocks too.
pub(crate) fn has(block: &Block, fits: &dyn Fn(&Statement) -> bool) -> bool {
    let mut statements = block.statements.iter();
    statements.any(|statement| fits(statement) || statement.blocks().into_iter().any(|block| has(block, fits)))
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
