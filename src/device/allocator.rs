//! The caching CPU allocator.
//!
//! A request goes to the thread's own cache (up to 64 KiB), then to the shared cache, then to the system. Freed blocks
//! go back in the same order. Caches are bounded: 4 MiB per thread, 64 MiB of small and medium blocks, and for large
//! ones 256 MiB or twice what is in use.
//!
//! An allocation fails only if the limit has no room for it besides the blocks in use, or if the system has no memory.
//! Before it fails, all caches that this thread can reach are emptied.
//!
//! Devices with memory of their own have other allocators; [`Allocator`] is their common interface.

use super::block::Block;
use super::region::Region;
use super::shared_cache::SHARED;
use super::size_class::REQUEST_MAX;
use super::thread_cache;
use crate::error::{Error, Result};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU16, Ordering};

/// Counters of the allocator. Bytes are capacities: requests rounded up to their size class.
///
/// They are exact whenever no thread is inside the allocator. Otherwise calls in progress may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of blocks in use.
    pub live_bytes: usize,
    /// Blocks in use.
    pub live_blocks: usize,
    /// Bytes that are free and cached, by threads and by the shared cache.
    pub cached_bytes: usize,
    /// Bytes allocated from the system, in use or cached.
    pub held_bytes: usize,
    /// The peak of the bytes in use or cached by threads, since the start or [`reset_peak`].
    pub peak_bytes: usize,
    /// The current limit, `usize::MAX` for none.
    pub limit: usize,
    /// Allocations so far, except those of zero bytes.
    pub allocations: u64,
    /// Allocations that took memory from the system.
    pub fresh: u64,
    /// Allocations that were served from a cache.
    pub hits: u64,
}

/// Allocates the memory of a device.
///
/// A freed block may be reused only once the stream it was used on has reached the point where it was freed.
pub trait Allocator: Send + Sync {
    /// Allocates at least `bytes` bytes, for work on the thread's current stream of the device. Zero bytes need no
    /// memory and always succeed.
    ///
    /// # Errors
    /// If the limit or the device has no room.
    fn allocate(&self, bytes: usize) -> Result<Block>;

    /// The counters.
    fn stats(&self) -> Stats;

    /// Sets the limit of bytes in use; `usize::MAX` for none.
    fn set_limit(&self, bytes: usize);

    /// Frees the cached memory that no work waits for.
    fn trim(&self);
}

/// The caching CPU allocator, as an [`Allocator`].
///
/// Work on the CPU is done when its call returns, so a freed block can be reused at once.
#[derive(Debug, Clone, Copy)]
pub struct HostAllocator;

/// The allocator of this process.
pub static HOST: HostAllocator = HostAllocator;

impl Allocator for HostAllocator {
    fn allocate(&self, bytes: usize) -> Result<Block> {
        allocate(bytes)
    }

    fn stats(&self) -> Stats {
        stats()
    }

    fn set_limit(&self, bytes: usize) {
        set_limit(bytes);
    }

    fn trim(&self) {
        trim();
    }
}

/// Allocates at least `bytes` bytes of host memory. Zero bytes need no memory and always succeed.
///
/// The contents are initialised but arbitrary.
#[inline]
pub fn allocate(bytes: usize) -> Result<Block> {
    if bytes == 0 {
        return Ok(Block::EMPTY);
    }
    if bytes > REQUEST_MAX {
        return Err(out_of_memory(bytes));
    }
    match thread_cache::take(bytes, 0) {
        Some(region) => Ok(Block::new(region)),
        None => allocate_tightly(bytes),
    }
}

/// The region for a block, if there are bytes to allocate and no cache has to be emptied first. It is returned in
/// registers, so that the block is built in place.
#[inline(always)]
pub(super) fn allocate_at_once(bytes: usize) -> Option<Region> {
    if bytes == 0 || bytes > REQUEST_MAX {
        return None;
    }
    thread_cache::take(bytes, 0)
}

/// Returns all cached bytes to the system, except those in caches of other threads.
pub fn trim() {
    thread_cache::flush();
    SHARED.trim();
}

/// Sets the limit of bytes in use; `usize::MAX` for none, which is the default.
///
/// The process may hold more, by what other threads have cached. Blocks in use stay valid even if they exceed a new
/// limit.
pub fn set_limit(bytes: usize) {
    thread_cache::flush();
    SHARED.set_limit(bytes);
}

/// Fills the memory of new storages with a byte from now on, so that tests see what nothing has written. `None` leaves
/// it as it is.
pub fn set_fill(byte: Option<u8>) {
    FILL.store(byte.map_or(NO_FILL, u16::from), Ordering::Relaxed);
}

/// What new memory is filled with.
#[inline(always)]
pub(super) fn fill() -> Option<u8> {
    u8::try_from(FILL.load(Ordering::Relaxed)).ok()
}

static FILL: AtomicU16 = AtomicU16::new(NO_FILL);
const NO_FILL: u16 = u16::MAX;

/// Restarts the measurement of [`Stats::peak_bytes`].
pub fn reset_peak() {
    SHARED.reset_peak();
}

/// The counters.
pub fn stats() -> Stats {
    let account = SHARED.account();
    let totals = thread_cache::totals();
    Stats {
        live_bytes: totals.live_bytes() as usize,
        live_blocks: totals.live_blocks() as usize,
        cached_bytes: account.cached + totals.cached_bytes as usize,
        held_bytes: account.held,
        peak_bytes: account.peak,
        limit: account.limit,
        allocations: totals.taken_blocks,
        fresh: account.fresh,
        hits: totals.taken_blocks.saturating_sub(account.fresh),
    }
}

/// Lets one allocation of the calling thread fail as if memory had run out, while it lives. It is for tests of a
/// program's behaviour without memory.
///
/// Allocations of zero bytes and of other threads do not count. A thread has one fault at a time; a new one replaces
/// the last.
///
/// ```
/// use opfuse::device::allocator::Fault;
/// use opfuse::{Error, Result, Tensor};
///
/// # fn main() -> Result<()> {
/// let x = Tensor::from_slice(&[1.0f32, 2.0], &[2])?;
/// let fault = Fault::after(1);
/// let sum = (&x + &x)?;
/// assert!(matches!(&sum + &x, Err(Error::OutOfMemory { .. })) && fault.has_struck());
/// assert_eq!((&sum + &x)?.to_vec::<f32>()?, [3.0, 6.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the allocation fails only while it lives"]
pub struct Fault {
    not_send: PhantomData<*const ()>,
}

impl Fault {
    /// Lets the allocation after `n` others fail.
    pub fn after(n: u64) -> Fault {
        thread_cache::set_fault(n);
        Fault { not_send: PhantomData }
    }

    /// Whether that allocation was made, and failed.
    pub fn has_struck(&self) -> bool {
        !thread_cache::has_fault()
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        thread_cache::clear_fault();
    }
}

/// Retries a failed allocation with empty caches, without counting what other threads have cached.
#[cold]
fn allocate_tightly(bytes: usize) -> Result<Block> {
    trim();
    let tolerance = thread_cache::totals().cached_bytes as usize;
    thread_cache::take(bytes, tolerance).map(Block::new).ok_or_else(|| {
        thread_cache::clear_fault();
        out_of_memory(bytes)
    })
}

/// An empty vector with room for `n` elements, where a user's request decides `n`.
///
/// # Errors
/// If there is not enough memory.
pub(crate) fn roomy<T>(n: usize) -> Result<Vec<T>> {
    let mut roomy = Vec::new();
    roomy.try_reserve_exact(n).map_err(|_| out_of_memory(n.saturating_mul(size_of::<T>())))?;
    Ok(roomy)
}

#[cold]
fn out_of_memory(wanted: usize) -> Error {
    let stats = stats();
    Error::OutOfMemory { call: String::new(), device: "cpu".into(), wanted, held: stats.live_bytes, limit: stats.limit }
}
