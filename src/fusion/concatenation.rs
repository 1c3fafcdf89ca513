//! Writing a concatenation where it is computed: a kernel that computes the operands of a concatenation writes their
//! elements to their places in the result. So the operands need neither memory nor a copy. Operands that the kernel
//! does not compute are copied to their places, if it reads their memory anyway.
//!
//! A kernel is redirected under these conditions:
//!
//! - Outside the kernel, nothing but the concatenation reads a computed operand, and each is read once.
//! - Between the kernel and the concatenation are at most views of the same elements, as of `stack`.
//! - The places of an operand's elements are near each other, so that vectors reach them. Or operands are the columns
//!   of the result, which are transposed.
//! - Copied operands have the same loops.

use super::region::{MAX_OPERANDS, Region, Value, Walk};
use super::role::{Role, role};
use super::unit::{Unit, UnitId, UnitKind};
use super::units::Units;
use crate::ir::{Graph, Meaning, NodeId};
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
    let most_apart = if copies.len() <= MOST_COLUMNS { MOST_APART.max(copies.len()) } else { MOST_APART };
    for operand in &computed {
        let mut outputs = region.outputs.iter_mut().filter(|(_, walk)| walk.node == operand.root);
        let (Some((_, walk)), None) = (outputs.next(), outputs.next()) else { return None };
        *walk = operand.place(units.graph, walk, region.rows.iter().chain(&region.inner), most_apart)?;
    }
    let placed = region.outputs.iter().find(|(_, walk)| walk.node == node)?.1.clone();
    for (copy, operand) in copies.iter().zip(&operands) {
        if !operand.as_ref().is_some_and(|operand| is_computed(&operand)) {
            copy.add_to(units.graph, &mut region, &placed)?;
        }
    }
    if region.loads.len() + region.outputs.len() > MAX_OPERANDS {
        return None;
    }
    let is_operand = |output: &&NodeId| computed.iter().any(|operand| operand.root == **output);
    let mut outputs: Vec<NodeId> = computing.outputs.iter().filter(|output| !is_operand(output)).copied().collect();
    outputs.push(node);
    let views = computed.iter().flat_map(|operand| &operand.views);
    let mut nodes: Vec<NodeId> = computing.nodes.iter().chain(views).chain([&node]).copied().collect();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.len() > units.max_nodes {
        return None;
    }
    Some((producer, Unit { kind: UnitKind::Kernel(Box::new(region)), nodes, outputs }))
}

/// A region that copies an operand to its place in a concatenation.
#[derive(Clone, Copy)]
struct Copied<'a> {
    region: &'a Region,
    from: &'a Walk,
    to: &'a Walk,
}

impl<'a> Copied<'a> {
    fn of(region: &'a Region) -> Option<Copied<'a>> {
        let [(value, to)] = &region.outputs[..] else { return None };
        let Value::Load(load) = region.values[*value] else { return None };
        Some(Copied { region, from: &region.loads[load], to })
    }

    /// Its loops: their sizes, and the strides through the operand and through the result.
    fn loops(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let strides = self.from.strides.iter().zip(&self.to.strides);
        self.region.rows.iter().zip(strides).map(|(&size, (&from, &to))| (size, from, to))
    }

    /// Makes a kernel copy the operand, if it has the loops of an operand that is `placed` in the result, and the
    /// kernel reads the same memory. So it depends on nothing that the kernel computes.
    fn add_to(&self, graph: &Graph, region: &mut Region, placed: &Walk) -> Option<()> {
        let (node, base) = (self.from.node, graph.view_base(self.from.node));
        let has_dtype = graph[node].ty.dtype == graph[self.to.node].ty.dtype;
        let reads = |operand: &NodeId| graph.view_base(*operand) == base;
        let is_read = has_dtype && region.operands.iter().any(reads) && self.from.gather.is_none();
        let sizes = region.rows.iter().chain(&region.inner);
        if !is_read || region.has_folds() || placed.strides.len() != self.loops().count() {
            return None;
        }
        let stride = |(&size, &to): (&usize, &usize)| {
            self.loops().find(|&(rows, _, stride)| (rows, stride) == (size, to)).map(|(_, from, _)| from)
        };
        let strides: SmallVec<[usize; 6]> = sizes.zip(&placed.strides).map(stride).collect::<Option<_>>()?;
        let walk = Walk { strides, ..self.from.clone() };
        let known = region.loads.iter().find(|(_, load)| **load == walk).map(|(load, _)| load);
        let load = known.unwrap_or_else(|| region.loads.push(walk));
        if let Err(at) = region.operands.binary_search(&node) {
            region.operands.insert(at, node);
        }
        let value = region.values.push(Value::Load(load));
        region.is_full.push(true);
        region.outputs.push((value, Walk { strides: placed.strides.clone(), ..self.to.clone() }));
        Some(())
    }
}

/// An operand of a concatenation that nothing else reads.
struct Operand<'a> {
    /// The value that it is, or that it is a view of.
    root: NodeId,
    /// The views between.
    views: SmallVec<[NodeId; 2]>,
    copy: Copied<'a>,
}

impl<'a> Operand<'a> {
    /// The operand that a region copies whole to `node`, if nothing else reads it.
    fn of(units: &Units<'_>, copy: Copied<'a>, node: NodeId) -> Option<Operand<'a>> {
        let from = copy.from;
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
        // Other nodes of the kernel read the value before it is in memory.
        let own = units.unit_of[root];
        let is_other = |user: &&NodeId| units.unit_of[**user] != own;
        let is_read_by = |at: NodeId, reader: NodeId| {
            let readers = units.users[at].iter().filter(is_other);
            !units.is_output[at] && readers.eq([&reader])
        };
        let readers = [node].into_iter().chain(views.iter().copied());
        if !views.iter().copied().chain([root]).zip(readers).all(|(at, reader)| is_read_by(at, reader)) {
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
        if walk.base != 0 {
            return None;
        }
        let place = |(&size, &stride): (&usize, &usize)| match stride {
            0 => Some(0),
            _ => self.copy.loops().find(|&(rows, from, _)| (rows, from) == (size, stride)).map(|(_, _, to)| to),
        };
        let strides: SmallVec<[usize; 6]> = sizes.zip(&walk.strides).map(place).collect::<Option<_>>()?;
        let apart = strides.iter().copied().filter(|&stride| stride != 0).min().unwrap_or(1);
        let is_near = apart == 1 || apart <= most_apart && graph[self.copy.to.node].ty.dtype.size() >= 4;
        is_near.then_some(Walk { strides, ..self.copy.to.clone() })
    }
}
