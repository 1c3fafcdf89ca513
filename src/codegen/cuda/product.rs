//! Matrix products: one text per dtype for all shapes and strides, and the words of a launch.
//!
//! | word | what it holds |
//! |---|---|
//! | 0, 1, 2 | rows, inner dimension, columns |
//! | 3 to 5 | of the left operand the strides of matrix, row and column in bytes |
//! | 6 to 8 | the same of the right operand |
//! | 9, 10 | tiles of the result across and down |
//! | [`LEFT`], [`RIGHT`], [`RESULT`] | addresses of the first elements |
//!
//! The result is row-major. Bits are those of the CPU; see `product.cuh`. Nothing is fused into a product yet, and tensor
//! cores are not used: their sums have another order.

use super::Source;
use crate::ir::DType;

/// The word with the address of the left operand.
pub const LEFT: usize = 11;
/// The word with the address of the right operand.
pub const RIGHT: usize = 12;
/// The word with the address of the result.
pub const RESULT: usize = 13;
/// Words of the argument.
pub const N_WORDS: usize = 14;

/// Threads of a block.
pub const THREADS: u32 = 256;

/// Rows and columns of what a block computes, as the text has them.
const SIDE: usize = 64;

/// The extents of a product and the strides of its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    /// Matrices.
    pub batch: usize,
    /// Rows.
    pub m: usize,
    /// Inner dimension.
    pub k: usize,
    /// Columns.
    pub n: usize,
    /// Of the left operand, strides of matrix, row and column in bytes.
    pub left: [usize; 3],
    /// The same of the right operand.
    pub right: [usize; 3],
}

impl Product {
    fn tiles(&self) -> (usize, usize) {
        (self.n.div_ceil(SIDE), self.m.div_ceil(SIDE))
    }

    /// Blocks of the grid, 0 if there is nothing to compute; `None` if no grid has so many.
    pub fn blocks(&self) -> Option<u32> {
        let (across, down) = self.tiles();
        let blocks = across.checked_mul(down)?.checked_mul(self.batch)?;
        i32::try_from(blocks).ok().map(|blocks| blocks as u32)
    }

    /// The argument; addresses are to be filled in.
    pub fn words(&self) -> [u64; N_WORDS] {
        let ([a, b, c], [d, e, f], (across, down)) = (self.left, self.right, self.tiles());
        [self.m, self.k, self.n, a, b, c, d, e, f, across, down, 0, 0, 0].map(|word| word as u64)
    }
}

/// The text of products of a dtype; there is none of bools, which have no products.
pub fn source(dtype: DType, name: &str) -> Option<Source> {
    if dtype == DType::Bool {
        return None;
    }
    let entry =
        format!("KERNEL({THREADS}) {name}(const Words<{N_WORDS}> w) {{\n    product<dt_{}>(w);\n}}\n", dtype.name());
    let text = concat!(include_str!("product.cuh"), "\n").to_owned() + &entry;
    Some(Source { text, entries: vec![name.into()], n_words: N_WORDS })
}
