//! Long rows of folds, which threads share: the values of some blocks of a row.
//!
//! Code folds a row block by block, keeps the value of each, and calls a function that folds these. Here it is given
//! some blocks of a row, and a function that leaves their values as they are. What it computes of them afterwards is
//! thrown away. The interpreter folds the values of all blocks, and finishes the row.

#![allow(unsafe_code, reason = "hands addresses of a launch to generated code")]

use super::argument;
use super::code::Code;
use super::launch::{row_offset, with_scratch};
use crate::codegen::fold::FoldValue;
use crate::codegen::geometry::Geometry;
use crate::codegen::kernel::{FOLD_BLOCK, Inst, Kernel, Kind, Source};
use crate::codegen::launch::{Faults, Pointers};
use crate::codegen::vm::VmProgram;
use crate::ir::Combine;
use crate::ir::scalar::Ty;
use smallvec::SmallVec;
use std::ops::Range;

/// Fewest blocks of which code keeps the values.
const LEAST_BLOCKS: usize = 2;
/// Words per block result, and per output that is thrown away.
const RESULT_WORDS: usize = argument::BLOCK_BYTES / 8;

/// How threads share a row: each folds some of its blocks, and one finishes the row.
pub(in crate::codegen) struct Splitting<'a> {
    finishing: &'a VmProgram,
    /// What folds several blocks, and the kernel that it is for. The interpreter folds a single one.
    code: Option<(&'a Code, &'a Kernel)>,
}

impl<'a> Splitting<'a> {
    /// That of a program of the interpreter, if it may be.
    pub(in crate::codegen) fn of_vm(program: &'a VmProgram) -> Option<Splitting<'a>> {
        program.splits().then_some(Splitting { finishing: program, code: None })
    }

    /// That of code with so many folds, for a kernel with one pass, whose outputs are row values. The program is the
    /// same kernel, and both must have the same folds.
    pub(super) fn of_code(
        code: &'a Code,
        n_folds: usize,
        kernel: &'a Kernel,
        finishing: &'a VmProgram,
    ) -> Option<Splitting<'a>> {
        let is_same = [finishing.n_folds(), folds(kernel).len()] == [n_folds; 2];
        (finishing.splits() && is_same).then_some(Splitting { finishing, code: Some((code, kernel)) })
    }

    /// The number of folds, each of which has a value per block.
    pub(in crate::codegen) fn n_folds(&self) -> usize {
        self.finishing.n_folds()
    }

    /// Folds some blocks of one row. Other threads may fold others. Sets `values[(block - blocks.start) * n_folds +
    /// fold]`.
    ///
    /// # Safety
    /// As for [`super::NativeProgram::run`]; outputs are not touched.
    pub(in crate::codegen) unsafe fn fold_blocks(
        &self,
        geometry: &Geometry,
        pointers: Pointers<'_>,
        row: usize,
        blocks: Range<usize>,
        faults: &Faults,
        values: &mut [FoldValue],
    ) {
        match self.code.filter(|_| blocks.len() >= LEAST_BLOCKS) {
            // SAFETY: passed on from the caller; the kernel has one pass and row values.
            Some(code) => unsafe { fold_blocks(code, geometry, pointers, row, blocks, values) },
            // SAFETY: passed on from the caller.
            None => unsafe { self.finishing.fold_blocks(geometry, pointers, row, blocks, faults, values) },
        }
    }

    /// Computes a row's outputs from the values of all its blocks.
    ///
    /// # Safety
    /// As for [`super::NativeProgram::run`].
    pub(in crate::codegen) unsafe fn finish_row(
        &self,
        geometry: &Geometry,
        pointers: Pointers<'_>,
        row: usize,
        faults: &Faults,
        values: &[FoldValue],
    ) {
        // SAFETY: passed on from the caller.
        unsafe { self.finishing.finish_row(geometry, pointers, row, faults, values) }
    }
}

/// The folds of a kernel in order, each with the type of its elements.
fn folds(kernel: &Kernel) -> SmallVec<[(Combine, Ty); 2]> {
    let fold = |inst: &Inst| match inst.kind {
        Kind::Fold(combine) => Some((combine, kernel.inst(inst.args[0]).ty)),
        Kind::Load(_) | Kind::Gather(_) | Kind::Lit(_) | Kind::Prim(_) | Kind::Func(_) => None,
    };
    kernel.insts.iter().filter_map(fold).collect()
}

/// Leaves the values of blocks as they are.
extern "C" fn keep_blocks(_: u64, _: *mut u64, _: u64) {}

/// Folds some blocks of one row. Sets `values[(block - blocks.start) * n_folds + fold]`.
///
/// # Panics
/// If there are fewer than [`LEAST_BLOCKS`].
///
/// # Safety
/// As for [`super::NativeProgram::run`], of these blocks of the row, by code for a kernel with one pass and without
/// gathers, whose outputs are row values; outputs are not touched.
unsafe fn fold_blocks(
    (code, kernel): (&Code, &Kernel),
    geometry: &Geometry,
    pointers: Pointers<'_>,
    row: usize,
    blocks: Range<usize>,
    values: &mut [FoldValue],
) {
    assert!(blocks.len() >= LEAST_BLOCKS, "the values of fewer blocks are not kept");
    let folds = folds(kernel);
    let (start, end) = (blocks.start * FOLD_BLOCK, (blocks.end * FOLD_BLOCK).min(geometry.n_inner()));
    let n_accesses = geometry.operands.len() + geometry.outputs.len();
    let n_results = folds.len() * blocks.len();
    let mut thrown: SmallVec<[u64; 4]> = SmallVec::from_elem(0, geometry.outputs.len() * RESULT_WORDS);
    let mut words: SmallVec<[u64; 48]> = SmallVec::from_elem(0, argument::gather(n_accesses, 0));
    with_scratch(n_results * RESULT_WORDS, |results| {
        words[argument::ROWS] = 1;
        words[argument::INNER] = (end - start) as u64;
        words[argument::BLOCKS] = results.as_mut_ptr() as u64;
        words[argument::FOLD_BLOCKS] = keep_blocks as *const () as u64;
        for (slot, (operand, access)) in kernel.operands.iter().zip(&geometry.operands).enumerate() {
            let stride = access.inner.last().copied().unwrap_or(0) as u64;
            let first = if operand.source == Source::Iota { 0 } else { pointers.operands[slot] as u64 };
            let offset = row_offset(&geometry.rows, access, row).wrapping_add(stride.wrapping_mul(start as u64));
            let at = argument::ACCESSES + slot * argument::ACCESS_WORDS;
            (words[at], words[at + 2]) = (first.wrapping_add(offset), stride);
        }
        for (nth, word) in thrown.chunks_exact_mut(RESULT_WORDS).enumerate() {
            let at = argument::ACCESSES + (geometry.operands.len() + nth) * argument::ACCESS_WORDS;
            words[at] = word.as_mut_ptr() as u64;
        }
        // SAFETY: the words describe elements of a row, which the caller vouches for. Scratch has room for a result per
        // block and fold, and each output is an element of at most 8 bytes. One pass keeps no row buffers.
        unsafe { code.call(&mut words) };
        let results = |fold: usize| results.chunks_exact(RESULT_WORDS).skip(fold * blocks.len());
        for (fold, (combine, ty)) in folds.iter().enumerate() {
            let values = values.iter_mut().skip(fold).step_by(folds.len());
            for (value, result) in values.zip(results(fold)) {
                // Code writes narrow values with what is beside them.
                let bits = match ty {
                    Ty::I64 | Ty::F64 => result[0],
                    Ty::I32 | Ty::F32 => result[0] & u64::from(u32::MAX),
                    Ty::Bool => result[0] & 1,
                };
                *value = FoldValue { bits, index: if combine.is_index() { result[1] as i64 } else { 0 } };
            }
        }
    });
}
