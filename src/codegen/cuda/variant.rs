//! What the source of a kernel depends on besides the kernel, and how one of its entries is launched.
//!
//! Sizes and strides are words of the argument buffer. So one source serves every shape of its variant. There are few
//! variants: form, numbers of loops, classes, width of vectors and of indices, and whether the last vector of a row is
//! whole.

use super::argument::Layout;
use crate::codegen::geometry::Class;
use crate::codegen::kernel::{FOLD_LANES, Kernel};
use crate::ir::scalar::Ty;
use smallvec::SmallVec;

/// How the work of a kernel is distributed to threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// No folds: a thread computes some vectors of neighbours along the inner loop.
    Pointwise {
        /// Elements of a vector: 1, 2, 4 or 8.
        width: usize,
        /// Vectors per thread: 1, 2, 4 or 8.
        vectors: usize,
    },
    /// No folds: a thread block computes a square, because some operands are read transposed.
    Tiles {
        /// The row loop along which these operands are contiguous.
        along: usize,
        /// A bit per transposed operand.
        transposed: u64,
    },
    /// One or several warps compute a row, and their threads hold its elements.
    Held {
        /// Elements per thread: a power of two, or any number where rows have at most 8192 elements.
        held: usize,
        /// Warps per row: a power of two up to 16. They hold `32 * held * warps` elements at most.
        warps: usize,
    },
    /// A warp computes a row of any length.
    Warps,
    /// A warp computes a block of a row, in two launches per pass: for a few long rows.
    Blocks,
    /// A thread block computes 32 neighbouring rows, or 16 of f64.
    Columns,
}

/// The integers of positions and offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Index {
    /// 32 bits, where no position and no offset reaches 2^31.
    Narrow,
    /// 64 bits.
    Wide,
}

/// What the source of a kernel depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Variant {
    /// How work is distributed to threads.
    pub form: Form,
    /// The numbers of loops.
    pub layout: Layout,
    /// The width of indices.
    pub index: Index,
    /// The classes of operands, then outputs, along the inner loops. With several inner loops, a moving access is
    /// strided.
    pub classes: SmallVec<[Class; 8]>,
    /// Operands that are single elements in the words of their addresses; see [`super::Plan::with_numbers`].
    pub numbers: SmallVec<[usize; 2]>,
    /// Whether all vectors of [`Form::Pointwise`] are whole, or all threads of [`Form::Held`] hold their full number of
    /// elements. Then no bounds are checked. Other forms always check them.
    pub is_full: bool,
}

/// One launch of an entry of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryLaunch {
    /// The entry's number.
    pub entry: usize,
    /// The value of the word [`super::argument::ITEMS`].
    pub items: u64,
    /// Blocks of the grid, in one dimension.
    pub grid: u32,
    /// Threads of a block, in two dimensions.
    pub block: [u32; 2],
}

/// Threads of a block of [`Form::Pointwise`].
pub(super) const POINTWISE_THREADS: u32 = 256;
/// Elements along each side of a square of [`Form::Tiles`].
pub(super) const TILE: usize = 32;
/// Lines of a square that its threads compute at a time.
pub(super) const TILE_LINES: usize = 8;
/// Warps of a block of [`Form::Warps`] and [`Form::Blocks`].
pub(super) const WARPS: u32 = 4;
/// Warps of a block that folds the results of blocks.
pub(super) const TOTAL_WARPS: u32 = 8;
/// Threads of a warp.
pub(super) const LANES: u32 = FOLD_LANES as u32;
/// Rows of a block of [`Form::Columns`]. They are neighbours, and fill a cache line at least. Each has a team of 32
/// threads. Functions of f64 need more registers than 1024 threads leave each other, so a block of f64 has half as many
/// rows.
pub(super) fn rows_of_columns(kernel: &Kernel) -> u32 {
    let is_double = kernel.insts.iter().any(|inst| inst.ty == Ty::F64);
    if is_double { LANES / 2 } else { LANES }
}
