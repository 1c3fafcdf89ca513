//! Which nodes become one kernel?
//!
//! This floor knows graphs and patterns, never machine code. The legal base is [`partition`](partition::partition): a
//! dominator-tree partitioner whose groups are convex, have a single sink and form an acyclic graph by construction.

pub mod argument_limit;
pub mod blocks;
pub mod cost;
pub mod dominators;
pub mod group_records;
pub mod hoist;
mod horizontal;
pub mod in_place;
pub mod index_map;
mod order;
pub mod partition;
pub mod parts;
pub mod pattern_graph;
mod piecewise;
pub mod plan;
pub mod region;
mod row_order;
mod siblings;
pub mod split;
pub mod stitch;
pub mod units;

pub use crate::ir::Pattern;
pub use cost::Rates;
pub use in_place::Rewritten;
pub use partition::{Decision, GroupId, Options, Order, Partition, partition};
pub use pattern_graph::{PatternGraph, Users, Vertex, VertexFacts, VertexKind};
pub use plan::{EdgeDecision, Plan, Step, StepKind, plan};
