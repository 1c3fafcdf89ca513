//! What is a program? Dtypes, shapes, scalar bodies, the op table, graphs, passes.
//!
//! Everything here is pure: no device, no memory, no thread, no user tensor. Start with [`ops`] for what exists,
//! [`graph`] for how calls become a program, and [`scalar`] for what a number means.

pub mod attr;
pub mod attrs;
pub mod autodiff;
mod bodies;
pub mod call_key;
pub mod convolution;
pub mod decompose;
pub mod dot;
mod dtype;
pub mod graph;
pub mod indexing;
pub mod infer;
pub mod moves;
mod numerics;
pub mod op;
pub mod ops;
pub mod passes;
pub mod pattern;
pub mod philox;
pub mod pooling;
pub mod random;
pub mod routine;
pub mod row;
pub mod scalar;
pub mod shape;
pub mod slopes;
mod table;
pub mod text;
mod types;
pub mod verify;
pub mod view;
pub mod windows;

pub use attr::{Attr, Attrs, MemoryFormat};
pub use attrs::Attributes;
pub use call_key::CallKey;
pub use dtype::{Category, DType, PromoteOperand, PromoteRank, promote_all};
pub use graph::{Graph, Node, NodeId, NodeKind, SideTable};
pub use numerics::Numerics;
pub use op::Op;
pub use pattern::Pattern;
pub use routine::Routine;
pub use row::{Call, Combine, GatherKind, GraphFn, Meaning, Row, Rule};
pub use scalar::Scalar;
pub use shape::{Layout, Sizes, Strides};
pub use types::TensorType;
pub use verify::verify;
