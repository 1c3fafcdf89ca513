//! What is made once per key and kept for all threads.
//!
//! Whoever asks first makes it, and others who ask for the same meanwhile wait; what fails is not kept, so the next one tries again.
//! There is a bound: what was used longest ago goes first, and lives on where somebody holds it.

use crate::error::Result;
use indexmap::IndexMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Values by key.
pub(super) struct Known<K, V> {
    capacity: usize,
    places: Mutex<Option<IndexMap<K, Arc<Place<V>>>>>,
}

/// Locked while the value is made.
type Place<V> = Mutex<Option<V>>;

impl<K: Hash + Eq + Clone, V: Clone> Known<K, V> {
    /// Keeps at most so many.
    pub(super) const fn new(capacity: usize) -> Known<K, V> {
        Known { capacity, places: Mutex::new(None) }
    }

    /// The value of a key, made now if it is new.
    ///
    /// # Errors
    /// What `make` gives.
    pub(super) fn get(&self, key: K, make: impl FnOnce(&K) -> Result<V>) -> Result<V> {
        let place = self.place(key.clone());
        let mut made = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = &*made {
            return Ok(value.clone());
        }
        Ok(made.insert(make(&key)?).clone())
    }

    fn place(&self, key: K) -> Arc<Place<V>> {
        let mut guard = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let places = guard.get_or_insert_with(IndexMap::new);
        if let Some(index) = places.get_index_of(&key) {
            // What was used last is last.
            let last = places.len() - 1;
            places.move_index(index, last);
            return places[last].clone();
        }
        let place = Arc::new(Place::new(None));
        if places.len() >= self.capacity {
            places.drain(..(self.capacity / 8).max(1));
        }
        places.insert(key, place.clone());
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn values_are_made_once_and_the_oldest_go() {
        let known: Known<usize, usize> = Known::new(8);
        let mut made = Vec::new();
        let mut get = |key: usize| {
            known.get(key, |&key| {
                made.push(key);
                Ok(key * 2)
            })
        };
        for key in (0..8).chain([0]).chain(8..11).chain([0, 1]) {
            assert_eq!(get(key), Ok(key * 2));
        }
        assert_eq!(made, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1], "0 was used again, so 1 was the oldest");
        assert!(known.places.lock().is_ok_and(|places| places.as_ref().is_some_and(|places| places.len() <= 8)));
    }

    #[test]
    fn what_fails_is_tried_again() {
        let known: Known<u8, u8> = Known::new(8);
        let failure = || Error::invalid("value", "it fails");
        assert_eq!(known.get(1, |_| Err(failure())), Err(failure()));
        assert_eq!(known.get(1, |_| Ok(3)), Ok(3));
    }
}
