#![allow(unsafe_code, reason = "starts products on addresses of a device")]
//! Matrix products on a device: how each is computed, then planned, compiled and started like kernels.
//!
//! [`choose`] is the whole policy. What a launch needs besides addresses is planned once per alignment of its memory, which is
//! mostly one and the same.

use super::counts;
use super::kernels::{self, Functions, Subject};
use super::launch::alignment_of;
use crate::codegen::cuda::Step;
use crate::codegen::cuda::product::ProductPlan;
use crate::codegen::cuda::product_grid::{LEFT, RESULT, RIGHT};
use crate::codegen::cuda::tensor_cores::{self, TensorPlan};
use crate::codegen::product::ProductShape;
use crate::device::{Device, Stream, cuda};
use crate::eager::Array;
use crate::eager::product::shape;
use crate::error::{Reason, Result};
use crate::ir::{DType, Numerics, TensorType};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError};

/// How a product, or what follows it, is computed on a device, as far as [`Numerics`] have a say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// In the canonical order, which has the bits of the CPU; why nothing faster was taken, where there is anything.
    Canonical(Option<Reason>),
    /// On tensor cores, whose sums of products of this dtype have bits of their own.
    TensorCores(DType),
    /// What follows a product: where its sums are, so that the product is not stored.
    Epilogue,
}

impl Choice {
    /// Why nothing faster was taken, where there is anything.
    pub fn declined(&self) -> Option<&Reason> {
        match self {
            Choice::Canonical(reason) => reason.as_ref(),
            Choice::TensorCores(_) | Choice::Epilogue => None,
        }
    }

    /// What is otherwise than on the CPU.
    pub fn remark(&self) -> Option<String> {
        match self {
            Choice::Canonical(_) => None,
            Choice::TensorCores(dtype) => {
                Some(format!("tensor cores sum products of {dtype} in f32, in an order of their own"))
            }
            Choice::Epilogue => {
                Some("it is computed where the sums of the matrix product are, which is not stored".into())
            }
        }
    }
}

/// How products of a dtype are computed: tensor cores sum 16-bit floats many times as fast, where their bits are allowed.
fn choose(device: Device, numerics: Numerics, dtype: DType) -> Choice {
    if !tensor_cores::takes(dtype) {
        return Choice::Canonical(None);
    }
    let has_tensor_cores = cuda::architecture(device).is_ok_and(cuda::Architecture::has_tensor_cores);
    match (numerics, has_tensor_cores) {
        (Numerics::Fast, true) => Choice::TensorCores(dtype),
        (Numerics::Strict, true) => {
            let what = format!("tensor cores sum products of {dtype} in an order of their own");
            Choice::Canonical(Some(Reason::WouldChangeBits(what)))
        }
        (Numerics::Strict | Numerics::Fast, false) => {
            let what = format!("{device} has no tensor cores of compute capability 8.0 or later");
            Choice::Canonical(Some(Reason::TierCannot(what)))
        }
    }
}

/// Of the addresses of left operand, right operand and result: a power of two up to [`super::launch::WIDEST`] that each is a multiple of.
type Alignments = [usize; 3];

/// What is launched on memory of some alignments, or the reason why there is no code for it.
type Known = SmallVec<[(Alignments, std::result::Result<Arc<Ready>, Reason>); 1]>;

/// A product of operands of two types on a device.
pub(super) struct DeviceProduct {
    choice: Choice,
    ready: Mutex<Known>,
}

/// A launch without its addresses; those are added at [`PLACES`].
pub(super) struct Ready {
    pub(super) words: Vec<u64>,
    /// None if the result has no elements.
    pub(super) launch: Option<(Step, Arc<Functions>)>,
}

/// Where the addresses of left operand, right operand and result go.
pub(super) const PLACES: [usize; 3] = [LEFT, RIGHT, RESULT];

impl DeviceProduct {
    /// A product of operands of a dtype; planned, and its code made, when it first runs.
    pub(super) fn new(device: Device, numerics: Numerics, dtype: DType) -> DeviceProduct {
        DeviceProduct { choice: choose(device, numerics, dtype), ready: Mutex::default() }
    }

    /// Whether tensor cores compute it.
    pub(super) fn is_on_tensor_cores(&self) -> bool {
        matches!(self.choice, Choice::TensorCores(_))
    }

    /// How it is computed.
    pub(super) fn choice(&self) -> &Choice {
        &self.choice
    }

    /// `left @ right` of 2-d operands, or of batches of them, into new memory of type `ty`, on the stream; or the reason why
    /// there is no code for it.
    ///
    /// # Errors
    /// If memory cannot be had, the code cannot be made, or the device fails.
    ///
    /// # Safety
    /// The operands are on the stream's device, always the same one, and have the types of the graph; the caller keeps everybody
    /// from writing to them until this returns.
    pub(super) unsafe fn run(
        &self,
        left: &Array,
        right: &Array,
        ty: &TensorType,
        stream: &Stream,
    ) -> Result<std::result::Result<Array, Reason>> {
        let result = Array::new(stream.device(), ty)?;
        let arrays = [left, right, &result];
        for array in arrays {
            array.storage().turn_to(stream)?;
        }
        let addresses = arrays.map(|array| array.ptr().addr() as u64);
        let shape = shape(left.layout(), right.layout(), ty.dtype);
        let ready = match self.ready(stream.device(), addresses.map(alignment_of), &shape)? {
            Ok(ready) => ready,
            Err(reason) => return Ok(Err(reason)),
        };
        let Some((step, functions)) = &ready.launch else { return Ok(Ok(result)) };
        let mut words: SmallVec<[u64; 16]> = SmallVec::from_slice(&ready.words);
        for (place, address) in PLACES.into_iter().zip(addresses) {
            words[place] = words[place].wrapping_add(address);
        }
        let queue = cuda::machine()?.queue(stream)?;
        // SAFETY: the words are those of the plan, made for the shapes and strides of these arrays, whose elements lie inside
        // their storages; operands were ordered to this stream, nobody writes to them, and the result is known here alone.
        // Memory that is given back stays as it is until the stream has come past.
        unsafe { functions[step.entry].start(&queue, step.grid, step.block, &words)? };
        counts::launched(1);
        Ok(Ok(result))
    }

    /// What is launched on memory of these alignments, or the reason why there is no code for it. The shape is always the same.
    ///
    /// # Errors
    /// If code cannot be made.
    pub(super) fn ready(
        &self,
        device: Device,
        alignments: Alignments,
        shape: &ProductShape,
    ) -> Result<std::result::Result<Arc<Ready>, Reason>> {
        let known = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, ready)) = known.iter().find(|(known, _)| *known == alignments) {
            return Ok(ready.clone());
        }
        drop(known);
        let planned = match &self.choice {
            Choice::Canonical(_) => ProductPlan::new(shape)
                .map(|ProductPlan { variant, words, step }| (words, step, Subject::Product(variant))),
            Choice::TensorCores(_) | Choice::Epilogue => TensorPlan::new(shape, alignments)
                .map(|TensorPlan { variant, words, step }| (words, step, Subject::TensorProduct(variant, None))),
        };
        let ready = match planned {
            Err(reason) => Err(reason),
            Ok((words, step, subject)) => {
                let launch = |step| kernels::functions(device, subject).map(|functions| (step, functions));
                Ok(Arc::new(Ready { words, launch: step.map(launch).transpose()? }))
            }
        };
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push((alignments, ready.clone()));
        Ok(ready)
    }
}
