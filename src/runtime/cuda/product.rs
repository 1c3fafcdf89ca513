#![allow(unsafe_code, reason = "starts products on addresses of a device")]
//! Matrix products on a device: each is chosen, then planned, compiled and started like kernels.
//!
//! `choice` is the policy. Everything but the addresses is planned once per alignment of the memory, of which there is
//! mostly one.

use super::alignments::{ByAlignments, ProductAlignments, alignment_of};
use super::choice::Choice;
use super::counts;
use super::kernels::{self, Functions, SourceKey};
use super::library::LibraryProduct;
use super::maps;
use crate::codegen::cuda::EntryLaunch;
use crate::codegen::cuda::product::ProductPlan;
use crate::codegen::cuda::product_grid::{LEFT, RESULT, RIGHT};
use crate::codegen::cuda::tensor_cores::TensorPlan;
use crate::codegen::cuda::wgmma::{TileMap, WgmmaPlan};
use crate::codegen::product::ProductShape;
use crate::device::cuda::{self, Matmul};
use crate::device::{Device, Stream};
use crate::error::{Reason, Result};
use crate::ir::TensorType;
use crate::runtime::Array;
use crate::runtime::product::shape;
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};

/// What was prepared for some alignments, or the reason why there is no code.
type Started = std::result::Result<Arc<ProductLaunch>, Reason>;

/// A product of operands of two types on a device.
pub(super) struct DeviceProduct {
    choice: Choice,
    how: Implementation,
    /// Why the kernel of the choice declined, if it did for some memory.
    declined: OnceLock<Reason>,
}

/// What computes a product.
enum Implementation {
    Own(ByAlignments<Started, ProductAlignments>),
    CublasLt(LibraryProduct),
}

/// What is started, without addresses.
#[derive(Clone)]
pub(super) enum PreparedProduct {
    /// A launch; addresses are added at [`PLACES`].
    Launch(Arc<ProductLaunch>),
    CublasLt(Arc<Matmul>),
}

/// A launch without addresses.
pub(super) struct ProductLaunch {
    pub(super) argument: Vec<u64>,
    /// Its tensor maps, which are made once the addresses are known.
    pub(super) maps: SmallVec<[TileMap; 2]>,
    /// `None` if the result has no elements.
    pub(super) launch: Option<(EntryLaunch, Arc<Functions>)>,
}

/// The words for the addresses of left operand, right operand and result.
pub(super) const PLACES: [usize; 3] = [LEFT, RIGHT, RESULT];

impl DeviceProduct {
    /// A product by one of our kernels, which `choice` names. It is planned and compiled when it first runs.
    pub(super) fn own(choice: Choice) -> DeviceProduct {
        DeviceProduct { choice, how: Implementation::Own(ByAlignments::default()), declined: OnceLock::new() }
    }

    /// A product by cublasLt.
    pub(super) fn by_cublaslt(choice: Choice, product: LibraryProduct) -> DeviceProduct {
        DeviceProduct { choice, how: Implementation::CublasLt(product), declined: OnceLock::new() }
    }

    /// Whether cublasLt computes it.
    pub(super) fn is_by_cublaslt(&self) -> bool {
        matches!(self.how, Implementation::CublasLt(_))
    }

    /// How it is computed, as far as is known by now.
    pub(super) fn choice(&self) -> Choice {
        match (&self.choice, self.declined.get()) {
            (Choice::Wgmma(dtype, _), Some(reason)) => Choice::Wgmma(*dtype, Some(reason.clone())),
            (choice, _) => choice.clone(),
        }
    }

    /// Computes `left @ right` of 2-d operands, or of batches of them, into new memory of type `ty`, on the stream.
    /// Returns the reason if there is no code for it.
    ///
    /// # Errors
    /// If there is not enough memory, the code cannot be made, or the device fails.
    ///
    /// # Safety
    /// The operands are on the stream's device, which is always the same, and have the types of the graph. Until this
    /// returns, the caller lets nothing write them.
    pub(super) unsafe fn run(
        &self,
        left: &Array,
        right: &Array,
        ty: &TensorType,
        stream: &Stream,
    ) -> Result<std::result::Result<Array, Reason>> {
        let result = Array::new(stream.device(), ty)?;
        let queue = cuda::machine()?.queue(stream)?;
        let launches = match &self.how {
            Implementation::Own(launches) => launches,
            Implementation::CublasLt(product) => {
                // SAFETY: passed on from the caller; the result is new, and only this code has it.
                unsafe { product.start([left, right], None, &result, stream, &queue)? };
                return Ok(Ok(result));
            }
        };
        let arrays = [left, right, &result];
        for array in arrays {
            array.storage().turn_to(stream)?;
        }
        let addresses = arrays.map(|array| array.ptr().addr() as u64);
        let shape = shape([left.layout(), right.layout()], left.dtype(), ty.dtype);
        let ready = match self.ready_launch(launches, stream.device(), addresses.map(alignment_of), &shape)? {
            Ok(ready) => ready,
            Err(reason) => return Ok(Err(reason)),
        };
        let Some((step, functions)) = &ready.launch else { return Ok(Ok(result)) };
        let mut argument: SmallVec<[u64; 16]> = SmallVec::from_slice(&ready.argument);
        for (place, address) in PLACES.into_iter().zip(addresses) {
            argument[place] = argument[place].wrapping_add(address);
        }
        maps::make(&mut argument, &ready.maps)?;
        // SAFETY: the argument buffer is that of the plan, made for the shapes and strides of these arrays, whose
        // elements are inside their storages. Operands were ordered to this stream, nothing writes to them, and only
        // this code has the result. Freed memory is not reused before the stream has passed this point.
        unsafe { functions[step.entry].start(&queue, step.grid, step.block, &argument)? };
        counts::launched(1);
        Ok(Ok(result))
    }

    /// Prepares the product for these alignments, or returns the reason why there is no code. The shape is always the
    /// same.
    ///
    /// # Errors
    /// If code cannot be made, or a call of cublasLt fails.
    pub(super) fn ready(
        &self,
        device: Device,
        alignments: ProductAlignments,
        shape: &ProductShape,
    ) -> Result<std::result::Result<PreparedProduct, Reason>> {
        match &self.how {
            Implementation::Own(launches) => {
                Ok(self.ready_launch(launches, device, alignments, shape)?.map(PreparedProduct::Launch))
            }
            Implementation::CublasLt(product) => Ok(Ok(PreparedProduct::CublasLt(product.ready(alignments)?))),
        }
    }

    fn ready_launch(
        &self,
        ready: &ByAlignments<Started, ProductAlignments>,
        device: Device,
        alignments: ProductAlignments,
        shape: &ProductShape,
    ) -> Result<Started> {
        ready.get_or_make(alignments, |&alignments| match self.plan(shape, alignments) {
            Err(reason) => Ok(Err(reason)),
            Ok(PlannedProduct { argument, maps, step, subject }) => {
                let launch = |step| kernels::functions(device, subject).map(|functions| (step, functions));
                Ok(Ok(Arc::new(ProductLaunch { argument, maps, launch: step.map(launch).transpose()? })))
            }
        })
    }

    fn plan(&self, shape: &ProductShape, alignments: ProductAlignments) -> std::result::Result<PlannedProduct, Reason> {
        match &self.choice {
            Choice::Canonical(_) => ProductPlan::new(shape).map(|ProductPlan { variant, argument, step }| {
                PlannedProduct { argument, maps: SmallVec::new(), step, subject: SourceKey::Product(variant) }
            }),
            Choice::Wgmma(..) => match WgmmaPlan::new(shape, alignments) {
                Ok(WgmmaPlan { variant, argument, maps, step }) => {
                    Ok(PlannedProduct { argument, maps, step, subject: SourceKey::WgmmaProduct(variant, None) })
                }
                Err(reason) => {
                    self.declined.get_or_init(|| reason);
                    on_tensor_cores(shape, alignments)
                }
            },
            Choice::TensorCores(..) | Choice::CublasLt(..) | Choice::Epilogue(_) | Choice::CublasLtEpilogue => {
                on_tensor_cores(shape, alignments)
            }
        }
    }
}

/// A launch that is planned, but not compiled.
pub(super) struct PlannedProduct {
    pub(super) argument: Vec<u64>,
    pub(super) maps: SmallVec<[TileMap; 2]>,
    pub(super) step: Option<EntryLaunch>,
    pub(super) subject: SourceKey,
}

fn on_tensor_cores(shape: &ProductShape, alignments: ProductAlignments) -> std::result::Result<PlannedProduct, Reason> {
    let TensorPlan { variant, argument, step } = TensorPlan::new(shape, alignments)?;
    Ok(PlannedProduct { argument, maps: SmallVec::new(), step, subject: SourceKey::TensorProduct(variant, None) })
}
