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
use crate::device::{Device, DeviceKind, Storage, Stream};
use crate::eager::Array;
use crate::error::{Reason, Result};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError};

/// By operand, then by output, a power of two up to [`WIDEST`] that the address is a multiple of; [`IN_WORDS`] of an element
/// without an address.
pub(super) type Alignments = SmallVec<[usize; 8]>;

/// In the place of an alignment: an operand of the host, whose single element travels in the words.
pub(super) const IN_WORDS: usize = 0;

/// What is ready, by alignments.
type Known = SmallVec<[(Alignments, Arc<Ready>); 1]>;

/// Bytes of the widest access of a kernel: what begins at a multiple of it is as well aligned as any.
pub(super) const WIDEST: usize = 16;

/// Bytes of the record of faults.
const FAULT_BYTES: usize = 24;

/// A kernel on a device.
pub(super) struct DeviceLaunch {
    device: Device,
    can_fault: bool,
    ready: Mutex<Known>,
}

/// What is launched on memory of some alignments.
pub(super) struct Ready {
    pub(super) plan: Plan,
    pub(super) functions: Arc<Functions>,
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

    /// Whether it may find its elements wrong, so that the host waits for it.
    pub(super) fn can_fault(&self) -> bool {
        self.can_fault
    }

    /// Whether an access of the kernel, operands first, is memory.
    pub(super) fn is_memory(&self, lowered: &Lowered, access: usize) -> bool {
        lowered.kernel.operands.get(access).is_none_or(|operand| operand.source == Source::Memory)
    }

    /// Starts the kernel on a stream whose handle is `queue`; operands that are no memory are `None`.
    ///
    /// # Errors
    /// If its code cannot be made, memory cannot be had, integers are divided by zero, or the device fails.
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
        let mut words: SmallVec<[u64; 64]> = SmallVec::from_slice(&ready.plan.words);
        for (access, &value) in values.iter().enumerate() {
            if self.is_memory(lowered, access) {
                let word = &mut words[layout.address(access)];
                *word = word.wrapping_add(value);
            }
        }
        // Both are free again for work behind this on the same stream as soon as they are dropped.
        let faults = if self.can_fault { Some(FaultRecord::new(self.device)?) } else { None };
        let scratch = Storage::new(self.device, ready.plan.scratch_bytes)?;
        words[words::FAULTS] = faults.as_ref().map_or(0, FaultRecord::address);
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
            Some(record) => report(lowered, &record.read()?),
            None => Ok(()),
        }
    }

    /// What is launched on memory of such alignments, which are at least those of the elements.
    ///
    /// # Errors
    /// If its code cannot be made.
    pub(super) fn ready(&self, lowered: &Lowered, alignments: Alignments) -> Result<Arc<Ready>> {
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
        let functions = kernels::functions(self.device, Subject::Kernel(lowered.kernel.clone(), plan.variant.clone()))?;
        let ready = Arc::new(Ready { plan, functions });
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

/// Where kernels record what they find wrong.
pub(super) struct FaultRecord(Storage);

/// What a record says.
pub(super) struct FoundFaults {
    zero_divisor: bool,
    out_of_range: Option<i64>,
}

impl FoundFaults {
    pub(super) fn is_empty(&self) -> bool {
        !self.zero_divisor && self.out_of_range.is_none()
    }
}

impl FaultRecord {
    /// A record that says nothing.
    ///
    /// # Errors
    /// If there is no memory, or the device fails.
    pub(super) fn new(device: Device) -> Result<FaultRecord> {
        Storage::copy_of(device, &[0; FAULT_BYTES]).map(FaultRecord)
    }

    pub(super) fn address(&self) -> u64 {
        self.0.ptr().addr() as u64
    }

    /// What it says once the kernels that were given it are done, for which the host waits.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn read(&self) -> Result<FoundFaults> {
        let mut bytes = [0; FAULT_BYTES];
        self.0.fetch(0, &mut bytes)?;
        let [zero_divisor, out_of_range, index] = [0, 8, 16].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            i64::from_le_bytes(word)
        });
        Ok(FoundFaults { zero_divisor: zero_divisor != 0, out_of_range: (out_of_range != 0).then_some(index) })
    }
}

/// The error of what was found, if anything was.
fn report(lowered: &Lowered, found: &FoundFaults) -> Result<()> {
    let faults = Faults::new();
    if found.zero_divisor {
        faults.record_zero_divisor();
    }
    if let Some(index) = found.out_of_range {
        faults.record(index);
    }
    outcome(&faults, &lowered.geometry)
}
