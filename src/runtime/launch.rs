//! One kernel of an executable, with everything that is the same for all calls.
//!
//! Nothing here locks or allocates: the caller of a launch is responsible for the memory that it reads and writes.

use super::array::Array;
use crate::codegen::Pointers;
use crate::codegen::lower::Lowered;
use crate::codegen::tier_up::Code;
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::ir::entity::entity_id;
use smallvec::SmallVec;

entity_id! {
/// The number of a slot, which holds a value while an executable runs.
    pub(super) struct Slot(u32) = "s";
}

/// A kernel launch, with everything that is the same for all calls.
pub struct Launch {
    /// The code.
    pub code: Code,
    /// The kernel and its loops.
    pub lowered: Lowered,
    pub(super) operands: SmallVec<[Option<Slot>; 6]>,
    pub(super) outputs: SmallVec<[Slot; 2]>,
    /// The op that gathers, for errors about its indices.
    pub(super) gathers: Option<Op>,
    /// Whether there is nothing to write. Then its operands may have no memory.
    pub(super) is_idle: bool,
}

/// A result whose error is one word, so that it is returned in registers.
pub type BoxedResult<T> = std::result::Result<T, Box<Error>>;

impl Launch {
    /// Runs the kernel on the arrays of its slots and on outputs.
    ///
    /// # Safety
    /// Arrays and outputs have the types that the launch was made for. Until this returns, nothing writes the arrays,
    /// and nothing else uses the outputs.
    #[allow(unsafe_code, reason = "kernels work on raw pointers")]
    #[inline]
    pub(super) unsafe fn start<'a>(&self, array: impl Fn(Slot) -> &'a Array, outputs: &[*mut u8]) -> Result<()> {
        let pointer = |slot: &Option<Slot>| slot.map_or(std::ptr::dangling(), |slot| array(slot).ptr().cast_const());
        let mut operands: SmallVec<[*const u8; 8]> = SmallVec::new();
        for slot in &self.operands {
            operands.push(pointer(slot));
        }
        // SAFETY: passed on from the caller.
        unsafe { self.start_at(&operands, outputs) }.map_err(|error| *error)
    }

    /// Like [`Launch::start`], with pointers to the first elements of its operands. An operand that is not in memory
    /// may have any pointer.
    ///
    /// # Safety
    /// As for [`Launch::start`].
    #[allow(unsafe_code, reason = "kernels work on raw pointers")]
    #[inline]
    pub(super) unsafe fn start_at(&self, operands: &[*const u8], outputs: &[*mut u8]) -> BoxedResult<()> {
        if self.is_idle {
            return Ok(());
        }
        let Lowered { kernel, geometry, .. } = &self.lowered;
        let (running, pointers) = (self.code.next(kernel, geometry), Pointers { operands, outputs });
        // SAFETY: passed on from the caller.
        match unsafe { running.cut.run(&running.entry.compiled, geometry, pointers) } {
            Ok(()) => Ok(()),
            Err(error) => Err(Box::new(self.blamed(error))),
        }
    }

    /// Turns an error of the kernel into one of the op that gathers.
    #[cold]
    pub(super) fn blamed(&self, error: Error) -> Error {
        match (error, self.gathers) {
            // ATen raises another class of error for `gather` than for related ops.
            (Error::OutOfRange { what, low, high, got, .. }, Some(Op::Gather)) => {
                Error::argument("gather", format!("{what} {got} is out of bounds: it must be in {low}..={high}"))
            }
            (Error::OutOfRange { what, low, high, got, .. }, Some(op)) => {
                Error::out_of_range(op.name(), what, [low, high], got)
            }
            (error, _) => error,
        }
    }
}
