//! NVIDIA GPUs: a [`Runtime`](super::Runtime) on the CUDA driver, which is looked for when a CUDA device is first used.
//!
//! | file | question |
//! |---|---|
//! | `loader` | where are the driver, NVRTC and cublasLt? |
//! | `driver` | how are contexts, streams, events, memory and modules used safely? |
//! | `graph` | how do many launches start with one call? |
//! | `compiler` | how does source become a cubin? |
//! | `problem` | how is a matrix product described to cublasLt? |
//! | `cublaslt` | how does cublasLt compute one? |
//! | `machine` | the runtime: devices, their streams, points and memory |
//! | `tensor_map` | how does a device copy boxes of an array by itself? |
//! | `tiles` | how is such an array described? |
//! | `staging` | how do bytes get to a device and back? |
//! | `faults` | how are faults of kernels reported? |
//!
//! What always holds: building needs nothing of CUDA, and nothing panics where a library is missing. Every failure is
//! an error that names the call and the device. Without the feature `cuda`, `absent` has the same interface, and every
//! call is an error.
//!
//! Not here: what is computed. Kernels are source and argument buffers, which the floors above bring.

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
pub(crate) use problem::{Activation, Addresses, LtEpilogue, Matrix, Order, Problem};
#[cfg(feature = "cuda")]
pub(crate) use tensor_map::{has_maps, map_of};

use super::runtime::Runtime;
use crate::error::{Error, Result};
use std::sync::Arc;

/// The runtime of the GPUs of this computer.
///
/// # Errors
/// If there is no driver: what was looked for and where. The same at every call.
#[cfg(feature = "cuda")]
pub(super) fn runtime() -> Result<Arc<dyn Runtime>> {
    machine().map(|machine| machine as Arc<dyn Runtime>)
}

/// The runtime of the GPUs of this computer.
///
/// # Errors
/// Always: this build has none.
#[cfg(not(feature = "cuda"))]
pub(super) fn runtime() -> Result<Arc<dyn Runtime>> {
    Err(no_device("opfuse was built without its feature `cuda`", "build it with that feature, or use the cpu"))
}

/// A fault that a kernel found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// The index of the device.
    pub(crate) device: u16,
    /// The name of the launch, as the launch gave it; below 2^56, and not 0.
    pub(crate) site: u64,
    /// The number of the operand, or of the dimension; [`DIVISION`] for a division by zero.
    pub(crate) position: usize,
    /// The index that was out of range,
    pub(crate) index: i64,
    /// for a dimension of this size.
    pub(crate) size: u64,
}

/// The position of a division by zero.
pub(crate) const DIVISION: usize = 0xff;

/// Turns a fault into an error.
pub(crate) type ToError = fn(&Found) -> Error;

/// An error for a missing device or library.
fn no_device(what: impl Into<String>, hint: &str) -> Error {
    Error::Device { op: "cuda".into(), what: what.into(), hint: hint.into() }
}
