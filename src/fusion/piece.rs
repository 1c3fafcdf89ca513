//! Pieces of piecewise values: boxes of a concatenation or an overlay that come from one operand.

use super::index_map::{Coordinate, IndexMap};
use crate::ir::NodeId;
use crate::ir::shape::Sizes;
use std::ops::Range;

/// A box of a piecewise value, which comes from one operand.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The value.
    pub node: NodeId,
    /// The operand that has its elements.
    pub operand: NodeId,
    /// The first element of the box, per dimension of the value.
    pub start: Sizes,
    /// The same element, per dimension of the operand.
    pub from: Sizes,
    /// The sizes of the box.
    pub sizes: Sizes,
}

impl Piece {
    /// The index map of loops over the box, from the element `first` on.
    pub(super) fn map(&self, first: &[usize]) -> IndexMap {
        let mut next = 0;
        let coordinate = |(&size, &start): (&usize, &usize)| {
            let mut coordinate = Coordinate { start, ..Coordinate::default() };
            if size != 1 {
                coordinate.terms.push((next, 1));
                next += 1;
            }
            coordinate
        };
        self.sizes.iter().zip(first).map(coordinate).collect()
    }

    /// The dim that a loop over the box walks along.
    pub(super) fn dim_of_loop(&self, along: usize) -> Option<usize> {
        self.sizes.iter().enumerate().filter(|(_, size)| **size != 1).map(|(dim, _)| dim).nth(along)
    }

    fn elements(&self) -> impl Iterator<Item = Range<usize>> {
        self.start.iter().zip(&self.sizes).map(|(&start, &size)| start..start + size)
    }

    /// Whether all elements of a map over loops of these sizes are in the box.
    pub(super) fn has_all(&self, map: &IndexMap, loops: &[usize]) -> bool {
        let last = |at: &Coordinate| {
            let reach = at.terms.iter().map(|&(along, step)| step * (loops[along as usize] - 1));
            at.start + reach.sum::<usize>()
        };
        map.iter().zip(self.elements()).all(|(at, elements)| at.start >= elements.start && last(at) < elements.end)
    }

    /// The loop, and the position along it, at which a map leaves the box in which it begins, if a loop alone moves it
    /// there.
    pub(super) fn end_of(&self, map: &IndexMap, loops: &[usize]) -> Option<(usize, usize)> {
        if !map.iter().zip(self.elements()).all(|(at, elements)| elements.contains(&at.start)) {
            return None;
        }
        map.iter().zip(self.elements()).find_map(|(at, elements)| {
            let &[(along, step)] = &at.terms[..] else { return None };
            let (along, end) = (along as usize, (elements.end - at.start).div_ceil(step));
            (end < loops[along]).then_some((along, end))
        })
    }

    /// The map of the operand, for a map of the value whose elements are in the box.
    pub(super) fn of_operand(&self, map: &IndexMap) -> IndexMap {
        let mut from = map.clone();
        for (at, (&start, &from)) in from.iter_mut().zip(self.start.iter().zip(&self.from)) {
            at.start = at.start - start + from;
        }
        from
    }
}
