//! A kernel whose vectors run along the inner loop.
//!
//! A tier may make no code for strided accesses, as AVX2 for strided outputs, and none for strided elements of one or
//! two bytes. It may still make code for copies of these. Launches that have such copies then run on them, and others
//! in the interpreter.

#![allow(unsafe_code, reason = "the door through which launches reach generated code")]

use super::codes::Codes;
use super::deinterleaved::{self, Deinterleave, NEAR, deinterleaved, deinterleaved_of_one};
use super::fold_then_map::{self, FoldThenMap, Places};
use super::gathered::{self, gathered};
use super::gathers;
use super::launch::{self, LaunchShape};
use super::long_rows::Splitting;
use super::packed::Packed;
use super::short_rows::{self, short_rows};
use super::staged::StagedCode;
use super::streamed::is_streamed;
use super::transposed::{self, transposed};
use super::{Compile, Rows, Stores};
use crate::codegen::geometry::{Access, Class, Geometry, Lanes};
use crate::codegen::kernel::{Kernel, Operand, Source};
use crate::codegen::launch::{Faults, Part, Pointers};
use crate::codegen::vm::VmProgram;
use crate::error::Reason;
use smallvec::{SmallVec, smallvec};
use std::ops::RangeInclusive;
use std::sync::OnceLock;

/// Elements of a row of a fold that is packed because they are a few apart.
const PACKED_LANES: RangeInclusive<usize> = 16..=1 << 16;

/// A kernel compiled for one set of access classes.
pub(super) struct AlongInner {
    /// The tier's compiler.
    compile: Compile,
    /// The classes of the kernel's accesses, operands first.
    classes: SmallVec<[Class; 8]>,
    /// What a launch must know.
    shape: LaunchShape,
    /// The code for these accesses. None if there is code for copies alone.
    plain: Option<Codes>,
    /// The code for copies of all strided accesses, if there is no other.
    copied: Option<StagedCode>,
    /// Whether outputs may be written with non-temporal stores.
    is_streaming: bool,
    /// Needed to compile for packed rows, which only kernels with folds have, and for staged operands.
    kernel: Kernel,
    packed: OnceLock<Packed>,
    fold_then_map: OnceLock<Option<FoldThenMap>>,
    transposed: OnceLock<Option<StagedCode>>,
    gathered: OnceLock<Option<StagedCode>>,
    deinterleave: Deinterleave,
    deinterleaved: OnceLock<Option<StagedCode>>,
    short_rows: OnceLock<Option<StagedCode>>,
    interpreted: OnceLock<VmProgram>,
}

impl AlongInner {
    /// Compiles a valid `kernel` with `compile` for accesses of these `classes`, operands first. If it `is_streaming`,
    /// launches that are large enough use non-temporal stores.
    pub(super) fn new(
        compile: Compile,
        is_streaming: bool,
        kernel: &Kernel,
        classes: &[Class],
        deinterleave: Deinterleave,
    ) -> Result<AlongInner, Reason> {
        let (shape, plain, copied) = match Codes::new(compile, kernel, classes, Rows::Whole) {
            Ok(plain) => (plain.shape.clone(), Some(plain), None),
            Err(reason) => {
                let (slots, gathered) = (strided(kernel, classes), kernel.gathered());
                // What is at an index is copied for short rows alone.
                if slots.iter().any(|slot| gathered.contains(slot)) {
                    return Err(reason);
                }
                let copied = StagedCode::compile(compile, kernel, classes, &slots, Rows::Whole).map_err(|_| reason)?;
                (copied.codes.shape.clone(), None, Some(copied))
            }
        };
        Ok(AlongInner {
            compile,
            classes: classes.into(),
            shape,
            plain,
            copied,
            is_streaming,
            kernel: kernel.clone(),
            packed: OnceLock::new(),
            fold_then_map: OnceLock::new(),
            transposed: OnceLock::new(),
            gathered: OnceLock::new(),
            deinterleave,
            deinterleaved: OnceLock::new(),
            short_rows: OnceLock::new(),
            interpreted: OnceLock::new(),
        })
    }

    /// Bytes of machine code and constants.
    pub(super) fn code_bytes(&self) -> usize {
        let codes = self.plain.as_ref().or(self.copied.as_ref().map(|copied| &copied.codes));
        codes.map_or(0, Codes::n_bytes)
    }

    /// Runs a part of a launch.
    ///
    /// # Safety
    /// As for [`super::NativeProgram::run`].
    pub(super) unsafe fn run(&self, geometry: &Geometry, pointers: Pointers<'_>, part: &Part, faults: &Faults) {
        let gathers = !self.shape.gathers.is_empty();
        let is_packed = is_packed(&self.kernel, &self.classes, geometry);
        if gathers && (is_packed || gathers::has_empty(geometry)) {
            // SAFETY: passed on from the caller.
            return unsafe { self.interpreted().run(geometry, pointers, part, faults) };
        }
        if is_packed {
            if let Some((both, places)) = self.fold_then_map(geometry) {
                // SAFETY: passed on from the caller.
                return unsafe { both.run(places, geometry, pointers, part, faults) };
            }
            let compile = || {
                Packed::compile(self.compile, &self.kernel)
                    .expect("a kernel that compiled does so for simpler accesses")
            };
            // SAFETY: passed on from the caller.
            return unsafe { self.packed.get_or_init(compile).run(geometry, pointers, part) };
        }
        let kernel = &self.kernel;
        let is_streamed = self.is_streaming && is_streamed(kernel, &self.classes, geometry, pointers, part);
        let stores = if is_streamed { Stores::Streamed } else { Stores::Cached };
        if self.classes.contains(&Class::Strided) {
            let rows = if kernel.has_folds() { Rows::Whole } else { Rows::Pieces };
            if let Some(staged) = self.staged(&self.transposed, &transposed(kernel, geometry), rows) {
                // A patch of an output is written to a cache.
                let stores = if staged.outputs.is_empty() { stores } else { Stores::Cached };
                let code = staged.storing(stores);
                // SAFETY: passed on from the caller.
                return unsafe {
                    transposed::patches(kernel, geometry).run(code, staged, geometry, pointers, part, faults)
                };
            }
            if let Some(staged) = self.staged(&self.gathered, &gathered(kernel, geometry), Rows::Whole) {
                let code = staged.storing(stores);
                // SAFETY: passed on from the caller.
                return unsafe { gathered::run(code, staged, geometry, pointers, part, faults) };
            }
            let slots = deinterleaved(self.deinterleave, kernel, geometry, pointers);
            if let Some(staged) = self.staged(&self.deinterleaved, &slots, Rows::Whole) {
                // A patch of an output is written to a cache.
                let stores = if staged.outputs.is_empty() { stores } else { Stores::Cached };
                let code = staged.storing(stores);
                // SAFETY: passed on from the caller.
                return unsafe {
                    deinterleaved::patches(geometry, staged).run(code, staged, geometry, pointers, part, faults)
                };
            }
        }
        let slots = short_rows(kernel, geometry, part);
        if let Some(staged) = self.staged(&self.short_rows, &slots, Rows::Whole) {
            let (code, launch) = (staged.storing(stores), (kernel, geometry));
            // SAFETY: passed on from the caller.
            return unsafe { short_rows::run(code, staged, launch, pointers, part, faults) };
        }
        let Some(plain) = &self.plain else {
            // SAFETY: passed on from the caller.
            return unsafe { self.interpreted().run(geometry, pointers, part, faults) };
        };
        // SAFETY: passed on from the caller; a kernel without folds has one inner loop.
        unsafe { launch::run(plain.storing(stores, kernel), &self.shape, geometry, pointers, part, faults) }
    }

    /// How threads share a row of a launch, if they may.
    pub(super) fn splitting(&self, geometry: &Geometry) -> Option<Splitting<'_>> {
        let kernel = &self.kernel;
        let plain = self.plain.as_ref().filter(|_| kernel.folds_once() && folds_in_place(kernel, geometry))?;
        Splitting::of_code(plain.storing(Stores::Cached, kernel), self.shape.n_folds, kernel, self.interpreted())
    }

    /// The same kernel as two, if that is faster for a launch.
    fn fold_then_map(&self, geometry: &Geometry) -> Option<(&FoldThenMap, Places)> {
        if !fold_then_map::is_worth(&self.kernel, geometry) {
            return None;
        }
        let compile = || FoldThenMap::new(self.compile, &self.kernel, geometry).ok();
        let both = self.fold_then_map.get_or_init(compile).as_ref()?;
        Some((both, both.places(&self.kernel, geometry)?))
    }

    /// The same kernel in the interpreter, which takes the launches whose gathers machine code does not do.
    fn interpreted(&self) -> &VmProgram {
        self.interpreted.get_or_init(|| {
            VmProgram::compile(&self.kernel, Lanes::Inner, &self.classes).expect("the interpreter takes all")
        })
    }

    /// The code for copies of the operands in `slots`, if there are any, and `cell` was compiled for the same ones.
    fn staged<'a>(
        &'a self,
        cell: &'a OnceLock<Option<StagedCode>>,
        slots: &[usize],
        rows: Rows,
    ) -> Option<&'a StagedCode> {
        if slots.is_empty() {
            return None;
        }
        let n_operands = self.kernel.operands.len();
        if let Some(copied) =
            self.copied.as_ref().filter(|copied| rows == Rows::Whole && copied.is_for(slots, n_operands))
        {
            return Some(copied);
        }
        let compile = || StagedCode::compile(self.compile, &self.kernel, &self.classes, slots, rows).ok();
        cell.get_or_init(compile).as_ref().filter(|staged| staged.is_for(slots, n_operands))
    }
}

/// The operands in memory and the outputs that are strided, whose numbers follow those of the operands.
fn strided(kernel: &Kernel, classes: &[Class]) -> SmallVec<[usize; 4]> {
    let is_counted = |slot: usize| kernel.operands.get(slot).is_some_and(|operand| operand.source == Source::Iota);
    (0..classes.len()).filter(|&slot| classes[slot] == Class::Strided && !is_counted(slot)).collect()
}

/// Whether code folds rows where they are: their elements are neighbours.
pub(in crate::codegen) fn folds_in_place(kernel: &Kernel, geometry: &Geometry) -> bool {
    geometry.inner.len() == 1 && !kernel.has_gathers() && !geometry.classes(kernel).contains(&Class::Strided)
}

/// Whether rows of a fold are packed: they have several loops, or their elements are a few apart, because vectors copy
/// faster than they gather.
fn is_packed(kernel: &Kernel, classes: &[Class], geometry: &Geometry) -> bool {
    if !kernel.has_folds() || geometry.inner.len() > 1 {
        return kernel.has_folds();
    }
    if !classes.contains(&Class::Strided) || !PACKED_LANES.contains(&geometry.n_inner()) || kernel.has_gathers() {
        return false;
    }
    let is_near = |(operand, access): (&Operand, &Access)| {
        let bytes = operand.dtype.size();
        let apart = (geometry.lane_stride(access) as isize).unsigned_abs();
        operand.source == Source::Iota || geometry.class(access, bytes) != Class::Strided || apart <= NEAR * bytes
    };
    kernel.operands.iter().zip(&geometry.operands).all(is_near)
}

/// The classes that code for a launch may be compiled for, where `which` operands are deinterleaved: those of its
/// accesses, and those of the copies that it runs on.
pub(in crate::codegen) fn classes_of_codes(
    which: Deinterleave,
    kernel: &Kernel,
    geometry: &Geometry,
) -> SmallVec<[SmallVec<[Class; 8]>; 4]> {
    let classes = geometry.classes(kernel);
    let copied = |slots: &[usize]| {
        let mut classes = classes.clone();
        slots.iter().for_each(|&slot| classes[slot] = Class::Contiguous);
        classes
    };
    let mut all = smallvec![classes.clone()];
    if is_packed(kernel, &classes, geometry) {
        all.push(copied(&strided(kernel, &classes)));
    } else if classes.contains(&Class::Strided) {
        all.push(copied(&transposed(kernel, geometry)));
        all.push(copied(&gathered(kernel, geometry)));
        all.push(copied(&deinterleaved_of_one(which, kernel, geometry)));
    }
    all
}
