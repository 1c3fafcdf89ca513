//! Compiled functions: captured once, run many times.
//!
//! The first call runs the function eagerly while its calls are recorded, so it returns real values and yields the
//! graph. Inputs of other types are traced abstractly: shapes alone. What cannot be captured runs eagerly, with a
//! reason. Executables are kept per input types in a bounded cache, the one used longest ago going first.

use super::capture::{self, Capture};
use super::explain::Explain;
use super::guard::Guard;
use super::program::Program;
use crate::codegen::tier::Tier;
use crate::debug;
use crate::device::DeviceKind;
use crate::dispatch::Tensor;
use crate::dispatch::keys::tracer;
use crate::dispatch::modes;
use crate::dispatch::{Function, Inputs, Outputs};
use crate::error::{Error, Reason, Result};
use crate::fusion::Options;
use indexmap::IndexMap;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most sets of input types that a compiled function keeps an executable for.
pub const CAPACITY: usize = 256;

/// How a function is compiled.
#[derive(Debug, Clone, Default)]
pub struct CompileOptions {
    /// Limits of the fuser.
    pub fusion: Options,
    /// The code tier to use for every kernel; `None` chooses per kernel. What a tier declines runs in the vm.
    pub tier: Option<Tier>,
}

/// A compiled function; made by [`compile`]. It can be shared between threads.
pub struct Compiled<F, A> {
    function: F,
    options: CompileOptions,
    cells: Mutex<Cells>,
    calls: AtomicU64,
    arguments: PhantomData<fn(A)>,
}

#[derive(Default)]
struct Cells {
    by_guard: IndexMap<Guard, (Arc<Cell>, u64)>,
    clock: u64,
}

/// The place of an executable; concurrent first calls meet here, and one of them builds it.
#[derive(Default)]
struct Cell {
    entry: OnceLock<Entry>,
    building: Mutex<()>,
}

enum Entry {
    /// A graph.
    Graph(Box<Program>),
    /// The function runs eagerly, because.
    Eager(Reason),
}

/// Compiles a function of tensors; it is captured when it is first called.
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

/// As [`compile`], with options.
pub fn compile_with<A, F: Function<A>>(function: F, options: CompileOptions) -> Compiled<F, A> {
    Compiled { function, options, cells: Mutex::default(), calls: AtomicU64::new(0), arguments: PhantomData }
}

impl<A, F: Function<A>> Compiled<F, A> {
    /// Calls the function: compiled if it could be captured, else eagerly. The bits are the same.
    ///
    /// # Errors
    /// What the function returns; an internal error if it panics. The next call works in either case.
    pub fn call(&self, inputs: impl Inputs<A>) -> Result<F::Output> {
        let inputs = inputs.into_tensors()?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        // Inside another trace the function is part of that trace; a mode sees each of its calls; without data there is
        // nothing to compile.
        if tracer::is_tracing()
            || modes::is_active()
            || debug::forces_eager()
            || inputs.iter().any(|input| input.device().kind != DeviceKind::Cpu || !input.has_data())
        {
            return guarded(|| self.function.apply(&inputs));
        }
        let (cell, first) = self.cell(&inputs);
        if let Some(entry) = cell.entry.get() {
            return self.run(entry, &inputs);
        }
        let _building = cell.building.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = cell.entry.get() {
            return self.run(entry, &inputs);
        }
        if first {
            let (output, entry) = self.capture_first(&inputs)?;
            let _ = cell.entry.set(entry);
            return Ok(output);
        }
        let entry = self.capture_abstract(&inputs);
        self.run(cell.entry.get_or_init(|| entry), &inputs)
    }

    /// The place for inputs of these types, and whether no other types were seen before.
    fn cell(&self, inputs: &[Tensor]) -> (Arc<Cell>, bool) {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        cells.clock += 1;
        let now = cells.clock;
        // Calls mostly repeat the last types.
        let last = cells.by_guard.len().checked_sub(1);
        let hit = last.filter(|&last| cells.by_guard.get_index(last).is_some_and(|(guard, _)| guard.holds(inputs)));
        if let Some((_, (cell, used))) = hit.and_then(|index| cells.by_guard.get_index_mut(index)) {
            *used = now;
            return (cell.clone(), false);
        }
        let guard = Guard::of(inputs);
        if let Some((cell, used)) = cells.by_guard.get_mut(&guard) {
            *used = now;
            return (cell.clone(), false);
        }
        let first = cells.by_guard.is_empty();
        if cells.by_guard.len() >= CAPACITY {
            let oldest = cells.by_guard.values().enumerate().min_by_key(|(_, (_, used))| *used).map(|(index, _)| index);
            oldest.map(|index| cells.by_guard.swap_remove_index(index));
        }
        let cell = Arc::new(Cell::default());
        cells.by_guard.insert(guard, (cell.clone(), now));
        (cell, first)
    }

    /// Calls the function for real, and captures it on the way or right after.
    fn capture_first(&self, inputs: &[Tensor]) -> Result<(F::Output, Entry)> {
        if capture::wants_gradients(inputs) {
            let output = guarded(|| self.function.apply(inputs))?;
            return Ok((output, self.capture_abstract(inputs)));
        }
        let (output, captured) = guarded(|| capture::real(&self.function, inputs))?;
        // Gradients flow to something that the function was not given: they are traced with it.
        let entry = match capture::wants_gradients(&output.tensors()) {
            true => self.capture_abstract(inputs),
            false => self.entry(captured),
        };
        Ok((output, entry))
    }

    /// Records the function on shapes alone.
    fn capture_abstract(&self, inputs: &[Tensor]) -> Entry {
        match guarded(|| capture::on_shapes(&self.function, inputs)) {
            Ok(captured) => self.entry(captured),
            Err(error) => Entry::Eager(Reason::TraceFailed(error.to_string())),
        }
    }

    fn entry(&self, captured: Capture) -> Entry {
        let tier = self.options.tier.or_else(|| debug::forced_tier().and_then(Tier::from_name));
        let program = captured.and_then(|(trace, joint)| {
            let program = guarded(|| Program::build(trace, joint, &self.options.fusion, tier));
            program.map_err(|error| Reason::TraceFailed(error.to_string()))
        });
        match program {
            Ok(program) => {
                if debug::explains() {
                    debug::print(&program.explain().to_string());
                }
                Entry::Graph(Box::new(program))
            }
            Err(reason) => {
                if debug::explains() {
                    debug::print(&format!("runs eagerly: {reason}"));
                }
                Entry::Eager(reason)
            }
        }
    }

    fn run(&self, entry: &Entry, inputs: &[Tensor]) -> Result<F::Output> {
        match entry {
            Entry::Eager(_) => guarded(|| self.function.apply(inputs)),
            Entry::Graph(program) => F::Output::from_tensors(guarded(|| program.run(inputs))?)
                .ok_or_else(|| Error::Internal { message: "a trace has other outputs than its function".into() }),
        }
    }

    /// What was compiled for the types seen last: kernels, traffic, and a decision for every edge. Where nothing is
    /// compiled, why that is.
    pub fn explain(&self) -> Explain {
        let cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = cells.by_guard.values().filter_map(|(cell, used)| Some((cell.entry.get()?, used)));
        match entries.max_by_key(|(_, used)| **used) {
            Some((Entry::Graph(program), _)) => program.explain(),
            Some((Entry::Eager(reason), _)) => Explain::eager(reason.clone()),
            None if debug::forces_eager() => Explain::eager(Reason::Disabled),
            None if self.calls.load(Ordering::Relaxed) == 0 => Explain::eager(Reason::NotCalled),
            None => Explain::eager(Reason::NotCaptured(
                "no call so far returned a value outside of traces and modes, with all data on the cpu".into(),
            )),
        }
    }

    /// Graphviz text of the graph compiled last, one cluster per kernel; empty if there is none.
    pub fn to_dot(&self) -> String {
        self.explain().to_dot()
    }

    /// How many calls there were, and for how many sets of input types an executable is held.
    pub fn counts(&self) -> (u64, usize) {
        let cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        (self.calls.load(Ordering::Relaxed), cells.by_guard.len())
    }
}

/// Turns a panic into an internal error: the state behind it is only ever replaced whole.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a message".into());
        Err(Error::Internal { message })
    })
}
