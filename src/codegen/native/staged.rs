//! A kernel compiled for copies of some operands.
//!
//! The copies lie in lines along the vector loop, so it is the same kernel's code with these operands contiguous. What is
//! staged when is told by [`super::transposed`], [`super::deinterleaved`] and [`super::gathered`].

use super::codes::Codes;
use super::{Compile, Rows};
use crate::codegen::geometry::Class;
use crate::codegen::kernel::Kernel;
use crate::error::Reason;
use smallvec::SmallVec;

/// The code, and which operands it finds as copies.
pub(super) struct StagedCode {
    pub(super) codes: Codes,
    /// Per operand that is staged, its number and the bytes of an element.
    pub(super) operands: SmallVec<[(usize, usize); 4]>,
}

impl StagedCode {
    /// Compiles `kernel` for copies of the operands in `slots`; the others move as `classes` says, in such rows.
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

    /// Whether these operands are what it was compiled for.
    pub(super) fn is_for(&self, slots: &[usize]) -> bool {
        self.operands.iter().map(|&(slot, _)| slot).eq(slots.iter().copied())
    }
}
