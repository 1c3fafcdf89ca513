//! Faults of kernels, reported asynchronously: no call waits for them.
//!
//! A kernel that divides an integer by zero, or gets an index out of range, writes this to the record of its stream and
//! goes on with zeros. A record is a few words of host memory. It is checked when work is given to the stream, which
//! costs a load, and when the host has waited for the stream. A thread that finds a fault there waits for all work of
//! the stream, turns the fault into an error, and clears the record.
//!
//! What always holds: each thread that used the stream before the fault was found gets the error once. So no thread
//! takes a value that was computed from a faulty one for a correct one. A stream that waits for another one also
//! reports that one's faults, until the host has passed the point that it waited for.
//!
//! The first launch with a fault is reported; of its threads, any. A [`ToError`] turns the fault into an error.

use super::driver::{Context, Mark, Queue, Watched};
use super::{Found, ToError};
use crate::error::{Error, Result};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Words of a record, as in the CUDA prelude: site and position, then per position an index and the size of its
/// dimension.
const RECORD: usize = 32;
/// The number of positions that are distinguished.
const POSITIONS: usize = 8;
/// The number of streams for which a thread remembers what was reported.
const MAX_STREAMS: usize = 64;

/// The records of a device.
pub(super) struct Records {
    context: Arc<Context>,
    /// Free records, each with the mark until which kernels may still write to it.
    free: Mutex<Vec<(Record, Option<Mark>)>>,
}

/// The record of a stream.
struct Record {
    memory: Arc<Watched>,
    at: Range<usize>,
}

/// The faults of a stream's kernels.
pub(crate) struct Faults {
    /// Identifies the stream, even after it was destroyed.
    number: u64,
    records: Arc<Records>,
    queue: Weak<Queue>,
    /// Made when the first kernel that may have a fault is started.
    record: OnceLock<(Record, ToError)>,
    /// The number of faults found.
    times: AtomicU64,
    /// The error of the last fault.
    last: Mutex<Option<Error>>,
    others: Mutex<SmallVec<[Other; 1]>>,
    /// Recorded after the last work of a destroyed stream.
    end: Mutex<Option<Mark>>,
}

/// Another stream that this one has waited for.
struct Other {
    faults: Arc<Faults>,
    /// The point that it waited for.
    point: Arc<Mark>,
    /// The number of faults found there at that time.
    times: u64,
}

thread_local! {
    /// Per stream, by its number, how many faults were found when the thread last checked; the oldest entry first.
    static REPORTED: RefCell<Vec<(u64, u64)>> = const { RefCell::new(Vec::new()) };
}

impl Records {
    pub(super) fn new(context: &Arc<Context>) -> Records {
        Records { context: context.clone(), free: Mutex::default() }
    }

    /// An empty record that no kernel writes to.
    fn take(&self) -> Result<Record> {
        let mut free = lock(&self.free);
        let is_free =
            |(_, until): &(Record, Option<Mark>)| until.as_ref().is_none_or(|mark| mark.is_reached().unwrap_or(false));
        let record = if let Some(at) = free.iter().position(is_free) {
            free.swap_remove(at).0
        } else {
            let memory = Arc::new(Watched::new(&self.context)?);
            let records = (0..Watched::WORDS)
                .step_by(RECORD)
                .map(|start| Record { memory: memory.clone(), at: start..start + RECORD });
            free.extend(records.map(|record| (record, None)));
            free.pop().expect("memory has room for some").0
        };
        record.clear();
        Ok(record)
    }
}

impl Record {
    fn words(&self) -> &[AtomicU64] {
        &self.memory.words()[self.at.clone()]
    }

    fn is_empty(&self) -> bool {
        self.words()[0].load(Ordering::Acquire) == 0
    }

    /// The fault in it, if it is not empty.
    fn read(&self, device: u16) -> Found {
        let words = self.words();
        let first = words[0].load(Ordering::Acquire);
        let position = (first & 0xff) as usize;
        let of_position = |word: usize| words.get(2 * position + word).map_or(0, |word| word.load(Ordering::Acquire));
        let [index, size] = if position < POSITIONS { [1, 2].map(of_position) } else { [0, 0] };
        Found { device, site: first >> 8, position, index: index as i64, size }
    }

    fn clear(&self) {
        self.words()[0].store(0, Ordering::Release);
    }
}

impl Faults {
    pub(super) fn new(records: Arc<Records>, queue: Weak<Queue>) -> Faults {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Faults {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            records,
            queue,
            record: OnceLock::new(),
            times: AtomicU64::new(0),
            last: Mutex::default(),
            others: Mutex::default(),
            end: Mutex::default(),
        }
    }

    /// Checks the work given to the stream so far. Each fault is reported once per thread.
    ///
    /// # Errors
    /// If a fault was found, or the device failed.
    pub(super) fn check(&self) -> Result<()> {
        let times = self.times.load(Ordering::Acquire);
        self.check_since(times)?;
        lock(&self.others).iter().try_for_each(|other| other.faults.check_since(other.times))
    }

    /// The same, once the host has waited for the stream.
    ///
    /// # Errors
    /// As for [`Faults::check`].
    pub(super) fn check_after_wait(&self) -> Result<()> {
        self.check()?;
        // Later faults of those streams do not concern this one.
        lock(&self.others).retain(|other| !other.point.is_reached().unwrap_or(false));
        Ok(())
    }

    /// Like [`Faults::check`], for this stream alone. A thread that has not checked yet counts `times` faults as
    /// reported.
    fn check_since(&self, times: u64) -> Result<()> {
        if self.record.get().is_some_and(|(record, _)| !record.is_empty()) {
            self.collect()?;
        }
        let now = self.times.load(Ordering::Acquire);
        // A thread that is ending has lost its list.
        let reported = REPORTED
            .try_with(|reported| replace(&mut reported.borrow_mut(), self.number, now))
            .ok()
            .flatten()
            .unwrap_or(times);
        if reported == now { Ok(()) } else { lock(&self.last).clone().map_or(Ok(()), Err) }
    }

    /// Collects a fault, once the stream has done all its work.
    fn collect(&self) -> Result<()> {
        let Some((record, to_error)) = self.record.get() else { return Ok(()) };
        let mut last = lock(&self.last);
        if record.is_empty() {
            return Ok(());
        }
        if let Some(queue) = self.queue.upgrade() {
            queue.end()?.wait()?;
        }
        *last = Some(to_error(&record.read(self.records.context.index)));
        // A thread that sees the record empty also sees the error.
        self.times.fetch_add(1, Ordering::Release);
        record.clear();
        Ok(())
    }

    /// The address of the stream's record, for its kernels.
    ///
    /// # Errors
    /// If there is no memory, or the device fails.
    fn address(&self, to_error: ToError) -> Result<u64> {
        if let Some((record, _)) = self.record.get() {
            return Ok(record.words().as_ptr().addr() as u64);
        }
        let made = lock(&self.end);
        if self.record.get().is_none() {
            let record = self.records.take()?;
            self.record.get_or_init(|| (record, to_error));
        }
        drop(made);
        let (record, _) = self.record.get().expect("it was just made");
        Ok(record.words().as_ptr().addr() as u64)
    }

    /// Orders work given to the stream from now on after a point of another one.
    pub(super) fn follow(&self, faults: &Arc<Faults>, point: &Arc<Mark>) {
        if faults.number == self.number {
            return;
        }
        // What that stream has waited for precedes this one's work, too.
        let mut others: SmallVec<[Other; 1]> = lock(&faults.others).iter().map(Other::clone).collect();
        if faults.record.get().is_some() {
            others.push(Other {
                faults: faults.clone(),
                point: point.clone(),
                times: faults.times.load(Ordering::Acquire),
            });
        }
        let mut existing = lock(&self.others);
        for other in others.into_iter().filter(|other| other.faults.number != self.number) {
            match existing.iter_mut().find(|entry| entry.faults.number == other.faults.number) {
                Some(entry) => entry.point = other.point,
                None => existing.push(other),
            }
        }
    }

    /// Called when the stream gets no more work.
    pub(super) fn close(&self) {
        lock(&self.others).clear();
        if self.record.get().is_some() {
            *lock(&self.end) = self.queue.upgrade().and_then(|queue| queue.end().ok());
        }
    }
}

impl Clone for Other {
    fn clone(&self) -> Other {
        Other { faults: self.faults.clone(), point: self.point.clone(), times: self.times }
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        let end = self.end.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // Without an end, kernels may write to the record at any time, so it is never reused.
        if let (Some((record, _)), Some(end)) = (self.record.take(), end) {
            lock(&self.records.free).push((record, Some(end)));
        }
    }
}

/// Replaces the value of a number, and returns the old one; `None` for a new number.
fn replace(reported: &mut Vec<(u64, u64)>, number: u64, value: u64) -> Option<u64> {
    if let Some((_, known)) = reported.iter_mut().find(|(other, _)| *other == number) {
        return Some(std::mem::replace(known, value));
    }
    if reported.len() == MAX_STREAMS {
        reported.remove(0);
    }
    reported.push((number, value));
    None
}

impl Queue {
    /// Checks the work given to it so far; called before it is given more.
    ///
    /// # Errors
    /// If kernels had a fault, once per thread, or the device failed.
    pub(crate) fn check(&self) -> Result<()> {
        self.faults.check()
    }

    /// The address where its kernels record faults; `to_error` turns them into errors.
    ///
    /// # Errors
    /// If there is no memory, or the device fails.
    pub(crate) fn fault_record(&self, to_error: ToError) -> Result<u64> {
        self.faults.address(to_error)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
