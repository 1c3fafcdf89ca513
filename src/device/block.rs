#![allow(unsafe_code, reason = "reads and writes the bytes of raw memory as slices")]
//! [`Block`]: a piece of memory, as all but the allocator see it.
//!
//! A dropped block returns its region to the allocator, or itself to the [`Owner`] that lent it. A block is a plain
//! owned value: reading takes `&`, writing takes `&mut`, so safe code cannot race. Kernels write through the raw
//! pointer, and are responsible for it.
//!
//! Bytes that the host can reach are always initialised: with zeros if they are fresh, and with old contents if they
//! are recycled. So reading them is defined, though meaningless. Device memory that the host cannot reach is an address
//! and a size, without bytes.

use super::foreign::{Access, Foreign};
use super::region::{ALIGNMENT, Region};
use super::stream::Stream;
use super::thread_cache;
use crate::error::Result;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// An owned piece of memory, which is freed or returned when it is dropped.
///
/// Host memory of the allocator is 64-byte aligned, and foreign memory need not be aligned. Memory that only a device
/// can reach has an address, but no bytes to read.
pub struct Block(Memory);

enum Memory {
    /// A block of no bytes needs no memory.
    Nothing,
    Host(Region),
    /// Memory that only a device can reach; its owner frees it.
    Device {
        address: NonZeroUsize,
        capacity: usize,
    },
    Lent(Box<Lent>),
    /// Memory that the allocator did not make.
    Foreign(Box<Foreign>),
}

struct Lent {
    block: Block,
    owner: Arc<dyn Owner>,
}

/// The lender of a block, which gets it back.
pub trait Owner: Send + Sync {
    /// Takes back the block that [`Block::lent`] was called on, when the lent one is dropped.
    fn take_back(&self, block: Block);

    /// Called when work on a stream other than the block's own uses the block too.
    fn used_on(&self, stream: &Stream) {
        let _ = stream;
    }

    /// Orders work given to `stream` from now on after all earlier work on other streams that uses the block.
    ///
    /// # Errors
    /// If the device failed.
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

    /// Device memory that the host cannot reach. Dropping it does nothing, so lend it, such that its owner gets it
    /// back.
    pub fn on_device(address: NonZeroUsize, capacity: usize) -> Block {
        Block(Memory::Device { address, capacity })
    }

    /// Memory that the allocator did not make; its owner is dropped with the block.
    pub(super) fn foreign(memory: Foreign) -> Block {
        // The address of no bytes may be anything.
        if memory.is_empty() { Block::EMPTY } else { Block(Memory::Foreign(Box::new(memory))) }
    }

    /// Whose memory it is, if it must not be written.
    #[inline]
    pub(super) fn read_only(&self) -> Option<&str> {
        match &self.0 {
            Memory::Host(_) | Memory::Nothing | Memory::Device { .. } => None,
            Memory::Lent(lent) => lent.block.read_only(),
            Memory::Foreign(memory) => match memory.access() {
                Access::ReadOnly(whose) => Some(whose),
                Access::Writable => None,
            },
        }
    }

    /// The foreign memory of the block.
    ///
    /// # Errors
    /// The block, if it is memory of an allocator.
    pub(super) fn into_foreign(mut self) -> Result<Foreign, Block> {
        match std::mem::replace(&mut self.0, Memory::Nothing) {
            Memory::Foreign(memory) => Ok(*memory),
            other => Err(Block(other)),
        }
    }

    /// Lends the block: when the result is dropped, `owner` gets the block back.
    pub fn lent(self, owner: Arc<dyn Owner>) -> Block {
        Block(Memory::Lent(Box::new(Lent { block: self, owner })))
    }

    /// Tells the owner that work on `stream` uses the block too, so that it is not reused before that work is done.
    pub fn used_on(&self, stream: &Stream) {
        if let Memory::Lent(lent) = &self.0 {
            lent.owner.used_on(stream);
        }
    }

    /// Announces work on `stream` that uses the block. It waits for all earlier work on other streams that uses the
    /// block, and the block is not reused before it is done. So work on a block has one order, whatever the streams.
    ///
    /// # Errors
    /// If the device failed.
    pub fn take_turn(&self, stream: &Stream) -> Result<()> {
        if let Memory::Lent(lent) = &self.0 { lent.owner.take_turn(stream) } else { Ok(()) }
    }

    /// Usable bytes: the request, rounded up to its size class.
    #[inline]
    pub fn capacity(&self) -> usize {
        match &self.0 {
            Memory::Host(region) => region.capacity(),
            Memory::Nothing => 0,
            Memory::Device { capacity, .. } => *capacity,
            Memory::Lent(lent) => lent.block.capacity(),
            Memory::Foreign(memory) => memory.len(),
        }
    }

    /// How many of them the host can reach: all or none.
    #[inline]
    pub fn visible(&self) -> usize {
        match &self.0 {
            Memory::Host(region) => region.capacity(),
            Memory::Nothing | Memory::Device { .. } => 0,
            Memory::Lent(lent) => lent.block.visible(),
            Memory::Foreign(memory) => memory.len(),
        }
    }

    /// The first byte; not null, even for an empty block.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.raw()
    }

    /// The first byte, for writing.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.raw()
    }

    /// The first byte, for code that writes without exclusive access to the block.
    ///
    /// It is valid for `visible()` bytes while the block lives; beyond those it is an address on the device. A writer
    /// must know that the memory is not read-only, that no slice of those bytes is alive, and that no other thread
    /// reads or writes them meanwhile.
    #[inline]
    pub fn raw(&self) -> *mut u8 {
        match &self.0 {
            Memory::Host(region) => region.start(),
            Memory::Nothing => std::ptr::without_provenance_mut(ALIGNMENT),
            Memory::Device { address, .. } => std::ptr::without_provenance_mut(address.get()),
            Memory::Lent(lent) => lent.block.raw(),
            Memory::Foreign(memory) => memory.start(),
        }
    }

    /// All bytes that the host can reach.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: `raw` is valid for `visible` initialised bytes while `self` is borrowed. Safe code can write only
        // through `&mut self`, and users of `raw` promise that no slice is alive while they write.
        unsafe { std::slice::from_raw_parts(self.raw(), self.visible()) }
    }

    /// All bytes that the host can reach, for writing.
    ///
    /// # Panics
    /// If the memory is read-only.
    #[inline]
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        assert!(self.read_only().is_none(), "read-only memory is not written");
        // SAFETY: as in `as_bytes`; `&mut self` makes this the only access, and the memory may be written.
        unsafe { std::slice::from_raw_parts_mut(self.raw(), self.visible()) }
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        match std::mem::replace(&mut self.0, Memory::Nothing) {
            Memory::Host(region) => thread_cache::put(region),
            Memory::Lent(lent) => lent.owner.take_back(lent.block),
            Memory::Foreign(memory) => drop(memory),
            Memory::Nothing | Memory::Device { .. } => {}
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes at {:?})", self.capacity(), self.as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::size_class::LARGE_MIN;

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
            // The allocator has not counted this region, so it must not get it.
            drop(std::mem::replace(&mut block.0, Memory::Nothing));
        }
    }

    #[test]
    fn an_empty_block_has_an_aligned_pointer() {
        let mut block = Block::EMPTY;
        assert_eq!((block.capacity(), block.as_ptr().addr()), (0, ALIGNMENT));
        assert!(block.as_bytes().is_empty() && block.as_mut_bytes().is_empty());
    }
}
