//! What tiers that make machine code share.
//!
//! [`flat`] makes one list of prims of a kernel, and [`signs`] knows the signs of their values. [`passes`] distributes the list
//! over loops. A tier writes a function from those, which reads its launch from an [`argument`] buffer. [`program`] owns the
//! result as [`codes`], and [`launch`] calls it. [`streamed`] says when outputs are written with non-temporal stores.
//!
//! Some operands are staged, which means copied into lines before the code reads them:
//!
//! | file | operands |
//! |---|---|
//! | [`packed`] | rows of several inner loops |
//! | [`transposed`] | contiguous along the rows, strided along the vector loop; [`transpose`] copies blocks of them |
//! | [`deinterleaved`] | elements that lie a few apart |
//! | [`gathered`] | strided, and the same in every row |
//!
//! The second and third are staged in [`patches`]. [`staged`] is the code that runs on copies.
//!
//! What always holds: the bits are those of [`super::interp`]; a kernel that cannot be expressed is declined with a
//! reason before anything runs. Vectors run along the inner loop only (`Lanes::Inner`); gathers are declined.

pub(super) mod argument;
pub(super) mod block_folds;
pub(super) mod code;
mod codes;
pub(super) mod deinterleaved;
pub(super) mod flat;
pub(super) mod gathered;
mod launch;
mod packed;
pub(super) mod passes;
mod patches;
mod program;
mod signs;
mod staged;
pub(super) mod streamed;
mod transpose;
pub(super) mod transposed;

pub(super) use launch::Shape;
pub use program::NativeProgram;

use super::geometry::Class;
use super::kernel::{Kernel, Kind, Source};
use crate::error::{Reason, TierLimit};
use code::Code;
use flat::Flat;
use passes::{Keep, Passes};

/// Makes machine code for a kernel whose accesses move along the vector loop as the classes say.
pub(super) type Compile = fn(&Kernel, &[Class], Manner) -> Result<(Code, Shape), Reason>;

/// How code goes through memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Manner {
    pub(super) stores: Stores,
    pub(super) rows: Rows,
}

/// How whole vectors of contiguous outputs are written, where [`streamed`] takes their dtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stores {
    /// Into the caches.
    Cached,
    /// Past them, to addresses that are multiples of a vector's bytes.
    Streamed,
}

/// What the rows of a launch are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Rows {
    /// Whole lines of elements.
    Whole,
    /// Short pieces of them, each a jump away from the one before: see [`patches`].
    Pieces,
}

impl Manner {
    /// How most code does.
    pub(super) const USUAL: Manner = Manner { stores: Stores::Cached, rows: Rows::Whole };
}

/// Why no machine code is made for a kernel, if none is.
pub(super) fn declined(kernel: &Kernel) -> Option<Reason> {
    if kernel.insts.iter().any(|inst| matches!(inst.kind, Kind::Gather(_))) {
        return Some(TierLimit::Gathers.into());
    }
    kernel.insts.iter().find_map(|inst| match inst.kind {
        Kind::Prim(prim) if prim.is_by_element() => Some(TierLimit::ByElement { prim: prim.name() }.into()),
        _ => None,
    })
}

/// The flat form of `kernel` and its loops.
///
/// # Errors
/// The reason why no machine code is made for it.
pub(super) fn prepare(kernel: &Kernel, classes: &[Class]) -> Result<(Flat, Passes), Reason> {
    if let Some(reason) = declined(kernel) {
        return Err(reason);
    }
    let flat = Flat::new(kernel, classes);
    let once = |slot: usize| kernel.has_folds() && classes[kernel.operands.len() + slot] == Class::Uniform;
    let passes = Passes::new(&flat, once, Keep::Dear);
    Ok((flat, passes))
}

/// What a launch of `kernel` must know; its loops have so many folds at most, and row buffers.
pub(super) fn shape(kernel: &Kernel, n_folds: usize, n_kept: usize) -> Shape {
    Shape {
        has_folds: kernel.has_folds(),
        iotas: kernel.operands.iter().map(|operand| operand.source == Source::Iota).collect(),
        n_folds,
        n_kept,
    }
}
