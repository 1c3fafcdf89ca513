#![allow(unsafe_code, reason = "starts kernels on addresses of a device")]
//! Launches of one kernel on a device.
//!
//! What a launch needs besides addresses is planned once per alignment of its memory, which is mostly one and the same.

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
use std::sync::{Arc, Mutex, PoisonError};

/// By operand, then by output, a power of two up to [`WIDEST`] that the address is a multiple of; [`IN_WORDS`] of an element
/// without an address.
pub(super) type Alignments = SmallVec<[usize; 8]>;

/// In the place of an alignment: an operand of the host, whose single element travels in the words.
pub(super) const IN_WORDS: usize = 0;

/// What is ready, by alignments.
type ByAlignments = SmallVec<[(Alignments, Arc<PreparedLaunch>); 1]>;

/// Bytes of the widest access of a kernel: what begins at a multiple of it is as well aligned as any.
pub(super) const WIDEST: usize = 16;

/// A kernel on a device.
pub(super) struct DeviceLaunch {
    device: Device,
    /// What it is called where it finds its elements wrong, if it can.
    site: Option<u64>,
    ready: Mutex<ByAlignments>,
}

/// What is launched on memory of some alignments.
pub(super) struct PreparedLaunch {
    pub(super) plan: Plan,
    pub(super) functions: Arc<Functions>,
}

impl DeviceLaunch {
    /// A kernel on a device, of which `gathers` reads at indices; its code is made when it first runs.
    ///
    /// # Errors
    /// The reason why there is no code for it.
    pub(super) fn new(device: Device, lowered: &Lowered, gathers: Option<Op>) -> Result<DeviceLaunch, Reason> {
        let alignments: Alignments = lowered.kernel.dtypes().map(|dtype| dtype.size()).collect();
        Plan::new(&lowered.kernel, &lowered.geometry, &alignments)?;
        let site = can_fault(&lowered.kernel).then(|| Blame::Kernel(gathers).site());
        Ok(DeviceLaunch { device, site, ready: Mutex::default() })
    }

    /// What it is called where it finds its elements wrong, if it can.
    pub(super) fn site(&self) -> Option<u64> {
        self.site
    }

    /// Whether an access of the kernel, operands first, is memory.
    pub(super) fn is_memory(&self, lowered: &Lowered, access: usize) -> bool {
        lowered.kernel.operands.get(access).is_none_or(|operand| operand.source == Source::Memory)
    }

    /// Starts the kernel on a stream whose handle is `queue`; operands that are no memory are `None`.
    ///
    /// # Errors
    /// If its code cannot be made, memory cannot be had, or the device fails.
    ///
    /// # Safety
    /// Arrays are on the device, or single elements of the host, and have the types that the launch was lowered for; the caller keeps everybody else from
    /// writing to operands, and from using outputs, until this returns.
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
        // SAFETY: the caller's promise.
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
        // It is free again for work behind this on the same stream as soon as it is dropped.
        let scratch = Storage::new(self.device, ready.plan.scratch_bytes)?;
        if let Some(site) = self.site {
            argument[argument::FAULTS] = queue.fault_record(faults::error)?;
            argument[argument::SITE] = site;
        }
        argument[argument::SCRATCH] = scratch.ptr().addr() as u64;
        for step in &ready.plan.steps {
            argument[argument::ITEMS] = step.items;
            // SAFETY: the words are those of the text's plan, with the addresses of arrays that have the types it was made
            // for, and of memory of the sizes it asks for; all of it was ordered to this stream, and memory that is given
            // back stays as it is until the stream has come past.
            unsafe { ready.functions[step.entry].start(queue, step.grid, step.block, &argument)? };
        }
        counts::launched(ready.plan.steps.len() as u64);
        Ok(())
    }

    /// What is launched on memory of such alignments, which are at least those of the elements.
    ///
    /// # Errors
    /// If its code cannot be made.
    pub(super) fn ready(&self, lowered: &Lowered, alignments: Alignments) -> Result<Arc<PreparedLaunch>> {
        let known = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, ready)) = known.iter().find(|(known, _)| *known == alignments) {
            return Ok(ready.clone());
        }
        drop(known);
        let n_operands = lowered.kernel.operands.len();
        let numbers = (0..n_operands).filter(|&access| alignments[access] == IN_WORDS);
        let plan = Plan::new(&lowered.kernel, &lowered.geometry, &alignments)
            .map_err(|reason| crate::error::Error::invalid("kernel", reason.to_string()))?
            .with_numbers(numbers);
        let functions =
            kernels::functions(self.device, SourceKey::Kernel(lowered.kernel.clone(), plan.variant.clone()))?;
        let ready = Arc::new(PreparedLaunch { plan, functions });
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push((alignments, ready.clone()));
        Ok(ready)
    }
}

/// The largest power of two up to [`WIDEST`] that the address of an array is a multiple of; [`IN_WORDS`] on the host.
pub(super) fn alignment(array: &Array) -> usize {
    if array.device().kind == DeviceKind::Cpu { IN_WORDS } else { alignment_of(array.ptr().addr() as u64) }
}

/// The same of an address on a device.
pub(super) fn alignment_of(address: u64) -> usize {
    1 << address.trailing_zeros().min(WIDEST.trailing_zeros())
}

/// What goes into the words for an array: its address, or the single element of one on the host.
///
/// # Safety
/// Nobody writes to it until this returns.
pub(super) unsafe fn word(array: &Array) -> u64 {
    if array.device().kind != DeviceKind::Cpu {
        return array.ptr().addr() as u64;
    }
    // SAFETY: the caller's promise.
    unsafe { element(array, 0) }
}

/// An element of an array on the host, along its first dim.
///
/// # Safety
/// It is there, and nobody writes to the array until this returns.
pub(super) unsafe fn element(array: &Array, at: usize) -> u64 {
    let (layout, size) = (array.layout(), array.dtype().size());
    let at = (layout.offset + at * layout.strides.first().copied().unwrap_or(0)) * size;
    // SAFETY: the caller's promise.
    let element = unsafe { &array.storage().bytes()[at..at + size] };
    let mut word = [0; 8];
    word[..size].copy_from_slice(element);
    u64::from_le_bytes(word)
}

/// Whether a kernel may find its elements wrong.
fn can_fault(kernel: &Kernel) -> bool {
    kernel.insts.iter().any(|inst| match inst.kind {
        Kind::Gather(_) => true,
        Kind::Prim(prim) => inst.args.first().is_some_and(|&arg| prim.needs_divisor(kernel.inst(arg).ty)),
        Kind::Load(_) | Kind::Lit(_) | Kind::Func(_) | Kind::Fold(_) => false,
    })
}
