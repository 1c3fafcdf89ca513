#![allow(unsafe_code, reason = "starts kernels on addresses of a device")]
//! Launches of one kernel on a device.
//!
//! What a launch needs besides addresses is planned once per alignment of its memory, which is mostly one and the same.

use super::counts;
use super::kernels::{self, Functions, Subject};
use crate::codegen::cuda::{Plan, words};
use crate::codegen::kernel::{Kernel, Kind, Source};
use crate::codegen::launch::Faults;
use crate::codegen::lower::Lowered;
use crate::codegen::parallel::outcome;
use crate::device::cuda::Queue;
use crate::device::{Device, Storage, Stream};
use crate::eager::Array;
use crate::error::{Reason, Result};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError};

/// By operand, then by output, a power of two up to [`WIDEST`] that the address is a multiple of.
type Alignments = SmallVec<[usize; 8]>;

/// What is ready, by alignments.
type Known = SmallVec<[(Alignments, Arc<Ready>); 1]>;

/// Bytes of the widest access of a kernel.
const WIDEST: usize = 16;

/// Bytes of the record of faults.
const FAULT_BYTES: usize = 24;

/// A kernel on a device.
pub(super) struct DeviceLaunch {
    device: Device,
    can_fault: bool,
    ready: Mutex<Known>,
}

/// What is launched on memory of some alignments.
struct Ready {
    plan: Plan,
    functions: Arc<Functions>,
}

impl DeviceLaunch {
    /// A kernel on a device; its code is made when it first runs.
    ///
    /// # Errors
    /// The reason why there is no code for it.
    pub(super) fn new(device: Device, lowered: &Lowered) -> Result<DeviceLaunch, Reason> {
        let alignments: Alignments = lowered.kernel.dtypes().map(|dtype| dtype.size()).collect();
        Plan::new(&lowered.kernel, &lowered.geometry, &alignments)?;
        Ok(DeviceLaunch { device, can_fault: can_fault(&lowered.kernel), ready: Mutex::default() })
    }

    /// Starts the kernel on a stream whose handle is `queue`; operands that are no memory are `None`.
    ///
    /// # Errors
    /// If its code cannot be made, memory cannot be had, integers are divided by zero, or the device fails.
    ///
    /// # Safety
    /// Arrays are on the device and have the types that the launch was lowered for; the caller keeps everybody else from
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
        let addresses: SmallVec<[u64; 8]> =
            arrays().map(|array| array.map_or(0, |array| array.ptr().addr() as u64)).collect();
        let ready = self.ready(lowered, &addresses)?;
        let layout = ready.plan.variant.layout;
        let mut words: SmallVec<[u64; 64]> = SmallVec::from_slice(&ready.plan.words);
        for (access, &address) in addresses.iter().enumerate() {
            let is_memory = lowered.kernel.operands.get(access).is_none_or(|operand| operand.source == Source::Memory);
            if is_memory {
                let word = &mut words[layout.address(access)];
                *word = word.wrapping_add(address);
            }
        }
        // Both are free again for work behind this on the same stream as soon as they are dropped.
        let faults = if self.can_fault { Some(Storage::copy_of(self.device, &[0; FAULT_BYTES])?) } else { None };
        let scratch = Storage::new(self.device, ready.plan.scratch_bytes)?;
        words[words::FAULTS] = faults.as_ref().map_or(0, |faults| faults.ptr().addr() as u64);
        words[words::SCRATCH] = scratch.ptr().addr() as u64;
        for step in &ready.plan.steps {
            words[words::ITEMS] = step.items;
            // SAFETY: the words are those of the text's plan, with the addresses of arrays that have the types it was made
            // for, and of memory of the sizes it asks for; all of it was ordered to this stream, and memory that is given
            // back stays as it is until the stream has come past.
            unsafe { ready.functions[step.entry].start(queue, step.grid, step.block, &words)? };
        }
        counts::launched(ready.plan.steps.len() as u64);
        match faults {
            Some(record) => report(lowered, &record),
            None => Ok(()),
        }
    }

    fn ready(&self, lowered: &Lowered, addresses: &[u64]) -> Result<Arc<Ready>> {
        let alignment = |&address: &u64| 1 << address.trailing_zeros().min(WIDEST.trailing_zeros());
        let alignments: Alignments = addresses.iter().map(alignment).collect();
        let known = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, ready)) = known.iter().find(|(known, _)| *known == alignments) {
            return Ok(ready.clone());
        }
        drop(known);
        let plan = Plan::new(&lowered.kernel, &lowered.geometry, &alignments)
            .map_err(|reason| crate::error::Error::invalid("kernel", reason.to_string()))?;
        let functions = kernels::functions(self.device, Subject::Kernel(lowered.kernel.clone(), plan.variant.clone()))?;
        let ready = Arc::new(Ready { plan, functions });
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push((alignments, ready.clone()));
        Ok(ready)
    }
}

/// Whether a kernel may find its elements wrong.
fn can_fault(kernel: &Kernel) -> bool {
    kernel.insts.iter().any(|inst| match inst.kind {
        Kind::Gather(_) => true,
        Kind::Prim(prim) => inst.args.first().is_some_and(|&arg| prim.needs_divisor(kernel.inst(arg).ty)),
        Kind::Load(_) | Kind::Lit(_) | Kind::Func(_) | Kind::Fold(_) => false,
    })
}

/// The error of a record of faults, if there is any; waits for the kernel.
fn report(lowered: &Lowered, record: &Storage) -> Result<()> {
    let mut bytes = [0; FAULT_BYTES];
    record.fetch(0, &mut bytes)?;
    let [zero_divisor, out_of_range, index] = [0, 8, 16].map(|at| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        i64::from_le_bytes(word)
    });
    let faults = Faults::new();
    if zero_divisor != 0 {
        faults.record_zero_divisor();
    }
    if out_of_range != 0 {
        faults.record(index);
    }
    outcome(&faults, &lowered.geometry)
}
