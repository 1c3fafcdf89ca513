//! The x64 tier: machine code for AVX-512 or AVX2, encoded here.
//!
//! [`super::native`] prepares the loops. [`function`] and [`body`] write them as blocks of straight-line [`code`] over
//! virtual registers. Instructions come from these files:
//!
//! - [`select`] for prims, [`scaling`] for products with powers of two, [`quotient`] for divisions that avoid the
//!   divider;
//! - [`elements`] for loads and stores, [`masks`] for bools, [`folds`] for partial results, [`prefetch`] for
//!   prefetches;
//! - [`emulated`] for what AVX2 lacks.
//!
//! [`copies`] unrolls a body. [`registers`] allocates physical registers, [`fma`] chooses forms that overwrite a dead
//! operand, and the [`encoder`] writes instructions of [`opcode`]. [`memory`] makes the bytes executable. A [`Level`]
//! is an instruction set; a [`Manner`] says how stores and rows go through memory.
//!
//! What always holds: bits are those of [`super::interp`]; code has no relocations; a kernel that cannot be expressed
//! is declined with a reason. [`disk`] may keep the code. Absent: strided outputs for AVX2.

mod body;
mod code;
mod copies;
mod elements;
mod emulated;
pub mod encoder;
mod fma;
mod folds;
mod frame;
mod function;
mod gathers;
mod level;
mod masks;
mod memory;
pub mod opcode;
mod prefetch;
mod quotient;
mod register_list;
mod registers;
mod scaling;
mod select;

pub use level::Level;

use super::disk;
use super::geometry::{Class, Lanes};
use super::kernel::{Kernel, Level as Loop, Output};
use super::native::code::Code;
use super::native::streamed::is_short;
use super::native::sweeps::Sweeps;
use super::native::{self, Compile, LaunchShape, Manner, NativeProgram};
use crate::error::{Reason, TierLimit};
use crate::ir::DType;

/// Compiles a valid `kernel` for a level and accesses of these `classes`, operands first.
///
/// # Errors
/// The reason why this tier declines the kernel, or why this processor cannot run the code.
pub fn compile(level: Level, kernel: &Kernel, lanes: Lanes, classes: &[Class]) -> Result<NativeProgram, Reason> {
    let (compile, is_streaming): (Compile, bool) = match level {
        Level::Avx2 => (|kernel, classes, manner| compiled(Level::Avx2, kernel, classes, manner), is_short(kernel)),
        Level::Avx512 => (|kernel, classes, manner| compiled(Level::Avx512, kernel, classes, manner), true),
    };
    NativeProgram::new(compile, is_streaming, kernel, lanes, classes, level.deinterleave())
}

/// Whether the code of a kernel seems to be on disk, so that it need not be compiled.
pub(super) fn is_kept(level: Level, kernel: &Kernel, classes: &[Class]) -> bool {
    disk::folder().is_some_and(|folder| folder.has(&key(level, kernel, classes, Manner::USUAL)))
}

/// A listing of a kernel's code before register allocation, block by block.
///
/// # Errors
/// The reason why this tier declines the kernel.
pub fn emit_text(level: Level, kernel: &Kernel, classes: &[Class]) -> Result<String, Reason> {
    let usual = native::prepare(kernel, classes)?;
    let small = native::for_small_angles(kernel, classes, &usual.0);
    let how = (level, Manner::USUAL);
    Ok(format!("{}\n{}", level.name(), function::listing(how, kernel, classes, &usual, small.as_ref())))
}

/// Why this tier declines a kernel whose accesses have these classes, for a level.
pub(super) fn declined(level: Level, kernel: &Kernel, classes: &[Class]) -> Option<Reason> {
    let narrow = |(dtype, &class): (DType, &Class)| class == Class::Strided && dtype.size() < 4;
    if let Some((dtype, _)) = kernel.dtypes().zip(classes).find(|&access| narrow(access)) {
        return Some(TierLimit::NarrowStride { dtype }.into());
    }
    let scattered = |(output, &class): (&Output, &Class)| match class {
        Class::Contiguous => false,
        Class::Strided => true,
        // Without folds, or for a value per element, such an output would be overwritten by every element.
        Class::Uniform => !kernel.has_folds() || kernel.inst(output.value).level != Loop::Row,
    };
    let outputs = &classes[kernel.operands.len()..];
    if level == Level::Avx2 && kernel.outputs.iter().zip(outputs).any(scattered) {
        return Some(TierLimit::NoScatter.into());
    }
    native::gathers::declined(kernel, classes).or_else(|| native::declined(kernel))
}

/// Why this tier declines a kernel with vectors along its rows, whose accesses have these classes there.
pub(super) fn declined_along_rows(level: Level, kernel: &Kernel, classes: &[Class]) -> Option<Reason> {
    let sweeps = Sweeps::new(kernel, classes);
    let mut pieces = sweeps.stages().flat_map(|stage| [Some(stage.sweep), stage.finish]).flatten();
    pieces.find_map(|piece| declined(level, &piece.kernel, &piece.classes))
}

/// The reason why this processor gets no code at all.
pub(super) fn no_level() -> Reason {
    TierLimit::MissingIsa { isa: "AVX-512 or AVX2".into() }.into()
}

fn compiled(level: Level, kernel: &Kernel, classes: &[Class], manner: Manner) -> Result<(Code, LaunchShape), Reason> {
    if !level.is_available() {
        return Err(TierLimit::MissingIsa { isa: level.name().into() }.into());
    }
    if let Some(reason) = declined(level, kernel, classes) {
        return Err(reason);
    }
    let loaded = |Counts { n_folds, n_kept }, code: &[u8]| {
        Ok((memory::load(code)?, native::shape(kernel, n_folds as usize, n_kept as usize)))
    };
    let Some(folder) = disk::folder() else {
        let (counts, code) = written(level, kernel, classes, manner)?;
        return loaded(counts, &code);
    };
    let key = key(level, kernel, classes, manner);
    if let Ok(kept) = folder.load(&key)
        && let Some((head, code)) = kept.split_first_chunk()
    {
        return loaded(Counts::from_bytes(*head), code);
    }
    let (counts, code) = written(level, kernel, classes, manner)?;
    folder.store(&key, &[&counts.to_bytes()[..], &code].concat());
    loaded(counts, &code)
}

/// The key of code on disk.
fn key(level: Level, kernel: &Kernel, classes: &[Class], manner: Manner) -> disk::Key {
    disk::Key::new((level, kernel, classes, manner))
}

/// What a launch must know of the loops; it precedes the code on disk.
struct Counts {
    n_folds: u32,
    n_kept: u32,
}

impl Counts {
    fn to_bytes(&self) -> [u8; 8] {
        (u64::from(self.n_folds) | u64::from(self.n_kept) << 32).to_le_bytes()
    }

    fn from_bytes(bytes: [u8; 8]) -> Counts {
        let both = u64::from_le_bytes(bytes);
        Counts { n_folds: both as u32, n_kept: (both >> 32) as u32 }
    }
}

/// The machine code of a kernel.
fn written(level: Level, kernel: &Kernel, classes: &[Class], manner: Manner) -> Result<(Counts, Vec<u8>), Reason> {
    let usual = native::prepare(kernel, classes)?;
    let small = native::for_small_angles(kernel, classes, &usual.0);
    let code = function::write((level, manner), kernel, classes, &usual, small.as_ref());
    let (_, passes) = usual;
    Ok((Counts { n_folds: passes.n_folds() as u32, n_kept: passes.n_kept as u32 }, code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::kernel::{Inst, Kind, Operand, Source};
    use crate::codegen::native::Stores;
    use crate::ir::scalar::{Prim, Reg};
    use smallvec::smallvec;

    /// Only whole vectors are written with non-temporal stores: not the last elements, and no elements of two bytes.
    #[test]
    fn large_outputs_are_written_by_non_temporal_stores() {
        for (dtype, is_taken) in [(DType::F32, true), (DType::I64, true), (DType::BF16, false)] {
            let ty = dtype.compute();
            let inst = |kind, args| Inst { kind, args, ty, level: Loop::Full };
            let kernel = Kernel {
                operands: vec![Operand { dtype, source: Source::Memory }],
                insts: vec![inst(Kind::Load(0), smallvec![]), inst(Kind::Prim(Prim::Neg), smallvec![Reg::new(0)])],
                outputs: vec![Output { dtype, value: Reg::new(1) }],
            };
            let classes = [Class::Contiguous; 2];
            let usual = native::prepare(&kernel, &classes).expect("it is expressible");
            for level in [Level::Avx2, Level::Avx512] {
                let listing = |stores| {
                    let manner = Manner { stores, ..Manner::USUAL };
                    function::listing((level, manner), &kernel, &classes, &usual, None)
                };
                let (cached, streamed) = (listing(Stores::Cached), listing(Stores::Streamed));
                assert!(!cached.contains("vmovnt"), "{cached}");
                let (whole, tail) = streamed.split_once("  tail\n").expect("there is a loop for the last elements");
                assert_eq!((whole.contains("vmovnt"), tail.contains("vmovnt")), (is_taken, false), "{streamed}");
            }
        }
    }
}
