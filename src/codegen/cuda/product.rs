//! Matrix products on a device: text, words and grid, as of other kernels.
//!
//! What always holds: the bits are those of `eager::product`. An element is one chain over the inner dimension from its
//! beginning, in fused multiply-adds of floats (16-bit ones are widened and rounded once at the end) and in wrapping integers.
//! Tensor cores and cuBLAS have orders of their own, so they are not used; a sum is never cut, so few long chains leave most of a
//! device idle.
//!
//! | word | what it holds |
//! |---|---|
//! | 0, 1 | rows and columns of the result |
//! | [`words::ITEMS`](super::words::ITEMS) | the inner size |
//! | 3, 4 | tiles down and across a matrix |
//! | [`LEFT`] | address of the left operand, then its strides of batch, row and column in bytes |
//! | [`RIGHT`] | the same of the right one |
//! | [`RESULT`] | address of the result, which is dense |

use super::{Source, Step};
use crate::codegen::product::ProductShape;
use crate::error::Reason;
use crate::ir::DType;

/// Where the left operand's address is.
pub const LEFT: usize = 5;
/// Where the right operand's address is.
pub const RIGHT: usize = LEFT + 4;
/// Where the result's address is.
pub const RESULT: usize = RIGHT + 4;

/// Words of the argument.
const N_WORDS: usize = RESULT + 1;

/// Threads along a side of a block.
const TEAM: usize = 16;

/// Tiles of a grid below which smaller tiles keep more of a device busy.
const FEW_TILES: usize = 256;

/// What the text of a product depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProductVariant {
    /// Of operands and result; no bool.
    pub dtype: DType,
    /// Elements along each side of the part of a tile that one thread computes: 2, 4 or 8.
    pub side: usize,
    /// Whether neighbours along the inner dimension lie closer than others, in the left and the right operand.
    pub along: [bool; 2],
}

/// How a product is launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProductPlan {
    /// The text that is launched.
    pub variant: ProductVariant,
    /// The argument; the addresses at [`LEFT`], [`RIGHT`] and [`RESULT`] are to be added.
    pub words: Vec<u64>,
    /// The launch; none if the result has no elements.
    pub step: Option<Step>,
}

impl ProductPlan {
    /// Plans a product in tiles that keep a device busy.
    ///
    /// # Errors
    /// The reason why there is no code for it.
    pub fn new(shape: &ProductShape) -> Result<ProductPlan, Reason> {
        // A thread of wide elements has registers for fewer of them.
        let sides: &[usize] = if shape.dtype.size() == 8 { &[4, 2] } else { &[8, 4, 2] };
        let is_many =
            |side: &usize| tiles(shape, *side).is_none_or(|(down, across)| shape.batch * down * across >= FEW_TILES);
        let side = sides.iter().copied().find(is_many).unwrap_or(2);
        ProductPlan::with_side(shape, side)
    }

    /// As [`ProductPlan::new`], in tiles of which a thread computes `side` by `side` elements.
    ///
    /// # Errors
    /// As [`ProductPlan::new`].
    pub fn with_side(shape: &ProductShape, side: usize) -> Result<ProductPlan, Reason> {
        let &ProductShape { dtype, batch, m, k, n, left, right } = shape;
        if dtype == DType::Bool {
            return Err(Reason::TierCannot("bools have no product".into()));
        }
        let too_large = || Reason::TierCannot("its grid has more blocks than a device takes".into());
        let (down, across) = tiles(shape, side).ok_or_else(too_large)?;
        let blocks = batch.checked_mul(down).and_then(|blocks| blocks.checked_mul(across)).ok_or_else(too_large)?;
        let grid = u32::try_from(blocks).ok().filter(|&grid| grid < 1 << 31).ok_or_else(too_large)?;
        let mut words = vec![m as u64, n as u64, k as u64, down as u64, across as u64];
        for strides in [left, right] {
            words.push(0);
            words.extend(strides.map(|stride| (stride * dtype.size()) as u64));
        }
        words.push(0);
        let along = [left[2] < left[1], right[1] < right[2]];
        let step = Step { entry: 0, items: k as u64, grid, block: [TEAM as u32; 2] };
        Ok(ProductPlan { variant: ProductVariant { dtype, side, along }, words, step: (grid > 0).then_some(step) })
    }
}

/// Tiles down and across a matrix of the result.
fn tiles(shape: &ProductShape, side: usize) -> Option<(usize, usize)> {
    let (down, across) = (shape.m.div_ceil(side * TEAM), shape.n.div_ceil(side * TEAM));
    down.checked_mul(across).map(|_| (down, across))
}

impl Source {
    /// Writes the text of a product; its entry is called `name`.
    pub fn of_product(variant: &ProductVariant, name: &str) -> Source {
        let ProductVariant { dtype, side, along: [left, right] } = variant;
        // With more registers a thread, a processor holds a single block, which nobody relieves while it waits.
        let (threads, blocks) = (TEAM * TEAM, if *side == 8 { 2 } else { 1 });
        let entry = format!(
            "KERNEL({threads}, {blocks}) {name}(const Words<{N_WORDS}> w) {{\n    product<dt_{}, {side}, {left}, {right}>(w);\n}}\n",
            dtype.name()
        );
        let text = format!("{}\n{entry}", include_str!("products.cuh"));
        Source { text, entries: vec![name.to_owned()], n_words: N_WORDS }
    }
}
