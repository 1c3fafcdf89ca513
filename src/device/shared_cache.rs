//! Free memory that every thread may take, and the bytes held from the system.
//!
//! Small and medium regions are in one list per size class, each with its own lock. Large ones are in a best-fit cache
//! with one lock, because their users are about to touch megabytes anyway.
//!
//! What always holds: `held` is the sum of the capacities of all regions that this cache made and did not return to the
//! system. It never rises above the limit plus the tolerance of the request that raised it. Lists keep at most
//! [`LISTED_BOUND`]. The large cache keeps at most [`LARGE_BOUND`] or twice what is in use, counting the region just
//! freed, and returns its oldest regions first. No lock is held during calls of the system.
//!
//! `thread_cache` counts allocations and blocks in use.

use super::region::Region;
use super::size_class::{self, LARGE_MIN, N_LISTED};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes in the lists of small and medium classes.
pub(super) const LISTED_BOUND: usize = 64 << 20;
/// Bytes that the large cache may keep, however little is in use.
pub(super) const LARGE_BOUND: usize = 256 << 20;

/// The cache that all threads share.
pub(super) static SHARED: SharedCache = SharedCache::new();

/// See the module.
pub(super) struct SharedCache {
    listed: [Mutex<Vec<Region>>; N_LISTED],
    large: Mutex<LargeCache>,
    listed_bytes: AtomicUsize,
    /// Bytes in the lists and the large cache.
    cached: AtomicUsize,
    /// Bytes from the system: cached here, cached by threads, or in use.
    held: AtomicUsize,
    limit: AtomicUsize,
    /// The peak of `held - cached`.
    peak: AtomicUsize,
    fresh: AtomicU64,
}

/// Large regions by capacity; among equal capacities the oldest comes first.
struct LargeCache {
    by_capacity: BTreeMap<usize, VecDeque<Aged>>,
    bytes: usize,
    clock: u64,
}

struct Aged {
    freed_at: u64,
    region: Region,
}

/// The counters of a [`SharedCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) held: usize,
    pub(super) cached: usize,
    pub(super) peak: usize,
    pub(super) limit: usize,
    pub(super) fresh: u64,
}

impl SharedCache {
    pub(super) const fn new() -> SharedCache {
        SharedCache {
            listed: [const { Mutex::new(Vec::new()) }; N_LISTED],
            large: Mutex::new(LargeCache { by_capacity: BTreeMap::new(), bytes: 0, clock: 0 }),
            listed_bytes: AtomicUsize::new(0),
            cached: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            peak: AtomicUsize::new(0),
            fresh: AtomicU64::new(0),
        }
    }

    /// A region for `bytes`, cached or fresh; `None` if the limit (plus `tolerance`) or the system does not allow it.
    pub(super) fn take(&self, bytes: usize, tolerance: usize) -> Option<Region> {
        let capacity = size_class::capacity(bytes);
        let cached = if capacity < LARGE_MIN {
            lock(&self.listed[size_class::index(capacity)]).pop().inspect(|_| self.unlist(capacity))
        } else {
            let found = lock(&self.large).take(capacity, size_class::largest_fit(bytes));
            found.inspect(|region| self.uncache(region.capacity()))
        };
        cached.or_else(|| self.make(capacity, tolerance))
    }

    /// Moves up to `count` cached regions of a small or medium class to `to`.
    pub(super) fn take_listed(&self, capacity: usize, count: usize, to: &mut Vec<Region>) {
        let mut list = lock(&self.listed[size_class::index(capacity)]);
        let rest = list.len().saturating_sub(count);
        let taken = list.len() - rest;
        to.extend(list.drain(rest..));
        drop(list);
        self.unlist(taken * capacity);
    }

    /// Takes a region back, and keeps it if the bounds allow.
    pub(super) fn put(&self, region: Region) {
        let capacity = region.capacity();
        if capacity < LARGE_MIN {
            return self.put_listed(capacity, std::iter::once(region));
        }
        // The region itself counts as in use, so that a single huge temporary in a loop stays cached.
        let in_use = self.held.load(Relaxed).saturating_sub(self.cached.load(Relaxed));
        let mut large = lock(&self.large);
        self.cached.fetch_add(capacity, Relaxed);
        large.put(region);
        let surplus = large.evict(LARGE_BOUND.max(in_use.saturating_mul(2)));
        drop(large);
        self.give_back(surplus);
    }

    /// Takes regions of one small or medium class back, and keeps as many as the bound allows.
    pub(super) fn put_listed(&self, capacity: usize, regions: impl Iterator<Item = Region>) {
        let mut surplus = Vec::new();
        let mut list = lock(&self.listed[size_class::index(capacity)]);
        for region in regions {
            debug_assert_eq!(region.capacity(), capacity, "a list holds one class");
            self.cached.fetch_add(capacity, Relaxed);
            if self.listed_bytes.fetch_add(capacity, Relaxed) + capacity <= LISTED_BOUND {
                list.push(region);
            } else {
                self.listed_bytes.fetch_sub(capacity, Relaxed);
                surplus.push(region);
            }
        }
        drop(list);
        self.give_back(surplus);
    }

    /// Returns everything that is cached here to the system.
    pub(super) fn trim(&self) {
        for (at, list) in self.listed.iter().enumerate() {
            let regions = std::mem::take(&mut *lock(list));
            let bytes: usize = regions.iter().map(Region::capacity).sum();
            debug_assert!(regions.iter().all(|region| size_class::index(region.capacity()) == at), "mixed list");
            self.listed_bytes.fetch_sub(bytes, Relaxed);
            self.give_back(regions);
        }
        let regions = lock(&self.large).evict(0);
        self.give_back(regions);
    }

    /// Sets the limit of `held` for fresh memory.
    pub(super) fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Relaxed);
        if self.held.load(Relaxed) > bytes {
            self.trim();
        }
    }

    /// Restarts the peak from what is in use now.
    pub(super) fn reset_peak(&self) {
        self.peak.store(self.held.load(Relaxed).saturating_sub(self.cached.load(Relaxed)), Relaxed);
    }

    pub(super) fn account(&self) -> Account {
        Account {
            held: self.held.load(Relaxed),
            cached: self.cached.load(Relaxed),
            peak: self.peak.load(Relaxed),
            limit: self.limit.load(Relaxed),
            fresh: self.fresh.load(Relaxed),
        }
    }

    /// A fresh region of the system.
    fn make(&self, capacity: usize, tolerance: usize) -> Option<Region> {
        let allowed = self.limit.load(Relaxed).saturating_add(tolerance);
        // Counted before it is allocated, so that concurrent threads cannot exceed the limit together.
        let book = |held: usize| held.checked_add(capacity).filter(|&held| held <= allowed);
        self.held.fetch_update(Relaxed, Relaxed, book).ok()?;
        let Some(region) = Region::fresh(capacity) else {
            self.held.fetch_sub(capacity, Relaxed);
            return None;
        };
        self.fresh.fetch_add(1, Relaxed);
        self.raise_peak();
        Some(region)
    }

    /// Returns regions, which counted as cached until now, to the system.
    fn give_back(&self, regions: Vec<Region>) {
        for region in regions {
            let capacity = region.capacity();
            drop(region);
            // In this order, `held - cached` never exceeds what is in use.
            self.held.fetch_sub(capacity, Relaxed);
            self.cached.fetch_sub(capacity, Relaxed);
        }
    }

    fn unlist(&self, bytes: usize) {
        self.listed_bytes.fetch_sub(bytes, Relaxed);
        self.uncache(bytes);
    }

    fn uncache(&self, bytes: usize) {
        self.cached.fetch_sub(bytes, Relaxed);
        self.raise_peak();
    }

    fn raise_peak(&self) {
        let in_use = self.held.load(Relaxed).saturating_sub(self.cached.load(Relaxed));
        // A plain read first: the peak rarely moves, and this leaves its cache line shared.
        if in_use > self.peak.load(Relaxed) {
            self.peak.fetch_max(in_use, Relaxed);
        }
    }
}

impl LargeCache {
    /// The youngest region of the smallest capacity in `at_least ..= at_most`.
    fn take(&mut self, at_least: usize, at_most: usize) -> Option<Region> {
        let (&capacity, regions) = self.by_capacity.range_mut(at_least..=at_most).next()?;
        let aged = regions.pop_back().expect("empty entries are removed");
        if regions.is_empty() {
            self.by_capacity.remove(&capacity);
        }
        self.bytes -= capacity;
        Some(aged.region)
    }

    fn put(&mut self, region: Region) {
        self.clock += 1;
        self.bytes += region.capacity();
        let aged = Aged { freed_at: self.clock, region };
        self.by_capacity.entry(aged.region.capacity()).or_default().push_back(aged);
    }

    /// Removes the oldest regions until at most `bound` bytes are left.
    fn evict(&mut self, bound: usize) -> Vec<Region> {
        let mut evicted = Vec::new();
        while self.bytes > bound {
            let oldest_first = |(_, regions): &(&usize, &VecDeque<Aged>)| regions.front().map(|aged| aged.freed_at);
            let (&capacity, _) = self.by_capacity.iter().min_by_key(oldest_first).expect("bytes are in some entry");
            let regions = self.by_capacity.get_mut(&capacity).expect("just found");
            evicted.extend(regions.pop_front().map(|aged| aged.region));
            if regions.is_empty() {
                self.by_capacity.remove(&capacity);
            }
            self.bytes -= capacity;
        }
        evicted
    }
}

/// Locks. A panic elsewhere does not poison the cache, because its updates are complete at every point.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_freed_region_comes_back() {
        let cache = SharedCache::new();
        for bytes in [100, 5000, 200 << 10, 40_000_000] {
            let region = cache.take(bytes, 0).expect("no limit");
            let capacity = region.capacity();
            cache.put(region);
            let fresh = cache.account().fresh;
            let again = cache.take(bytes - bytes / 100, 0).expect("no limit");
            assert_eq!((again.capacity(), cache.account().fresh), (capacity, fresh), "{bytes}");
            cache.put(again);
        }
        let region = cache.take(35_000_000, 0).expect("no limit");
        assert_eq!((region.capacity(), cache.account().fresh), (size_class::capacity(40_000_000), 4));
        cache.put(region);
        let account = cache.account();
        assert_eq!(account.held, account.cached);
        cache.trim();
        assert_eq!((cache.account().held, cache.account().cached), (0, 0));
    }

    #[test]
    fn the_limit_holds_and_nothing_breaks() {
        let cache = SharedCache::new();
        cache.set_limit(10 * MIB);
        let first = cache.take(6 * MIB, 0).expect("below the limit");
        assert!(cache.take(6 * MIB, 0).is_none());
        assert_eq!(cache.account().held, 6 * MIB);
        let second = cache.take(4 * MIB, 0).expect("exactly the limit");
        assert!(cache.take(1, 0).is_none());
        cache.put(second);
        // Cached bytes count until they are trimmed; the tolerance of a request is added.
        assert!(cache.take(MIB, 0).is_none());
        cache.put(cache.take(MIB, MIB).expect("tolerated"));
        cache.trim();
        cache.put(cache.take(MIB, 0).expect("below the limit again"));
        cache.put(first);
        cache.set_limit(0);
        assert_eq!(cache.account(), Account { held: 0, cached: 0, peak: 10 * MIB, limit: 0, fresh: 4 });
    }

    #[test]
    fn the_large_cache_is_bounded_and_drops_the_oldest() {
        let cache = SharedCache::new();
        let regions: Vec<Region> = (0..60).map(|_| cache.take(8 * MIB, 0).expect("no limit")).collect();
        let first = regions[0].capacity();
        for region in regions {
            cache.put(region);
            let account = cache.account();
            let in_use = account.held - account.cached;
            assert!(account.cached <= LARGE_BOUND.max(2 * (in_use + first)), "{account:?}");
        }
        assert_eq!(cache.account().cached, LARGE_BOUND);
        // A single region above the bound is kept while nothing else is freed.
        let cache = SharedCache::new();
        cache.put(cache.take(LARGE_BOUND + MIB, 0).expect("no limit"));
        assert!(cache.account().cached > LARGE_BOUND);
        let small = cache.take(2 * MIB, 0).expect("no limit");
        cache.put(small);
        assert_eq!(cache.account().cached, 2 * MIB, "the older, larger region went first");
    }

    #[test]
    fn lists_are_bounded() {
        let cache = SharedCache::new();
        let regions: Vec<Region> = (0..100).map(|_| cache.take(MIB, 0).expect("no limit")).collect();
        assert_eq!(cache.account().peak, 100 * MIB);
        regions.into_iter().for_each(|region| cache.put(region));
        assert_eq!((cache.account().held, cache.account().cached), (LISTED_BOUND, LISTED_BOUND));
        let mut taken = Vec::new();
        cache.take_listed(MIB, 1000, &mut taken);
        assert_eq!((taken.len(), cache.account().cached), (LISTED_BOUND / MIB, 0));
        cache.put_listed(MIB, taken.drain(..));
        cache.reset_peak();
        assert_eq!(cache.account().peak, 0);
    }
}
