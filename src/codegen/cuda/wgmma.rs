//! Matrix products of 16-bit floats by groups of four warps (`wgmma`), for compute capability 9.0: source, argument
//! buffer, tensor maps and grid. **It never ran on a GPU**, and its speed is unknown.
//!
//! What always holds: as in [`super::tensor_cores`], products are exact and summed in 32 bits, in an order of the
//! hardware that follows from the inner size alone. A sum is rounded once, or stays in f32. The source is for `sm_90a`,
//! because later devices lack these instructions.
//!
//! The hardware copies operands as tensor maps describe them. So the argument buffer is that of [`super::product_grid`]
//! (after an epilogue's), then zeros up to a multiple of [`MAP_WORDS`], then the maps of the left and the right
//! operand. A map contains an address, so it is made ([`TileMap`]) once the addresses are known.
//!
//! Not here: operands with other layouts than maps describe (each is declined with a reason), sums split over several
//! blocks, blocks that compute several tiles, and copies shared by blocks.

use super::epilogue::{End, Epilogue, EpiloguePlan};
use super::product_grid::{LEFT, N_WORDS, ProductGrid, RIGHT};
use super::tensor_cores::{takes, width};
use super::{EntryLaunch, Source, Target};
use crate::codegen::product::ProductShape;
use crate::device::cuda::tiles::{GRAIN, LINE_BYTES};
use crate::error::{Reason, WgmmaLimit};
use crate::ir::DType;
use smallvec::SmallVec;

pub use crate::device::cuda::tiles::{MAP_WORDS, Tiles};

/// Rows of a tile.
const ROWS: usize = 128;
/// Threads of a block: a group that copies, and two that multiply.
const THREADS: u32 = 384;
/// Steps along the inner dimension that are copied at once; also the rows or columns of a panel's line where these are
/// contiguous.
const PANEL: usize = 64;
/// Most bytes of the stages of a block; the rest of its 227 KiB is for barriers.
const STAGED: usize = 192 << 10;
/// With fewer large tiles in a grid, small ones keep more of a device busy.
const FEW_TILES: usize = 128;
/// Most words of an argument buffer: 4 KiB, which every driver accepts.
const MAX_WORDS: usize = 512;
/// Bound of a stride in bytes.
const MAX_STRIDE: u64 = 1 << 40;
/// Bound of a size in elements: coordinates have 32 bits.
const MAX_SIZE: usize = 1 << 31;

/// What the source of such a product depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WgmmaVariant {
    /// Dtype of the operands: f16 or bf16.
    pub dtype: DType,
    /// Dtype of the result: the same, or f32.
    pub result: DType,
    /// Columns of a tile, which has 128 rows: 128 or 256.
    pub columns: usize,
    /// Per operand, left first: whether it is contiguous along the inner dimension. Otherwise it is along the other
    /// one.
    pub along: [bool; 2],
    /// Neighbours of a row that a thread stores at once: 1, 2, 4 or 8.
    pub width: usize,
}

/// How such a product is launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WgmmaPlan {
    /// What the source depends on.
    pub variant: WgmmaVariant,
    /// The argument buffer, without addresses and maps.
    pub argument: Vec<u64>,
    /// The tensor maps of both operands; none if nothing is read.
    pub maps: SmallVec<[TileMap; 2]>,
    /// The launch; none if the result has no elements.
    pub step: Option<EntryLaunch>,
}

/// A tensor map in an argument buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TileMap {
    /// The word with the address of the operand.
    pub address: usize,
    /// The first of its [`MAP_WORDS`] words.
    pub at: usize,
    /// What it describes.
    pub tiles: Tiles,
}

/// Sizes and strides of an operand in elements: batch, the other dimension, and the inner one.
struct Operand {
    sizes: [usize; 3],
    strides: [usize; 3],
}

impl Operand {
    fn both(shape: &ProductShape) -> [Operand; 2] {
        let &ProductShape { batch, m, k, n, left, right, .. } = shape;
        [
            Operand { sizes: [batch, m, k], strides: left },
            Operand { sizes: [batch, n, k], strides: [right[0], right[2], right[1]] },
        ]
    }

    /// Whether lines are along the inner dimension, and how the operand is copied in tiles of so many rows or columns.
    ///
    /// # Errors
    /// The reason why no map describes it.
    fn tiles(&self, dtype: DType, length: usize) -> Result<(bool, Tiles), Reason> {
        let [batch, other, inner] = self.sizes;
        if self.sizes.iter().any(|&size| size >= MAX_SIZE) {
            return Err(WgmmaLimit::MapTooSmall { rows: other, columns: inner }.into());
        }
        let [apart, of_other, of_inner] = self.strides;
        let fits = |size: usize, stride: usize, line: usize, line_stride: usize| {
            let is_next = size <= 1 || stride == 1;
            is_next && (line <= 1 || (line_stride > 0 && is_whole(line_stride * dtype.size())))
        };
        let along = match (fits(inner, of_inner, other, of_other), fits(other, of_other, inner, of_inner)) {
            (true, _) => true,
            (false, true) => false,
            (false, false) => return Err(WgmmaLimit::LinesApart { bytes: GRAIN }.into()),
        };
        let (size, lines, stride) = if along { (inner, other, of_other) } else { (other, inner, of_inner) };
        let (row, is_one) = (size * dtype.size(), batch <= 1 || apart == 0);
        // A stride that is never used is replaced by a valid one.
        let line = match (lines > 1, is_one) {
            (true, _) => stride * dtype.size(),
            (false, true) => row.next_multiple_of(GRAIN).max(GRAIN),
            (false, false) => apart * dtype.size(),
        };
        let matrix = if is_one { line } else { apart * dtype.size() };
        if !matrix.is_multiple_of(line) || !is_whole(line) {
            return Err(WgmmaLimit::MatricesApart { matrix, line, bytes: GRAIN }.into());
        }
        if (lines > 1 && line < row) || (!is_one && matrix < line * (lines - 1) + row) {
            return Err(WgmmaLimit::OperandOverlaps.into());
        }
        if [line, matrix].iter().any(|&stride| stride as u64 >= MAX_STRIDE) {
            return Err(WgmmaLimit::StrideTooLarge.into());
        }
        let in_line = LINE_BYTES / dtype.size();
        Ok((
            along,
            Tiles {
                dtype,
                sizes: [size, lines, if is_one { 1 } else { batch }].map(|size| size as u64),
                strides: [line, matrix].map(|stride| stride as u64),
                tile: [in_line, if along { length } else { PANEL }, 1].map(|size| size as u32),
            },
        ))
    }
}

/// Whether a map can have this stride.
fn is_whole(bytes: usize) -> bool {
    bytes.is_multiple_of(GRAIN)
}

/// Checks whether some plan takes a product, whatever the addresses of its operands are.
///
/// # Errors
/// The reason why none does.
pub fn check(shape: &ProductShape) -> Result<(), Reason> {
    WgmmaPlan::new(shape, [GRAIN, GRAIN, shape.result.size()]).map(|_| ())
}

impl WgmmaPlan {
    /// Plans a product in tiles that keep a device busy; `alignments` are those of
    /// [`super::tensor_cores::TensorPlan::new`].
    ///
    /// # Errors
    /// The reason why there is no source for it.
    pub fn new(shape: &ProductShape, alignments: [usize; 3]) -> Result<WgmmaPlan, Reason> {
        let is_wide = shape.n > 128 && ProductGrid::is_busy(shape, [ROWS, 256], FEW_TILES);
        WgmmaPlan::with_columns(shape, alignments, if is_wide { 256 } else { 128 })
    }

    /// Like [`WgmmaPlan::new`], in tiles of 128 or 256 columns.
    ///
    /// # Errors
    /// As [`WgmmaPlan::new`].
    pub fn with_columns(shape: &ProductShape, alignments: [usize; 3], columns: usize) -> Result<WgmmaPlan, Reason> {
        let &ProductShape { dtype, result, .. } = shape;
        if !takes(dtype) {
            return Err(WgmmaLimit::WgmmaDType { dtype }.into());
        }
        if alignments[..2].iter().any(|&alignment| !is_whole(alignment)) {
            return Err(WgmmaLimit::Unaligned { bytes: GRAIN }.into());
        }
        let grid = ProductGrid::new(shape, [ROWS, columns])?;
        let step = grid.step(shape, [THREADS, 1]);
        let (mut along, mut maps) = ([true; 2], SmallVec::new());
        // Operands without elements have no maps.
        if step.is_some() && shape.k > 0 {
            for (number, (operand, length)) in Operand::both(shape).iter().zip([ROWS, columns]).enumerate() {
                let (is_along, tiles) = operand.tiles(dtype, length)?;
                along[number] = is_along;
                maps.push(TileMap { address: [LEFT, RIGHT][number], at: 0, tiles });
            }
        }
        let variant = WgmmaVariant { dtype, result, columns, along, width: width(shape, alignments[2]) };
        Ok(WgmmaPlan { variant, argument: grid.argument, maps, step }.with_places())
    }

    /// The same product with an epilogue in place of its result. The addresses of operands follow the epilogue's words.
    ///
    /// # Errors
    /// If the argument buffer gets too long.
    pub fn with_epilogue(mut self, epilogue: &EpiloguePlan) -> Result<WgmmaPlan, Reason> {
        let own = &epilogue.argument;
        self.variant.width = epilogue.epilogue.width();
        self.argument.truncate(N_WORDS);
        self.argument.splice(0..0, own.iter().copied());
        self.maps.iter_mut().for_each(|map| map.address += own.len());
        let plan = self.with_places();
        if plan.argument.len() > MAX_WORDS { Err(Reason::TooManyArguments) } else { Ok(plan) }
    }

    /// Adds places for the maps at the end.
    fn with_places(mut self) -> WgmmaPlan {
        self.argument.resize(n_words(self.argument.len()), 0);
        let first = self.argument.len() - 2 * MAP_WORDS;
        self.maps.iter_mut().enumerate().for_each(|(number, map)| map.at = first + number * MAP_WORDS);
        self
    }
}

/// Words of an argument buffer with so many words besides its maps.
fn n_words(others: usize) -> usize {
    others.next_multiple_of(MAP_WORDS) + 2 * MAP_WORDS
}

impl WgmmaVariant {
    /// The number of stages, each a strip of both operands.
    fn stages(&self) -> usize {
        STAGED / ((ROWS + self.columns) * LINE_BYTES)
    }

    /// The instruction on so many columns, which names each of a thread's sums.
    fn instruction(&self) -> String {
        let WgmmaVariant { dtype, columns, along: [left, right], .. } = self;
        let (n_sums, name) = (columns / 2, dtype.name());
        let listed = |one: &dyn Fn(usize) -> String| (0..n_sums).map(one).collect::<Vec<_>>().join(", ");
        let (registers, sums) = (listed(&|k| format!("%{k}")), listed(&|k| format!("\"+f\"(sum[{k}])")));
        let is_transposed = [left, right].map(|&along| u8::from(!along));
        // Sources that are compiled in one file have it once.
        let guard = format!("GROUPS_OF_{name}_{columns}_{}_{}", is_transposed[0], is_transposed[1]);
        format!(
            "#if defined(GROUP_ASSEMBLY) && !defined({guard})\n#define {guard}\n\
             // sum += left * right, of 64 rows and 16 steps.\n\
             DEVICE void multiply_groups(GroupStep<dt_{name}, {columns}, {left}, {right}>, float (&sum)[{n_sums}], u64 left, u64 right) {{\n    \
             asm volatile(\"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{name}.{name} {{{registers}}}, \"\n                 \
             \"%{n_sums}, %{}, 1, 1, 1, {}, {};\"\n                 : {sums}\n                 : \"l\"(left), \"l\"(right));\n}}\n#endif\n",
            n_sums + 1,
            is_transposed[0],
            is_transposed[1],
        )
    }
}

impl Source {
    /// Writes the source of such a product, with its epilogue if there is one. Its entry is called `name`.
    pub fn of_wgmma_product(variant: &WgmmaVariant, epilogue: Option<&Epilogue>, name: &str) -> Source {
        let WgmmaVariant { dtype, result, columns, along: [left, right], width } = variant;
        let End { code: end, name: end_name, n_words: base } = End::new(epilogue, *result, name);
        let (dtype, stages) = (dtype.name(), variant.stages());
        let n_words = n_words(base + N_WORDS);
        let entry = format!(
            "KERNEL({THREADS}, 1) {name}(IN_PLACE MappedWords<{n_words}> w) {{\n    group_product<dt_{dtype}, {columns}, {stages}, \
             {left}, {right}, {width}, {end_name}, {base}>(w.words);\n}}\n"
        );
        let target = Target::Sm90a { shared_bytes: STAGED as u32 + 1024 };
        let parts = [
            target.marker(),
            include_str!("sums.cuh"),
            include_str!("product_tiles.cuh"),
            include_str!("wgmma.cuh"),
            &variant.instruction(),
            &end,
            &entry,
        ];
        Source { code: parts.join("\n"), entries: vec![name.to_owned()], n_words, target }
    }
}
