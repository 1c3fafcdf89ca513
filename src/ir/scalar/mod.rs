//! Scalar types, primitives, and bodies made of them: what an op computes per element.
//!
//! A *prim* is one of a closed set of operations with IEEE meaning. A *func* (`exp`, `tanh`, …) is a body of prims,
//! written once in [`math`]. A *body* is straight-line code of both. Every tier evaluates the same body in the same
//! order, so all tiers give the same bits. Nothing here knows about arrays.

pub mod body;
pub mod eval;
pub mod func;
pub mod half_bits;
pub mod math;
pub mod number;
pub mod prim;
pub mod sym;

pub use body::{Body, Inst, Kind, Reg};
pub use func::Func;
pub use prim::{Lit, NanPayload, Prim, Scalar, Ty};
pub use sym::{Recorder, Sym};
