//! Machine code, and the door into it.

#![allow(unsafe_code, reason = "runs machine code made at run time")]

/// One compiled function: takes the address of its words, in the convention of C.
pub(in crate::codegen) type Entry = extern "C" fn(*const u64);

/// Keeps the memory of code alive, and frees it when dropped.
pub(in crate::codegen) trait Memory: Send + Sync {}

/// Machine code with its memory.
pub(in crate::codegen) struct Code {
    entry: Entry,
    n_bytes: usize,
    _memory: Box<dyn Memory>,
}

impl Code {
    /// The function at `entry`, whose `n_bytes` of code and constants lie in `memory`.
    ///
    /// # Safety
    /// `entry` is the start of a function of that type in the platform's convention of C, and stays so until `memory`
    /// is dropped.
    pub(in crate::codegen) unsafe fn new(entry: *const u8, n_bytes: usize, memory: Box<dyn Memory>) -> Code {
        // SAFETY: the caller says that it is such a function; `Code` owns its memory, so it lives as long as `entry`.
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
    /// `words` are laid out as [`super::word`] says for the kernel this was compiled from, and every element that their
    /// counts, addresses and strides lead to may be read, or written for an output.
    pub(in crate::codegen) unsafe fn call(&self, words: &[u64]) {
        (self.entry)(words.as_ptr());
    }
}
