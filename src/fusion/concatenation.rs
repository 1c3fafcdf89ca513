//! Writing a concatenation where it is computed: a kernel that computes the operands of a concatenation writes their
//! elements to their places in the result. So the operands need neither memory nor a copy. Operands that the kernel
//! does not compute are copied to their places, if it reads their memory anyway, or are filled with a number.
//!
//! A kernel is redirected under these conditions:
//!
//! - A computed operand may be a concatenation that the kernel writes, as in matrices that are stacked of stacked rows.
//!   If others read it, too, it is written to memory of its own besides. Nothing else reads a view of it.
//! - Between the kernel and the concatenation are at most views of the same elements, as of `stack`.
//! - The places of an operand's elements are near each other, so that vectors reach them. Or operands are the columns
//!   of the result, which are transposed.
//! - Copied and filled operands have the same loops.

use super::region::{MAX_OPERANDS, Region, Value, ValueId, Walk};
use super::role::{Role, role};
use super::unit::{Unit, UnitId, UnitKind};
use super::units::Units;
use crate::ir::{DType, Graph, Meaning, NodeId, Scalar};
use smallvec::SmallVec;

/// Most elements between those that a vector writes, which machine code interleaves.
const MOST_APART: usize = 4;
/// Most columns of a result whose operands are columns: a row of them is in a few cache lines.
const MOST_COLUMNS: usize = 32;

/// The kernel that computes operands of a concatenation, and this kernel with the result as its output.
pub(super) fn written_directly(units: &Units<'_>, unit: UnitId) -> Option<(UnitId, Unit)> {
    let concatenation = units.unit(unit);
    let UnitKind::Parts(copies) = &concatenation.kind else { return None };
    let (&[node], true) = (&concatenation.nodes[..], concatenation.outputs == concatenation.nodes) else {
        return None;
    };
    if !units.graph[node].op().is_some_and(|op| matches!(op.row().meaning, Meaning::Concat)) {
        return None;
    }
    let copies: Vec<Copied<'_>> = copies.iter().map(Copied::of).collect::<Option<_>>()?;
    let operands: Vec<Option<Operand<'_>>> = copies.iter().map(|copy| Operand::of(units, *copy, node)).collect();
    let mut producers = operands.iter().flatten().filter_map(|operand| units.unit_of[operand.root]);
    let producer = producers.find(|&unit| units.unit(unit).region().is_some())?;
    let computing = units.unit(producer);
    let mut region = computing.region()?.clone();
    let is_computed = |operand: &&Operand<'_>| units.unit_of[operand.root] == Some(producer);
    let computed: Vec<&Operand<'_>> = operands.iter().flatten().filter(is_computed).collect();
    let n_computed =
        |operand: &&Operand<'_>| region.outputs.iter().filter(|(_, walk)| walk.node == operand.root).count();
    // An operand may be a concatenation whose parts are columns of the result.
    let n_columns = copies.len() - computed.len() + computed.iter().map(n_computed).sum::<usize>();
    let most_apart = if n_columns <= MOST_COLUMNS { MOST_APART.max(n_columns) } else { MOST_APART };
    if computed.iter().any(|operand| n_computed(operand) == 0) {
        return None;
    }
    for operand in &computed {
        let written = region.outputs.iter().filter(|(_, walk)| walk.node == operand.root);
        let loops = || region.rows.iter().chain(&region.inner);
        let place =
            |(value, walk): &(ValueId, Walk)| Some((*value, operand.place(units.graph, walk, loops(), most_apart)?));
        let placed = written.map(place).collect::<Option<Vec<_>>>()?;
        region.outputs.extend(placed);
    }
    let placed = region.outputs.iter().find(|(_, walk)| walk.node == node)?.1.clone();
    for (copy, operand) in copies.iter().zip(&operands) {
        if !operand.as_ref().is_some_and(|operand| is_computed(&operand)) {
            copy.add_to(units.graph, &mut region, &placed)?;
        }
    }
    let views = computed.iter().flat_map(|operand| &operand.views);
    let mut nodes: Vec<NodeId> = computing.nodes.iter().chain(views).chain([&node]).copied().collect();
    nodes.sort_unstable();
    nodes.dedup();
    // What others read of the operands stays in memory, too.
    let outputs = units.outputs_of(&nodes);
    region.outputs.retain(|(_, walk)| outputs.contains(&walk.node));
    if nodes.len() > units.max_nodes || region.loads.len() + region.outputs.len() > MAX_OPERANDS {
        return None;
    }
    let mut members: Vec<UnitId> = nodes.iter().filter_map(|&node| units.unit_of[node]).collect();
    members.sort_unstable();
    members.dedup();
    let merged = Unit { kind: UnitKind::Kernel(Box::new(region)), nodes, outputs };
    (!units.leaves_and_returns(&members)).then_some((producer, merged))
}

/// A region that copies an operand to its place in a concatenation, or fills that.
#[derive(Clone, Copy)]
struct Copied<'a> {
    region: &'a Region,
    from: Source<'a>,
    to: &'a Walk,
}

/// Where the elements of an operand come from.
#[derive(Clone, Copy)]
enum Source<'a> {
    Memory(&'a Walk),
    Number(Scalar, DType),
}

impl<'a> Copied<'a> {
    fn of(region: &'a Region) -> Option<Copied<'a>> {
        let [(value, to)] = &region.outputs[..] else { return None };
        let from = match region.values[*value] {
            Value::Load(load) => Source::Memory(&region.loads[load]),
            Value::Number(number, dtype) => Source::Number(number, dtype),
            Value::Body(..) | Value::Fold(..) | Value::Gather(..) | Value::Position(..) | Value::Extent(_) => {
                return None;
            }
        };
        Some(Copied { region, from, to })
    }

    /// Its loops: their sizes, and the strides through the operand and through the result.
    fn loops(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let from = |nth: usize| match self.from {
            Source::Memory(walk) => walk.strides[nth],
            Source::Number(..) => 0,
        };
        let sizes = self.region.rows.iter().zip(&self.to.strides).enumerate();
        sizes.map(move |(nth, (&size, &to))| (size, from(nth), to))
    }

    /// Makes a kernel copy the operand, if it has the loops of an operand that is `placed` in the result. Memory must
    /// be what the kernel reads, so that it depends on nothing that the kernel computes.
    fn add_to(&self, graph: &Graph, region: &mut Region, placed: &Walk) -> Option<()> {
        let sizes = region.rows.iter().chain(&region.inner);
        if region.has_folds() || placed.strides.len() != self.loops().count() {
            return None;
        }
        let stride = |(&size, &to): (&usize, &usize)| {
            self.loops().find(|&(rows, _, stride)| (rows, stride) == (size, to)).map(|(_, from, _)| from)
        };
        let strides: SmallVec<[usize; 6]> = sizes.zip(&placed.strides).map(stride).collect::<Option<_>>()?;
        let value = match self.from {
            Source::Number(number, dtype) => Value::Number(number, dtype),
            Source::Memory(from) => {
                let (node, base) = (from.node, graph.view_base(from.node));
                let has_dtype = graph[node].ty.dtype == graph[self.to.node].ty.dtype;
                let reads = |operand: &NodeId| graph.view_base(*operand) == base;
                if !has_dtype || !region.operands.iter().any(reads) || from.gather.is_some() {
                    return None;
                }
                let walk = Walk { strides, ..from.clone() };
                let known = region.loads.iter().find(|(_, load)| **load == walk).map(|(load, _)| load);
                let load = known.unwrap_or_else(|| region.loads.push(walk));
                if let Err(at) = region.operands.binary_search(&node) {
                    region.operands.insert(at, node);
                }
                Value::Load(load)
            }
        };
        let value = region.values.push(value);
        region.is_full.push(true);
        region.outputs.push((value, Walk { strides: placed.strides.clone(), ..self.to.clone() }));
        Some(())
    }
}

/// An operand of a concatenation.
struct Operand<'a> {
    /// The value that it is, or that it is a view of.
    root: NodeId,
    /// The views between, which nothing else reads.
    views: SmallVec<[NodeId; 2]>,
    copy: Copied<'a>,
}

impl<'a> Operand<'a> {
    /// The operand that a region copies whole to `node`.
    fn of(units: &Units<'_>, copy: Copied<'a>, node: NodeId) -> Option<Operand<'a>> {
        let Source::Memory(from) = copy.from else { return None };
        let (mut root, mut views) = (from.node, SmallVec::new());
        let graph = units.graph;
        while role(graph, root) == Role::View {
            let source = graph[root].args[0];
            if graph[source].ty.numel() != graph[root].ty.numel() {
                return None;
            }
            views.push(root);
            root = source;
        }
        // A view that others read, too, is one of memory. The kernel itself computes what is read there.
        let own = units.unit_of[root];
        let is_read_by = |view: NodeId, reader: NodeId| {
            let is_inside = |user: &NodeId| *user == reader || units.unit_of[*user] == own;
            !units.is_output[view] && units.users[view].iter().all(is_inside)
        };
        let readers = [node].into_iter().chain(views.iter().copied());
        if !views.iter().copied().zip(readers).all(|(view, reader)| is_read_by(view, reader)) {
            return None;
        }
        let is_plain = from.gather.is_none() && from.base == 0 && graph[root].ty.dtype == graph[node].ty.dtype;
        let is_whole = copy.region.rows.iter().product::<usize>() == graph[root].ty.numel();
        (is_plain && is_whole).then_some(Operand { root, views, copy })
    }

    /// The walk of loops of these sizes through the result, for one through the operand.
    fn place<'s>(
        &self,
        graph: &Graph,
        walk: &Walk,
        sizes: impl Iterator<Item = &'s usize>,
        most_apart: usize,
    ) -> Option<Walk> {
        let place = |(&size, &stride): (&usize, &usize)| match stride {
            0 => Some(0),
            // A part of the operand has a part of its loops.
            _ => self.copy.loops().find(|&(rows, from, _)| from == stride && size <= rows).map(|(_, _, to)| to),
        };
        let strides: SmallVec<[usize; 6]> = sizes.zip(&walk.strides).map(place).collect::<Option<_>>()?;
        let apart = strides.iter().copied().filter(|&stride| stride != 0).min().unwrap_or(1);
        let is_near = apart == 1 || apart <= most_apart && graph[self.copy.to.node].ty.dtype.size() >= 4;
        let base = self.copy.to.base + self.offset(walk.base)?;
        is_near.then_some(Walk { strides, base, ..self.copy.to.clone() })
    }

    /// Where an element of the operand goes in the result, counted from where the first one goes.
    fn offset(&self, element: usize) -> Option<usize> {
        let mut loops: SmallVec<[(usize, usize, usize); 6]> = self.copy.loops().collect();
        loops.sort_unstable_by_key(|&(_, from, _)| std::cmp::Reverse(from));
        let (mut rest, mut offset) = (element, 0);
        for (size, from, to) in loops.into_iter().filter(|&(_, from, _)| from != 0) {
            let at = (rest / from).min(size - 1);
            (rest, offset) = (rest - at * from, offset + at * to);
        }
        (rest == 0).then_some(offset)
    }
}
