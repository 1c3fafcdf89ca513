//! How is a function captured once and run many times?
//!
//! [`compile`] wraps a function. [`pipeline`] runs the passes and plans. [`guard`] says what a program requires of its
//! inputs. [`explain`] reports what was done and why.

pub(crate) mod backoff;
pub(crate) mod calibration;
mod calls;
mod capture;
mod cells;
pub(crate) mod compiled;
mod copies;
mod counted;
pub mod disk;
mod entry;
pub mod explain;
mod failure;
mod gradients;
pub(crate) mod guard;
mod minimize;
mod numbers;
pub(crate) mod options;
pub(crate) mod output_form;
mod panics;
pub(crate) mod passes_page;
pub(crate) mod pipeline;
mod prepare;
mod profiled;
mod program;
pub(crate) mod repro;
mod segments;
mod separation;
mod spans;
mod tuning;

pub use crate::tensor::names::Names;
pub use crate::tensor::structure::{Flat, Parts, TensorStruct};
pub use crate::transforms::function::{Function, Input, Inputs};
pub use calibration::{Calibration, calibrate, calibration};
pub use cells::{Break, Captured, Counts};
pub use compiled::{Compiled, compile, compile_with};
pub use explain::Explain;
pub use options::{BreakPolicy, CompileOptions, Determinism, NewTypes, Stance, StanceGuard, Tuning, stance};
pub use profiled::profile;
pub use repro::Repro;
