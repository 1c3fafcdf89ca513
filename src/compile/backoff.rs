//! Which new input types are worth a capture.
//!
//! A capture takes longer than a small function runs, so one that is called with ever new sizes, like a decoder whose
//! cache grows by a token, would do little but be captured. From [`AT_ONCE`] captures on, inputs of new types wait
//! if a capture takes longer than a run: the function itself runs until that has taken as long, for these types, as the
//! capture will. That is ski rental (Karlin, Manasse, Rudolph, Sleator 1988): whatever comes, all calls take at
//! most twice as long as if it had been known. Types that are forgotten meanwhile, for lack of room, wait anew.

use crate::error::Reason;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Captures of a function that are made at once, whatever they take.
pub const AT_ONCE: u64 = 32;

/// What a function's captures and runs take, as the last ones did.
#[derive(Debug, Default)]
pub(super) struct Costs {
    capture: Duration,
    run: Duration,
}

impl Costs {
    /// Notes a capture and the run that followed it, or was part of the same call.
    pub(super) fn captured(&mut self, capture: Duration, run: Duration) {
        *self = Costs { capture, run };
    }

    /// Notes a run of the function itself.
    pub(super) fn ran(&mut self, run: Duration) {
        self.run = run;
    }

    /// Why inputs of new types are not captured yet after so many captures, if so.
    pub(super) fn reason_to_wait(&self, n_captures: u64, waited: &Waited) -> Option<Reason> {
        if n_captures < AT_ONCE { None } else { self.reason_after(waited.so_far()) }
    }

    /// As `reason_to_wait`, for types that the function ran with for so long already.
    fn reason_after(&self, waited: Duration) -> Option<Reason> {
        let Costs { capture, run } = *self;
        (run < capture && waited < capture).then_some(Reason::NewTypes { capture, run, waited })
    }
}

/// How long the function itself ran with inputs of some types.
#[derive(Debug, Default)]
pub(super) struct Waited(AtomicU64);

impl Waited {
    /// Runs `work`, and counts the time it takes, which is returned, too.
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
