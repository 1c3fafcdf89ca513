//! Recompile back-off: which new input types are worth a capture.
//!
//! A capture takes longer than one run of a small function. A function that always gets new sizes, like a decoder whose
//! cache grows by a token, would spend its time on captures. After [`AT_ONCE`] captures, inputs of new types wait if a
//! capture takes longer than a run: the function runs eagerly until these runs have taken as long as a capture. This is
//! ski rental (Karlin, Manasse, Rudolph, Sleator 1988): the calls take at most twice the time of the best choice in
//! hindsight. Types that are evicted from the cache wait anew.

use crate::error::Reason;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of captures of a function that never wait.
pub const AT_ONCE: u64 = 32;

/// The time of a function's last capture and last run.
#[derive(Debug, Default)]
pub(super) struct Costs {
    capture: Duration,
    run: Duration,
}

impl Costs {
    /// Records the times of a capture, and of the run in the same call.
    pub(super) fn captured(&mut self, capture: Duration, run: Duration) {
        *self = Costs { capture, run };
    }

    /// Records the time of an eager run.
    pub(super) fn ran(&mut self, run: Duration) {
        self.run = run;
    }

    /// Why inputs of new types are not captured yet, after `n_captures` captures.
    pub(super) fn reason_to_wait(&self, n_captures: u64, waited: &Waited) -> Option<Reason> {
        if n_captures < AT_ONCE { None } else { self.reason_after(waited.so_far()) }
    }

    /// Like `reason_to_wait`, for types whose eager runs took `waited`.
    fn reason_after(&self, waited: Duration) -> Option<Reason> {
        let Costs { capture, run } = *self;
        (run < capture && waited < capture).then_some(Reason::NewTypes { capture, run, waited })
    }
}

/// The total time of eager runs with inputs of some types.
#[derive(Debug, Default)]
pub(super) struct Waited(AtomicU64);

impl Waited {
    /// Runs `work` and adds its time, which is also returned.
    pub(super) fn count<R>(&self, work: impl FnOnce() -> R) -> (R, Duration) {
        let start = Instant::now();
        let result = work();
        let taken = start.elapsed();
        self.0.fetch_add(u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        (result, taken)
    }

    fn so_far(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_wait_until_a_capture_is_paid_for() {
        let micros = Duration::from_micros;
        let mut costs = Costs::default();
        assert_eq!(costs.reason_after(micros(0)), None, "nothing is known");
        costs.captured(micros(1000), micros(40));
        let waits = costs.reason_after(micros(0)).expect("a capture takes longer than a run");
        let what = "inputs of new types: a capture takes 1.0ms, a run 40.0µs; 0.0ns of runs with these so far";
        assert_eq!(waits.to_string(), what);
        assert!(costs.reason_after(micros(999)).is_some());
        assert_eq!(costs.reason_after(micros(1000)), None, "it is paid for");
        costs.ran(micros(1000));
        assert_eq!(costs.reason_after(micros(0)), None, "runs take as long as captures");
    }

    #[test]
    fn time_adds_up() {
        let waited = Waited::default();
        let sleep = || std::thread::sleep(Duration::from_millis(2));
        let taken = waited.count(sleep).1 + waited.count(sleep).1;
        assert!(taken >= Duration::from_millis(4));
        assert!(taken - waited.so_far() < Duration::from_micros(1));
    }
}
