//! Where the lines of a transform lie, and how they are copied.
//!
//! A line is one along the dim of the transform. Lines are numbered in row-major order of the other dims. An element of
//! a line is a number or, with `N` of 2, the parts of a complex one. Lines whose elements are far apart are copied
//! several at a time, because neighbours share cache lines.

use smallvec::SmallVec;

/// Rows that are copied to a tile, which stays in the innermost cache, before its columns are copied. So a thread waits
/// for many rows at once.
pub(super) const ROWS: usize = 32;

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

    /// Copies `count` lines, which are equally far apart, to places that are `pitch` apart. `tile` has room for
    /// [`ROWS`] elements of each of them.
    pub(super) fn gather<T: Copy, const N: usize>(
        &self,
        from: &[T],
        line: usize,
        count: usize,
        tile: &mut [T],
        to: &mut [T],
        pitch: usize,
    ) {
        let (start, length) = (self.start(line), self.length * N);
        let apart = self.batch.last().map_or(0, |&(_, stride)| stride);
        if self.are_dense::<N>() {
            if apart == length && pitch == length {
                return to[..count * length].copy_from_slice(&from[start..start + count * length]);
            }
            for (n, to) in to.chunks_exact_mut(pitch).take(count).enumerate() {
                to[..length].copy_from_slice(&from[start + n * apart..][..length]);
            }
        } else if apart == N && (N == 1 || self.part == 1) {
            let tile = tile.as_chunks_mut::<N>().0;
            for first in (0..self.length).step_by(ROWS) {
                let n_rows = ROWS.min(self.length - first);
                for (n, row) in tile.chunks_exact_mut(count).take(n_rows).enumerate() {
                    let at = start + (first + n) * self.step;
                    row.copy_from_slice(from[at..at + count * N].as_chunks::<N>().0);
                }
                for (n, line) in to.chunks_exact_mut(pitch).take(count).enumerate() {
                    let line = line[first * N..(first + n_rows) * N].as_chunks_mut::<N>().0;
                    let column = tile[n..].iter().step_by(count);
                    line.iter_mut().zip(column).for_each(|(element, tile)| *element = *tile);
                }
            }
        } else {
            for i in 0..self.length {
                let at = start + i * self.step;
                for (n, line) in to.chunks_exact_mut(pitch).take(count).enumerate() {
                    let element: [T; N] = std::array::from_fn(|part| from[at + n * apart + part * self.part]);
                    line[i * N..][..N].copy_from_slice(&element);
                }
            }
        }
    }
}

/// Copies `count` lines that are `pitch` apart to columns: row `i` gets the elements `i` of all of them. `tile` is as
/// for [`Lines::gather`].
pub(super) fn scatter<'a, T: Copy + 'a, const N: usize>(
    from: &[T],
    pitch: usize,
    count: usize,
    tile: &mut [T],
    mut rows: impl ExactSizeIterator<Item = &'a mut [T]>,
) {
    let tile = tile.as_chunks_mut::<N>().0;
    let length = rows.len();
    for first in (0..length).step_by(ROWS) {
        let n_rows = ROWS.min(length - first);
        for (n, line) in from.chunks_exact(pitch).take(count).enumerate() {
            let line = line[first * N..(first + n_rows) * N].as_chunks::<N>().0;
            let column = tile[n..].iter_mut().step_by(count);
            line.iter().zip(column).for_each(|(element, tile)| *tile = *element);
        }
        for (row, tile) in rows.by_ref().take(n_rows).zip(tile.chunks_exact(count)) {
            row.copy_from_slice(tile.as_flattened());
        }
    }
}
