//! What the source of a kernel depends on besides the kernel, and how one of its entries is launched.
//!
//! Sizes and strides are words of the argument. So one source serves every shape of its variant, and there are few: the form, the
//! numbers of loops, the classes, the width of vectors and that of indices, and whether the last vector of a row is a whole one.

use super::words::Layout;
use crate::codegen::geometry::Class;
use crate::codegen::kernel::{FOLD_LANES, Kernel};
use crate::ir::scalar::Ty;
use smallvec::SmallVec;

/// How the work of a kernel is given to threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// No folds: a thread computes some vectors of neighbours along the inner loop.
    Pointwise {
        /// Neighbours: 1, 2, 4 or 8.
        width: usize,
        /// Vectors: 1, 2, 4 or 8.
        vectors: usize,
    },
    /// No folds: a block of threads computes a square, since some operands lie across the result.
    Tiles {
        /// The row loop along which their neighbours are.
        along: usize,
        /// A bit per operand that is read that way.
        crossed: u64,
    },
    /// Some warps compute a row, whose elements their threads hold.
    Held {
        /// Elements of a thread: a power of two, or any number where rows have at most 8192 elements.
        held: usize,
        /// Warps of a row: a power of two up to 16. They have room for `32 * held * warps` elements.
        warps: usize,
    },
    /// A warp computes a row of any length.
    Warps,
    /// A warp computes a block of a row, in two launches per pass: few long rows.
    Blocks,
    /// A block of threads computes 32 rows that lie side by side, or 16 of f64.
    Columns,
}

/// The integers that positions and distances are computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Index {
    /// 32 bits, where no position and no distance reaches 2^31.
    Narrow,
    /// 64 bits.
    Wide,
}

/// What the text of a kernel depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Variant {
    /// How work is given to threads.
    pub form: Form,
    /// The numbers of loops.
    pub layout: Layout,
    /// The width of indices.
    pub index: Index,
    /// How operands, then outputs, move along the inner loops; where there are several, one that moves is strided.
    pub classes: SmallVec<[Class; 8]>,
    /// Operands of a single element that lies in the word of their address; see [`super::Plan::with_numbers`].
    pub numbers: SmallVec<[usize; 2]>,
    /// Whether vectors of [`Form::Pointwise`] have all their elements, and threads of [`Form::Held`] all that they have room for:
    /// then nothing asks what is there. Other forms always ask.
    pub is_full: bool,
}

/// One launch of an entry of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The entry's number.
    pub entry: usize,
    /// What the word [`super::words::ITEMS`] is.
    pub items: u64,
    /// Blocks of the grid; the other two dimensions are 1.
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
/// Rows of a block of [`Form::Columns`], which lie side by side in a line of memory at least. Each has a team of 32 threads; a block of
/// f64, whose functions need more registers than 1024 threads leave each other, has half as many.
pub(super) fn rows_of_columns(kernel: &Kernel) -> u32 {
    let is_double = kernel.insts.iter().any(|inst| inst.ty == Ty::F64);
    if is_double { LANES / 2 } else { LANES }
}
