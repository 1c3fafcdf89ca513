//! Executable memory, the door into it, and the one function it calls back.
//!
//! Compiled bytes are copied into a `JITModule` of their own: it knows how every system maps, protects and flushes
//! code, and costs a few microseconds when it is handed finished bytes instead of a function to compile. A module
//! never frees by itself, so [`Code`] does when dropped. Nothing is writable and executable at once.

#![allow(unsafe_code, reason = "runs machine code made at run time and owns its memory")]

use crate::codegen::fold::{self, FoldValue};
use crate::error::Reason;
use crate::ir::Combine;
use crate::ir::scalar::Ty;
use cranelift_codegen::ir::Signature;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Module, ModuleError, default_libcall_names};
use std::sync::Mutex;

/// One compiled function: takes the address of its words.
type Entry = extern "C" fn(*const u64);

/// Machine code with its memory.
pub(super) struct Code {
    entry: Entry,
    n_bytes: usize,
    /// Only touched when dropped; the lock is what makes a `Send` module shareable.
    module: Mutex<Option<JITModule>>,
}

impl Code {
    /// Makes position-independent `bytes` without relocations executable.
    pub(super) fn new(isa: &OwnedTargetIsa, signature: &Signature, bytes: &[u8], align: u64) -> Result<Code, Reason> {
        let mut module = JITModule::new(JITBuilder::with_isa(isa.clone(), default_libcall_names()));
        let mut load = || -> Result<*const u8, Box<ModuleError>> {
            let id = module.declare_anonymous_function(signature)?;
            module.define_function_bytes(id, align, bytes, &[])?;
            module.finalize_definitions()?;
            Ok(module.get_finalized_function(id))
        };
        match load() {
            Ok(address) => {
                // SAFETY: `address` is the start of a function with this signature in the platform's C convention,
                // which `isa.default_call_conv()` is; its memory is owned by `module` and lives as long as `Code`.
                let entry = unsafe { std::mem::transmute::<*const u8, Entry>(address) };
                Ok(Code { entry, n_bytes: bytes.len(), module: Mutex::new(Some(module)) })
            }
            Err(error) => {
                // SAFETY: no function of the module has been or will be called.
                unsafe { module.free_memory() };
                Err(Reason::TierCannot(format!("no memory for code: {error}")))
            }
        }
    }

    /// Bytes of machine code and constants.
    pub(super) fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// Calls the function.
    ///
    /// # Safety
    /// `words` are laid out as [`super::function::word`] says for the kernel this was compiled from, and every
    /// element that their counts, addresses and strides lead to may be read, or written for an output.
    pub(super) unsafe fn call(&self, words: &[u64]) {
        (self.entry)(words.as_ptr());
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        let module = self.module.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(module) = module {
            // SAFETY: the only pointer into the module is `entry`, calls of which borrow `self`.
            unsafe { module.free_memory() };
        }
    }
}

const COMBINES: [Combine; 8] = [
    Combine::Sum,
    Combine::Prod,
    Combine::Max,
    Combine::Min,
    Combine::Any,
    Combine::All,
    Combine::ArgMax,
    Combine::ArgMin,
];

/// A fold as a number for [`fold_blocks`].
pub(super) fn fold_code(combine: Combine, ty: Ty) -> u64 {
    (combine as usize * Ty::ALL.len() + ty as usize) as u64
}

/// A block result as generated code writes it.
#[repr(C)]
struct Block {
    bits: u64,
    index: i64,
}

/// The address of the function that generated code calls to fold block results.
pub(super) fn fold_blocks_address() -> u64 {
    fold_blocks as *const () as u64
}

/// Folds `n` block results in the canonical order and leaves the fold's result in the first one's bits.
unsafe extern "C" fn fold_blocks(code: u64, blocks: *mut Block, n: u64) {
    let (combine, ty) = (COMBINES[code as usize / Ty::ALL.len()], Ty::ALL[code as usize % Ty::ALL.len()]);
    // SAFETY: generated code passes the address of its `n > 1` entries in the words' block area, written by it
    // before and used by no one else during the call.
    let blocks = unsafe { std::slice::from_raw_parts_mut(blocks, n as usize) };
    let indexed = matches!(combine, Combine::ArgMax | Combine::ArgMin);
    let values: Vec<FoldValue> = blocks
        .iter()
        .map(|block| FoldValue { bits: block.bits, index: if indexed { block.index } else { 0 } })
        .collect();
    blocks[0].bits = fold::sequence(combine, ty, &values).result(combine);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fold_codes_are_taken_apart_as_they_were_made() {
        for (number, combine) in COMBINES.into_iter().enumerate() {
            assert_eq!(combine as usize, number);
        }
        for (number, ty) in Ty::ALL.into_iter().enumerate() {
            assert_eq!(ty as usize, number);
        }
    }
}
