//! How a kernel is launched on one set of shapes: the source, the grids, the argument buffer.
//!
//! A [`Plan`] is plain data and depends on shapes alone; a launch brings pointers. Nothing here knows a device.

use super::argument::{self, Division, Layout};
use super::blocks::{self, Entry};
use super::variant::{
    EntryLaunch, Form, Index, LANES, POINTWISE_THREADS, TILE, TILE_LINES, TOTAL_WARPS, Variant, WARPS, rows_of_columns,
};
use super::{held, width};
use crate::codegen::geometry::{Access, Class, Geometry, Lanes};
use crate::codegen::kernel::{FOLD_BLOCK, FOLD_LANES, Kernel, Source};
use crate::codegen::native::flat::Flat;
use crate::codegen::native::passes::{Keep, Passes};
use crate::error::{Reason, TierLimit};
use crate::ir::DType;
use smallvec::SmallVec;

/// The launches of a kernel on one set of shapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What the source depends on.
    pub variant: Variant,
    /// The argument buffer, with offsets in place of addresses, and without [`argument::ITEMS`].
    pub argument: Vec<u64>,
    /// Launches, in order on one stream; none if there are no elements.
    pub steps: Vec<EntryLaunch>,
    /// Bytes of scratch memory for the results of blocks, aligned to 16, with any content.
    pub scratch_bytes: usize,
}

/// Most words of an argument buffer: 4 KiB, which every driver accepts.
const MAX_WORDS: usize = 512;
/// With fewer rows, long ones are cut into blocks: a warp per row would leave a part of the device idle.
const FEW_ROWS: usize = 8192;

impl Plan {
    /// Plans the launches of `kernel`. Every pointer of a launch, operands first, will be a multiple of its entry in
    /// `alignments`, which is at least its element's size.
    ///
    /// # Errors
    /// The reason why no CUDA source is made for it.
    pub fn new(kernel: &Kernel, geometry: &Geometry, alignments: &[usize]) -> Result<Plan, Reason> {
        Plan::with_form(kernel, geometry, choose(kernel, geometry, alignments))
    }

    /// Like [`Plan::new`], in a form that the caller chooses: one for folds if there are any. All pointers must be
    /// aligned for the width of a vector.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn with_form(kernel: &Kernel, geometry: &Geometry, form: Form) -> Result<Plan, Reason> {
        Plan::with_index(kernel, geometry, form, index(kernel, geometry, form))
    }

    /// Like [`Plan::with_form`], with indices of a width that suffices.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn with_index(kernel: &Kernel, geometry: &Geometry, form: Form, index: Index) -> Result<Plan, Reason> {
        let (rows, inner) = (geometry.n_rows(), geometry.n_inner());
        let n_accesses = kernel.operands.len() + kernel.outputs.len();
        let layout = Layout { rows: geometry.rows.len(), inner: geometry.inner.len() };
        let gathered = kernel.gathered();
        if layout.n_words(n_accesses, gathered.len()) > MAX_WORDS {
            return Err(Reason::TooManyArguments);
        }
        let items_of_row = items_of_row(geometry, form);
        let items = match form {
            Form::Tiles { along, .. } => {
                let others = geometry.rows.iter().enumerate().filter(|&(index, _)| index != along);
                let tiles = geometry.rows[along].div_ceil(TILE) * inner.div_ceil(TILE);
                others.map(|(_, &size)| size).product::<usize>() * tiles
            }
            _ => rows * items_of_row,
        };
        let is_full = match form {
            Form::Pointwise { width, .. } => inner % width == 0,
            Form::Held { held, warps } => inner == FOLD_LANES * held * warps,
            Form::Tiles { .. } | Form::Warps | Form::Blocks | Form::Columns => false,
        };
        let (classes, numbers) = (classes(kernel, geometry), SmallVec::new());
        let variant = Variant { form, layout, index, classes, numbers, is_full };
        let mut argument = vec![0; layout.n_words(n_accesses, gathered.len())];
        (argument[argument::ROWS], argument[argument::INNER]) = (rows as u64, inner as u64);
        let sizes = geometry.rows.iter().chain(&geometry.inner).copied().chain([items_of_row]);
        for (number, size) in sizes.enumerate() {
            let divisor = match form {
                Form::Tiles { along, .. } if number == along || number == layout.rows => size.div_ceil(TILE),
                _ => size,
            };
            let division = match index {
                Index::Narrow => Division::narrow(divisor),
                Index::Wide => Division::wide(divisor),
            };
            layout.put_loop(&mut argument, number, size, division);
        }
        for (number, access) in geometry.operands.iter().chain(&geometry.outputs).enumerate() {
            layout.put_access(&mut argument, number, access);
        }
        for (number, &slot) in gathered.iter().enumerate() {
            let (size, stride) = geometry.operands[slot].gather.expect("a gathered operand has its dimension");
            let at = layout.gathered(n_accesses, number);
            (argument[at], argument[at + 1]) = (size as u64, stride as u64);
        }
        let warp = LANES;
        let (per_block, block) = match form {
            Form::Pointwise { vectors, .. } => (vectors as u32 * POINTWISE_THREADS, [POINTWISE_THREADS, 1]),
            Form::Tiles { .. } => (1, [TILE as u32, TILE_LINES as u32]),
            Form::Held { warps, .. } if warps > 1 => (1, [warps as u32 * warp, 1]),
            Form::Held { .. } | Form::Warps | Form::Blocks => (WARPS, [WARPS * warp, 1]),
            Form::Columns => {
                let side = rows_of_columns(kernel);
                (side, [side, LANES])
            }
        };
        let step = |entry: usize, items: usize, per_block: u32, block: [u32; 2]| {
            let grid = i32::try_from(items.div_ceil(per_block as usize)).map_err(|_| TierLimit::GridTooLarge)?;
            Ok(EntryLaunch { entry, items: items as u64, grid: grid as u32, block })
        };
        let mut scratch_bytes = 0;
        let steps = if items == 0 {
            Vec::new()
        } else if form == Form::Blocks {
            let passes = passes(kernel, &Flat::new(kernel, &variant.classes), &variant);
            scratch_bytes = blocks::n_folds(&passes) * (items + rows) * PART_BYTES;
            let entries = blocks::entries(&passes).into_iter().enumerate();
            let launch = |(number, entry): (usize, Entry)| match entry {
                Entry::Loop(_) => step(number, items, per_block, block),
                Entry::Totals(_) => step(number, rows, 1, [TOTAL_WARPS * warp, 1]),
            };
            entries.map(launch).collect::<Result<_, Reason>>()?
        } else {
            vec![step(0, items, per_block, block)?]
        };
        Ok(Plan { variant, argument, steps, scratch_bytes })
    }
}

impl Plan {
    /// The same, with single elements of the host as operands: those with the given numbers. Their elements are in the
    /// low bytes of the words that otherwise have their addresses, so they need no device memory.
    pub fn with_numbers(mut self, numbers: impl IntoIterator<Item = usize>) -> Plan {
        self.variant.numbers.extend(numbers);
        for &number in &self.variant.numbers {
            self.variant.classes[number] = Class::Uniform;
            self.argument[self.variant.layout.address(number)] = 0;
        }
        self
    }
}

/// Bytes of the result of a block, as in the prelude.
const PART_BYTES: usize = 16;

/// The passes of a kernel in a form.
pub(super) fn passes(kernel: &Kernel, flat: &Flat, variant: &Variant) -> Passes {
    let n_operands = kernel.operands.len();
    let once = |slot: usize| kernel.has_folds() && variant.classes[n_operands + slot] == Class::Uniform;
    match variant.form {
        Form::Held { .. } => held::passes(kernel, flat, once),
        Form::Pointwise { .. } | Form::Tiles { .. } | Form::Warps | Form::Blocks | Form::Columns => {
            Passes::new(flat, once, Keep::Nothing)
        }
    }
}

fn choose(kernel: &Kernel, geometry: &Geometry, alignments: &[usize]) -> Form {
    if !kernel.has_folds() {
        return width::choose(kernel, geometry, &classes(kernel, geometry), alignments);
    }
    match geometry.lanes {
        Lanes::Rows => Form::Columns,
        Lanes::Inner => held::choose(kernel, geometry, &classes(kernel, geometry)).unwrap_or({
            let is_long = geometry.n_inner() > FOLD_BLOCK;
            if is_long && geometry.n_rows() < FEW_ROWS { Form::Blocks } else { Form::Warps }
        }),
    }
}

/// Items that a row is cut into.
fn items_of_row(geometry: &Geometry, form: Form) -> usize {
    let inner = geometry.n_inner();
    match form {
        Form::Pointwise { width, .. } => inner.div_ceil(width),
        Form::Blocks => inner.div_ceil(FOLD_BLOCK).max(1),
        Form::Tiles { .. } | Form::Held { .. } | Form::Warps | Form::Columns => 1,
    }
}

/// The classes of all accesses along the inner loops.
fn classes(kernel: &Kernel, geometry: &Geometry) -> SmallVec<[Class; 8]> {
    if !kernel.has_folds() {
        return geometry.classes(kernel);
    }
    let class = |(access, dtype): (&Access, DType)| match access.inner[..] {
        [stride] if stride == dtype.size() => Class::Contiguous,
        _ if access.inner.iter().all(|&stride| stride == 0) => Class::Uniform,
        _ => Class::Strided,
    };
    geometry.operands.iter().chain(&geometry.outputs).zip(kernel.dtypes()).map(class).collect()
}

/// Narrow if every position and every offset is below 2^31, with a margin for the last thread block.
fn index(kernel: &Kernel, geometry: &Geometry, form: Form) -> Index {
    const LIMIT: u128 = (1 << 31) - (1 << 16);
    let span = |access: &Access| {
        let sizes = geometry.rows.iter().chain(&geometry.inner);
        let loops = sizes.zip(access.rows.iter().chain(&access.inner));
        loops.map(|(&size, &stride)| size as u128 * (stride as i64).unsigned_abs() as u128).sum::<u128>()
    };
    // Iotas always count in 64 bits.
    let memory = geometry.operands.iter().zip(&kernel.operands).filter(|(_, operand)| operand.source == Source::Memory);
    let accesses = memory.map(|(access, _)| access).chain(&geometry.outputs);
    let elements = geometry.n_rows() as u128 * geometry.n_inner() as u128;
    let lanes = if kernel.has_folds() { LANES as u128 } else { 1 };
    let threads = geometry.n_rows() as u128 * items_of_row(geometry, form) as u128 * lanes;
    let widest = accesses.map(span).chain([elements, threads]).max().unwrap_or(0);
    if widest < LIMIT { Index::Narrow } else { Index::Wide }
}
