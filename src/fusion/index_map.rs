//! Index maps: the element of a value that a kernel is at, as a function of its loops.
//!
//! A map gives every dimension of a value a coordinate that is affine in the loops: `start + Σ step * loop`. Views
//! inside a kernel become maps. A view without an affine map cannot be inside a kernel; it is a view of memory instead.
//! A view that merges dimensions is affine only if there is a loop for each of these. So [`super::region`] splits loops
//! for such views.

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

/// The map of a view's operand, from the map of the view and the sizes of the loops. `None` if it is not affine.
///
/// The op's layout rule is applied to a row-major operand. The stride of the result times the step of a loop then gives
/// the dimension of the operand that the loop walks, and its step there. This is the map if no dimension overflows into
/// the next one.
pub fn through_view(op: Op, attrs: &[Attr], operand: &TensorType, map: &IndexMap, loops: &[usize]) -> Option<IndexMap> {
    let Meaning::View(rule) = op.row().meaning else { return None };
    let probe = contiguous_strides(&operand.sizes);
    let view = rule(&Layout { sizes: operand.sizes.clone(), strides: probe.clone(), offset: 0 }, attrs).ok()?;
    let mut out: IndexMap = SmallVec::from_elem(Coordinate::default(), operand.rank());
    let mut reach: SmallVec<[usize; 6]> = SmallVec::from_elem(0, operand.rank());
    let walked: SmallVec<[usize; 6]> = (0..operand.rank()).filter(|&dim| operand.sizes[dim] != 1).collect();
    let find = |stride: usize| walked.iter().copied().find(|&dim| probe[dim] <= stride);
    let starts = view.strides.iter().zip(map).map(|(&stride, coordinate)| stride * coordinate.start);
    let mut rest = view.offset + starts.sum::<usize>();
    for &dim in &walked {
        out[dim].start = rest / probe[dim];
        rest %= probe[dim];
        reach[dim] = out[dim].start;
    }
    for ((&size, &stride), coordinate) in view.sizes.iter().zip(&view.strides).zip(map) {
        if size == 1 || stride == 0 {
            continue;
        }
        for &(term, inner) in &coordinate.terms {
            let stride = stride * inner;
            let dim = find(stride).filter(|&dim| stride % probe[dim] == 0)?;
            let step = stride / probe[dim];
            reach[dim] += step * loops[term as usize].saturating_sub(1);
            out[dim].terms.push((term, step));
        }
    }
    // The sorted form is unique, so equal coordinates compare equal.
    for coordinate in &mut out {
        coordinate.terms.sort_unstable();
    }
    let fits = operand.numel() == 0 || walked.iter().all(|&dim| reach[dim] < operand.sizes[dim]);
    fits.then_some(out)
}

/// Whether a view has all elements of its operand in the same order, so that it only splits or merges dimensions.
pub fn keeps_order(op: Op, attrs: &[Attr], operand: &TensorType) -> bool {
    let Meaning::View(rule) = op.row().meaning else { return false };
    let strides = contiguous_strides(&operand.sizes);
    let view = rule(&Layout { sizes: operand.sizes.clone(), strides, offset: 0 }, attrs);
    view.is_ok_and(|view| {
        let is_dense = |((&size, &stride), expected): ((&usize, &usize), usize)| size == 1 || stride == expected;
        view.offset == 0
            && view.sizes.iter().product::<usize>() == operand.numel()
            && view.sizes.iter().zip(&view.strides).zip(contiguous_strides(&view.sizes)).all(is_dense)
    })
}

/// The stride per loop, and the first element, of a value in memory that is read or written at `map`.
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
        let operand = TensorType::contiguous(DType::F32, sizes);
        let Meaning::View(rule) = op.row().meaning else { return None };
        let layout = Layout { sizes: operand.sizes.clone(), strides: operand.strides.clone(), offset: 0 };
        let loops = rule(&layout, attrs).ok()?.sizes;
        let map = through_view(op, attrs, &operand, &identity(rank), &loops)?;
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
