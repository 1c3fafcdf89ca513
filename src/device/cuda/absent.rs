//! The interface of this folder in a build without CUDA: every call is an error, and no value of its types exists.

use super::tiles::{MAP_WORDS, Tiles};
use super::{Addresses, Problem, ToError, runtime};
use crate::device::{Device, Stream};
use crate::error::{Error, Result};
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

/// The architecture of a device; there is none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Architecture(Infallible);

impl Architecture {
    pub(crate) fn has_tensor_cores(self) -> bool {
        match self.0 {}
    }

    pub(crate) fn has_wgmma(self) -> bool {
        match self.0 {}
    }

    pub(crate) fn most_workspace(self) -> usize {
        match self.0 {}
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

/// The GPUs; there are none.
pub(crate) struct Machine(Infallible);
/// Loaded code; there is none.
pub(crate) struct Module(Infallible);
/// An entry of it; there is none.
pub(crate) struct Function(Infallible);
/// A stream; there is none.
pub(crate) struct Queue(Infallible);
/// A CUDA graph; there is none.
pub(crate) struct Graph(Infallible);

/// A matrix product with its algorithm; there is none.
pub(crate) struct Matmul(Infallible);

/// A launch of a function with its argument buffer.
pub(crate) struct Launch<'a> {
    pub(crate) function: &'a Function,
    pub(crate) grid: u32,
    pub(crate) block: [u32; 2],
    pub(crate) argument: &'a [u64],
}

fn absent<T>() -> Result<T> {
    match runtime() {
        Ok(_) => Err(Error::Internal { message: "a build without CUDA has a runtime for it".into() }),
        Err(error) => Err(error),
    }
}

pub(crate) fn machine() -> Result<Arc<Machine>> {
    absent()
}

pub(crate) fn architecture(_: Device) -> Result<Architecture> {
    absent()
}

pub(crate) fn compiler_version() -> Result<(u32, u32)> {
    absent()
}

pub(crate) fn compile(_: &str, _: &[String]) -> Result<Vec<u8>> {
    absent()
}

pub(crate) fn load(_: Device, _: &[u8]) -> Result<Arc<Module>> {
    absent()
}

pub(crate) fn has_graphs() -> bool {
    false
}

pub(crate) fn has_maps() -> bool {
    false
}

pub(crate) fn map_of(_: &Tiles, _: u64) -> Result<[u64; MAP_WORDS]> {
    absent()
}

pub(crate) fn find_cublaslt() -> std::result::Result<(), String> {
    Err("opfuse was built without its feature `cuda`".into())
}

impl Matmul {
    pub(crate) fn new(_: Device, _: Problem, _: [usize; 3], _: usize) -> Result<Option<Matmul>> {
        absent()
    }

    pub(crate) fn workspace(&self) -> usize {
        match self.0 {}
    }

    #[allow(unsafe_code, reason = "has the signature of the real one")]
    pub(crate) unsafe fn start(&self, _: &Queue, _: &Addresses) -> Result<()> {
        match self.0 {}
    }
}

#[allow(unsafe_code, reason = "has the signatures of the real one")]
impl Graph {
    pub(crate) unsafe fn new(launches: &[Launch<'_>]) -> Result<Graph> {
        let Some(Launch { function, grid: _, block: _, argument: _ }) = launches.first() else { return absent() };
        match function.0 {}
    }

    pub(crate) unsafe fn change(&mut self, _: usize, _: &Launch<'_>) -> Result<()> {
        match self.0 {}
    }

    pub(crate) unsafe fn start(&mut self, _: &Queue) -> Result<()> {
        match self.0 {}
    }
}

impl Machine {
    pub(crate) fn queue(&self, _: &Stream) -> Result<Arc<Queue>> {
        match self.0 {}
    }
}

impl Queue {
    pub(crate) fn check(&self) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn fault_record(&self, _: ToError) -> Result<u64> {
        match self.0 {}
    }
}

impl Function {
    #[allow(unsafe_code, reason = "has the signature of the real one")]
    pub(crate) unsafe fn start(&self, _: &Queue, _: u32, _: [u32; 2], _: &[u64]) -> Result<()> {
        match self.0 {}
    }
}

impl Module {
    pub(crate) fn function(self: &Arc<Module>, _: &str, _: u32) -> Result<Function> {
        match self.0 {}
    }
}
