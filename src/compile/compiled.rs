//! Compiled functions: captured once, run many times.
//!
//! The first call with inputs of new types records the function without computing anything, and then compiles and runs
//! the recording. If an input requires gradients, the function runs first and is then traced abstractly. A function
//! that reads values runs in segments, from its first call on. What cannot be captured at all runs eagerly, with a
//! reason. Programs are cached by input types, with LRU eviction.

use super::capture::{self, Capture};
use super::cells::{Break, Building, Captured, Cell, Cells, Counts, Found, lock};
use super::entry::Entry;
use super::explain::Explain;
use super::failure::{as_located, is_of_memory, refused};
use super::numbers::Outline;
use super::options::{BreakPolicy, CompileOptions, Determinism, Stance, stance_here};
use super::panics::{applied, guarded};
use super::profiled;
use super::program::{Joint, Program};
use super::segments::Segments;
use super::spans;
use super::tuning::Settings;
use crate::autograd::{detects_anomalies, is_unrecorded_view};
use crate::debug;
use crate::device::DeviceKind;
use crate::dispatch::modes;
use crate::eager::{current_numerics, numerics};
use crate::error::{Error, NotCaptured, Reason, Result};
use crate::profile::{self, Profile};
use crate::tensor::handle::Tensor;
use crate::tensor::ids::Mark;
use crate::tensor::structure::{Flat, TensorStruct};
use crate::transforms::function::{Function, Inputs, TensorRefs};
use crate::transforms::tracer;
use crate::transforms::tracer::{Draws, First, GradientsBefore, NoTrace, Reads};
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A compiled function. Made by [`compile`]. Threads can share it.
pub struct Compiled<F, A> {
    function: F,
    pub(super) options: CompileOptions,
    cells: Mutex<Cells>,
    /// The compiled segments of deferred calls.
    segments: Arc<Segments>,
    arguments: PhantomData<fn(A)>,
}

/// Compiles a function of tensors. It is captured at its first call, once per set of input types.
///
/// ```
/// # fn main() -> opfuse::Result<()> {
/// use opfuse::{Tensor, compile};
/// let f = compile(|a: &Tensor, b: &Tensor| (a * b)?.relu());
/// let a = Tensor::from_slice(&[1.0f32, -2.0], &[2])?;
/// assert_eq!(f.call((&a, &a))?.to_vec::<f32>()?, [1.0, 4.0]);
/// # Ok(())
/// # }
/// ```
pub fn compile<A, F: Function<A>>(function: F) -> Compiled<F, A> {
    compile_with(function, CompileOptions::default())
}

/// Like [`compile`], with options.
pub fn compile_with<A, F: Function<A>>(function: F, options: CompileOptions) -> Compiled<F, A> {
    let segments = Arc::new(Segments::new(&options, function.name()));
    let cells = Mutex::new(Cells::new(options.capacity));
    Compiled { function, options, cells, segments, arguments: PhantomData }
}

impl<A, F: Function<A>> Compiled<F, A> {
    /// Calls the function. It runs compiled if it could be captured, and eagerly otherwise. Both give the same bits,
    /// unless [`Numerics::Fast`](crate::Numerics::Fast) is chosen.
    ///
    /// # Errors
    /// An error of the function. [`Error::Panicked`] if it panics. An error if the stance or the break policy forbids
    /// the call. Later calls are not affected.
    #[track_caller]
    pub fn call(&self, inputs: impl Inputs<A>) -> Result<F::Output> {
        // What a program does besides its kernels, such as writes to inputs, stands where it is called.
        let _place = if profile::is_on() { Some(profile::stands_for()) } else { None };
        let _span = spans::call(self.function.name());
        let _numerics = self.options.numerics.map(numerics);
        if let Some(output) = inputs.as_tensors().and_then(|tensors| self.call_again(&tensors)) {
            return output;
        }
        let inputs = inputs.into_parts()?;
        let stance = stance_here().unwrap_or(self.options.stance);
        if let Some(reason) = self.bypass(inputs.tensors.iter(), stance) {
            self.count(|cells| cells.counts_mut().calls += 1);
            return self.run_inline(&inputs, reason);
        }
        if stance == Stance::Deferred {
            self.count(|cells| cells.counts_mut().calls += 1);
            return self.run_deferred(&inputs);
        }
        if let Some(output) = self.call_with_numbers(&inputs, stance) {
            return output;
        }
        let found = self.count(|cells| cells.find(&inputs, stance == Stance::FailOnRecompile));
        match found {
            Found::Cell(cell) => self.call_at(&cell, &inputs),
            Found::Differs(how) => {
                let what = format!("the stance is FailOnRecompile, but {how}; call it with types seen before");
                Err(Error::argument("compile", what))
            }
        }
    }

    /// A call with plain values that no program was captured with, where a program takes changing numbers as inputs. It
    /// traces the function to find them. `None` if no such program can run.
    fn call_with_numbers(&self, inputs: &Flat, stance: Stance) -> Option<Result<F::Output>> {
        if stance != Stance::Default || self.options.determinism == Determinism::Checked {
            return None;
        }
        let template = self.count(|cells| cells.template(inputs))?;
        let tensors: TensorRefs<'_> = inputs.tensors.iter().collect();
        loop {
            let changing = lock(&template).changing()?;
            let (start, now) = (Mark::now(), GradientsBefore::default());
            let traced = guarded(|| capture::on_shapes(&self.function, inputs, self.reads(), now, &changing));
            let Ok(Ok((mut trace, joint))) = traced else {
                lock(&template).misses();
                return None;
            };
            let outline = Outline::of(&trace, &joint);
            if lock(&template).compare(&trace.numbers) {
                // One more number changes: it becomes an input, too.
                lock(&template).misses();
                continue;
            }
            let known = lock(&template).fitting(&outline);
            let known = known.filter(|known| known.is_of_numbers(&trace, &start) && known.holds(&tensors));
            let is_captured = known.is_none();
            let (program, lifted) = match known {
                Some(program) => {
                    trace.lifted.retain(|lifted| !matches!(lifted, tracer::Lifted::Declared));
                    (program, Some(trace.lifted))
                }
                None => {
                    if lock(&template).has_program() {
                        lock(&template).misses();
                    }
                    let program = guarded(|| Program::build(trace, joint, &self.settings(inputs))).ok()?;
                    let program = Arc::new(program);
                    lock(&template).put(program.clone(), outline);
                    (program, None)
                }
            };
            if program.refuses(&tensors).is_some() {
                return None;
            }
            self.count(|cells| cells.runs_template(template.clone(), is_captured));
            let ran = guarded(|| program.run_with(&tensors, lifted.as_deref().unwrap_or(program.lifted())));
            return Some(match ran {
                Err(error) if program.has_effects() && !is_of_memory(&error) => self.fail(inputs, &error),
                Err(error) => Err(error),
                Ok(flat) => flat.tree_unflatten().ok_or_else(other_outputs),
            });
        }
    }

    /// How graphs for these inputs are built.
    fn settings(&self, inputs: &Flat) -> Settings {
        let device = capture::gpu_of(&inputs.tensors);
        Settings { device, numerics: current_numerics(), ..Settings::of(&self.options, self.function.name()) }
    }

    /// A call whose program belongs in `cell`.
    fn call_at(&self, cell: &Arc<Cell>, inputs: &Flat) -> Result<F::Output> {
        if let Some(entry) = cell.entry() {
            if self.options.determinism == Determinism::Checked && cell.is_unchecked() {
                self.check(cell, entry, inputs);
            }
            return self.run(cell.entry().unwrap_or(entry), inputs);
        }
        let building = cell.build();
        if cell.entry().is_some() {
            // Another thread may have built a program whose conditions do not hold for this call.
            let tensors: TensorRefs<'_> = inputs.tensors.iter().collect();
            return self.call_at(&cell.fitting(&tensors), inputs);
        }
        let Some(building) = building else {
            return self.run_inline(inputs, NotCaptured::IsCompiling.into());
        };
        // A function that had a graph break for other inputs is assumed to have it for these, without a capture.
        let known = || self.count(|cells| cells.breaks().first().map(|known| known.reason.clone()));
        if let Some(reason) = cell.beyond_limit().or_else(known) {
            let entry = cell.put(self.entry(Err(reason), inputs)?);
            drop(building);
            return self.run(entry, inputs);
        }
        if let Some(reason) = self.count(|cells| cells.reason_to_wait(self.options.new_types, &cell.waited)) {
            drop(building);
            let (output, taken) = cell.waited.count(|| self.run_inline(inputs, reason));
            self.count(|cells| cells.costs.ran(taken));
            return output;
        }
        self.capture_first(cell, building, inputs)
    }

    /// The fast path of a call with the same types as the last one. It clones no tensor and builds nothing. `None` if
    /// the call is another one.
    fn call_again(&self, inputs: &[&Tensor]) -> Option<Result<F::Output>> {
        let stance = stance_here().unwrap_or(self.options.stance);
        let is_usual = matches!(stance, Stance::Default | Stance::FailOnRecompile)
            && self.options.determinism != Determinism::Checked
            && self.bypass(inputs.iter().copied(), stance).is_none();
        if !is_usual {
            return None;
        }
        let runs = |entry: &Entry| matches!(entry, Entry::Graph(program) if program.refuses(inputs).is_none());
        let cell = self.count(|cells| cells.repeated(inputs, runs))?;
        let Some(Entry::Graph(program)) = cell.entry() else { return None };
        match Self::run_program(program, inputs, &[]) {
            // The slow path knows what to do.
            Err(error) if program.has_effects() && !is_of_memory(&error) => None,
            result => Some(result),
        }
    }

    /// Runs a program and rebuilds the function's result. `keys` are random keys that were drawn already.
    #[inline]
    fn run_program(program: &Program, inputs: &[&Tensor], keys: &[Tensor]) -> Result<F::Output> {
        guarded(|| program.run(inputs, keys))?.tree_unflatten().ok_or_else(other_outputs)
    }

    /// Like [`Compiled::run_program`]. If a value is out of range, the function may have written to its inputs before,
    /// but the program has not. So the function runs eagerly then, and fails where an eager call fails.
    fn run_or_fail(&self, program: &Program, inputs: &Flat, keys: &[Tensor]) -> Result<F::Output> {
        let tensors: TensorRefs<'_> = inputs.tensors.iter().collect();
        match Self::run_program(program, &tensors, keys) {
            Err(error) if program.has_effects() && !is_of_memory(&error) => self.fail(inputs, &error),
            result => result,
        }
    }

    /// Runs the function eagerly after its program has failed with this error.
    #[cold]
    fn fail(&self, inputs: &Flat, failed: &Error) -> Result<F::Output> {
        applied(&self.function, inputs).map_err(|error| as_located(error, failed))
    }

    /// Why this call bypasses the cache and runs eagerly, if it does.
    pub(super) fn bypass<'a>(&self, mut inputs: impl Iterator<Item = &'a Tensor>, stance: Stance) -> Option<Reason> {
        let no_data =
            |input: &Tensor| !matches!(input.device().kind, DeviceKind::Cpu | DeviceKind::Cuda) || !input.has_data();
        Some(match () {
            () if tracer::is_tracing() => NotCaptured::NestedCall.into(),
            () if modes::is_active() => NotCaptured::UserMode.into(),
            () if debug::forces_eager() || stance == Stance::Eager => Reason::Disabled,
            () if detects_anomalies() => NotCaptured::DetectsAnomalies.into(),
            () if self.options.capacity == 0 => NotCaptured::NoCapacity.into(),
            () if inputs.any(no_data) => NotCaptured::InputWithoutData.into(),
            () => return None,
        })
    }

    fn run_inline(&self, inputs: &Flat, reason: Reason) -> Result<F::Output> {
        self.count(|cells| cells.runs_inline(reason));
        applied(&self.function, inputs)
    }

    /// The first call with inputs of new types: records the function and runs the recording, or finds out why it
    /// cannot.
    fn capture_first(&self, cell: &Cell, building: Building<'_>, inputs: &Flat) -> Result<F::Output> {
        let start = Instant::now();
        let tensors = &inputs.tensors;
        let share_memory =
            tensors.iter().enumerate().any(|(at, input)| tensors[..at].iter().any(|one| one.shares(input)));
        let watch = tracer::watch_gradients();
        let flowed = flows(inputs);
        // Grad mode may be enabled inside the function.
        let is_refused = tensors.iter().any(is_unrecorded_view);
        if share_memory || is_refused || flowed.contains(&true) || capture::gpu_of(tensors).is_some() {
            let output = applied(&self.function, inputs)?;
            let ran = start.elapsed();
            if let Some(entry) = unless_out_of_memory(self.capture_again(inputs, &flowed, watch.end()))? {
                cell.put(entry);
            }
            self.count(|cells| cells.costs.captured(start.elapsed() - ran, ran));
            return Ok(output);
        }
        let call = self.segments.call();
        let first = guarded(|| capture::first(&self.function, inputs, call.clone(), self.reads()))?;
        let (output, entry) = match first {
            First::Traced(output, trace, keys) => {
                let n_outputs = trace.owners.len();
                let joint = Joint { n_outputs, ..Joint::without_gradients(&Flat::of(&output)) };
                let draws = Draws::of(&trace.lifted, &keys);
                let entry = cell.put(self.entry(Ok((*trace, joint)), inputs)?);
                drop((output, building));
                let Entry::Graph(program) = entry else {
                    if matches!(entry, Entry::Eager(_)) {
                        // The function draws again.
                        draws.take_back();
                    }
                    return self.run(entry, inputs);
                };
                let captured = start.elapsed();
                let output = self.run_or_fail(program, inputs, &keys);
                self.count(|cells| cells.costs.captured(captured, start.elapsed() - captured));
                return output;
            }
            First::Ran(output, why, handles) => {
                call.end();
                let output = with_originals(output, &handles, &inputs.tensors)?;
                match why {
                    NoTrace::Break(reason) if !reason.is_opaque_call() => (output, self.entry(Err(reason), inputs)),
                    NoTrace::Gradients | NoTrace::Break(_) => {
                        (output, self.capture_again(inputs, &flowed, watch.end()))
                    }
                    NoTrace::Keeps if self.count(Cells::keeps_again) => {
                        (output, self.entry(Err(NotCaptured::KeepsTensors.into()), inputs))
                    }
                    // Kept once: the next call will find the tensor and compute no other.
                    NoTrace::Keeps => return Ok(output),
                }
            }
        };
        match unless_out_of_memory(entry)?.map(|entry| cell.put(entry)) {
            Some(Entry::Refused(error)) => Err(error.clone()),
            Some(Entry::Graph(_) | Entry::Eager(_) | Entry::Deferred(_)) | None => Ok(output),
        }
    }

    /// Traces the function abstractly, after it has just run. Before that run, `flowed` said which inputs required
    /// gradients, and leaves had the gradients `before`.
    ///
    /// # Errors
    /// Same as [`Compiled::entry`].
    pub(super) fn capture_again(&self, inputs: &Flat, flowed: &[bool], before: GradientsBefore) -> Result<Entry> {
        if let Some(input) = flows(inputs).iter().zip(flowed).position(|(now, before)| now != before) {
            let tensor = format!("input {input}").into();
            return self.entry(Err(NotCaptured::RequiresGradChanged { tensor }.into()), inputs);
        }
        match guarded(|| capture::on_shapes(&self.function, inputs, self.reads(), before, &[])) {
            Ok(captured) => self.entry(captured, inputs),
            Err(error @ Error::OutOfMemory { .. }) => Err(error),
            Err(error) => {
                // The graph break at a read says more than an error that followed from it.
                let reason = tracer::take_break().unwrap_or_else(|| Reason::of_error(error));
                self.entry(Err(reason), inputs)
            }
        }
    }

    /// Traces the function again, and replaces an entry that differs from the new trace.
    fn check(&self, cell: &Cell, entry: &Entry, inputs: &Flat) {
        let Entry::Graph(program) = entry else { return };
        let now = GradientsBefore::default();
        let again = guarded(|| capture::on_shapes(&self.function, inputs, self.reads(), now, &[]));
        let says_nothing = matches!(&again, Err(Error::OutOfMemory { .. }));
        if !says_nothing && !matches!(&again, Ok(Ok((trace, joint))) if program.is_of(trace, joint)) {
            let entry = self.entry(Err(NotCaptured::ChangesByCall.into()), inputs);
            cell.correct(entry.expect("nothing is built of a reason"));
        }
    }

    fn reads(&self) -> Reads {
        match self.options.breaks {
            BreakPolicy::Allow | BreakPolicy::Eager => Reads::GraphBreak,
            BreakPolicy::Error => Reads::Error,
        }
    }

    /// The entry for the result of a capture.
    ///
    /// # Errors
    /// Out of memory. That says nothing about the function, so it is not cached.
    fn entry(&self, captured: Capture, inputs: &Flat) -> Result<Entry> {
        let n_captures = self.count(|cells| {
            if let Some(reason) = captured.as_ref().err().filter(|reason| reason.is_break()) {
                cells.breaks_at(reason);
            }
            cells.note_capture(inputs)
        });
        if let Err(reason) = &captured {
            profiled::breaks(reason);
        }
        if let Ok((trace, joint)) = &captured
            && joint.n_outputs == 0
            && !trace.has_effects()
        {
            // A function that does nothing is a mistake, unless only later inputs make it do nothing, such as empty
            // ones.
            let why = NotCaptured::NoEffect;
            return Ok(match n_captures {
                1 => Entry::Refused(Error::argument("compile", format!("{why}; {}", why.hint()))),
                _ => Entry::Eager(why.into()),
            });
        }
        if let Ok((trace, _)) = &captured {
            self.count(|cells| cells.note_numbers(inputs, &trace.numbers));
        }
        let settings = self.settings(inputs);
        let program = match captured {
            Ok((trace, joint)) => match guarded(|| Program::build(trace, joint, &settings)) {
                Err(error @ Error::OutOfMemory { .. }) => return Err(error),
                program => program.map_err(Reason::of_error),
            },
            Err(reason) => Err(reason),
        };
        Ok(match program {
            Ok(program) => {
                if debug::explains() {
                    debug::print(&program.explain().to_string());
                }
                Entry::Graph(Box::new(program))
            }
            Err(reason) => {
                let (entry, how) = match self.options.breaks {
                    BreakPolicy::Allow if reason.is_break() && !capture::wants_gradients(&inputs.tensors) => {
                        (Entry::Deferred(reason.clone()), "runs in segments")
                    }
                    BreakPolicy::Allow | BreakPolicy::Eager => (Entry::Eager(reason.clone()), "runs eagerly"),
                    BreakPolicy::Error => (Entry::Refused(refused(&reason)), "is refused"),
                };
                if debug::explains() {
                    debug::print(&format!("{how}: {reason}"));
                }
                entry
            }
        })
    }

    /// Like [`Compiled::call`], and says what took how long. The first call with new types has its capture in it; call
    /// the function before, or several times inside [`profile`](crate::profile()), to see what later calls take.
    ///
    /// # Errors
    /// Same as [`Compiled::call`]. Also if this thread is being profiled already.
    #[track_caller]
    pub fn profile(&self, inputs: impl Inputs<A>) -> Result<(F::Output, Profile)> {
        let _place = profile::stands_for();
        let (output, profile) = profiled::profile(|| self.call(inputs))?;
        Ok((output?, profile))
    }

    fn run(&self, entry: &Entry, inputs: &Flat) -> Result<F::Output> {
        let tensors: TensorRefs<'_> = inputs.tensors.iter().collect();
        match entry {
            Entry::Eager(_) => {
                self.count(|cells| cells.counts_mut().eager += 1);
                applied(&self.function, inputs)
            }
            Entry::Refused(error) => Err(error.clone()),
            Entry::Deferred(_) => self.run_deferred(inputs),
            Entry::Graph(program) => match program.refuses(&tensors) {
                Some(why) => self.run_inline(inputs, why.into()),
                None => self.run_or_fail(program, inputs, &[]),
            },
        }
    }

    /// Runs the function in segments.
    fn run_deferred(&self, inputs: &Flat) -> Result<F::Output> {
        let gradients = || capture::wants_gradients(&inputs.tensors).then(|| NotCaptured::SegmentsNeedGradients.into());
        if let Some(reason) = gradients().or_else(|| self.segments.reason_to_stop()) {
            return self.run_inline(inputs, reason);
        }
        let call = self.segments.call();
        let run = || tracer::defer(call.clone(), self.reads(), || applied(&self.function, inputs));
        let (result, breaks) = guarded(|| Ok(run()))?;
        call.end();
        breaks.iter().for_each(|end| profiled::breaks(&end.reason));
        self.count(|cells| {
            cells.counts_mut().deferred += 1;
            breaks.iter().for_each(|end| cells.breaks_at(&end.reason));
            cells.runs_deferred();
        });
        result
    }

    /// The last captures, each with what was different from the one before.
    pub fn captures(&self) -> Vec<Captured> {
        self.count(|cells| cells.captures())
    }

    /// The graph breaks so far, with their counts.
    pub fn breaks(&self) -> Vec<Break> {
        self.count(|cells| cells.breaks().to_vec())
    }

    /// The reports of the cached segments, the last run first. A function that was captured whole has none.
    pub fn segments(&self) -> Vec<Explain> {
        self.segments.explain()
    }

    pub(super) fn count<R>(&self, change: impl FnOnce(&mut Cells) -> R) -> R {
        change(&mut self.cells.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The report of what was compiled for the types seen last: kernels, traffic, and a decision for every edge. If
    /// nothing is compiled, or if the last call ran eagerly, it has the reason. For a function that runs in segments it
    /// has those of the last call, and what broke between them. See [`Compiled::segments`] for all that are cached, and
    /// [`Compiled::breaks`] for the graph breaks of all calls.
    pub fn explain(&self) -> Explain {
        if self.count(|cells| cells.ran_deferred()) {
            let nothing = || Explain::eager(NotCaptured::ComputesNothing.into());
            return self.segments.explain_last().unwrap_or_else(nothing);
        }
        if let Some(template) = self.count(|cells| cells.ran_template()) {
            let template = lock(&template);
            if let Some(program) = template.program() {
                return Explain { changing_numbers: template.n_inputs(), ..program.explain() };
            }
        }
        let cell = match self.count(|cells| cells.latest()) {
            Ok(cell) => cell,
            Err(reason) => return Explain::eager(reason),
        };
        match cell.entry() {
            Some(Entry::Graph(program)) => program.explain(),
            Some(Entry::Eager(reason)) => Explain::eager(reason.clone()),
            Some(Entry::Deferred(reason)) => {
                self.segments.explain_last().unwrap_or_else(|| Explain::eager(reason.clone()))
            }
            Some(Entry::Refused(error)) => Explain::eager(Reason::of_error(error.clone())),
            None => Explain::eager(Reason::NotCalled),
        }
    }

    /// The graph of [`Compiled::explain`] as Graphviz text, one cluster per kernel. Empty if nothing is compiled.
    pub fn to_dot(&self) -> String {
        self.explain().to_dot()
    }

    /// The counters so far.
    pub fn counts(&self) -> Counts {
        let (segments, segment_captures) = self.segments.counts();
        Counts { segments, segment_captures, ..self.count(|cells| cells.counts()) }
    }
}

/// Whether each input requires gradients.
pub(super) fn flows(inputs: &Flat) -> SmallVec<[bool; 4]> {
    inputs.tensors.iter().map(Tensor::requires_grad).collect()
}

/// A result of the first call, whose handles of inputs are replaced by the inputs themselves.
fn with_originals<R: TensorStruct>(output: R, handles: &[Tensor], originals: &[Tensor]) -> Result<R> {
    let mut flat = Flat::of(&output);
    let mut is_other = false;
    for result in &mut flat.tensors {
        if let Some(index) = handles.iter().position(|handle| handle.id() == result.id()) {
            *result = originals[index].clone();
            is_other = true;
        }
    }
    if is_other { flat.tree_unflatten().ok_or_else(other_outputs) } else { Ok(output) }
}

pub(super) fn other_outputs() -> Error {
    Error::Internal { message: "a trace has other outputs than its function".into() }
}

/// The entry to cache after a run of the function. `None` if it was not found for want of memory.
fn unless_out_of_memory(entry: Result<Entry>) -> Result<Option<Entry>> {
    match entry {
        Err(Error::OutOfMemory { .. }) => Ok(None),
        entry => entry.map(Some),
    }
}
