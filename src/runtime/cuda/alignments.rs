//! Alignments of addresses, and what is prepared once for each.
//!
//! The code of a launch depends on the alignment of its memory. Nearly all runs bring the same one, so [`ByAlignments`]
//! has few entries, and searches them in order.

use crate::device::DeviceKind;
use crate::error::Result;
use crate::runtime::Array;
use smallvec::SmallVec;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Per operand, then per output: the alignment of the address, a power of two up to [`WIDEST`]; [`IN_WORDS`] for an
/// element without an address.
pub(super) type Alignments = SmallVec<[usize; 8]>;

/// The alignments of left operand, right operand and result of a product.
pub(super) type ProductAlignments = [usize; 3];

/// Replaces the alignment of an operand on the host, whose single element is in the argument buffer.
pub(super) const IN_WORDS: usize = 0;

/// Bytes of the widest access of a kernel. Greater alignments make no difference.
pub(super) const WIDEST: usize = 16;

/// The alignment of an array's address, up to [`WIDEST`]; [`IN_WORDS`] on the host.
pub(super) fn alignment(array: &Array) -> usize {
    if array.device().kind == DeviceKind::Cpu { IN_WORDS } else { alignment_of(array.ptr().addr() as u64) }
}

/// The same for an address on a device.
pub(super) fn alignment_of(address: u64) -> usize {
    1 << address.trailing_zeros().min(WIDEST.trailing_zeros())
}

/// What was prepared, by alignments.
pub(super) struct ByAlignments<T, A = Alignments> {
    entries: Mutex<Entries<T, A>>,
}

type Entries<T, A> = SmallVec<[(A, T); 1]>;

impl<T: Clone, A: PartialEq> ByAlignments<T, A> {
    /// What was prepared for these alignments. `make` prepares it at the first call.
    ///
    /// # Errors
    /// Those of `make`. Nothing is kept then.
    pub(super) fn get_or_make(&self, alignments: A, make: impl FnOnce(&A) -> Result<T>) -> Result<T> {
        let entries = self.lock();
        if let Some((_, prepared)) = entries.iter().find(|(other, _)| *other == alignments) {
            return Ok(prepared.clone());
        }
        // Others find what is there while this is prepared.
        drop(entries);
        let prepared = make(&alignments)?;
        self.lock().push((alignments, prepared.clone()));
        Ok(prepared)
    }

    fn lock(&self) -> MutexGuard<'_, Entries<T, A>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, A> Default for ByAlignments<T, A> {
    fn default() -> Self {
        ByAlignments { entries: Mutex::default() }
    }
}
