#![allow(unsafe_code, reason = "starts products on addresses of a device")]
//! Kernels that are epilogues of our products, so that the product is never stored.
//!
//! Pairs are found when an executable is built for a device (`candidate`). The product's operands are kept until the
//! kernel's action, because only then its outputs have memory and its other operands are known.

use super::alignments::{Alignments, ByAlignments, WIDEST, alignment};
use super::candidate::EpilogueCandidate;
use super::counts;
use super::kernels::{self, Functions, SourceKey};
use super::launch::word;
use super::maps;
use super::product::PlannedProduct;
use crate::codegen::cuda::EntryLaunch;
use crate::codegen::cuda::epilogue::EpiloguePlan;
use crate::codegen::cuda::product_grid::{LEFT, RIGHT};
use crate::codegen::cuda::tensor_cores::TensorPlan;
use crate::codegen::cuda::wgmma::{TileMap, WgmmaPlan};
use crate::codegen::kernel::Source;
use crate::codegen::product::ProductShape;
use crate::device::cuda::Queue;
use crate::device::{Device, Stream};
use crate::error::{Error, Reason, Result};
use crate::ir::{DType, Layout};
use crate::runtime::Array;
use crate::runtime::launch::Launch;
use crate::runtime::product::shape;
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};

/// A product and the kernel that is its epilogue.
pub(super) struct DeviceEpilogue {
    launch: Arc<Launch>,
    /// The kernel's operand that is the product.
    slot: usize,
    sums: Sums,
    /// Why groups of four warps declined, if they did for some memory.
    declined: OnceLock<Reason>,
    /// By the alignments of the kernel's accesses, then of the product's operands.
    ready: ByAlignments<Arc<PreparedEpilogue>>,
}

/// The kernel that the epilogue belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sums {
    /// That of `tensor_cores`.
    Warps,
    /// That of `wgmma`; where it declines, the other.
    Groups,
}

/// A launch for memory of some alignments.
pub(super) struct PreparedEpilogue {
    /// The argument buffer, without addresses.
    pub(super) argument: Vec<u64>,
    /// Its tensor maps, which are made once the addresses are known.
    pub(super) maps: SmallVec<[TileMap; 2]>,
    /// The words for the addresses of the kernel's accesses, then of the product's operands.
    pub(super) places: SmallVec<[usize; 8]>,
    pub(super) step: EntryLaunch,
    pub(super) functions: Arc<Functions>,
}

/// The alignments that every address of a launch has.
fn smallest(launch: &Launch) -> Alignments {
    launch.lowered.kernel.dtypes().map(|dtype| dtype.size()).chain([2, 2]).collect()
}

/// The candidate of a product of that shape as its epilogue, with the least alignments.
fn plan(
    launch: &Launch,
    slot: usize,
    shape: &ProductShape,
    alignments: &[usize],
) -> std::result::Result<(EpiloguePlan, [usize; 3]), Reason> {
    let (own, operands) = alignments.split_at(alignments.len() - 2);
    let epilogue = EpiloguePlan::new(&launch.lowered.kernel, &launch.lowered.geometry, slot, shape, own)?;
    Ok((epilogue, [operands[0], operands[1], shape.result.size()]))
}

impl DeviceEpilogue {
    /// Whether the candidate of a product of that shape can be its epilogue.
    pub(super) fn is_possible(candidate: &EpilogueCandidate, shape: &ProductShape) -> bool {
        plan(&candidate.launch, candidate.slot, shape, &smallest(&candidate.launch))
            .and_then(|(_, alignments)| TensorPlan::new(shape, alignments))
            .is_ok()
    }

    /// The candidate of a product as its epilogue, which is possible.
    pub(super) fn new(candidate: &EpilogueCandidate, sums: Sums) -> DeviceEpilogue {
        let (launch, slot) = (candidate.launch.clone(), candidate.slot);
        DeviceEpilogue { launch, slot, sums, declined: OnceLock::new(), ready: ByAlignments::default() }
    }

    /// Why groups of four warps declined where they were wanted, once that is known.
    pub(super) fn declined(&self) -> Option<&Reason> {
        self.declined.get()
    }

    /// The kernel's operand that is the product.
    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// Whether an access of the kernel, operands first, is in memory; the product is not.
    pub(super) fn is_memory(&self, access: usize) -> bool {
        let operands = &self.launch.lowered.kernel.operands;
        access != self.slot && operands.get(access).is_none_or(|operand| operand.source == Source::Memory)
    }

    /// Starts both as one on a stream whose handle is `queue`. The product, and operands of the kernel that are not in
    /// memory, are `None`.
    ///
    /// # Errors
    /// If the code cannot be made, or the device fails.
    ///
    /// # Safety
    /// Arrays are on the device, or are single elements of the host as operands of the kernel, and have the types of
    /// the graph. Until this returns, the caller lets nothing else write the operands or use the outputs.
    pub(super) unsafe fn start(
        &self,
        factors: [&Array; 2],
        operands: &[Option<&Array>],
        outputs: &[&Array],
        stream: &Stream,
        queue: &Queue,
    ) -> Result<()> {
        let own = operands.iter().copied().chain(outputs.iter().map(|&output| Some(output)));
        let arrays: SmallVec<[Option<&Array>; 8]> = own.chain(factors.map(Some)).collect();
        for array in arrays.iter().flatten() {
            array.storage().turn_to(stream)?;
        }
        let alignments = arrays.iter().map(|array| array.map_or(WIDEST, alignment)).collect();
        let shape = self.shape(factors.map(Array::layout), factors[0].dtype());
        let ready = self.ready(stream.device(), &shape, alignments)?;
        let mut argument: SmallVec<[u64; 64]> = SmallVec::from_slice(&ready.argument);
        for (access, (&place, array)) in ready.places.iter().zip(&arrays).enumerate() {
            if let Some(array) = array.filter(|_| self.is_memory(access)) {
                // SAFETY: passed on from the caller.
                argument[place] = argument[place].wrapping_add(unsafe { word(array) });
            }
        }
        maps::make(&mut argument, &ready.maps)?;
        // SAFETY: the argument buffer is that of the source's plan, with the addresses of arrays of the types it was
        // made for. All of them were ordered to this stream, and freed memory is not reused before the stream has
        // passed this point.
        unsafe { ready.functions[ready.step.entry].start(queue, ready.step.grid, ready.step.block, &argument)? };
        counts::launched(1);
        Ok(())
    }

    /// The shape of the product, for operands with these layouts and that dtype.
    pub(super) fn shape(&self, factors: [&Layout; 2], dtype: DType) -> ProductShape {
        shape(factors, dtype, self.launch.lowered.kernel.operands[self.slot].dtype)
    }

    /// Prepares the launch for a product of that shape, which is always the same, and for memory of these alignments:
    /// of the kernel's accesses, operands first, then of the product's operands.
    ///
    /// # Errors
    /// If the code cannot be made.
    pub(super) fn ready(
        &self,
        device: Device,
        shape: &ProductShape,
        alignments: Alignments,
    ) -> Result<Arc<PreparedEpilogue>> {
        self.ready.get_or_make(alignments, |alignments| self.prepared(device, shape, alignments).map(Arc::new))
    }

    fn prepared(&self, device: Device, shape: &ProductShape, alignments: &Alignments) -> Result<PreparedEpilogue> {
        let refused = |reason: Reason| Error::invalid("kernel", reason.to_string());
        let (epilogue, of_product) = plan(&self.launch, self.slot, shape, alignments).map_err(refused)?;
        let PlannedProduct { argument, maps, step, subject } =
            self.planned(&epilogue, shape, of_product).map_err(refused)?;
        let step = step.ok_or_else(|| Error::invalid("kernel", "a product without elements has no epilogue"))?;
        let (layout, n_own) = (epilogue.epilogue.variant.layout, epilogue.argument.len());
        let places = (0..alignments.len() - 2).map(|access| layout.address(access));
        let places = places.chain([n_own + LEFT, n_own + RIGHT]).collect();
        let functions = kernels::functions(device, subject)?;
        Ok(PreparedEpilogue { argument, maps, places, step, functions })
    }

    /// The product with its epilogue, by the kernel that supports it.
    fn planned(
        &self,
        epilogue: &EpiloguePlan,
        shape: &ProductShape,
        alignments: [usize; 3],
    ) -> std::result::Result<PlannedProduct, Reason> {
        let end = Some(Arc::new(epilogue.epilogue.clone()));
        if self.sums == Sums::Groups {
            match WgmmaPlan::new(shape, alignments).and_then(|plan| plan.with_epilogue(epilogue)) {
                Ok(WgmmaPlan { variant, argument, maps, step }) => {
                    return Ok(PlannedProduct { argument, maps, step, subject: SourceKey::WgmmaProduct(variant, end) });
                }
                Err(reason) => drop(self.declined.get_or_init(|| reason)),
            }
        }
        let TensorPlan { variant, argument, step } = TensorPlan::new(shape, alignments)?.with_epilogue(epilogue);
        Ok(PlannedProduct { argument, maps: SmallVec::new(), step, subject: SourceKey::TensorProduct(variant, end) })
    }
}
