//! Runs that time each kernel.

use super::array::Array;
use super::executable::Executable;
use crate::device::Access;
use crate::error::Result;
use smallvec::SmallVec;
use std::time::{Duration, Instant};

impl Executable {
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
