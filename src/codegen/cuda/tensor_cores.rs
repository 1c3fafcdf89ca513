//! Matrix products of 16-bit floats on tensor cores: text, words and grid.
//!
//! What always holds: products are exact and summed in 32 bits, in an order that the machine has, so bits are not those of
//! [`super::product`]; a sum is rounded once. The order follows from the inner size alone, so rows have their bits whatever is
//! multiplied beside them. For `Numerics::Fast`, on devices of compute capability 8.0 or later.
//!
//! | word | what it holds |
//! |---|---|
//! | 0, 1 | rows and columns of the result |
//! | 2 | the inner size |
//! | 3, 4 | tiles down and across a matrix |
//! | [`LEFT`] | address of the left operand, then its strides of batch, row and column in bytes |
//! | [`RIGHT`] | the same of the right one |
//! | [`RESULT`] | address of the result, which is dense |
//!
//! With an [`Epilogue`], the product is not stored, and these words stand behind those of the epilogue's kernel.
//!
//! Not here: sums that several blocks share, so few tiles leave most of a device idle; and the larger steps (`wgmma`) that
//! compute capability 9.0 has besides.

use super::epilogue::{Epilogue, EpiloguePlan};
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

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 16;

/// Most neighbours of a row that a thread stores at once.
const MAX_WIDTH: usize = 8;

/// Large tiles of a grid below which small ones keep more of a device busy.
const FEW_TILES: usize = 128;

/// What the text of a product on tensor cores depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorVariant {
    /// Of operands and result: f16 or bf16.
    pub dtype: DType,
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
    /// The argument; the addresses at [`LEFT`], [`RIGHT`] and [`RESULT`] are to be added.
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
        let is_many = |tile| tiles(shape, tile).is_none_or(|(down, across)| shape.batch * down * across >= FEW_TILES);
        TensorPlan::with_tile(shape, alignments, if is_many(128) { 128 } else { 64 })
    }

    /// As [`TensorPlan::new`], in tiles of 64 or 128 elements along each side.
    ///
    /// # Errors
    /// As [`TensorPlan::new`].
    pub fn with_tile(shape: &ProductShape, alignments: [usize; 3], tile: usize) -> Result<TensorPlan, Reason> {
        let &ProductShape { dtype, batch: n_batches, m, k, n, left, right } = shape;
        if !takes(dtype) {
            return Err(Reason::TierCannot(format!("tensor cores do not sum products of {dtype}")));
        }
        let too_large = || Reason::TierCannot("its grid has more blocks than a device takes".into());
        let (down, across) = tiles(shape, tile).ok_or_else(too_large)?;
        let blocks = n_batches.checked_mul(down).and_then(|blocks| blocks.checked_mul(across)).ok_or_else(too_large)?;
        let grid = u32::try_from(blocks).ok().filter(|&grid| grid < 1 << 31).ok_or_else(too_large)?;
        let size = dtype.size();
        let mut words = vec![m as u64, n as u64, k as u64, down as u64, across as u64];
        for strides in [left, right] {
            words.push(0);
            words.extend(strides.map(|stride| (stride * size) as u64));
        }
        words.push(0);
        let along = [left[2] < left[1], right[1] < right[2]];
        // Batch, the other dimension, and the inner one.
        let operands = [[left[0], left[1], left[2]], [right[0], right[2], right[1]]];
        let is_wide = |operand: usize| {
            let [batch, other, inner] = operands[operand];
            let (line, element) = if along[operand] { (other, inner) } else { (inner, other) };
            // A stride that is never taken may be any.
            let starts = [alignments[operand], if n_batches > 1 { batch * size } else { 0 }, line * size];
            element == 1 && starts.iter().all(|start| start.is_multiple_of(PIECE_BYTES))
        };
        let fits =
            |&width: &usize| n.is_multiple_of(width) && alignments[2].is_multiple_of((width * size).min(PIECE_BYTES));
        let width = [MAX_WIDTH, 4, 2].into_iter().find(fits).unwrap_or(1);
        let variant = TensorVariant { dtype, tile, along, wide: [is_wide(0), is_wide(1)], width };
        let step = Step { entry: 0, items: k as u64, grid, block: [threads(tile), 1] };
        Ok(TensorPlan { variant, words, step: (grid > 0).then_some(step) })
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

/// Tiles down and across a matrix of the result.
fn tiles(shape: &ProductShape, tile: usize) -> Option<(usize, usize)> {
    let (down, across) = (shape.m.div_ceil(tile), shape.n.div_ceil(tile));
    down.checked_mul(across).map(|_| (down, across))
}

/// Threads of a block: a warp computes 32 columns of half of a tile's rows.
fn threads(tile: usize) -> u32 {
    (2 * tile / 32 * 32) as u32
}

impl Source {
    /// Writes the text of a product on tensor cores, with what follows it if that is an epilogue; its entry is called `name`.
    pub fn of_tensor_product(variant: &TensorVariant, epilogue: Option<&Epilogue>, name: &str) -> Source {
        let TensorVariant { dtype, tile, along: [left_along, right_along], wide: [left_wide, right_wide], width } =
            variant;
        let (threads, dtype) = (threads(*tile), dtype.name());
        let operands = format!("{left_along}, {right_along}, {left_wide}, {right_wide}");
        // What goes through registers on its way needs so many that a processor holds a single block of large tiles.
        let blocks = if left_wide & right_wide { 2 } else { 1 };
        let (end, end_name, base) = match epilogue {
            None => (String::new(), format!("AsItIs<dt_{dtype}, {RESULT}>"), 0),
            Some(epilogue) => {
                let end_name = format!("{name}_epilogue");
                (epilogue.emit(&end_name), end_name, epilogue.n_words())
            }
        };
        let n_words = base + N_WORDS;
        let entry = format!(
            "KERNEL({threads}, {blocks}) {name}(const Words<{n_words}> w) {{\n    tensor_product<dt_{dtype}, {tile}, {operands}, \
             {width}, {end_name}, {base}, {n_words}>(w);\n}}\n"
        );
        let text = format!("{}\n{end}{entry}", include_str!("tensor_cores.cuh"));
        Source { text, entries: vec![name.to_owned()], n_words }
    }
}
