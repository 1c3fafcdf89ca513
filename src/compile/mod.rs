//! How is a function captured once and run many times?
//!
//! [`compile`] wraps a function; [`pipeline`] is the one place that names every pass in order; [`guard`] says what an
//! executable takes for granted; [`explain`] says what was done and why.

mod capture;
pub mod compiled;
pub mod explain;
pub mod guard;
pub mod pipeline;
mod program;

pub use crate::dispatch::{Function, Input, Inputs, Outputs};
pub use compiled::{CompileOptions, Compiled, compile, compile_with};
pub use explain::Explain;
