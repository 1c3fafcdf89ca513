//! Writing a concatenation where it is computed: a kernel that computes every operand of a concatenation writes their
//! elements to their places in the result. So the operands need neither memory nor a copy.
//!
//! A kernel is redirected under these conditions:
//!
//! - Outside the kernel, nothing but the concatenation reads an operand, and each operand is read once.
//! - Between the kernel and the concatenation are at most views of the same elements, as of `stack`.
//! - The places of an operand's elements are near each other, so that vectors reach them.

use super::region::{Region, Value, Walk};
use super::role::{Role, role};
use super::unit::{Unit, UnitId, UnitKind};
use super::units::Units;
use crate::ir::{Graph, Meaning, NodeId};
use smallvec::SmallVec;

/// Most elements between those that a vector writes, which machine code interleaves.
const MOST_APART: usize = 4;

/// The kernel that computes all operands of a concatenation, and this kernel with the result as its output.
pub(super) fn written_directly(units: &Units<'_>, unit: UnitId) -> Option<(UnitId, Unit)> {
    let concatenation = units.unit(unit);
    let UnitKind::Parts(copies) = &concatenation.kind else { return None };
    let (&[node], true) = (&concatenation.nodes[..], concatenation.outputs == concatenation.nodes) else {
        return None;
    };
    if !units.graph[node].op().is_some_and(|op| matches!(op.row().meaning, Meaning::Concat)) {
        return None;
    }
    let operands: Vec<Operand<'_>> = copies.iter().map(|copy| Operand::of(units, copy, node)).collect::<Option<_>>()?;
    let producer = units.unit_of[operands.first()?.root]?;
    let computing = units.unit(producer);
    let mut region = computing.region()?.clone();
    for operand in &operands {
        let mut outputs = region.outputs.iter_mut().filter(|(_, walk)| walk.node == operand.root);
        let (Some((_, walk)), None) = (outputs.next(), outputs.next()) else { return None };
        *walk = operand.place(units.graph, walk, region.rows.iter().chain(&region.inner))?;
    }
    let is_operand = |output: &&NodeId| operands.iter().any(|operand| operand.root == **output);
    let mut outputs: Vec<NodeId> = computing.outputs.iter().filter(|output| !is_operand(output)).copied().collect();
    outputs.push(node);
    let views = operands.iter().flat_map(|operand| &operand.views);
    let mut nodes: Vec<NodeId> = computing.nodes.iter().chain(views).chain([&node]).copied().collect();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.len() > units.max_nodes {
        return None;
    }
    Some((producer, Unit { kind: UnitKind::Kernel(Box::new(region)), nodes, outputs }))
}

/// An operand of a concatenation.
struct Operand<'a> {
    /// The value that it is, or that it is a view of.
    root: NodeId,
    /// The views between.
    views: SmallVec<[NodeId; 2]>,
    /// The region that copies it.
    copy: &'a Region,
    from: &'a Walk,
    to: &'a Walk,
}

impl<'a> Operand<'a> {
    /// The operand that a region copies whole to `node`, if nothing else reads it.
    fn of(units: &Units<'_>, copy: &'a Region, node: NodeId) -> Option<Operand<'a>> {
        let [(value, to)] = &copy.outputs[..] else { return None };
        let Value::Load(load) = copy.values[*value] else { return None };
        let from = &copy.loads[load];
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
        let is_whole = copy.rows.iter().product::<usize>() == graph[root].ty.numel();
        (is_plain && is_whole).then_some(Operand { root, views, copy, from, to })
    }

    /// The walk of loops of these sizes through the result, for one through the operand.
    fn place<'s>(&self, graph: &Graph, walk: &Walk, sizes: impl Iterator<Item = &'s usize>) -> Option<Walk> {
        if walk.base != 0 {
            return None;
        }
        let copied = || self.copy.rows.iter().zip(self.from.strides.iter().zip(&self.to.strides));
        let place = |(&size, &stride): (&usize, &usize)| match stride {
            0 => Some(0),
            _ => copied().find(|&(&rows, (&from, _))| (rows, from) == (size, stride)).map(|(_, (_, &to))| to),
        };
        let strides: SmallVec<[usize; 6]> = sizes.zip(&walk.strides).map(place).collect::<Option<_>>()?;
        let apart = strides.iter().copied().filter(|&stride| stride != 0).min().unwrap_or(1);
        let is_near = apart == 1 || apart <= MOST_APART && graph[self.to.node].ty.dtype.size() >= 4;
        is_near.then_some(Walk { strides, ..self.to.clone() })
    }
}
