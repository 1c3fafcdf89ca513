//! Matrix products in the canonical order: source, argument buffer and grid.
//!
//! What always holds: the bits are those of `runtime::product`. An element is one chain over the inner dimension from
//! its start: fused multiply-adds for floats (16-bit ones are widened, and rounded once at the end), wrapping
//! arithmetic for integers. Tensor cores and cuBLAS have other orders. A chain is never cut, so a few long chains leave
//! most of a device idle. The argument buffer is that of [`super::product_grid`].

use super::product_grid::{N_WORDS, ProductGrid};
use super::{EntryLaunch, Source, Target};
use crate::codegen::product::ProductShape;
use crate::error::{Reason, TierLimit};
use crate::ir::DType;

/// Threads along each side of a thread block.
const TEAM: usize = 16;

/// With fewer tiles in a grid, smaller tiles keep more of a device busy.
const FEW_TILES: usize = 256;

/// What the source of a product depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProductVariant {
    /// Dtype of the operands; not bool.
    pub dtype: DType,
    /// Dtype of the result: see [`ProductShape::result`].
    pub result: DType,
    /// Elements along each side of one thread's part of a tile: 2, 4 or 8.
    pub side: usize,
    /// Per operand, left first: whether its smallest stride is along the inner dimension.
    pub along: [bool; 2],
}

/// How a product is launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProductPlan {
    /// What the source depends on.
    pub variant: ProductVariant,
    /// The argument buffer, without addresses.
    pub argument: Vec<u64>,
    /// The launch; none if the result has no elements.
    pub step: Option<EntryLaunch>,
}

impl ProductPlan {
    /// Plans a product in tiles that keep a device busy.
    ///
    /// # Errors
    /// The reason why there is no source for it.
    pub fn new(shape: &ProductShape) -> Result<ProductPlan, Reason> {
        // A thread has registers for fewer wide elements.
        let sides: &[usize] = if shape.dtype.size() == 8 { &[4, 2] } else { &[8, 4, 2] };
        let is_busy = |side: &usize| ProductGrid::is_busy(shape, [side * TEAM; 2], FEW_TILES);
        let side = sides.iter().copied().find(is_busy).unwrap_or(2);
        ProductPlan::with_side(shape, side)
    }

    /// Like [`ProductPlan::new`], in tiles of which a thread computes `side` by `side` elements.
    ///
    /// # Errors
    /// As [`ProductPlan::new`].
    pub fn with_side(shape: &ProductShape, side: usize) -> Result<ProductPlan, Reason> {
        if shape.dtype == DType::Bool {
            return Err(TierLimit::BoolProduct.into());
        }
        let grid = ProductGrid::new(shape, [side * TEAM; 2])?;
        let step = grid.step(shape, [TEAM as u32; 2]);
        Ok(ProductPlan {
            variant: ProductVariant { dtype: shape.dtype, result: shape.result, side, along: grid.along },
            argument: grid.argument,
            step,
        })
    }
}

impl Source {
    /// Writes the source of a product; its entry is called `name`.
    pub fn of_product(variant: &ProductVariant, name: &str) -> Source {
        let ProductVariant { dtype, result, side, along: [left, right] } = variant;
        // With more registers per thread, a multiprocessor holds a single block, and is idle while that waits.
        let (threads, blocks) = (TEAM * TEAM, if *side == 8 { 2 } else { 1 });
        let entry = format!(
            "KERNEL({threads}, {blocks}) {name}(const Words<{N_WORDS}> w) {{\n    product<dt_{}, dt_{}, {side}, {left}, {right}>(w);\n}}\n",
            dtype.name(),
            result.name()
        );
        let code = [include_str!("sums.cuh"), include_str!("products.cuh"), &entry].join("\n");
        Source { code, entries: vec![name.to_owned()], n_words: N_WORDS, target: Target::Any }
    }
}
