//! What a number means: scalar types, primitives, and bodies made of them.
//!
//! A *prim* is closed and has IEEE meaning; a *func* (`exp`, `tanh`, …) is a body of prims written once in
//! [`math`]; a *body* is a short straight list of both. Every tier evaluates the same list in the same order,
//! so all tiers give the same bits. Nothing here knows about arrays.

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
