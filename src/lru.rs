//! A bounded map that forgets what was used longest ago.
//!
//! Entries stand in an index map. A list through their indices orders them by use, so looking up, putting in and
//! forgetting take constant time. A value that is forgotten lives on where a caller holds a share of it.
//!
//! Nothing here locks: whoever shares a map between threads brings the lock.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use std::hash::Hash;

/// The index of no entry: an end of the list.
const NONE: usize = usize::MAX;

/// At most `capacity` values by key.
pub(crate) struct Lru<K, V> {
    capacity: usize,
    entries: IndexMap<K, Entry<V>, FxBuildHasher>,
    oldest: usize,
    newest: usize,
}

struct Entry<V> {
    value: V,
    /// The entry that was used just before it.
    older: usize,
    /// The entry that was used just after it.
    newer: usize,
}

impl<K, V> Lru<K, V> {
    /// An empty map. With a capacity of 0 it keeps nothing.
    pub(crate) const fn new(capacity: usize) -> Lru<K, V> {
        Lru { capacity, entries: IndexMap::with_hasher(FxBuildHasher), oldest: NONE, newest: NONE }
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets all entries.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        (self.oldest, self.newest) = (NONE, NONE);
    }

    /// All entries, the one used last first.
    pub(crate) fn by_use(&self) -> impl Iterator<Item = (&K, &V)> {
        let entry = |at: usize| self.entries.get_index(at);
        let all = std::iter::successors(entry(self.newest), move |(_, newer)| entry(newer.older));
        all.map(|(key, entry)| (key, &entry.value))
    }

    /// The value that was used last, if its key is the one asked for. This looks at that key alone, without hashing.
    pub(crate) fn newest_if(&self, is_it: impl FnOnce(&K) -> bool) -> Option<&V> {
        let (key, entry) = self.entries.get_index(self.newest)?;
        is_it(key).then_some(&entry.value)
    }

    /// The value of an entry, which is the newest from now on.
    #[inline]
    fn used(&mut self, at: usize) -> Option<&V> {
        if self.newest != at {
            self.unlink(at);
            self.link_newest(at);
        }
        Some(&self.entries.get_index(at)?.1.value)
    }

    fn link_newest(&mut self, at: usize) {
        self.join(self.newest, at);
        self.join(at, NONE);
    }

    fn unlink(&mut self, at: usize) {
        let entry = &self.entries[at];
        self.join(entry.older, entry.newer);
    }

    /// Makes two entries neighbours in the list; beside [`NONE`] an entry is an end of it.
    fn join(&mut self, older: usize, newer: usize) {
        match self.entries.get_index_mut(older) {
            Some((_, entry)) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_index_mut(newer) {
            Some((_, entry)) => entry.older = older,
            None => self.newest = older,
        }
    }

    fn forget_oldest(&mut self) -> Option<V> {
        let gap = self.oldest;
        if gap == NONE {
            return None;
        }
        self.unlink(gap);
        let (_, forgotten) = self.entries.swap_remove_index(gap)?;
        // The last entry stands in the gap now, unless it was the one that went.
        if let Some((_, moved)) = self.entries.get_index(gap) {
            let (older, newer) = (moved.older, moved.newer);
            self.join(older, gap);
            self.join(gap, newer);
        }
        Some(forgotten.value)
    }
}

impl<K: Hash + Eq, V> Lru<K, V> {
    /// The value of a key, which is used by that.
    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        let at = self.entries.get_index_of(key)?;
        self.used(at)
    }

    /// Puts in a value. Returns the one that went for it: the former value of the key, or the one used longest ago if
    /// there is no room, or the value itself if there is never room.
    pub(crate) fn put(&mut self, key: K, value: V) -> Option<V> {
        if let Some(at) = self.entries.get_index_of(&key) {
            self.used(at);
            return Some(std::mem::replace(&mut self.entries[at].value, value));
        }
        if self.capacity == 0 {
            return Some(value);
        }
        let forgotten = if self.entries.len() >= self.capacity { self.forget_oldest() } else { None };
        let (at, _) = self.entries.insert_full(key, Entry { value, older: NONE, newer: NONE });
        self.link_newest(at);
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::Lru;
    use std::sync::{Arc, Mutex};

    /// What a test does with a map.
    #[derive(Clone, Copy)]
    enum Do {
        /// Puts in a key, and expects that of the value that goes.
        Put(char, Option<char>),
        /// Looks a key up, and expects whether it is there.
        Get(char, bool),
        /// Asks whether a key was used last.
        Newest(char, bool),
    }
    use Do::{Get, Newest, Put};

    /// Values are their keys, followed by the number of the step that put them in.
    #[track_caller]
    fn check(capacity: usize, steps: &[Do], by_use: &str) {
        let mut map: Lru<char, (char, usize)> = Lru::new(capacity);
        for (number, step) in steps.iter().enumerate() {
            match *step {
                Put(key, gone) => assert_eq!(map.put(key, (key, number)).map(|(key, _)| key), gone, "step {number}"),
                Get(key, there) => {
                    assert_eq!(map.get(&key).is_some_and(|value| value.0 == key), there, "step {number}")
                }
                Newest(key, is) => assert_eq!(map.newest_if(|newest| *newest == key).is_some(), is, "step {number}"),
            }
        }
        assert_eq!(map.by_use().map(|(key, _)| *key).collect::<String>(), by_use);
        assert_eq!(map.len(), by_use.len());
    }

    #[test]
    fn what_was_used_longest_ago_goes() {
        let full = [Put('a', None), Put('b', None), Put('c', None)];
        let check = |more: &[Do], by_use: &str| check(3, &[&full, more].concat(), by_use);
        check(&[], "cba");
        check(&[Put('d', Some('a')), Get('a', false)], "dcb");
        check(&[Get('a', true), Put('d', Some('b')), Put('e', Some('c')), Put('f', Some('a'))], "fed");
        check(&[Get('b', true), Get('b', true), Put('d', Some('a'))], "dbc");
        // A key that is there keeps its room, and its former value goes.
        check(&[Put('a', Some('a')), Put('d', Some('b'))], "dac");
        // What was used last is found without hashing.
        check(&[Get('a', true), Newest('a', true), Newest('c', false), Put('d', Some('b'))], "dac");
        // It stays the newest where another entry moves into a gap.
        check(&[Put('d', Some('a')), Newest('d', true), Newest('c', false)], "dcb");
    }

    #[test]
    fn there_may_be_room_for_one_or_none() {
        check(0, &[Put('a', Some('a')), Get('a', false), Newest('a', false), Put('a', Some('a'))], "");
        check(1, &[Put('a', None), Put('b', Some('a')), Get('a', false), Get('b', true), Put('b', Some('b'))], "b");
    }

    /// The same by a list that is searched.
    struct Twin(usize, Vec<(u64, u64)>);

    impl Twin {
        fn get(&mut self, key: u64) -> Option<u64> {
            let at = self.1.iter().position(|entry| entry.0 == key)?;
            let entry = self.1.remove(at);
            self.1.push(entry);
            Some(entry.1)
        }

        fn put(&mut self, key: u64, value: u64) -> Option<u64> {
            if let Some(former) = self.get(key) {
                self.1.last_mut().expect("it was found").1 = value;
                return Some(former);
            }
            self.1.push((key, value));
            (self.1.len() > self.0).then(|| self.1.remove(0).1)
        }
    }

    #[test]
    fn it_does_what_a_list_does() {
        for capacity in 0..9 {
            let (mut map, mut twin) = (Lru::new(capacity), Twin(capacity, Vec::new()));
            let mut state = 0x9e37_79b9_7f4a_7c15u64 + capacity as u64;
            for step in 0..2000u64 {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let key = (state >> 33) % 12;
                match (state >> 60) % 2 {
                    0 => assert_eq!(map.get(&key).copied(), twin.get(key), "{capacity}, {step}"),
                    _ => assert_eq!(map.put(key, step), twin.put(key, step), "{capacity}, {step}"),
                }
                assert!(map.by_use().map(|(&key, &value)| (key, value)).eq(twin.1.iter().rev().copied()));
            }
        }
    }

    /// A value that is forgotten while another thread holds it is dropped by that thread.
    #[test]
    fn values_outlive_their_entries() {
        let map: Mutex<Lru<usize, Arc<usize>>> = Mutex::new(Lru::new(4));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let map = &map;
                scope.spawn(move || {
                    for step in 0..500 {
                        let key = (step * (thread + 1)) % 16;
                        let mut entries = map.lock().expect("no thread panics");
                        let value = entries.get(&key).cloned().unwrap_or_else(|| {
                            let value = Arc::new(key);
                            entries.put(key, value.clone());
                            value
                        });
                        drop(entries);
                        assert_eq!(*value, key);
                    }
                });
            }
        });
        let entries = map.into_inner().expect("no thread panicked");
        assert_eq!(entries.len(), 4);
        assert!(entries.by_use().all(|(key, value)| Arc::strong_count(value) == 1 && **value == *key));
    }
}
