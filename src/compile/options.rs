//! How a function is compiled, and what is done about it now: options, break policy, stances.
//!
//! A stance of the thread ([`stance`]) goes before that of the function. Nothing here changes what a function computes but
//! [`Numerics::Fast`].

use super::calibration::calibration;
use crate::codegen::tier::Tier;
use crate::debug;
use crate::fusion::Options;
use crate::ir::Numerics;
use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;

/// Most sets of input types that a compiled function keeps an executable for, unless its options say otherwise.
pub const CAPACITY: usize = 256;

/// How a function is compiled.
#[derive(Debug, Clone)]
pub struct CompileOptions {
    /// Limits of the fuser.
    pub fusion: Options,
    /// The code tier to use for every kernel; `None` chooses per kernel. What a tier declines runs in the vm.
    pub tier: Option<Tier>,
    /// Most sets of input types that an executable is kept for; the one used longest ago goes first. With 0 nothing is
    /// kept, so the function runs eagerly.
    pub capacity: usize,
    /// Which input types that were not seen before are captured at once.
    pub new_types: NewTypes,
    /// What happens when the function reads a value of a tensor while it is captured.
    pub breaks: BreakPolicy,
    /// What a call does; see [`stance`] for that of a thread.
    pub stance: Stance,
    /// Whether the function is believed to do the same at each call.
    pub determinism: Determinism,
    /// Whether what the cost model says is checked by a measurement.
    pub tuning: Tuning,
    /// What results may depend on, also where the function runs eagerly; `None` takes what the calling thread has chosen
    /// ([`numerics`](crate::numerics)).
    ///
    /// ```
    /// # fn main() -> opfuse::Result<()> {
    /// use opfuse::{CompileOptions, DType, Numerics, Tensor, compile_with};
    /// let options = CompileOptions { numerics: Some(Numerics::Fast), ..CompileOptions::default() };
    /// let f = compile_with(|x: &Tensor| x.matmul(x)?.relu(), options);
    /// // On a GPU tensor cores compute this product, and the report says so.
    /// f.call(&Tensor::ones(&[4, 4], DType::BF16)?)?;
    /// assert!(f.explain().groups[0].remarks.is_empty(), "on the CPU nothing changes");
    /// # Ok(())
    /// # }
    /// ```
    pub numerics: Option<Numerics>,
}

impl Default for CompileOptions {
    fn default() -> CompileOptions {
        CompileOptions {
            fusion: Options { rates: calibration().rates, ..Options::default() },
            tier: None,
            capacity: CAPACITY,
            new_types: NewTypes::default(),
            breaks: BreakPolicy::default(),
            stance: Stance::default(),
            determinism: Determinism::default(),
            tuning: Tuning::default(),
            numerics: None,
        }
    }
}

impl CompileOptions {
    /// The tier asked for here, or else by the environment.
    pub(super) fn tier_or_forced(&self) -> Option<Tier> {
        self.tier.or_else(|| debug::forced_tier().and_then(Tier::from_name))
    }
}

/// Which input types that were not seen before a function is captured for at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum NewTypes {
    /// The first `AT_ONCE` of a function, and others if a run takes as long as a capture. Else the
    /// function itself runs until that has taken as long, for these types, as their capture will.
    #[default]
    Wait,
    /// All.
    Capture,
}

/// What happens when a function cannot be captured whole, because it reads a value (`item`, `to_vec`, printing) or calls
/// something that is not captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BreakPolicy {
    /// What comes before and after is compiled: the function is run in segments from the next call on, as in
    /// [`Stance::Deferred`]. Each break is counted, and has a reason.
    #[default]
    Allow,
    /// The call is an error that names what broke the capture, also where the function would have run eagerly.
    Error,
    /// The whole function runs eagerly.
    Eager,
}

/// Whether a function is believed to do the same whenever it is called with inputs of the same types. One that goes by
/// a counter, a clock or state that is not a tensor's elements does not; `Stance::Deferred` is for those. Random numbers
/// of generators are no such thing: each call draws its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Determinism {
    /// It is.
    #[default]
    Assumed,
    /// The second call traces it once more, on shapes alone. If that is another trace, the function runs in segments from
    /// then on, with that as its reason.
    Checked,
}

/// What decides whether ops are merged into one kernel. The bits are the same either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tuning {
    /// The cost model alone: the same function has the same plan at each run.
    #[default]
    Modelled,
    /// A measurement too: the third run of a graph takes some ten milliseconds longer, in which each merged kernel is timed
    /// against its parts, and those that are slower are taken apart. Plans may then differ between runs; reports say
    /// why.
    Measured,
}

/// What a call of a compiled function does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Stance {
    /// Captures on the first call of each set of input types, and runs what was captured after that.
    #[default]
    Default,
    /// Runs the function itself, whatever was captured.
    Eager,
    /// Runs the function at each call, but only records what it calls, until it reads a value or returns: what was
    /// recorded runs compiled then. So nothing is ever stale: captured state, control flow and numbers are those of the
    /// call. An error of a recorded call comes out where a value is read, or at the end. Where gradients flow to an
    /// input, the function runs eagerly.
    Deferred,
    /// As the default, but types that differ from those seen before are an error, which says what differs.
    FailOnRecompile,
}

thread_local! {
    static STANCE: Cell<Option<Stance>> = const { Cell::new(None) };
}

/// The stance of this thread, if one is set.
pub(super) fn stance_here() -> Option<Stance> {
    STANCE.get()
}

/// Keeps a stance; made by [`stance`].
#[derive(Debug)]
#[must_use = "the stance holds only while the guard lives"]
pub struct StanceGuard {
    before: Option<Stance>,
    not_send: PhantomData<Rc<()>>,
}

/// Sets the stance of every compiled function that this thread calls; it goes before those in their options.
///
/// ```
/// # fn main() -> opfuse::Result<()> {
/// use opfuse::compile::{Stance, stance};
/// use opfuse::{Tensor, compile};
/// let f = compile(|x: &Tensor| x.exp());
/// let (short, long) = (Tensor::from_slice(&[0.0f32], &[1])?, Tensor::from_slice(&[0.0f32; 2], &[2])?);
/// f.call(&short)?;
/// let strict = stance(Stance::FailOnRecompile);
/// assert!(f.call(&short).is_ok() && f.call(&long).is_err());
/// drop(strict);
/// assert!(f.call(&long).is_ok());
/// # Ok(())
/// # }
/// ```
pub fn stance(stance: Stance) -> StanceGuard {
    StanceGuard { before: STANCE.replace(Some(stance)), not_send: PhantomData }
}

impl Drop for StanceGuard {
    fn drop(&mut self) {
        STANCE.set(self.before);
    }
}
