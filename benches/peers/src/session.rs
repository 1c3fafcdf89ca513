//! One row after the other, set up and timed.
//!
//! A row's first call is timed alone, since it is the one that compiles. Samples of calls too short for the clock are
//! means over several. Outputs are dropped as soon as a call has ended, as in a program that goes on. Where calls
//! return before their results are there, a sample ends with a wait for them.

use crate::process;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// A library that rows are run on.
pub(crate) trait Peer {
    /// What a call leaves in memory.
    type Output;
    /// Its name and version, for a table's head.
    const VERSION: &'static str;

    /// Drops memory and code that former rows left, so that the next begins cold.
    fn forget(&mut self);

    /// The row of that number, ready to be called.
    fn row(&mut self, id: &str) -> Result<Row<Self::Output>, String>;

    /// Returns when what was called is in memory; where calls do not return before, nothing is left to do.
    fn wait(&self) -> Result<(), String> {
        Ok(())
    }

    /// Seconds that a sample lasts at least; more where each begins and ends with a wait.
    fn sample(&self) -> f64 {
        300e-6
    }
}

/// One row, ready to be called.
pub(crate) struct Row<O> {
    /// When a call returns, its results are in memory, or will be after [`Peer::wait`].
    pub(crate) call: Box<dyn FnMut() -> Result<O, String>>,
    pub(crate) check: Box<Check<O>>,
}

/// What the results of the first call add up to.
pub(crate) type Check<O> = dyn Fn(&O) -> Result<f64, String>;

/// What setting a row up has told.
pub(crate) struct First {
    /// Seconds of the first call.
    pub(crate) first: f64,
    /// Seconds of a later one, roughly.
    pub(crate) estimate: f64,
    pub(crate) check: f64,
}

/// Samples of one chunk.
pub(crate) struct Chunk {
    /// Seconds per call, each the mean of `n_calls`.
    pub(crate) seconds: Vec<f64>,
    pub(crate) n_calls: usize,
}

/// MiB of the process: the most since the row was set up, and before that.
pub(crate) struct Memory {
    pub(crate) peak: f64,
    pub(crate) before: f64,
}

/// Calls shorter than this share of a sample are sampled several at a time.
const SHORT: f64 = 1.0 / 3.0;
/// Calls at least this long are neither warmed up nor sampled more than the budget asks for.
const LONG: f64 = 50e-3;
const WARM_UP: f64 = 0.1;

/// The row being measured, if any.
pub(crate) struct Session<P: Peer> {
    peer: P,
    row: Option<Row<P::Output>>,
    estimate: f64,
    before: f64,
}

impl<P: Peer> Session<P> {
    pub(crate) fn new(peer: P) -> Session<P> {
        Session { peer, row: None, estimate: 0.0, before: 0.0 }
    }

    /// Makes the row's inputs and calls it for the first times. An error leaves no row.
    pub(crate) fn set_up(&mut self, id: &str) -> Result<First, String> {
        self.row = None;
        self.peer.forget();
        self.before = process::resident();
        let mut row = guarded(|| self.peer.row(id))?;
        // Making inputs takes memory that the row does not.
        process::reset_peak();
        let (output, first) = timed(&self.peer, &mut row)?;
        let check = guarded(|| (row.check)(&output))?;
        drop(output);
        let mut estimate = f64::MAX;
        for _ in 0..2 {
            estimate = estimate.min(timed(&self.peer, &mut row)?.1);
        }
        self.estimate = estimate;
        self.row = Some(row);
        Ok(First { first, estimate, check })
    }

    /// Calls the row for `budget` seconds and at most `max_samples` samples.
    pub(crate) fn run(&mut self, budget: f64, max_samples: usize) -> Result<Chunk, String> {
        let row = self.row.as_mut().ok_or("no row is set up")?;
        if self.estimate < LONG {
            let start = Instant::now();
            while start.elapsed().as_secs_f64() < WARM_UP.min(budget / 5.0) {
                (row.call)()?;
                self.peer.wait()?;
            }
        }
        let sample = self.peer.sample();
        let is_short = self.estimate < SHORT * sample;
        let n_calls = if is_short { (sample / self.estimate.max(1e-9)) as usize } else { 1 };
        let least_samples = if self.estimate < LONG { 3 } else { 2 };
        let mut seconds: Vec<f64> = Vec::new();
        let end = Instant::now() + Duration::from_secs_f64(budget);
        while seconds.len() < max_samples && (seconds.len() < least_samples || Instant::now() < end) {
            let start = Instant::now();
            for _ in 0..n_calls {
                drop((row.call)()?);
            }
            self.peer.wait()?;
            seconds.push(start.elapsed().as_secs_f64() / n_calls as f64);
        }
        self.estimate = seconds.iter().copied().fold(self.estimate, f64::min);
        Ok(Chunk { seconds, n_calls })
    }

    /// Seconds of a call until it returns, whether or not its results are there: the mean over so many. They should be
    /// few enough for the device's queue to hold them.
    pub(crate) fn host(&mut self, n_calls: usize) -> Result<f64, String> {
        let row = self.row.as_mut().ok_or("no row is set up")?;
        self.peer.wait()?;
        let start = Instant::now();
        for _ in 0..n_calls {
            drop((row.call)()?);
        }
        let seconds = start.elapsed().as_secs_f64();
        self.peer.wait()?;
        Ok(seconds / n_calls.max(1) as f64)
    }

    /// Ends the row.
    pub(crate) fn end(&mut self) -> Memory {
        let peak = process::peak();
        self.row = None;
        Memory { peak, before: self.before }
    }
}

fn timed<P: Peer>(peer: &P, row: &mut Row<P::Output>) -> Result<(P::Output, f64), String> {
    let start = Instant::now();
    let output = guarded(|| (row.call)())?;
    peer.wait()?;
    Ok((output, start.elapsed().as_secs_f64()))
}

/// A row that panics is an error of that row and of no other.
fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let message = |payload: Box<dyn Any + Send>| match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => payload.downcast::<&str>().map_or_else(|_| "it panicked".into(), |text| (*text).into()),
    };
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| Err(message(payload)))
}
