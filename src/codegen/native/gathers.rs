//! Loads at an index that a kernel computes: which of them machine code does, and how it reports a bad index.
//!
//! An index outside its dimension reads nothing. Its value is stored in the fault words of the launch's arguments
//! instead, and the launch fails after the code has returned. The words start as 0, which is an index in range of every
//! dimension that has elements. A dimension without elements is left to the interpreter.

use super::argument;
use crate::codegen::geometry::{Class, Geometry};
use crate::codegen::kernel::{Kernel, Kind, Level};
use crate::codegen::launch::Faults;
use crate::error::{Reason, TierLimit};

/// Why a tier that has gathers declines those of a kernel, if it does.
pub(in crate::codegen) fn declined(kernel: &Kernel, classes: &[Class]) -> Option<Reason> {
    let uniform = uniform(kernel, classes);
    kernel.insts.iter().find_map(|inst| {
        let Kind::Gather(slot) = inst.kind else { return None };
        // A row of several inner loops is packed, and an index has no place there.
        if inst.level == Level::Full && kernel.has_folds() {
            return Some(TierLimit::Gathers.into());
        }
        let dtype = kernel.operands[slot as usize].dtype;
        let is_row = inst.level == Level::Full && uniform[inst.args[0].index()];
        let is_near = is_row && classes[slot as usize] == Class::Contiguous;
        (dtype.size() < 4 && !is_near).then(|| TierLimit::NarrowStride { dtype }.into())
    })
}

/// Per instruction, whether its value is the same along the vector loop.
fn uniform(kernel: &Kernel, classes: &[Class]) -> Vec<bool> {
    let mut uniform: Vec<bool> = Vec::with_capacity(kernel.insts.len());
    for inst in &kernel.insts {
        let args = inst.args.iter().all(|reg| uniform[reg.index()]);
        let is_still = |slot: u16| inst.level == Level::Row || classes[slot as usize] == Class::Uniform;
        uniform.push(match inst.kind {
            Kind::Load(slot) | Kind::Gather(slot) => args && is_still(slot),
            Kind::Lit(_) | Kind::Fold(_) => true,
            Kind::Prim(_) | Kind::Func(_) => args,
        });
    }
    uniform
}

/// Whether a gathered dimension has no elements.
pub(super) fn has_empty(geometry: &Geometry) -> bool {
    geometry.operands.iter().any(|access| access.gather.is_some_and(|(size, _)| size == 0))
}

/// Writes sizes and strides of the gathered dimensions after the accesses.
pub(super) fn write(slots: &[usize], geometry: &Geometry, words: &mut [u64]) {
    for (words, &slot) in words.chunks_exact_mut(argument::GATHER_WORDS).zip(slots) {
        let (size, stride) = geometry.operands[slot].gather.unwrap_or_default();
        (words[0], words[1]) = (size as u64, stride as u64);
    }
}

/// Records a bad index, if the code found one.
pub(super) fn record(words: &[u64], faults: &Faults) {
    if let Some(&index) = words.iter().find(|&&word| word != 0) {
        faults.record(index as i64);
    }
}
