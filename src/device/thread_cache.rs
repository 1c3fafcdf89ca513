//! What each thread has for itself: small free regions, and counters.
//!
//! A small block is allocated and freed without a lock or an atomic read-modify-write: both use only the thread's own
//! lists and counters. An empty list takes a batch from the shared cache. A full list gives half of its regions away.
//! So a thread that only allocates is supplied by threads that only free.
//!
//! What always holds: a counter has one writer, its thread. Readers add up all threads, so the sums are exact whenever
//! no thread is inside the allocator. A thread keeps at most 4 MiB. When it ends, its regions go to the shared cache,
//! and its counters are added to the retired ones. What it allocates or frees afterwards (in destructors of other
//! thread locals) goes directly to the shared cache.

use super::region::Region;
use super::shared_cache::{SHARED, lock};
use super::size_class::{self, N_SMALL, SMALL_MAX};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

thread_local! {
    static CACHE: RefCell<ThreadCache> = RefCell::new(ThreadCache::register());
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { threads: Vec::new(), retired: Totals::ZERO });

/// More blocks than a thread will ever allocate.
const NO_FAULT: u64 = u64::MAX;

struct ThreadCache {
    lists: [Vec<Region>; N_SMALL],
    counters: Arc<Counters>,
    /// The number of allocations after which a request fails, until [`clear_fault`]; see `allocator::Fault`.
    fault_at: u64,
}

/// One thread's counters, on cache lines of their own. Written by their thread, read by any.
#[derive(Default)]
#[repr(align(128))]
struct Counters {
    taken_blocks: AtomicU64,
    taken_bytes: AtomicU64,
    freed_blocks: AtomicU64,
    freed_bytes: AtomicU64,
    cached_bytes: AtomicU64,
}

/// The sum of all counters. A block may be freed by another thread than took it, so parts of the sum may wrap.
#[derive(Debug, Clone, Copy)]
pub(super) struct Totals {
    pub(super) taken_blocks: u64,
    taken_bytes: u64,
    freed_blocks: u64,
    freed_bytes: u64,
    /// Bytes in the caches of threads.
    pub(super) cached_bytes: u64,
}

struct Registry {
    threads: Vec<Arc<Counters>>,
    retired: Totals,
}

/// A region for `bytes`; `None` as for `SharedCache::take`. Not inlined, so that the region is returned in registers.
#[inline(never)]
pub(super) fn take(bytes: usize, tolerance: usize) -> Option<Region> {
    match CACHE.try_with(|cache| cache.borrow_mut().take(bytes, tolerance)) {
        Ok(region) => region,
        Err(_) => SHARED.take(bytes, tolerance).inspect(|region| lock(&REGISTRY).retired.take(region.capacity())),
    }
}

/// Takes back a region of `take`.
#[inline]
pub(super) fn put(region: Region) {
    let mut region = Some(region);
    // If the thread's cache is destroyed, the closure does not run, and the region is still here.
    let _ = CACHE.try_with(|cache| region.take().map(|region| cache.borrow_mut().put(region)));
    if let Some(region) = region {
        lock(&REGISTRY).retired.free(region.capacity());
        SHARED.put(region);
    }
}

/// Moves the calling thread's free regions to the shared cache.
pub(super) fn flush() {
    // A thread whose cache is destroyed has none.
    let _ = CACHE.try_with(|cache| cache.borrow_mut().flush());
}

/// Makes a request of the calling thread fail after so many more allocations, until the fault is cleared.
pub(super) fn set_fault(after: u64) {
    // A thread whose cache is destroyed has no faults.
    let _ = CACHE.try_with(|cache| {
        let mut cache = cache.borrow_mut();
        cache.fault_at = cache.counters.taken_blocks.load(Relaxed).saturating_add(after);
    });
}

/// Clears the fault.
pub(super) fn clear_fault() {
    // As above.
    let _ = CACHE.try_with(|cache| cache.borrow_mut().fault_at = NO_FAULT);
}

/// Whether a fault is still pending.
pub(super) fn has_fault() -> bool {
    CACHE.try_with(|cache| cache.borrow().fault_at != NO_FAULT).unwrap_or(false)
}

/// The counters of all threads, running and ended.
pub(super) fn totals() -> Totals {
    let registry = lock(&REGISTRY);
    registry.threads.iter().fold(registry.retired, |totals, counters| totals.plus(counters))
}

impl ThreadCache {
    fn register() -> ThreadCache {
        let counters = Arc::new(Counters::default());
        lock(&REGISTRY).threads.push(Arc::clone(&counters));
        ThreadCache { lists: [const { Vec::new() }; N_SMALL], counters, fault_at: NO_FAULT }
    }

    #[inline]
    fn take(&mut self, bytes: usize, tolerance: usize) -> Option<Region> {
        if self.counters.taken_blocks.load(Relaxed) == self.fault_at {
            return None;
        }
        if bytes > SMALL_MAX {
            let region = SHARED.take(bytes, tolerance)?;
            self.counters.count_take(region.capacity());
            return Some(region);
        }
        let capacity = size_class::capacity(bytes);
        let region = match self.lists[size_class::index(capacity)].pop() {
            Some(region) => {
                bump(&self.counters.cached_bytes, (capacity as u64).wrapping_neg());
                region
            }
            None => self.refill(capacity, tolerance)?,
        };
        self.counters.count_take(capacity);
        Some(region)
    }

    #[inline]
    fn put(&mut self, region: Region) {
        let capacity = region.capacity();
        self.counters.count_free(capacity);
        if capacity > SMALL_MAX {
            return SHARED.put(region);
        }
        let list = &mut self.lists[size_class::index(capacity)];
        let full = list.len() >= keep(capacity);
        list.push(region);
        bump(&self.counters.cached_bytes, capacity as u64);
        if full {
            self.spill(capacity);
        }
    }

    /// A region of a class whose list is empty, and a batch for the list.
    #[cold]
    fn refill(&mut self, capacity: usize, tolerance: usize) -> Option<Region> {
        let list = &mut self.lists[size_class::index(capacity)];
        SHARED.take_listed(capacity, keep(capacity) / 2, list);
        let region = list.pop();
        bump(&self.counters.cached_bytes, (list.len() * capacity) as u64);
        region.or_else(|| SHARED.take(capacity, tolerance))
    }

    /// Gives the older half of a full list away; the younger half is still in this core's caches.
    #[cold]
    fn spill(&mut self, capacity: usize) {
        let count = keep(capacity) / 2;
        let list = &mut self.lists[size_class::index(capacity)];
        SHARED.put_listed(capacity, list.drain(..count));
        bump(&self.counters.cached_bytes, ((count * capacity) as u64).wrapping_neg());
    }

    fn flush(&mut self) {
        for list in &mut self.lists {
            let Some(capacity) = list.first().map(Region::capacity) else { continue };
            SHARED.put_listed(capacity, std::mem::take(list).into_iter());
        }
        self.counters.cached_bytes.store(0, Relaxed);
    }
}

impl Drop for ThreadCache {
    fn drop(&mut self) {
        self.flush();
        let mut registry = lock(&REGISTRY);
        registry.retired = registry.retired.plus(&self.counters);
        registry.threads.retain(|counters| !Arc::ptr_eq(counters, &self.counters));
    }
}

/// How many free regions of a class a thread keeps: 128 KiB, but at least 4 and at most 64.
#[inline]
fn keep(capacity: usize) -> usize {
    ((128 << 10) / capacity).clamp(4, 64)
}

/// Adds to a counter that only this thread writes, so no locked instruction is needed.
#[inline]
fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

impl Counters {
    #[inline]
    fn count_take(&self, capacity: usize) {
        bump(&self.taken_blocks, 1);
        bump(&self.taken_bytes, capacity as u64);
    }

    #[inline]
    fn count_free(&self, capacity: usize) {
        bump(&self.freed_blocks, 1);
        bump(&self.freed_bytes, capacity as u64);
    }
}

impl Totals {
    const ZERO: Totals = Totals { taken_blocks: 0, taken_bytes: 0, freed_blocks: 0, freed_bytes: 0, cached_bytes: 0 };

    /// Blocks in use. If frees are seen before their allocations, the count is 0 instead of negative.
    pub(super) fn live_blocks(&self) -> u64 {
        (self.taken_blocks.wrapping_sub(self.freed_blocks) as i64).max(0) as u64
    }

    /// Bytes in use, by capacity.
    pub(super) fn live_bytes(&self) -> u64 {
        (self.taken_bytes.wrapping_sub(self.freed_bytes) as i64).max(0) as u64
    }

    fn take(&mut self, capacity: usize) {
        self.taken_blocks += 1;
        self.taken_bytes += capacity as u64;
    }

    fn free(&mut self, capacity: usize) {
        self.freed_blocks += 1;
        self.freed_bytes += capacity as u64;
    }

    fn plus(self, counters: &Counters) -> Totals {
        Totals {
            taken_blocks: self.taken_blocks.wrapping_add(counters.taken_blocks.load(Relaxed)),
            taken_bytes: self.taken_bytes.wrapping_add(counters.taken_bytes.load(Relaxed)),
            freed_blocks: self.freed_blocks.wrapping_add(counters.freed_blocks.load(Relaxed)),
            freed_bytes: self.freed_bytes.wrapping_add(counters.freed_bytes.load(Relaxed)),
            cached_bytes: self.cached_bytes.wrapping_add(counters.cached_bytes.load(Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_at_most_four_mebibytes() {
        let mut classes: Vec<usize> = (64..=SMALL_MAX).step_by(64).map(size_class::capacity).collect();
        classes.dedup();
        assert_eq!(classes.len(), N_SMALL);
        assert!(classes.iter().map(|&capacity| capacity * keep(capacity)).sum::<usize>() <= 4 << 20);
        assert!(classes.iter().all(|&capacity| keep(capacity) >= 4));
    }

    #[test]
    fn lists_spill_refill_and_flush() {
        let mut cache = ThreadCache::register();
        let cached = |cache: &ThreadCache| cache.counters.cached_bytes.load(Relaxed) as usize;
        let listed = |cache: &ThreadCache| cache.lists.iter().flatten().map(Region::capacity).sum::<usize>();
        for bytes in [64, 1000, SMALL_MAX] {
            let capacity = size_class::capacity(bytes);
            let regions: Vec<Region> = (0..200).map(|_| cache.take(bytes, 0).expect("no limit")).collect();
            for region in regions {
                cache.put(region);
                assert!(listed(&cache) <= keep(capacity) * capacity);
                assert_eq!(cached(&cache), listed(&cache));
            }
            cache.flush();
            assert_eq!((cached(&cache), listed(&cache)), (0, 0));
            let region = cache.take(bytes, 0).expect("no limit");
            // Other tests may have taken what was flushed; the counters must fit either way.
            assert_eq!(cached(&cache), listed(&cache));
            cache.put(region);
            cache.flush();
        }
        let counters = Arc::clone(&cache.counters);
        drop(cache);
        assert_eq!(counters.taken_blocks.load(Relaxed), 603);
        assert_eq!(counters.freed_blocks.load(Relaxed), 603);
        assert_eq!(counters.taken_bytes.load(Relaxed), counters.freed_bytes.load(Relaxed));
        assert!(!lock(&REGISTRY).threads.iter().any(|other| Arc::ptr_eq(other, &counters)));
    }
}
