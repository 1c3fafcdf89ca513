//! Piecewise values: concatenations and overlays.
//!
//! Each operand gets a region of its own, which runs over the box of the result that the operand fills. The boxes cover
//! the result exactly once. So elementwise producers of the operands, and elementwise users of the result, can be
//! computed box by box in the same regions.
//!
//! An overlay whose window is no box is an exception. Its operands are copied one after the other, the second over the
//! first, and no other work joins them.
//!
//! Another one is a narrow frame of one number, as the padding of small images. Beside each row of an image there would
//! be a few elements to write. So all elements are filled first, and the image is written over them.

use super::index_map::{Coordinate, IndexMap, strides};
use super::piece::Piece;
use super::region::{Region, Unplaced, Value, Walk, place_piece};
use crate::error::Reason;
use crate::ir::attrs::{Along, Attributes, Full, Overlay};
use crate::ir::shape::{Sizes, normalize_dim};
use crate::ir::{Graph, Meaning, NodeId, Scalar, TensorType};
use smallvec::SmallVec;

/// Most boxes of several piecewise values that are computed together.
const MOST_BOXES: usize = 16;

/// The regions of some piecewise nodes of the same sizes, in the order in which they must run. `contains` says which
/// nodes they compute, and `outputs` which of these they write.
///
/// # Errors
/// The reason why these nodes cannot be computed box by box.
pub fn place_parts(
    graph: &Graph,
    contains: &dyn Fn(NodeId) -> bool,
    nodes: &[NodeId],
    outputs: &[NodeId],
) -> Result<Vec<Region>, Reason> {
    let all: Option<Vec<Vec<Piece>>> = nodes.iter().map(|&node| pieces(graph, node)).collect();
    match (all, nodes) {
        (Some(mut all), _) => {
            if nodes.len() == 1 && outputs == nodes {
                all = all.into_iter().map(|boxes| filled_first(graph, boxes)).collect();
            }
            let boxes = refined(&all).ok_or(Reason::MovesElements)?;
            let pieces = all.concat();
            let place = |one: &Piece| place_piece(graph, contains, one, &pieces, outputs);
            boxes.iter().map(place).collect::<Result<_, Unplaced>>().map_err(|unplaced| unplaced.reason)
        }
        (None, &[node]) if outputs == [node] && graph[node].args.iter().all(|&arg| !contains(arg)) => {
            Ok(copies(graph, node))
        }
        (None, _) => Err(Reason::MovesElements),
    }
}

/// Like [`place_parts`], where some of the nodes are made of others. All are concatenations.
///
/// An element of one may be any element of another, as where a cat is rolled along two dims. So boxes are cut where a
/// value would come from two operands.
///
/// # Errors
/// The reason why these nodes cannot be computed box by box.
pub fn place_chain(
    graph: &Graph,
    contains: &dyn Fn(NodeId) -> bool,
    nodes: &[NodeId],
    outputs: &[NodeId],
) -> Result<Vec<Region>, Reason> {
    let pieces: Option<Vec<Vec<Piece>>> = nodes.iter().map(|&node| pieces(graph, node)).collect();
    let pieces = pieces.ok_or(Reason::MovesElements)?.concat();
    let node = outputs.first().copied().filter(|&node| graph[node].ty.numel() > 0).ok_or(Reason::MovesElements)?;
    let sizes = graph[node].ty.sizes.clone();
    let zeros = Sizes::from_elem(0, sizes.len());
    let mut boxes = vec![Piece { node, operand: node, start: zeros.clone(), from: zeros, sizes }];
    let mut regions = Vec::new();
    while let Some(one) = boxes.pop() {
        match place_piece(graph, contains, &one, &pieces, outputs) {
            Ok(region) => regions.push(region),
            Err(Unplaced { cut: Some((dim, at)), .. }) if regions.len() + boxes.len() + 2 <= MOST_BOXES => {
                let (mut low, mut high) = (one.clone(), one);
                low.sizes[dim] = at;
                high.start[dim] += at;
                high.sizes[dim] -= at;
                boxes.extend([high, low]);
            }
            Err(unplaced) => return Err(unplaced.reason),
        }
    }
    Ok(regions)
}

/// The boxes in which every value is one operand: the intersections of their pieces. `None` if there are too many.
fn refined(all: &[Vec<Piece>]) -> Option<Vec<Piece>> {
    let (first, others) = all.split_first()?;
    others.iter().try_fold(first.clone(), |boxes, pieces| {
        let both = boxes.iter().flat_map(|one| pieces.iter().filter_map(|other| intersection(one, other)));
        let both: Vec<Piece> = both.take(MOST_BOXES + 1).collect();
        (both.len() <= MOST_BOXES).then_some(both)
    })
}

/// The part of a piece that lies in another one.
fn intersection(piece: &Piece, other: &Piece) -> Option<Piece> {
    let mut both = piece.clone();
    for dim in 0..both.sizes.len() {
        let start = piece.start[dim].max(other.start[dim]);
        let end = (piece.start[dim] + piece.sizes[dim]).min(other.start[dim] + other.sizes[dim]);
        if start >= end {
            return None;
        }
        both.from[dim] += start - piece.start[dim];
        (both.start[dim], both.sizes[dim]) = (start, end - start);
    }
    Some(both)
}

/// The value of every element of `node`, if it is a fill. Regions then need not read it from memory.
pub fn filled_with(graph: &Graph, node: NodeId) -> Option<Scalar> {
    let op = graph[node].op()?;
    matches!(op.row().meaning, Meaning::Fill).then(|| Full::read(&graph[node].attrs).fill_value)
}

/// The boxes of a value, each from one operand, without empty ones. `None` for an overlay whose window is no box.
fn pieces(graph: &Graph, node: NodeId) -> Option<Vec<Piece>> {
    let call = &graph[node];
    let Some(op) = call.op() else { unreachable!("{node} is no call") };
    let mut pieces = match op.row().meaning {
        Meaning::Overlay => overlaid(graph, node)?,
        _ => {
            let rank = call.ty.rank();
            let dim = normalize_dim("cat", Along::read(&call.attrs).dim, rank).expect("the graph is verified");
            let mut at = 0;
            let mut piece = |&operand: &NodeId| {
                let sizes = graph[operand].ty.sizes.clone();
                let (mut start, from) = (Sizes::from_elem(0, rank), Sizes::from_elem(0, rank));
                start[dim] = at;
                at += sizes[dim];
                Piece { node, operand, start, from, sizes }
            };
            call.args.iter().map(&mut piece).collect()
        }
    };
    pieces.retain(|piece| !piece.sizes.contains(&0));
    Some(pieces)
}

/// Most bytes of a row of the result that is filled before another row is written over its middle.
const NARROW: usize = 256;

/// The boxes of a padded value with short rows: all of it, filled, and then the value. Others are the same.
fn filled_first(graph: &Graph, boxes: Vec<Piece>) -> Vec<Piece> {
    let [over, frame, ..] = &boxes[..] else { return boxes };
    let (whole, under) = (&graph[over.node].ty, frame.operand);
    let is_short = whole.sizes.last().is_some_and(|&row| row.saturating_mul(whole.dtype.size()) <= NARROW);
    let is_beside = over.sizes.last() != whole.sizes.last();
    let is_overlay = graph[over.node].op().is_some_and(|op| matches!(op.row().meaning, Meaning::Overlay));
    if !is_overlay || !is_short || !is_beside || over.operand == under || filled_with(graph, under).is_none() {
        return boxes;
    }
    let zeros = Sizes::from_elem(0, whole.rank());
    let all = Piece { operand: under, start: zeros.clone(), from: zeros, sizes: whole.sizes.clone(), ..frame.clone() };
    vec![all, over.clone()]
}

/// The box of an overlay's second operand, and those around it, if its window is a box.
fn overlaid(graph: &Graph, node: NodeId) -> Option<Vec<Piece>> {
    let call = &graph[node];
    let (under, over, whole) = (call.args[0], call.args[1], &call.ty);
    let rank = whole.rank();
    let sizes = &graph[over].ty.sizes;
    let Overlay { stride: window, offset } = Overlay::read(&call.attrs);
    let mut rest = offset as usize;
    let mut start = Sizes::from_elem(0, rank);
    for dim in 0..rank {
        let (size, stride) = (*sizes.get(dim)?, whole.strides[dim].max(1));
        if size > 1 && window[dim] as usize != stride {
            return None;
        }
        start[dim] = rest / stride;
        rest %= stride;
        if start[dim] + size > whole.sizes[dim] {
            return None;
        }
    }
    if sizes.len() != rank || rest != 0 {
        return None;
    }
    let zeros = Sizes::from_elem(0, rank);
    let mut pieces = vec![Piece { node, operand: over, start: start.clone(), from: zeros, sizes: sizes.clone() }];
    // For each dim, the boxes before and after the window: within the window along earlier dims, and whole along later
    // ones.
    let (mut low, mut left) = (Sizes::from_elem(0, rank), whole.sizes.clone());
    for dim in 0..rank {
        let end = start[dim] + sizes[dim];
        for (first, count) in [(0, start[dim]), (end, whole.sizes[dim] - end)] {
            let (mut at, mut sizes) = (low.clone(), left.clone());
            (at[dim], sizes[dim]) = (first, count);
            pieces.push(Piece { node, operand: under, start: at.clone(), from: at, sizes });
        }
        (low[dim], left[dim]) = (start[dim], sizes[dim]);
    }
    Some(pieces)
}

/// The regions that copy the operands of an overlay to the result, the second over the first.
fn copies(graph: &Graph, node: NodeId) -> Vec<Region> {
    let call = &graph[node];
    let (under, over) = (call.args[0], call.args[1]);
    let Overlay { stride, offset } = Overlay::read(&call.attrs);
    let window: SmallVec<[usize; 6]> = stride.iter().map(|&stride| stride as usize).collect();
    let window = TensorType { strides: window, ..graph[over].ty.clone() };
    vec![copy(graph, node, under, &call.ty, 0), copy(graph, node, over, &window, offset as usize)]
}

/// The region that copies `from` to the memory of `node`, from element `base` on, with the strides of `to`.
fn copy(graph: &Graph, node: NodeId, from: NodeId, to: &TensorType, base: usize) -> Region {
    let ty = &graph[from].ty;
    let loops: Vec<usize> = (0..ty.rank()).filter(|&dim| ty.sizes[dim] != 1).collect();
    let mut map: IndexMap = SmallVec::from_elem(Coordinate::default(), ty.rank());
    for (index, &dim) in loops.iter().enumerate() {
        map[dim] = Coordinate::along(index);
    }
    let (read, first) = strides(&map, ty, loops.len());
    let (written, _) = strides(&map, to, loops.len());
    let mut region = Region { rows: loops.iter().map(|&dim| ty.sizes[dim]).collect(), ..Region::default() };
    let value = match filled_with(graph, from) {
        Some(number) => Value::Number(number, ty.dtype),
        None => {
            region.operands.push(from);
            Value::Load(region.loads.push(Walk { node: from, strides: read, base: first, gather: None }))
        }
    };
    let value = region.values.push(value);
    region.is_full.push(true);
    region.outputs.push((value, Walk { node, strides: written, base, gather: None }));
    region
}
