//! Environment switches, and all printing to standard error.
//!
//! Switches are environment variables, read once:
//!
//! | variable | effect |
//! |---|---|
//! | `OPFUSE_DUMP=trace,simplify,plan` | prints those stages to standard error; the stages are listed below |
//! | `OPFUSE_EXPLAIN=1` | prints every reason when a function is compiled, and kernels that take another's place |
//! | `OPFUSE_EAGER=1` | `compile` is the identity |
//! | `OPFUSE_TIER=vm`, `cranelift` or `x64` | forces a code tier; kernels that it declines run in the vm |
//! | `OPFUSE_ISA=avx2` or `baseline` | the strongest vector instructions that are used |
//! | `OPFUSE_VERIFY=1` | verifies graphs after every pass in release builds too |
//! | `OPFUSE_CALIBRATION=file` | plans use the rates in that file; they are measured and written if it is missing |
//! | `OPFUSE_CACHE_DIR=folder` | keeps machine code of the tier `x64`, and cubins, in that folder between processes |
//! | `OPFUSE_STREAM_FROM=bytes` | outputs of so many bytes are written by non-temporal stores; see below |
//! | `OPFUSE_CUDA_LIB_DIR=folder` | the CUDA driver, NVRTC and cublasLt are looked for there first |
//! | `OPFUSE_CUDA_PRODUCTS=own`, `cublaslt` or `wgmma` | what computes products of floats with `Numerics::Fast` |
//! | `OPFUSE_NUM_THREADS=n` | threads of the worker pool (read by `device::pool`) |
//!
//! Without `OPFUSE_STREAM_FROM`, non-temporal stores are used for outputs larger than the last-level cache, and in
//! launches that move 128 MiB. `OPFUSE_CUDA_PRODUCTS` overrides the cost model. Its `wgmma` is a kernel for compute
//! capability 9.0 that was never run on a GPU.
//!
//! Stages of `OPFUSE_DUMP`, in order:
//!
//! | word | prints |
//! |---|---|
//! | `trace` | the traced graph |
//! | the name of a pass, as in `simplify` | the graph after that pass |
//! | `passes` | the graph after each pass |
//! | `passes:html`, `passes:html=FILE` | nothing; it writes a page with the graph after each pass and what changed |
//! | `graph` | the graph that is planned, which is that after the last pass |
//! | `plan` | steps, and edges that were not fused |
//! | `kernel` | loop-level kernels |
//! | `code` | the code that a tier generates for them |
//!
//! Without `FILE`, the page is a new file in the current directory, whose name is printed. A file that exists is
//! replaced. One page has everything that the process compiles.
//!
//! An unknown word is reported once, with a list of the known ones. The names of passes come from `ir::passes::PASSES`.
//! This floor must not import it, so the pipeline passes the names to [`check_dump`].

use std::path::PathBuf;
use std::sync::{Once, OnceLock};

/// A stage that can be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The traced graph.
    Trace,
    /// The graph after all passes.
    Graph,
    /// Steps and edges.
    Plan,
    /// Loop-level kernels.
    Kernel,
    /// The code that a tier generates for them.
    Code,
}

impl Stage {
    /// Every stage, in order.
    const ALL: [Stage; 5] = [Stage::Trace, Stage::Graph, Stage::Plan, Stage::Kernel, Stage::Code];

    const fn name(self) -> &'static str {
        match self {
            Stage::Trace => "trace",
            Stage::Graph => "graph",
            Stage::Plan => "plan",
            Stage::Kernel => "kernel",
            Stage::Code => "code",
        }
    }
}

struct Switches {
    dump: Vec<String>,
    passes_page: Option<PassesPage>,
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
        let dump: Vec<String> = dump.unwrap_or_default();
        Switches {
            passes_page: dump.iter().find_map(|word| PassesPage::of(word)),
            dump,
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

/// The word that asks for the graph after each pass.
const PASSES: &str = "passes";

/// The word that asks for a page of them; a file may follow it.
const PASSES_PAGE: &str = "passes:html";

/// Where the page of passes is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassesPage {
    /// To a file whose name is chosen.
    Anywhere,
    /// To this file.
    At(PathBuf),
}

impl PassesPage {
    /// What a word of `OPFUSE_DUMP` asks for, if it asks for a page.
    fn of(word: &str) -> Option<PassesPage> {
        match word.strip_prefix(PASSES_PAGE)? {
            "" => Some(PassesPage::Anywhere),
            rest => rest.strip_prefix('=').filter(|file| !file.is_empty()).map(|file| PassesPage::At(file.into())),
        }
    }
}

/// Where the page of passes is to be written, if one is asked for.
pub fn passes_page() -> Option<&'static PassesPage> {
    switches().passes_page.as_ref()
}

/// Whether a stage is to be printed.
pub fn dumps(stage: Stage) -> bool {
    asks_for(stage.name())
}

/// Prints a stage if it is asked for; `text` is only made then.
pub fn dump(stage: Stage, text: impl FnOnce() -> String) {
    if dumps(stage) {
        print_stage(stage.name(), &text());
    }
}

/// Prints the graph after a pass if it is asked for; `text` is only made then.
pub fn dump_pass(name: &str, text: impl FnOnce() -> String) {
    if asks_for(PASSES) || asks_for(name) {
        print_stage(name, &text());
    }
}

/// Reports unknown words of `OPFUSE_DUMP`, once per process. `passes` are the names of all passes.
pub fn check_dump(passes: impl Iterator<Item = &'static str>) {
    static CHECKED: Once = Once::new();
    if switches().dump.is_empty() {
        return;
    }
    CHECKED.call_once(|| {
        let stages = Stage::ALL.into_iter().map(Stage::name);
        let known: Vec<&str> = stages.chain([PASSES, PASSES_PAGE]).chain(passes).collect();
        let is_known = |word: &str| known.contains(&word) || PassesPage::of(word).is_some();
        for word in switches().dump.iter().filter(|word| !is_known(word)) {
            print(&format!("opfuse: OPFUSE_DUMP: `{word}` names no stage; known are {}", known.join(", ")));
        }
    });
}

fn asks_for(word: &str) -> bool {
    switches().dump.iter().any(|name| name == word)
}

fn print_stage(name: &str, text: &str) {
    print(&format!("== {name} ==\n{text}"));
}

/// Prints a line to standard error. Nothing else in the crate prints.
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

/// The code tier that is forced, by name, if one is.
pub fn forced_tier() -> Option<&'static str> {
    switches().tier.as_deref()
}

/// The strongest vector instructions that may be used, by name, if it is set.
pub fn most_isa() -> Option<&'static str> {
    switches().isa.as_deref()
}

/// The size in bytes from which outputs are written by non-temporal stores, if it is set.
pub fn stream_from() -> Option<usize> {
    switches().stream_from
}

/// The folder where the libraries of CUDA are looked for first, if it is set.
pub fn cuda_folder() -> Option<&'static str> {
    switches().cuda_folder.as_deref()
}

/// What computes products on CUDA devices, by name, if it is set.
pub fn cuda_products() -> Option<&'static str> {
    switches().cuda_products.as_deref()
}

/// The file with the rates of this machine, if it is set.
pub fn calibration_file() -> Option<&'static str> {
    switches().calibration.as_deref()
}

/// The folder that machine code is kept in, if it is set.
pub fn cache_folder() -> Option<&'static str> {
    switches().cache.as_deref()
}

#[cfg(test)]
mod tests {
    use super::PassesPage::{self, Anywhere, At};

    #[test]
    fn a_page_may_name_its_file() {
        let cases = [
            ("passes:html", Some(Anywhere)),
            ("passes:html=a/b=c.html", Some(At("a/b=c.html".into()))),
            ("passes:html=", None),
            ("passes:htm", None),
            ("passes:html5", None),
            ("passes", None),
        ];
        for (word, expected) in cases {
            assert_eq!(PassesPage::of(word), expected, "{word}");
        }
    }
}
