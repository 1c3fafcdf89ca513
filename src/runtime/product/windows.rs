//! Products whose right operand is a view of windows (`ir::window_product`).
//!
//! Panels are packed straight from the view (`gather`), so the windows are never copied to memory. Where there are few
//! rows, or channels are last in memory, not even panels are packed (`direct`).

use super::direct::{APART, Across, Along, ByRows, MultiplyDirectly, PARTS, Steps, WHOLE};
use super::format::Format;
use super::gather::{Gathered, Segment, WindowTable, merged, offsets};
use super::pack::pack;
use super::piece::ProductPiece;
use super::tile::{Kernels, Panels};
use super::{Cut, WORTH_A_THREAD, pool, widened};
use crate::codegen::product::ProductShape;
use crate::codegen::vm::Isa;
use crate::device::{Device, roomy};
use crate::error::{Error, Result};
use crate::ir::attrs::{Attributes, WindowProduct};
use crate::ir::{Attr, DType, FEW_ROWS, Layout, Sizes, Strides, TensorType, channels_are_last};
use crate::runtime::array::Array;
use smallvec::SmallVec;
use std::ops::Range;

#[cfg(test)]
mod tests;

/// Dims in front of the inner ones: samples and groups.
const BATCH: usize = 2;
/// With so many columns, a sample fills tiles, and its factors are mostly in a cache for the next one.
const FEW_COLUMNS: usize = 64;
/// Matrices with fewer rows or steps are multiplied before copies of their columns and results would be made.
const LEAST_JOINED: usize = 32;
/// With more rows, packed columns are used so often that packing hardly counts.
const MOST_TURNED: usize = 128;
/// With fewer steps, transposing a result takes longer than packing.
const LEAST_STEPS: usize = 128;
/// Packing a vector takes as long as multiplying so many.
const PACKING: usize = 6;
/// More factors of a matrix would be read from beyond the second-level cache for each two vectors of columns.
const MOST_FACTORS: usize = 1 << 18;
/// Vectors of windows that some rows are multiplied by before others are: as many as stay in a near cache, and so many
/// that these rows of the result are written in long runs.
const CLOSE: usize = 4096;
const MOST_PAIRS: usize = 16;

/// Computes the product of `(samples, groups, M, K)` and windows `(samples, groups, inner…, columns…)` into `out`.
///
/// The result is dense. 16-bit floats are widened in memory, but not as often as windows repeat them. The op's
/// inference has checked the shapes.
///
/// # Errors
/// Out of memory.
pub(in crate::runtime) fn of_windows(left: &Array, windows: &Array, out: &Array, attrs: &[Attr]) -> Result<()> {
    let inner = WindowProduct::read(attrs).inner as usize;
    // Widened windows may lie in another order, but the result lies as inference said.
    let Layout { sizes, strides, .. } = windows.layout();
    let is_last = channels_are_last(sizes, strides, left.layout().sizes[BATCH], inner);
    let wide = |format| Ok::<_, Error>([widened(left, format)?, widened(windows, format)?]);
    let of_wide = |[left, windows]: [Array; 2]| multiply::<f32>(&left, &windows, out, inner, is_last);
    match left.dtype() {
        DType::F32 => multiply::<f32>(left, windows, out, inner, is_last),
        DType::F64 => multiply::<f64>(left, windows, out, inner, is_last),
        DType::F16 => of_wide(wide(Format::F16)?),
        DType::BF16 => of_wide(wide(Format::BF16)?),
        dtype @ (DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64) => {
            unreachable!("products of windows of {dtype} are products of copies")
        }
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
}

fn multiply<T: MultiplyDirectly>(
    left: &Array,
    windows: &Array,
    out: &Array,
    inner: usize,
    is_last: bool,
) -> Result<()> {
    Operands::<T>::new(Isa::best(), left, windows, out, inner)?.multiply(is_last)
}

/// Whether matrices of a batch that have the same left operand are multiplied as columns of one.
pub(super) fn joins(shape: &ProductShape) -> bool {
    let &ProductShape { batch, m, k, n, left, .. } = shape;
    batch > 1 && left[0] == 0 && n < FEW_COLUMNS && m >= LEAST_JOINED && k >= LEAST_JOINED
}

/// Computes a product of a batch that [`joins`].
///
/// # Errors
/// Out of memory.
pub(super) fn of_matrices<T: MultiplyDirectly>(a: &Array, b: &Array, out: &Array, shape: &ProductShape) -> Result<()> {
    let &ProductShape { batch, m, k, n, left, right, .. } = shape;
    let matrices = |array: &Array, [rows, columns]: [usize; 2], [matrix, row, column]: [usize; 3]| {
        let sizes = Sizes::from_slice(&[batch, 1, rows, columns]);
        let strides = Strides::from_slice(&[matrix, 0, row, column]);
        array.with_layout(Layout { sizes, strides, offset: array.layout().offset })
    };
    let (a, b) = (matrices(a, [m, k], left), matrices(b, [k, n], right));
    Operands::<T>::new(Isa::best(), &a, &b, out, 1)?.packed(left[2])
}

/// The operands, the result, and their numbers.
struct Operands<'a, T> {
    /// A level of this processor.
    isa: Isa,
    left: &'a Array,
    windows: &'a Array,
    out: &'a Array,
    samples: usize,
    groups: usize,
    m: usize,
    /// Columns.
    n: usize,
    /// Sizes and strides of the windows' dims.
    inner: SmallVec<[(usize, usize); 8]>,
    columns: SmallVec<[(usize, usize); 8]>,
    steps: Steps,
    element: std::marker::PhantomData<T>,
}

impl<'a, T: MultiplyDirectly> Operands<'a, T> {
    fn new(isa: Isa, left: &'a Array, windows: &'a Array, out: &'a Array, n_inner: usize) -> Result<Operands<'a, T>> {
        let (a, all) = (left.layout(), dims(windows.layout()));
        let inner: SmallVec<[(usize, usize); 8]> = all[BATCH..BATCH + n_inner].into();
        let columns: SmallVec<[(usize, usize); 8]> = all[BATCH + n_inner..].into();
        // The factors of a row may be one dim, whose element is the place in the inner dims.
        let factors = &a.strides[BATCH + 1..];
        let mut below = inner.iter().map(|&(size, _)| size).product::<usize>();
        let each = inner.iter().enumerate().map(|(d, &(size, stride))| {
            below /= size.max(1);
            let factor = if factors.len() == n_inner { factors[d] } else { factors[0] * below };
            (size, [factor, stride])
        });
        let steps = Steps::new(each)?;
        Ok(Operands {
            isa,
            left,
            windows,
            out,
            samples: a.sizes[0],
            groups: a.sizes[1],
            m: a.sizes[BATCH],
            n: columns.iter().map(|&(size, _)| size).product(),
            inner,
            columns,
            steps,
            element: std::marker::PhantomData,
        })
    }

    /// Chooses a way. `is_last` says whether channels are last in memory.
    fn multiply(&self, is_last: bool) -> Result<()> {
        if is_last {
            let groups_are_lanes = self.m == 1 && self.groups > 1 && self.windows.layout().strides[1] == 1;
            return if groups_are_lanes { self.across() } else { self.down(self.out) };
        }
        if self.turns() {
            return self.turned();
        }
        match self.step() {
            Some(step) if self.are_close() => self.in_rows(step),
            Some(step) if self.m > FEW_ROWS => self.packed(step),
            Some(_) | None => self.along(),
        }
    }

    /// The distance of the factors of a row, if it is the same for all of them.
    fn step(&self) -> Option<usize> {
        let layout = self.left.layout();
        match merged(&dims(layout)[BATCH + 1..])[..] {
            [] => Some(0),
            [(_, stride)] => Some(stride),
            _ => None,
        }
    }

    /// The level with the widest vectors, unless shorter ones leave fewer lanes of a run without use.
    fn level(&self, run: usize) -> Isa {
        let (best, unused) = (self.isa, |isa: Isa| run.next_multiple_of(T::direct(isa).lanes));
        if best == Isa::Avx512 && unused(Isa::Avx2) < unused(best) { Isa::Avx2 } else { best }
    }

    fn threads(&self) -> usize {
        let work = [self.samples, self.groups, self.m, self.n, self.steps.count()];
        let work = work.into_iter().fold(1, usize::saturating_mul);
        (work / WORTH_A_THREAD).clamp(1, pool::num_threads())
    }

    /// Where the first element of a matrix lies.
    fn start(layout: &Layout, sample: usize, group: usize) -> usize {
        sample * layout.strides[0] + group * layout.strides[1]
    }

    fn at(array: &Array, offset: usize) -> *mut T {
        array.ptr().cast::<T>().wrapping_add(offset)
    }

    /// Packs panels of windows. The factors of a row are `step` apart.
    ///
    /// Samples of few columns that have the same factors are columns of one product, so that factors are read once.
    fn packed(&self, step: usize) -> Result<()> {
        let &Operands { left, windows, out, samples, groups, m, n, .. } = self;
        let shares = left.layout().strides[0] == 0;
        if samples == 1 || !shares || n >= FEW_COLUMNS {
            return self.packed_into(out, samples, &self.columns, step);
        }
        let mut columns: SmallVec<[(usize, usize); 8]> =
            SmallVec::from_slice(&[(samples, windows.layout().strides[0])]);
        columns.extend_from_slice(&self.columns);
        let rows = groups * m;
        let joined = Array::new(Device::CPU, &TensorType::contiguous(out.dtype(), &[rows, samples, n]))?;
        self.packed_into(&joined, 1, &columns, step)?;
        for (row, sample) in (0..rows).flat_map(|row| (0..samples).map(move |sample| (row, sample))) {
            let (from, to) = ((row * samples + sample) * n, (sample * rows + row) * n);
            #[allow(unsafe_code, reason = "operands are raw pointers")]
            // SAFETY: both are memory of `samples * rows * n` elements that nothing else uses.
            unsafe {
                std::ptr::copy_nonoverlapping(Self::at(&joined, from), Self::at(out, to), n);
            }
        }
        Ok(())
    }

    /// Multiplies so many matrices of each group, which have these columns, into a dense result.
    fn packed_into(&self, out: &Array, samples: usize, columns: &[(usize, usize)], step: usize) -> Result<()> {
        let &Operands { left, windows, groups, m, .. } = self;
        let n = columns.iter().map(|&(size, _)| size).product();
        let kernels = T::kernels(self.isa);
        let (a, k) = (left.layout(), self.steps.count());
        let table = WindowTable::new(&self.inner, columns, kernels.lanes)?;
        let cut = Cut::new([samples * groups, m, k, n]);
        let one = |index: usize| {
            let (matrix, rows, columns) = cut.part(index);
            let (sample, group) = (matrix / groups, matrix % groups);
            let piece = ProductPiece {
                m: rows.len(),
                k,
                n: columns.len(),
                a: Self::at(left, Self::start(a, sample, group) + rows.start * a.strides[BATCH]).cast_const(),
                left: [a.strides[BATCH], step],
                b: Self::at(windows, Self::start(windows.layout(), sample, group)).cast_const(),
                right: [0, 0],
                gathered: Some(Gathered { table: &table, step: 0, column: columns.start }),
                c: Self::at(out, (matrix * m + rows.start) * n + columns.start),
                c_row: n,
                is_first: true,
                is_last: true,
            };
            #[allow(unsafe_code, reason = "pieces are raw pointers")]
            // SAFETY: the layouts of the operands are inside their storages, which they keep alive, and the table has
            // only offsets of the windows' layout. Nothing writes the operands while a routine runs. The result is
            // memory of `samples * groups * m * n` elements that nothing else uses, and each index writes its own part.
            // The level is one of this processor.
            unsafe {
                piece.multiply(kernels);
            }
        };
        pool::run(cut.parts(), cut.threads, &one);
        Ok(())
    }

    /// The size and stride of the last dim of columns, with those before it that it is one with.
    fn run(&self) -> (usize, usize) {
        merged(&self.columns).last().copied().unwrap_or((1, 1))
    }

    /// Columns as segments of whole vectors, and of parts of vectors.
    fn segments(&self, lanes: usize) -> Result<[Vec<Segment>; 2]> {
        let (run, stride) = self.run();
        let columns = merged(&self.columns);
        let starts = offsets(&columns[..columns.len().saturating_sub(1)])?;
        let (each, rest) = (run / lanes, run % lanes);
        let mut whole = roomy(starts.len().saturating_mul(each))?;
        let mut parts = roomy(if rest > 0 { starts.len() } else { 0 })?;
        for (nth, start) in starts.iter().enumerate() {
            let segment = |at: usize, length: usize| Segment {
                column: nth * run + at * lanes,
                length,
                offset: start + at * lanes * stride,
            };
            whole.extend((0..each).map(|at| segment(at, lanes)));
            if rest > 0 {
                parts.push(segment(each, rest));
            }
        }
        Ok([whole, parts])
    }

    /// Whether columns are runs in memory that fill vectors so well that reading them there beats packing them.
    fn are_close(&self) -> bool {
        let (run, stride) = self.run();
        let unused = run.next_multiple_of(T::kernels(self.isa).lanes) - run;
        let is_small = self.m * self.steps.count() <= MOST_FACTORS;
        self.m >= FEW_ROWS && stride == 1 && unused * self.m <= run * PACKING && is_small
    }

    /// Multiplies some rows by two vectors of neighbouring columns at a time, without packing.
    fn in_rows(&self, step: usize) -> Result<()> {
        let &Operands { left, windows, out, groups, m, n, .. } = self;
        let functions = T::direct(self.isa);
        let [mut segments, parts] = self.segments(functions.lanes)?;
        segments.extend(parts);
        if !segments.len().is_multiple_of(2) {
            segments.push(Segment { column: 0, length: 0, offset: 0 });
        }
        let steps = &offsets(&self.inner)?;
        let (matrices, threads) = (self.samples * groups, self.threads());
        let (pieces, slivers) = (pieces(matrices, threads), m.div_ceil(functions.rows.len()));
        let a_row = left.layout().strides[BATCH];
        let together = (CLOSE / steps.len().max(1)).clamp(1, MOST_PAIRS);
        let one = |index: usize| {
            let (matrix, piece) = (index / pieces, index % pieces);
            let (sample, group) = (matrix / groups, matrix % groups);
            let a = Self::at(left, Self::start(left.layout(), sample, group)).cast_const();
            let b = Self::at(windows, Self::start(windows.layout(), sample, group)).cast_const();
            let (pairs, _) = segments.as_chunks::<2>();
            let pairs = &pairs[part(pairs.len(), piece, pieces)];
            for (pairs, sliver) in pairs.chunks(together).flat_map(|pairs| (0..slivers).map(move |at| (pairs, at))) {
                let rows = part(m, sliver, slivers);
                let a = a.wrapping_add(rows.start * a_row);
                let c = Self::at(out, (matrix * m + rows.start) * n);
                for &segments in pairs {
                    let call = ByRows { steps, a, left: [a_row, step], b, segments, c, c_row: n };
                    #[allow(unsafe_code, reason = "operands are raw pointers")]
                    // SAFETY: as for packed products. Segments have only columns of the windows' layout, and no two
                    // parts have the same.
                    unsafe {
                        functions.rows[rows.len() - 1](&call);
                    }
                }
            }
        };
        pool::run(matrices * pieces, threads, &one);
        Ok(())
    }

    /// Multiplies neighbouring columns at a time, without packing.
    fn along(&self) -> Result<()> {
        let &Operands { left, windows, out, groups, m, n, ref steps, .. } = self;
        let (run, stride) = self.run();
        let functions = T::direct(self.level(run));
        let [whole, parts] = self.segments(functions.lanes)?;
        let hows = if stride == 1 { [WHOLE, PARTS] } else { [APART, APART] };
        let (matrices, threads) = (self.samples * groups, self.threads());
        let pieces = pieces(matrices, threads);
        let one = |index: usize| {
            let (matrix, piece) = (index / pieces, index % pieces);
            let (sample, group) = (matrix / groups, matrix % groups);
            let a = Self::at(left, Self::start(left.layout(), sample, group)).cast_const();
            let b = Self::at(windows, Self::start(windows.layout(), sample, group)).cast_const();
            for (how, segments) in hows.into_iter().zip([&whole, &parts]) {
                for segments in functions.chunks(&segments[part(segments.len(), piece, pieces)], usize::MAX) {
                    for row in 0..m {
                        let a = a.wrapping_add(row * left.layout().strides[BATCH]);
                        let c = Self::at(out, (matrix * m + row) * n);
                        #[allow(unsafe_code, reason = "operands are raw pointers")]
                        // SAFETY: as for packed products. Segments have only columns of the windows' layout, and no two
                        // parts have the same.
                        unsafe {
                            functions.along[how][segments.len() - 1](&Along { steps, a, b, segments, stride, c });
                        }
                    }
                }
            }
        };
        pool::run(matrices * pieces, threads, &one);
        Ok(())
    }

    /// Whether columns are so short runs in memory that packing them would take as long as multiplying them.
    fn turns(&self) -> bool {
        let is_short = self.run().0 < T::kernels(self.isa).lanes / 2;
        is_short && self.m > FEW_ROWS && self.m <= MOST_TURNED && self.steps.count() >= LEAST_STEPS
    }

    /// Computes the transpose of each matrix, whose rows are few, and transposes it.
    fn turned(&self) -> Result<()> {
        let &Operands { out, samples, groups, m, n, .. } = self;
        let (rows, kernels) = (groups * m, T::kernels(self.isa));
        let turned = Array::new(Device::CPU, &TensorType::contiguous(out.dtype(), &[samples, n, rows]))?;
        self.down(&turned)?;
        let whole = n / kernels.lanes * kernels.lanes;
        for sample in 0..samples {
            let (from, to) = (Self::at(&turned, sample * n * rows), Self::at(out, sample * n * rows));
            #[allow(unsafe_code, reason = "operands are raw pointers")]
            // SAFETY: both are memory of `samples * rows * n` elements that nothing else uses.
            unsafe {
                pack(kernels, from, [1, rows], whole, &Panels { to, width: n, k: rows });
                for (row, column) in (0..rows).flat_map(|row| (whole..n).map(move |column| (row, column))) {
                    *to.add(row * n + column) = *from.add(column * rows + row);
                }
            }
        }
        Ok(())
    }

    /// Multiplies neighbouring rows at a time, without packing windows. They are neighbours in the result, too.
    fn down(&self, out: &Array) -> Result<()> {
        let &Operands { left, windows, samples, groups, m, n, .. } = self;
        let isa = self.level(m);
        let functions = T::direct(isa);
        let lanes = functions.lanes;
        let (width, most) = if m > lanes { (2 * lanes, functions.most) } else { (lanes, usize::MAX) };
        let panels = m.div_ceil(width);
        // Samples that have the same factors are columns of one product.
        let shares = left.layout().strides[0] == 0;
        let mut columns = offsets(&merged(&self.columns))?;
        if shares {
            let (apart, each) = (windows.layout().strides[0], columns);
            columns = roomy(samples.saturating_mul(n))?;
            (0..samples).for_each(|sample| columns.extend(each.iter().map(|at| sample * apart + at)));
        }
        let products = if shares { 1 } else { samples };
        let size = self.steps.count() * width;
        let all = [products, groups, panels].into_iter().fold(size, usize::saturating_mul);
        let mut factors: Vec<T> = roomy(all)?;
        factors.resize(all, T::ZERO);
        for (nth, factors) in factors.chunks_exact_mut((panels * size).max(1)).enumerate() {
            self.panels(T::kernels(isa), Self::start(left.layout(), nth / groups, nth % groups), width, factors);
        }
        let steps = &self.steps.packed(width);
        let threads = self.threads();
        let pieces = pieces(products * groups * panels, threads);
        let one = |index: usize| {
            let (matrix, panel, piece) = (index / pieces / panels, index / pieces % panels, index % pieces);
            let (sample, group) = (matrix / groups, matrix % groups);
            let a = factors[(matrix * panels + panel) * size..].as_ptr();
            let b = Self::at(windows, Self::start(windows.layout(), sample, group)).cast_const();
            let own = part(columns.len(), piece, pieces);
            let (row, apart) = (panel * width, groups * m);
            let here = width.min(m - row);
            let mut c = Self::at(out, (sample * n + own.start) * apart + group * m + row);
            for columns in functions.chunks(&columns[own], most) {
                let call = Across { steps, a, b, columns, c, apart, lanes: here };
                #[allow(unsafe_code, reason = "operands are raw pointers")]
                // SAFETY: as for packed products. Packed factors have all rows of a panel at all steps, and no two
                // parts have the same columns and rows.
                unsafe {
                    functions.down[usize::from(width > lanes)][columns.len() - 1](&call);
                }
                c = c.wrapping_add(columns.len() * apart);
            }
        };
        pool::run(products * groups * panels * pieces, threads, &one);
        Ok(())
    }

    /// Writes the factors of a matrix over zeros: for each panel of `width` rows and each step, those of its rows.
    fn panels(&self, kernels: &Kernels<T>, start: usize, width: usize, to: &mut [T]) {
        let (row, k) = (self.left.layout().strides[BATCH], self.steps.count());
        if let Some(step) = self.step() {
            let panels = Panels { to: to.as_mut_ptr(), width, k };
            let from = Self::at(self.left, start).cast_const();
            #[allow(unsafe_code, reason = "operands are raw pointers")]
            // SAFETY: the elements are those of the left operand's layout. The panels are all of `to`, and have whole
            // vectors of the level, which is one of this processor.
            unsafe {
                pack(kernels, from, [step, row], self.m, &panels);
            }
            return;
        }
        for (panel, to) in to.chunks_exact_mut(k * width).enumerate() {
            let rows = panel * width..self.m.min((panel + 1) * width);
            for (step, to) in self.steps.left().zip(to.chunks_exact_mut(width)) {
                for (to, at) in to.iter_mut().zip(rows.clone()) {
                    #[allow(unsafe_code, reason = "operands are raw pointers")]
                    // SAFETY: the element is one of the left operand's layout.
                    unsafe {
                        *to = *Self::at(self.left, start + step + at * row);
                    }
                }
            }
        }
    }

    /// Multiplies neighbouring groups of one row at a time, without packing. They are neighbours in the result, too.
    fn across(&self) -> Result<()> {
        let &Operands { left, windows, out, samples, groups, n, .. } = self;
        let functions = T::direct(self.level(groups));
        let lanes = functions.lanes;
        let columns = offsets(&merged(&self.columns))?;
        let vectors = groups.div_ceil(lanes);
        let factors = if left.layout().strides[1] == 1 { None } else { Some(self.factors(lanes)?) };
        let packed = self.steps.packed(lanes);
        let steps = if factors.is_some() { &packed } else { &self.steps };
        let threads = self.threads();
        let pieces = pieces(samples, threads);
        let one = |index: usize| {
            let (sample, piece) = (index / pieces, index % pieces);
            let own = part(n, piece, pieces);
            let mut c = (sample * n + own.start) * groups;
            // All groups of some columns come before the next columns, so memory is read in its order.
            for columns in functions.chunks(&columns[own], usize::MAX) {
                for vector in 0..vectors {
                    let group = vector * lanes;
                    let here = lanes.min(groups - group);
                    let a = match &factors {
                        Some(factors) => {
                            let sample = if left.layout().strides[0] == 0 { 0 } else { sample };
                            factors[(sample * vectors + vector) * lanes * self.steps.count()..].as_ptr()
                        }
                        None => Self::at(left, Self::start(left.layout(), sample, group)).cast_const(),
                    };
                    let b = Self::at(windows, Self::start(windows.layout(), sample, group)).cast_const();
                    let how = if here == lanes { WHOLE } else { PARTS };
                    let call = Across { steps, a, b, columns, c: Self::at(out, c + group), apart: groups, lanes: here };
                    #[allow(unsafe_code, reason = "operands are raw pointers")]
                    // SAFETY: as for packed products. Packed factors have all lanes of all steps, and no two parts have
                    // the same columns.
                    unsafe {
                        functions.across[how][columns.len() - 1](&call);
                    }
                }
                c += columns.len() * groups;
            }
        };
        pool::run(samples * pieces, threads, &one);
        Ok(())
    }

    /// The factors, with those of neighbouring groups next to each other, and zeros after the last group.
    fn factors(&self, lanes: usize) -> Result<Vec<T>> {
        let (layout, groups) = (self.left.layout(), self.groups);
        let samples = if layout.strides[0] == 0 { self.samples.min(1) } else { self.samples };
        let vectors = groups.div_ceil(lanes);
        let sizes = [samples, vectors, lanes, self.steps.count()];
        let mut factors: Vec<T> = roomy(sizes.into_iter().fold(1, usize::saturating_mul))?;
        for (sample, vector) in (0..samples).flat_map(|sample| (0..vectors).map(move |vector| (sample, vector))) {
            let here = lanes.min(groups - vector * lanes);
            let start = Self::start(layout, sample, vector * lanes);
            for step in self.steps.left() {
                factors.extend((0..lanes).map(|lane| {
                    #[allow(unsafe_code, reason = "operands are raw pointers")]
                    // SAFETY: the element is one of the left operand's layout.
                    let factor = || unsafe { *Self::at(self.left, start + step + lane * layout.strides[1]) };
                    if lane < here { factor() } else { T::ZERO }
                }));
            }
        }
        Ok(factors)
    }
}

/// How many parts the columns of a matrix are cut into, so that all threads have work.
fn pieces(matrices: usize, threads: usize) -> usize {
    if matrices >= 2 * threads { 1 } else { (2 * threads).div_ceil(matrices.max(1)) }
}

/// One of some equal parts of so many.
fn part(count: usize, index: usize, parts: usize) -> Range<usize> {
    count * index / parts..count * (index + 1) / parts
}

/// The size and stride of each dim.
fn dims(layout: &Layout) -> SmallVec<[(usize, usize); 8]> {
    layout.sizes.iter().copied().zip(layout.strides.iter().copied()).collect()
}
