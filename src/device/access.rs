//! The locks of one kernel run: those of every storage it reads, and of those it writes.
//!
//! Locks are taken in the order of the storages' addresses and each storage is locked once, so runs never wait for
//! each other in a circle.

use super::Storage;
use crate::error::Result;
use smallvec::SmallVec;
use std::sync::{RwLockReadGuard, RwLockWriteGuard};

enum Held<'a> {
    Shared(#[allow(dead_code, reason = "held, not used")] RwLockReadGuard<'a, ()>),
    Exclusive(#[allow(dead_code, reason = "held, not used")] RwLockWriteGuard<'a, ()>),
}

/// Permission to read some storages and write others, while it lives.
#[must_use = "the locks are held only while it lives"]
pub struct Access<'a> {
    _held: SmallVec<[Held<'a>; 4]>,
}

impl<'a> Access<'a> {
    /// Waits for the locks of storages to read.
    pub fn to_read(storages: impl IntoIterator<Item = &'a Storage>) -> Access<'a> {
        let mut storages: SmallVec<[&Storage; 4]> = storages.into_iter().collect();
        if storages.len() > 1 {
            storages.sort_unstable_by_key(|&storage| std::ptr::from_ref(storage).addr());
            storages.dedup_by_key(|storage| std::ptr::from_ref(*storage));
        }
        Access { _held: storages.into_iter().map(|storage| Held::Shared(storage.shared())).collect() }
    }

    /// Waits for the locks of storages to read and others to write; one that is in both lists is written.
    ///
    /// # Errors
    /// If bytes to be written are [borrowed](super::Borrowed).
    pub fn to_write(
        reads: impl IntoIterator<Item = &'a Storage>,
        writes: impl IntoIterator<Item = &'a Storage>,
    ) -> Result<Access<'a>> {
        let mut all: SmallVec<[(&Storage, bool); 6]> = writes.into_iter().map(|storage| (storage, true)).collect();
        all.extend(reads.into_iter().map(|storage| (storage, false)));
        // Stable, so that of two equal ones the written comes first and stays.
        all.sort_by_key(|&(storage, _)| std::ptr::from_ref(storage).addr());
        all.dedup_by_key(|(storage, _)| std::ptr::from_ref(*storage));
        let lock = |(storage, writes): (&'a Storage, bool)| match writes {
            true => storage.exclusive().map(Held::Exclusive),
            false => Ok(Held::Shared(storage.shared())),
        };
        Ok(Access { _held: all.into_iter().map(lock).collect::<Result<_>>()? })
    }
}
