//! Matrix products of 16-bit floats on tensor cores: text, words and grid.
//!
//! What always holds: products are exact and summed in 32 bits, in an order that the machine has, so bits are not those of
//! [`super::product`]; a sum is rounded once, or stays in f32. The order follows from the inner size alone, so rows have their bits
//! whatever is multiplied beside them. For `Numerics::Fast`, on devices of compute capability 8.0 or later.
//!
//! The words of the argument are those of [`super::product_grid`]. With an [`Epilogue`], the product is not stored, and its words
//! stand behind those of the epilogue's kernel.
//!
//! Not here: sums that several blocks share, so few tiles leave most of a device idle. The larger steps that compute capability 9.0
//! has besides are [`super::wgmma`].

use super::epilogue::{End, Epilogue, EpiloguePlan};
use super::product_grid::{N_WORDS, ProductGrid};
use super::{Source, Step, Target};
use crate::codegen::product::ProductShape;
use crate::error::{Reason, TierLimit};
use crate::ir::DType;

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 16;

/// Most neighbours of a row that a thread stores at once.
const MAX_WIDTH: usize = 8;

/// Large tiles of a grid below which small ones keep more of a device busy.
const FEW_TILES: usize = 128;

/// What the text of a product on tensor cores depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorVariant {
    /// Of the operands: f16 or bf16.
    pub dtype: DType,
    /// Of the result: the same, or f32.
    pub result: DType,
    /// Elements along each side of a tile: 64 or 128.
    pub tile: usize,
    /// Whether neighbours along the inner dimension lie closer than others, in the left and the right operand.
    pub along: [bool; 2],
    /// Whether an operand is copied 16 bytes at a time.
    pub wide: [bool; 2],
    /// Neighbours of a row that a thread stores at once: 1, 2, 4 or 8.
    pub width: usize,
}

/// How a product on tensor cores is launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorPlan {
    /// The text that is launched.
    pub variant: TensorVariant,
    /// The argument; addresses are to be added.
    pub words: Vec<u64>,
    /// The launch; none if the result has no elements.
    pub step: Option<Step>,
}

/// Whether tensor cores multiply elements of a dtype and sum in f32.
pub fn takes(dtype: DType) -> bool {
    match dtype {
        DType::F16 | DType::BF16 => true,
        DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F32 | DType::F64 => false,
    }
}

impl TensorPlan {
    /// Plans a product in tiles that keep a device busy. The addresses of left operand, right operand and result will be
    /// multiples of so many bytes as `alignments` says, which is at least the size of an element.
    ///
    /// # Errors
    /// The reason why there is no code for it.
    pub fn new(shape: &ProductShape, alignments: [usize; 3]) -> Result<TensorPlan, Reason> {
        let tile = if ProductGrid::is_busy(shape, [128; 2], FEW_TILES) { 128 } else { 64 };
        TensorPlan::with_tile(shape, alignments, tile)
    }

    /// As [`TensorPlan::new`], in tiles of 64 or 128 elements along each side.
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
            // A stride that is never taken may be any.
            let starts = [alignments[operand], if n_batches > 1 { batch * size } else { 0 }, line * size];
            element == 1 && starts.iter().all(|start| start.is_multiple_of(PIECE_BYTES))
        };
        let width = width(shape, alignments[2]);
        let variant = TensorVariant { dtype, result, tile, along, wide: [is_wide(0), is_wide(1)], width };
        let step = grid.step(shape, [threads(tile), 1]);
        Ok(TensorPlan { variant, words: grid.words, step })
    }
}

impl TensorPlan {
    /// As it is with an epilogue in the place of its result. The addresses of operands are behind the epilogue's words.
    pub fn with_epilogue(mut self, epilogue: &EpiloguePlan) -> TensorPlan {
        self.variant.width = epilogue.epilogue.width();
        self.words.splice(0..0, epilogue.words.iter().copied());
        self
    }
}

/// Neighbours of a row that a thread stores at once, where the result's address is a multiple of so many bytes.
pub(super) fn width(shape: &ProductShape, alignment: usize) -> usize {
    let is_whole = |width: usize| alignment.is_multiple_of((width * shape.result.size()).min(PIECE_BYTES));
    let fits = |&width: &usize| shape.n.is_multiple_of(width) && is_whole(width);
    [MAX_WIDTH, 4, 2].into_iter().find(fits).unwrap_or(1)
}

/// Threads of a block: a warp computes 32 columns of half of a tile's rows.
fn threads(tile: usize) -> u32 {
    (2 * tile / 32 * 32) as u32
}

impl Source {
    /// Writes the text of a product on tensor cores, with what follows it if that is an epilogue; its entry is called `name`.
    pub fn of_tensor_product(variant: &TensorVariant, epilogue: Option<&Epilogue>, name: &str) -> Source {
        let TensorVariant { dtype, result, tile, along, wide, width } = variant;
        let ([left_along, right_along], [left_wide, right_wide]) = (along, wide);
        let End { text: end, name: end_name, n_words: base } = End::new(epilogue, *result, name);
        let (threads, dtype) = (threads(*tile), dtype.name());
        let operands = format!("{left_along}, {right_along}, {left_wide}, {right_wide}");
        // What goes through registers on its way needs so many that a processor holds a single block of large tiles.
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
        Source { text: parts.join("\n"), entries: vec![name.to_owned()], n_words, target: Target::Any }
    }
}
