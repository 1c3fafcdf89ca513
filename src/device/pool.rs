#![allow(unsafe_code, reason = "one block: workers borrow the caller's loop body, whose lifetime threads cannot name")]
//! The worker pool: runs one loop on several threads, and joins them before the call returns.
//!
//! The caller works too, so `n` threads are the caller and `n - 1` workers. Threads claim tasks one by one from a
//! counter; nothing may depend on which thread runs which task. There is one pool, and it serves one caller at a time.
//! A caller that finds it busy, and a loop inside a loop, run their tasks themselves, in order, instead of waiting.
//!
//! An idle worker spins for 30 µs, so that the next loop of a busy program starts in well under a microsecond, and then
//! sleeps. Workers are started on first use and never joined: the process may end while they sleep.
//!
//! If a task panics, unclaimed tasks are skipped, running ones end, and the caller panics with the first payload. The
//! author of a loop decides by `max_threads` whether to split it.

use std::any::Any;
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::without_provenance_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a waiting thread spins before it sleeps; sleeping and waking cost about as much.
const SPIN: Duration = Duration::from_micros(30);
/// Pieces per thread that [`parallel_for`] makes, so that one slow thread does not delay the loop much.
const PIECES: usize = 4;
/// Longer pieces are multiples of this, so that vectors and cache lines are not cut.
const ROUND: usize = 64;

static WORKERS: Mutex<Vec<Worker>> = Mutex::new(Vec::new());
/// The number given to `set_num_threads`; 0 if there is none.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread is running a task of the pool.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The cap of `with_threads`.
    static CAP: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The number of threads for loops of this thread: the chosen or default number, capped by [`with_threads`].
pub fn num_threads() -> usize {
    let chosen = match CHOSEN.load(Ordering::Relaxed) {
        0 => default_threads(),
        chosen => chosen,
    };
    chosen.min(CAP.get())
}

/// Sets the number of threads for loops of this process, from the next loop on; 0 restores the default.
pub fn set_num_threads(threads: usize) {
    CHOSEN.store(threads, Ordering::Relaxed);
}

/// Runs `body` with loops of this thread capped to `threads` (at least 1); caps only tighten.
pub fn with_threads<T>(threads: usize, body: impl FnOnce() -> T) -> T {
    struct Restore(usize);
    impl Drop for Restore {
        fn drop(&mut self) {
            CAP.set(self.0);
        }
    }
    let before = CAP.get();
    let _restore = Restore(before);
    CAP.set(before.min(threads.max(1)));
    body()
}

/// `OPFUSE_NUM_THREADS` if it is a number above 0, else the number of cores of this process; read once.
fn default_threads() -> usize {
    static DEFAULT: OnceLock<usize> = OnceLock::new();
    *DEFAULT.get_or_init(|| {
        let variable = std::env::var("OPFUSE_NUM_THREADS").ok();
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        variable.and_then(|text| read_threads(&text)).unwrap_or_else(cores)
    })
}

fn read_threads(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|&threads| threads > 0)
}

/// Calls `body` with disjoint ranges that cover `0..total`, on at most `max_threads` threads.
///
/// Ranges longer than 64 start at multiples of 64. One thread gets one range. For an empty range `body` is not called.
pub fn parallel_for(total: usize, max_threads: usize, body: impl Fn(Range<usize>) + Sync) {
    let threads = allowed_threads(max_threads).min(total);
    if threads <= 1 {
        if total > 0 {
            body(0..total);
        }
        return;
    }
    let even = total.div_ceil(threads.saturating_mul(PIECES));
    let piece = if even > ROUND { even.next_multiple_of(ROUND) } else { even };
    let task = |at: usize| body(at * piece..total.min((at + 1) * piece));
    run(total.div_ceil(piece), threads, &task);
}

/// Calls `body` once for every number below `n_tasks`, on at most `max_threads` threads.
pub fn run(n_tasks: usize, max_threads: usize, body: &(dyn Fn(usize) + Sync)) {
    let threads = allowed_threads(max_threads).min(n_tasks);
    let workers = if threads <= 1 {
        None
    } else {
        match WORKERS.try_lock() {
            Ok(workers) => Some(workers),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    };
    let Some(mut workers) = workers else { return (0..n_tasks).for_each(body) };
    let panic = fork(&mut workers, threads - 1, n_tasks, body);
    drop(workers);
    if let Some(payload) = panic {
        resume_unwind(payload);
    }
}

/// The number of threads for a loop with this `max_threads` on this thread.
fn allowed_threads(max_threads: usize) -> usize {
    if INSIDE.get() { 1 } else { num_threads().min(max_threads) }
}

type Payload = Box<dyn Any + Send>;

/// One loop, on its caller's stack.
struct Job<'a> {
    body: &'a (dyn Fn(usize) + Sync),
    n_tasks: usize,
    next: AtomicUsize,
    panic: Mutex<Option<Payload>>,
    caller: Thread,
}

/// Runs a loop with `helpers` workers; returns the payload of a task that panicked.
fn fork(workers: &mut Vec<Worker>, helpers: usize, n_tasks: usize, body: &(dyn Fn(usize) + Sync)) -> Option<Payload> {
    while workers.len() < helpers {
        // The system may refuse more threads; the loop completes all the same.
        let Some(worker) = Worker::start(workers.len()) else { break };
        workers.push(worker);
    }
    let job = Job { body, n_tasks, next: AtomicUsize::new(0), panic: Mutex::new(None), caller: thread::current() };
    {
        let posted = Posted { workers: &workers[..helpers.min(workers.len())], job: &job };
        for worker in posted.workers {
            worker.post(posted.address());
        }
        INSIDE.set(true);
        job.work();
        INSIDE.set(false);
    }
    job.panic.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Job<'_> {
    /// Claims and runs tasks until none is left. Does not unwind.
    fn work(&self) {
        let claimed = || {
            let task = self.next.fetch_add(1, Ordering::Relaxed);
            (task < self.n_tasks).then_some(task)
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            while let Some(task) = claimed() {
                (self.body)(task);
            }
        }));
        if let Err(payload) = outcome {
            self.next.store(self.n_tasks, Ordering::Relaxed);
            let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
            match *first {
                None => *first = Some(payload),
                // Not dropped: a payload whose destructor panics would unwind from here.
                Some(_) => std::mem::forget(payload),
            }
        }
    }
}

/// A job that workers may have. After it is dropped, none has it any more.
struct Posted<'a> {
    workers: &'a [Worker],
    job: &'a Job<'a>,
}

impl Posted<'_> {
    fn address(&self) -> *mut Job<'static> {
        std::ptr::from_ref(self.job).cast::<Job<'static>>().cast_mut()
    }
}

impl Drop for Posted<'_> {
    fn drop(&mut self) {
        // First withdraws from all that have not started, so that none starts while we wait for another.
        for worker in self.workers {
            worker.withdraw(self.address());
        }
        for worker in self.workers {
            worker.wait_until_idle();
        }
    }
}

/// The state of a worker: idle, asleep, busy, busy with its caller asleep, or the address of a job to start. The
/// constants are addresses that no job can have.
const IDLE: *mut Job<'static> = without_provenance_mut(0);
const ASLEEP: *mut Job<'static> = without_provenance_mut(1);
const BUSY: *mut Job<'static> = without_provenance_mut(2);
const AWAITED: *mut Job<'static> = without_provenance_mut(3);

/// The state, on cache lines of its own.
///
/// Allowed transitions. The worker: IDLE → ASLEEP, job → BUSY, BUSY or AWAITED → IDLE. The caller that holds the pool:
/// IDLE or ASLEEP → job, job → IDLE, BUSY → AWAITED.
#[repr(align(128))]
struct Slot {
    state: AtomicPtr<Job<'static>>,
}

struct Worker {
    slot: Arc<Slot>,
    thread: Thread,
}

impl Worker {
    fn start(number: usize) -> Option<Worker> {
        let slot = Arc::new(Slot { state: AtomicPtr::new(IDLE) });
        let served = Arc::clone(&slot);
        let started = thread::Builder::new().name(format!("opfuse-{number}")).spawn(move || served.serve()).ok()?;
        Some(Worker { slot, thread: started.thread().clone() })
    }

    fn post(&self, job: *mut Job<'static>) {
        if self.slot.state.swap(job, Ordering::AcqRel) == ASLEEP {
            self.thread.unpark();
        }
    }

    fn withdraw(&self, job: *mut Job<'static>) {
        // Fails if the worker has started; then it is waited for.
        let _ = self.slot.state.compare_exchange(job, IDLE, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Waits until the worker has ended a job that it started. Its writes are then visible here.
    fn wait_until_idle(&self) {
        let state = &self.slot.state;
        let mut spin = Spin::new();
        loop {
            let seen = state.load(Ordering::Acquire);
            if seen == IDLE || seen == ASLEEP {
                return;
            }
            if seen == AWAITED {
                thread::park();
            } else if spin.is_over() {
                let _ = state.compare_exchange(BUSY, AWAITED, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }
}

impl Slot {
    /// The loop of a worker thread.
    fn serve(&self) {
        INSIDE.set(true);
        loop {
            let address = self.next_job();
            // SAFETY: `address` was posted by `fork`, whose `Posted` neither returns nor unwinds past the job's
            // lifetime before this slot is IDLE or ASLEEP again. We have set it to BUSY and only we set it to IDLE,
            // below, after the last use of `job`; so the job, and the body it borrows, live as long as we use them.
            // `Job` is shared, never mutated, and all it holds may be used from several threads.
            let job: &Job<'_> = unsafe { &*address };
            job.work();
            if self.state.compare_exchange(BUSY, IDLE, Ordering::Release, Ordering::Relaxed).is_err() {
                // AWAITED: the caller sleeps, and cannot return before the state changes.
                let caller = job.caller.clone();
                self.state.store(IDLE, Ordering::Release);
                caller.unpark();
            }
        }
    }

    /// Waits for a job and starts it.
    fn next_job(&self) -> *mut Job<'static> {
        let mut spin = Spin::new();
        loop {
            let seen = self.state.load(Ordering::Relaxed);
            if seen == ASLEEP {
                thread::park();
                // If it woke too late for one job, it is awake for the next.
                spin = Spin::new();
            } else if seen == IDLE {
                if spin.is_over() {
                    let _ = self.state.compare_exchange(IDLE, ASLEEP, Ordering::Relaxed, Ordering::Relaxed);
                }
            } else if self.state.compare_exchange(seen, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return seen;
            }
        }
    }
}

/// A bounded busy wait.
struct Spin {
    /// When the clock was first read.
    since: Option<Instant>,
    turns: u32,
}

impl Spin {
    fn new() -> Spin {
        Spin { since: None, turns: 0 }
    }

    /// Spins a moment, and returns whether the time is over.
    fn is_over(&mut self) -> bool {
        std::hint::spin_loop();
        self.turns += 1;
        // Reading the clock takes as long as several spins.
        if !self.turns.is_multiple_of(32) {
            return false;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() > SPIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_a_number_above_zero() {
        let cases = [("4", Some(4)), (" 2 ", Some(2)), ("0", None), ("-1", None), ("many", None), ("", None)];
        for (text, threads) in cases {
            assert_eq!(read_threads(text), threads, "{text:?}");
        }
    }

    #[test]
    fn no_job_lies_at_the_address_of_a_state() {
        let alignment = align_of::<Job<'static>>();
        for state in [ASLEEP, BUSY, AWAITED] {
            assert!(!state.addr().is_multiple_of(alignment));
        }
        assert!(IDLE.is_null());
    }

    #[test]
    fn spinning_ends() {
        let begin = Instant::now();
        let mut spin = Spin::new();
        while !spin.is_over() {}
        assert!(begin.elapsed() >= SPIN);
    }
}
