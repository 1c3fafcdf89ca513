//! Which nodes become one kernel?
//!
//! This floor knows graphs and patterns, and no machine code. Planning begins with [`partition`](partition::partition),
//! a partitioner on a dominator tree. Its groups are convex, have a single sink, and form an acyclic graph by
//! construction. The merge steps of [`MERGES`] then make fewer kernels of them.

mod along_rows;
pub mod argument_limit;
pub mod blocks;
mod concatenation;
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
pub mod piece;
mod piecewise;
pub mod plan;
pub mod rates;
mod refusals;
pub mod region;
pub mod role;
mod routines;
mod row_order;
pub mod schedule;
mod siblings;
pub mod split;
pub mod starts;
mod stitch;
mod union;
pub mod unit;
pub mod units;
mod weights;
pub mod work;

pub use crate::ir::Pattern;
pub use partition::{Decision, GroupId, Options, Order, Partition, partition};
pub use pattern_graph::{PatternGraph, Users, Vertex, VertexFacts, VertexKind};
pub use plan::{EdgeDecision, PARTITION, Plan, Rewritten, Step, StepKind, plan, plan_observed};
pub use rates::Rates;
pub use schedule::{MERGES, Merge, When};
