//! A kernel compiled for contiguous copies of some operands and outputs.
//!
//! It is the same kernel's code with these operands contiguous. [`super::transposed`], [`super::deinterleaved`],
//! [`super::gathered`] and [`super::short_rows`] say what is staged when.

use super::code::Code;
use super::codes::Codes;
use super::{Compile, Rows, Stores};
use crate::codegen::geometry::Class;
use crate::codegen::kernel::{Kernel, Kind, Source};
use crate::codegen::simplify::without_dead;
use crate::error::Reason;
use smallvec::SmallVec;

/// The code, and the operands that it reads from copies.
pub(super) struct StagedCode {
    /// The kernel that reads copies. Numbers that it counted are read, too, and elements that it gathered.
    kernel: Kernel,
    pub(super) codes: Codes,
    /// Per staged operand, its number and the bytes of an element.
    pub(super) operands: SmallVec<[(usize, usize); 4]>,
    /// The same for outputs.
    pub(super) outputs: SmallVec<[(usize, usize); 1]>,
}

impl StagedCode {
    /// Compiles `kernel` for copies of the operands and outputs in `slots`, where outputs follow operands; the others
    /// have the given classes, in such rows.
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
        let n_operands = kernel.operands.len();
        let (operands, outputs): (SmallVec<[usize; 4]>, SmallVec<[usize; 4]>) =
            slots.iter().copied().partition(|&slot| slot < n_operands);
        let mut kernel = kernel.clone();
        operands.iter().for_each(|&slot| kernel.operands[slot].source = Source::Memory);
        let kernel = loading(kernel, &operands);
        let codes = Codes::new(compile, &kernel, &classes, rows)?;
        let operands = operands.iter().map(|&slot| (slot, kernel.operands[slot].dtype.size())).collect();
        let outputs = outputs.iter().map(|&slot| slot - n_operands);
        let outputs = outputs.map(|slot| (slot, kernel.outputs[slot].dtype.size())).collect();
        Ok(StagedCode { kernel, codes, operands, outputs })
    }

    /// The code with such stores, if the tier makes it, and else that with cached ones.
    pub(super) fn storing(&self, stores: Stores) -> &Code {
        self.codes.storing(stores, &self.kernel)
    }

    /// Whether it was compiled for copies of these operands and outputs of a kernel with so many operands.
    pub(super) fn is_for(&self, slots: &[usize], n_operands: usize) -> bool {
        let outputs = self.outputs.iter().map(|&(slot, _)| n_operands + slot);
        self.operands.iter().map(|&(slot, _)| slot).chain(outputs).eq(slots.iter().copied())
    }
}

/// The kernel that loads these operands, of which copies hold what was at an index.
fn loading(mut kernel: Kernel, operands: &[usize]) -> Kernel {
    let mut has_loads = false;
    for inst in &mut kernel.insts {
        if let Kind::Gather(slot) = inst.kind
            && operands.contains(&usize::from(slot))
        {
            (inst.kind, has_loads) = (Kind::Load(slot), true);
            inst.args.clear();
        }
    }
    if has_loads { without_dead(&kernel) } else { kernel }
}
