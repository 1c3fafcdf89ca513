//! Random generators: the source of seeds and counters for draws.
//!
//! A generator computes no numbers. It holds a seed and the next unused counter of Philox4x32-10. A draw takes as many
//! counters as it needs, in one atomic step; [`crate::ir::philox`] defines the numbers of each counter. So numbers
//! depend on the seed and the order of draws, never on threads, devices or tiers.
//!
//! What always holds: no two draws with the same seed share a counter, until 2^64 counters are used.

use super::Device;
use super::current;
use super::runtime;
use crate::error::Result;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The default seed, so that programs are reproducible unless they choose another.
pub const DEFAULT_SEED: u64 = 0x6f70_6675_7365;

/// A source of random draws. Clones are the same generator, and any thread may use it.
///
/// ```
/// # fn main() -> opfuse::Result<()> {
/// use opfuse::{DType, Device, Generator};
/// let generator = Generator::new(Device::CPU);
/// generator.manual_seed(7);
/// let again = generator.fork();
/// let first = generator.rand(&[2, 3], DType::F32)?;
/// assert_eq!(first.to_vec::<f32>()?, again.rand(&[2, 3], DType::F32)?.to_vec::<f32>()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Generator(Arc<Inner>);

struct Inner {
    device: Device,
    state: Mutex<GeneratorState>,
}

thread_local! {
    static N_SETTINGS: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread has seeded a generator or set its state. If a trace changes it, the trace cannot be replayed.
pub(crate) fn n_settings() -> u64 {
    N_SETTINGS.get()
}

/// The state of a generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeneratorState {
    /// The key of its numbers.
    pub seed: u64,
    /// The next unused counter.
    pub counter: u64,
}

impl Generator {
    /// A new generator for tensors on `device`, with the default seed.
    pub fn new(device: Device) -> Generator {
        let state = GeneratorState { seed: DEFAULT_SEED, counter: 0 };
        Generator(Arc::new(Inner { device, state: Mutex::new(state) }))
    }

    /// Whether both are the same generator, so that a draw from one is a draw from the other.
    pub fn is_same(&self, other: &Generator) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The generator that random ops on `device` use by default.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn default_of(device: Device) -> Result<Generator> {
        let (_, index) = runtime::of(device, current::current_index(device.kind))?;
        let device = Device { index: Some(index), ..device };
        let mut defaults = defaults();
        let seed = defaults.seed;
        let make = || {
            let generator = Generator::new(device);
            generator.lock().seed = seed;
            generator
        };
        Ok(defaults.by_device.entry((device.kind as u8, device.index)).or_insert_with(make).clone())
    }

    /// The device of the tensors it is for.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// Sets the seed and restarts its numbers.
    pub fn manual_seed(&self, seed: u64) {
        self.set_state(GeneratorState { seed, counter: 0 });
    }

    /// Sets an unpredictable seed, and returns it.
    pub fn seed(&self) -> u64 {
        // The standard library's hashers are keyed by the system's randomness.
        let seed = RandomState::new().hash_one(std::time::SystemTime::now());
        self.manual_seed(seed);
        seed
    }

    /// The current seed.
    pub fn initial_seed(&self) -> u64 {
        self.lock().seed
    }

    /// The current state.
    pub fn state(&self) -> GeneratorState {
        *self.lock()
    }

    /// Sets the state.
    pub fn set_state(&self, state: GeneratorState) {
        N_SETTINGS.set(N_SETTINGS.get() + 1);
        *self.lock() = state;
    }

    /// A new generator with the same state.
    pub fn fork(&self) -> Generator {
        Generator(Arc::new(Inner { device: self.0.device, state: Mutex::new(self.state()) }))
    }

    /// Takes `n` counters, and returns the state before.
    pub fn draw(&self, n: u64) -> GeneratorState {
        let mut state = self.lock();
        let start = *state;
        state.counter = start.counter.wrapping_add(n);
        start
    }

    /// Takes back a draw of `n` counters that began at `start`, unless someone else has drawn or set the state since.
    pub(crate) fn take_back(&self, start: GeneratorState, n: u64) {
        let mut state = self.lock();
        if *state == (GeneratorState { counter: start.counter.wrapping_add(n), ..start }) {
            *state = start;
        }
    }

    fn lock(&self) -> MutexGuard<'_, GeneratorState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets the seed of the default generators of all devices, including those that were not used yet.
pub fn manual_seed(seed: u64) {
    let mut defaults = defaults();
    defaults.seed = seed;
    defaults.by_device.values().for_each(|generator| generator.manual_seed(seed));
}

struct Defaults {
    /// The seed of new generators.
    seed: u64,
    by_device: BTreeMap<(u8, Option<u16>), Generator>,
}

fn defaults() -> MutexGuard<'static, Defaults> {
    static DEFAULTS: Mutex<Defaults> = Mutex::new(Defaults { seed: DEFAULT_SEED, by_device: BTreeMap::new() });
    DEFAULTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GeneratorState { seed, counter } = self.state();
        write!(f, "Generator(seed {seed} at {counter} on {})", self.device())
    }
}
