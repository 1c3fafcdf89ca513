//! What the tiers with machine code share.
//!
//! [`flat`] makes one list of prims of a kernel, and [`signs`] finds the signs of their values. [`passes`] distributes
//! the list over loops. A tier writes a function from those, which reads its launch from an [`argument`] buffer.
//! [`program`] owns the result as [`codes`], and [`launch`] calls it. [`streamed`] decides where stores are
//! non-temporal.
//!
//! Code has vectors along the inner loop, which [`along_inner`] runs. For vectors along the rows, [`sweeps`] cuts a
//! kernel into ones without folds, and [`along_rows`] runs them on a [`strip`] of rows after the other, by
//! [`strip_calls`]. [`merged_rows`] says which columns are one loop with the elements.
//!
//! Some operands are staged, which means copied to contiguous memory before the code reads them:
//!
//! | file | operands |
//! |---|---|
//! | [`packed`] | rows of several inner loops |
//! | [`transposed`] | contiguous along the rows, strided along the vector loop; [`transpose`] copies blocks of them |
//! | [`deinterleaved`] | elements that are a few apart |
//! | [`gathered`] | strided, and the same in every row |
//! | [`short_rows`] | short rows, which run as one; [`row_copies`] copies them |
//!
//! The second and third are staged in [`patches`]. [`staged`] is the code that runs on copies. Where several inner
//! loops are one for the folds alone, [`fold_then_map`] copies nothing.
//!
//! [`long_rows`] folds parts of a row for several threads.
//!
//! What always holds: the bits are those of [`super::interp`]; a kernel that cannot be expressed is declined with a
//! reason before anything runs. [`gathers`] says which loads at an index there are.

mod along_inner;
mod along_rows;
pub(super) mod argument;
pub(super) mod block_folds;
pub(super) mod code;
mod codes;
pub(super) mod deinterleaved;
pub(super) mod dense_copies;
pub(super) mod flat;
mod fold_then_map;
pub(super) mod gathered;
pub(super) mod gathers;
mod launch;
mod long_rows;
mod merged_rows;
pub(super) mod packed;
pub(super) mod passes;
mod patches;
mod program;
mod row_copies;
mod short_rows;
mod signs;
mod staged;
pub(super) mod streamed;
mod strip;
mod strip_calls;
pub(super) mod sweeps;
pub(super) mod transpose;
pub(super) mod transposed;

pub(super) use along_inner::{classes_of_codes, folds_in_place};
pub(super) use launch::LaunchShape;
pub(super) use long_rows::Splitting;
pub use program::NativeProgram;

use super::geometry::{Class, Geometry};
use super::kernel::{Inst, Kernel, Kind, Source};
use super::literal_divisors::without_literal_divisors;
use crate::error::{Reason, TierLimit};
use code::Code;
use flat::Flat;
use passes::{Keep, Passes};

/// Compiles a kernel whose accesses have these classes along the vector loop.
pub(super) type Compile = fn(&Kernel, &[Class], Manner) -> Result<(Code, LaunchShape), Reason>;

/// A form of a kernel: its nodes, and the loops over them.
pub(super) type Form = (Flat, Passes);

/// How code accesses memory: its stores, and the shape of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Manner {
    pub(super) stores: Stores,
    pub(super) rows: Rows,
}

/// How whole vectors of contiguous outputs are stored, where [`streamed`] allows their dtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stores {
    /// Into the caches.
    Cached,
    /// With non-temporal stores, to addresses that are multiples of a vector's bytes.
    Streamed,
}

/// The rows that a call of the code runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Rows {
    /// Whole rows.
    Whole,
    /// Short pieces of rows, which are far apart: see [`patches`].
    Pieces,
}

impl Manner {
    /// Cached stores and whole rows.
    pub(super) const USUAL: Manner = Manner { stores: Stores::Cached, rows: Rows::Whole };
}

/// Whether the columns of a kernel with vectors along its rows are one loop with the elements of its folds.
pub(super) fn merges_rows(kernel: &Kernel, geometry: &Geometry) -> bool {
    merged_rows::Merged::of(kernel, &sweeps::swept_operands(kernel), geometry).is_some()
}

/// Why no tier makes machine code for a kernel, if none does.
pub(super) fn declined(kernel: &Kernel) -> Option<Reason> {
    kernel.prim_by_element().map(|prim| TierLimit::ByElement { prim: prim.name() }.into())
}

/// The flat form of `kernel` and its loops.
///
/// # Errors
/// The reason why no machine code is made for it.
pub(super) fn prepare(kernel: &Kernel, classes: &[Class]) -> Result<Form, Reason> {
    if let Some(reason) = declined(kernel) {
        return Err(reason);
    }
    Ok(with_loops(kernel, classes, Flat::new(&without_literal_divisors(kernel), classes)))
}

fn with_loops(kernel: &Kernel, classes: &[Class], flat: Flat) -> Form {
    let once = |slot: usize| kernel.has_folds() && classes[kernel.operands.len() + slot] == Class::Uniform;
    let passes = Passes::new(&flat, once, Keep::Expensive);
    (flat, passes)
}

/// The form of `kernel` for elements whose angles are small, and its loops, if it has angles. Its code checks them
/// ([`Flat::all_small`]), and needs the `usual` form beside it.
///
/// There is none for folds, which would take some elements twice, nor for gathers.
pub(super) fn for_small_angles(kernel: &Kernel, classes: &[Class], usual: &Flat) -> Option<Form> {
    let has_form = usual.has_angles && skips_reduction(kernel);
    has_form.then(|| {
        let flat = Flat::of_small_angles(&without_literal_divisors(kernel), classes);
        with_loops(kernel, classes, flat)
    })
}

/// Whether code may skip the range reduction of huge angles where there are none.
pub(super) fn skips_reduction(kernel: &Kernel) -> bool {
    let is_other = |inst: &Inst| matches!(inst.kind, Kind::Fold(_) | Kind::Gather(_));
    !kernel.insts.iter().any(is_other)
}

/// What a launch of `kernel` must know.
pub(super) fn shape(kernel: &Kernel, n_folds: usize, n_kept: usize) -> LaunchShape {
    LaunchShape {
        gathers: kernel.gathered(),
        has_folds: kernel.has_folds(),
        iotas: kernel.operands.iter().map(|operand| operand.source == Source::Iota).collect(),
        n_folds,
        n_kept,
    }
}
