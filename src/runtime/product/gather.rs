//! Where the elements of a view of windows lie, as a right operand of a product.
//!
//! An element lies at the sum of two offsets: that of its step, which is a place in the inner dims, and that of its
//! column. Columns that lie at equal distances are a [`Segment`]. A panel is packed by one load and one store per step
//! and segment.

use crate::device::roomy;
use crate::error::Result;
use smallvec::SmallVec;

/// Columns that lie at equal distances. None crosses a vector.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    /// The first column.
    pub(super) column: usize,
    pub(super) length: usize,
    /// Where the first column lies.
    pub(super) offset: usize,
}

/// The first step and column of a part of a table.
#[derive(Clone, Copy)]
pub(super) struct Gathered<'a> {
    pub(super) table: &'a WindowTable,
    pub(super) step: usize,
    /// A multiple of a vector.
    pub(super) column: usize,
}

/// Where the elements of a right operand lie.
#[derive(Debug)]
pub(super) struct WindowTable {
    /// The offset of each step.
    pub(super) steps: Vec<usize>,
    /// All columns, in order.
    segments: Vec<Segment>,
    /// For each vector of columns, its first segment; then their number.
    first: Vec<usize>,
    /// The distance of the columns of a segment.
    pub(super) stride: usize,
    lanes: usize,
}

impl WindowTable {
    /// Of the inner dims and those of the columns, given by sizes and strides. Vectors have so many lanes.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn new(inner: &[(usize, usize)], columns: &[(usize, usize)], lanes: usize) -> Result<WindowTable> {
        let columns = merged(columns);
        let (&(run, stride), outer) = columns.split_last().unwrap_or((&(1, 1), &[]));
        let runs = offsets(outer)?;
        let mut segments: Vec<Segment> = roomy(runs.len().saturating_mul(run.div_ceil(lanes) + 1))?;
        let mut first = roomy(runs.len().saturating_mul(run).div_ceil(lanes) + 1)?;
        for (nth, start) in runs.into_iter().enumerate() {
            let mut within = 0;
            while within < run {
                let column = nth * run + within;
                if column.is_multiple_of(lanes) {
                    first.push(segments.len());
                }
                let length = (lanes - column % lanes).min(run - within);
                segments.push(Segment { column, length, offset: start + within * stride });
                within += length;
            }
        }
        first.push(segments.len());
        Ok(WindowTable { steps: offsets(inner)?, segments, first, stride, lanes })
    }

    /// The segments of some columns, of which the first is that of a vector.
    pub(super) fn segments(&self, first: usize, columns: usize) -> &[Segment] {
        let (vector, end) = (first / self.lanes, (first + columns).div_ceil(self.lanes));
        &self.segments[self.first[vector]..self.first[end]]
    }
}

/// Dims without those of one element, where neighbours are one dim if their elements lie at equal distances.
pub(super) fn merged(dims: &[(usize, usize)]) -> SmallVec<[(usize, usize); 6]> {
    let mut merged: SmallVec<[(usize, usize); 6]> = SmallVec::new();
    for &(size, stride) in dims.iter().filter(|(size, _)| *size != 1) {
        match merged.last_mut() {
            Some(last) if last.1 == size * stride => *last = (last.0 * size, stride),
            Some(_) | None => merged.push((size, stride)),
        }
    }
    merged
}

/// The offsets of all elements of some dims, in row-major order.
pub(super) fn offsets(dims: &[(usize, usize)]) -> Result<Vec<usize>> {
    let mut all = vec![0];
    for &(size, stride) in dims {
        let mut next = roomy(all.len().saturating_mul(size))?;
        next.extend(all.iter().flat_map(|offset| (0..size).map(move |at| offset + at * stride)));
        all = next;
    }
    Ok(all)
}
