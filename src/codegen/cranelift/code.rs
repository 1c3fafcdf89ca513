//! Executable memory of the code that Cranelift makes.
//!
//! Compiled bytes are copied into a `JITModule` of their own. It knows how every system maps, protects and flushes
//! code, and takes a few microseconds for finished bytes. A module never frees its memory by itself, so [`Mapped`] does
//! when dropped. Nothing is writable and executable at once.

#![allow(unsafe_code, reason = "owns the memory of machine code made at run time")]

use crate::codegen::native::code::{Code, Memory};
use crate::error::{Reason, TierLimit};
use cranelift_codegen::ir::Signature;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Module, ModuleError, default_libcall_names};
use std::sync::{Mutex, PoisonError};

/// A module, which owns the memory of its code.
struct Mapped {
    /// Only used when dropped; the lock makes a `Send` module shareable.
    module: Mutex<Option<JITModule>>,
}

impl Memory for Mapped {}

/// Makes position-independent `bytes` without relocations executable.
pub(super) fn load(isa: &OwnedTargetIsa, signature: &Signature, bytes: &[u8], align: u64) -> Result<Code, Reason> {
    let mut module = JITModule::new(JITBuilder::with_isa(isa.clone(), default_libcall_names()));
    let mut load = || -> Result<*const u8, Box<ModuleError>> {
        let id = module.declare_anonymous_function(signature)?;
        module.define_function_bytes(id, align, bytes, &[])?;
        module.finalize_definitions()?;
        Ok(module.get_finalized_function(id))
    };
    match load() {
        Ok(address) => {
            let memory = Mapped { module: Mutex::new(Some(module)) };
            // SAFETY: `address` is the start of a function with this signature in the platform's C convention, which
            // `isa.default_call_conv()` is; its memory is owned by the module, which `memory` frees when dropped.
            Ok(unsafe { Code::new(address, bytes.len(), Box::new(memory)) })
        }
        Err(error) => {
            // SAFETY: no function of the module has been or will be called.
            unsafe { module.free_memory() };
            Err(TierLimit::NoCodeMemory { error: error.to_string().into() }.into())
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let module = self.module.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(module) = module {
            // SAFETY: the only pointer into the module is the entry of the `Code` that owns this, calls of which
            // borrow it.
            unsafe { module.free_memory() };
        }
    }
}
