//! What may be printed, and the switches that ask for it.
//!
//! Switches are environment variables, read once:
//!
//! | variable | effect |
//! |---|---|
//! | `OPFUSE_DUMP=trace,simplify,plan,kernel,code` | prints those stages to standard error |
//! | `OPFUSE_EXPLAIN=1` | prints every reason when a function is compiled |
//! | `OPFUSE_EAGER=1` | `compile` is the identity |
//! | `OPFUSE_TIER=vm`, `cranelift` or `x64` | forces a code tier; what it declines runs in the vm |
//! | `OPFUSE_ISA=avx2` or `baseline` | code for stronger vectors is left aside |
//! | `OPFUSE_VERIFY=1` | verifies graphs after every pass in release builds too |
//! | `OPFUSE_CALIBRATION=file` | plans are made for the rates in that file, which is measured if it is not there |
//! | `OPFUSE_CACHE_DIR=folder` | machine code of the tier `x64`, and cubins, are kept in that folder between processes |
//! | `OPFUSE_STREAM_FROM=bytes` | outputs of so many bytes are written past the caches, by default those larger than the last cache, or of launches that move 128 MiB |
//! | `OPFUSE_CUDA_LIB_DIR=folder` | the CUDA driver, NVRTC and cublasLt are looked for there first |
//! | `OPFUSE_CUDA_PRODUCTS=own`, `cublaslt` or `wgmma` | who computes products of floats with `Numerics::Fast`, whatever the model says; `wgmma` is a kernel for compute capability 9.0 that was never run on a GPU |
//! | `OPFUSE_NUM_THREADS=n` | threads of the worker pool (read by `device::pool`) |

use std::sync::OnceLock;

/// A stage that can be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The traced graph.
    Trace,
    /// The graph after its passes.
    Simplify,
    /// Steps and edges.
    Plan,
    /// Loop-level kernels.
    Kernel,
    /// What a tier makes of them.
    Code,
}

impl Stage {
    const fn name(self) -> &'static str {
        match self {
            Stage::Trace => "trace",
            Stage::Simplify => "simplify",
            Stage::Plan => "plan",
            Stage::Kernel => "kernel",
            Stage::Code => "code",
        }
    }
}

struct Switches {
    dump: Vec<String>,
    explain: bool,
    eager: bool,
    verify: bool,
    tier: Option<String>,
    isa: Option<String>,
    calibration: Option<String>,
    cache: Option<String>,
    stream_from: Option<usize>,
    cuda_folder: Option<String>,
    cuda_products: Option<String>,
}

fn switches() -> &'static Switches {
    static SWITCHES: OnceLock<Switches> = OnceLock::new();
    SWITCHES.get_or_init(|| {
        let word = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let on = |name: &str| word(name).is_some_and(|value| value != "0");
        let dump = word("OPFUSE_DUMP").map(|list| list.split(',').map(|stage| stage.trim().to_string()).collect());
        Switches {
            dump: dump.unwrap_or_default(),
            explain: on("OPFUSE_EXPLAIN"),
            eager: on("OPFUSE_EAGER"),
            verify: on("OPFUSE_VERIFY"),
            tier: word("OPFUSE_TIER"),
            isa: word("OPFUSE_ISA"),
            calibration: word("OPFUSE_CALIBRATION"),
            cache: word("OPFUSE_CACHE_DIR"),
            stream_from: word("OPFUSE_STREAM_FROM").and_then(|bytes| bytes.parse().ok()),
            cuda_folder: word("OPFUSE_CUDA_LIB_DIR"),
            cuda_products: word("OPFUSE_CUDA_PRODUCTS"),
        }
    })
}

/// Whether a stage is to be printed.
pub fn dumps(stage: Stage) -> bool {
    switches().dump.iter().any(|name| name == stage.name())
}

/// Prints a stage if it is asked for; `text` is only made then.
pub fn dump(stage: Stage, text: impl FnOnce() -> String) {
    if dumps(stage) {
        print(&format!("== {} ==\n{}", stage.name(), text()));
    }
}

/// Prints a line to standard error; the one place that does.
#[allow(clippy::print_stderr, reason = "the user asked for this output by an environment variable")]
pub fn print(text: &str) {
    eprintln!("{text}");
}

/// Whether reasons are printed when a function is compiled.
pub fn explains() -> bool {
    switches().explain
}

/// Whether `compile` is the identity.
pub fn forces_eager() -> bool {
    switches().eager
}

/// Whether graphs are verified after every pass: in debug builds, or on request.
pub fn verifies() -> bool {
    cfg!(debug_assertions) || switches().verify
}

/// The code tier that is forced, by name.
pub fn forced_tier() -> Option<&'static str> {
    switches().tier.as_deref()
}

/// The strongest vector instructions that may be used, by name.
pub fn most_isa() -> Option<&'static str> {
    switches().isa.as_deref()
}

/// Bytes of outputs from which on they are written past the caches, if a number is named.
pub fn stream_from() -> Option<usize> {
    switches().stream_from
}

/// The folder where the libraries of CUDA are looked for first, if one is named.
pub fn cuda_folder() -> Option<&'static str> {
    switches().cuda_folder.as_deref()
}

/// Who is to compute products on CUDA devices, by name.
pub fn cuda_products() -> Option<&'static str> {
    switches().cuda_products.as_deref()
}

/// The file with the rates of this machine, if one is named.
pub fn calibration_file() -> Option<&'static str> {
    switches().calibration.as_deref()
}

/// The folder that machine code is kept in, if one is named.
pub fn cache_folder() -> Option<&'static str> {
    switches().cache.as_deref()
}
