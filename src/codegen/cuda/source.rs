//! CUDA source: what is compiled, and for which devices.
//!
//! Only data is here. Each kind of kernel has a file that writes it: `forms`, `product`, `tensor_cores`, `wgmma`,
//! `routines`.

/// The beginning of every source.
pub const PRELUDE: &str = concat!(include_str!("prelude.cuh"), "\n", include_str!("folds.cuh"));

/// Options of NVRTC besides the device's architecture. Denormals need the second; the prelude does not depend on the
/// third. The last one silences warnings about wrappers that a kernel does not use.
pub const OPTIONS: [&str; 4] = ["--std=c++17", "--ftz=false", "--fmad=false", "--diag-suppress=177"];

/// The source of one variant of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its code, which is compiled after [`PRELUDE`].
    pub code: String,
    /// The names of its entries, in the order of [`EntryLaunch::entry`](super::EntryLaunch::entry).
    pub entries: Vec<String>,
    /// The words of the argument buffer.
    pub n_words: usize,
    /// The devices it is for.
    pub target: Target,
}

/// The devices that a source is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// All devices that have its instructions.
    Any,
    /// Compute capability 9.0 alone, whose instructions later devices lack. The argument buffer holds tensor maps, at
    /// addresses that are multiples of 128.
    Sm90a {
        /// Dynamic shared memory of a launch, in bytes.
        shared_bytes: u32,
    },
}

impl Target {
    /// The suffix of a device's architecture.
    pub const fn suffix(self) -> &'static str {
        match self {
            Target::Any => "",
            Target::Sm90a { .. } => "a",
        }
    }

    /// A comment that says so to whoever compiles the source by hand.
    pub const fn marker(self) -> &'static str {
        match self {
            Target::Any => "",
            Target::Sm90a { .. } => "// For sm_90a alone.",
        }
    }

    /// Dynamic shared memory of a launch, in bytes.
    pub const fn shared_bytes(self) -> u32 {
        match self {
            Target::Any => 0,
            Target::Sm90a { shared_bytes } => shared_bytes,
        }
    }
}
