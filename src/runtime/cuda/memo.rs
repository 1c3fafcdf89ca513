//! A process-wide memo table with LRU eviction.
//!
//! The first thread that asks for a key makes its value, and other threads that ask for it wait. A failure is not kept,
//! so the next call tries again. The table is bounded: the least recently used value is evicted, and lives on where it
//! is still held.

use crate::error::Result;
use indexmap::IndexMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Values by key, each made once.
pub(super) struct Memo<K, V> {
    capacity: usize,
    cells: Mutex<Option<IndexMap<K, Arc<Cell<V>>>>>,
}

/// Locked while the value is made.
type Cell<V> = Mutex<Option<V>>;

impl<K: Hash + Eq + Clone, V: Clone> Memo<K, V> {
    /// Keeps at most so many.
    pub(super) const fn new(capacity: usize) -> Memo<K, V> {
        Memo { capacity, cells: Mutex::new(None) }
    }

    /// The value of a key, made now if it is new.
    ///
    /// # Errors
    /// What `make` gives.
    pub(super) fn get(&self, key: K, make: impl FnOnce(&K) -> Result<V>) -> Result<V> {
        let cell = self.cell(key.clone());
        let mut made = cell.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = &*made {
            return Ok(value.clone());
        }
        Ok(made.insert(make(&key)?).clone())
    }

    fn cell(&self, key: K) -> Arc<Cell<V>> {
        let mut guard = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let cells = guard.get_or_insert_with(IndexMap::new);
        if let Some(index) = cells.get_index_of(&key) {
            // What was used last is last.
            let last = cells.len() - 1;
            cells.move_index(index, last);
            return cells[last].clone();
        }
        let cell = Arc::new(Cell::new(None));
        if cells.len() >= self.capacity {
            cells.drain(..(self.capacity / 8).max(1));
        }
        cells.insert(key, cell.clone());
        cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn values_are_made_once_and_the_oldest_go() {
        let memo: Memo<usize, usize> = Memo::new(8);
        let mut made = Vec::new();
        let mut get = |key: usize| {
            memo.get(key, |&key| {
                made.push(key);
                Ok(key * 2)
            })
        };
        for key in (0..8).chain([0]).chain(8..11).chain([0, 1]) {
            assert_eq!(get(key), Ok(key * 2));
        }
        assert_eq!(made, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1], "0 was used again, so 1 was the oldest");
        assert!(memo.cells.lock().is_ok_and(|cells| cells.as_ref().is_some_and(|cells| cells.len() <= 8)));
    }

    #[test]
    fn what_fails_is_tried_again() {
        let memo: Memo<u8, u8> = Memo::new(8);
        let failure = || Error::invalid("value", "it fails");
        assert_eq!(memo.get(1, |_| Err(failure())), Err(failure()));
        assert_eq!(memo.get(1, |_| Ok(3)), Ok(3));
    }
}
