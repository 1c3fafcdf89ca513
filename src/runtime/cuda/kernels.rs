//! Compiled kernels and products of devices: each source is compiled once and kept in memory.
//!
//! One source serves many shapes, so its key is what the source depends on.

use super::counts;
use super::memo::Memo;
use crate::codegen::Kernel;
use crate::codegen::cuda::epilogue::Epilogue;
use crate::codegen::cuda::product::ProductVariant;
use crate::codegen::cuda::routines::RoutineVariant;
use crate::codegen::cuda::tensor_cores::TensorVariant;
use crate::codegen::cuda::wgmma::WgmmaVariant;
use crate::codegen::cuda::{Origin, Source, Variant, cubin};
use crate::debug::{self, Stage};
use crate::device::Device;
use crate::device::cuda::{self, Function};
use crate::error::Result;
use std::sync::Arc;

/// Most kernels that are kept.
const CAPACITY: usize = 4096;

/// The name of the entries; each module has its own.
const NAME: &str = "opfuse";

/// The entries of a compiled source.
pub(super) type Functions = Vec<Function>;

/// What a source depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum SourceKey {
    /// A kernel, and how its work is distributed to threads.
    Kernel(Kernel, Variant),
    /// A matrix product in the canonical order.
    Product(ProductVariant),
    /// A matrix product on tensor cores, with its epilogue.
    TensorProduct(TensorVariant, Option<Arc<Epilogue>>),
    /// The same by groups of four warps.
    WgmmaProduct(WgmmaVariant, Option<Arc<Epilogue>>),
    /// A routine.
    Routine(RoutineVariant),
}

static KNOWN: Memo<(Device, SourceKey), Arc<Functions>> = Memo::new(CAPACITY);

/// The entries of a kernel or product on a device, compiled now if they are new.
///
/// # Errors
/// If NVRTC rejects the source (the error holds its log), or the device rejects the cubin.
pub(super) fn functions(device: Device, subject: SourceKey) -> Result<Arc<Functions>> {
    KNOWN.get((device, subject), |(device, subject)| compile(*device, subject).map(Arc::new))
}

fn compile(device: Device, subject: &SourceKey) -> Result<Functions> {
    let source = match subject {
        SourceKey::Kernel(kernel, variant) => Source::new(kernel, variant, NAME),
        SourceKey::Product(variant) => Source::of_product(variant, NAME),
        SourceKey::TensorProduct(variant, epilogue) => Source::of_tensor_product(variant, epilogue.as_deref(), NAME),
        SourceKey::WgmmaProduct(variant, epilogue) => Source::of_wgmma_product(variant, epilogue.as_deref(), NAME),
        SourceKey::Routine(variant) => Source::of_routine(variant, NAME),
    };
    debug::dump(Stage::Code, || source.code.clone());
    let (cubin, origin) = cubin(device, &source)?;
    if origin == Origin::Compiled {
        counts::compiled();
    }
    let module = cuda::load(device, &cubin)?;
    let shared_bytes = source.target.shared_bytes();
    source.entries.iter().map(|entry| module.function(entry, shared_bytes)).collect()
}
