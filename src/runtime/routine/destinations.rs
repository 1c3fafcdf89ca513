//! Where the elements of a source go, in the order in which they are written.
//!
//! Elements are written in row-major order of the index. An index is checked where it is used, so it is read from
//! memory once. What stands before one that is out of range was written by then.

use super::elements::{Inputs, Operands};
use super::walk::{self, StridedDim, StridedWalk};
use crate::error::{Error, Result};
use crate::ir::{DType, Op, Sizes};

/// Indices that are handled at once. They stay in a core's first cache.
pub(super) const BLOCK: usize = 512;
/// Memory for indices that are copied. It is filled with zeros when it is first needed, which most calls never do.
pub(super) type Copies = Option<[i64; BLOCK]>;
/// Elements whose indices are checked by one branch.
const GROUP: usize = 4;

/// What a write does to elements of the result, given elements of the source.
pub(super) trait RowWrite {
    /// Writes an element of the source to a place of the result.
    fn one(&mut self, from: usize, at: usize);

    /// Writes neighbours of the source to neighbours of the result.
    fn neighbours(&mut self, from: usize, at: usize, len: usize) {
        (0..len).for_each(|i| self.one(from + i, at + i));
    }

    /// Writes rows of `len` neighbours of the source to the given places, up to one that is outside of the dim. Returns
    /// how many were written.
    fn rows(&mut self, line: &Line, len: usize, places: &[i64]) -> usize {
        long_rows(self, line, len, places)
    }

    /// Writes elements of the source to the given places, up to one that is outside of the dim. Returns how many were
    /// written.
    fn line(&mut self, line: &Line, places: &[i64]) -> usize {
        let pick = |(i, &place)| line.at(i, place).map(|at| self.one(line.from + i * line.from_step, at));
        places.iter().enumerate().map_while(pick).count()
    }
}

/// [`RowWrite::rows`] of any length, by neighbours.
#[inline]
fn long_rows(write: &mut (impl RowWrite + ?Sized), line: &Line, len: usize, places: &[i64]) -> usize {
    let row = |(i, &place)| line.at(i, place).map(|at| write.neighbours(line.from + i * line.from_step, at, len));
    places.iter().enumerate().map_while(row).count()
}

/// Where a line of elements, or of the first elements of rows, comes from, and where it goes.
pub(super) struct Line {
    /// The first element in the source.
    from: usize,
    from_step: usize,
    /// The start of the dim in the result, for the first element.
    at: usize,
    at_step: usize,
    /// The size of the dim.
    size: usize,
    /// Its stride in the result.
    step: usize,
}

impl Line {
    /// Where the element with a number goes, if its place is inside of the dim.
    #[inline(always)]
    fn at(&self, number: usize, place: i64) -> Option<usize> {
        let is_inside = (place as u64) < self.size as u64;
        is_inside.then(|| self.at + place as usize * self.step + number * self.at_step)
    }
}

/// A write that combines elements of the result with elements of the source.
pub(super) struct Combining<'a, N, T, F, R> {
    /// The result.
    pub(super) to: &'a mut [N],
    pub(super) source: &'a [T],
    /// Combines two elements.
    pub(super) one: F,
    /// Combines the elements of two slices.
    pub(super) row: R,
}

impl<N, T: Copy, F: Fn(&mut N, T), R: Fn(&mut [N], &[T])> RowWrite for Combining<'_, N, T, F, R> {
    #[inline(always)]
    fn one(&mut self, from: usize, at: usize) {
        (self.one)(&mut self.to[at], self.source[from]);
    }

    #[inline]
    fn neighbours(&mut self, from: usize, at: usize, len: usize) {
        (self.row)(&mut self.to[at..at + len], &self.source[from..from + len]);
    }

    #[inline]
    fn rows(&mut self, line: &Line, len: usize, places: &[i64]) -> usize {
        match len {
            2 => self.short_rows::<2>(line, places),
            3 => self.short_rows::<3>(line, places),
            4 => self.short_rows::<4>(line, places),
            _ => long_rows(self, line, len, places),
        }
    }

    #[inline]
    fn line(&mut self, line: &Line, places: &[i64]) -> usize {
        // What a loop reads stays in registers if it is no field of a reference.
        let Combining { to, source, one, .. } = self;
        let source = &source[line.from..];
        let is_dense = line.step == 1 && line.at_step == 0;
        let dim = if is_dense { to.get_mut(line.at..line.at + line.size) } else { None };
        let done = match (dim, line.from_step) {
            (Some(dim), 1) => spread(dim, places, source[..places.len()].as_chunks().0.iter().copied(), one),
            (Some(dim), 0) => spread(dim, places, std::iter::repeat([source[0]; GROUP]), one),
            (_, _) => 0,
        };
        let left = places.iter().enumerate().skip(done);
        done + left
            .map_while(|(i, &place)| line.at(i, place).map(|at| one(&mut to[at], source[i * line.from_step])))
            .count()
    }
}

impl<N, T: Copy, F: Fn(&mut N, T), R> Combining<'_, N, T, F, R> {
    /// [`RowWrite::rows`] of `LEN` elements, for each of which a loop would take longer.
    #[inline(never)]
    fn short_rows<const LEN: usize>(&mut self, line: &Line, places: &[i64]) -> usize {
        let Combining { to, source, one, .. } = self;
        for (i, &place) in places.iter().enumerate() {
            let Some(at) = line.at(i, place) else { return i };
            let from = line.from + i * line.from_step;
            let (to, source) = (&mut to[at..at + LEN], &source[from..from + LEN]);
            (0..LEN).for_each(|nth| one(&mut to[nth], source[nth]));
        }
        places.len()
    }
}

/// Combines elements with those at their places in a dim, in groups. Returns how many it did. The rest is fewer than a
/// group, or begins with a group that has a place outside.
///
/// A group and its elements are read before the first of them is written. So they stay in registers, and so does all
/// else if this is a function of its own.
#[inline(never)]
fn spread<N, T>(
    dim: &mut [N],
    places: &[i64],
    elements: impl Iterator<Item = [T; GROUP]>,
    one: &impl Fn(&mut N, T),
) -> usize {
    let (groups, rest) = places.as_chunks::<GROUP>();
    for (nth, (&group, elements)) in groups.iter().zip(elements).enumerate() {
        if group.iter().any(|&place| place as u64 >= dim.len() as u64) {
            return nth * GROUP;
        }
        for (place, element) in group.into_iter().zip(elements) {
            one(&mut dim[place as usize], element);
        }
    }
    places.len() - rest.len()
}

/// Writes to some places of the result, each of which has a number.
pub(super) struct Numbered<'a, W> {
    pub(super) write: W,
    /// The places in order.
    pub(super) places: &'a [usize],
}

impl<W: RowWrite> RowWrite for Numbered<'_, W> {
    fn one(&mut self, from: usize, at: usize) {
        self.write.one(from, self.places.partition_point(|&place| place < at));
    }
}

/// Collects places.
struct Collecting<'a>(&'a mut Vec<usize>);

impl RowWrite for Collecting<'_> {
    fn one(&mut self, _: usize, at: usize) {
        self.0.push(at);
    }
}

/// Indices of either width.
#[derive(Clone, Copy)]
pub(super) enum Index<'a> {
    Narrow(&'a [i32]),
    Wide(&'a [i64]),
}

impl<'a> Index<'a> {
    /// The indices of an operand.
    pub(super) fn of(inputs: Inputs<'a>, operand: usize) -> Index<'a> {
        if inputs.array(operand).dtype() == DType::I32 {
            Index::Narrow(inputs.elements(operand))
        } else {
            Index::Wide(inputs.elements(operand))
        }
    }

    /// The index at a position.
    #[inline(always)]
    pub(super) fn at(self, at: usize) -> i64 {
        match self {
            Index::Narrow(index) => index[at].into(),
            Index::Wide(index) => index[at],
        }
    }

    /// `len` indices from a position on, `step` apart. Those that are not as wanted in memory are copied.
    #[inline]
    pub(super) fn block<'b>(self, start: usize, step: usize, len: usize, copies: &'b mut Copies) -> &'b [i64]
    where
        'a: 'b,
    {
        if let (Index::Wide(index), 1) = (self, step) {
            return &index[start..start + len];
        }
        let copies = &mut copies.get_or_insert([0; BLOCK])[..len];
        match (self, step) {
            (Index::Narrow(index), 1) => {
                copies.iter_mut().zip(&index[start..start + len]).for_each(|(to, &from)| *to = from.into());
            }
            (index, step) => copies.iter_mut().enumerate().for_each(|(i, to)| *to = index.at(start + i * step)),
        }
        copies
    }
}

/// The first of some indices that is not from `low` to `high`, both included.
pub(super) fn first_outside(indices: &[i64], low: i64, high: i64) -> Option<i64> {
    // Signs of differences are bits that vectors of every level can join. One that wraps belongs to an index whose
    // other difference is negative.
    let signs = indices.iter().fold(0, |signs, &index| signs | index.wrapping_sub(low) | high.wrapping_sub(index));
    if signs >= 0 { None } else { indices.iter().copied().find(|index| !(low..=high).contains(index)) }
}

/// Where each element of the source is written.
pub(super) struct Destinations<'a> {
    op: Op,
    dim: usize,
    /// The size of the dim.
    size: usize,
    /// The stride of the dim in the result.
    step: usize,
    /// Over the index: index, source, and result without the dim.
    walk: StridedWalk<3>,
    index: Index<'a>,
    /// How many elements are written.
    pub(super) count: usize,
    /// Over the elements of the index alone.
    indices: StridedWalk<1>,
}

impl<'a> Destinations<'a> {
    pub(super) fn new(op: Op, dim: i64, operands: &Operands<'a>) -> Result<Destinations<'a>> {
        let inputs = operands.inputs;
        let into = operands.output.array();
        let dim = walk::dim(op, dim, into)?;
        let (index, source) = (inputs.array(1).layout(), inputs.array(2).layout());
        let mut strides = into.layout().strides.clone();
        let (size, step) = if strides.is_empty() { (1, 1) } else { (into.layout().sizes[dim], strides[dim]) };
        if let Some(along) = strides.get_mut(dim) {
            *along = 0;
        }
        // A 0-dim tensor counts as one with a dim of size 1, whose stride does not matter.
        let rank = index.rank();
        let lifted = |strides: &[usize]| if strides.len() == rank { strides.to_vec() } else { vec![0; rank] };
        let (sources, places) = (lifted(&source.strides), lifted(&strides));
        let walk = StridedWalk::new(&index.sizes, [&index.strides, &sources, &places]);
        let once =
            index.sizes.iter().zip(&index.strides).map(|(&size, &stride)| if stride == 0 { size.min(1) } else { size });
        let indices = StridedWalk::new(&once.collect::<Sizes>(), [&index.strides]);
        let count = index.numel();
        Ok(Destinations { op, dim, size, step, walk, index: Index::of(inputs, 1), count, indices })
    }

    /// Checks every index.
    pub(super) fn check(&self) -> Result<()> {
        let mut copies = None;
        self.indices.try_lines(|[index], line| {
            (0..line.len).step_by(BLOCK).try_for_each(|start| {
                let (first, len) = (index + start * line.steps[0], BLOCK.min(line.len - start));
                let places = self.index.block(first, line.steps[0], len, &mut copies);
                first_outside(places, 0, self.size as i64 - 1).map_or(Ok(()), |place| Err(self.outside(place)))
            })
        })
    }

    /// The written places in the result, each once, in order.
    pub(super) fn touched(&self) -> Result<Vec<usize>> {
        let mut touched = Vec::new();
        self.each_row(Collecting(&mut touched))?;
        touched.sort_unstable();
        touched.dedup();
        Ok(touched)
    }

    /// The position along the dim that an index gives.
    #[inline(always)]
    fn position(&self, index: i64) -> Result<usize> {
        if index as u64 >= self.size as u64 { Err(self.outside(index)) } else { Ok(index as usize) }
    }

    /// Writes all elements, in row-major order of the index. Those with one index are written together.
    pub(super) fn each_row(&self, mut write: impl RowWrite) -> Result<()> {
        let mut copies = None;
        let (outer, [rows, line]) = self.walk.planes();
        if rows.len * line.len == 0 {
            return Ok(());
        }
        outer.try_each(|[first, from, at]| {
            if line.steps == [0, 1, 1] {
                let row = |places: &Line, indices: &[i64]| write.rows(places, line.len, indices);
                return self.each_block([first, from, at], &rows, &mut copies, row);
            }
            for row in 0..rows.len {
                let [first, from, at] = [0, 1, 2].map(|array| [first, from, at][array] + row * rows.steps[array]);
                let [index_step, from_step, at_step] = line.steps;
                if index_step == 0 {
                    let at = at + self.position(self.index.at(first))? * self.step;
                    (0..line.len).for_each(|i| write.one(from + i * from_step, at + i * at_step));
                } else {
                    let one = |places: &Line, indices: &[i64]| write.line(places, indices);
                    self.each_block([first, from, at], &line, &mut copies, one)?;
                }
            }
            Ok(())
        })
    }

    /// Calls `write` with the indices along a dim, a block at a time, and with where the elements at them come from and
    /// go. It says how many it wrote. Positions are those of the first index, and of its elements in the source and the
    /// result.
    #[inline]
    fn each_block(
        &self,
        [first, from, at]: [usize; 3],
        along: &StridedDim<3>,
        copies: &mut Copies,
        mut write: impl FnMut(&Line, &[i64]) -> usize,
    ) -> Result<()> {
        let ([index_step, from_step, at_step], size, step) = (along.steps, self.size, self.step);
        for start in (0..along.len).step_by(BLOCK) {
            let len = BLOCK.min(along.len - start);
            let indices = self.index.block(first + start * index_step, index_step, len, copies);
            let (from, at) = (from + start * from_step, at + start * at_step);
            let done = write(&Line { from, from_step, at, at_step, size, step }, indices);
            indices.get(done).map_or(Ok(()), |&index| Err(self.outside(index)))?;
        }
        Ok(())
    }

    #[cold]
    fn outside(&self, index: i64) -> Error {
        let what = format!("index {index} is out of bounds for dimension {} with size {}", self.dim, self.size);
        Error::argument(self.op.name(), what)
    }
}
