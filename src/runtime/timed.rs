//! Runs that time each kernel.

use super::array::Array;
use super::executable::Executable;
use crate::device::Access;
use crate::error::Result;
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// Runs a kernel of an executable, by its number, through the given function.
type Observer<'a> = &'a mut dyn FnMut(usize, &mut dyn FnMut() -> Result<()>) -> Result<()>;

impl Executable {
    /// Runs like [`Executable::run`], and passes each kernel of the plan to `observer`, which runs it. Allocations and
    /// views belong to the kernel that they are for. Kernels on a GPU are not seen one by one.
    ///
    /// # Errors
    /// As for [`Executable::run`].
    pub fn run_observed(&self, inputs: &[&Array], observer: Observer<'_>) -> Result<SmallVec<[Array; 2]>> {
        if self.on_device.is_some() {
            return self.run(inputs);
        }
        self.check(inputs)?;
        let _access = self.access(inputs)?;
        let mut slots = self.schedule.slots(inputs);
        let (mut actions, mut kernels) = (&self.schedule.actions[..], &self.schedule.kernels[..]);
        while let Some(&kernel) = kernels.first() {
            let n = kernels.iter().take_while(|other| **other == kernel).count();
            let (own, rest) = actions.split_at(n);
            observer(kernel, &mut || own.iter().try_for_each(|action| action.run(&mut slots)))?;
            (actions, kernels) = (rest, &kernels[n..]);
        }
        Ok(self.schedule.results(&mut slots))
    }

    /// Runs like [`Executable::run`], and returns the time of each kernel of the plan, including its allocations. The
    /// time of a view counts as the next kernel's. On a GPU, the times are those between events in the stream, and the
    /// host waits for the last one.
    ///
    /// # Errors
    /// As for [`Executable::run`].
    pub fn run_timed(&self, inputs: &[&Array]) -> Result<Vec<Duration>> {
        if let Some(on_device) = &self.on_device {
            return on_device.run_timed(&self.schedule, inputs);
        }
        self.check(inputs)?;
        // A timed run must not change its inputs.
        let copies = self.schedule.with_copies(inputs)?;
        let inputs: SmallVec<[&Array; 4]> = copies.iter().collect();
        let _access = Access::to_read(inputs.iter().map(|array| &**array.storage()));
        let mut slots = self.schedule.slots(&inputs);
        let mut times = vec![Duration::ZERO; self.schedule.n_kernels()];
        let mut last = Instant::now();
        for (action, &kernel) in self.schedule.actions.iter().zip(&self.schedule.kernels) {
            action.run(&mut slots)?;
            let now = Instant::now();
            times[kernel] += now - last;
            last = now;
        }
        Ok(times)
    }
}
