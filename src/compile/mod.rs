//! How is a function captured once and run many times?
//!
//! [`compile`] wraps a function; [`pipeline`] runs the passes and plans; [`guard`] says what an
//! executable takes for granted; [`explain`] says what was done and why.

mod backoff;
pub mod calibration;
mod capture;
mod cells;
pub mod compiled;
mod entry;
pub mod explain;
pub mod guard;
mod lru;
mod options;
mod panics;
pub mod pipeline;
mod program;
mod segments;
mod separation;
mod tuning;

pub use crate::tensor::structure::{Flat, Parts, TensorStruct};
pub use crate::transforms::function::{Function, Input, Inputs};
pub use backoff::AT_ONCE;
pub use calibration::{Calibration, calibrate, calibration};
pub use cells::{Break, Counts};
pub use compiled::{Compiled, compile, compile_with};
pub use explain::Explain;
pub use options::{BreakPolicy, CAPACITY, CompileOptions, Determinism, NewTypes, Stance, StanceGuard, Tuning, stance};
