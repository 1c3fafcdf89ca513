//! The kernel cache: every kernel is compiled once per vector loop, access classes and tier.
//!
//! Kernels do not depend on sizes, so a new shape finds its code here. The cache is bounded; the entry that was used
//! longest ago goes first, and lives on while an executable holds it.

use super::geometry::{Class, Geometry, Lanes};
use super::kernel::Kernel;
use super::tier::{Compiled, Tier};
use crate::error::Reason;
use crate::lru::Lru;
use smallvec::SmallVec;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most kernels that are kept.
pub const CAPACITY: usize = 4096;

#[derive(PartialEq, Eq, Hash)]
struct Key {
    kernel: Kernel,
    lanes: Lanes,
    classes: SmallVec<[Class; 8]>,
    tier: Tier,
}

impl Key {
    fn new(tier: Tier, kernel: &Kernel, geometry: &Geometry) -> Key {
        Key { kernel: kernel.clone(), lanes: geometry.lanes, classes: geometry.classes(kernel), tier }
    }
}

/// A cached kernel.
pub struct Entry {
    /// The code.
    pub compiled: Compiled,
    /// Why the tier that was asked for did not make it.
    pub declined: Option<Reason>,
    /// How long compiling took.
    pub compile_time: Duration,
    /// Nanoseconds that launches have lost by running this and not what a better tier would make; see `tier_up`.
    pub lost: AtomicU64,
}

/// What the cache has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Kernels found.
    pub hits: u64,
    /// Kernels compiled.
    pub compilations: u64,
    /// Kernels dropped to make room.
    pub evictions: u64,
    /// Kernels held now.
    pub entries: usize,
}

struct Cache {
    entries: Lru<Key, Arc<Entry>>,
    stats: CacheStats,
}

impl Cache {
    const EMPTY: Cache =
        Cache { entries: Lru::new(CAPACITY), stats: CacheStats { hits: 0, compilations: 0, evictions: 0, entries: 0 } };

    /// An entry, which is used now.
    fn find(&mut self, key: &Key) -> Option<Arc<Entry>> {
        let entry = self.entries.get(key)?.clone();
        self.stats.hits += 1;
        Some(entry)
    }
}

static CACHE: Mutex<Cache> = Mutex::new(Cache::EMPTY);

fn lock() -> MutexGuard<'static, Cache> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The compiled form of a kernel; compiled now if it is new.
///
/// # Errors
/// The reason why no tier compiles it.
pub fn compiled(tier: Tier, kernel: &Kernel, geometry: &Geometry) -> Result<Arc<Entry>, Reason> {
    let key = Key::new(tier, kernel, geometry);
    let mut cache = lock();
    if let Some(entry) = cache.find(&key) {
        return Ok(entry);
    }
    // Compiling under the lock is what makes concurrent first calls compile once; it takes well under a millisecond.
    let start = Instant::now();
    let (compiled, declined) = Compiled::new(tier, &key.kernel, key.lanes, &key.classes)?;
    let entry = Arc::new(Entry { compiled, declined, compile_time: start.elapsed(), lost: AtomicU64::new(0) });
    cache.stats.compilations += 1;
    cache.stats.evictions += u64::from(cache.entries.put(key, entry.clone()).is_some());
    Ok(entry)
}

/// The compiled form of a kernel, if the cache has it.
pub fn known(tier: Tier, kernel: &Kernel, geometry: &Geometry) -> Option<Arc<Entry>> {
    let key = Key::new(tier, kernel, geometry);
    lock().find(&key)
}

/// What the cache has done so far.
pub fn stats() -> CacheStats {
    let cache = lock();
    CacheStats { entries: cache.entries.len(), ..cache.stats }
}

/// Forgets every kernel; executables keep what they hold.
pub fn clear() {
    *lock() = Cache::EMPTY;
}
