//! Rates: how fast one thread of a machine is.
//!
//! A plan is a function of the graph and the options alone, and rates are among the options. [`Rates::BUILT_IN`] is the
//! default on every machine. `compile::calibration` measures the rates of this machine.

use super::work::Work;

/// Nanoseconds.
pub type Nanos = f64;

/// The sizes in bytes of the levels of cache in the model.
pub const LEVELS: [usize; 3] = [32 << 10, 1 << 20, 16 << 20];

/// The level that holds so many bytes in use, as an index of [`Rates::bandwidth`].
pub fn level(held: usize) -> usize {
    LEVELS.iter().position(|&level| held <= level).unwrap_or(LEVELS.len())
}

/// How fast one thread of a machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rates {
    /// Nanoseconds that a kernel takes besides its loops.
    pub launch: u32,
    /// Bytes per microsecond, read and written. The first three entries are for memory that is used again before more
    /// than 32 KiB, 1 MiB and 16 MiB of others are, and the last one is for other memory.
    pub bandwidth: [u32; LEVELS.len() + 1],
    /// How many times slower elements are read or written if each is in another cache line than the one before.
    pub jump: u32,
    /// Plain instructions per microsecond, each on one element of 4 bytes.
    pub plain: u32,
    /// Functions such as `exp` per microsecond.
    pub functions: u32,
    /// Multiplications and additions of a matrix product per microsecond, each pair counted once.
    pub multiply_adds: u32,
}

impl Rates {
    /// The default: rounded rates of a server's core with 512-bit vectors (AMD Zen 5).
    pub const BUILT_IN: Rates = Rates {
        launch: 60,
        bandwidth: [320_000, 240_000, 100_000, 45_000],
        jump: 2,
        plain: 100_000,
        functions: 5_600,
        multiply_adds: 130_000,
    };

    /// The time to move that many bytes and nothing else.
    pub fn moving_time(&self, bytes: usize) -> Nanos {
        self.moving(bytes, bytes)
    }

    /// The time to move that many bytes if `held` bytes are in use.
    pub(super) fn moving(&self, bytes: usize, held: usize) -> Nanos {
        bytes as f64 * 1e3 / f64::from(self.bandwidth[level(held)].max(1))
    }

    pub(super) fn computing(&self, work: Work) -> Nanos {
        (work.plain / f64::from(self.plain.max(1)) + work.functions / f64::from(self.functions.max(1))) * 1e3
    }
}

impl Default for Rates {
    fn default() -> Rates {
        Rates::BUILT_IN
    }
}
