#![allow(unsafe_code, reason = "starts products on addresses of a device")]
//! Kernels that are computed where the sums of a product are: the product is never stored.
//!
//! A pair is found when an executable is made for a device (`candidate`). The product's operands are kept until the kernel's turn comes,
//! since only then there is memory for its outputs, and its other operands are known.

use super::candidate::EpilogueCandidate;
use super::counts;
use super::kernels::{self, Functions, SourceKey};
use super::launch::{Alignments, WIDEST, alignment, word};
use super::maps;
use super::product::PlannedProduct;
use crate::codegen::cuda::Step;
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
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A product and the kernel that is its epilogue.
pub(super) struct DeviceEpilogue {
    launch: Arc<Launch>,
    /// The kernel's operand that is the product.
    slot: usize,
    sums: Sums,
    /// Why what was met was nothing for groups of four warps, if anything was.
    declined: OnceLock<Reason>,
    ready: Mutex<ByAlignments>,
}

/// Which kernel's sums the epilogue is computed of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sums {
    /// That of `tensor_cores`.
    Warps,
    /// That of `wgmma`; where it declines, the other.
    Groups,
}

/// What is ready, by the alignments of the kernel's accesses, then of the product's operands.
type ByAlignments = SmallVec<[(Alignments, Arc<PreparedEpilogue>); 1]>;

/// What is launched on memory of some alignments.
pub(super) struct PreparedEpilogue {
    /// The addresses are to be added.
    pub(super) argument: Vec<u64>,
    /// Maps among them, to be made then.
    pub(super) maps: SmallVec<[TileMap; 2]>,
    /// Where the addresses of the kernel's accesses go, and those of the product's operands.
    pub(super) places: SmallVec<[usize; 8]>,
    pub(super) step: Step,
    pub(super) functions: Arc<Functions>,
}

/// What every address of a launch is a multiple of, whatever is known of it.
fn smallest(launch: &Launch) -> Alignments {
    launch.lowered.kernel.dtypes().map(|dtype| dtype.size()).chain([2, 2]).collect()
}

/// The kernel behind a product of that shape as its epilogue, and the alignments of the product's memory.
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
    /// Whether the kernel behind a product of that shape can be its epilogue.
    pub(super) fn is_possible(candidate: &EpilogueCandidate, shape: &ProductShape) -> bool {
        plan(&candidate.launch, candidate.slot, shape, &smallest(&candidate.launch))
            .and_then(|(_, alignments)| TensorPlan::new(shape, alignments))
            .is_ok()
    }

    /// The kernel behind a product, which can be its epilogue.
    pub(super) fn new(candidate: &EpilogueCandidate, sums: Sums) -> DeviceEpilogue {
        let (launch, slot) = (candidate.launch.clone(), candidate.slot);
        DeviceEpilogue { launch, slot, sums, declined: OnceLock::new(), ready: Mutex::default() }
    }

    /// Why groups of four warps were not taken where they were wanted, if anything is known of that by now.
    pub(super) fn declined(&self) -> Option<&Reason> {
        self.declined.get()
    }

    /// The kernel's operand that is the product.
    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// Whether an access of the kernel, operands first, is memory; the product is none.
    pub(super) fn is_memory(&self, access: usize) -> bool {
        let operands = &self.launch.lowered.kernel.operands;
        access != self.slot && operands.get(access).is_none_or(|operand| operand.source == Source::Memory)
    }

    /// Starts both as one on a stream whose handle is `queue`; operands of the kernel that are no memory, and the product, are
    /// `None`.
    ///
    /// # Errors
    /// If the code cannot be made, or the device fails.
    ///
    /// # Safety
    /// Arrays are on the device, those of the kernel's operands maybe single elements of the host, and have the types of the
    /// graph; the caller keeps everybody else from writing to operands, and from using outputs, until this returns.
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
                // SAFETY: the caller's promise.
                argument[place] = argument[place].wrapping_add(unsafe { word(array) });
            }
        }
        maps::make(&mut argument, &ready.maps)?;
        // SAFETY: the words are those of the text's plan, with the addresses of arrays that have the types it was made for; all
        // of it was ordered to this stream, and memory that is given back stays as it is until the stream has come past.
        unsafe { ready.functions[ready.step.entry].start(queue, ready.step.grid, ready.step.block, &argument)? };
        counts::launched(1);
        Ok(())
    }

    /// The shape of the product, whose operands lie so and have that dtype.
    pub(super) fn shape(&self, factors: [&Layout; 2], dtype: DType) -> ProductShape {
        shape(factors, dtype, self.launch.lowered.kernel.operands[self.slot].dtype)
    }

    /// What is launched for a product of that shape, which is always the same, on memory of such alignments: of the kernel's
    /// accesses, operands first, then of the product's operands.
    ///
    /// # Errors
    /// If the code cannot be made.
    pub(super) fn ready(
        &self,
        device: Device,
        shape: &ProductShape,
        alignments: Alignments,
    ) -> Result<Arc<PreparedEpilogue>> {
        let known = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, ready)) = known.iter().find(|(known, _)| *known == alignments) {
            return Ok(ready.clone());
        }
        drop(known);
        let refused = |reason: Reason| Error::invalid("kernel", reason.to_string());
        let (epilogue, of_product) = plan(&self.launch, self.slot, shape, &alignments).map_err(refused)?;
        let PlannedProduct { argument, maps, step, subject } =
            self.planned(&epilogue, shape, of_product).map_err(refused)?;
        let step = step.ok_or_else(|| Error::invalid("kernel", "a product without elements has no epilogue"))?;
        let (layout, n_own) = (epilogue.epilogue.variant.layout, epilogue.argument.len());
        let places = (0..alignments.len() - 2).map(|access| layout.address(access));
        let places = places.chain([n_own + LEFT, n_own + RIGHT]).collect();
        let functions = kernels::functions(device, subject)?;
        let ready = Arc::new(PreparedEpilogue { argument, maps, places, step, functions });
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push((alignments, ready.clone()));
        Ok(ready)
    }

    /// The product with its epilogue, by the kernel that takes it.
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
