//! How a kernel is launched on one set of shapes: which code, which grid, which words.
//!
//! A [`Variant`] is all that the text depends on besides the kernel; sizes and strides are words. So one text serves every
//! shape of its variant, and there are few: the form, the numbers of loops, the classes, the width of vectors and that of
//! indices. A [`Plan`] is plain data and depends on shapes alone; a launch brings pointers. Nothing here knows a device.

use super::words::{self, Division, Layout};
use crate::codegen::geometry::{Access, Class, Geometry, Lanes};
use crate::codegen::kernel::{FOLD_BLOCK, FOLD_LANES, Kernel, Kind, Source};
use crate::error::Reason;
use smallvec::SmallVec;

/// How the work of a kernel is given to threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// No folds: a thread computes so many neighbours along the inner loop.
    Pointwise {
        /// 1, 2, 4 or 8.
        width: usize,
    },
    /// A warp computes a row.
    Warps,
    /// A warp computes a block of a row, in one launch per pass: few long rows.
    Blocks,
    /// A block of threads computes 32 rows that lie side by side.
    Columns,
}

/// The integers that positions and distances are computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Index {
    /// 32 bits, where no position and no distance reaches 2^31.
    Narrow,
    /// 64 bits.
    Wide,
}

/// What the text of a kernel depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Variant {
    /// How work is given to threads.
    pub form: Form,
    /// The numbers of loops.
    pub layout: Layout,
    /// The width of indices.
    pub index: Index,
    /// How operands, then outputs, move along the inner loops; with folds an access that moves at all is strided.
    pub classes: SmallVec<[Class; 8]>,
    /// Operands of a single element that lies in the word of their address; see [`Plan::with_numbers`].
    pub numbers: SmallVec<[usize; 2]>,
}

/// One launch of an entry of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The entry's number.
    pub entry: usize,
    /// What the word [`words::ITEMS`] is.
    pub items: u64,
    /// Blocks of the grid; the other two dimensions are 1.
    pub grid: u32,
    /// Threads of a block, in two dimensions.
    pub block: [u32; 2],
}

/// The launches of a kernel on one set of shapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The text that is launched.
    pub variant: Variant,
    /// The argument, pointers not yet added and [`words::ITEMS`] not yet set.
    pub words: Vec<u64>,
    /// Launches, in order on one stream; none where there is nothing to do.
    pub steps: Vec<Step>,
    /// Bytes for the results of blocks, aligned to 16; no content is expected.
    pub scratch_bytes: usize,
}

/// Threads of a block of [`Form::Pointwise`].
pub(super) const POINTWISE_THREADS: u32 = 256;
/// Warps of a block of [`Form::Warps`] and [`Form::Blocks`].
pub(super) const WARPS: u32 = 4;
/// Threads of a warp, and rows of a block of [`Form::Columns`].
pub(super) const LANES: u32 = FOLD_LANES as u32;
/// Bytes of the widest access.
const ACCESS_BYTES: usize = 16;
/// Elements of the longest vector.
const MAX_WIDTH: usize = 8;
/// Words that are always passed: 4 KiB of arguments.
const MAX_WORDS: usize = 512;
/// Rows below which long ones are cut into blocks: a warp each would leave most of a device idle.
const FEW_ROWS: usize = 1024;

impl Plan {
    /// Plans the launches of `kernel`. Every pointer of a launch, operands first, will be a multiple of so many bytes as
    /// `alignments` says, which is at least its element's size.
    ///
    /// # Errors
    /// The reason why no CUDA code is made for it.
    pub fn new(kernel: &Kernel, geometry: &Geometry, alignments: &[usize]) -> Result<Plan, Reason> {
        Plan::with_form(kernel, geometry, choose(kernel, geometry, alignments))
    }

    /// As [`Plan::new`], in a form that the caller has chosen: one for folds if there are any. The width of a vector
    /// must suit all pointers.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn with_form(kernel: &Kernel, geometry: &Geometry, form: Form) -> Result<Plan, Reason> {
        let (rows, inner) = (geometry.n_rows(), geometry.n_inner());
        let n_accesses = kernel.operands.len() + kernel.outputs.len();
        let layout = Layout { rows: geometry.rows.len(), inner: geometry.inner.len() };
        let gathered = super::gathered(kernel);
        if layout.n_words(n_accesses, gathered.len()) > MAX_WORDS {
            return Err(Reason::TooManyArguments);
        }
        let items_of_row = match form {
            Form::Pointwise { width } => inner.div_ceil(width),
            Form::Blocks => inner.div_ceil(FOLD_BLOCK).max(1),
            Form::Warps | Form::Columns => 1,
        };
        let items = rows * items_of_row;
        let index = index(kernel, geometry, items);
        let variant = Variant { form, layout, index, classes: classes(kernel, geometry), numbers: SmallVec::new() };
        let mut words = vec![0; layout.n_words(n_accesses, gathered.len())];
        (words[words::ROWS], words[words::INNER]) = (rows as u64, inner as u64);
        let sizes = geometry.rows.iter().chain(&geometry.inner).copied().chain([items_of_row]);
        for (number, size) in sizes.enumerate() {
            let division = match index {
                Index::Narrow => Division::narrow(size),
                Index::Wide => Division::wide(size),
            };
            layout.put_loop(&mut words, number, size, division);
        }
        for (number, access) in geometry.operands.iter().chain(&geometry.outputs).enumerate() {
            layout.put_access(&mut words, number, access);
        }
        for (number, &slot) in gathered.iter().enumerate() {
            let (size, stride) = geometry.operands[slot].gather.expect("a gathered operand has its dimension");
            let at = layout.gathered(n_accesses, number);
            (words[at], words[at + 1]) = (size as u64, stride as u64);
        }
        let (per_block, block) = match form {
            Form::Pointwise { .. } => (POINTWISE_THREADS, [POINTWISE_THREADS, 1]),
            Form::Warps | Form::Blocks => (WARPS, [WARPS * LANES, 1]),
            Form::Columns => (LANES, [LANES, LANES]),
        };
        let (n_entries, scratch_bytes) = match form {
            Form::Blocks => {
                let (passes, folds) = n_passes_and_folds(kernel);
                (passes, folds * items * PART_BYTES)
            }
            Form::Pointwise { .. } | Form::Warps | Form::Columns => (1, 0),
        };
        let grid = i32::try_from(items.div_ceil(per_block as usize))
            .map_err(|_| Reason::TierCannot("a grid has fewer blocks than its elements need".into()))?;
        let step = |entry| Step { entry, items: items as u64, grid: grid as u32, block };
        let steps = if items == 0 { Vec::new() } else { (0..n_entries).map(step).collect() };
        Ok(Plan { variant, words, steps, scratch_bytes })
    }
}

impl Plan {
    /// The same, but operands of a single element, whose numbers are given, have it in the low bytes of the word that has
    /// their address otherwise: a number of the host needs no memory of the device.
    pub fn with_numbers(mut self, numbers: impl IntoIterator<Item = usize>) -> Plan {
        self.variant.numbers.extend(numbers);
        for &number in &self.variant.numbers {
            self.variant.classes[number] = Class::Uniform;
            self.words[self.variant.layout.address(number)] = 0;
        }
        self
    }
}

/// Bytes of the result of a block, as the prelude has them.
const PART_BYTES: usize = 16;

/// The numbers of passes and of folds; folds that are equal may be counted twice.
fn n_passes_and_folds(kernel: &Kernel) -> (usize, usize) {
    let passes = kernel.passes().into_iter().max().map_or(1, |last| last + 1);
    (passes, kernel.insts.iter().filter(|inst| matches!(inst.kind, Kind::Fold(_))).count())
}

fn choose(kernel: &Kernel, geometry: &Geometry, alignments: &[usize]) -> Form {
    if !kernel.has_folds() {
        return Form::Pointwise { width: width(kernel, geometry, alignments) };
    }
    match geometry.lanes {
        Lanes::Rows => Form::Columns,
        Lanes::Inner if geometry.n_inner() > FOLD_BLOCK && geometry.n_rows() < FEW_ROWS => Form::Blocks,
        Lanes::Inner => Form::Warps,
    }
}

/// How many neighbours a thread computes: 16 bytes of the narrowest access, if all are aligned for it. Where an access
/// jumps, neighbouring threads had better take neighbouring elements.
fn width(kernel: &Kernel, geometry: &Geometry, alignments: &[usize]) -> usize {
    let classes = classes(kernel, geometry);
    let accesses = || geometry.operands.iter().chain(&geometry.outputs);
    let is_memory = |slot: usize| kernel.operands.get(slot).is_none_or(|operand| operand.source == Source::Memory);
    // Lanes behind the last element read where they would be, which only an index of zero along a still operand allows.
    let gathered = super::gathered(kernel);
    let is_far = |slot: usize| match classes[slot] {
        Class::Strided => true,
        Class::Contiguous => gathered.contains(&slot),
        Class::Uniform => false,
    };
    if (0..classes.len()).any(|slot| is_memory(slot) && is_far(slot)) {
        return 1;
    }
    let sizes: SmallVec<[usize; 8]> = kernel.dtypes().map(|dtype| dtype.size()).collect();
    let wide = |slot: &usize| is_memory(*slot) && classes[*slot] == Class::Contiguous;
    let Some(narrowest) = (0..classes.len()).filter(wide).map(|slot| sizes[slot]).min() else { return 1 };
    let fits = |&width: &usize| {
        let aligned = |(slot, access): (usize, &Access)| {
            let bytes = (width * sizes[slot]).min(ACCESS_BYTES);
            let starts = [alignments[slot], access.base as usize];
            !wide(&slot) || starts.iter().chain(&access.rows).all(|distance| distance % bytes == 0)
        };
        width <= geometry.n_inner().max(1) && accesses().enumerate().all(aligned)
    };
    let widest = (ACCESS_BYTES / narrowest).min(MAX_WIDTH);
    [8, 4, 2].into_iter().filter(|&width| width <= widest).find(fits).unwrap_or(1)
}

/// The classes of all accesses along the inner loops.
fn classes(kernel: &Kernel, geometry: &Geometry) -> SmallVec<[Class; 8]> {
    if !kernel.has_folds() {
        return geometry.classes(kernel);
    }
    let still = |access: &Access| access.inner.iter().all(|&stride| stride == 0);
    let accesses = geometry.operands.iter().chain(&geometry.outputs);
    accesses.map(|access| if still(access) { Class::Uniform } else { Class::Strided }).collect()
}

/// Narrow if every position and every distance is below 2^31, and a little more for the last block of threads.
fn index(kernel: &Kernel, geometry: &Geometry, items: usize) -> Index {
    const LIMIT: u128 = (1 << 31) - (1 << 16);
    let span = |access: &Access| {
        let sizes = geometry.rows.iter().chain(&geometry.inner);
        let loops = sizes.zip(access.rows.iter().chain(&access.inner));
        loops.map(|(&size, &stride)| size as u128 * (stride as i64).unsigned_abs() as u128).sum::<u128>()
    };
    // An iota counts in 64 bits always.
    let memory = geometry.operands.iter().zip(&kernel.operands).filter(|(_, operand)| operand.source == Source::Memory);
    let accesses = memory.map(|(access, _)| access).chain(&geometry.outputs);
    let elements = geometry.n_rows() as u128 * geometry.n_inner() as u128;
    // Columns have a warp per row, the others at most one per item.
    let threads = items as u128 * LANES as u128;
    let widest = accesses.map(span).chain([elements, threads]).max().unwrap_or(0);
    if widest < LIMIT { Index::Narrow } else { Index::Wide }
}
