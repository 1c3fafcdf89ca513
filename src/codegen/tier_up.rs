//! Tier-up: a launch may start in the vm and get machine code once it has run often.
//!
//! The vm takes microseconds to prepare a kernel. Machine code takes tens of them, and hundreds where there are
//! functions. So a kernel with little work starts in the vm. It is compiled once its calls, of all sizes together, have
//! lost about as much time in the vm as compiling takes. Whatever calls follow, the total is at most twice that of the
//! better choice: this is the ski rental problem of competitive analysis.
//!
//! All tiers give the same bits, so only the time changes. Code that another launch compiled, or that is on disk, is
//! used at once. A tier that the user asked for is never delayed.

use super::cache::{self, Entry};
use super::geometry::Geometry;
use super::kernel::{Kernel, Kind};
use super::parallel::{Cut, work};
use super::tier::Tier;
use super::x64;
use crate::error::Reason;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// What runs a launch.
pub struct Code {
    first: Running,
    /// The tier that follows, where the launch starts in the vm.
    later: Option<Box<Later>>,
}

/// Compiled code, and how a launch of it is cut.
pub struct Running {
    /// The code.
    pub entry: Arc<Entry>,
    /// The parts of the launch.
    pub cut: Cut,
}

/// A tier that has not compiled the launch yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierUp {
    /// The tier.
    pub tier: Tier,
    /// Calls like the next one that run before it compiles.
    pub calls: u64,
}

struct Later {
    tier: Tier,
    /// Nanoseconds that a call loses in the vm.
    loss_per_call: u64,
    /// Nanoseconds that compiling takes.
    compile_time: u64,
    /// `None` if the tier declined, or the system refused the memory.
    code: OnceLock<Option<Running>>,
}

impl Code {
    /// The code of a launch, by the tier that was asked for, or else by the one that [`Tier::choose`] gives.
    ///
    /// # Errors
    /// The reason why no tier compiles it.
    pub fn new(asked_for: Option<Tier>, kernel: &Kernel, geometry: &Geometry) -> Result<Code, Reason> {
        let tier = asked_for.unwrap_or_else(|| Tier::choose(kernel, geometry));
        // The vm takes about twice as long per element, and some time to start the launch and every further row.
        let steps = geometry.n_rows().saturating_sub(1).saturating_mul(kernel.insts.len()) as u64;
        let loss_per_call = work(kernel, geometry) as u64 / 2 + LOSS_OF_CALL + steps.saturating_mul(LOSS_PER_STEP);
        let compile_time = compile_time(tier, kernel);
        if asked_for.is_some() || loss_per_call >= compile_time {
            return Ok(Code { first: Running::new(tier, kernel, geometry)?, later: None });
        }
        if let Some(entry) = cache::known(tier, kernel, geometry) {
            return Ok(Code { first: Running::of(entry, kernel, geometry), later: None });
        }
        if is_on_disk(tier, kernel, geometry) {
            return Ok(Code { first: Running::new(tier, kernel, geometry)?, later: None });
        }
        let later = Later { tier, loss_per_call, compile_time, code: OnceLock::new() };
        Ok(Code { first: Running::new(Tier::Vm, kernel, geometry)?, later: Some(Box::new(later)) })
    }

    /// The code for the next call. The call is counted.
    #[inline]
    pub fn next(&self, kernel: &Kernel, geometry: &Geometry) -> &Running {
        match &self.later {
            None => &self.first,
            Some(later) => later.next(&self.first.entry, kernel, geometry).unwrap_or(&self.first),
        }
    }

    /// The code that runs now.
    pub fn now(&self) -> &Running {
        let made = self.later.as_ref().and_then(|later| later.code.get());
        made.and_then(Option::as_ref).unwrap_or(&self.first)
    }

    /// The tier that follows, if it has not compiled yet.
    pub fn tier_up(&self) -> Option<TierUp> {
        let later = self.later.as_ref().filter(|later| later.code.get().is_none())?;
        let left = later.compile_time.saturating_sub(self.first.entry.lost.load(Ordering::Relaxed));
        Some(TierUp { tier: later.tier, calls: left.div_ceil(later.loss_per_call) })
    }

    /// Compiles for the tier that follows, now.
    pub fn warm(&self, kernel: &Kernel, geometry: &Geometry) {
        if let Some(later) = &self.later {
            later.make(kernel, geometry);
        }
    }
}

impl Running {
    fn new(tier: Tier, kernel: &Kernel, geometry: &Geometry) -> Result<Running, Reason> {
        cache::compiled(tier, kernel, geometry).map(|entry| Running::of(entry, kernel, geometry))
    }

    fn of(entry: Arc<Entry>, kernel: &Kernel, geometry: &Geometry) -> Running {
        let cut = Cut::new(kernel, &entry.compiled, geometry);
        Running { entry, cut }
    }
}

impl Later {
    #[inline]
    fn next(&self, first: &Entry, kernel: &Kernel, geometry: &Geometry) -> Option<&Running> {
        if let Some(code) = self.code.get() {
            return code.as_ref();
        }
        let lost = first.lost.load(Ordering::Relaxed);
        if lost >= self.compile_time {
            return self.make(kernel, geometry);
        }
        // Threads that count at the same time may lose calls, which does no harm.
        first.lost.store(lost + self.loss_per_call, Ordering::Relaxed);
        None
    }

    #[cold]
    fn make(&self, kernel: &Kernel, geometry: &Geometry) -> Option<&Running> {
        self.code.get_or_init(|| Running::new(self.tier, kernel, geometry).ok()).as_ref()
    }
}

/// Whether a tier's code is on disk. Loading it takes about as long as preparing the vm
/// (`cargo bench --bench compile_time`).
fn is_on_disk(tier: Tier, kernel: &Kernel, geometry: &Geometry) -> bool {
    match tier {
        Tier::X64 => x64::Level::best().is_some_and(|level| x64::is_kept(level, kernel, &geometry.classes(kernel))),
        Tier::Vm | Tier::Cranelift => false,
    }
}

/// Least nanoseconds that a call of the vm loses.
const LOSS_OF_CALL: u64 = 25;
/// Nanoseconds that the vm loses per instruction in every row after the first.
const LOSS_PER_STEP: u64 = 8;

/// Nanoseconds that a tier takes to compile a kernel beyond those of the vm, roughly
/// (`cargo bench --bench compile_time`).
fn compile_time(tier: Tier, kernel: &Kernel) -> u64 {
    let n_functions = kernel.insts.iter().filter(|inst| matches!(inst.kind, Kind::Func(_))).count() as u64;
    let [begin, instruction, function] = match tier {
        Tier::Vm => [0, 0, 0],
        Tier::Cranelift => [100_000, 6_000, 100_000],
        Tier::X64 => [10_000, 1_000, 9_000],
    };
    begin + kernel.insts.len() as u64 * instruction + n_functions * function
}
