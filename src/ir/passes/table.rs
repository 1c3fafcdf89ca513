//! The passes of the compiler, in order.
//!
//! [`PASSES`] is the only list of passes. It drives `compile::pipeline`, the words of `OPFUSE_DUMP`, the messages of
//! the verifier, the times in reports, and the tour. A test compares the list in ARCHITECTURE.md with it. A pass has no
//! options. If it depends on anything but the graph, that is a column of the table.

use super::{
    copy_windows, decompose, eliminate_common, eliminate_dead, fold_constants, index_directly, narrow_products,
    simplify, unroll, unroll_products,
};
use crate::error::{Error, Result};
use crate::ir::graph::Graph;
use crate::ir::verify;

/// What a graph is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// Kernels for the CPU.
    Cpu,
    /// Kernels for a GPU.
    Gpu,
}

/// One pass: a pure function from graph to graph.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// The name of the function.
    pub name: &'static str,
    /// The targets that it runs for.
    pub targets: &'static [Target],
    /// The function. It fails only on a graph that does not verify.
    pub run: fn(&Graph) -> Result<Graph>,
}

const ALL: &[Target] = &[Target::Cpu, Target::Gpu];

/// Every pass, in the order in which they run.
pub static PASSES: &[Pass] = &[
    Pass { name: "decompose", targets: ALL, run: decompose },
    Pass { name: "copy_windows", targets: &[Target::Gpu], run: copy_windows },
    Pass { name: "unroll_products", targets: ALL, run: unroll_products },
    Pass { name: "eliminate_common", targets: ALL, run: |graph| Ok(eliminate_common(graph)) },
    Pass { name: "fold_constants", targets: ALL, run: |graph| Ok(fold_constants(graph)) },
    Pass { name: "simplify", targets: ALL, run: |graph| Ok(simplify(graph)) },
    Pass { name: "index_directly", targets: &[Target::Cpu], run: |graph| Ok(index_directly(graph)) },
    Pass { name: "unroll", targets: ALL, run: unroll },
    Pass { name: "eliminate_dead", targets: ALL, run: |graph| Ok(eliminate_dead(graph)) },
    Pass { name: "narrow_products", targets: &[Target::Gpu], run: |graph| Ok(narrow_products(graph)) },
];

/// The passes that run for a target, in order.
pub fn passes_for(target: Target) -> impl Iterator<Item = &'static Pass> {
    PASSES.iter().filter(move |pass| pass.targets.contains(&target))
}

impl Pass {
    /// Checks every invariant of the graph that this pass made.
    ///
    /// # Errors
    /// The invariant that is broken, with the name of the pass: ``after `simplify`: n5 uses n7, …``.
    pub fn verify(&self, graph: &Graph) -> Result<()> {
        verify(graph).map_err(|error| {
            let message = match error {
                Error::Invalid { message, .. } => message,
                error => error.to_string(),
            };
            Error::invalid("graph", format!("after `{}`: {message}", self.name))
        })
    }
}
