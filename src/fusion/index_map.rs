//! Index maps: at which element of a value a kernel is, as a function of its loops.
//!
//! A map gives every dimension of a value a coordinate that is affine in the loops: `start + Σ step * loop`. Views of
//! values inside a kernel disappear into maps. A view whose map is not affine (a reshape that merges dimensions of a
//! computed value) has none; it is then a view of memory instead.

use crate::ir::shape::{Layout, contiguous_strides};
use crate::ir::{Attr, Meaning, Op, TensorType};
use smallvec::SmallVec;

/// The coordinate along one dimension: a start and steps per loop.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Coordinate {
    /// The coordinate where all loops are at 0.
    pub start: usize,
    /// Loops that move it, with their steps.
    pub terms: SmallVec<[(u8, usize); 2]>,
}

impl Coordinate {
    /// Loop `dim` itself.
    pub fn along(dim: usize) -> Coordinate {
        Coordinate { start: 0, terms: SmallVec::from_slice(&[(dim as u8, 1)]) }
    }

    /// The loop, if the coordinate is exactly one.
    pub fn as_loop(&self) -> Option<usize> {
        match (self.start, &self.terms[..]) {
            (0, &[(dim, 1)]) => Some(dim as usize),
            _ => None,
        }
    }
}

/// A coordinate per dimension.
pub type IndexMap = SmallVec<[Coordinate; 4]>;

/// The map of an operand that is broadcast, aligned at the last dimension, to a value with map `map`.
pub fn broadcast(map: &IndexMap, operand: &TensorType) -> IndexMap {
    let lead = map.len() - operand.rank();
    let coordinate =
        |(dim, &size): (usize, &usize)| if size == 1 { Coordinate::default() } else { map[lead + dim].clone() };
    operand.sizes.iter().enumerate().map(coordinate).collect()
}

/// The map of a view's operand, from the map of the view; `None` if it is not affine.
///
/// The op's own layout rule is asked about a row-major operand: a stride of the result then tells which dimension of
/// the operand it walks, and in which steps.
pub fn through_view(op: Op, attrs: &[Attr], operand: &TensorType, map: &IndexMap) -> Option<IndexMap> {
    let Meaning::View(rule) = op.row().meaning else { return None };
    let probe = contiguous_strides(&operand.sizes);
    let view = rule(&Layout { sizes: operand.sizes.clone(), strides: probe.clone(), offset: 0 }, attrs).ok()?;
    let mut out: IndexMap = SmallVec::from_elem(Coordinate::default(), operand.rank());
    let mut reach: SmallVec<[usize; 6]> = SmallVec::from_elem(0, operand.rank());
    let walked: SmallVec<[usize; 6]> = (0..operand.rank()).filter(|&dim| operand.sizes[dim] != 1).collect();
    let find = |stride: usize| walked.iter().copied().find(|&dim| probe[dim] <= stride);
    let mut rest = view.offset;
    for &dim in &walked {
        out[dim].start = rest / probe[dim];
        rest %= probe[dim];
        reach[dim] = out[dim].start;
    }
    for ((&size, &stride), coordinate) in view.sizes.iter().zip(&view.strides).zip(map) {
        if size == 1 || stride == 0 {
            continue;
        }
        let dim = find(stride).filter(|&dim| stride % probe[dim] == 0)?;
        let step = stride / probe[dim];
        reach[dim] += step * size.saturating_sub(1);
        out[dim].start += step * coordinate.start;
        out[dim].terms.extend(coordinate.terms.iter().map(|&(term, inner)| (term, inner * step)));
    }
    let fits = operand.numel() == 0 || walked.iter().all(|&dim| reach[dim] < operand.sizes[dim]);
    fits.then_some(out)
}

/// Strides per loop, and the first element, of a value in memory that is read or written under `map`.
pub fn strides(map: &IndexMap, ty: &TensorType, n_loops: usize) -> (SmallVec<[usize; 6]>, usize) {
    let mut out: SmallVec<[usize; 6]> = SmallVec::from_elem(0, n_loops);
    let mut base = 0;
    for (coordinate, &stride) in map.iter().zip(&ty.strides) {
        base += coordinate.start * stride;
        for &(dim, step) in &coordinate.terms {
            out[dim as usize] += step * stride;
        }
    }
    (out, base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::DType;

    fn identity(rank: usize) -> IndexMap {
        (0..rank).map(Coordinate::along).collect()
    }

    fn map_of(op: Op, attrs: &[Attr], sizes: &[usize], rank: usize) -> Option<String> {
        let map = through_view(op, attrs, &TensorType::contiguous(DType::F32, sizes), &identity(rank))?;
        let text = |c: &Coordinate| {
            let terms: Vec<String> = c.terms.iter().map(|(dim, step)| format!("{step}*l{dim}")).collect();
            format!("{}+{}", c.start, terms.join("+"))
        };
        Some(map.iter().map(text).collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn views_become_maps() {
        let ints = Attr::ints;
        type Case<'a> = (Op, Vec<Attr>, &'a [usize], usize, Option<&'a str>);
        let cases: &[Case<'_>] = &[
            (Op::Permute, vec![ints(&[1, 0])], &[2, 3], 2, Some("0+1*l1, 0+1*l0")),
            (Op::Slice, vec![Attr::int(1), Attr::int(1), Attr::None, Attr::int(2)], &[2, 5], 2, Some("0+1*l0, 1+2*l1")),
            (Op::Select, vec![Attr::int(0), Attr::int(1)], &[2, 5], 1, Some("1+, 0+1*l0")),
            (Op::View, vec![ints(&[2, 3, 4])], &[2, 12], 3, Some("0+1*l0, 0+4*l1+1*l2")),
            (Op::View, vec![ints(&[24])], &[2, 12], 1, None),
            (Op::Unsqueeze, vec![Attr::int(0)], &[3], 2, Some("0+1*l1")),
            (Op::Expand, vec![ints(&[4, 3])], &[3], 2, Some("0+1*l1")),
        ];
        for (op, attrs, sizes, rank, expected) in cases {
            assert_eq!(map_of(*op, attrs, sizes, *rank).as_deref(), *expected, "{} of {sizes:?}", op.name());
        }
    }
}
