//! The instruction sets that routines and generated code may use on this processor.

use crate::debug;
use std::sync::OnceLock;

/// A level of vector instructions. All of them give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// What the crate was compiled for.
    Baseline,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Isa {
    /// Every level, weakest first.
    pub const ALL: [Isa; 3] = [Isa::Baseline, Isa::Avx2, Isa::Avx512];

    /// Whether this processor has it.
    #[cfg(target_arch = "x86_64")]
    pub fn is_available(self) -> bool {
        let avx2 = || is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        match self {
            Isa::Baseline => true,
            Isa::Avx2 => avx2(),
            Isa::Avx512 => {
                avx2()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
        }
    }

    /// Whether this processor has it.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_available(self) -> bool {
        self == Isa::Baseline
    }

    /// Its name, as in `OPFUSE_ISA`.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Baseline => "baseline",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// The best level of this processor that `OPFUSE_ISA` allows.
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        let most = || Isa::ALL.into_iter().find(|isa| debug::most_isa() == Some(isa.name())).unwrap_or(Isa::Avx512);
        let find = |most: Isa| Isa::ALL.into_iter().rev().find(|&isa| isa <= most && isa.is_available());
        *BEST.get_or_init(|| find(most()).unwrap_or(Isa::Baseline))
    }
}
