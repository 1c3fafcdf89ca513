//! Copies in reports: what a call moves besides its kernels.

use super::Explain;
use crate::fusion::role::Role;
use crate::ir::NodeId;
use std::fmt;

/// A copy that a call makes besides its kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyReport {
    /// The value that is copied.
    pub value: NodeId,
    /// Why it is copied.
    pub reason: CopyReason,
    /// The bytes read.
    pub bytes_read: usize,
    /// The bytes written.
    pub bytes_written: usize,
}

/// Why a value is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyReason {
    /// It is the new value of this input, and no kernel writes it in place.
    WrittenBack {
        /// The position of the input in the graph.
        input: usize,
    },
    /// It would share memory with another result or an input, and the function keeps them apart.
    KeptApart,
}

impl CopyReport {
    /// The bytes read and written.
    pub fn bytes(&self) -> usize {
        self.bytes_read + self.bytes_written
    }
}

impl Explain {
    /// The same report of a program that makes these copies, too.
    #[must_use]
    pub(in crate::compile) fn with_copies(mut self, copies: Vec<CopyReport>) -> Explain {
        self.bytes_after += copies.iter().map(CopyReport::bytes).sum::<usize>();
        // What no op computes is copied by the function itself, as by `copy_`.
        let is_op = |copy: &&CopyReport| self.nodes[self.view_base(copy.value).index()].role == Role::Input;
        self.bytes_before += copies.iter().filter(is_op).map(CopyReport::bytes).sum::<usize>();
        self.copies = copies;
        self
    }

    /// A line for each copy.
    pub(super) fn copies_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.copies.iter().try_for_each(|copy| {
            let CopyReport { value, reason, bytes_read, bytes_written } = copy;
            writeln!(f, "copy of {} reads {bytes_read}, writes {bytes_written} bytes: {reason}", self.name(*value))
        })
    }
}

impl fmt::Display for CopyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyReason::WrittenBack { input } => {
                write!(f, "it is the new value of input {input}, which no kernel writes in place")
            }
            CopyReason::KeptApart => f.write_str("its memory is that of another value, which the function keeps apart"),
        }
    }
}
