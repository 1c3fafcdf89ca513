//! The recorder of a thread: open spans, a tally per subject, and rings of what happened last.

use super::place::Place;
use super::report::{Event, EventKind, Kind, Moment, TimedSpan};
use crate::error::{Error, Result};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Most spans that are kept. Later ones take the place of the first.
const MAX_SPANS: usize = 1 << 16;
/// Most events that are kept, as for spans.
const MAX_EVENTS: usize = 1 << 12;
/// Most subjects with a tally of their own. All others of a kind share one.
const MAX_SUBJECTS: usize = 1 << 12;
/// Most times that are kept per subject, for the median.
const MAX_TIMES: usize = 1 << 9;

/// The threads that are profiled.
static N_ON: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread is profiled.
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static SESSION: RefCell<Option<Box<Session>>> = const { RefCell::new(None) };
}

/// Whether this thread is profiled.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    N_ON.load(Ordering::Relaxed) != 0 && IS_ON.get()
}

/// What a call moves and computes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Work {
    /// Bytes read and written.
    pub(crate) bytes: u64,
    /// Arithmetic operations.
    pub(crate) operations: f64,
    /// Nanoseconds that the threads of the call need at the rates of the cost model.
    pub(crate) roof: f64,
}

impl Work {
    /// The same, whose bytes take one thread so many nanoseconds. What is computed meanwhile takes no longer.
    pub(crate) fn moving(self, nanos: f64) -> Work {
        Work { roof: self.roof.max(nanos), ..self }
    }

    fn add(&mut self, other: Work) {
        self.bytes += other.bytes;
        self.operations += other.operations;
        self.roof += other.roof;
    }
}

/// What spans of one kind are about.
#[derive(Default)]
pub(crate) struct Subject {
    pub(crate) name: String,
    /// What it computes, for kernels.
    pub(crate) detail: String,
    /// Where it is called.
    pub(crate) place: Option<Place>,
    pub(crate) tier: Option<&'static str>,
    /// Threads that run it.
    pub(crate) threads: Option<usize>,
    /// What each call does, if all do the same.
    pub(crate) work: Work,
    /// Keeps what the key is an address of.
    #[allow(dead_code, reason = "it is owned, and never looked at")]
    pub(crate) held: Option<Box<dyn Any>>,
}

/// The counters of the allocator.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MemorySample {
    /// Bytes in use.
    pub(crate) live: usize,
    /// Allocations from the system so far.
    pub(crate) fresh: u64,
}

/// What a profile is measured against.
#[derive(Debug, Clone)]
pub(crate) struct Conditions {
    pub(crate) rates: String,
    pub(crate) threads: usize,
}

/// The tally of a subject.
pub(super) struct Tally {
    pub(super) kind: Kind,
    pub(super) subject: Subject,
    pub(super) calls: u64,
    pub(super) total: u64,
    /// The part of the total that no inner span has.
    pub(super) own: u64,
    pub(super) least: u64,
    /// Every `stride`-th time.
    pub(super) times: Vec<u64>,
    stride: u64,
    pub(super) work: Work,
    pub(super) fresh: u64,
}

impl Tally {
    fn new(kind: Kind, subject: Subject) -> Tally {
        Tally {
            kind,
            subject,
            calls: 0,
            total: 0,
            own: 0,
            least: u64::MAX,
            times: Vec::new(),
            stride: 1,
            work: Work::default(),
            fresh: 0,
        }
    }

    fn add(&mut self, time: u64, own: u64, work: Work, fresh: u64) {
        if self.calls.is_multiple_of(self.stride) {
            if self.times.len() == MAX_TIMES {
                let mut at = 0;
                self.times.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
                self.stride *= 2;
            }
            if self.calls.is_multiple_of(self.stride) {
                self.times.push(time);
            }
        }
        self.calls += 1;
        self.total += time;
        self.own += own;
        self.least = self.least.min(time);
        self.work.add(work);
        self.fresh += fresh;
    }
}

/// A span that has not ended.
struct Open {
    subject: u32,
    start: u64,
    /// The time of the spans inside it.
    inner: u64,
    /// What the spans inside it did.
    work: Work,
    fresh: u64,
}

/// What a thread has recorded.
pub(super) struct Session {
    began: Instant,
    /// Time that the recorder took to describe subjects. It belongs to no span.
    paused: Duration,
    sample: fn() -> MemorySample,
    pub(super) last: MemorySample,
    known: FxHashMap<(Kind, u64, u64), u32>,
    open: Vec<Open>,
    pub(super) tallies: Vec<Tally>,
    pub(super) spans: VecDeque<TimedSpan>,
    pub(super) n_dropped_spans: u64,
    pub(super) events: VecDeque<Event>,
    pub(super) n_dropped_events: u64,
    /// The bytes in use after each span that is kept.
    pub(super) moments: VecDeque<Moment>,
    pub(super) start: MemorySample,
    pub(super) peak: Option<Moment>,
    /// The time of spans that no other contains.
    pub(super) covered: u64,
    pub(super) wall: u64,
}

impl Session {
    fn now(&self) -> u64 {
        nanoseconds(self.began.elapsed().saturating_sub(self.paused))
    }

    /// Gives allocations since the last look to the innermost open span.
    fn look(&mut self) {
        let now = (self.sample)();
        if let Some(open) = self.open.last_mut() {
            open.fresh += now.fresh.saturating_sub(self.last.fresh);
        }
        self.last = now;
    }

    fn open(&mut self, subject: u32) -> usize {
        self.look();
        let start = self.now();
        self.open.push(Open { subject, start, inner: 0, work: Work::default(), fresh: 0 });
        self.open.len() - 1
    }

    /// Ends the span at this depth, and those inside it. Returns its time.
    fn close(&mut self, depth: usize, work: Option<Work>) -> u64 {
        let mut time = 0;
        let end = self.now();
        self.look();
        while self.open.len() > depth {
            let Some(open) = self.open.pop() else { break };
            time = end.saturating_sub(open.start);
            let is_it = self.open.len() == depth;
            let tally = &mut self.tallies[open.subject as usize];
            let fixed = tally.subject.work;
            let own_work = if fixed == Work::default() { open.work } else { fixed };
            let work = work.filter(|_| is_it).unwrap_or(own_work);
            tally.add(time, time.saturating_sub(open.inner), work, open.fresh);
            match self.open.last_mut() {
                Some(outer) => {
                    outer.inner += time;
                    outer.work.add(work);
                    outer.fresh += open.fresh;
                }
                None => self.covered += time,
            }
            let moment = Moment { at: Duration::from_nanos(end), live: self.last.live, row: open.subject as usize };
            if self.peak.is_none_or(|peak| peak.live < moment.live) {
                self.peak = Some(moment);
            }
            if self.spans.len() == MAX_SPANS {
                self.spans.pop_front();
                self.moments.pop_front();
                self.n_dropped_spans += 1;
            }
            self.moments.push_back(moment);
            self.spans.push_back(TimedSpan {
                row: open.subject as usize,
                start: Duration::from_nanos(open.start),
                time: Duration::from_nanos(time),
                depth: self.open.len(),
            });
        }
        time
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Runs `change` on the session of this thread, if there is one.
fn with<R>(change: impl FnOnce(&mut Session) -> R) -> Option<R> {
    // A guard may be dropped after the thread's own values. The session is borrowed only in this file, never while
    // other code runs.
    SESSION.try_with(|session| session.try_borrow_mut().ok()?.as_deref_mut().map(change)).ok().flatten()
}

/// Keeps a thread recording. Recording ends when it is dropped.
pub(crate) struct Recording(PhantomData<*const ()>);

/// Begins to record the calling thread.
///
/// # Errors
/// If it is recorded already.
pub(crate) fn begin(sample: fn() -> MemorySample) -> Result<Recording> {
    if is_on() {
        let what = "this thread is being profiled already; a profile sees everything inside it, so give parts a name \
                    with `scope` and read them from the outer profile";
        return Err(Error::argument("profile", what));
    }
    let start = sample();
    let session = Session {
        began: Instant::now(),
        paused: Duration::ZERO,
        sample,
        last: start,
        known: FxHashMap::default(),
        open: Vec::new(),
        tallies: Vec::new(),
        spans: VecDeque::new(),
        n_dropped_spans: 0,
        events: VecDeque::new(),
        n_dropped_events: 0,
        moments: VecDeque::new(),
        start,
        peak: None,
        covered: 0,
        wall: 0,
    };
    SESSION.set(Some(Box::new(session)));
    IS_ON.set(true);
    N_ON.fetch_add(1, Ordering::Relaxed);
    Ok(Recording(PhantomData))
}

impl Recording {
    /// Ends recording, and returns what was recorded.
    pub(super) fn take(self) -> Option<Box<Session>> {
        let mut session = SESSION.take()?;
        session.wall = session.now();
        session.close(0, None);
        Some(session)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        IS_ON.set(false);
        N_ON.fetch_sub(1, Ordering::Relaxed);
        drop(SESSION.try_with(RefCell::take));
    }
}

/// An open span of the calling thread, which ends when this is dropped.
#[must_use = "the span ends when this is dropped"]
pub(crate) struct Span {
    depth: Option<usize>,
    work: Option<Work>,
    not_send: PhantomData<*const ()>,
}

/// Opens a span, if this thread is profiled. `key` names its subject among those of its kind. `describe` is called for
/// a new one; its time counts nowhere.
#[inline]
pub(crate) fn open(kind: Kind, key: (u64, u64), describe: impl FnOnce() -> Subject) -> Span {
    let depth = if is_on() { open_now(kind, key, describe) } else { None };
    Span { depth, work: None, not_send: PhantomData }
}

#[cold]
fn open_now(kind: Kind, key: (u64, u64), describe: impl FnOnce() -> Subject) -> Option<usize> {
    let key = (kind, key.0, key.1);
    let known = with(|session| session.known.get(&key).copied())?;
    let subject = match known {
        Some(subject) => subject,
        None => {
            let start = Instant::now();
            let subject = describe();
            with(|session| session.add(key, subject, start))?
        }
    };
    with(|session| session.open(subject))
}

/// The key of a subject that is known by its name.
pub(crate) fn key_of(name: &str) -> u64 {
    FxBuildHasher.hash_one(name)
}

/// Runs what belongs to the recorder: its time counts nowhere.
pub(crate) fn uncounted<R>(what: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = what();
    with(|session| session.paused += start.elapsed());
    result
}

/// How many spans of this thread have ended.
pub(crate) fn n_spans() -> u64 {
    with(|session| session.n_dropped_spans + session.spans.len() as u64).unwrap_or(0)
}

impl Session {
    fn add(&mut self, key: (Kind, u64, u64), subject: Subject, start: Instant) -> u32 {
        let kind = key.0;
        let (key, subject) = match self.tallies.len() < MAX_SUBJECTS {
            true => (key, subject),
            false => ((kind, u64::MAX, u64::MAX), Subject { name: "(others)".into(), ..Subject::default() }),
        };
        let next = self.tallies.len() as u32;
        let at = *self.known.entry(key).or_insert(next);
        if at == next {
            self.tallies.push(Tally::new(kind, subject));
        }
        self.paused += start.elapsed();
        at
    }
}

impl Span {
    /// Says what the call did. Otherwise it is what the spans inside it did.
    pub(crate) fn did(&mut self, work: Work) {
        self.work = Some(work);
    }

    /// Ends it, and returns its time.
    pub(crate) fn end(mut self) -> Duration {
        Duration::from_nanos(self.depth.take().and_then(|depth| with(|s| s.close(depth, self.work))).unwrap_or(0))
    }
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if let Some(depth) = self.depth {
            with(|session| session.close(depth, self.work));
        }
    }
}

/// Records an event, if this thread is profiled.
#[inline]
pub(crate) fn event(kind: EventKind, what: impl FnOnce() -> String) {
    if is_on() {
        let what = what();
        with(|session| {
            if session.events.len() == MAX_EVENTS {
                session.events.pop_front();
                session.n_dropped_events += 1;
            }
            let at = Duration::from_nanos(session.now());
            session.events.push_back(Event { at, kind, what });
        });
    }
}
