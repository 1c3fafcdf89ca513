//! Compiles a kernel with Cranelift.

use super::code;
use super::function::Writer;
use super::host::{self, Registers};
use crate::codegen::geometry::Class;
use crate::codegen::kernel::Kernel;
use crate::codegen::native::code::Code;
use crate::codegen::native::passes::Passes;
use crate::codegen::native::{self, LaunchShape, Manner};
use crate::error::{Reason, TierLimit};
use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{AbiParam, Signature, types};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use std::cell::Cell;

/// Without folds, a body of this many prims is compiled with the fast register allocator. Otherwise twenty ops with
/// `exp` and `tanh` take 1.1 ms (`cargo bench --bench compile_time`).
const LONG_BODY: usize = 140;

/// Machine code for `kernel` with operands and outputs that move as `classes` says.
pub(super) fn compile(kernel: &Kernel, classes: &[Class], _: Manner) -> Result<(Code, LaunchShape), Reason> {
    with_function(kernel, classes, |isa, context, plan| {
        context
            .compile(&**isa, &mut ControlPlane::default())
            .map_err(|error| TierLimit::Cranelift { error: error.inner.to_string().into() })?;
        let compiled = context.compiled_code().expect("the context was compiled just now");
        // A relocation is a call into a library, one per lane, for an instruction that this processor lacks.
        if !compiled.buffer.relocs().is_empty() {
            return Err(TierLimit::MissingInstruction.into());
        }
        let (bytes, align) = (compiled.code_buffer(), compiled.buffer.alignment as u64);
        let code = code::load(isa, &context.func.signature, bytes, align)?;
        Ok((code, native::shape(kernel, plan.n_folds(), plan.n_kept)))
    })
}

/// The CLIF of `kernel` before optimization.
pub(super) fn listing(kernel: &Kernel, classes: &[Class]) -> Result<String, Reason> {
    with_function(kernel, classes, |_, context, _| Ok(context.func.display().to_string()))
}

/// Writes the kernel's function into this thread's context and passes it to `body`.
fn with_function<R>(
    kernel: &Kernel,
    classes: &[Class],
    body: impl FnOnce(&OwnedTargetIsa, &mut Context, &Passes) -> Result<R, Reason>,
) -> Result<R, Reason> {
    // The context is taken out while in use, so that a panic leaves no half-written function in it.
    thread_local! {
        static CONTEXT: Cell<Option<Box<(Context, FunctionBuilderContext)>>> = const { Cell::new(None) };
    }
    if !kernel.gathered().is_empty() {
        return Err(TierLimit::Gathers.into());
    }
    let (flat, plan) = native::prepare(kernel, classes)?;
    let straight = !kernel.has_folds() && flat.nodes.len() >= LONG_BODY;
    let isa = host::isa(if straight { Registers::SinglePass } else { Registers::Backtracking })?;
    let mut contexts = CONTEXT.take().unwrap_or_else(|| Box::new((Context::new(), FunctionBuilderContext::new())));
    let (context, builder) = &mut *contexts;
    context.clear();
    context.func.signature = signature(isa);
    let mut b = FunctionBuilder::new(&mut context.func, builder);
    Writer::write(kernel, classes, &flat, &plan, &mut b, isa.default_call_conv());
    b.finalize(isa.frontend_config());
    let result = body(isa, context, &plan);
    CONTEXT.set(Some(contexts));
    result
}

fn signature(isa: &OwnedTargetIsa) -> Signature {
    let mut signature = Signature::new(isa.default_call_conv());
    signature.params.push(AbiParam::new(types::I64));
    signature
}
