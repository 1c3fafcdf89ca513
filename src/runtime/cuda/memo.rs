//! A process-wide memo table with LRU eviction.
//!
//! The first thread that asks for a key makes its value, and other threads that ask for it wait. A failure is not kept,
//! so the next call tries again. The table is bounded: the least recently used value is evicted, and lives on where it
//! is still held.

use crate::error::Result;
use crate::lru::Lru;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Values by key, each made once.
pub(super) struct Memo<K, V> {
    cells: Mutex<Lru<K, Arc<Cell<V>>>>,
}

/// Locked while the value is made.
type Cell<V> = Mutex<Option<V>>;

impl<K: Hash + Eq + Clone, V: Clone> Memo<K, V> {
    /// Keeps at most so many.
    pub(super) const fn new(capacity: usize) -> Memo<K, V> {
        Memo { cells: Mutex::new(Lru::new(capacity)) }
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
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = cells.get(&key) {
            return cell.clone();
        }
        let cell = Arc::new(Cell::new(None));
        cells.put(key, cell.clone());
        cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

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
        assert!(memo.cells.lock().is_ok_and(|cells| cells.len() <= 8));
    }

    #[test]
    fn what_fails_is_tried_again() {
        let memo: Memo<u8, u8> = Memo::new(8);
        let failure = || Error::invalid("value", "it fails");
        assert_eq!(memo.get(1, |_| Err(failure())), Err(failure()));
        assert_eq!(memo.get(1, |_| Ok(3)), Ok(3));
    }

    #[test]
    fn without_room_values_are_made_again() {
        let memo: Memo<u8, u8> = Memo::new(0);
        assert_eq!(memo.get(1, |_| Ok(2)), Ok(2));
        assert_eq!(memo.get(1, |_| Ok(3)), Ok(3));
    }

    /// Threads that ask for the same keys at the same time share what one of them makes.
    #[test]
    fn concurrent_users_make_each_value_once() {
        let memo: Memo<usize, Arc<usize>> = Memo::new(16);
        let n_made = AtomicUsize::new(0);
        let start = Barrier::new(4);
        let values = std::thread::scope(|scope| {
            let users: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        let make = |key: &usize| {
                            n_made.fetch_add(1, Ordering::Relaxed);
                            std::thread::yield_now();
                            Ok(Arc::new(*key))
                        };
                        (0..16).map(|key| memo.get(key, make)).collect::<Result<Vec<_>>>()
                    })
                })
                .collect();
            users.into_iter().map(|user| user.join().expect("no user panics")).collect::<Result<Vec<_>>>()
        });
        let values = values.expect("making does not fail");
        assert_eq!(n_made.into_inner(), 16);
        assert!(values.iter().flatten().zip(values[0].iter().cycle()).all(|(one, first)| Arc::ptr_eq(one, first)));
    }
}
