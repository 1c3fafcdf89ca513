//! The compiled form of a kernel: passes of steps over places.
//!
//! A *place* is where a value of one step list is while a tile runs: scratch memory, a constant, or memory of an
//! operand or output that the tile walks over. Nothing here depends on sizes; scratch is laid out per launch.

use super::folds::FoldRoutines;
use super::moves::{Gatherer, Reader, Repeater, Writer, ZeroFinder};
use super::routine::Routine;
use crate::codegen::kernel::Level;
use crate::ir::Combine;
use crate::ir::scalar::Ty;

/// 64 bytes, aligned as vectors are.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u64; 8]);

impl Line {
    pub(super) const ZERO: Line = Line([0; 8]);
    pub(super) const BYTES: usize = 64;
}

/// A place by its number.
pub(super) type PlaceId = u16;

/// Where a place lies before the first tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// In the plan's constants, at a byte offset.
    Constant(usize),
    /// In scratch memory: one block, at a byte offset.
    Block(usize),
    /// In scratch memory: a tile, at an offset that is to be multiplied by the tile's size.
    Tile(usize),
    /// Set by a step; a tile.
    Moving,
}

/// How many elements a step computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One block that stands for all lanes.
    Splat,
    /// One element per lane.
    Tile,
}

/// Something a step reads or writes in memory: operands first, then outputs.
pub(super) type AccessId = u16;

/// One step of a list.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// Runs a routine; on `whole` blocks if all places are in scratch memory, where what follows a tile does not matter but
    /// that it is computed with: it is like the tile's last element ([`Step::Repeat`]).
    Map { routine: Routine, dst: PlaceId, args: [PlaceId; 3], shape: Shape, whole: bool },
    /// Lets a place be the operand's memory.
    InPlace { place: PlaceId, access: AccessId, level: Level },
    /// Widens contiguous elements.
    Widen { routine: Routine, dst: PlaceId, access: AccessId, level: Level },
    /// Reads strided elements, or one element for all lanes.
    Read { reader: Reader, dst: PlaceId, access: AccessId, level: Level, shape: Shape },
    /// As the three above, moved along the gathered dimension by an index that is the same for all lanes; `size` bytes
    /// per value.
    Row { read: RowRead, dst: PlaceId, index: PlaceId, access: AccessId, level: Level, size: u8 },
    /// Reads an element per lane at an index per lane.
    Gather { gatherer: Gatherer, dst: PlaceId, index: PlaceId, access: AccessId, level: Level },
    /// Fills the last block of a tile that was written for its elements alone with the last of them. What an earlier launch
    /// left there would go from launch to launch and become subnormal in the end, which is many times slower.
    Repeat { repeater: Repeater, place: PlaceId },
    /// Records a fault if a divisor is zero.
    CheckDivisor { finder: ZeroFinder, src: PlaceId },
    /// Lets a place be the output's memory.
    Direct { place: PlaceId, access: AccessId },
    /// Runs a routine into contiguous output memory.
    Store { routine: Routine, src: PlaceId, access: AccessId },
    /// Writes strided output memory.
    Scatter { writer: Writer, src: PlaceId, access: AccessId },
    /// Writes a row value.
    ScatterRow { writer: Writer, src: PlaceId, access: AccessId },
    /// Lets a place be the row buffer.
    Keep { place: PlaceId, buffer: u16 },
    /// Combines a tile into a fold.
    Fold { fold: u16, value: PlaceId, index: PlaceId },
}

/// How the elements of one gathered row are read.
#[derive(Debug, Clone, Copy)]
pub(super) enum RowRead {
    /// They are used where they lie.
    InPlace,
    /// Widened by a routine.
    Widen(Routine),
    /// Strided, or one for all lanes.
    Read(Reader, Shape),
}

/// One fold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fold {
    pub(super) combine: Combine,
    /// Type of the values.
    pub(super) ty: Ty,
    pub(super) routines: FoldRoutines,
    /// Where the result goes.
    pub(super) result: PlaceId,
}

impl Fold {
    /// Whether values come with indices, and the result is one.
    pub(super) fn has_index(&self) -> bool {
        matches!(self.combine, Combine::ArgMax | Combine::ArgMin)
    }

    /// Bytes of a partial result.
    pub(super) fn bytes(&self) -> usize {
        self.ty.size() + if self.has_index() { 8 } else { 0 }
    }

    /// Bytes of the result.
    pub(super) fn result_size(&self) -> usize {
        if self.has_index() { 8 } else { self.ty.size() }
    }
}

/// One walk over the elements of a row, and what comes before it.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// Row values that are known before.
    pub(super) rows: Vec<Step>,
    /// Stores of these.
    pub(super) stores: Vec<Step>,
    /// What is done per tile.
    pub(super) tile: Vec<Step>,
    /// The folds that this walk finishes.
    pub(super) folds: Vec<usize>,
}

/// A compiled kernel.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Places and whether they are blocks or tiles.
    pub(super) homes: Vec<(Home, Shape)>,
    /// Literals, a block each.
    pub(super) constants: Vec<Line>,
    /// Bytes of scratch for blocks.
    pub(super) block_bytes: usize,
    /// Bytes of scratch per lane for tiles.
    pub(super) tile_bytes: usize,
    /// The passes in order.
    pub(super) passes: Vec<Pass>,
    /// The folds in order.
    pub(super) folds: Vec<Fold>,
    /// Element sizes of the row buffers.
    pub(super) buffers: Vec<usize>,
    /// Per operand, whether it is an iota.
    pub(super) iotas: Vec<bool>,
    /// A block of zeros: what an index outside its dimension reads.
    pub(super) zeros: PlaceId,
}
