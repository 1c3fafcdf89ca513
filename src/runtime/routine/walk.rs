//! Walks over several arrays at once.
//!
//! A walk visits the positions of one shape in row-major order, and gives the offset of each in `N` arrays with given
//! strides. A 0-dim shape has one position; a shape with a size of 0 has none.

use crate::error::Result;
use crate::ir::shape::normalize_dim;
use crate::ir::{Op, Sizes};
use crate::runtime::array::Array;
use smallvec::SmallVec;

/// A shape with the strides of `N` arrays.
pub(super) struct StridedWalk<const N: usize> {
    dims: SmallVec<[(usize, [usize; N]); 6]>,
}

/// The dim that a routine works along: its size, and its strides.
pub(super) struct StridedDim<const N: usize> {
    /// The number of elements.
    pub(super) len: usize,
    /// The stride in each array.
    pub(super) steps: [usize; N],
}

impl<const N: usize> StridedWalk<N> {
    /// A walk over `sizes`.
    pub(super) fn new(sizes: &[usize], strides: [&[usize]; N]) -> StridedWalk<N> {
        let step = |dim: usize| strides.map(|strides| strides[dim]);
        StridedWalk { dims: sizes.iter().enumerate().map(|(dim, &size)| (size, step(dim))).collect() }
    }

    /// A walk over all dims except one, and that one. A 0-dim shape is one line of one element.
    pub(super) fn lines(sizes: &[usize], dim: usize, strides: [&[usize]; N]) -> (StridedWalk<N>, StridedDim<N>) {
        let mut walk = StridedWalk::new(sizes, strides);
        let (len, steps) = if sizes.is_empty() { (1, [1; N]) } else { walk.dims.remove(dim) };
        (walk, StridedDim { len, steps })
    }

    /// Calls `visit` with the first offsets of each innermost line, and with that line, until it fails. Neighbouring
    /// dims that every array walks as one are one dim.
    pub(super) fn try_lines<E>(
        &self,
        mut visit: impl FnMut([usize; N], &StridedDim<N>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut outer = self.merged();
        let (len, steps) = outer.dims.pop().unwrap_or((1, [1; N]));
        let line = StridedDim { len, steps };
        if len == 0 { Ok(()) } else { outer.try_each(|at| visit(at, &line)) }
    }

    /// The last two dims of the walk, and a walk over the others. Neighbouring dims that every array walks as one are
    /// one dim.
    pub(super) fn planes(&self) -> (StridedWalk<N>, [StridedDim<N>; 2]) {
        let mut outer = self.merged();
        let mut last = || {
            let (len, steps) = outer.dims.pop().unwrap_or((1, [0; N]));
            StridedDim { len, steps }
        };
        let inner = last();
        let rows = last();
        (outer, [rows, inner])
    }

    /// The same walk with neighbouring dims merged where every array walks them as one. Dims of size 1 are dropped.
    ///
    /// Not inlined: each of some hundred routines would have a copy.
    #[inline(never)]
    fn merged(&self) -> StridedWalk<N> {
        let mut dims: SmallVec<[(usize, [usize; N]); 6]> = SmallVec::new();
        for &(size, steps) in self.dims.iter().filter(|(size, _)| *size != 1) {
            match dims.last_mut() {
                Some((before, coarse)) if (0..N).all(|array| coarse[array] == size * steps[array]) => {
                    (*before, *coarse) = (*before * size, steps);
                }
                Some(_) | None => dims.push((size, steps)),
            }
        }
        StridedWalk { dims }
    }

    /// Calls `visit` with the offsets in each array, until it fails.
    pub(super) fn try_each<E>(&self, mut visit: impl FnMut([usize; N]) -> Result<(), E>) -> Result<(), E> {
        let Some(mut index) = self.start() else { return Ok(()) };
        let mut at = [0; N];
        loop {
            visit(at)?;
            let mut dim = self.dims.len();
            loop {
                let Some(before) = dim.checked_sub(1) else { return Ok(()) };
                dim = before;
                let (size, steps) = &self.dims[dim];
                index[dim] += 1;
                if index[dim] < *size {
                    at.iter_mut().zip(steps).for_each(|(at, step)| *at += step);
                    break;
                }
                at.iter_mut().zip(steps).for_each(|(at, step)| *at -= step * (size - 1));
                index[dim] = 0;
            }
        }
    }

    /// The index of the first position, if there is one.
    #[inline(never)]
    fn start(&self) -> Option<Sizes> {
        let is_empty = self.dims.iter().any(|(size, _)| *size == 0);
        (!is_empty).then(|| self.dims.iter().map(|_| 0).collect())
    }

    /// Calls `visit` with the offsets in each array.
    pub(super) fn each(&self, mut visit: impl FnMut([usize; N])) {
        let done: Result<(), std::convert::Infallible> = self.try_each(|at| {
            visit(at);
            Ok(())
        });
        match done {
            Ok(()) => {}
        }
    }
}

/// The dim that an argument names.
pub(super) fn dim(op: Op, dim: i64, array: &Array) -> Result<usize> {
    normalize_dim(op.name(), dim, array.layout().rank())
}
