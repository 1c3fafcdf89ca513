//! Values that are written part by part: concatenations and overlays.
//!
//! Each operand gets a region of its own that copies it to its place in the result; regions run in order, so a later
//! one may write over an earlier one. A fill is not read from memory: its region writes the number. Nothing else is
//! computed on the way, so no other node ever joins such a value.

use super::index_map::{Coordinate, IndexMap, strides};
use super::region::{Region, Value, Walk};
use crate::ir::shape::{Sizes, normalize_dim};
use crate::ir::{Graph, Meaning, NodeId, Scalar, TensorType};
use smallvec::SmallVec;

/// One region per operand of a node that is written part by part, in the order in which they must run.
pub fn place_parts(graph: &Graph, node: NodeId) -> Vec<Region> {
    let call = &graph[node];
    let ty = &call.ty;
    let Some(op) = call.op() else { unreachable!("{node} is no call") };
    if matches!(op.row().meaning, Meaning::Overlay) {
        let (under, over) = (call.args[0], call.args[1]);
        let window: SmallVec<[usize; 6]> = call.attrs[0].list().iter().map(|&stride| stride as usize).collect();
        let window = TensorType { strides: window, ..graph[over].ty.clone() };
        let offset = call.attrs[1].as_int().unwrap_or(0) as usize;
        return vec![part(graph, node, under, ty, 0), part(graph, node, over, &window, offset)];
    }
    let dim = normalize_dim("cat", call.attrs[0].as_int().unwrap_or(0), ty.rank()).expect("the graph is verified");
    let mut start = 0;
    let mut regions = Vec::new();
    for &arg in &call.args {
        regions.push(part(graph, node, arg, ty, start * ty.strides[dim]));
        start += graph[arg].ty.sizes[dim];
    }
    regions
}

/// The number that every element of `node` is, if it is a fill: nobody who writes it part by part reads memory.
pub fn filled_with(graph: &Graph, node: NodeId) -> Option<Scalar> {
    let op = graph[node].op()?;
    matches!(op.row().meaning, Meaning::Fill).then(|| graph[node].attrs[1].scalar().unwrap_or(Scalar::Int(0)))
}

/// The region that copies `from` into the memory of `node`, from element `base` on, with the strides of `to`.
fn part(graph: &Graph, node: NodeId, from: NodeId, to: &TensorType, base: usize) -> Region {
    let ty = &graph[from].ty;
    let loops: Vec<usize> = (0..ty.rank()).filter(|&dim| ty.sizes[dim] != 1).collect();
    let mut map: IndexMap = SmallVec::from_elem(Coordinate::default(), ty.rank());
    for (index, &dim) in loops.iter().enumerate() {
        map[dim] = Coordinate::along(index);
    }
    let (read, first) = strides(&map, ty, loops.len());
    let (written, _) = strides(&map, to, loops.len());
    let (value, loads) = match filled_with(graph, from) {
        Some(number) => (Value::Number(number, ty.dtype), Vec::new()),
        None => (Value::Load(0), vec![Walk { node: from, strides: read, base: first, gather: None }]),
    };
    Region {
        rows: loops.iter().map(|&dim| ty.sizes[dim]).collect(),
        inner: Sizes::new(),
        values: vec![value],
        loads,
        outputs: vec![(0, Walk { node, strides: written, base, gather: None })],
        is_full: vec![true],
    }
}
