//! Code tiers: which one compiles a kernel, and how a compiled kernel is called.

use super::cranelift;
use super::geometry::{Class, Geometry, Lanes};
use super::kernel::{Kernel, Kind};
use super::launch::{Faults, Part, Pointers};
use super::native;
use super::vm;
use super::x64;
use crate::error::Reason;
use crate::ir::DType;
use std::fmt;

/// A way to make running code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// Precompiled SIMD routines over tiles; accepts every kernel.
    Vm,
    /// Machine code by Cranelift.
    Cranelift,
    /// Machine code for AVX-512, written directly.
    X64,
}

impl Tier {
    /// Every tier.
    pub const ALL: [Tier; 3] = [Tier::Vm, Tier::Cranelift, Tier::X64];

    /// Its name, as in `OPFUSE_TIER`.
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Vm => "vm",
            Tier::Cranelift => "cranelift",
            Tier::X64 => "x64",
        }
    }

    /// The tier of that name.
    pub fn from_name(name: &str) -> Option<Tier> {
        Tier::ALL.into_iter().find(|tier| tier.name() == name)
    }

    /// The tier that suits a kernel on this machine.
    ///
    /// A short chain of plain arithmetic that lies in registers beats tiles in cache, so Cranelift takes it. Funcs,
    /// folds, 16-bit floats and long chains want the widest vectors and conversions there are, which the vm's
    /// routines have and 128-bit code has not; so do operands that jump, which the vm walks in patches. The limits
    /// were measured by `cargo bench --bench fusion`.
    pub fn choose(kernel: &Kernel, geometry: &Geometry) -> Tier {
        let loads = kernel.insts.iter().filter(|inst| matches!(inst.kind, Kind::Load(_) | Kind::Lit(_))).count();
        let arithmetic = kernel.insts.len() - loads;
        let short = (2..=SHORT_CHAIN).contains(&arithmetic);
        let plain = !kernel.has_funcs() && !kernel.has_folds() && geometry.lanes == Lanes::Inner;
        let dtypes =
            kernel.operands.iter().map(|operand| operand.dtype).chain(kernel.outputs.iter().map(|out| out.dtype));
        let wide = !dtypes.into_iter().any(|dtype| matches!(dtype, DType::F16 | DType::BF16));
        let jumps =
            geometry.operands.iter().chain(&geometry.outputs).any(|access| geometry.lane_stride(access) > CACHE_LINE);
        let long = geometry.inner.last().is_some_and(|&size| size >= LONG_ENOUGH);
        if short && plain && wide && long && !jumps { Tier::Cranelift } else { Tier::Vm }
    }
}

/// Arithmetic instructions up to which 128-bit code in registers beats wide code through tiles.
const SHORT_CHAIN: usize = 16;
/// Elements of the vector loop from which machine code pays.
const LONG_ENOUGH: usize = 64;
/// Bytes between lanes above which every lane touches its own cache line.
const CACHE_LINE: usize = 64;

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A kernel as running code.
pub enum Compiled {
    /// Tile instructions.
    Vm(Box<vm::Program>),
    /// Machine code.
    Cranelift(Box<native::Program>),
    /// Machine code.
    X64(Box<native::Program>),
}

impl Compiled {
    /// Compiles for one vector loop and its access classes with `tier`; what that declines goes to the vm, with the
    /// reason.
    pub fn new(
        tier: Tier,
        kernel: &Kernel,
        lanes: Lanes,
        classes: &[Class],
    ) -> Result<(Compiled, Option<Reason>), Reason> {
        let declined = match tier {
            Tier::Vm => None,
            Tier::Cranelift => match cranelift::compile(kernel, lanes, classes) {
                Ok(program) => return Ok((Compiled::Cranelift(Box::new(program)), None)),
                Err(reason) => Some(reason),
            },
            Tier::X64 => match x64::compile(kernel, lanes, classes) {
                Ok(program) => return Ok((Compiled::X64(Box::new(program)), None)),
                Err(reason) => Some(reason),
            },
        };
        vm::Program::compile(kernel, lanes, classes).map(|program| (Compiled::Vm(Box::new(program)), declined))
    }

    /// The tier it was compiled by.
    pub fn tier(&self) -> Tier {
        match self {
            Compiled::Vm(_) => Tier::Vm,
            Compiled::Cranelift(_) => Tier::Cranelift,
            Compiled::X64(_) => Tier::X64,
        }
    }

    /// Runs a part of a launch.
    ///
    /// # Safety
    /// As for the tiers: every pointer must be good for every element that the geometry's accesses reach, outputs
    /// must not be read or written by anyone else meanwhile, and parts that run at once must be disjoint.
    #[allow(unsafe_code, reason = "passes its own contract on")]
    pub unsafe fn run(&self, geometry: &Geometry, pointers: Pointers<'_>, part: &Part, faults: &Faults) {
        match self {
            // SAFETY: the caller keeps the contract, which is the same.
            Compiled::Vm(program) => unsafe { program.run(geometry, pointers, part, faults) },
            // SAFETY: the caller keeps the contract, which is the same.
            Compiled::Cranelift(program) | Compiled::X64(program) => unsafe {
                program.run(geometry, pointers, part, faults)
            },
        }
    }
}
