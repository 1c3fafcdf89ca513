//! Regions: the nodes of one kernel, laid over common loops.
//!
//! [`place`] decides whether nodes can be one kernel, which patterns alone cannot. It goes from the outputs to the
//! operands, and computes each value at an index map. A value that is read at two maps is computed twice. Views become
//! index maps.
//!
//! Row loops come first, then the inner loops of the folds. Loops of size 1 are dropped. All folds of a region run over
//! the same rows and the same inner elements. A view that only splits or merges dimensions keeps the order of elements.
//! If loops are as fine as the dimensions on both sides of such a view, each dimension is walked by consecutive loops.

use super::index_map::{Coordinate, IndexMap, broadcast, keeps_order, strides, through_view};
use super::piece::Piece;
use super::role::{Role, role};
use crate::error::Reason;
use crate::ir::attrs::{Along, Attributes, Full};
use crate::ir::entity::{Arena, entity_id};
use crate::ir::infer::reduced_dims;
use crate::ir::shape::{Sizes, normalize_dim};
use crate::ir::{GatherKind, Graph, Meaning, NodeId, NodeKind, Op, Scalar, SideTable, TensorType};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::ops::Index;

/// The most operands and outputs of one kernel.
pub const MAX_OPERANDS: usize = 48;
/// The most values of one region.
pub const MAX_VALUES: usize = 1024;

entity_id! {
    /// Names a value of a region; prints as `v7`.
    pub struct ValueId(u32) = "v";
}

entity_id! {
    /// Names something that a region loads, and the operand of its kernel that it becomes; prints as `in7`.
    pub struct LoadId(u16) = "in";
}

/// A value of a region.
#[derive(Debug, Clone)]
pub enum Value {
    /// An element of a node outside the region.
    Load(LoadId),
    /// A plain number.
    Number(Scalar, crate::ir::DType),
    /// A pointwise node of these values.
    Body(NodeId, SmallVec<[ValueId; 3]>),
    /// A reduction node of this value.
    Fold(NodeId, ValueId),
    /// An element of a node outside the region, at this index along the gathered dimension.
    Gather(LoadId, ValueId),
    /// A range node: its position.
    Position(LoadId, NodeId),
    /// A count that follows from sizes.
    Extent(LoadId),
}

/// How memory is walked by the loops. Strides and the base count elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Walk {
    /// The node whose value is in that memory. For a position, the range.
    pub node: NodeId,
    /// Per loop, rows first.
    pub strides: SmallVec<[usize; 6]>,
    /// First element.
    pub base: usize,
    /// Size and stride of the gathered dimension.
    pub gather: Option<(usize, usize)>,
}

/// A group of nodes over common loops.
#[derive(Debug, Clone, Default)]
pub struct Region {
    /// Sizes of the row loops.
    pub rows: Sizes,
    /// Sizes of the inner loops.
    pub inner: Sizes,
    /// Values, operands first.
    pub values: Arena<ValueId, Value>,
    /// The walks through memory that is read, and through ranges.
    pub loads: Arena<LoadId, Walk>,
    /// The nodes that are read from memory, sorted, without repetition.
    pub operands: Vec<NodeId>,
    /// The values that are written, and the walks through their memory.
    pub outputs: Vec<(ValueId, Walk)>,
    /// For each value, whether it differs between the inner elements of a row.
    pub is_full: SideTable<ValueId, bool>,
}

impl Region {
    /// Whether the region has a reduction.
    pub fn has_folds(&self) -> bool {
        self.values.entities().any(|value| matches!(value, Value::Fold(..)))
    }
}

/// Lays the nodes of a group over common loops. `outputs` of them are written to memory.
///
/// # Errors
/// The reason why they cannot be one kernel.
pub fn place(
    graph: &Graph,
    contains: &dyn Fn(NodeId) -> bool,
    members: &[NodeId],
    outputs: &[NodeId],
) -> Result<Region, Reason> {
    let placer = || Placer::chosen(graph, contains, members, outputs);
    let reason = match placer()?.place_all(outputs) {
        Err(reason @ (Reason::ReshapeOfComputed | Reason::DifferentRows)) => reason,
        placed => return placed,
    };
    // A view may split dimensions. Finer loops may then have an affine map.
    let mut placer = placer()?;
    match placer.make_finer(members) {
        true => placer.place_all(outputs).map_err(|_| reason),
        false => Err(reason),
    }
}

/// Why nodes cannot be laid over the loops of a box.
pub struct Unplaced {
    /// The reason.
    pub reason: Reason,
    /// A dim of the box and a position along it: before and after that, a value may come from one operand each.
    pub cut: Option<(usize, usize)>,
}

/// Lays nodes over the loops of one box of a piecewise value. Every output has the sizes of that value. `pieces` are
/// those of all piecewise values among the nodes.
///
/// # Errors
/// The reason why they cannot be computed box by box, and where the box could be cut.
pub fn place_piece(
    graph: &Graph,
    contains: &dyn Fn(NodeId) -> bool,
    piece: &Piece,
    pieces: &[Piece],
    outputs: &[NodeId],
) -> Result<Region, Unplaced> {
    let region = Region { rows: wide(&piece.sizes), ..Region::default() };
    let mut placer = Placer { pieces, ..Placer::new(graph, contains, region, outputs.len()) };
    let map = placer.maps.id(piece.map(&piece.start));
    let has_sizes = |&output: &NodeId| graph[output].ty.sizes == graph[piece.node].ty.sizes;
    let placed = match outputs.iter().all(has_sizes) {
        true => outputs.iter().try_for_each(|&output| placer.output(output, map)),
        false => Err(Reason::DifferentRows),
    };
    let cut = placer.cut.and_then(|(along, at)| Some((piece.dim_of_loop(along)?, at)));
    placed.and_then(|()| placer.finish()).map_err(|reason| Unplaced { reason, cut })
}

entity_id! {
    /// Names an index map. Most values of a region have one of a few maps. Prints as `m7`.
    struct MapId(u32) = "m";
}

/// Interned index maps.
#[derive(Default)]
struct Maps {
    all: Arena<MapId, IndexMap>,
    ids: FxHashMap<IndexMap, MapId>,
}

impl Maps {
    fn id(&mut self, map: IndexMap) -> MapId {
        if let Some(&id) = self.ids.get(&map) {
            return id;
        }
        let id = self.all.push(map.clone());
        self.ids.insert(map, id);
        id
    }

    /// The map of an operand that is broadcast to a value with map `map`.
    fn broadcast(&mut self, map: MapId, operand: &TensorType) -> MapId {
        let from = &self[map];
        let is_same = |(coordinate, &size): (&Coordinate, &usize)| size != 1 || *coordinate == Coordinate::default();
        if from.len() == operand.rank() && from.iter().zip(&operand.sizes).all(is_same) {
            return map;
        }
        let map = broadcast(from, operand);
        self.id(map)
    }
}

impl Index<MapId> for Maps {
    type Output = IndexMap;

    fn index(&self, id: MapId) -> &IndexMap {
        &self.all[id]
    }
}

struct Placer<'a> {
    graph: &'a Graph,
    contains: &'a dyn Fn(NodeId) -> bool,
    region: Region,
    maps: Maps,
    placed: FxHashMap<(NodeId, MapId), ValueId>,
    /// The first fold, whose operand defines rows and inner elements.
    fold: Option<NodeId>,
    /// The pieces of piecewise values.
    pieces: &'a [Piece],
    /// A loop and a position along it, where a concatenation changes to another operand.
    cut: Option<(usize, usize)>,
    /// Whether a dimension may be walked by several loops.
    is_finer: bool,
}

/// The sizes other than 1.
fn wide(sizes: &[usize]) -> Sizes {
    sizes.iter().copied().filter(|&size| size != 1).collect()
}

/// For each dim, the number of elements of it and all later dims, if the innermost element counts as `size`.
fn suffix_products(sizes: &[usize], size: usize) -> impl Iterator<Item = usize> {
    sizes.iter().rev().scan(size, |product, &size| {
        *product *= size;
        Some(*product)
    })
}

impl<'a> Placer<'a> {
    fn new(graph: &'a Graph, contains: &'a dyn Fn(NodeId) -> bool, region: Region, n_nodes: usize) -> Placer<'a> {
        let placed = FxHashMap::with_capacity_and_hasher(n_nodes, Default::default());
        Placer {
            graph,
            contains,
            region,
            maps: Maps::default(),
            placed,
            fold: None,
            pieces: &[],
            cut: None,
            is_finer: false,
        }
    }

    /// A placer with the loops of the first fold, or of the first output.
    fn chosen(
        graph: &'a Graph,
        contains: &'a dyn Fn(NodeId) -> bool,
        members: &[NodeId],
        outputs: &[NodeId],
    ) -> Result<Placer<'a>, Reason> {
        let mut placer = Placer::new(graph, contains, Region::default(), members.len());
        placer.choose_loops(members, outputs)?;
        Ok(placer)
    }

    fn n_loops(&self) -> usize {
        self.region.rows.len() + self.region.inner.len()
    }

    fn fold_dims(&self, node: NodeId) -> SmallVec<[usize; 6]> {
        let call = &self.graph[node];
        reduced_dims("fold", &call.attrs, self.graph[call.args[0]].ty.rank()).expect("the graph is verified")
    }

    /// Chooses the loops of the first fold, or of the first output.
    fn choose_loops(&mut self, members: &[NodeId], outputs: &[NodeId]) -> Result<(), Reason> {
        let is_fold =
            |node: &&NodeId| self.graph[**node].op().is_some_and(|op| matches!(op.row().meaning, Meaning::Fold(_)));
        if let Some(&fold) = members.iter().find(is_fold) {
            let dims = self.fold_dims(fold);
            let input = &self.graph[self.graph[fold].args[0]].ty;
            let part = |inner: bool| -> Sizes {
                let sizes = input.sizes.iter().enumerate().filter(|(dim, _)| dims.contains(dim) == inner);
                sizes.map(|(_, &size)| size).filter(|&size| size != 1).collect()
            };
            (self.region.rows, self.region.inner, self.fold) = (part(false), part(true), Some(fold));
        } else {
            let first = outputs.first().ok_or(Reason::OpaqueOp)?;
            self.region.rows = wide(&self.graph[*first].ty.sizes);
        }
        Ok(())
    }

    /// Splits loops where a view inside splits or merges dimensions. Returns whether a loop was split.
    ///
    /// Loops must go through elements in row-major order. A view keeps that order, so the dimensions of both sides are
    /// then products of the same loops.
    fn make_finer(&mut self, members: &[NodeId]) -> bool {
        let loops: Sizes = self.region.rows.iter().chain(&self.region.inner).copied().collect();
        let (all, inner) = (loops.iter().product::<usize>(), self.region.inner.iter().product::<usize>());
        if all == 0 || self.inner_dims().is_some_and(|dims| !dims.is_sorted()) {
            return false;
        }
        let mut cuts: SmallVec<[usize; 12]> = suffix_products(&loops, 1).collect();
        let regroups = |&&view: &&NodeId| {
            let call = &self.graph[view];
            call.op().is_some_and(|op| op.is_view() && keeps_order(op, &call.attrs, &self.graph[call.args[0]].ty))
        };
        for &view in members.iter().filter(regroups) {
            self.is_finer = true;
            for node in [view, self.graph[view].args[0]] {
                let ty = &self.graph[node].ty;
                match ty.numel() {
                    count if count == all => cuts.extend(suffix_products(&ty.sizes, 1)),
                    // One value per row.
                    count if count * inner == all => cuts.extend(suffix_products(&ty.sizes, inner)),
                    _ => {}
                }
            }
        }
        cuts.push(1);
        cuts.sort_unstable_by(|a, b| b.cmp(a));
        cuts.dedup();
        if cuts.windows(2).any(|two| !two[0].is_multiple_of(two[1])) {
            return false;
        }
        let part = |keep: &dyn Fn(usize) -> bool| -> Sizes {
            cuts.windows(2).filter(|two| keep(two[1])).map(|two| two[0] / two[1]).collect()
        };
        (self.region.rows, self.region.inner) = (part(&|cut| cut >= inner), part(&|cut| cut < inner));
        self.is_finer
    }

    /// The coordinate of a dimension of that size, over consecutive loops from `at` on and before `end`.
    fn take(&self, at: &mut usize, end: usize, size: usize) -> Result<Coordinate, Reason> {
        let first = *at;
        let mut product = 1;
        while product != size {
            let next = self.region.rows.iter().chain(&self.region.inner).take(end).nth(*at);
            product *= next.ok_or(Reason::DifferentRows)?;
            *at += 1;
            if product > size || (*at > first + 1 && !self.is_finer) {
                return Err(Reason::DifferentRows);
            }
        }
        let sizes = || self.region.rows.iter().chain(&self.region.inner).take(*at);
        let step = |dim: usize| sizes().skip(dim + 1).product();
        Ok(Coordinate { start: 0, terms: (first..*at).map(|dim| (dim as u8, step(dim))).collect() })
    }

    /// The map of an output: over the rows, over all loops in order, or over all loops as in the fold's input.
    fn output_map(&self, output: NodeId) -> Result<IndexMap, Reason> {
        let sizes = &self.graph[output].ty.sizes;
        let (n_rows, n_loops) = (self.region.rows.len(), self.n_loops());
        let along = |end: usize| {
            let mut at = 0;
            let map = sizes.iter().map(|&size| self.take(&mut at, end, size)).collect::<Result<IndexMap, Reason>>()?;
            if at == end { Ok(map) } else { Err(Reason::DifferentRows) }
        };
        let Some(inner_dims) = self.inner_dims() else { return along(n_rows) };
        if let Ok(map) = along(n_rows) {
            return Ok(map);
        }
        if inner_dims.is_sorted() {
            return along(n_loops);
        }
        let (mut row, mut inner, mut is_inner) = (0, n_rows, inner_dims.iter());
        let mut coordinate = |&size: &usize| match size {
            1 => Ok(Coordinate::default()),
            _ if *is_inner.next().ok_or(Reason::DifferentRows)? => self.take(&mut inner, n_loops, size),
            _ => self.take(&mut row, n_rows, size),
        };
        let map = sizes.iter().map(&mut coordinate).collect::<Result<IndexMap, Reason>>()?;
        if (row, inner) == (n_rows, n_loops) { Ok(map) } else { Err(Reason::DifferentRows) }
    }

    /// For each dim of the fold's input that is not of size 1, whether it is folded. Sorted if rows come first.
    fn inner_dims(&self) -> Option<SmallVec<[bool; 6]>> {
        let fold = self.fold?;
        let dims = self.fold_dims(fold);
        let input = &self.graph[self.graph[fold].args[0]].ty;
        Some((0..input.rank()).filter(|&dim| input.sizes[dim] != 1).map(|dim| dims.contains(&dim)).collect())
    }

    fn place_all(mut self, outputs: &[NodeId]) -> Result<Region, Reason> {
        for &output in outputs {
            let map = self.output_map(output)?;
            let map = self.maps.id(map);
            self.output(output, map)?;
        }
        self.finish()
    }

    /// Adds an output at the elements of `map`.
    fn output(&mut self, output: NodeId, map: MapId) -> Result<(), Reason> {
        let value = self.value(output, map)?;
        let walk = self.walk(output, &self.maps[map], None);
        self.region.outputs.push((value, walk));
        Ok(())
    }

    fn finish(mut self) -> Result<Region, Reason> {
        let nodes = self.region.loads.entities().map(|walk| walk.node);
        self.region.operands = nodes.filter(|&node| role(self.graph, node) != Role::Inline).collect();
        self.region.operands.sort_unstable();
        self.region.operands.dedup();
        match self.region.loads.len() + self.region.outputs.len() > MAX_OPERANDS {
            true => Err(Reason::TooManyArguments),
            false => Ok(self.region),
        }
    }

    fn push(&mut self, value: Value, is_full: bool) -> Result<ValueId, Reason> {
        if self.region.values.len() >= MAX_VALUES {
            return Err(Reason::GroupTooLarge);
        }
        self.region.is_full.push(is_full);
        Ok(self.region.values.push(value))
    }

    /// The value of `node` at the element of `map`.
    fn value(&mut self, node: NodeId, map: MapId) -> Result<ValueId, Reason> {
        if let Some(&value) = self.placed.get(&(node, map)) {
            return Ok(value);
        }
        let value = self.place(node, map)?;
        self.placed.insert((node, map), value);
        Ok(value)
    }

    fn place(&mut self, node: NodeId, map: MapId) -> Result<ValueId, Reason> {
        let graph = self.graph;
        let call = &graph[node];
        let op = match call.kind {
            NodeKind::Number(value) => return self.push(Value::Number(value, value.dtype()), false),
            NodeKind::Extent(count) => return self.extent(node, count),
            NodeKind::Input(_) => return self.load(node, map),
            NodeKind::Op(op) => op,
        };
        match &op.row().meaning {
            Meaning::Fill => {
                let value = Full::read(&call.attrs).fill_value;
                self.push(Value::Number(value, call.ty.dtype), false)
            }
            Meaning::Range => self.position(node, map),
            _ if !(self.contains)(node) => self.load(node, map),
            Meaning::Body(..) => {
                let args = call.args.iter().map(|&arg| {
                    let map = self.maps.broadcast(map, &graph[arg].ty);
                    self.value(arg, map)
                });
                let args = args.collect::<Result<SmallVec<[ValueId; 3]>, Reason>>()?;
                let is_full = self.fold.is_none() || args.iter().any(|&arg| self.region.is_full[arg]);
                self.push(Value::Body(node, args), is_full)
            }
            Meaning::Fold(_) => self.fold(node, map),
            Meaning::View(_) => {
                let loops: Sizes = self.region.rows.iter().chain(&self.region.inner).copied().collect();
                let inner = through_view(op, &call.attrs, &graph[call.args[0]].ty, &self.maps[map], &loops)
                    .ok_or(Reason::ReshapeOfComputed)?;
                let inner = self.maps.id(inner);
                self.value(call.args[0], inner)
            }
            Meaning::Gather(kind) => self.gather(node, op, *kind, map),
            Meaning::Product => Err(Reason::TwoAnchors),
            Meaning::Concat | Meaning::Overlay if self.pieces.iter().any(|piece| piece.node == node) => {
                self.of_piece(node, map)
            }
            Meaning::Concat | Meaning::Overlay | Meaning::Window(_) | Meaning::Decompose(_) | Meaning::Routine(_) => {
                Err(Reason::OpaqueOp)
            }
        }
    }

    /// A piecewise value: in this box, the operand of the last piece that has all of its elements, if one has.
    fn of_piece(&mut self, node: NodeId, map: MapId) -> Result<ValueId, Reason> {
        let (map, loops) = (&self.maps[map], &self.region.rows);
        let own = || self.pieces.iter().filter(|piece| piece.node == node);
        let Some(piece) = own().rev().find(|piece| piece.has_all(map, loops)) else {
            self.cut = self.cut.or(own().find_map(|piece| piece.end_of(map, loops)));
            return Err(Reason::MovesElements);
        };
        let from = self.maps.id(piece.of_operand(map));
        self.value(piece.operand, from)
    }

    fn walk(&self, node: NodeId, map: &IndexMap, gather: Option<(usize, usize)>) -> Walk {
        let (strides, base) = strides(map, &self.graph[node].ty, self.n_loops());
        Walk { node, strides, base, gather }
    }

    /// Whether a load differs between inner elements. One of a node without elements counts as such, because a value
    /// per row would be read even if there are no inner elements.
    fn is_full_walk(&self, walk: &Walk) -> bool {
        let empty = self.graph[walk.node].ty.numel() == 0;
        self.fold.is_none() || empty || walk.strides[self.region.rows.len()..].iter().any(|&stride| stride != 0)
    }

    fn add_load(&mut self, walk: Walk) -> LoadId {
        let known = self.region.loads.iter().find(|(_, load)| **load == walk).map(|(id, _)| id);
        known.unwrap_or_else(|| self.region.loads.push(walk))
    }

    fn load(&mut self, node: NodeId, map: MapId) -> Result<ValueId, Reason> {
        let walk = self.walk(node, &self.maps[map], None);
        let is_full = self.is_full_walk(&walk);
        let load = self.add_load(walk);
        self.push(Value::Load(load), is_full)
    }

    fn position(&mut self, node: NodeId, map: MapId) -> Result<ValueId, Reason> {
        let along = &self.maps[map][0];
        let mut steps: SmallVec<[usize; 6]> = SmallVec::from_elem(0, self.n_loops());
        for &(dim, step) in &along.terms {
            steps[dim as usize] += step;
        }
        let walk = Walk { node, strides: steps, base: along.start, gather: None };
        let is_full = self.is_full_walk(&walk);
        let load = self.add_load(walk);
        self.push(Value::Position(load, node), is_full)
    }

    /// A count is a position that no loop moves. Its base is the count.
    fn extent(&mut self, node: NodeId, count: i64) -> Result<ValueId, Reason> {
        let strides = SmallVec::from_elem(0, self.n_loops());
        let walk = Walk { node, strides, base: count as usize, gather: None };
        let is_full = self.is_full_walk(&walk);
        let load = self.add_load(walk);
        self.push(Value::Extent(load), is_full)
    }

    /// A fold. It has one value per row, so it can only be read at the row itself.
    fn fold(&mut self, node: NodeId, map: MapId) -> Result<ValueId, Reason> {
        let dims = self.fold_dims(node);
        let call = &self.graph[node];
        let input = &self.graph[call.args[0]].ty;
        let keep = call.ty.rank() == input.rank();
        let (mut row, mut inner) = (0, self.region.rows.len());
        let mut own: IndexMap = SmallVec::new();
        let mut kept = self.maps[map].iter();
        for (dim, &size) in input.sizes.iter().enumerate() {
            let reduced = dims.contains(&dim);
            let asked = if !reduced || keep { kept.next() } else { None };
            let coordinate = match reduced {
                true => self.take(&mut inner, self.n_loops(), size)?,
                false => self.take(&mut row, self.region.rows.len(), size)?,
            };
            if !reduced && size != 1 && asked != Some(&coordinate) {
                return Err(Reason::DifferentRows);
            }
            own.push(coordinate);
        }
        if row != self.region.rows.len() || inner != self.n_loops() {
            return Err(Reason::DifferentRows);
        }
        let own = self.maps.id(own);
        let value = self.value(call.args[0], own)?;
        self.push(Value::Fold(node, value), false)
    }

    /// A gather. Its source must be in memory, and the index walks the gathered dimension.
    fn gather(&mut self, node: NodeId, op: Op, kind: GatherKind, map: MapId) -> Result<ValueId, Reason> {
        let map = &self.maps[map];
        let call = &self.graph[node];
        let (source, index) = (call.args[0], call.args[1]);
        if (self.contains)(source) {
            return Err(Reason::MovesElements);
        }
        let ty = &self.graph[source].ty;
        let along = || normalize_dim(op.name(), Along::read(&call.attrs).dim, ty.rank());
        let (dim, index_map, mut source_map): (usize, IndexMap, IndexMap) = match kind {
            GatherKind::Select => {
                let dim = along().expect("the graph is verified");
                let own: IndexMap = if ty.rank() == 0 { SmallVec::new() } else { map.clone() };
                let along = own.get(dim).cloned().unwrap_or_default();
                let rank = self.graph[index].ty.rank();
                (dim, (0..rank).map(|_| along.clone()).collect(), own)
            }
            GatherKind::Elementwise => (along().expect("the graph is verified"), map.clone(), map.clone()),
            GatherKind::Rows => {
                let (last, lead) = map.split_last().expect("an embedding has a row dim");
                (0, lead.into(), SmallVec::from_vec(vec![Coordinate::default(), last.clone()]))
            }
        };
        let one_element = ty.rank() == 0;
        if let Some(coordinate) = source_map.get_mut(dim) {
            *coordinate = Coordinate::default();
        }
        let gather = if one_element { (1, 0) } else { (ty.sizes[dim], ty.strides[dim]) };
        let index_map = self.maps.id(index_map);
        let index = self.value(index, index_map)?;
        let walk = self.walk(source, &source_map, Some(gather));
        let is_full = self.is_full_walk(&walk) || self.region.is_full[index];
        let load = self.add_load(walk);
        self.push(Value::Gather(load, index), is_full)
    }
}
