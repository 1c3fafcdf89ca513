//! Where the lines of a transform lie, and how they are copied.
//!
//! A line is one along the dim of the transform. Lines are numbered in row-major order of the other dims. An element of
//! a line is a number or, with `N` of 2, the parts of a complex one. Lines whose elements are far apart are copied
//! several at a time, because neighbours share cache lines.

use smallvec::SmallVec;

/// The lines of an operand, in any layout.
pub(super) struct Lines {
    /// Sizes and strides of the other dims, of which those that lie as one are one.
    batch: SmallVec<[(usize, usize); 4]>,
    /// The number of elements of a line.
    pub(super) length: usize,
    /// The stride along a line.
    step: usize,
    /// The stride from the real part to the imaginary one.
    part: usize,
}

impl Lines {
    /// The lines along `dim`. If elements are pairs, their dim is not among the sizes, and `part` is its stride.
    pub(super) fn new(sizes: &[usize], strides: &[usize], dim: usize, part: usize) -> Lines {
        let mut batch: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for (at, (&size, &stride)) in sizes.iter().zip(strides).enumerate() {
            match batch.last_mut() {
                _ if at == dim || size == 1 => {}
                Some((before, coarse)) if *coarse == size * stride => (*before, *coarse) = (*before * size, stride),
                Some(_) | None => batch.push((size, stride)),
            }
        }
        Lines { batch, length: sizes[dim], step: strides[dim], part }
    }

    /// Whether the elements of a line are neighbours.
    pub(super) fn are_dense<const N: usize>(&self) -> bool {
        (self.step == N || self.length == 1) && (N == 1 || self.part == 1)
    }

    /// How many lines from this one on are equally far apart.
    pub(super) fn run_from(&self, line: usize) -> usize {
        self.batch.last().map_or(1, |&(size, _)| size - line % size)
    }

    /// Where a line begins.
    fn start(&self, line: usize) -> usize {
        let (mut rest, mut at) = (line, 0);
        for &(size, stride) in self.batch.iter().rev() {
            (rest, at) = (rest / size, at + rest % size * stride);
        }
        at
    }

    /// Copies a line whose elements are neighbours.
    pub(super) fn copy_dense<T: Copy>(&self, from: &[T], line: usize, to: &mut [T]) {
        let start = self.start(line);
        to.copy_from_slice(&from[start..start + to.len()]);
    }

    /// Copies `count` lines to places that are `pitch` apart.
    pub(super) fn gather<T: Copy, const N: usize>(
        &self,
        from: &[T],
        line: usize,
        count: usize,
        to: &mut [T],
        pitch: usize,
    ) {
        let start = self.start(line);
        let apart = self.batch.last().map_or(0, |&(_, stride)| stride);
        for i in 0..self.length {
            let at = start + i * self.step;
            let lines = to.chunks_exact_mut(pitch).take(count);
            if apart == N && (N == 1 || self.part == 1) {
                let row = from[at..at + count * N].as_chunks::<N>().0;
                lines.zip(row).for_each(|(line, element)| line[i * N..][..N].copy_from_slice(element));
            } else {
                for (n, line) in lines.enumerate() {
                    let element: [T; N] = std::array::from_fn(|part| from[at + n * apart + part * self.part]);
                    line[i * N..][..N].copy_from_slice(&element);
                }
            }
        }
    }
}

/// Copies lines that are `pitch` apart to columns: row `i` gets the elements `i` of all of them.
pub(super) fn scatter<'a, T: Copy + 'a, const N: usize>(
    from: &[T],
    pitch: usize,
    rows: impl Iterator<Item = &'a mut [T]>,
) {
    for (i, row) in rows.enumerate() {
        for (line, element) in from.chunks_exact(pitch).zip(row.as_chunks_mut::<N>().0) {
            element.copy_from_slice(&line[i * N..][..N]);
        }
    }
}
