//! Permission for one kernel run: the locks of every storage it reads or writes. Short runs that only read may do
//! without locks; see [`ShortAccess`].
//!
//! Locks are taken in the order of the storages' addresses, and each storage is locked once. So runs cannot deadlock.

use super::readers::{Announced, announce};
use super::{Exclusive, Storage};
use crate::error::Result;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::sync::RwLockReadGuard;

enum Held<'a> {
    Shared(#[allow(dead_code, reason = "held, not used")] RwLockReadGuard<'a, ()>),
    Exclusive(#[allow(dead_code, reason = "held, not used")] Exclusive<'a>),
}

impl<'a> Held<'a> {
    #[inline]
    fn to_read(storage: &'a Storage) -> Held<'a> {
        Held::Shared(storage.shared())
    }
}

/// Permission to read some storages and write others, while it lives.
#[must_use = "the locks are held only while it lives"]
pub struct Access<'a> {
    /// The first three storages, which suffice for most calls.
    _first: Option<Held<'a>>,
    _second: Option<Held<'a>>,
    _third: Option<Held<'a>>,
    /// Any others.
    _held: Vec<Held<'a>>,
}

impl<'a> Access<'a> {
    /// Waits for the locks to read storages.
    #[inline]
    pub fn to_read(storages: impl IntoIterator<Item = &'a Storage>) -> Access<'a> {
        let mut storages = storages.into_iter();
        let (first, second) = (storages.next(), storages.next());
        if let (Some(first), Some(second), Some(third)) = (first, second, storages.next()) {
            return match storages.next() {
                None => Access::to_read_three(first, second, third),
                Some(fourth) => Access::to_read_many([first, second, third, fourth].into_iter().chain(storages)),
            };
        }
        let (low, high) = match (first, second) {
            (Some(first), Some(second)) => match address(first).cmp(&address(second)) {
                Ordering::Less => (Some(first), Some(second)),
                Ordering::Equal => (Some(first), None),
                Ordering::Greater => (Some(second), Some(first)),
            },
            (first, _) => (first, None),
        };
        let (_first, _second) = (low.map(Held::to_read), high.map(Held::to_read));
        Access { _first, _second, _third: None, _held: Vec::new() }
    }

    fn to_read_three(a: &'a Storage, b: &'a Storage, c: &'a Storage) -> Access<'a> {
        let in_order = |one: &'a Storage, other: &'a Storage| match address(one) <= address(other) {
            true => (one, other),
            false => (other, one),
        };
        let (a, b) = in_order(a, b);
        let (b, high) = in_order(b, c);
        let (low, middle) = in_order(a, b);
        let _first = Some(Held::to_read(low));
        let _second = (address(middle) != address(low)).then(|| Held::to_read(middle));
        let _third = (address(high) != address(middle)).then(|| Held::to_read(high));
        Access { _first, _second, _third, _held: Vec::new() }
    }

    fn to_read_many(all: impl Iterator<Item = &'a Storage>) -> Access<'a> {
        let mut storages: SmallVec<[&Storage; 8]> = all.collect();
        storages.sort_unstable_by_key(|storage| address(storage));
        storages.dedup_by_key(|storage| address(storage));
        let held = storages.into_iter().map(Held::to_read).collect();
        Access { _first: None, _second: None, _third: None, _held: held }
    }

    /// Waits for the locks to read some storages and to write others. One that is in both lists is written.
    ///
    /// # Errors
    /// If a storage to be written is [borrowed](super::Borrowed).
    pub fn to_write(
        reads: impl IntoIterator<Item = &'a Storage>,
        writes: impl IntoIterator<Item = &'a Storage>,
    ) -> Result<Access<'a>> {
        let mut all: SmallVec<[(&Storage, bool); 6]> = writes.into_iter().map(|storage| (storage, true)).collect();
        all.extend(reads.into_iter().map(|storage| (storage, false)));
        // The sort is stable, so of two equal ones the written one comes first and stays.
        all.sort_by_key(|&(storage, _)| address(storage));
        all.dedup_by_key(|(storage, _)| address(storage));
        let lock = |(storage, writes): (&'a Storage, bool)| match writes {
            true => storage.exclusive().map(Held::Exclusive),
            false => Ok(Held::to_read(storage)),
        };
        let mut held = all.into_iter().map(lock);
        let mut next = || held.next().transpose();
        let (_first, _second, _third) = (next()?, next()?, next()?);
        Ok(Access { _first, _second, _third, _held: held.collect::<Result<_>>()? })
    }
}

/// Permission to read some storages for a short time.
#[must_use = "writers are kept out only while it lives"]
pub(crate) enum ShortAccess<'a> {
    /// No lock is held. Writers see the announcement, and wait without sleeping long.
    Announced(#[allow(dead_code, reason = "held, not used")] Announced),
    /// A storage has a writer, running or waiting, or there are too many storages.
    Locked(#[allow(dead_code, reason = "held, not used")] Access<'a>),
}

impl<'a> ShortAccess<'a> {
    /// Waits until no storage has a writer.
    #[inline(always)]
    pub(crate) fn to_read(storages: impl Iterator<Item = &'a Storage> + Clone) -> ShortAccess<'a> {
        match announce(storages.clone()) {
            Some(announced) => ShortAccess::Announced(announced),
            None => ShortAccess::Locked(Access::to_read(storages)),
        }
    }
}

/// The order in which locks are taken.
fn address(storage: &Storage) -> usize {
    std::ptr::from_ref(storage).addr()
}
