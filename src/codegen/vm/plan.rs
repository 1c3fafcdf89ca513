//! The compiled form of a kernel: passes of steps over places.
//!
//! A *place* holds a value of one step list while a tile runs. It is scratch memory, a constant, or memory of an
//! operand or output that the tile walks over. Nothing here depends on sizes; scratch is laid out per launch.

use super::folds::FoldRoutines;
use super::moves::{Gatherer, Reader, Repeater, Writer, ZeroFinder};
use super::routine::Routine;
use crate::codegen::kernel::Level;
use crate::ir::entity::{Arena, entity_id};
use crate::ir::scalar::Ty;
use crate::ir::{Combine, SideTable};

/// 64 bytes, aligned as vectors are.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u64; 8]);

impl Line {
    pub(super) const ZERO: Line = Line([0; 8]);
    pub(super) const BYTES: usize = 64;
}

entity_id! {
    /// Names a place of a plan; prints as `p7`.
    pub(super) struct PlaceId(u16) = "p";
}

entity_id! {
    /// Names something that a step reads or writes in memory: operands first, then outputs. Prints as `a7`.
    pub(super) struct AccessId(u16) = "a";
}

entity_id! {
    /// Names a fold of a plan; prints as `f7`.
    pub(super) struct FoldId(u16) = "f";
}

entity_id! {
    /// Names a row buffer of a plan; prints as `b7`.
    pub(super) struct BufferId(u16) = "b";
}

/// The memory of a place before the first tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    /// In the plan's constants, at a byte offset.
    Constant(usize),
    /// In scratch memory: one block, at a byte offset.
    Block(usize),
    /// In scratch memory: a tile, at an offset that is multiplied by the tile's size.
    Tile(usize),
    /// A tile; a step sets its address.
    Moving,
}

/// How many elements a step computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TileShape {
    /// One block that stands for all lanes.
    Splat,
    /// One element per lane.
    Tile,
}

/// One step of a list.
#[derive(Debug, Clone, Copy)]
pub(super) enum TileStep {
    /// Runs a routine. It runs on `whole` blocks if all places are in scratch memory. The elements after a tile's last
    /// one are computed too, so they repeat that one ([`TileStep::Repeat`]).
    Map { routine: Routine, dst: PlaceId, args: [PlaceId; 3], shape: TileShape, whole: bool },
    /// Makes a place the operand's memory.
    InPlace { place: PlaceId, access: AccessId, level: Level },
    /// Widens contiguous elements.
    Widen { routine: Routine, dst: PlaceId, access: AccessId, level: Level },
    /// Reads strided elements, or one element for all lanes.
    Read { reader: Reader, dst: PlaceId, access: AccessId, level: Level, shape: TileShape },
    /// Like the three above, but moved along the gathered dimension by an index that is the same for all lanes. A value
    /// has `size` bytes.
    Row { read: RowRead, dst: PlaceId, index: PlaceId, access: AccessId, level: Level, size: u8 },
    /// Reads an element per lane at an index per lane.
    Gather { gatherer: Gatherer, dst: PlaceId, index: PlaceId, access: AccessId, level: Level },
    /// Fills the rest of a tile's last block with its last element. Otherwise values of earlier launches would be
    /// computed with again and again, and end up subnormal, which is many times slower.
    Repeat { repeater: Repeater, place: PlaceId },
    /// Records a fault if a divisor is zero.
    CheckDivisor { finder: ZeroFinder, src: PlaceId },
    /// Makes a place the output's memory.
    Direct { place: PlaceId, access: AccessId },
    /// Runs a routine into contiguous output memory.
    Store { routine: Routine, src: PlaceId, access: AccessId },
    /// Writes strided output memory.
    Scatter { writer: Writer, src: PlaceId, access: AccessId },
    /// Writes a row value.
    ScatterRow { writer: Writer, src: PlaceId, access: AccessId },
    /// Makes a place the row buffer.
    Keep { place: PlaceId, buffer: BufferId },
    /// Combines a tile into a fold.
    Fold { fold: FoldId, value: PlaceId, index: PlaceId },
}

/// How the elements of one gathered row are read.
#[derive(Debug, Clone, Copy)]
pub(super) enum RowRead {
    /// They are used in place.
    InPlace,
    /// Widened by a routine.
    Widen(Routine),
    /// Strided, or one for all lanes.
    Read(Reader, TileShape),
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
        self.combine.is_index()
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

/// One walk over the elements of a row, and what precedes it.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// Computes the row values that are available before it.
    pub(super) rows: Vec<TileStep>,
    /// Stores these.
    pub(super) stores: Vec<TileStep>,
    /// The steps per tile.
    pub(super) tile: Vec<TileStep>,
    /// The folds that it finishes.
    pub(super) folds: Vec<FoldId>,
    /// The row values with an element per lane that its tiles read.
    pub(super) rows_read: Vec<RowValue>,
}

/// A row value with an element per lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowValue {
    pub(super) place: PlaceId,
    /// Bytes of an element.
    pub(super) size: usize,
}

/// A compiled kernel.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The memory of each place, and whether it is a block or a tile.
    pub(super) locations: Arena<PlaceId, (Location, TileShape)>,
    /// Literals, a block each.
    pub(super) constants: Vec<Line>,
    /// Bytes of scratch for blocks.
    pub(super) block_bytes: usize,
    /// Bytes of scratch per lane for tiles.
    pub(super) tile_bytes: usize,
    /// The passes in order.
    pub(super) passes: Vec<Pass>,
    /// The folds in order.
    pub(super) folds: Arena<FoldId, Fold>,
    /// Element sizes of the row buffers.
    pub(super) buffers: Arena<BufferId, usize>,
    /// Per operand, whether it is an iota.
    pub(super) iotas: SideTable<AccessId, bool>,
}

impl TileStep {
    /// The values that the step reads.
    pub(super) fn reads(&self) -> impl Iterator<Item = PlaceId> {
        let [one, other, third] = match *self {
            TileStep::Map { args, .. } => args.map(Some),
            TileStep::Fold { value, index, .. } => [Some(value), Some(index), None],
            TileStep::Row { index, .. } | TileStep::Gather { index, .. } => [Some(index), None, None],
            TileStep::CheckDivisor { src, .. }
            | TileStep::Store { src, .. }
            | TileStep::Scatter { src, .. }
            | TileStep::ScatterRow { src, .. } => [Some(src), None, None],
            TileStep::InPlace { .. }
            | TileStep::Widen { .. }
            | TileStep::Read { .. }
            | TileStep::Repeat { .. }
            | TileStep::Direct { .. }
            | TileStep::Keep { .. } => [None; 3],
        };
        [one, other, third].into_iter().flatten()
    }
}

impl Plan {
    /// The first place of every plan, a block of zeros, which an index out of range reads.
    pub(super) const ZEROS: PlaceId = PlaceId::new(0);
}
