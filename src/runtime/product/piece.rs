//! A piece of a product: its loops over tiles, on one thread.
//!
//! Columns and the inner dimension are cut into blocks, such that the block of the right operand stays in a core's
//! second-level cache while rows are computed, some at a time. That block is packed into panels, unless it is used so
//! rarely, or is so compact, that it is read in place. The left operand is read in place, unless its elements are far
//! apart. None of this changes a bit (`tile`). A product with a single column is computed as one with a single row,
//! whose vectors are full.

#![allow(unsafe_code, reason = "tiles of operands and results are raw pointers")]

use super::gather::Gathered;
use super::pack::{Scratch, gather, pack};
use super::tile::{Kernels, Multiply, Panels, Tile};

/// Bytes of a block along the inner dimension.
const BLOCK_DEPTH: usize = 2 << 10;
/// The same where each step of the left operand is in another page.
const SCATTERED_DEPTH: usize = 1 << 10;
/// Bytes of a packed block: about half of a second-level cache.
const BLOCK_BYTES: usize = 1 << 20;
/// Most bytes over which an operand that is read in place may be spread. More would be too many pages, and too few
/// cache sets.
const CLOSE: usize = 64 << 10;

/// With so few rows, a right operand that is read in place from beyond the second-level cache is read in the order of
/// memory: few rows of it at a time, in long runs. Otherwise each step reads a part of another page.
const MOST_STREAMED: usize = 16;
/// Steps of such a block.
const STREAMED_DEPTH: usize = 16;
/// Bytes of its results, which stay in a core's first cache until the next block continues their chains.
const STREAMED_BYTES: usize = 32 << 10;

/// Bytes of a single row's columns that are computed together.
const ROW_BYTES: usize = 16 << 10;
/// Slivers of rows that are packed at a time, so that whole cache lines are read.
const SLIVERS: usize = 4;

/// Some rows and columns of a product. Strides are in elements, of rows and of columns.
#[derive(Clone, Copy)]
pub(super) struct ProductPiece<'a, T> {
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) n: usize,
    pub(super) a: *const T,
    pub(super) left: [usize; 2],
    pub(super) b: *const T,
    pub(super) right: [usize; 2],
    /// Where the elements of the right operand lie, if they are those of windows. Then `right` is not used.
    pub(super) gathered: Option<Gathered<'a>>,
    /// The columns of the result are contiguous.
    pub(super) c: *mut T,
    /// The stride of its rows.
    pub(super) c_row: usize,
    /// Whether chains start here, and whether they end here. Otherwise they go on from the result, or will.
    pub(super) is_first: bool,
    pub(super) is_last: bool,
}

/// The size of equal parts of `length`: at most `most`, and a multiple of `unit` except for the last.
pub(super) fn even(length: usize, most: usize, unit: usize) -> usize {
    let parts = length.div_ceil(most.max(unit)).max(1);
    length.div_ceil(parts).next_multiple_of(unit).max(unit)
}

impl<T: Multiply> ProductPiece<'_, T> {
    /// Multiplies on this thread.
    ///
    /// # Safety
    /// The processor has the level of `kernels`. The pointers are valid for `m * k`, `k * n` and `m * n` elements at
    /// the strides. Meanwhile nothing writes the operands, and nothing else uses the result.
    pub(super) unsafe fn multiply(&self, kernels: &Kernels<T>) {
        let &ProductPiece { m, k, n, a, left, b, right, gathered, c, c_row, is_first, is_last } = self;
        if m * n == 0 {
            return;
        }
        let (size, lanes) = (size_of::<T>(), kernels.lanes);
        let is_strided = gathered.is_none();
        if is_strided && n == 1 && m >= lanes && c_row == 1 {
            let transposed =
                ProductPiece { m: n, n: m, a: b, left: [right[1], right[0]], b: a, right: [left[1], left[0]], ..*self };
            // SAFETY: the same elements.
            return unsafe { transposed.multiply(kernels) };
        }
        if is_strided && m == 1 && (right[1] == 1 || right[0] == 1 && n >= lanes) {
            // SAFETY: passed on from the caller.
            return unsafe { self.row(kernels) };
        }
        let width = 2 * lanes;
        let is_close = |stride: usize| k.min(BLOCK_DEPTH / size) * stride * size <= CLOSE;
        let pack_rows = left[1] > 1 && n > width && !is_close(left[1]);
        let in_place = is_strided && right[1] == 1 && (m <= 2 * kernels.pairs.len() || is_close(right[0]));
        let streams = in_place && m <= MOST_STREAMED && k * n * size > BLOCK_BYTES && !is_close(right[0]);
        let depth = match (streams, pack_rows) {
            (true, _) => STREAMED_DEPTH,
            (false, true) => SCATTERED_DEPTH / size,
            (false, false) => BLOCK_DEPTH / size,
        };
        let depth = even(k, depth, 1);
        let most = if streams { STREAMED_BYTES / m } else { BLOCK_BYTES / depth };
        let columns = even(n, most / size, width);
        // A part of a vector is packed, with the whole vector before it if the two are a tile.
        let unit = if n.is_multiple_of(lanes) { lanes } else { width };
        let panel = if in_place && n % width <= lanes { lanes } else { width };
        let packed_columns = match in_place {
            true if n.is_multiple_of(lanes) => 0,
            true => panel,
            false => columns,
        };
        let packed_rows = if pack_rows { SLIVERS * kernels.pairs.len() } else { 0 };
        // Gathered vectors are stored whole, so the last one of a panel may end in another step.
        let slack = usize::from(!is_strided);
        Scratch::with(packed_rows * depth + packed_columns * (depth + slack), |scratch: *mut T| {
            let panels = scratch.wrapping_add(packed_rows * depth);
            for first in (0..n).step_by(columns) {
                for step in (0..k.max(1)).step_by(depth) {
                    let block = ProductPiece {
                        n: columns.min(n - first),
                        k: depth.min(k - step),
                        a: a.wrapping_add(step * left[1]),
                        b: b.wrapping_add(step * right[0] + first * right[1]),
                        gathered: gathered.map(|all| Gathered { step, column: all.column + first, ..all }),
                        c: c.wrapping_add(first),
                        ..*self
                    };
                    let block = CacheBlock {
                        is_first: is_first && step == 0,
                        is_last: is_last && step + block.k == k,
                        in_place: if in_place { block.n / unit * unit } else { 0 },
                        panels: Panels { to: panels, width: panel, k: block.k + slack },
                        piece: block,
                    };
                    let rows = Panels { to: scratch, width: packed_rows, k: block.piece.k };
                    // SAFETY: passed on from the caller, for these columns and steps; scratch has room for them.
                    unsafe { block.multiply(kernels, pack_rows.then_some(rows)) };
                }
            }
        });
    }

    /// Computes a single row. If chains go on from the result, and columns of the right operand are contiguous, there
    /// are only whole vectors of them.
    ///
    /// # Safety
    /// As for [`ProductPiece::multiply`]. Rows of the right operand are contiguous, or its columns are and they fill a
    /// vector.
    unsafe fn row(&self, kernels: &Kernels<T>) {
        let &ProductPiece { k, n, a, left, b, right, c, is_first, is_last, .. } = self;
        let (run, b_step, most) = match right {
            [b_step, 1] => (kernels.stream, b_step, ROW_BYTES / size_of::<T>()),
            [_, b_step] => (kernels.transposed, b_step, n),
        };
        for first in (0..n).step_by(most) {
            let (b, c) = (b.wrapping_add(first * right[1]), c.wrapping_add(first));
            let (a_step, columns) = (left[1], most.min(n - first));
            let (panel, c_row) = (std::ptr::null_mut(), 0);
            let row = Tile { k, a, a_row: 0, a_step, b, b_step, panel, c, c_row, columns, is_first, is_last };
            // SAFETY: passed on from the caller.
            unsafe { run(&row) };
        }
    }
}

/// How rows are cut into slivers, whose heights have kernels.
#[derive(Clone, Copy)]
struct Slivers {
    rows: usize,
    /// Rows of the first sliver, if it needs a certain height.
    first: usize,
    /// The number of slivers that share the other rows evenly.
    others: usize,
}

impl Slivers {
    fn new(rows: usize, first: usize, most: usize) -> Slivers {
        Slivers { rows, first, others: (rows - first).div_ceil(most) }
    }

    fn count(self) -> usize {
        usize::from(self.first > 0) + self.others
    }

    /// The first row of a sliver.
    fn start(self, sliver: usize) -> usize {
        let other = sliver.checked_sub(usize::from(self.first > 0));
        other.map_or(0, |other| self.first + other * (self.rows - self.first) / self.others.max(1))
    }
}

/// All rows of a piece, with as many columns and steps as fit the caches.
struct CacheBlock<'a, T> {
    piece: ProductPiece<'a, T>,
    is_first: bool,
    is_last: bool,
    /// Columns of the right operand that are read in place; the others are packed.
    in_place: usize,
    panels: Panels<T>,
}

impl<T: Multiply> CacheBlock<'_, T> {
    /// # Safety
    /// As for [`ProductPiece::multiply`]. The panels have memory, and so have those for packed rows of the left
    /// operand.
    unsafe fn multiply(&self, kernels: &Kernels<T>, rows: Option<Panels<T>>) {
        let &CacheBlock { ref piece, is_first, is_last, in_place, ref panels } = self;
        let &ProductPiece { m, k, n, a, left, b, right, gathered, c, c_row, .. } = piece;
        let (most, lanes) = (kernels.pairs.len(), kernels.lanes);
        // Whole tiles of contiguous columns are packed by the first sliver while it computes, the others before.
        let width = 2 * lanes;
        let on_the_way = gathered.is_none() && right[1] == 1 && in_place == 0 && panels.width == width && m > most;
        let packing = if on_the_way { n / width * width } else { 0 };
        let before = in_place.max(packing);
        if let Some(gathered) = gathered {
            // SAFETY: passed on from the caller. Panels have room for another step.
            unsafe { gather(kernels, b, gathered, n, panels) };
        } else if before < n {
            let panels = Panels { to: panels.column(before - in_place), ..*panels };
            // SAFETY: passed on from the caller.
            unsafe { pack(kernels, b.wrapping_add(before * right[1]), right, n - before, &panels) };
        }
        let slivers = Slivers::new(m, if packing > 0 { most } else { 0 }, most);
        let mut packed = 0;
        for sliver in 0..slivers.count() {
            let (row, end) = (slivers.start(sliver), slivers.start(sliver + 1));
            let height = end - row;
            let read_in_place = if sliver == 0 { before } else { in_place };
            let (a, a_row, a_step) = match &rows {
                Some(rows) => {
                    if sliver % SLIVERS == 0 {
                        packed = row;
                        let end = slivers.start((sliver + SLIVERS).min(slivers.count()));
                        // SAFETY: passed on from the caller. The rows, as columns of the transposed operand, fit the
                        // memory.
                        unsafe { pack(kernels, a.wrapping_add(row * left[0]), [left[1], left[0]], end - row, rows) };
                    }
                    (rows.column(row - packed).cast_const(), 1, rows.width)
                }
                None => (a.wrapping_add(row * left[0]), left[0], left[1]),
            };
            let c = c.wrapping_add(row * c_row);
            let mut column = 0;
            while column < n {
                // Columns from here on that are in the same place.
                let (b, b_step, rest) = if column < read_in_place {
                    (b.wrapping_add(column), right[0], read_in_place - column)
                } else {
                    (panels.column(column - in_place).cast_const(), panels.width, n - column)
                };
                let (run, vectors) = if sliver == 0 && column < packing {
                    (kernels.packing, 2)
                } else if rest > lanes && (column >= read_in_place || rest >= width) {
                    (kernels.pairs[height - 1], 2)
                } else {
                    (kernels.singles[height - 1], 1)
                };
                let columns = rest.min(vectors * lanes);
                let (panel, c) = (panels.column(column), c.wrapping_add(column));
                // SAFETY: passed on from the caller. Vectors read columns in place only where all of their lanes are
                // columns, and whole vectors of panels. Tiles that pack write to the panels of these columns.
                unsafe { run(&Tile { k, a, a_row, a_step, b, b_step, panel, c, c_row, columns, is_first, is_last }) };
                column += columns;
            }
        }
    }
}
