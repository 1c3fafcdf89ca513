//! The face of the caching CPU allocator.
//!
//! A request goes to the thread's own cache (up to 64 KiB), then to the shared cache, then to the system. Freed
//! blocks take the same way back. Everything cached is bounded: 4 MiB a thread, 64 MiB of small and medium blocks,
//! and of large ones 256 MiB or twice what is in use.
//!
//! An allocation fails only when the blocks in use and the one wanted do not fit the limit, or when the system has
//! no memory; before it fails, all that this thread can reach of the caches is given back.
//!
//! Devices with memory of their own have other allocators; [`Allocator`] is what all of them can do.

use super::block::Block;
use super::region::Region;
use super::shared_cache::SHARED;
use super::size_class::REQUEST_MAX;
use super::thread_cache;
use crate::error::{Error, Result};
use std::marker::PhantomData;

/// What the allocator is doing. Bytes are capacities, that is requests rounded up to their size class.
///
/// Exact whenever no thread is inside the allocator; otherwise off by what those threads are doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of blocks in use.
    pub live_bytes: usize,
    /// Blocks in use.
    pub live_blocks: usize,
    /// Bytes that are free and kept, by threads and by the shared cache.
    pub cached_bytes: usize,
    /// Bytes that the system has given and not got back: in use or cached.
    pub held_bytes: usize,
    /// Highest number of bytes that were in use or in caches of threads at once, since the start or [`reset_peak`].
    pub peak_bytes: usize,
    /// The limit in force, `usize::MAX` for none.
    pub limit: usize,
    /// Allocations so far, without those of no bytes.
    pub allocations: u64,
    /// How many of them needed memory of the system.
    pub fresh: u64,
    /// How many of them were served from a cache.
    pub hits: u64,
}

/// Where the memory of a device comes from.
///
/// A block that was freed may be handed out again only after the stream it was used on has reached the point where
/// it was freed.
pub trait Allocator: Send + Sync {
    /// A block of at least `bytes` bytes, for work on the thread's current stream of the device. Zero bytes need no
    /// memory and always succeed.
    ///
    /// # Errors
    /// If the limit or the device leaves no room.
    fn allocate(&self, bytes: usize) -> Result<Block>;

    /// The counters.
    fn stats(&self) -> Stats;

    /// Sets the limit of bytes in use; `usize::MAX` is none.
    fn set_limit(&self, bytes: usize);

    /// Gives back the memory that is cached and not waited for.
    fn trim(&self);
}

/// The caching CPU allocator, as an [`Allocator`].
///
/// Work on the CPU is done when the call that asked for it returns, so a freed block can be used again at once.
#[derive(Debug, Clone, Copy)]
pub struct HostAllocator;

/// The one of this process.
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

/// A block of at least `bytes` bytes. Zero bytes need no memory and always succeed.
///
/// Its contents are initialised but arbitrary.
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

/// The memory for an [`allocate`]d block, if there are bytes to allocate and nothing has to be given back before. Two
/// registers: the block is made where it is to lie.
#[inline(always)]
pub(super) fn allocate_at_once(bytes: usize) -> Option<Region> {
    if bytes == 0 || bytes > REQUEST_MAX {
        return None;
    }
    thread_cache::take(bytes, 0)
}

/// Gives all cached bytes back to the system, except those in caches of other threads.
pub fn trim() {
    thread_cache::flush();
    SHARED.trim();
}

/// Sets the limit of bytes in use; `usize::MAX` is none, and the default.
///
/// Bytes held may pass it by what other threads keep in their caches. Blocks already in use stay valid even if they
/// exceed a new limit.
pub fn set_limit(bytes: usize) {
    thread_cache::flush();
    SHARED.set_limit(bytes);
}

/// Starts measuring [`Stats::peak_bytes`] anew.
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

/// Lets one allocation of the calling thread fail as if there were no memory, while it lives: for tests of what a
/// program does when memory runs out.
///
/// Allocations of no bytes and those of other threads do not count. A thread has one fault at a time; a new one takes
/// the place of the last.
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
    /// Lets the allocation fail that comes after `n` others.
    pub fn after(n: u64) -> Fault {
        thread_cache::set_fault(n);
        Fault { not_send: PhantomData }
    }

    /// Whether the allocation came, and failed.
    pub fn has_struck(&self) -> bool {
        !thread_cache::has_fault()
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        thread_cache::clear_fault();
    }
}

/// Allocates where the first attempt failed: with empty caches, and not counting what other threads keep.
#[cold]
fn allocate_tightly(bytes: usize) -> Result<Block> {
    trim();
    let tolerance = thread_cache::totals().cached_bytes as usize;
    thread_cache::take(bytes, tolerance).map(Block::new).ok_or_else(|| {
        thread_cache::clear_fault();
        out_of_memory(bytes)
    })
}

/// An empty vector with room for so many elements: for those whose number follows from what a user asks for.
///
/// # Errors
/// If the memory cannot be had.
pub(crate) fn roomy<T>(n: usize) -> Result<Vec<T>> {
    let mut roomy = Vec::new();
    roomy.try_reserve_exact(n).map_err(|_| out_of_memory(n.saturating_mul(size_of::<T>())))?;
    Ok(roomy)
}

#[cold]
fn out_of_memory(wanted: usize) -> Error {
    let stats = stats();
    Error::OutOfMemory { device: "cpu".into(), wanted, held: stats.live_bytes, limit: stats.limit }
}
