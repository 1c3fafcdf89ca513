//! What is a program? Dtypes, shapes, scalar bodies, the op table, graphs, passes.
//!
//! Everything here is pure: no device, no memory, no thread, no user tensor. [`Op`] names the rows of the op table, and
//! a [`Row`] declares an op. A [`Graph`] is a traced program. Start reading with the table, `ops.rs`. `scalar` has what
//! an op computes per element.

pub(crate) mod attr;
pub(crate) mod attrs;
pub(crate) mod autodiff;
mod bodies;
pub(crate) mod call_key;
pub(crate) mod convolution;
pub(crate) mod decompose;
pub(crate) mod default_float;
pub(crate) mod diff;
pub(crate) mod dot;
pub(crate) mod dtype;
pub(crate) mod entity;
pub(crate) mod graph;
pub(crate) mod indexing;
pub(crate) mod infer;
pub(crate) mod memory_formats;
pub(crate) mod moves;
mod numerics;
pub(crate) mod op;
pub(crate) mod ops;
pub(crate) mod packed;
pub(crate) mod passes;
pub(crate) mod pattern;
pub(crate) mod philox;
pub(crate) mod pooling;
pub(crate) mod random;
pub(crate) mod routine;
pub(crate) mod row;
pub(crate) mod scalar;
pub(crate) mod shape;
pub(crate) mod slopes;
mod table;
pub(crate) mod text;
mod transposed_convolution;
mod types;
pub(crate) mod verify;
pub(crate) mod view;
pub(crate) mod window_product;
pub(crate) mod windows;

pub use attr::{Attr, Attrs, MemoryFormat};
pub(crate) use call_key::CallKey;
pub use dtype::DType;
pub(crate) use dtype::{Category, promote_all};
pub use entity::{EntityId, SideTable};
pub use graph::{Graph, Node, NodeId, NodeKind};
pub use numerics::Numerics;
pub use op::Op;
pub use pattern::Pattern;
pub(crate) use routine::{Fourier, MatrixWork, Routine};
pub(crate) use row::{Combine, GatherKind, GraphFn, Rule};
pub use row::{Meaning, Row};
pub use scalar::Scalar;
pub use shape::{Layout, Sizes, Strides};
pub use types::TensorType;
pub use verify::verify;
pub(crate) use window_product::{FEW_ROWS, channels_are_last};
