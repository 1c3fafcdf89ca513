//! CUDA C of a kernel, and how it is launched.
//!
//! [`Source::new`] writes text on a prelude of named wrappers that needs no CUDA header; [`Plan`] says which text serves a
//! geometry, with which grid, and what its only argument holds ([`words`]). Both are pure: a kernel and shapes go in, text
//! and plain data come out, so all of it is tested without a GPU.
//!
//! What always holds: the bits are those of [`super::interp`], but for the sums of [`tensor_cores`] and [`wgmma`]. Nothing is contracted or
//! approximated, folds keep their canonical order, whose 32 partial results are the threads of a warp, and no two blocks of a
//! grid touch the same memory: there is no atomic operation. Barriers and shuffles are met by all threads of a block or a warp.
//!
//! `cubin` has texts compiled, once per text. Not here: what talks to a device.

mod blocks;
mod cubin;
mod elements;
pub mod epilogue;
mod held;
mod plan;
mod pointwise;
pub mod product;
pub mod product_grid;
pub mod routines;
mod rows;
pub mod tensor_cores;
mod text;
mod tiles;
pub mod wgmma;
mod width;
pub mod words;

pub(crate) use cubin::{Origin, cubin};
pub use plan::{Form, Index, Plan, Step, Variant};

use super::kernel::{Inst, Kernel, Kind};
use super::native::flat::Flat;
use smallvec::SmallVec;
use text::Text;

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

impl Source {
    /// Writes the text of a kernel; its entries are called `name`, with a number behind it where there are several.
    pub fn new(kernel: &Kernel, variant: &Variant, name: &str) -> Source {
        let flat = Flat::new(kernel, &variant.classes);
        let passes = plan::passes(kernel, &flat, variant);
        let mut text = Text::new(kernel, &flat, variant);
        let entries = match variant.form {
            Form::Pointwise { .. } => {
                pointwise::emit(&mut text, &passes.passes[0], name);
                vec![name.to_owned()]
            }
            Form::Tiles { .. } => {
                tiles::emit(&mut text, &passes.passes[0], name);
                vec![name.to_owned()]
            }
            Form::Warps | Form::Columns => {
                rows::emit_whole(&mut text, &passes, name);
                vec![name.to_owned()]
            }
            Form::Held { held, warps } => {
                rows::emit_held(&mut text, &passes, name, held, warps);
                vec![name.to_owned()]
            }
            Form::Blocks => {
                let entries = blocks::entries(&passes);
                let named = |number: usize| format!("{name}_{number}");
                for (number, &entry) in entries.iter().enumerate() {
                    blocks::emit(&mut text, &passes, entry, number + 1 == entries.len(), &named(number));
                }
                (0..entries.len()).map(named).collect()
            }
        };
        Source { n_words: text.n_words(), text: text.out, entries, target: Target::Any }
    }
}

/// The operands that a kernel reads at indices, in order.
pub(crate) fn gathered(kernel: &Kernel) -> SmallVec<[usize; 2]> {
    let slot = |inst: &Inst| match inst.kind {
        Kind::Gather(slot) => Some(slot as usize),
        Kind::Load(_) | Kind::Lit(_) | Kind::Prim(_) | Kind::Func(_) | Kind::Fold(_) => None,
    };
    let mut slots: SmallVec<[usize; 2]> = kernel.insts.iter().filter_map(slot).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}
