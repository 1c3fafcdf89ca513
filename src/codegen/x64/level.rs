//! Instruction sets: the width and number of vector registers, and what follows from them.
//!
//! The two levels share everything above instructions. With [`Level::Avx512`] a bool is a mask register, constants are
//! broadcast by the instructions that read them, and instructions write under a mask. With [`Level::Avx2`] a bool is a
//! vector of all-ones or zero 32-bit lanes, constants are whole vectors in memory, and blends select lanes.

use super::encoder::Width;
use crate::codegen::native::deinterleaved::Deinterleave;
use crate::codegen::vm::Isa;

/// An instruction set that code is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// AVX2, FMA and F16C: 16 vectors of 256 bits.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, and BMI2: 32 vectors of 512 bits.
    Avx512,
}

impl Level {
    /// Every level, weakest first.
    pub const ALL: [Level; 2] = [Level::Avx2, Level::Avx512];

    /// Its name, as in `OPFUSE_ISA`.
    pub const fn name(self) -> &'static str {
        self.isa().name()
    }

    const fn isa(self) -> Isa {
        match self {
            Level::Avx2 => Isa::Avx2,
            Level::Avx512 => Isa::Avx512,
        }
    }

    /// Whether this processor has its instructions, and the system allows executable memory.
    pub fn is_available(self) -> bool {
        cfg!(unix) && self.isa().is_available() && self.has_others()
    }

    /// The strongest level that is available and that `OPFUSE_ISA` allows.
    pub fn best() -> Option<Level> {
        static BEST: std::sync::OnceLock<Option<Level>> = std::sync::OnceLock::new();
        let allowed = |level: &Level| level.isa() <= Isa::best() && level.is_available();
        *BEST.get_or_init(|| Level::ALL.into_iter().rev().find(allowed))
    }

    /// Which strided operands and outputs are copied rather than gathered and scattered.
    pub(in crate::codegen) const fn deinterleave(self) -> Deinterleave {
        match self {
            Level::Avx2 => Deinterleave::Always,
            Level::Avx512 => Deinterleave::Near,
        }
    }

    /// Whether a single pass prefetches what it reads; see `prefetch`. AMD's processors alone have SSE4a.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn prefetches_single_passes(self) -> bool {
        self == Level::Avx512 && !is_x86_feature_detected!("sse4a")
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn prefetches_single_passes(self) -> bool {
        false
    }

    #[cfg(target_arch = "x86_64")]
    fn has_others(self) -> bool {
        match self {
            Level::Avx2 => is_x86_feature_detected!("f16c"),
            Level::Avx512 => is_x86_feature_detected!("bmi2"),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn has_others(self) -> bool {
        false
    }

    /// Bits of a vector.
    pub(super) const fn width(self) -> Width {
        match self {
            Level::Avx2 => Width::Y,
            Level::Avx512 => Width::Z,
        }
    }

    /// Elements of an iteration: the 32-bit lanes of a vector.
    pub(super) const fn lanes(self) -> usize {
        self.width().bytes() as usize / 4
    }

    /// The number of vector registers.
    pub(super) const fn n_vectors(self) -> usize {
        match self {
            Level::Avx2 => 16,
            Level::Avx512 => 32,
        }
    }

    /// Vector registers that the partial results of a loop may take. If they need more, they are in the frame.
    pub(super) const fn most_partials(self) -> usize {
        self.n_vectors() / 2
    }

    /// Vector registers that the copies of a body may fill.
    pub(super) const fn most_alive(self) -> usize {
        self.n_vectors() - 4
    }

    /// Values that the copies of a body of `n_insts` instructions without folds may have live at once. With few
    /// registers, waiting for spilled values costs less than waiting for dependent instructions. In a long body, the
    /// remaining elements of a row, which take single copies, count little (`cargo bench --bench fusion`: W01m and W22
    /// want more copies; W03 and W06 no odd number of them).
    pub(super) const fn most_copied(self, n_insts: usize) -> usize {
        match self {
            Level::Avx2 => 3 * self.n_vectors(),
            Level::Avx512 if n_insts < LONG_BODY => self.most_alive(),
            Level::Avx512 => 3 * self.n_vectors() / 2,
        }
    }
}

/// A body with at least this many instructions is long.
const LONG_BODY: usize = 64;
