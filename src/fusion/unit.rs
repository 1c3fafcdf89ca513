//! A unit: a part of the graph that one step of a plan runs.
//!
//! Plain data without rules. `units` cuts a graph into units, and the merge steps of `schedule` merge them.

use super::region::Region;
use crate::ir::NodeId;
use crate::ir::entity::entity_id;

entity_id! {
    /// Names a unit of a graph that is being planned; prints as `u7`.
    pub struct UnitId(u32) = "u";
}

/// What a unit is.
#[derive(Debug, Clone)]
pub enum UnitKind {
    /// One kernel over common loops.
    Kernel(Box<Region>),
    /// A view of memory.
    Alias,
    /// A matrix product.
    Product,
    /// A piecewise value, one kernel per part.
    Parts(Vec<Region>),
    /// A procedure on whole arrays.
    Routine,
    /// Products and kernels, computed some rows at a time.
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
    /// Rows of each matrix.
    pub rows: usize,
    /// Rows of a block. A run uses fewer if there would be too few blocks for all threads.
    pub height: usize,
    /// Values that exist only while their block is computed, each with the number of elements of a row.
    pub inner: Vec<(NodeId, usize)>,
    /// The members, operands first.
    pub members: Vec<Member>,
}

/// A member of a group.
#[derive(Debug, Clone)]
pub struct Member {
    /// The loops of a kernel, with those of the rows first. `None` for a product.
    pub region: Option<Box<Region>>,
    /// Its nodes, operands first.
    pub nodes: Vec<NodeId>,
    /// Those of them that others read.
    pub outputs: Vec<NodeId>,
}
