//! Storages whose memory ends where a page begins that the system protects.
//!
//! The memory is read-only and aligned for the elements alone. A kernel that reads past the last element, writes to
//! an operand, or wants more alignment, ends the process here. After memory of the allocator comes more of it, so
//! that such a kernel would pass there.

use opfuse::device::foreign::Foreign;
use opfuse::device::{Shared, Storage};
use opfuse::dispatch::Array;

/// A storage with a copy of the bytes.
pub(crate) fn storage(bytes: &[u8]) -> Shared<Storage> {
    Shared::new(Storage::foreign(Foreign::shared(memory::Guarded::of(bytes), "guarded")))
}

/// The array in such a storage.
pub(crate) fn array(array: &Array) -> Array {
    let storage = array.storage().read(storage);
    Array::from_storage(storage, array.dtype(), array.layout().clone()).expect("the storage is as long")
}

#[cfg(unix)]
#[allow(unsafe_code, reason = "pages are mapped and protected")]
mod memory {
    use std::ptr::null_mut;

    const PAGE: usize = 4096;

    /// Pages of bytes, at their end, and one that is protected.
    pub(crate) struct Guarded {
        base: usize,
        pages: usize,
        len: usize,
    }

    impl Guarded {
        pub(crate) fn of(bytes: &[u8]) -> Guarded {
            let (len, pages) = (bytes.len(), bytes.len().next_multiple_of(PAGE));
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping affects no other memory. The copy ends at the end of its pages, before the guard.
            let base = unsafe {
                let base = libc::mmap(null_mut(), pages + PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
                assert_ne!(base, libc::MAP_FAILED, "pages are there");
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.cast::<u8>().add(pages - len), len);
                assert_eq!(libc::mprotect(base, pages, libc::PROT_READ), 0);
                assert_eq!(libc::mprotect(base.byte_add(pages), PAGE, libc::PROT_NONE), 0);
                base as usize
            };
            Guarded { base, pages, len }
        }
    }

    impl AsRef<[u8]> for Guarded {
        fn as_ref(&self) -> &[u8] {
            // SAFETY: the bytes are those copied by `of`, and nothing writes to them.
            unsafe { std::slice::from_raw_parts((self.base + self.pages - self.len) as *const u8, self.len) }
        }
    }

    impl Drop for Guarded {
        fn drop(&mut self) {
            // SAFETY: exactly what `of` mapped, and nothing uses it any more.
            unsafe { libc::munmap(self.base as *mut libc::c_void, self.pages + PAGE) };
        }
    }
}

#[cfg(not(unix))]
mod memory {
    /// Bytes without a guard.
    pub(crate) struct Guarded(Vec<u64>, usize);

    impl Guarded {
        pub(crate) fn of(bytes: &[u8]) -> Guarded {
            let mut words = vec![0u64; bytes.len().div_ceil(8)];
            bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
            Guarded(words, bytes.len())
        }
    }

    impl AsRef<[u8]> for Guarded {
        fn as_ref(&self) -> &[u8] {
            &bytemuck::cast_slice::<u64, u8>(&self.0)[..self.1]
        }
    }
}
