//! The code of a launch, which may begin in the vm and get machine code once it has run often.
//!
//! The vm takes microseconds to make ready what takes machine code tens of them, and hundreds where there are functions. So a
//! kernel of little work begins there, and is compiled when its calls, of all sizes together, have lost in the vm about what
//! compiling takes: never more than twice what the better choice would have taken, whatever is still to come (the ski rental
//! of competitive analysis). All tiers have the same bits, so the change shows in time alone. Code that another launch has
//! made, or that lies on disk, is taken at once. A tier that was asked for is never put off.

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
    /// What is to come, where it begins in the vm.
    later: Option<Box<Later>>,
}

/// Compiled code, and how a launch of it is cut.
pub struct Running {
    /// The code.
    pub entry: Arc<Entry>,
    /// The parts of the launch.
    pub cut: Cut,
}

/// A tier that is yet to make its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierUp {
    /// The tier.
    pub tier: Tier,
    /// Calls like the next one that run before it does.
    pub calls: u64,
}

struct Later {
    tier: Tier,
    /// Nanoseconds that a call loses.
    lost: u64,
    /// Nanoseconds of all calls that are worth the code.
    worth: u64,
    /// Nothing if the tier made none, or the system refused.
    code: OnceLock<Option<Running>>,
}

impl Code {
    /// The code of a launch, by the tier that was asked for or else by the one that suits it.
    ///
    /// # Errors
    /// The reason why no tier compiles it.
    pub fn new(asked_for: Option<Tier>, kernel: &Kernel, geometry: &Geometry) -> Result<Code, Reason> {
        let tier = asked_for.unwrap_or_else(|| Tier::choose(kernel, geometry));
        // The vm takes about twice as long, and a little to begin, with the launch and with every other row.
        let steps = geometry.n_rows().saturating_sub(1).saturating_mul(kernel.insts.len()) as u64;
        let lost = work(kernel, geometry) as u64 / 2 + LOST_AT_LEAST + steps.saturating_mul(LOST_PER_STEP);
        let worth = compile_time(tier, kernel);
        if asked_for.is_some() || lost >= worth {
            return Ok(Code { first: Running::new(tier, kernel, geometry)?, later: None });
        }
        if let Some(entry) = cache::known(tier, kernel, geometry) {
            return Ok(Code { first: Running::of(entry, kernel, geometry), later: None });
        }
        if is_on_disk(tier, kernel, geometry) {
            return Ok(Code { first: Running::new(tier, kernel, geometry)?, later: None });
        }
        let later = Later { tier, lost, worth, code: OnceLock::new() };
        Ok(Code { first: Running::new(Tier::Vm, kernel, geometry)?, later: Some(Box::new(later)) })
    }

    /// What runs the next call, which counts.
    #[inline]
    pub fn next(&self, kernel: &Kernel, geometry: &Geometry) -> &Running {
        match &self.later {
            None => &self.first,
            Some(later) => later.next(&self.first.entry, kernel, geometry).unwrap_or(&self.first),
        }
    }

    /// What runs now.
    pub fn now(&self) -> &Running {
        let made = self.later.as_ref().and_then(|later| later.code.get());
        made.and_then(Option::as_ref).unwrap_or(&self.first)
    }

    /// What is to come, if something is.
    pub fn tier_up(&self) -> Option<TierUp> {
        let later = self.later.as_ref().filter(|later| later.code.get().is_none())?;
        let left = later.worth.saturating_sub(self.first.entry.lost.load(Ordering::Relaxed));
        Some(TierUp { tier: later.tier, calls: left.div_ceil(later.lost) })
    }

    /// Makes what is to come now.
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
        if lost >= self.worth {
            return self.make(kernel, geometry);
        }
        // Threads that count at once may lose calls, which does no harm.
        first.lost.store(lost + self.lost, Ordering::Relaxed);
        None
    }

    #[cold]
    fn make(&self, kernel: &Kernel, geometry: &Geometry) -> Option<&Running> {
        self.code.get_or_init(|| Running::new(self.tier, kernel, geometry).ok()).as_ref()
    }
}

/// Whether code of a tier is on disk, from where it takes about as long as the vm to make ready (`cargo bench --bench compile_time`).
fn is_on_disk(tier: Tier, kernel: &Kernel, geometry: &Geometry) -> bool {
    match tier {
        Tier::X64 => x64::Level::best().is_some_and(|level| x64::is_kept(level, kernel, &geometry.classes(kernel))),
        Tier::Vm | Tier::Cranelift => false,
    }
}

/// Nanoseconds that a call of the vm loses at least, and that it loses with every instruction of every row but the first.
const LOST_AT_LEAST: u64 = 25;
const LOST_PER_STEP: u64 = 8;

/// Nanoseconds that a tier takes to compile a kernel, roughly, beyond those of the vm (`cargo bench --bench compile_time`).
fn compile_time(tier: Tier, kernel: &Kernel) -> u64 {
    let n_functions = kernel.insts.iter().filter(|inst| matches!(inst.kind, Kind::Func(_))).count() as u64;
    let [begin, instruction, function] = match tier {
        Tier::Vm => [0, 0, 0],
        Tier::Cranelift => [100_000, 6_000, 100_000],
        Tier::X64 => [10_000, 1_000, 9_000],
    };
    begin + kernel.insts.len() as u64 * instruction + n_functions * function
}
