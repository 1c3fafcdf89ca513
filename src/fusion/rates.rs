//! Rates: how fast one thread of a machine is.
//!
//! The rates are plain numbers, so that a plan is a function of graph and options alone. [`Rates::BUILT_IN`] stands for
//! no machine in particular; `compile::calibration` measures those of this machine.

use super::work::Work;

/// Nanoseconds.
pub type Nanos = f64;

/// Bytes that the levels of memory hold; what is larger than the last lies in the last.
pub const LEVELS: [usize; 3] = [32 << 10, 1 << 20, 16 << 20];

/// The level that bytes in use lie in, as an index of [`Rates::bandwidth`].
pub fn level(held: usize) -> usize {
    LEVELS.iter().position(|&level| held <= level).unwrap_or(LEVELS.len())
}

/// How fast one thread of a machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rates {
    /// Nanoseconds that a kernel takes besides its loops.
    pub launch: u32,
    /// Bytes per microsecond, read and written, when everything lies in the first, second, … of [`LEVELS`], and in
    /// memory.
    pub bandwidth: [u32; LEVELS.len() + 1],
    /// How many times slower elements are read or written when each lies in another cache line than the one before.
    pub jump: u32,
    /// Plain instructions per microsecond, each on one element.
    pub plain: u32,
    /// Functions such as `exp` per microsecond.
    pub functions: u32,
    /// Multiplications and additions of a matrix product per microsecond, each pair counted once.
    pub multiply_adds: u32,
}

impl Rates {
    /// Those of a server's core with wide vectors, rounded; where no others are given.
    pub const BUILT_IN: Rates = Rates {
        launch: 200,
        bandwidth: [80_000, 60_000, 40_000, 15_000],
        jump: 8,
        plain: 25_000,
        functions: 2_000,
        multiply_adds: 60_000,
    };

    /// How long it takes to move that many bytes when `held` bytes are in use.
    pub(super) fn moving(&self, bytes: usize, held: usize) -> Nanos {
        bytes as f64 * 1e3 / f64::from(self.bandwidth[level(held)].max(1))
    }

    /// The same where some bytes are walked across the lines that they lie in.
    pub(super) fn scattered(&self, bytes: usize, scattered: usize) -> Nanos {
        self.moving(bytes + scattered * self.jump.max(1) as usize, bytes + scattered)
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
