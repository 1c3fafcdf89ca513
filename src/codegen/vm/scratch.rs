//! Memory that a thread keeps between launches: tiles, row buffers, and the lists of a running interpreter.

use super::folds::Feed;
use super::plan::{AccessId, BufferId, FoldId, Line, PlaceId};
use super::routine::TileOperand;
use crate::codegen::fold::FoldValue;
use crate::ir::SideTable;
use std::cell::Cell;

/// Addresses of one fold's partial results.
#[derive(Debug, Clone, Copy)]
pub(super) struct Partials {
    pub(super) acc: *mut u8,
    pub(super) index: *mut i64,
}

/// A place while an interpreter runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Live {
    pub(super) place: TileOperand,
    /// The element that a splat was read from, so that it is not read twice.
    pub(super) source: *const u8,
}

/// What an interpreter needs besides its program. Empty lists keep their memory.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) memory: Vec<Line>,
    pub(super) places: SideTable<PlaceId, Live>,
    /// Per access, the stride along the lanes.
    pub(super) strides: SideTable<AccessId, usize>,
    /// Per access, the first element of the row.
    pub(super) row: SideTable<AccessId, *mut u8>,
    /// Per access, the first element of the tile.
    pub(super) here: SideTable<AccessId, *mut u8>,
    /// Per row buffer, where it begins.
    pub(super) buffers: SideTable<BufferId, *mut u8>,
    pub(super) partials: SideTable<FoldId, Partials>,
    /// Per fold, the results of the row's blocks.
    pub(super) blocks: SideTable<FoldId, Vec<FoldValue>>,
}

thread_local! {
    static KEPT: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Bytes of scratch that a thread keeps; more is freed after the launch.
const KEPT_BYTES: usize = 4 << 20;

impl Scratch {
    /// This thread's scratch, or a new one while that is in use.
    pub(super) fn take() -> Box<Scratch> {
        KEPT.take().unwrap_or_default()
    }

    /// Returns it to the thread.
    pub(super) fn keep(mut self: Box<Self>) {
        if self.memory.capacity() * Line::BYTES > KEPT_BYTES {
            self.memory = Vec::new();
        }
        KEPT.set(Some(self));
    }

    /// Provides `bytes` bytes of memory with unspecified content.
    pub(super) fn reserve(&mut self, bytes: usize) -> *mut u8 {
        let lines = bytes.div_ceil(Line::BYTES);
        if self.memory.len() < lines {
            self.memory.resize(lines, Line::ZERO);
        }
        self.memory.as_mut_ptr().cast()
    }
}

impl Partials {
    /// The arguments of a fold's routine on these partial results.
    pub(super) fn feed(self, value: TileOperand, index: TileOperand, n: usize, phase: usize) -> Feed {
        Feed { acc: self.acc, acc_index: self.index, value, index, n, phase }
    }
}
