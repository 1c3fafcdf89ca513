//! The copies that a call of a program makes besides its kernels.
//!
//! They are known when a graph is built: the new values of inputs that no kernel writes in place, and results that
//! would share memory although the function keeps them apart.

use super::explain::{CopyReason, CopyReport};
use super::pipeline::Built;
use super::separation::Separation;

/// The inputs that are overwritten after a run, whose new values are the outputs from `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Writes<'a> {
    pub(super) inputs: &'a [usize],
    pub(super) first: usize,
}

/// The copies of a run, in the order in which it makes them.
pub(super) fn copies(built: &Built, separation: &Separation, writes: Writes<'_>) -> Vec<CopyReport> {
    let graph = &built.graph;
    let apart = separation.groups().map(|outputs| {
        // One output is copied alone, several with all of the memory that they share.
        let value = match *outputs {
            [output] => graph.outputs()[output],
            _ => graph.view_base(graph.outputs()[outputs[0]]),
        };
        let bytes = graph[value].ty.bytes();
        CopyReport { value, reason: CopyReason::KeptApart, bytes_read: bytes, bytes_written: bytes }
    });
    let is_copied = |(_, input): &(usize, &usize)| !built.executable.rewritten().contains(input);
    let back = writes.inputs.iter().enumerate().filter(is_copied).map(|(index, &input)| {
        let value = graph.outputs()[writes.first + index];
        let bytes = graph[value].ty.bytes();
        CopyReport { value, reason: CopyReason::WrittenBack { input }, bytes_read: bytes, bytes_written: bytes }
    });
    apart.chain(back).collect()
}
