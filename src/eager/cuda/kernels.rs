//! Code of kernels on devices: compiled once per text, kept in memory.
//!
//! A text serves many shapes, so it is found by kernel and variant. Concurrent first launches compile it once. What fails
//! is not kept: the next launch tries again. The cache is bounded; what was used longest ago goes first.

use super::counts;
use crate::codegen::Kernel;
use crate::codegen::cuda::{Origin, Source, Variant, cubin, product};
use crate::debug::{self, Stage};
use crate::device::Device;
use crate::device::cuda::{self, Function};
use crate::error::{Error, Result};
use crate::ir::DType;
use indexmap::IndexMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Most kernels that are kept.
const CAPACITY: usize = 4096;

/// Name of the entries; a text has one kernel.
const NAME: &str = "opfuse";

/// The entries of a kernel's code.
pub(super) type Functions = Vec<Function>;

/// What code is for.
#[derive(PartialEq, Eq, Hash)]
enum Subject {
    Kernel(Box<(Kernel, Variant)>),
    Products(DType),
}

type Key = (Device, Subject);
/// Locked while the code is made.
type Place = Mutex<Option<Arc<Functions>>>;

static KNOWN: Mutex<Option<IndexMap<Key, Arc<Place>>>> = Mutex::new(None);

/// The code of a kernel on a device, compiled now if it is new.
///
/// # Errors
/// If NVRTC does not compile it (the error holds its log), or the device does not take it.
pub(super) fn functions(device: Device, kernel: &Kernel, variant: &Variant) -> Result<Arc<Functions>> {
    let subject = Subject::Kernel(Box::new((kernel.clone(), variant.clone())));
    known((device, subject), || Ok(Source::new(kernel, variant, NAME)))
}

/// The code of matrix products of a dtype on a device, compiled now if it is new.
///
/// # Errors
/// As [`functions`].
pub(super) fn products(device: Device, dtype: DType) -> Result<Arc<Functions>> {
    let none = || Error::unsupported("mm", dtype, "a number", "convert first");
    known((device, Subject::Products(dtype)), || product::source(dtype, NAME).ok_or_else(none))
}

fn known(key: Key, source: impl FnOnce() -> Result<Source>) -> Result<Arc<Functions>> {
    let device = key.0;
    let place = place(key);
    let mut made = place.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(functions) = &*made {
        return Ok(functions.clone());
    }
    let functions = Arc::new(compile(device, &source()?)?);
    *made = Some(functions.clone());
    Ok(functions)
}

fn place(key: Key) -> Arc<Place> {
    let mut guard = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = guard.get_or_insert_with(IndexMap::new);
    if let Some(index) = known.get_index_of(&key) {
        // What was used last is last.
        let last = known.len() - 1;
        known.move_index(index, last);
        return known[last].clone();
    }
    let place = Arc::new(Place::default());
    if known.len() >= CAPACITY {
        known.drain(..CAPACITY / 8);
    }
    known.insert(key, place.clone());
    place
}

fn compile(device: Device, source: &Source) -> Result<Functions> {
    debug::dump(Stage::Code, || source.text.clone());
    let (cubin, origin) = cubin(device, source)?;
    if origin == Origin::Compiled {
        counts::compiled();
    }
    let module = cuda::load(device, &cubin)?;
    source.entries.iter().map(|entry| module.function(entry)).collect()
}
