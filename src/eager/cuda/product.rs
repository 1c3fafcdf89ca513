#![allow(unsafe_code, reason = "starts products on addresses of a device")]
//! Matrix products on a device: planned, compiled and started like kernels.

use super::counts;
use super::kernels::{self, Functions, Subject};
use crate::codegen::cuda::product::{LEFT, ProductPlan, RESULT, RIGHT};
use crate::device::{Stream, cuda};
use crate::eager::Array;
use crate::eager::product::shape;
use crate::error::{Reason, Result};
use crate::ir::TensorType;
use std::sync::{Arc, OnceLock};

/// A product of operands of two types on a device. Planned when it first runs, and its code is then made.
#[derive(Default)]
pub(super) struct DeviceProduct {
    plan: OnceLock<std::result::Result<ProductPlan, Reason>>,
    functions: OnceLock<Arc<Functions>>,
}

impl DeviceProduct {
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
        let plan = match self.plan.get_or_init(|| ProductPlan::new(&shape(left, right, ty.dtype))) {
            Ok(plan) => plan,
            Err(reason) => return Ok(Err(reason.clone())),
        };
        let result = Array::new(stream.device(), ty)?;
        let Some(step) = plan.step else { return Ok(Ok(result)) };
        let mut words = plan.words.clone();
        for (word, array) in [(LEFT, left), (RIGHT, right), (RESULT, &result)] {
            array.storage().turn_to(stream)?;
            words[word] = words[word].wrapping_add(array.ptr().addr() as u64);
        }
        let functions = match self.functions.get() {
            Some(functions) => functions,
            None => {
                let made = kernels::functions(stream.device(), Subject::Product(plan.variant))?;
                self.functions.get_or_init(|| made)
            }
        };
        let queue = cuda::machine()?.queue(stream)?;
        // SAFETY: the words are those of the plan, made for the shapes and strides of these arrays, whose elements lie inside
        // their storages; operands were ordered to this stream, nobody writes to them, and the result is known here alone.
        // Memory that is given back stays as it is until the stream has come past.
        unsafe { functions[step.entry].start(&queue, step.grid, step.block, &words)? };
        counts::launched(1);
        Ok(Ok(result))
    }
}
