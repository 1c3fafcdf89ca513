//! Code tiers: which one compiles a kernel, and how a compiled kernel is called.

use super::cranelift;
use super::geometry::{Access, CACHE_LINE, Class, Geometry, Lanes};
use super::kernel::{FOLD_BLOCK, Kernel, Kind};
use super::launch::{Faults, Part, Pointers};
use super::native::{
    self, Splitting, deinterleaved::wide_columns, gathered::gathered, sweeps, transposed::covers_jumps,
    transposed::transposed,
};
use super::vm;
use super::x64;
use crate::debug::{self, Stage};
use crate::error::Reason;
use crate::ir::DType;
use crate::ir::scalar::Func;
use std::fmt;

/// A way to make running code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// Precompiled SIMD routines over tiles; accepts every kernel.
    Vm,
    /// Machine code by Cranelift, in builds with the feature `cranelift`.
    Cranelift,
    /// Machine code for AVX-512 or AVX2, written directly.
    X64,
}

/// A new tier stops the compiler here until it is in [`Tier::ALL`], which makes the tests run it.
const _: () = match Tier::Vm {
    Tier::Vm | Tier::Cranelift | Tier::X64 => assert!(Tier::ALL.len() == 3),
};

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

    /// The tier for a kernel on this processor.
    ///
    /// The x64 tier keeps a chain in wide registers, so it takes what it can express. The vm keeps what is bound by
    /// memory or better split:
    ///
    /// - operands that jump, which it walks in patches, unless they are transposed matrices, columns that are
    ///   transposed together, or rows staged once;
    /// - single ops on one row or on long rows;
    /// - rows so long that several threads fold them.
    ///
    /// Without the x64 tier, Cranelift takes short rows and short chains of plain arithmetic, in builds that have it.
    /// Its 128-bit code has neither the width nor the conversions for the rest. `cargo bench --bench fusion` measured
    /// the limits.
    pub fn choose(kernel: &Kernel, geometry: &Geometry) -> Tier {
        let loads = kernel.insts.iter().filter(|inst| matches!(inst.kind, Kind::Load(_) | Kind::Lit(_))).count();
        let arithmetic = kernel.insts.len() - loads;
        let is_far = |access: &Access| (geometry.lane_stride(access) as isize).unsigned_abs() > CACHE_LINE;
        let transposed = transposed(kernel, geometry);
        let (gathered, columns) = (gathered(kernel, geometry), wide_columns(kernel, geometry));
        let is_uncovered = |(slot, access): (usize, &Access)| {
            is_far(access) && ![&transposed, &gathered, &columns].iter().any(|staged| staged.contains(&slot))
        };
        let outputs = (kernel.operands.len()..).zip(&geometry.outputs);
        let n_jumps =
            geometry.operands.iter().enumerate().chain(outputs).filter(|&access| is_uncovered(access)).count();
        // The lines of a packed row stay in a cache until the next rows have read the rest of them.
        let lines = n_jumps.saturating_mul(geometry.n_inner()).saturating_mul(CACHE_LINE);
        let is_packed = geometry.inner.len() > 1 && is_worth_packing(kernel, geometry) && lines <= MOST_PACKED;
        let jumps = n_jumps > 0 && !is_packed;
        let lanes = geometry.inner.last().copied().unwrap_or(1);
        let is_short = lanes < SHORT_ROW;
        // The vm reads strided elements one by one.
        let gathers = kernel.has_folds() && geometry.classes(kernel).contains(&Class::Strided);
        let has_indices = kernel.has_gathers();
        let walks_rows = is_short && geometry.n_rows() > 1;
        if geometry.lanes == Lanes::Rows {
            let runs = |level| !jumps && is_for_x64_along_rows(level, kernel, geometry);
            return if x64::Level::best().is_some_and(runs) { Tier::X64 } else { Tier::Vm };
        }
        // The vm takes several times longer for folds of indices (`scripts/sweep.sh --only argmax`).
        let is_plain = !gathers && !has_indices && !kernel.folds_indices();
        // Machine code converts between two and four bytes in registers, and the vm through tiles, in twice the time
        // (`cargo bench --bench cost_model -- relu gt`).
        let converts = arithmetic > 0 && kernel.dtypes().any(|dtype| matches!(dtype, DType::F16 | DType::BF16));
        let is_single = arithmetic < 2 && transposed.is_empty() && !walks_rows && is_plain && !converts;
        if is_single || jumps || moves_rows(kernel, geometry) || is_narrow(kernel, geometry) {
            return Tier::Vm;
        }
        if x64::Level::best().is_some_and(|level| is_for_x64(level, kernel, geometry)) {
            return Tier::X64;
        }
        let plain = !kernel.has_funcs() && !kernel.has_folds();
        let wide = !kernel.dtypes().any(|dtype| matches!(dtype, DType::F16 | DType::BF16));
        let is_for_cranelift = (2..=SHORT_CHAIN).contains(&arithmetic) && plain
            || is_short && geometry.inner.len() == 1 && !has_angles(kernel);
        let is_taken = cranelift::IS_BUILT && is_for_cranelift && wide && transposed.is_empty();
        if is_taken { Tier::Cranelift } else { Tier::Vm }
    }
}

/// Chooses another vector loop where the vm would run the kernel, and machine code takes it with that one.
pub(super) fn turn(kernel: &Kernel, geometry: &mut Geometry) {
    let Some(level) = x64::Level::best().filter(|_| kernel.has_folds()) else { return };
    let lanes = geometry.lanes;
    if lanes == Lanes::Rows && (kernel.folds_once() || is_for_x64_along_rows(level, kernel, geometry)) {
        return;
    }
    geometry.lanes = if lanes == Lanes::Rows { Lanes::Inner } else { Lanes::Rows };
    let is_taken = match geometry.lanes {
        Lanes::Rows => native::merges_rows(kernel, geometry) && is_for_x64_along_rows(level, kernel, geometry),
        Lanes::Inner => is_worth_turning(level, kernel, geometry),
    };
    if !is_taken {
        geometry.lanes = lanes;
    }
}

/// Whether to run vectors along the folds, though operands or outputs are far apart there: machine code can transpose a
/// few rows at a time. The vm walks several passes along the rows in narrow strips, with a call per strip and
/// instruction.
fn is_worth_turning(level: x64::Level, kernel: &Kernel, geometry: &Geometry) -> bool {
    let n_inner = geometry.n_inner();
    n_inner >= LEAST_TURNED
        && geometry.n_rows().saturating_mul(n_inner) >= LEAST_WORK
        && is_for_x64(level, kernel, geometry)
        && covers_jumps(kernel, geometry)
}

/// Shorter folds are not turned: a row takes longer to start than to walk.
const LEAST_TURNED: usize = 16;
/// Elements below which the vm's first calls would take longer.
const LEAST_WORK: usize = 1 << 15;

/// Whether machine code for wide vectors runs the kernel faster than the vm.
fn is_for_x64(level: x64::Level, kernel: &Kernel, geometry: &Geometry) -> bool {
    let is_long = geometry.n_rows() == 1 || geometry.inner.last().is_some_and(|&lanes| lanes >= LONG_ANGLES);
    let one_line = geometry.inner.len() == 1 || is_worth_packing(kernel, geometry);
    // The vm spreads the blocks of a few long rows over threads, of which machine code would make copies.
    let few_rows = kernel.folds_once() && geometry.n_rows() < FEW_ROWS && geometry.n_inner() > FOLD_BLOCK;
    let few_rows = few_rows && !native::folds_in_place(kernel, geometry);
    !(is_long && has_angles(kernel) && !native::skips_reduction(kernel))
        && one_line
        && !few_rows
        && has_code(level, kernel, geometry)
}

/// Whether there is code for the accesses of a launch, or for copies of them. Where a copy is all there is to do, the
/// vm does it, unless it is a transpose.
fn has_code(level: x64::Level, kernel: &Kernel, geometry: &Geometry) -> bool {
    if is_copy(kernel) && transposed(kernel, geometry).is_empty() {
        return x64::declined(level, kernel, &geometry.classes(kernel)).is_none();
    }
    let of_copies = native::classes_of_codes(level.deinterleave(), kernel, geometry);
    of_copies.iter().any(|classes| x64::declined(level, kernel, classes).is_none())
}

/// Whether machine code for wide vectors runs the kernel faster than the vm, with vectors along the rows.
fn is_for_x64_along_rows(level: x64::Level, kernel: &Kernel, geometry: &Geometry) -> bool {
    let fills_vectors =
        geometry.rows.last().is_some_and(|&rows| rows >= LEAST_ROWS) || native::merges_rows(kernel, geometry);
    // Sweeps have no folds, so they skip the range reduction of angles.
    let reduces_angles = has_angles(kernel) && kernel.has_gathers();
    fills_vectors && !reduces_angles && x64::declined_along_rows(level, kernel, &geometry.classes(kernel)).is_none()
}

/// Whether there are functions of angles. To reduce all of them like huge ones takes machine code five times as long as
/// the rest. The vm never does.
fn has_angles(kernel: &Kernel) -> bool {
    let is_angle = |kind: &Kind| matches!(kind, Kind::Func(Func::Sin | Func::Cos | Func::Tan));
    kernel.insts.iter().any(|inst| is_angle(&inst.kind))
}

/// Whether elements are only moved, in rows that the vm copies as they are, backwards or repeated: see
/// `codegen/vm/copying.rs`. Machine code takes twice as long (`scripts/sweep.sh --only flip`).
fn moves_rows(kernel: &Kernel, geometry: &Geometry) -> bool {
    let [output] = &kernel.outputs[..] else { return false };
    let bytes = output.dtype.size();
    let is_row = |access: &Access| {
        let stride = geometry.lane_stride(access);
        stride == 0 || stride == bytes || stride == bytes.wrapping_neg()
    };
    is_copy(kernel)
        && (geometry.inner.len(), geometry.lanes) == (1, Lanes::Inner)
        && geometry.n_inner() >= LEAST_MOVED
        && geometry.operands.iter().all(is_row)
}

/// Whether the vm computes rows in whole numbers of one or two bytes. Machine code widens them to four, which takes
/// three times as long (`scripts/sweep.sh --only add`).
fn is_narrow(kernel: &Kernel, geometry: &Geometry) -> bool {
    let narrow = || vm::narrow::Narrow::of(vm::Isa::best(), kernel, geometry.lanes);
    geometry.n_inner() >= LEAST_NARROW && narrow().is_some_and(|narrow| narrow.takes(geometry))
}

/// Whether elements are only moved.
fn is_copy(kernel: &Kernel) -> bool {
    kernel.insts.iter().all(|inst| matches!(inst.kind, Kind::Load(_) | Kind::Lit(_)))
}

/// Whether rows of several loops are copied to contiguous memory (`native::packed`): the copies must stay in a
/// second-level cache. The vm starts each instruction anew for every piece of a row, which takes up to eight times as
/// long: the backward pass of batch norm over small images
/// (`python/benches/torch_compile.py --nets --models "mobilenet_v3_small 8x96"`).
fn is_worth_packing(kernel: &Kernel, geometry: &Geometry) -> bool {
    let operands = kernel.operands.iter().map(|operand| operand.dtype.size());
    let bytes: usize = operands.chain(kernel.outputs.iter().map(|output| output.dtype.size())).sum();
    !kernel.has_gathers() && geometry.n_inner().saturating_mul(bytes) <= MOST_PACKED
}

/// Fewest elements of a row that the vm moves. It takes longer to start one than to move so many.
const LEAST_MOVED: usize = 16;
/// Fewest elements of a row that pay for its start.
const LEAST_NARROW: usize = 64;
/// Most bytes of the copies of a row.
const MOST_PACKED: usize = 1 << 20;
/// Fewer rows are left to the vm, which packs them.
const LEAST_ROWS: usize = 16;
/// With fewer rows, long folds are left to the vm.
const FEW_ROWS: usize = 8;
/// Rows of so many angles, beside folds or loads at an index, are left to the vm.
const LONG_ANGLES: usize = 16;
/// Most arithmetic instructions for which 128-bit code in registers beats wide code through tiles.
const SHORT_CHAIN: usize = 16;
/// For shorter rows, the vm takes longer to start a row than to walk it. A softmax of 16 takes 260 ns a row there, and
/// 20 ns in machine code (`OPFUSE_TIER=vm cargo bench --bench fusion -- W04s`, and without the variable).
const SHORT_ROW: usize = 1024;

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A kernel as running code.
pub enum Compiled {
    /// Tile instructions.
    Vm(Box<vm::VmProgram>),
    /// Machine code.
    Cranelift(Box<native::NativeProgram>),
    /// Machine code.
    X64(Box<native::NativeProgram>),
}

impl Compiled {
    /// Compiles for one vector loop and its access classes with `tier`. If the tier declines, the vm compiles, and the
    /// reason is returned too.
    pub fn new(
        tier: Tier,
        kernel: &Kernel,
        lanes: Lanes,
        classes: &[Class],
    ) -> Result<(Compiled, Option<Reason>), Reason> {
        debug::dump(Stage::Code, || listing(tier, kernel, lanes, classes));
        let declined = match tier {
            Tier::Vm => None,
            Tier::Cranelift => match cranelift::compile(kernel, lanes, classes) {
                Ok(program) => return Ok((Compiled::Cranelift(Box::new(program)), None)),
                Err(reason) => Some(reason),
            },
            Tier::X64 => match x64::Level::best().map(|level| x64::compile(level, kernel, lanes, classes)) {
                Some(Ok(program)) => return Ok((Compiled::X64(Box::new(program)), None)),
                Some(Err(reason)) => Some(reason),
                None => Some(x64::no_level()),
            },
        };
        vm::VmProgram::compile(kernel, lanes, classes).map(|program| (Compiled::Vm(Box::new(program)), declined))
    }

    /// The tier it was compiled by.
    pub fn tier(&self) -> Tier {
        match self {
            Compiled::Vm(_) => Tier::Vm,
            Compiled::Cranelift(_) => Tier::Cranelift,
            Compiled::X64(_) => Tier::X64,
        }
    }

    /// How threads share a row of a launch, if they may.
    pub(super) fn splitting(&self, geometry: &Geometry) -> Option<Splitting<'_>> {
        match self {
            Compiled::Vm(program) => Splitting::of_vm(program),
            Compiled::Cranelift(program) | Compiled::X64(program) => program.splitting(geometry),
        }
    }

    /// Runs a part of a launch.
    ///
    /// # Safety
    /// As for the tiers. Every pointer must be good for every element that the geometry's accesses reach. Nothing else
    /// may read or write the outputs meanwhile. Parts that run at the same time must be disjoint.
    #[allow(unsafe_code, reason = "passes its own contract on")]
    pub unsafe fn run(&self, geometry: &Geometry, pointers: Pointers<'_>, part: &Part, faults: &Faults) {
        match self {
            // SAFETY: the caller keeps the same contract.
            Compiled::Vm(program) => unsafe { program.run(geometry, pointers, part, faults) },
            // SAFETY: the caller keeps the same contract.
            Compiled::Cranelift(program) | Compiled::X64(program) => unsafe {
                program.run(geometry, pointers, part, faults)
            },
        }
    }
}

/// A listing of the code that a tier makes of a kernel, for people.
fn listing(tier: Tier, kernel: &Kernel, lanes: Lanes, classes: &[Class]) -> String {
    let whole = |kernel: &Kernel, classes: &[Class]| match tier {
        Tier::Vm => Ok(kernel.to_string()),
        Tier::Cranelift => cranelift::emit_text(kernel, classes),
        Tier::X64 => {
            x64::Level::best().ok_or_else(x64::no_level).and_then(|level| x64::emit_text(level, kernel, classes))
        }
    };
    let listing = match lanes {
        Lanes::Rows if tier != Tier::Vm => {
            let pieces = |stage: sweeps::Stage| [("sweep", Some(stage.sweep)), ("finish", stage.finish)];
            let text = |(name, piece): (&str, Option<sweeps::Piece>)| {
                piece.map(|piece| Ok(format!("{name}\n{}", whole(&piece.kernel, &piece.classes)?)))
            };
            let sweeps = sweeps::Sweeps::new(kernel, classes);
            let stages = sweeps.stages().flat_map(pieces).filter_map(text);
            stages.collect::<Result<Vec<String>, Reason>>().map(|pieces| pieces.join("\n"))
        }
        Lanes::Rows | Lanes::Inner => whole(kernel, classes),
    };
    listing.unwrap_or_else(|reason| reason.to_string())
}
