//! What an operand is to the machine that copies boxes of it: sizes, strides, and the box.
//!
//! Plain data; `tensor_map` makes a map of it. Dimensions come innermost first.

use crate::ir::DType;

/// Words of a map.
pub const MAP_WORDS: usize = 16;
/// What addresses and strides are multiples of, in bytes.
pub(crate) const GRAIN: usize = 16;
/// Bytes of a line of a box, whose pieces of 16 bytes are permuted.
pub(crate) const LINE_BYTES: usize = 128;

/// An array in memory, and the box of it that is copied at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tiles {
    /// Of the elements: f16 or bf16.
    pub dtype: DType,
    /// Elements along each dimension; along the first they are next to each other.
    pub sizes: [u64; 3],
    /// Bytes from one element to the next along the others: multiples of 16, and each of the one before.
    pub strides: [u64; 2],
    /// Elements of the box, of which those along the first dimension are 128 bytes.
    pub tile: [u32; 3],
}
