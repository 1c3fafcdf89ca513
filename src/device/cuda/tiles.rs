//! The array of a tensor map: sizes, strides, and the box that is copied.
//!
//! Plain data, of which `tensor_map` makes a map. Dimensions are ordered innermost first.

use crate::ir::DType;

/// Words of a map.
pub const MAP_WORDS: usize = 16;
/// The required alignment of addresses and strides, in bytes.
pub(crate) const GRAIN: usize = 16;
/// Bytes of a line of a box, whose pieces of 16 bytes are swizzled.
pub(crate) const LINE_BYTES: usize = 128;

/// An array in memory, and the box of it that is copied at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tiles {
    /// Dtype of the elements: f16 or bf16.
    pub dtype: DType,
    /// Elements along each dimension; the first is contiguous.
    pub sizes: [u64; 3],
    /// Bytes between elements along the other dimensions: multiples of 16, and each a multiple of the one before.
    pub strides: [u64; 2],
    /// Elements of the box. Those along the first dimension are 128 bytes.
    pub tile: [u32; 3],
}
