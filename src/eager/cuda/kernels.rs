//! Code of kernels and products on devices: compiled once per text, kept in memory.
//!
//! A text serves many shapes, so it is found by what it depends on. Concurrent first launches compile it once. What fails
//! is not kept: the next launch tries again. The cache is bounded; what was used longest ago goes first.

use super::counts;
use crate::codegen::Kernel;
use crate::codegen::cuda::epilogue::Epilogue;
use crate::codegen::cuda::product::ProductVariant;
use crate::codegen::cuda::routines::RoutineVariant;
use crate::codegen::cuda::tensor_cores::TensorVariant;
use crate::codegen::cuda::{Origin, Source, Variant, cubin};
use crate::debug::{self, Stage};
use crate::device::Device;
use crate::device::cuda::{self, Function};
use crate::error::Result;
use indexmap::IndexMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Most kernels that are kept.
const CAPACITY: usize = 4096;

/// Name of the entries; a text has one kernel.
const NAME: &str = "opfuse";

/// The entries of a kernel's code.
pub(super) type Functions = Vec<Function>;

/// What a text depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// A kernel and how its work is given to threads.
    Kernel(Kernel, Variant),
    /// A matrix product in the canonical order.
    Product(ProductVariant),
    /// A matrix product on tensor cores, and what follows it.
    TensorProduct(TensorVariant, Option<Arc<Epilogue>>),
    /// A procedure on whole arrays.
    Routine(RoutineVariant),
}

type Key = (Device, Subject);
/// Locked while the code is made.
type Place = Mutex<Option<Arc<Functions>>>;

static KNOWN: Mutex<Option<IndexMap<Key, Arc<Place>>>> = Mutex::new(None);

/// The code of a kernel or product on a device, compiled now if it is new.
///
/// # Errors
/// If NVRTC does not compile it (the error holds its log), or the device does not take it.
pub(super) fn functions(device: Device, subject: Subject) -> Result<Arc<Functions>> {
    let place = place((device, subject.clone()));
    let mut made = place.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(functions) = &*made {
        return Ok(functions.clone());
    }
    let functions = Arc::new(compile(device, &subject)?);
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

fn compile(device: Device, subject: &Subject) -> Result<Functions> {
    let source = match subject {
        Subject::Kernel(kernel, variant) => Source::new(kernel, variant, NAME),
        Subject::Product(variant) => Source::of_product(variant, NAME),
        Subject::TensorProduct(variant, epilogue) => Source::of_tensor_product(variant, epilogue.as_deref(), NAME),
        Subject::Routine(variant) => Source::of_routine(variant, NAME),
    };
    debug::dump(Stage::Code, || source.text.clone());
    let (cubin, origin) = cubin(device, &source)?;
    if origin == Origin::Compiled {
        counts::compiled();
    }
    let module = cuda::load(device, &cubin)?;
    source.entries.iter().map(|entry| module.function(entry)).collect()
}
