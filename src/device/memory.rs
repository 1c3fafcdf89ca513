#![allow(unsafe_code, reason = "owns raw memory: the only file of this floor that asks the system for bytes")]
//! Owned memory: [`Region`], raw from the system, and [`Block`], what everyone else holds.
//!
//! A region goes back to the system when dropped; a block hands its region back to the allocator, or itself to the
//! [`Owner`] that lent it. Both are plain owned values: shared reading goes through `&`, writing through `&mut`, so
//! safe code cannot race. Kernels write through the raw pointer and answer for it. Bytes that the host can reach are
//! always initialised: the system's are zero, recycled ones hold what the last owner left, so reading them is defined
//! though meaningless. Memory of a device that the host cannot reach is an address and a size here, no bytes.

use super::allocator;
use super::size_class::LARGE_MIN;
use super::stream::Stream;
use crate::error::Result;
use std::fmt;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Arc;

/// Every block starts at a multiple of this: one cache line, one AVX-512 vector.
pub const ALIGNMENT: usize = 64;

/// Memory of the system, with a size-class capacity.
pub(super) struct Region {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: a region owns its memory; nothing about it depends on the thread that uses or releases it.
unsafe impl Send for Region {}
// SAFETY: through `&Region` safe code can only read.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroed memory, `None` if the system has none. `capacity` is a size class, so a multiple of 64 and not 0.
    pub(super) fn fresh(capacity: usize) -> Option<Region> {
        debug_assert!(capacity > 0 && capacity.is_multiple_of(ALIGNMENT), "{capacity} is not a size class");
        let start = if capacity >= LARGE_MIN { pages::map(capacity)? } else { heap::allocate(capacity, ALIGNMENT)? };
        Some(Region { start, capacity })
    }

    /// Bytes that may be used.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `fresh` got exactly this memory by the same choice of source, and the region was its only owner.
        unsafe {
            if self.capacity >= LARGE_MIN {
                pages::unmap(self.start, self.capacity);
            } else {
                heap::free(self.start, self.capacity, ALIGNMENT);
            }
        }
    }
}

/// An owned piece of memory; it goes back to where it came from when it is dropped.
///
/// Host memory is 64-byte aligned. Memory that only a device can reach has an address but no bytes to read.
pub struct Block(Memory);

enum Memory {
    /// A block of no bytes needs no memory.
    Nothing,
    Host(Region),
    /// What only a device can reach; its owner frees it.
    Device {
        address: NonZeroUsize,
        capacity: usize,
    },
    Lent(Box<Lent>),
}

struct Lent {
    block: Block,
    owner: Arc<dyn Owner>,
}

/// Who lent a block, and gets it back.
pub trait Owner: Send + Sync {
    /// Takes the block that [`Block::lent`] was given, when the lent one is dropped.
    fn take_back(&self, block: Block);

    /// Told that work on a stream other than the one the block was allocated for uses it too.
    fn used_on(&self, stream: &Stream) {
        let _ = stream;
    }

    /// Orders work given to `stream` from now on behind all work on other streams that took its turn before.
    ///
    /// # Errors
    /// If a device failed.
    fn take_turn(&self, stream: &Stream) -> Result<()> {
        self.used_on(stream);
        Ok(())
    }
}

impl Block {
    /// A block of no bytes.
    pub const EMPTY: Block = Block(Memory::Nothing);

    pub(super) fn new(region: Region) -> Block {
        Block(Memory::Host(region))
    }

    /// Memory of a device that the host cannot reach. Dropping it does nothing: lend it out, so that its owner gets
    /// it back.
    pub fn on_device(address: NonZeroUsize, capacity: usize) -> Block {
        Block(Memory::Device { address, capacity })
    }

    /// The same memory, which `owner` gets back when it is dropped.
    pub fn lent(self, owner: Arc<dyn Owner>) -> Block {
        Block(Memory::Lent(Box::new(Lent { block: self, owner })))
    }

    /// Tells the owner that work on `stream` uses the block too, so that it is not handed out again before that work
    /// is done.
    pub fn used_on(&self, stream: &Stream) {
        if let Memory::Lent(lent) = &self.0 {
            lent.owner.used_on(stream);
        }
    }

    /// Work on `stream` is about to use the block: it waits for all work on other streams that did so before, and the block
    /// is not handed out again before it is done. So work on one block has one order, whatever the streams.
    ///
    /// # Errors
    /// If a device failed.
    pub fn take_turn(&self, stream: &Stream) -> Result<()> {
        if let Memory::Lent(lent) = &self.0 { lent.owner.take_turn(stream) } else { Ok(()) }
    }

    /// Bytes that may be used: what was asked for, rounded up to the size class.
    #[inline]
    pub fn capacity(&self) -> usize {
        match &self.0 {
            Memory::Host(region) => region.capacity,
            Memory::Nothing => 0,
            Memory::Device { capacity, .. } => *capacity,
            Memory::Lent(lent) => lent.block.capacity(),
        }
    }

    /// How many of them the host can reach: all or none.
    #[inline]
    pub fn visible(&self) -> usize {
        match &self.0 {
            Memory::Host(region) => region.capacity,
            Memory::Nothing | Memory::Device { .. } => 0,
            Memory::Lent(lent) => lent.block.visible(),
        }
    }

    /// The first byte; aligned and not null even for an empty block.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.raw()
    }

    /// The first byte, for writing.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.raw()
    }

    /// The first byte, for code that writes although it does not hold the block exclusively.
    ///
    /// It is valid for `visible()` bytes while the block lives; beyond those it is an address on the device. Whoever
    /// writes through it must know that no slice of those bytes is alive and that no other thread reads or writes
    /// them meanwhile.
    #[inline]
    pub fn raw(&self) -> *mut u8 {
        match &self.0 {
            Memory::Host(region) => region.start.as_ptr(),
            Memory::Nothing => std::ptr::without_provenance_mut(ALIGNMENT),
            Memory::Device { address, .. } => std::ptr::without_provenance_mut(address.get()),
            Memory::Lent(lent) => lent.block.raw(),
        }
    }

    /// All bytes that the host can reach.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: `raw` is valid for `visible` initialised bytes while `self` is borrowed; safe code can write only
        // through `&mut self`, and users of `raw` promise that no slice is alive while they write.
        unsafe { std::slice::from_raw_parts(self.raw(), self.visible()) }
    }

    /// All bytes that the host can reach, for writing.
    #[inline]
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_bytes`, and `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.raw(), self.visible()) }
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        match std::mem::replace(&mut self.0, Memory::Nothing) {
            Memory::Host(region) => allocator::recycle(region),
            Memory::Lent(lent) => lent.owner.take_back(lent.block),
            Memory::Nothing | Memory::Device { .. } => {}
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes at {:?})", self.capacity(), self.as_ptr())
    }
}

/// Memory of the process heap.
mod heap {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    fn layout(capacity: usize, alignment: usize) -> Option<Layout> {
        Layout::from_size_align(capacity, alignment).ok()
    }

    pub(super) fn allocate(capacity: usize, alignment: usize) -> Option<NonNull<u8>> {
        let layout = layout(capacity, alignment).filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout has a size above 0.
        NonNull::new(unsafe { alloc_zeroed(layout) })
    }

    /// # Safety
    ///
    /// `start` came from `allocate` with the same numbers, and is not used afterwards.
    pub(super) unsafe fn free(start: NonNull<u8>, capacity: usize, alignment: usize) {
        let layout = layout(capacity, alignment).expect("the layout was accepted when the memory was allocated");
        // SAFETY: the caller's promise.
        unsafe { dealloc(start.as_ptr(), layout) }
    }
}

/// Memory mapped page by page, aligned to huge pages and advised to use them: first touch of small pages costs ten
/// times as much as that of huge ones.
#[cfg(all(target_os = "linux", not(miri)))]
mod pages {
    use super::LARGE_MIN;
    use std::ptr::NonNull;

    pub(super) fn map(capacity: usize) -> Option<NonNull<u8>> {
        // One unit more than needed contains an aligned start; the rest is given back at once.
        let mapped = capacity.checked_add(LARGE_MIN)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the system's choice touches nothing that exists.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), mapped, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        let base: *mut u8 = base.cast();
        let head = base.align_offset(LARGE_MIN);
        let start = base.wrapping_add(head);
        // SAFETY: head and tail lie inside the mapping just made and outside of `start .. start + capacity`; all
        // bounds are page-aligned because `base`, `capacity` and `LARGE_MIN` are. Advice changes no contents.
        unsafe {
            if head > 0 {
                libc::munmap(base.cast(), head);
            }
            if head < LARGE_MIN {
                libc::munmap(start.wrapping_add(capacity).cast(), LARGE_MIN - head);
            }
            // A kernel without huge pages refuses; the memory is as good, only slower to touch first.
            libc::madvise(start.cast(), capacity, libc::MADV_HUGEPAGE);
        }
        NonNull::new(start)
    }

    /// # Safety
    ///
    /// `start` came from `map` with the same capacity, and is not used afterwards.
    pub(super) unsafe fn unmap(start: NonNull<u8>, capacity: usize) {
        // SAFETY: the caller's promise. It can fail only for bad arguments or too many mappings; then the memory
        // stays mapped and unused, which is no reason to stop a program in a destructor.
        unsafe { libc::munmap(start.as_ptr().cast(), capacity) };
    }
}

/// Elsewhere large blocks come from the heap too, aligned the same way.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod pages {
    use super::{LARGE_MIN, heap};
    use std::ptr::NonNull;

    pub(super) fn map(capacity: usize) -> Option<NonNull<u8>> {
        heap::allocate(capacity, LARGE_MIN)
    }

    /// # Safety
    ///
    /// `start` came from `map` with the same capacity, and is not used afterwards.
    pub(super) unsafe fn unmap(start: NonNull<u8>, capacity: usize) {
        // SAFETY: the caller's promise, and `map` used the same alignment.
        unsafe { heap::free(start, capacity, LARGE_MIN) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_memory_is_zero_and_aligned() {
        for capacity in [64, 320, 64 << 10, 1 << 20, LARGE_MIN, 3 * LARGE_MIN] {
            let mut block = Block::new(Region::fresh(capacity).expect("memory is there"));
            assert_eq!(block.capacity(), capacity);
            let alignment = if capacity >= LARGE_MIN { LARGE_MIN } else { ALIGNMENT };
            assert_eq!(block.as_ptr().addr() % alignment, 0);
            assert!(block.as_bytes().iter().all(|&byte| byte == 0));
            block.as_mut_bytes().fill(7);
            assert_eq!(block.as_bytes().iter().map(|&byte| usize::from(byte)).sum::<usize>(), 7 * capacity);
            // Not the allocator's: it has not counted this region.
            drop(std::mem::replace(&mut block.0, Memory::Nothing));
        }
    }

    #[test]
    fn an_empty_block_has_an_aligned_pointer() {
        let mut block = Block::EMPTY;
        assert_eq!((block.capacity(), block.as_ptr().addr()), (0, ALIGNMENT));
        assert!(block.as_bytes().is_empty() && block.as_mut_bytes().is_empty());
    }

    #[test]
    fn too_much_is_none() {
        assert!(Region::fresh(1 << 60).is_none());
    }
}
