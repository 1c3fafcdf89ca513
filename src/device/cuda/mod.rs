//! NVIDIA GPUs: a [`Runtime`](super::Runtime) over the driver, found when a CUDA device is first asked for.
//!
//! | file | question |
//! |---|---|
//! | `loader` | where are the driver, NVRTC and cublasLt? |
//! | `driver` | how are contexts, streams, events, memory and modules used safely? |
//! | `graph` | how do many launches start with one call? |
//! | `compiler` | how does text become a cubin? |
//! | `problem` | what is a matrix product to cublasLt? |
//! | `cublaslt` | how does cublasLt compute one? |
//! | `machine` | the runtime: devices, their streams, points and memory |
//! | `tensor_map` | how does a device get to know an array of which it copies boxes? |
//! | `tiles` | what is such an array to it? |
//! | `staging` | how do bytes get to a device and back? |
//! | `faults` | how is told what kernels find wrong? |
//!
//! What always holds: nothing of CUDA is needed to build, and nothing panics where a library is missing; every failure is
//! an error that names the call and the device. Without the feature `cuda`, `absent` has the same doors and says so.
//!
//! Not here: what is computed. Kernels are text and words, which the floors above bring.

#[cfg(not(feature = "cuda"))]
mod absent;
#[cfg(feature = "cuda")]
mod compiler;
#[cfg(feature = "cuda")]
mod cublaslt;
#[cfg(feature = "cuda")]
mod driver;
#[cfg(feature = "cuda")]
mod faults;
#[cfg(feature = "cuda")]
mod graph;
#[cfg(feature = "cuda")]
mod loader;
#[cfg(feature = "cuda")]
mod machine;
mod problem;
#[cfg(feature = "cuda")]
mod staging;
#[cfg(feature = "cuda")]
mod tensor_map;
pub(crate) mod tiles;

#[cfg(not(feature = "cuda"))]
pub(crate) use absent::{
    Architecture, Function, Graph, Launch, Matmul, Queue, architecture, compile, compiler_version, find_cublaslt,
    has_graphs, has_maps, load, machine, map_of,
};
#[cfg(feature = "cuda")]
pub(crate) use compiler::{compile, compiler_version};
#[cfg(feature = "cuda")]
pub(crate) use cublaslt::{Matmul, find_cublaslt};
#[cfg(feature = "cuda")]
pub(crate) use driver::{Function, Queue};
#[cfg(feature = "cuda")]
pub(crate) use graph::{Graph, Launch, has_graphs};
#[cfg(feature = "cuda")]
pub(crate) use machine::{Architecture, architecture, load, machine};
pub(crate) use problem::{Activation, Addresses, Matrix, Order, Problem, Tail};
#[cfg(feature = "cuda")]
pub(crate) use tensor_map::{has_maps, map_of};

use super::runtime::Runtime;
use crate::error::{Error, Result};
use std::sync::Arc;

/// The runtime of the GPUs of this machine.
///
/// # Errors
/// What was looked for and where, if there is no driver; the same at every call.
#[cfg(feature = "cuda")]
pub(super) fn runtime() -> Result<Arc<dyn Runtime>> {
    machine().map(|machine| machine as Arc<dyn Runtime>)
}

/// The runtime of the GPUs of this machine.
///
/// # Errors
/// Always: this build has none.
#[cfg(not(feature = "cuda"))]
pub(super) fn runtime() -> Result<Arc<dyn Runtime>> {
    Err(no_device("opfuse was built without its feature `cuda`", "build it with that feature, or use the cpu"))
}

/// What a kernel found wrong with its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// The number of the device.
    pub(crate) device: u16,
    /// What the launch said of itself; below 2^56, and not 0.
    pub(crate) site: u64,
    /// Which of its operands; [`NO_PLACE`] if it divided by zero.
    pub(crate) place: usize,
    /// The index that was outside,
    pub(crate) index: i64,
    /// of a dimension of this size.
    pub(crate) size: u64,
}

/// In the place of an operand: a divisor.
pub(crate) const NO_PLACE: usize = 0xff;

/// What is said about it.
pub(crate) type Tell = fn(&Found) -> Error;

/// The error of whoever needs what is not there.
fn no_device(what: impl Into<String>, hint: &str) -> Error {
    Error::Device { op: "cuda".into(), what: what.into(), hint: hint.into() }
}
