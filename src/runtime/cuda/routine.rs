#![allow(unsafe_code, reason = "starts routines on addresses of a device")]
//! Routines on a device: planned, compiled and started like kernels.

use super::counts;
use super::faults::{self, Blame};
use super::kernels::{self, Functions, SourceKey};
use super::launch::element;
use crate::codegen::cuda::argument::{FAULTS, SITE};
use crate::codegen::cuda::routines::{Of, RoutineArray, RoutinePlan};
use crate::device::cuda::Queue;
use crate::device::{Device, DeviceKind, Storage, Stream};
use crate::error::{Reason, Result};
use crate::ir::attrs::{Along, Attributes, FlatIndex};
use crate::ir::shape::normalize_dim;
use crate::ir::{Attr, Meaning, Op, Routine};
use crate::runtime::Array;
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};

/// A routine for operands of some types on a device.
pub(super) struct DeviceRoutine {
    device: Device,
    /// For operands on the device, and for a key on the host.
    plans: [RoutinePlan; 2],
    /// The number of the launch in fault records, if it can have faults.
    site: Option<u64>,
    functions: [OnceLock<Arc<Functions>>; 2],
}

impl DeviceRoutine {
    /// The routine of an op. Its code is made when it first runs.
    ///
    /// # Errors
    /// The reason why there is no CUDA source for it.
    pub(super) fn new(
        device: Device,
        op: Op,
        attrs: &[Attr],
        operands: &[RoutineArray<'_>],
        result: RoutineArray<'_>,
    ) -> Result<DeviceRoutine, Reason> {
        let Meaning::Routine(routine) = &op.row().meaning else { unreachable!("the action is of a routine") };
        let plan = |key_on_host| RoutinePlan::new(op, routine, attrs, operands, result, key_on_host);
        let plans = [plan(false)?, plan(true)?];
        let site = plans[0].can_fault.then(|| blame(op, routine, attrs, operands).site());
        Ok(DeviceRoutine { device, plans, site, functions: Default::default() })
    }

    /// The number of the launch in fault records, if it can have faults.
    pub(super) fn site(&self) -> Option<u64> {
        self.site
    }

    /// Its plan and its code; `key_on_host` as for [`RoutinePlan::new`].
    ///
    /// # Errors
    /// If its code cannot be made.
    pub(super) fn ready(&self, key_on_host: bool) -> Result<(&RoutinePlan, Arc<Functions>)> {
        let (plan, functions) = (&self.plans[usize::from(key_on_host)], &self.functions[usize::from(key_on_host)]);
        if let Some(functions) = functions.get() {
            return Ok((plan, functions.clone()));
        }
        let made = kernels::functions(self.device, SourceKey::Routine(plan.variant.clone()))?;
        Ok((plan, functions.get_or_init(|| made).clone()))
    }

    /// Starts it on a stream whose handle is `queue`.
    ///
    /// # Errors
    /// If its code cannot be made, there is not enough memory, or the device fails.
    ///
    /// # Safety
    /// Arrays are on the device, or a key of two elements on the host, and have the types that this was made for. Until
    /// this returns, the caller lets nothing else write the operands or use the result.
    pub(super) unsafe fn start(
        &self,
        operands: &[&Array],
        result: &Array,
        stream: &Stream,
        queue: &Queue,
    ) -> Result<()> {
        for array in operands.iter().copied().chain([result]) {
            array.storage().turn_to(stream)?;
        }
        let key_on_host = operands.iter().any(|array| array.device().kind == DeviceKind::Cpu);
        let (plan, functions) = self.ready(key_on_host)?;
        let record = if self.site.is_some() { queue.fault_record(faults::error)? } else { 0 };
        let scratch = Storage::new(self.device, plan.scratch_bytes)?;
        for launch in &plan.launches {
            let mut argument: SmallVec<[u64; 32]> = SmallVec::from_slice(&launch.argument);
            for &(word, of) in &launch.places {
                argument[word] = argument[word].wrapping_add(match of {
                    Of::Operand(operand) => operands[operand].ptr().addr() as u64,
                    // SAFETY: passed on from the caller.
                    Of::Element(operand, at) => unsafe { element(operands[operand], at) },
                    Of::Result => result.ptr().addr() as u64,
                    Of::Scratch => scratch.ptr().addr() as u64,
                });
            }
            if let Some(site) = self.site {
                (argument[FAULTS], argument[SITE]) = (record, site);
            }
            let step = launch.step;
            // SAFETY: the argument buffer is that of the plan, with the addresses of arrays of the types it was made
            // for, and of memory of the size it needs. All of it was ordered to this stream, and freed memory is not
            // reused before the stream has passed this point.
            unsafe { functions[step.entry].start(queue, step.grid, step.block, &argument)? };
        }
        counts::launched(plan.launches.len() as u64);
        Ok(())
    }
}

/// The op that an index out of range belongs to.
fn blame(op: Op, routine: &Routine, attrs: &[Attr], operands: &[RoutineArray<'_>]) -> Blame {
    match routine {
        Routine::FlatIndex => Blame::FlatIndex(op, FlatIndex::read(attrs).wrap),
        Routine::Scan(_)
        | Routine::Recurrence
        | Routine::Argsort
        | Routine::First
        | Routine::Scatter(_)
        | Routine::Bits
        | Routine::WindowProduct
        | Routine::Matrix(_)
        | Routine::Fourier(_) => {
            let Along { dim } = Along::read(attrs);
            // Planning has checked the dim.
            Blame::Write(op, normalize_dim(op.name(), dim, operands[0].1.rank()).unwrap_or(0))
        }
    }
}
