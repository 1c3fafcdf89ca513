#![allow(unsafe_code, reason = "owns raw memory: the only file of this floor that asks the system for bytes")]
//! [`Region`]: owned raw memory of the system.
//!
//! A region starts zeroed and is returned to the system when it is dropped. It counts nothing: the caches of the
//! allocator do.

use super::size_class::LARGE_MIN;
use std::ptr::NonNull;

/// Every block is aligned to this: one cache line, one AVX-512 vector.
pub const ALIGNMENT: usize = 64;

/// Memory of the system, with a size-class capacity.
pub(super) struct Region {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: a region owns its memory, and does not depend on the thread that uses or frees it.
unsafe impl Send for Region {}
// SAFETY: through `&Region` safe code can only read.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroed memory; `None` if the system has none. `capacity` is a size class, so a multiple of 64 and not 0.
    pub(super) fn fresh(capacity: usize) -> Option<Region> {
        debug_assert!(capacity > 0 && capacity.is_multiple_of(ALIGNMENT), "{capacity} is not a size class");
        let start = if capacity >= LARGE_MIN { pages::map(capacity)? } else { heap::allocate(capacity, ALIGNMENT)? };
        Some(Region { start, capacity })
    }

    /// The first byte: valid for `capacity` initialised bytes while the region lives.
    #[inline]
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Usable bytes.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `fresh` allocated exactly this memory from the same source, and the region was its only owner.
        unsafe {
            if self.capacity >= LARGE_MIN {
                pages::unmap(self.start, self.capacity);
            } else {
                heap::free(self.start, self.capacity, ALIGNMENT);
            }
        }
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
        // SAFETY: passed on from the caller.
        unsafe { dealloc(start.as_ptr(), layout) }
    }
}

/// Memory mapped page by page, aligned to huge pages and advised to use them: the first touch of small pages takes ten
/// times as long.
#[cfg(all(target_os = "linux", not(miri)))]
mod pages {
    use super::LARGE_MIN;
    use std::ptr::NonNull;

    pub(super) fn map(capacity: usize) -> Option<NonNull<u8>> {
        // One unit more than needed contains an aligned start; the rest is unmapped at once.
        let mapped = capacity.checked_add(LARGE_MIN)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address that the system chooses affects no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), mapped, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        let base: *mut u8 = base.cast();
        let head = base.align_offset(LARGE_MIN);
        let start = base.wrapping_add(head);
        // SAFETY: head and tail are inside the mapping just made and outside of `start .. start + capacity`; all bounds
        // are page-aligned because `base`, `capacity` and `LARGE_MIN` are. Advice changes no contents.
        unsafe {
            if head > 0 {
                libc::munmap(base.cast(), head);
            }
            if head < LARGE_MIN {
                libc::munmap(start.wrapping_add(capacity).cast(), LARGE_MIN - head);
            }
            // A kernel without huge pages refuses; then the first touch is slower.
            libc::madvise(start.cast(), capacity, libc::MADV_HUGEPAGE);
        }
        NonNull::new(start)
    }

    /// # Safety
    ///
    /// `start` came from `map` with the same capacity, and is not used afterwards.
    pub(super) unsafe fn unmap(start: NonNull<u8>, capacity: usize) {
        // SAFETY: passed on from the caller. It can fail only for bad arguments or too many mappings; then the memory
        // stays mapped and unused, which must not abort a program in a destructor.
        unsafe { libc::munmap(start.as_ptr().cast(), capacity) };
    }
}

/// Elsewhere large blocks come from the heap too, with the same alignment.
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
        // SAFETY: passed on from the caller; `map` used the same alignment.
        unsafe { heap::free(start, capacity, LARGE_MIN) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_is_none() {
        assert!(Region::fresh(1 << 60).is_none());
    }
}
