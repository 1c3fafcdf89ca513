//! The executables of a compiled function, by what they take for granted.
//!
//! There are never more than the capacity; the one used longest ago goes first, and a call that runs it keeps it until
//! it is done. Concurrent first calls meet in a [`Cell`]: one builds, the others wait. A thread that is building never
//! waits for another one, and nobody waits for ever, so functions that call themselves or each other get stuck nowhere.
//!
//! What a guard cannot see, since only the function knows that it matters (whether a leaf has a gradient, where an input
//! begins), is a condition of the program. Programs for one guard are a chain of cells; a call takes the first that fits.

use super::backoff::{Costs, Waited};
use super::entry::Entry;
use super::guard::Guard;
use super::lru::Lru;
use super::options::NewTypes;
use crate::error::{NotCaptured, Reason};
use crate::tensor::handle::Tensor;
use crate::tensor::structure::Flat;
use crate::transforms::function::TensorRefs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Most programs for inputs of the same types that differ in what they take for granted beyond them.
const MAX_VARIANTS: usize = 8;

/// Most different breaks that are remembered.
const MAX_BREAKS: usize = 64;

/// How long a call waits for another one that builds what it needs; after that it runs eagerly.
const PATIENCE: Duration = Duration::from_secs(20);

/// What happened to a compiled function so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Calls, also those inside other compiled functions.
    pub calls: u64,
    /// How often the function was captured, or given up on.
    pub captures: u64,
    /// Calls that found what they needed.
    pub hits: u64,
    /// Calls in which the function itself ran, each for a reason; that of the last is in `explain()`.
    pub eager: u64,
    /// Calls that ran in segments.
    pub deferred: u64,
    /// Captures and segments that ended at a value being read, or at something that is not captured.
    pub breaks: u64,
    /// Executables that were thrown away to make room.
    pub evictions: u64,
    /// Sets of input types that are held now.
    pub entries: usize,
    /// Segments that are held now.
    pub segments: usize,
    /// Segments that were compiled.
    pub segment_captures: u64,
}

/// Something that ended a segment, or kept a function from being captured whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Break {
    /// What it was.
    pub reason: Reason,
    /// How often it happened.
    pub count: u64,
}

/// Executables by guard, and counters.
#[derive(Default)]
pub(super) struct Cells {
    by_guard: Lru<Guard, Arc<Cell>>,
    counts: Counts,
    breaks: Vec<Break>,
    /// Why the last call ran the function itself, if no cell says so.
    inline: Option<Reason>,
    /// Whether the last call ran in segments.
    ran_deferred: bool,
    /// Whether a call kept a tensor that it computed.
    has_kept: bool,
    /// What captures and runs take.
    pub(super) costs: Costs,
}

/// What is there for some inputs.
pub(super) enum Found {
    /// A place.
    Cell(Arc<Cell>),
    /// No place, and none is made: how the inputs differ from those seen last.
    Differs(String),
}

impl Cells {
    /// The place for inputs of these types; a new one is made unless `frozen` and there is another one already.
    pub(super) fn find(&mut self, inputs: &Flat, capacity: usize, frozen: bool) -> Found {
        self.counts.calls += 1;
        self.inline = None;
        self.ran_deferred = false;
        // Calls mostly repeat the last types.
        if let Some(cell) = self.by_guard.last_if(|guard| guard.holds(inputs)).cloned() {
            return self.hit(&cell, inputs, frozen);
        }
        let guard = Guard::of(inputs);
        if let Some(cell) = self.by_guard.get(&guard).cloned() {
            return self.hit(&cell, inputs, frozen);
        }
        if let (true, Some((known, _))) = (frozen, self.by_guard.by_use().first()) {
            return Found::Differs(known.violation(inputs).unwrap_or_else(|| "they were seen and forgotten".into()));
        }
        let cell = Arc::new(Cell::default());
        self.counts.evictions += self.by_guard.put(guard, cell.clone(), capacity);
        Found::Cell(cell)
    }

    /// The place for these tensors, if it is the one that calls mostly repeat and its entry is one to run with them; the
    /// call is noted then.
    pub(super) fn repeated(&mut self, inputs: &[&Tensor], runs: impl FnOnce(&Entry) -> bool) -> Option<Arc<Cell>> {
        let cell = self.by_guard.last_if(|guard| guard.holds_of_tensors(inputs))?;
        let cell = cell.known(inputs)?;
        if !cell.entry().is_some_and(runs) {
            return None;
        }
        let cell = cell.clone();
        self.counts.calls += 1;
        self.counts.hits += 1;
        self.inline = None;
        self.ran_deferred = false;
        Some(cell)
    }

    /// The place for inputs of these types, if there is one.
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
                Found::Differs(format!("it takes for granted that {what}"))
            }
            Some(Entry::Graph(_) | Entry::Eager(_) | Entry::Deferred(_) | Entry::Refused(_)) | None => {
                Found::Cell(first.fitting(&tensors))
            }
        }
    }

    /// What is known of the types seen last: an entry, or why the function ran in the place of one.
    pub(super) fn latest(&self) -> Result<Arc<Cell>, Reason> {
        if let Some(reason) = &self.inline {
            return Err(reason.clone());
        }
        let latest = self.by_guard.by_use().into_iter().find(|(_, cell)| cell.entry().is_some());
        latest.map(|(_, cell)| cell.latest()).ok_or(match self.counts.calls {
            0 => Reason::NotCalled,
            _ => NotCaptured::NoResultYet.into(),
        })
    }

    /// Notes that the function itself runs, and why: no cell says so.
    pub(super) fn runs_inline(&mut self, reason: Reason) {
        self.counts.eager += 1;
        self.inline = Some(reason);
        self.ran_deferred = false;
    }

    /// Notes that the function ran in segments.
    pub(super) fn runs_deferred(&mut self) {
        self.inline = None;
        self.ran_deferred = true;
    }

    /// Whether the last call ran in segments.
    pub(super) fn ran_deferred(&self) -> bool {
        self.ran_deferred
    }

    /// Notes that the function ran and kept a tensor that it computed; whether it did before.
    pub(super) fn keeps_again(&mut self) -> bool {
        self.inline = Some(NotCaptured::KeptTensor.into());
        std::mem::replace(&mut self.has_kept, true)
    }

    /// Why inputs of types that nothing was captured for are not captured now, if so.
    pub(super) fn reason_to_wait(&self, policy: NewTypes, waited: &Waited) -> Option<Reason> {
        match policy {
            NewTypes::Capture => None,
            NewTypes::Wait => self.costs.reason_to_wait(self.counts.captures, waited),
        }
    }

    /// Notes a break.
    pub(super) fn breaks_at(&mut self, reason: &Reason) {
        self.counts.breaks += 1;
        if let Some(one) = self.breaks.iter_mut().find(|one| one.reason == *reason) {
            one.count += 1;
        } else if self.breaks.len() < MAX_BREAKS {
            self.breaks.push(Break { reason: reason.clone(), count: 1 });
        }
    }

    /// What broke captures and calls so far.
    pub(super) fn breaks(&self) -> &[Break] {
        &self.breaks
    }

    pub(super) fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    pub(super) fn counts(&self) -> Counts {
        Counts { entries: self.by_guard.len(), ..self.counts }
    }
}

/// The place of an executable; concurrent first calls meet here, and one of them builds it.
#[derive(Default)]
pub(super) struct Cell {
    entry: OnceLock<Entry>,
    /// What took its place when it turned out wrong.
    correction: OnceLock<Entry>,
    is_checked: AtomicBool,
    /// How long the function itself ran in its place.
    pub(super) waited: Waited,
    is_building: Mutex<bool>,
    built: Condvar,
    /// Where to look if the entry takes for granted what is not so.
    next: OnceLock<Arc<Cell>>,
    /// How many come before it.
    position: usize,
    /// What the one before it takes for granted and was not so.
    because: String,
}

thread_local! {
    static IS_BUILDING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Lets others build once it is dropped, also by a panic.
pub(super) struct Building<'a>(&'a Cell);

impl Drop for Building<'_> {
    fn drop(&mut self) {
        IS_BUILDING.set(false);
        *self.0.lock() = false;
        self.0.built.notify_all();
    }
}

impl Cell {
    /// What was built.
    #[inline]
    pub(super) fn entry(&self) -> Option<&Entry> {
        self.correction.get().or_else(|| self.entry.get())
    }

    /// Whether its entry is one for these inputs, as far as a guard does not say.
    #[inline]
    fn fits(&self, inputs: &[&Tensor]) -> Option<bool> {
        self.entry().map(|entry| match entry {
            Entry::Graph(program) => program.holds(inputs),
            Entry::Eager(_) | Entry::Deferred(_) | Entry::Refused(_) => true,
        })
    }

    /// From here on, the first cell whose entry is one for these inputs, if there is one.
    #[inline]
    fn known(self: &Arc<Cell>, inputs: &[&Tensor]) -> Option<&Arc<Cell>> {
        let mut cell = self;
        while !cell.fits(inputs)? {
            cell = cell.next.get()?;
        }
        Some(cell)
    }

    /// From here on, the first cell whose entry is one for these inputs, or where one is to be made.
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

    /// Why no further program is to be made for inputs of the same types, if there are enough.
    pub(super) fn beyond_limit(&self) -> Option<Reason> {
        (self.position >= MAX_VARIANTS)
            .then(|| NotCaptured::TooManyVariants { programs: MAX_VARIANTS, last: self.because.as_str().into() }.into())
    }

    /// From here on, the last cell that has an entry.
    fn latest(self: &Arc<Cell>) -> Arc<Cell> {
        let mut cell = self;
        while let Some(next) = cell.next.get().filter(|next| next.entry().is_some()) {
            cell = next;
        }
        cell.clone()
    }

    /// Whether it is for the caller to check the entry: the first one who asks.
    pub(super) fn is_unchecked(&self) -> bool {
        !self.is_checked.swap(true, Ordering::Relaxed)
    }

    /// Puts another entry in the place of one that is wrong.
    pub(super) fn correct(&self, entry: Entry) {
        let _ = self.correction.set(entry);
    }

    /// Puts an entry here, unless one is here; what is here then.
    pub(super) fn put(&self, entry: Entry) -> &Entry {
        self.entry.get_or_init(|| entry)
    }

    /// The right to build, once nobody else does. `None` if there is an entry now, if this thread is building already,
    /// or if it took too long.
    pub(super) fn build(&self) -> Option<Building<'_>> {
        if IS_BUILDING.get() {
            return None;
        }
        let until = Instant::now() + PATIENCE;
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
