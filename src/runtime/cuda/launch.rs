#![allow(unsafe_code, reason = "starts kernels on addresses of a device")]
//! Launches of one kernel on a device.
//!
//! Everything but the addresses is planned once per alignment of the memory, of which there is mostly one.

use super::alignments::{Alignments, ByAlignments, IN_WORDS, WIDEST, alignment};
use super::counts;
use super::faults::{self, Blame};
use super::kernels::{self, Functions, SourceKey};
use crate::codegen::cuda::{Plan, argument};
use crate::codegen::kernel::{Kernel, Kind, Source};
use crate::codegen::lower::Lowered;
use crate::device::cuda::Queue;
use crate::device::{Device, DeviceKind, Storage, Stream};
use crate::error::{Reason, Result};
use crate::ir::Op;
use crate::runtime::Array;
use smallvec::SmallVec;
use std::sync::Arc;

/// A kernel on a device.
pub(super) struct DeviceLaunch {
    device: Device,
    /// The number of the launch in fault records, if it can have faults.
    site: Option<u64>,
    ready: ByAlignments<Arc<PreparedLaunch>>,
}

/// A launch for memory of some alignments.
pub(super) struct PreparedLaunch {
    pub(super) plan: Plan,
    pub(super) functions: Arc<Functions>,
}

impl DeviceLaunch {
    /// A kernel on a device; `gathers` is the op that reads at indices. The code is made when it first runs.
    ///
    /// # Errors
    /// The reason why there is no CUDA source for it.
    pub(super) fn new(device: Device, lowered: &Lowered, gathers: Option<Op>) -> Result<DeviceLaunch, Reason> {
        let alignments: Alignments = lowered.kernel.dtypes().map(|dtype| dtype.size()).collect();
        Plan::new(&lowered.kernel, &lowered.geometry, &alignments)?;
        let site = can_fault(&lowered.kernel).then(|| Blame::Kernel(gathers).site());
        Ok(DeviceLaunch { device, site, ready: ByAlignments::default() })
    }

    /// The number of the launch in fault records, if it can have faults.
    pub(super) fn site(&self) -> Option<u64> {
        self.site
    }

    /// Whether an access of the kernel, operands first, is in memory.
    pub(super) fn is_memory(&self, lowered: &Lowered, access: usize) -> bool {
        lowered.kernel.operands.get(access).is_none_or(|operand| operand.source == Source::Memory)
    }

    /// Starts the kernel on a stream whose handle is `queue`. Operands that are not in memory are `None`.
    ///
    /// # Errors
    /// If its code cannot be made, there is not enough memory, or the device fails.
    ///
    /// # Safety
    /// Arrays are on the device, or single elements of the host, and have the types that the launch was lowered for.
    /// Until this returns, the caller lets nothing else write the operands or use the outputs.
    pub(super) unsafe fn start(
        &self,
        lowered: &Lowered,
        operands: &[Option<&Array>],
        outputs: &[&Array],
        stream: &Stream,
        queue: &Queue,
    ) -> Result<()> {
        let arrays = || operands.iter().copied().chain(outputs.iter().map(|&output| Some(output)));
        for array in arrays().flatten() {
            array.storage().turn_to(stream)?;
        }
        // SAFETY: passed on from the caller.
        let values: SmallVec<[u64; 8]> =
            arrays().map(|array| array.map_or(0, |array| unsafe { word(array) })).collect();
        let alignments = arrays().map(|array| array.map_or(WIDEST, alignment)).collect();
        let ready = self.ready(lowered, alignments)?;
        let layout = ready.plan.variant.layout;
        let mut argument: SmallVec<[u64; 64]> = SmallVec::from_slice(&ready.plan.argument);
        for (access, &value) in values.iter().enumerate() {
            if self.is_memory(lowered, access) {
                let word = &mut argument[layout.address(access)];
                *word = word.wrapping_add(value);
            }
        }
        // When it is dropped, later work on the same stream may reuse it at once.
        let scratch = Storage::new(self.device, ready.plan.scratch_bytes)?;
        if let Some(site) = self.site {
            argument[argument::FAULTS] = queue.fault_record(faults::error)?;
            argument[argument::SITE] = site;
        }
        argument[argument::SCRATCH] = scratch.ptr().addr() as u64;
        for step in &ready.plan.steps {
            argument[argument::ITEMS] = step.items;
            // SAFETY: the argument buffer is that of the source's plan, with the addresses of arrays of the types it
            // was made for, and of memory of the sizes it needs. All of it was ordered to this stream, and freed memory
            // is not reused before the stream has passed this point.
            unsafe { ready.functions[step.entry].start(queue, step.grid, step.block, &argument)? };
        }
        counts::launched(ready.plan.steps.len() as u64);
        Ok(())
    }

    /// Prepares the launch for memory of these alignments, which are at least those of the elements.
    ///
    /// # Errors
    /// If its code cannot be made.
    pub(super) fn ready(&self, lowered: &Lowered, alignments: Alignments) -> Result<Arc<PreparedLaunch>> {
        self.ready.get_or_make(alignments, |alignments| {
            let n_operands = lowered.kernel.operands.len();
            let numbers = (0..n_operands).filter(|&access| alignments[access] == IN_WORDS);
            let plan = Plan::new(&lowered.kernel, &lowered.geometry, alignments)
                .map_err(|reason| crate::error::Error::invalid("kernel", reason.to_string()))?
                .with_numbers(numbers);
            let functions =
                kernels::functions(self.device, SourceKey::Kernel(lowered.kernel.clone(), plan.variant.clone()))?;
            Ok(Arc::new(PreparedLaunch { plan, functions }))
        })
    }
}

/// The word of an array in the argument buffer: its address, or its single element if it is on the host.
///
/// # Safety
/// Nothing writes to it until this returns.
pub(super) unsafe fn word(array: &Array) -> u64 {
    if array.device().kind != DeviceKind::Cpu {
        return array.ptr().addr() as u64;
    }
    // SAFETY: passed on from the caller.
    unsafe { element(array, 0) }
}

/// An element of an array on the host, along its first dim.
///
/// # Safety
/// The element exists, and nothing writes to the array until this returns.
pub(super) unsafe fn element(array: &Array, at: usize) -> u64 {
    let (layout, size) = (array.layout(), array.dtype().size());
    let at = (layout.offset + at * layout.strides.first().copied().unwrap_or(0)) * size;
    // SAFETY: passed on from the caller.
    let element = unsafe { &array.storage().bytes()[at..at + size] };
    let mut word = [0; 8];
    word[..size].copy_from_slice(element);
    u64::from_le_bytes(word)
}

/// Whether a kernel can have faults.
fn can_fault(kernel: &Kernel) -> bool {
    kernel.insts.iter().any(|inst| match inst.kind {
        Kind::Gather(_) => true,
        Kind::Prim(prim) => inst.args.first().is_some_and(|&arg| prim.needs_divisor(kernel.inst(arg).ty)),
        Kind::Load(_) | Kind::Lit(_) | Kind::Func(_) | Kind::Fold(_) => false,
    })
}
