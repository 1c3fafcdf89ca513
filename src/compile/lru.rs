//! A bounded map with LRU eviction.

use indexmap::IndexMap;
use std::cmp::Reverse;
use std::hash::Hash;

/// Values by key, each with the time of its last use.
pub(super) struct Lru<K, V> {
    entries: IndexMap<K, (V, u64)>,
    clock: u64,
}

impl<K, V> Default for Lru<K, V> {
    fn default() -> Lru<K, V> {
        Lru { entries: IndexMap::new(), clock: 0 }
    }
}

impl<K: Hash + Eq, V> Lru<K, V> {
    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The value of a key. This counts as a use.
    pub(super) fn get(&mut self, key: &K) -> Option<&V> {
        let at = self.entries.get_index_of(key)?;
        self.used(at)
    }

    /// The value of the last position, if its key passes the test. This saves hashing for a repeated key.
    pub(super) fn last_if(&mut self, is_it: impl FnOnce(&K) -> bool) -> Option<&V> {
        let (key, _) = self.entries.last()?;
        if !is_it(key) {
            return None;
        }
        self.used(self.entries.len() - 1)
    }

    /// Inserts a value. Returns how many others were evicted to stay within `capacity`.
    pub(super) fn put(&mut self, key: K, value: V, capacity: usize) -> u64 {
        let mut evicted = 0;
        while self.entries.len() >= capacity.max(1) {
            let ages = self.entries.values().enumerate();
            let Some((oldest, _)) = ages.min_by_key(|(_, (_, used))| *used) else { break };
            self.entries.swap_remove_index(oldest);
            evicted += 1;
        }
        self.clock += 1;
        self.entries.insert(key, (value, self.clock));
        evicted
    }

    /// All entries, the most recently used first.
    pub(super) fn by_use(&self) -> Vec<(&K, &V)> {
        let mut entries: Vec<(&K, &(V, u64))> = self.entries.iter().collect();
        entries.sort_by_key(|(_, (_, used))| Reverse(*used));
        entries.into_iter().map(|(key, (value, _))| (key, value)).collect()
    }

    fn used(&mut self, at: usize) -> Option<&V> {
        self.clock += 1;
        let (_, (value, used)) = self.entries.get_index_mut(at)?;
        *used = self.clock;
        Some(value)
    }
}
