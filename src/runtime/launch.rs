//! One kernel of an executable, with everything that does not change between calls.
//!
//! Nothing here locks or allocates: who starts a launch vouches for the memory that it reads and writes.

use super::array::Array;
use crate::codegen::Pointers;
use crate::codegen::lower::Lowered;
use crate::codegen::tier_up::Code;
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::ir::entity::entity_id;
use smallvec::SmallVec;

entity_id! {
    /// Names a slot, which holds a value while an executable runs; prints as `s7`.
    pub(super) struct Slot(u32) = "s";
}

/// A kernel launch with everything that does not change between calls.
pub struct Launch {
    /// What runs it.
    pub code: Code,
    /// The kernel and its loops.
    pub lowered: Lowered,
    pub(super) operands: SmallVec<[Option<Slot>; 6]>,
    pub(super) outputs: SmallVec<[Slot; 2]>,
    /// The op that an index outside its dimension is blamed on, if the kernel gathers.
    pub(super) gathers: Option<Op>,
    /// Whether there is nothing to write. Its operands may then have no memory to read from.
    pub(super) is_idle: bool,
}

/// What a kernel that runs without steps comes to: an error is one word, so that the result comes back in registers.
pub type BoxedResult<T> = std::result::Result<T, Box<Error>>;

impl Launch {
    /// Runs the kernel on the operands that lie in slots and on outputs.
    ///
    /// # Safety
    /// Arrays and outputs have the types that the launch was made for; nobody writes the arrays, and nobody else uses
    /// the outputs, until this returns.
    #[allow(unsafe_code, reason = "kernels work on raw pointers")]
    #[inline]
    pub(super) unsafe fn start<'a>(&self, array: impl Fn(Slot) -> &'a Array, outputs: &[*mut u8]) -> Result<()> {
        let pointer = |slot: &Option<Slot>| slot.map_or(std::ptr::dangling(), |slot| array(slot).ptr().cast_const());
        let mut operands: SmallVec<[*const u8; 8]> = SmallVec::new();
        for slot in &self.operands {
            operands.push(pointer(slot));
        }
        // SAFETY: the caller's promise.
        unsafe { self.start_at(&operands, outputs) }.map_err(|error| *error)
    }

    /// As [`Launch::start`], on pointers to the first elements of its operands; one that is no memory has any.
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
        // SAFETY: the caller's promise.
        match unsafe { running.cut.run(&running.entry.compiled, geometry, pointers) } {
            Ok(()) => Ok(()),
            Err(error) => Err(Box::new(self.blamed(error))),
        }
    }

    /// An error of the kernel as one of the op that gathers.
    #[cold]
    pub(super) fn blamed(&self, error: Error) -> Error {
        match (error, self.gathers) {
            // ATen has another class of error for `gather` than for its kin.
            (Error::OutOfRange { what, low, high, got, .. }, Some(Op::Gather)) => {
                Error::argument("gather", format!("{what} {got} is out of bounds: it must be in {low}..={high}"))
            }
            (Error::OutOfRange { what, low, high, got, .. }, Some(op)) => {
                Error::OutOfRange { op: op.name().into(), what, low, high, got }
            }
            (error, _) => error,
        }
    }
}
