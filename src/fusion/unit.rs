//! A unit: a part of the graph that one step of a plan runs.
//!
//! Plain data, without a rule: `units` cuts a graph into units, and the merge steps of `schedule` make fewer of them.

use super::region::Region;
use crate::ir::NodeId;

/// What a unit is.
#[derive(Debug, Clone)]
pub enum UnitKind {
    /// One kernel over common loops.
    Kernel(Box<Region>),
    /// A view of memory.
    Alias,
    /// A matrix product.
    Product,
    /// A value written part by part, by one kernel each.
    Parts(Vec<Region>),
    /// A procedure on whole arrays.
    Routine,
    /// Products and kernels, some rows at a time.
    Blocks(Box<Blocks>),
}

/// A piece of the graph.
#[derive(Debug, Clone)]
pub struct Unit {
    /// What it is.
    pub kind: UnitKind,
    /// Its nodes, operands first.
    pub nodes: Vec<NodeId>,
    /// Those of them that are written to memory.
    pub outputs: Vec<NodeId>,
}

impl Unit {
    /// The loops of a kernel.
    pub fn region(&self) -> Option<&Region> {
        match &self.kind {
            UnitKind::Kernel(region) => Some(region),
            UnitKind::Alias | UnitKind::Product | UnitKind::Parts(_) | UnitKind::Routine | UnitKind::Blocks(_) => None,
        }
    }
}

/// A group of products and kernels that is computed in blocks of rows.
#[derive(Debug, Clone)]
pub struct Blocks {
    /// The number of matrices.
    pub batches: usize,
    /// Rows of each.
    pub rows: usize,
    /// Rows of a block, unless there are too few blocks for all threads.
    pub height: usize,
    /// Values that lie in memory only while their block is computed, with the elements of a row.
    pub inner: Vec<(NodeId, usize)>,
    /// The members, operands first.
    pub members: Vec<Member>,
}

/// A member of a group.
#[derive(Debug, Clone)]
pub struct Member {
    /// The loops of a kernel, those of the rows first; a product has none.
    pub region: Option<Box<Region>>,
    /// Its nodes, operands first.
    pub nodes: Vec<NodeId>,
    /// Those of them that others read.
    pub outputs: Vec<NodeId>,
}
