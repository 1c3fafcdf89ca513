//! The processor that machine code is made for: this one, detected once.

use crate::error::{Reason, TierLimit};
use cranelift_codegen::ir::Endianness;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use std::sync::OnceLock;

/// How registers are allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Registers {
    /// Carefully: values that loops carry stay in registers.
    Backtracking,
    /// In one pass over the code, several times as fast. It suffices for long straight bodies, which spill anyway.
    SinglePass,
}

/// Cranelift's description of this processor, or why there is none.
pub(super) fn isa(registers: Registers) -> Result<&'static OwnedTargetIsa, Reason> {
    static ISAS: [OnceLock<Result<OwnedTargetIsa, TierLimit>>; 2] = [const { OnceLock::new() }; 2];
    let isa = ISAS[registers as usize].get_or_init(|| build(registers));
    isa.as_ref().map_err(|limit| limit.clone().into())
}

fn build(registers: Registers) -> Result<OwnedTargetIsa, TierLimit> {
    let mut flags = settings::builder();
    let verifier = if cfg!(debug_assertions) { "true" } else { "false" };
    let wanted = [
        // The writer merges equal nodes and hoists loop invariants by itself. With "speed", the code ran no faster and
        // took 1.3 to 1.8 times as long to compile.
        ("opt_level", "none"),
        ("regalloc_algorithm", if registers == Registers::SinglePass { "single_pass" } else { "backtracking" }),
        ("enable_verifier", verifier),
        ("is_pic", "false"),
        ("unwind_info", "false"),
        // Frames are a few KiB of partial results; no guard page can be skipped.
        ("enable_probestack", "false"),
    ];
    for (name, value) in wanted {
        flags.set(name, value).map_err(|error| cranelift(format!("{name}={value}: {error}")))?;
    }
    let builder = cranelift_native::builder().map_err(|error| cranelift(error.to_owned()))?;
    let isa = builder.finish(settings::Flags::new(flags)).map_err(|error| cranelift(error.to_string()))?;
    if isa.pointer_bits() != 64 || isa.endianness() != Endianness::Little {
        return Err(TierLimit::UnknownMachine);
    }
    Ok(isa)
}

fn cranelift(error: String) -> TierLimit {
    TierLimit::Cranelift { error: error.into() }
}
