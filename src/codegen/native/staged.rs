//! A kernel compiled for contiguous copies of some operands.
//!
//! It is the same kernel's code with these operands contiguous. [`super::transposed`], [`super::deinterleaved`] and
//! [`super::gathered`] say what is staged when.

use super::codes::Codes;
use super::{Compile, Rows};
use crate::codegen::geometry::Class;
use crate::codegen::kernel::Kernel;
use crate::error::Reason;
use smallvec::SmallVec;

/// The code, and the operands that it reads from copies.
pub(super) struct StagedCode {
    pub(super) codes: Codes,
    /// Per staged operand, its number and the bytes of an element.
    pub(super) operands: SmallVec<[(usize, usize); 4]>,
}

impl StagedCode {
    /// Compiles `kernel` for copies of the operands in `slots`; the others have the given classes, in such rows.
    ///
    /// # Errors
    /// The reason why no code is made for it.
    pub(super) fn compile(
        compile: Compile,
        kernel: &Kernel,
        classes: &[Class],
        slots: &[usize],
        rows: Rows,
    ) -> Result<StagedCode, Reason> {
        let mut classes: SmallVec<[Class; 8]> = classes.into();
        slots.iter().for_each(|&slot| classes[slot] = Class::Contiguous);
        let codes = Codes::new(compile, kernel, &classes, rows)?;
        let operands = slots.iter().map(|&slot| (slot, kernel.operands[slot].dtype.size())).collect();
        Ok(StagedCode { codes, operands })
    }

    /// Whether it was compiled for copies of these operands.
    pub(super) fn is_for(&self, slots: &[usize]) -> bool {
        self.operands.iter().map(|&(slot, _)| slot).eq(slots.iter().copied())
    }
}
