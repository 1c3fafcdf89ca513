//! How is a function captured once and run many times?
//!
//! [`compile`] wraps a function; [`pipeline`] runs the passes and plans; [`guard`] says what an
//! executable takes for granted; [`explain`] says what was done and why.

pub mod calibration;
mod capture;
mod cells;
pub mod compiled;
pub mod explain;
pub mod guard;
mod lru;
mod options;
mod patience;
pub mod pipeline;
mod program;
mod segments;
mod separation;
mod tuning;

pub use crate::dispatch::{Flat, Function, Input, Inputs, Parts, TensorStruct};
pub use calibration::{Calibration, calibrate, calibration};
pub use cells::{Break, CAPACITY, Counts};
pub use compiled::{Compiled, compile, compile_with};
pub use explain::Explain;
pub use options::{BreakPolicy, CompileOptions, Determinism, NewTypes, Stance, StanceGuard, Tuning, stance};
pub use patience::AT_ONCE;
