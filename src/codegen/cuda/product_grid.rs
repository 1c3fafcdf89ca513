//! What all matrix products on a device share: the words of their argument, and tiles of the result as blocks of a grid.
//!
//! | word | what it holds |
//! |---|---|
//! | 0, 1 | rows and columns of the result |
//! | [`words::ITEMS`](super::words::ITEMS) | the inner size |
//! | 3, 4 | tiles down and across a matrix |
//! | [`LEFT`] | address of the left operand, then its strides of batch, row and column in bytes |
//! | [`RIGHT`] | the same of the right one |
//! | [`RESULT`] | address of the result, which is dense |
//!
//! What an element is, and how many of them a block computes, is what `product`, `tensor_cores` and `wgmma` do not share.

use super::Step;
use crate::codegen::product::ProductShape;
use crate::error::{Reason, TierLimit};

/// Where the left operand's address is.
pub const LEFT: usize = 5;
/// Where the right operand's address is.
pub const RIGHT: usize = LEFT + 4;
/// Where the result's address is.
pub const RESULT: usize = RIGHT + 4;

/// Words of the argument.
pub(super) const N_WORDS: usize = RESULT + 1;

/// A product in tiles.
pub(super) struct ProductGrid {
    /// The argument; the addresses at [`LEFT`], [`RIGHT`] and [`RESULT`] are to be added.
    pub(super) words: Vec<u64>,
    /// Whether neighbours along the inner dimension lie closer than others, in the left and the right operand.
    pub(super) along: [bool; 2],
    /// Tiles, of which each is a block's work.
    blocks: u32,
}

impl ProductGrid {
    /// A product in tiles of so many rows and columns.
    ///
    /// # Errors
    /// If there are more of them than a grid has blocks.
    pub(super) fn new(shape: &ProductShape, tile: [usize; 2]) -> Result<ProductGrid, Reason> {
        let &ProductShape { dtype, batch, m, k, n, left, right, .. } = shape;
        let too_large = || TierLimit::GridTooLarge;
        let (down, across) = tiles(shape, tile).ok_or_else(too_large)?;
        let blocks = batch.checked_mul(down).and_then(|blocks| blocks.checked_mul(across)).ok_or_else(too_large)?;
        let blocks = u32::try_from(blocks).ok().filter(|&blocks| blocks < 1 << 31).ok_or_else(too_large)?;
        let mut words = vec![m as u64, n as u64, k as u64, down as u64, across as u64];
        for strides in [left, right] {
            words.push(0);
            words.extend(strides.map(|stride| (stride * dtype.size()) as u64));
        }
        words.push(0);
        Ok(ProductGrid { words, along: [left[2] < left[1], right[1] < right[2]], blocks })
    }

    /// Its launch in blocks of such threads; none if the result has no elements.
    pub(super) fn step(&self, shape: &ProductShape, block: [u32; 2]) -> Option<Step> {
        let step = Step { entry: 0, items: shape.k as u64, grid: self.blocks, block };
        (self.blocks > 0).then_some(step)
    }

    /// Whether there are at least `few` tiles of so many rows and columns, so that a device is busy with them.
    pub(super) fn is_busy(shape: &ProductShape, tile: [usize; 2], few: usize) -> bool {
        tiles(shape, tile).is_none_or(|(down, across)| shape.batch.saturating_mul(down * across) >= few)
    }
}

/// Tiles down and across a matrix of the result.
fn tiles(shape: &ProductShape, [rows, columns]: [usize; 2]) -> Option<(usize, usize)> {
    let (down, across) = (shape.m.div_ceil(rows), shape.n.div_ceil(columns));
    down.checked_mul(across).map(|_| (down, across))
}
