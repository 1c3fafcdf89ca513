//! Machine code and how it is called.

#![allow(unsafe_code, reason = "runs machine code made at run time")]

/// A compiled function: it takes the address of its argument buffer, in the C calling convention.
pub(in crate::codegen) type Entry = extern "C" fn(*mut u64);

/// Owns the memory of code, and frees it when dropped.
pub(in crate::codegen) trait Memory: Send + Sync {}

/// Machine code with its memory.
pub(in crate::codegen) struct Code {
    entry: Entry,
    n_bytes: usize,
    _memory: Box<dyn Memory>,
}

impl Code {
    /// The function at `entry`, whose `n_bytes` of code and constants are in `memory`.
    ///
    /// # Safety
    /// `entry` is the start of a function of that type in the platform's C calling convention, and stays so until
    /// `memory` is dropped.
    pub(in crate::codegen) unsafe fn new(entry: *const u8, n_bytes: usize, memory: Box<dyn Memory>) -> Code {
        // SAFETY: the caller guarantees that it is such a function; `Code` owns its memory, so it lives as long as
        // `entry`.
        let entry = unsafe { std::mem::transmute::<*const u8, Entry>(entry) };
        Code { entry, n_bytes, _memory: memory }
    }

    /// Bytes of machine code and constants.
    pub(in crate::codegen) fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// Calls the function.
    ///
    /// # Safety
    /// `buffer` is laid out as [`super::argument`] says for the kernel this was compiled from. Every element that its
    /// counts, addresses and strides lead to may be read, or written for an output.
    pub(in crate::codegen) unsafe fn call(&self, buffer: &mut [u64]) {
        (self.entry)(buffer.as_mut_ptr());
    }
}
