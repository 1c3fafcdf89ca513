//! A profile as plain data.

use super::place::Place;
use super::recorder::{Conditions, Recording, Session, Tally};
use crate::error::{Error, Result};
use std::time::Duration;

/// What a part of a program cost: times per operator, kernel and call, the last spans, and the memory in use.
///
/// [`crate::profile()`] makes it. Every view of it is a function of this data: a table (`Display`),
/// [`Profile::to_json`], [`Profile::to_html`], and [`Profile::to_chrome_trace`].
#[derive(Debug, Clone)]
pub struct Profile {
    /// The time from beginning to end, without what the profiler took to describe what it met.
    pub wall: Duration,
    /// The sum of the spans that no other span contains. The rest of the wall time is none of this library's.
    pub covered: Duration,
    /// What ran, the largest own time first.
    pub rows: Vec<Row>,
    /// The last spans, in the order in which they ended.
    pub spans: Vec<TimedSpan>,
    /// How many earlier spans are missing from `spans`. Rows count all.
    pub dropped_spans: u64,
    /// The last events.
    pub events: Vec<Event>,
    /// How many earlier events are missing from `events`.
    pub dropped_events: u64,
    /// The memory in use.
    pub memory: Memory,
    /// The source of the rates that make the roof.
    pub rates: String,
    /// The threads of the worker pool.
    pub threads: usize,
}

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// An operator that was called eagerly.
    Operator,
    /// A kernel of a compiled function: a group of its plan.
    Kernel,
    /// A run of a compiled function, of one of its segments, or of its backward pass.
    Call,
    /// A backward pass.
    Backward,
    /// A node of the tape in a backward pass.
    Node,
    /// The capture of a function.
    Capture,
    /// Passes, planning and compilation of a captured graph.
    Compile,
    /// A part that the program named with [`scope`](crate::scope()).
    Scope,
}

/// All calls of one operator, kernel or part.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What it is.
    pub kind: Kind,
    /// Its name: that of the operator, or of the compiled function with the number of the kernel.
    pub name: String,
    /// The ops of a kernel.
    pub detail: String,
    /// Where it is called: operators that are called from several lines have a row for each. For kernels, the call
    /// that its first op comes from.
    pub place: Option<Place>,
    /// The code tier of a kernel.
    pub tier: Option<&'static str>,
    /// The threads that ran it, if they are known.
    pub threads: Option<usize>,
    /// How often it ran.
    pub calls: u64,
    /// The time of all calls.
    pub total: Duration,
    /// The time of all calls without that of other rows inside them.
    pub own: Duration,
    /// The time of the fastest call.
    pub least: Duration,
    /// The median of the times, from a sample if there were many.
    pub median: Duration,
    /// The bytes that all calls had to read and write, each once per call.
    pub bytes: u64,
    /// The arithmetic operations of all calls, where the cost model knows them; 0 otherwise.
    pub operations: f64,
    /// How much of the rates of its threads it reached: 1 is as fast as the cost model deems possible.
    pub roof: Option<f64>,
    /// Allocations of all calls that took memory from the system.
    pub fresh_allocations: u64,
}

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedSpan {
    /// Its row.
    pub row: usize,
    /// When it began.
    pub start: Duration,
    /// How long it took.
    pub time: Duration,
    /// How many other spans contain it.
    pub depth: usize,
}

/// Something that happened at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Duration,
    /// What kind of thing.
    pub kind: EventKind,
    /// What exactly.
    pub what: String,
}

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A function was broken into segments, or not captured.
    GraphBreak,
}

/// The memory that tensors of the process had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in use at the beginning.
    pub start: usize,
    /// Allocations that took memory from the system.
    pub fresh_allocations: u64,
    /// The most bytes in use after a span, with the span's row. `None` if there was no span.
    pub peak: Option<Moment>,
    /// The bytes in use after each span of [`Profile::spans`].
    pub timeline: Vec<Moment>,
}

/// The memory in use at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub at: Duration,
    /// Bytes in use.
    pub live: usize,
    /// The row of the span that had just ended.
    pub row: usize,
}

impl Recording {
    /// Ends recording, and makes the profile.
    ///
    /// # Errors
    /// If the recording was lost, which is a broken invariant of this crate.
    pub(crate) fn finish(self, conditions: Conditions) -> Result<Profile> {
        let session = self.take();
        session
            .map(|session| Profile::of(*session, conditions))
            .ok_or_else(|| Error::Internal { message: "the recording of a profile was lost".into() })
    }
}

impl Profile {
    fn of(session: Session, conditions: Conditions) -> Profile {
        let mut order: Vec<usize> = (0..session.tallies.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(session.tallies[at].own));
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, &old)| place[old] = new);
        let mut rows: Vec<Option<Row>> = session.tallies.into_iter().map(|tally| Some(Row::of(tally))).collect();
        let rows = order.iter().filter_map(|&old| rows[old].take()).collect();
        let moved = |moment: Moment| Moment { row: place[moment.row], ..moment };
        Profile {
            wall: Duration::from_nanos(session.wall),
            covered: Duration::from_nanos(session.covered),
            rows,
            spans: session.spans.into_iter().map(|span| TimedSpan { row: place[span.row], ..span }).collect(),
            dropped_spans: session.n_dropped_spans,
            events: session.events.into(),
            dropped_events: session.n_dropped_events,
            memory: Memory {
                start: session.start.live,
                fresh_allocations: session.last.fresh.saturating_sub(session.start.fresh),
                peak: session.peak.map(moved),
                timeline: session.moments.into_iter().map(moved).collect(),
            },
            rates: conditions.rates,
            threads: conditions.threads,
        }
    }

    /// The rows of one kind, the largest own time first.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.kind == kind)
    }

    /// The row of this kind and name.
    pub fn row(&self, kind: Kind, name: &str) -> Option<&Row> {
        self.of_kind(kind).find(|row| row.name == name)
    }
}

impl Row {
    fn of(mut tally: Tally) -> Row {
        tally.times.sort_unstable();
        let median = tally.times.get(tally.times.len() / 2).copied().unwrap_or(0);
        Row {
            kind: tally.kind,
            name: tally.subject.name,
            detail: tally.subject.detail,
            place: tally.subject.place,
            tier: tally.subject.tier,
            threads: tally.subject.threads,
            calls: tally.calls,
            total: Duration::from_nanos(tally.total),
            own: Duration::from_nanos(tally.own),
            least: Duration::from_nanos(if tally.calls == 0 { 0 } else { tally.least }),
            median: Duration::from_nanos(median),
            bytes: tally.work.bytes,
            operations: tally.work.operations,
            roof: (tally.work.roof > 0.0 && tally.total > 0).then(|| tally.work.roof / tally.total as f64),
            fresh_allocations: tally.fresh,
        }
    }

    /// Gigabytes per second, if bytes are known.
    pub fn gigabytes_per_second(&self) -> Option<f64> {
        self.rate(self.bytes as f64)
    }

    /// Gigaflops per second, if the cost model knows the operations.
    pub fn gigaflops_per_second(&self) -> Option<f64> {
        self.rate(self.operations)
    }

    fn rate(&self, amount: f64) -> Option<f64> {
        (amount > 0.0 && self.total > Duration::ZERO).then(|| amount / self.total.as_nanos() as f64)
    }
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 8] = [
        Kind::Operator,
        Kind::Kernel,
        Kind::Call,
        Kind::Backward,
        Kind::Node,
        Kind::Capture,
        Kind::Compile,
        Kind::Scope,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Operator => "op",
            Kind::Kernel => "kernel",
            Kind::Call => "call",
            Kind::Backward => "backward",
            Kind::Node => "node",
            Kind::Capture => "capture",
            Kind::Compile => "compile",
            Kind::Scope => "scope",
        }
    }
}

impl EventKind {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::GraphBreak => "graph break",
        }
    }
}
