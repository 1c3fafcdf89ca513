//! Options of compiled functions, and stances.
//!
//! A stance of the thread ([`stance`]) overrides that of the function. Only [`Numerics::Fast`] changes what a function
//! computes.

use super::calibration::calibration;
use crate::codegen::tier::Tier;
use crate::debug;
use crate::fusion::Options;
use crate::ir::Numerics;
use crate::scope::{Replace, SettingGuard, ThreadSetting, thread_setting};

/// The default number of sets of input types that a compiled function keeps programs for.
pub const CAPACITY: usize = 256;

/// Options of a compiled function.
#[derive(Debug, Clone)]
pub struct CompileOptions {
    /// Options of fusion.
    pub fusion: Options,
    /// The code tier of all kernels. `None` chooses per kernel. A kernel that the tier declines runs in the vm.
    pub tier: Option<Tier>,
    /// The maximum number of sets of input types to keep programs for, with LRU eviction. With 0 the function always
    /// runs eagerly.
    pub capacity: usize,
    /// Which new input types are captured at once.
    pub new_types: NewTypes,
    /// What a graph break does.
    pub breaks: BreakPolicy,
    /// What a call does, unless [`stance`] sets it for the thread.
    pub stance: Stance,
    /// Whether a second trace checks that the function always does the same.
    pub determinism: Determinism,
    /// Whether measurements check the decisions of the cost model.
    pub tuning: Tuning,
    /// What results may depend on, also when the function runs eagerly. `None` uses the setting of the calling thread
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
    /// The tier of these options, or else that of `OPFUSE_TIER`.
    pub(super) fn tier_or_forced(&self) -> Option<Tier> {
        self.tier.or_else(|| debug::forced_tier().and_then(Tier::from_name))
    }
}

/// Which new input types a function is captured for at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum NewTypes {
    /// The first `AT_ONCE` types of a function, and more if a run takes as long as a capture. Other types run eagerly
    /// until these runs have taken as long as a capture.
    #[default]
    Wait,
    /// All types.
    Capture,
}

/// What a graph break does: a read of a value (`item`, `to_vec`, printing), or a call that cannot be captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BreakPolicy {
    /// From the next call on, the function runs in compiled segments between graph breaks, as with
    /// [`Stance::Deferred`]. Each graph break is counted, and has a reason.
    #[default]
    Allow,
    /// The call returns an error that names the graph break, also where the function would otherwise run eagerly.
    Error,
    /// The whole function runs eagerly.
    Eager,
}

/// Whether the function can be trusted to do the same in every call with inputs of the same types. A function that
/// depends on a counter, a clock, or other state outside tensors does not; use `Stance::Deferred` for it. Random
/// numbers from generators are no problem: each call draws its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Determinism {
    /// It is trusted.
    #[default]
    Assumed,
    /// The second call traces the function again abstractly. If the traces differ, the function runs in segments from
    /// then on, and the report says so.
    Checked,
}

/// What decides whether kernels are merged. The results have the same bits in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tuning {
    /// The cost model alone. The same function has the same plan in every run.
    #[default]
    Modelled,
    /// Measurements too. The third run of a graph takes some ten milliseconds longer: each merged kernel is timed
    /// against its parts, and is split if it is slower. Plans may then differ between runs. Reports say why.
    Measured,
}

/// What a call of a compiled function does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Stance {
    /// Captures at the first call with each set of input types, and runs the captured program in later calls.
    #[default]
    Default,
    /// Runs the function eagerly, even if it was captured.
    Eager,
    /// Runs the function in every call, and records the calls that it makes. They run compiled when a value is needed
    /// or when the function returns. So captured state, control flow and numbers are always current. An error of a
    /// recorded call is reported at the next read of a value, or at the end. If an input requires gradients, the
    /// function runs eagerly.
    Deferred,
    /// Like `Default`, but inputs of new types are an error that says what differs.
    FailOnRecompile,
}

thread_setting! {
    /// The stance of this thread, if one is set.
    struct ThreadStance(Option<Stance>, Replace<Option<Stance>>) = None;
}

/// The stance of this thread, if one is set.
pub(super) fn stance_here() -> Option<Stance> {
    ThreadStance::get()
}

/// Keeps a stance. Made by [`stance`].
#[derive(Debug)]
#[must_use = "the stance holds only while the guard lives"]
pub struct StanceGuard {
    _choice: SettingGuard<ThreadStance>,
}

/// Sets the stance of all compiled functions on this thread until the guard is dropped. It overrides their options.
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
    StanceGuard { _choice: ThreadStance::change(Replace(Some(stance))) }
}
