//! Loops and branches over tensors, as functions of functions.
//!
//! The body of a loop, or of a branch, is a function of structures of tensors. It is traced once, by the types of what
//! it is given, and compiled once ([`subprogram`]). The loop is then one call that runs the compiled body in each step
//! ([`repeated`]). Eagerly it is made at once. A trace records it as a call that the graph does not contain, so in a
//! compiled function it is one step between others. What the body captures becomes an operand.
//!
//! What always holds: values have the bits of the loop as it is written. A body that does more than compute runs step
//! by step, as it is written, and `OPFUSE_EXPLAIN=1` prints why.

mod carry;
mod cond;
mod repeated;
mod scan;
mod scan_backward;
mod subprogram;
mod traced;
mod while_loop;

pub use cond::cond;
pub use scan::{fori_loop, scan, scan_times};
pub use while_loop::while_loop;
