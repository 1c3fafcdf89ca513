//! What all matrix products on a device share: their argument buffer, and tiles of the result as thread blocks of a
//! grid.
//!
//! | word | content |
//! |---|---|
//! | 0, 1 | rows and columns of the result |
//! | [`argument::ITEMS`](super::argument::ITEMS) | the inner size |
//! | 3, 4 | tiles down and across a matrix |
//! | [`LEFT`] | address of the left operand, then its strides of batch, row and column in bytes |
//! | [`RIGHT`] | the same for the right one |
//! | [`RESULT`] | address of the result, which is dense |
//!
//! `product`, `tensor_cores` and `wgmma` decide the size of a tile and how an element is computed.

use super::EntryLaunch;
use crate::codegen::product::ProductShape;
use crate::error::{Reason, TierLimit};

/// The word of the left operand's address.
pub const LEFT: usize = 5;
/// The word of the right operand's address.
pub const RIGHT: usize = LEFT + 4;
/// The word of the result's address.
pub const RESULT: usize = RIGHT + 4;

/// Words of the argument buffer.
pub(super) const N_WORDS: usize = RESULT + 1;

/// A product in tiles.
pub(super) struct ProductGrid {
    /// The argument buffer, without the addresses at [`LEFT`], [`RIGHT`] and [`RESULT`].
    pub(super) argument: Vec<u64>,
    /// Per operand, left first: whether its smallest stride is along the inner dimension.
    pub(super) along: [bool; 2],
    /// Tiles; each is computed by one thread block.
    blocks: u32,
}

impl ProductGrid {
    /// A product in tiles of so many rows and columns.
    ///
    /// # Errors
    /// If there are more tiles than a grid has blocks.
    pub(super) fn new(shape: &ProductShape, tile: [usize; 2]) -> Result<ProductGrid, Reason> {
        let &ProductShape { dtype, batch, m, k, n, left, right, .. } = shape;
        let too_large = || TierLimit::GridTooLarge;
        let (down, across) = tiles(shape, tile).ok_or_else(too_large)?;
        let blocks = batch.checked_mul(down).and_then(|blocks| blocks.checked_mul(across)).ok_or_else(too_large)?;
        let blocks = u32::try_from(blocks).ok().filter(|&blocks| blocks < 1 << 31).ok_or_else(too_large)?;
        let mut argument = vec![m as u64, n as u64, k as u64, down as u64, across as u64];
        for strides in [left, right] {
            argument.push(0);
            argument.extend(strides.map(|stride| (stride * dtype.size()) as u64));
        }
        argument.push(0);
        Ok(ProductGrid { argument, along: [left[2] < left[1], right[1] < right[2]], blocks })
    }

    /// Its launch with such thread blocks; none if the result has no elements.
    pub(super) fn step(&self, shape: &ProductShape, block: [u32; 2]) -> Option<EntryLaunch> {
        let step = EntryLaunch { entry: 0, items: shape.k as u64, grid: self.blocks, block };
        (self.blocks > 0).then_some(step)
    }

    /// Whether there are at least `at_least` tiles of so many rows and columns, so that they keep a device busy.
    pub(super) fn is_busy(shape: &ProductShape, tile: [usize; 2], at_least: usize) -> bool {
        tiles(shape, tile).is_none_or(|(down, across)| shape.batch.saturating_mul(down * across) >= at_least)
    }
}

/// Tiles down and across a matrix of the result.
fn tiles(shape: &ProductShape, [rows, columns]: [usize; 2]) -> Option<(usize, usize)> {
    let (down, across) = (shape.m.div_ceil(rows), shape.n.div_ceil(columns));
    down.checked_mul(across).map(|_| (down, across))
}
