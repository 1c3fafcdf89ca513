//! Matrix products of 16-bit floats on tensor cores: source, argument buffer and grid.
//!
//! What always holds: products are exact and summed in 32 bits, in the hardware's order, so the bits are not those of
//! [`super::product`]. A sum is rounded once, or stays in f32. The order follows from the inner size alone, so a row
//! has the same bits whatever the other rows are. For `Numerics::Fast`, on devices of compute capability 8.0 or later.
//!
//! The argument buffer is that of [`super::product_grid`]. With an [`Epilogue`], the product is not stored, and its
//! words follow those of the epilogue's kernel.
//!
//! Not here: sums split over several blocks, so a few tiles leave most of a device idle. [`super::wgmma`] uses the
//! larger instructions of compute capability 9.0.

use super::epilogue::{End, Epilogue, EpiloguePlan};
use super::product_grid::{N_WORDS, ProductGrid};
use super::{EntryLaunch, Source, Target};
use crate::codegen::product::ProductShape;
use crate::error::{Reason, TierLimit};
use crate::ir::DType;

/// Bytes of one asynchronous copy.
const PIECE_BYTES: usize = 16;

/// Most neighbours of a row that a thread stores at once.
const MAX_WIDTH: usize = 8;

/// With fewer large tiles in a grid, small ones keep more of a device busy.
const FEW_TILES: usize = 128;

/// What the source of a product on tensor cores depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorVariant {
    /// Dtype of the operands: f16 or bf16.
    pub dtype: DType,
    /// Dtype of the result: the same, or f32.
    pub result: DType,
    /// Elements along each side of a tile: 64 or 128.
    pub tile: usize,
    /// Per operand, left first: whether its smallest stride is along the inner dimension.
    pub along: [bool; 2],
    /// Whether an operand is copied 16 bytes at a time.
    pub wide: [bool; 2],
    /// Neighbours of a row that a thread stores at once: 1, 2, 4 or 8.
    pub width: usize,
}

/// How a product on tensor cores is launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorPlan {
    /// What the source depends on.
    pub variant: TensorVariant,
    /// The argument buffer, without addresses.
    pub argument: Vec<u64>,
    /// The launch; none if the result has no elements.
    pub step: Option<EntryLaunch>,
}

/// Whether tensor cores multiply elements of a dtype with sums in f32.
pub fn takes(dtype: DType) -> bool {
    match dtype {
        DType::F16 | DType::BF16 => true,
        DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F32 | DType::F64 => false,
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
}

impl TensorPlan {
    /// Plans a product in tiles that keep a device busy. The addresses of left operand, right operand and result will
    /// be multiples of `alignments`, which are at least the size of an element.
    ///
    /// # Errors
    /// The reason why there is no source for it.
    pub fn new(shape: &ProductShape, alignments: [usize; 3]) -> Result<TensorPlan, Reason> {
        let tile = if ProductGrid::is_busy(shape, [128; 2], FEW_TILES) { 128 } else { 64 };
        TensorPlan::with_tile(shape, alignments, tile)
    }

    /// Like [`TensorPlan::new`], in tiles of 64 or 128 elements along each side.
    ///
    /// # Errors
    /// As [`TensorPlan::new`].
    pub fn with_tile(shape: &ProductShape, alignments: [usize; 3], tile: usize) -> Result<TensorPlan, Reason> {
        let &ProductShape { dtype, result, batch: n_batches, left, right, .. } = shape;
        if !takes(dtype) {
            return Err(TierLimit::NoTensorCores { dtype }.into());
        }
        let grid = ProductGrid::new(shape, [tile; 2])?;
        let (size, along) = (dtype.size(), grid.along);
        // Batch, the other dimension, and the inner one.
        let operands = [[left[0], left[1], left[2]], [right[0], right[2], right[1]]];
        let is_wide = |operand: usize| {
            let [batch, other, inner] = operands[operand];
            let (line, element) = if along[operand] { (other, inner) } else { (inner, other) };
            // A stride that is never used may have any value.
            let starts = [alignments[operand], if n_batches > 1 { batch * size } else { 0 }, line * size];
            element == 1 && starts.iter().all(|start| start.is_multiple_of(PIECE_BYTES))
        };
        let width = width(shape, alignments[2]);
        let variant = TensorVariant { dtype, result, tile, along, wide: [is_wide(0), is_wide(1)], width };
        let step = grid.step(shape, [threads(tile), 1]);
        Ok(TensorPlan { variant, argument: grid.argument, step })
    }
}

impl TensorPlan {
    /// The same product with an epilogue in place of its result. The addresses of operands follow the epilogue's words.
    pub fn with_epilogue(mut self, epilogue: &EpiloguePlan) -> TensorPlan {
        self.variant.width = epilogue.epilogue.width();
        self.argument.splice(0..0, epilogue.argument.iter().copied());
        self
    }
}

/// Neighbours of a row that a thread stores at once, for a result with this alignment.
pub(super) fn width(shape: &ProductShape, alignment: usize) -> usize {
    let is_whole = |width: usize| alignment.is_multiple_of((width * shape.result.size()).min(PIECE_BYTES));
    let fits = |&width: &usize| shape.n.is_multiple_of(width) && is_whole(width);
    [MAX_WIDTH, 4, 2].into_iter().find(fits).unwrap_or(1)
}

/// Threads of a block. A warp computes 32 columns of half of a tile's rows.
fn threads(tile: usize) -> u32 {
    (2 * tile / 32 * 32) as u32
}

impl Source {
    /// Writes the source of a product on tensor cores, with its epilogue if there is one. Its entry is called `name`.
    pub fn of_tensor_product(variant: &TensorVariant, epilogue: Option<&Epilogue>, name: &str) -> Source {
        let TensorVariant { dtype, result, tile, along, wide, width } = variant;
        let ([left_along, right_along], [left_wide, right_wide]) = (along, wide);
        let End { code: end, name: end_name, n_words: base } = End::new(epilogue, *result, name);
        let (threads, dtype) = (threads(*tile), dtype.name());
        let operands = format!("{left_along}, {right_along}, {left_wide}, {right_wide}");
        // Operands that are copied through registers need so many that a multiprocessor holds a single block of large
        // tiles.
        let blocks = if left_wide & right_wide { 2 } else { 1 };
        let n_words = base + N_WORDS;
        let entry = format!(
            "KERNEL({threads}, {blocks}) {name}(const Words<{n_words}> w) {{\n    tensor_product<dt_{dtype}, {tile}, {operands}, \
             {width}, {end_name}, {base}, {n_words}>(w);\n}}\n"
        );
        let parts = [
            include_str!("sums.cuh"),
            include_str!("product_tiles.cuh"),
            include_str!("tensor_cores.cuh"),
            &end,
            &entry,
        ];
        Source { code: parts.join("\n"), entries: vec![name.to_owned()], n_words, target: Target::Any }
    }
}
