//! The cache of a compiled function: its programs by guard.
//!
//! It holds at most `capacity` sets of input types, with LRU eviction. A call keeps the program that it runs alive.
//! Concurrent first calls meet in a [`Cell`]: one builds, the others wait. A thread that is building never waits for
//! another thread, and waiting has a time limit. So functions that call themselves or each other cannot deadlock.
//!
//! Some guards matter only to some functions, such as whether a leaf has a gradient, or a storage offset. These are
//! conditions of a program. Programs with the same guard form a chain of cells, and a call takes the first one whose
//! conditions hold.

use super::backoff::{Costs, Waited};
use super::entry::Entry;
use super::guard::Guard;
use super::numbers::Template;
use super::options::NewTypes;
use crate::dispatch::dispatcher::Dispatcher;
use crate::error::{NotCaptured, Reason};
use crate::ir::Scalar;
use crate::lru::Lru;
use crate::tensor::handle::Tensor;
use crate::tensor::structure::Flat;
use crate::transforms::function::TensorRefs;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The maximum number of programs with the same guard and different conditions.
const MAX_VARIANTS: usize = 8;

/// The maximum number of different graph breaks that are kept.
const MAX_BREAKS: usize = 64;

/// How long a call waits for another thread that builds its program. After that it runs eagerly.
const BUILD_TIMEOUT: Duration = Duration::from_secs(20);

/// The counters of a compiled function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Calls, including those inside other compiled functions.
    pub calls: u64,
    /// Captures, including failed ones.
    pub captures: u64,
    /// Calls that found a program in the cache.
    pub hits: u64,
    /// Calls that ran the function eagerly. `explain()` has the reason of the last one.
    pub eager: u64,
    /// Calls that ran in segments.
    pub deferred: u64,
    /// Graph breaks: captures and segments that ended at a read of a value, or at a call that cannot be captured.
    pub breaks: u64,
    /// Programs that were evicted from the cache.
    pub evictions: u64,
    /// Sets of input types in the cache.
    pub entries: usize,
    /// Segments in the cache.
    pub segments: usize,
    /// Segments that were compiled so far.
    pub segment_captures: u64,
}

/// A graph break: what ended a segment, or kept a function from being captured whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Break {
    /// Why the graph broke.
    pub reason: Reason,
    /// How often it happened.
    pub count: u64,
}

/// A capture of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// What was different from the capture before, with both values. `None` for the first.
    pub differs: Option<String>,
}

/// Captures that are kept: the last ones.
const MAX_CAPTURES: usize = 256;

/// Programs by guard, and counters.
pub(super) struct Cells {
    captures: VecDeque<Captured>,
    /// What the last capture was made for.
    last_captured: Option<Guard>,
    by_guard: Lru<Guard, Arc<Cell>>,
    counts: Counts,
    breaks: Vec<Break>,
    /// The generation of the operators that the functions were captured with.
    generation: u64,
    /// Why the last call ran eagerly, if its cell does not say so.
    inline: Option<Reason>,
    /// Whether the last call ran in segments.
    ran_deferred: bool,
    /// Whether a call kept a tensor that it computed.
    has_kept: bool,
    /// The times of captures and runs.
    pub(super) costs: Costs,
    /// Programs for any plain values in structures, by guard without these.
    templates: Lru<Guard, Arc<Mutex<Template>>>,
    /// The template that the last call ran.
    ran_template: Option<Arc<Mutex<Template>>>,
}

/// The outcome of a cache look-up.
pub(super) enum Found {
    /// A cell, which may be empty.
    Cell(Arc<Cell>),
    /// No cell, because the stance forbids a new one: how the inputs differ from those seen last.
    Differs(String),
}

impl Cells {
    /// No programs; room for so many.
    pub(super) fn new(capacity: usize) -> Cells {
        Cells {
            captures: VecDeque::new(),
            last_captured: None,
            by_guard: Lru::new(capacity),
            counts: Counts::default(),
            breaks: Vec::new(),
            generation: 0,
            inline: None,
            ran_deferred: false,
            has_kept: false,
            costs: Costs::default(),
            templates: Lru::new(capacity),
            ran_template: None,
        }
    }

    /// What may run for plain values that no program was captured with, if numbers are known that change.
    pub(super) fn template(&mut self, inputs: &Flat) -> Option<Arc<Mutex<Template>>> {
        if inputs.words.is_empty() || self.templates.len() == 0 {
            return None;
        }
        self.follow_registrations();
        let guard = Guard::of(inputs);
        if self.by_guard.get(&guard).is_some() {
            return None;
        }
        self.templates.get(&guard.of_any_words()).cloned()
    }

    /// Notes the plain numbers of a trace with these inputs.
    pub(super) fn note_numbers(&mut self, inputs: &Flat, numbers: &[Scalar]) {
        if inputs.words.is_empty() || numbers.is_empty() {
            return;
        }
        let guard = Guard::of(inputs).of_any_words();
        let known = self.templates.get(&guard).cloned();
        let template = known.unwrap_or_default();
        lock(&template).note(&inputs.words, numbers);
        self.templates.put(guard, template);
    }

    /// Records that a call ran a template.
    pub(super) fn runs_template(&mut self, template: Arc<Mutex<Template>>, is_captured: bool) {
        self.counts.calls += 1;
        let count = if is_captured { &mut self.counts.captures } else { &mut self.counts.hits };
        *count += 1;
        self.inline = None;
        self.ran_deferred = false;
        self.ran_template = Some(template);
    }

    /// The template that the last call ran.
    pub(super) fn ran_template(&self) -> Option<Arc<Mutex<Template>>> {
        self.ran_template.clone()
    }

    /// The cell for inputs of these types. If there is none it is added, unless `frozen` and the cache is not empty.
    pub(super) fn find(&mut self, inputs: &Flat, frozen: bool) -> Found {
        self.follow_registrations();
        self.counts.calls += 1;
        self.inline = None;
        self.ran_deferred = false;
        self.ran_template = None;
        // Most calls have the same types as the last one.
        if let Some(cell) = self.by_guard.newest_if(|guard| guard.holds(inputs)).cloned() {
            return self.hit(&cell, inputs, frozen);
        }
        let guard = Guard::of(inputs);
        if let Some(cell) = self.by_guard.get(&guard).cloned() {
            return self.hit(&cell, inputs, frozen);
        }
        if let (true, Some((known, _))) = (frozen, self.by_guard.by_use().next()) {
            return Found::Differs(known.violation(inputs).unwrap_or_else(|| "their program was evicted".into()));
        }
        let cell = Arc::new(Cell::default());
        self.counts.evictions += u64::from(self.by_guard.put(guard, cell.clone()).is_some());
        Found::Cell(cell)
    }

    /// Forgets what was captured if kernels were registered or undone since: a graph would call the old ones.
    #[inline]
    fn follow_registrations(&mut self) {
        let now = Dispatcher::global().generation();
        if self.generation != now {
            self.generation = now;
            self.by_guard.clear();
            self.templates.clear();
            self.breaks.clear();
        }
    }

    /// The cell of the last call, if its guard and conditions hold for these tensors and `runs` accepts its entry. Then
    /// the call is counted as a hit.
    pub(super) fn repeated(&mut self, inputs: &[&Tensor], runs: impl FnOnce(&Entry) -> bool) -> Option<Arc<Cell>> {
        self.follow_registrations();
        let cell = self.by_guard.newest_if(|guard| guard.holds_of_tensors(inputs))?;
        let cell = cell.known(inputs)?;
        if !cell.entry().is_some_and(runs) {
            return None;
        }
        let cell = cell.clone();
        self.counts.calls += 1;
        self.counts.hits += 1;
        self.inline = None;
        self.ran_deferred = false;
        self.ran_template = None;
        Some(cell)
    }

    /// The cell for inputs of these types, if it has an entry.
    pub(super) fn known(&mut self, inputs: &Flat) -> Option<Arc<Cell>> {
        let tensors: TensorRefs<'_> = inputs.tensors.iter().collect();
        self.by_guard.get(&Guard::of(inputs))?.known(&tensors).cloned()
    }

    fn hit(&mut self, first: &Arc<Cell>, inputs: &Flat, frozen: bool) -> Found {
        let tensors: TensorRefs<'_> = inputs.tensors.iter().collect();
        if let Some(cell) = first.known(&tensors) {
            self.counts.hits += 1;
            return Found::Cell(cell.clone());
        }
        match first.entry() {
            Some(Entry::Graph(program)) if frozen => {
                let what = program.violation(&tensors).unwrap_or_else(|| "nothing else".into());
                Found::Differs(format!("the program requires that {what}"))
            }
            Some(Entry::Graph(_) | Entry::Eager(_) | Entry::Deferred(_) | Entry::Refused(_)) | None => {
                Found::Cell(first.fitting(&tensors))
            }
        }
    }

    /// The entry for the types seen last, or why the function ran eagerly instead.
    pub(super) fn latest(&self) -> Result<Arc<Cell>, Reason> {
        if let Some(reason) = &self.inline {
            return Err(reason.clone());
        }
        let latest = self.by_guard.by_use().find(|(_, cell)| cell.entry().is_some());
        latest.map(|(_, cell)| cell.latest()).ok_or(match self.counts.calls {
            0 => Reason::NotCalled,
            _ => NotCaptured::NoResultYet.into(),
        })
    }

    /// Records that a call runs eagerly for this reason, which its cell does not say.
    pub(super) fn runs_inline(&mut self, reason: Reason) {
        self.counts.eager += 1;
        self.inline = Some(reason);
        self.ran_deferred = false;
        self.ran_template = None;
    }

    /// Records that a call ran in segments.
    pub(super) fn runs_deferred(&mut self) {
        self.inline = None;
        self.ran_deferred = true;
    }

    /// Whether the last call ran in segments.
    pub(super) fn ran_deferred(&self) -> bool {
        self.ran_deferred
    }

    /// Records that the function kept a tensor that it computed. Returns whether it did so before.
    pub(super) fn keeps_again(&mut self) -> bool {
        self.inline = Some(NotCaptured::KeptTensor.into());
        std::mem::replace(&mut self.has_kept, true)
    }

    /// Why inputs of new types are not captured now, if they are not.
    pub(super) fn reason_to_wait(&self, policy: NewTypes, waited: &Waited) -> Option<Reason> {
        match policy {
            NewTypes::Capture => None,
            NewTypes::Wait => self.costs.reason_to_wait(self.counts.captures, waited),
        }
    }

    /// Records a graph break.
    pub(super) fn breaks_at(&mut self, reason: &Reason) {
        self.counts.breaks += 1;
        if let Some(one) = self.breaks.iter_mut().find(|one| one.reason == *reason) {
            one.count += 1;
        } else if self.breaks.len() < MAX_BREAKS {
            self.breaks.push(Break { reason: reason.clone(), count: 1 });
        }
    }

    /// The graph breaks so far.
    pub(super) fn breaks(&self) -> &[Break] {
        &self.breaks
    }

    /// Counts a capture for these inputs, and notes what is different from the one before.
    pub(super) fn note_capture(&mut self, inputs: &Flat) -> u64 {
        let same = || "the inputs have the same types, and something else that the program depends on differs".into();
        let differs = self.last_captured.as_ref().map(|last| last.violation(inputs).unwrap_or_else(same));
        self.last_captured = Some(Guard::of(inputs));
        if self.captures.len() == MAX_CAPTURES {
            self.captures.pop_front();
        }
        self.captures.push_back(Captured { differs });
        self.counts.captures += 1;
        self.counts.captures
    }

    pub(super) fn captures(&self) -> Vec<Captured> {
        self.captures.iter().cloned().collect()
    }

    pub(super) fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    pub(super) fn counts(&self) -> Counts {
        Counts { entries: self.by_guard.len(), ..self.counts }
    }
}

/// The state of a template.
pub(super) fn lock(template: &Mutex<Template>) -> MutexGuard<'_, Template> {
    template.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of one program. Concurrent first calls meet here, and one of them builds it.
#[derive(Default)]
pub(super) struct Cell {
    entry: OnceLock<Entry>,
    /// Replaces the entry if a check found it wrong.
    correction: OnceLock<Entry>,
    is_checked: AtomicBool,
    /// The time of eager runs in place of a program.
    pub(super) waited: Waited,
    is_building: Mutex<bool>,
    built: Condvar,
    /// The next cell of the chain, for inputs that violate a condition of this one.
    next: OnceLock<Arc<Cell>>,
    /// The number of cells before it in the chain.
    position: usize,
    /// The condition of the cell before it that was violated.
    because: String,
}

thread_local! {
    static IS_BUILDING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// The right to build. Dropping it lets others build, even after a panic.
pub(super) struct Building<'a>(&'a Cell);

impl Drop for Building<'_> {
    fn drop(&mut self) {
        IS_BUILDING.set(false);
        *self.0.lock() = false;
        self.0.built.notify_all();
    }
}

impl Cell {
    /// The current entry.
    #[inline]
    pub(super) fn entry(&self) -> Option<&Entry> {
        self.correction.get().or_else(|| self.entry.get())
    }

    /// Whether the conditions of its entry hold for these inputs. `None` if there is no entry.
    #[inline]
    fn fits(&self, inputs: &[&Tensor]) -> Option<bool> {
        self.entry().map(|entry| match entry {
            Entry::Graph(program) => program.holds(inputs),
            Entry::Eager(_) | Entry::Deferred(_) | Entry::Refused(_) => true,
        })
    }

    /// The first cell of the chain, from here on, whose conditions hold for these inputs.
    #[inline]
    fn known(self: &Arc<Cell>, inputs: &[&Tensor]) -> Option<&Arc<Cell>> {
        let mut cell = self;
        while !cell.fits(inputs)? {
            cell = cell.next.get()?;
        }
        Some(cell)
    }

    /// The first cell of the chain, from here on, whose conditions hold, or else a new or empty one.
    pub(super) fn fitting(self: &Arc<Cell>, inputs: &[&Tensor]) -> Arc<Cell> {
        let mut cell = self;
        while cell.fits(inputs) == Some(false) {
            let position = cell.position + 1;
            let because = || match cell.entry() {
                Some(Entry::Graph(program)) => program.violation(inputs).unwrap_or_default(),
                Some(Entry::Eager(_) | Entry::Deferred(_) | Entry::Refused(_)) | None => String::new(),
            };
            let next = || Arc::new(Cell { position, because: because(), ..Cell::default() });
            cell = cell.next.get_or_init(next);
        }
        cell.clone()
    }

    /// Why this cell is not built, if the chain has reached its limit.
    pub(super) fn beyond_limit(&self) -> Option<Reason> {
        (self.position >= MAX_VARIANTS)
            .then(|| NotCaptured::TooManyVariants { programs: MAX_VARIANTS, last: self.because.as_str().into() }.into())
    }

    /// The last cell of the chain that has an entry.
    fn latest(self: &Arc<Cell>) -> Arc<Cell> {
        let mut cell = self;
        while let Some(next) = cell.next.get().filter(|next| next.entry().is_some()) {
            cell = next;
        }
        cell.clone()
    }

    /// Whether the entry has not been checked yet. Only the first caller gets true.
    pub(super) fn is_unchecked(&self) -> bool {
        !self.is_checked.swap(true, Ordering::Relaxed)
    }

    /// Replaces an entry that is wrong.
    pub(super) fn correct(&self, entry: Entry) {
        let _ = self.correction.set(entry);
    }

    /// Sets the entry, unless there is one. Returns the entry.
    pub(super) fn put(&self, entry: Entry) -> &Entry {
        self.entry.get_or_init(|| entry)
    }

    /// Waits for the right to build. `None` if there is an entry now, if this thread is building already, or if the
    /// time limit passed.
    pub(super) fn build(&self) -> Option<Building<'_>> {
        if IS_BUILDING.get() {
            return None;
        }
        let until = Instant::now() + BUILD_TIMEOUT;
        let mut is_building = self.lock();
        while *is_building {
            let left = until.checked_duration_since(Instant::now())?;
            is_building = self.built.wait_timeout(is_building, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if self.entry.get().is_some() {
            return None;
        }
        *is_building = true;
        IS_BUILDING.set(true);
        Some(Building(self))
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_building.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
