//! CUDA source: what is compiled, and for which devices.
//!
//! Only data is here. Who writes it is a file of its own per kind of kernel: `forms`, `product`, `tensor_cores`, `wgmma`, `routines`.

/// What every text begins with.
pub const PRELUDE: &str = concat!(include_str!("prelude.cuh"), "\n", include_str!("folds.cuh"));

/// Options that NVRTC is given beside the device's architecture. Denormals need the second; the prelude's other meanings hold
/// without them. The last one keeps quiet about wrappers that a kernel does not use.
pub const OPTIONS: [&str; 4] = ["--std=c++17", "--ftz=false", "--fmad=false", "--diag-suppress=177"];

/// The text of one variant of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its entries, to be compiled behind [`PRELUDE`].
    pub text: String,
    /// The entries' names, in the order that a step counts them.
    pub entries: Vec<String>,
    /// The words of the argument.
    pub n_words: usize,
    /// What devices it is for.
    pub target: Target,
}

/// What devices a text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// All that have its instructions.
    Any,
    /// Those of compute capability 9.0, by instructions that later ones do not have. Its argument holds maps, at addresses that are
    /// multiples of 128.
    Sm90a {
        /// Shared memory that a launch adds to that of the text.
        shared_bytes: u32,
    },
}

impl Target {
    /// What is behind the name of a device's architecture.
    pub const fn suffix(self) -> &'static str {
        match self {
            Target::Any => "",
            Target::Sm90a { .. } => "a",
        }
    }

    /// The line of a text that says so to whoever compiles it by hand.
    pub const fn marker(self) -> &'static str {
        match self {
            Target::Any => "",
            Target::Sm90a { .. } => "// For sm_90a alone.",
        }
    }

    /// Shared memory that a launch adds to that of the text.
    pub const fn shared_bytes(self) -> u32 {
        match self {
            Target::Any => 0,
            Target::Sm90a { shared_bytes } => shared_bytes,
        }
    }
}
