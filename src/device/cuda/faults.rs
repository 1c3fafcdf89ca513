//! What kernels find wrong with their operands, told late: nobody waits for it.
//!
//! A kernel that divides an integer by zero, or is given an index outside its dimension, writes so to the record of its stream,
//! a few words of the host, and goes on with zeros. The record is looked at when work is given to the stream, which is a load,
//! and when the host has waited for it. Who finds something there waits for all work of the stream, makes it an error, and the
//! record is empty again.
//!
//! What always holds: the error is told once to each thread that has used the stream since before it was found, so no thread takes
//! a value that was computed of a faulty one for a good one. A stream that waits for another one is told what that one has found,
//! until the host has come past the point that it waited for.
//!
//! The first launch that finds something is named; of its threads, any. How that reads, those say who start kernels ([`Tell`]).

use super::driver::{Context, Mark, Queue, Watched};
use super::{Found, Tell};
use crate::error::{Error, Result};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Words of a record: site and place, then per place an index and the size of its dimension. The prelude has the same.
const RECORD: usize = 32;
/// Places that are told apart.
const PLACES: usize = 8;
/// Streams whose last error a thread knows.
const MAX_STREAMS: usize = 64;

/// The records of a device.
pub(super) struct Records {
    context: Arc<Context>,
    /// Free ones, and up to which point kernels may still write to them.
    free: Mutex<Vec<(Record, Option<Mark>)>>,
}

/// The record of a stream.
struct Record {
    memory: Arc<Watched>,
    at: Range<usize>,
}

/// What the kernels of a stream have found.
pub(crate) struct Faults {
    /// Tells streams apart, also those that are gone.
    number: u64,
    records: Arc<Records>,
    queue: Weak<Queue>,
    /// Made when a kernel is started that may find something.
    record: OnceLock<(Record, Tell)>,
    /// How often something was found.
    times: AtomicU64,
    /// The error of the last time.
    last: Mutex<Option<Error>>,
    others: Mutex<SmallVec<[Other; 1]>>,
    /// Behind the last work of a stream that is gone.
    end: Mutex<Option<Mark>>,
}

/// Another stream that one has waited for.
struct Other {
    faults: Arc<Faults>,
    /// Up to where.
    point: Arc<Mark>,
    /// How often it had found something then.
    times: u64,
}

thread_local! {
    /// By the number of a stream, how often it had found something when the thread last looked; the oldest first.
    static TOLD: RefCell<Vec<(u64, u64)>> = const { RefCell::new(Vec::new()) };
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
        let record = if let Some(place) = free.iter().position(is_free) {
            free.swap_remove(place).0
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

    /// What it says, if it is not empty.
    fn read(&self, device: u16) -> Found {
        let words = self.words();
        let first = words[0].load(Ordering::Acquire);
        let place = (first & 0xff) as usize;
        let of_place = |word: usize| words.get(2 * place + word).map_or(0, |word| word.load(Ordering::Acquire));
        let [index, size] = if place < PLACES { [1, 2].map(of_place) } else { [0, 0] };
        Found { device, site: first >> 8, place, index: index as i64, size }
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

    /// Whether work given to the stream so far is not known to be wrong; the thread is told otherwise, once.
    ///
    /// # Errors
    /// What was found, or if the device failed.
    pub(super) fn check(&self) -> Result<()> {
        let times = self.times.load(Ordering::Acquire);
        self.check_since(times)?;
        lock(&self.others).iter().try_for_each(|other| other.faults.check_since(other.times))
    }

    /// The same, when the host has waited for the stream.
    ///
    /// # Errors
    /// As [`Faults::check`].
    pub(super) fn check_behind(&self) -> Result<()> {
        self.check()?;
        // What those have found since is nothing to this stream.
        lock(&self.others).retain(|other| !other.point.is_reached().unwrap_or(false));
        Ok(())
    }

    /// As [`Faults::check`] of this stream alone; a thread that has not looked yet was told what was found so often.
    fn check_since(&self, times: u64) -> Result<()> {
        if self.record.get().is_some_and(|(record, _)| !record.is_empty()) {
            self.collect()?;
        }
        let now = self.times.load(Ordering::Acquire);
        // A thread that ends has forgotten what it was told.
        let told =
            TOLD.try_with(|told| replace(&mut told.borrow_mut(), self.number, now)).ok().flatten().unwrap_or(times);
        if told == now { Ok(()) } else { lock(&self.last).clone().map_or(Ok(()), Err) }
    }

    /// Takes what was found over, once the stream has done all that it was given.
    fn collect(&self) -> Result<()> {
        let Some((record, tell)) = self.record.get() else { return Ok(()) };
        let mut last = lock(&self.last);
        if record.is_empty() {
            return Ok(());
        }
        if let Some(queue) = self.queue.upgrade() {
            queue.end()?.wait()?;
        }
        *last = Some(tell(&record.read(self.records.context.index)));
        // Who sees an empty record also sees that there is an error.
        self.times.fetch_add(1, Ordering::Release);
        record.clear();
        Ok(())
    }

    /// The address of the stream's record, for kernels that write to it.
    ///
    /// # Errors
    /// If there is no memory, or the device fails.
    fn address(&self, tell: Tell) -> Result<u64> {
        if let Some((record, _)) = self.record.get() {
            return Ok(record.words().as_ptr().addr() as u64);
        }
        let made = lock(&self.end);
        if self.record.get().is_none() {
            let record = self.records.take()?;
            self.record.get_or_init(|| (record, tell));
        }
        drop(made);
        let (record, _) = self.record.get().expect("it was just made");
        Ok(record.words().as_ptr().addr() as u64)
    }

    /// Work given to the stream from now on comes behind a point of another one.
    pub(super) fn follow(&self, faults: &Arc<Faults>, point: &Arc<Mark>) {
        if faults.number == self.number {
            return;
        }
        // What that one has waited for is behind it, too.
        let mut others: SmallVec<[Other; 1]> = lock(&faults.others).iter().map(Other::clone).collect();
        if faults.record.get().is_some() {
            others.push(Other {
                faults: faults.clone(),
                point: point.clone(),
                times: faults.times.load(Ordering::Acquire),
            });
        }
        let mut known = lock(&self.others);
        for other in others.into_iter().filter(|other| other.faults.number != self.number) {
            match known.iter_mut().find(|known| known.faults.number == other.faults.number) {
                Some(known) => known.point = other.point,
                None => known.push(other),
            }
        }
    }

    /// The stream is given no more work.
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
        // Nobody knows when a stream that has no end is done with its record, which is then never used again.
        if let (Some((record, _)), Some(end)) = (self.record.take(), end) {
            lock(&self.records.free).push((record, Some(end)));
        }
    }
}

/// Puts a value in the place of the one for a number, which is given back; there is none for a new one.
fn replace(told: &mut Vec<(u64, u64)>, number: u64, value: u64) -> Option<u64> {
    if let Some((_, known)) = told.iter_mut().find(|(other, _)| *other == number) {
        return Some(std::mem::replace(known, value));
    }
    if told.len() == MAX_STREAMS {
        told.remove(0);
    }
    told.push((number, value));
    None
}

impl Queue {
    /// Whether work given to it so far is not known to be wrong; to be asked before it is given more.
    ///
    /// # Errors
    /// What kernels have found, told once to each thread, or if the device failed.
    pub(crate) fn check(&self) -> Result<()> {
        self.faults.check()
    }

    /// Where its kernels write what they find wrong; `tell` makes an error of it.
    ///
    /// # Errors
    /// If there is no memory, or the device fails.
    pub(crate) fn fault_record(&self, tell: Tell) -> Result<u64> {
        self.faults.address(tell)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
