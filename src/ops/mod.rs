//! Every operator that is not a row of `ir`'s op table alone: methods, composites, in-place forms, by subject.
//!
//! Indexing, text and conversions stand here too: they are made of calls of operators.

pub(crate) mod backend;
pub(crate) mod composites;
mod convert;
pub(crate) mod derivative;
pub(crate) mod dims;
mod element;
pub(crate) mod factories;
mod format;
pub(crate) mod in_place;
pub(crate) mod indexing;
pub(crate) mod joins;
mod methods;
pub(crate) mod mutation;
#[cfg(feature = "ndarray")]
mod ndarray;
pub mod nn;
pub(crate) mod operators;
mod pieces;
pub(crate) mod products;
pub(crate) mod random;
pub(crate) mod random_fills;
mod reductions;
pub(crate) mod reshaping;
pub(crate) mod scatters;
mod sorting;
mod subscript;
pub(crate) mod transfer;
mod views;

use crate::dispatch::builtins::Builtins;
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::DispatchKey;
use crate::dispatch::library::Library;
use crate::dispatch::schema::{Schema, Type};
use crate::error::Result;
use crate::ir::Op;

pub use dims::Dims;
pub use element::Element;
pub use joins::{cat, embedding, stack};
#[cfg(feature = "ndarray")]
pub use ndarray::NdView;
pub use operators::Operand;
pub use reshaping::{Indexing, broadcast_tensors, meshgrid};
pub use subscript::{Ellipsis, Index, Indices, NewAxis};

/// Registers every row of the op table with its kernels per backend, the composites, and the forms that write.
///
/// # Errors
/// If an operator of such a name is defined already.
pub(crate) fn register(builtins: &mut Builtins) -> Result<()> {
    let mut definitions = Library::def_block("aten")?;
    let mut cpu = Library::impl_block("aten", DispatchKey::CPU)?;
    let mut cuda = Library::impl_block("aten", DispatchKey::CUDA)?;
    let mut meta = Library::impl_block("aten", DispatchKey::Meta)?;
    let mut undefined = Library::fragment("aten")?;
    for &op in Op::ALL {
        let schema: Schema = op.schema().parse()?;
        let name = format!("aten::{}", schema.name);
        definitions.def(&op.schema())?;
        cpu.impl_(&name, Kernel::of_row(op, backend::cpu::kernel).named("cpu"))?;
        cuda.impl_(&name, Kernel::of_row(op, backend::cuda::kernel).named("cuda"))?;
        meta.impl_(&name, Kernel::of_row(op, backend::meta::kernel).named("meta"))?;
        let needs_tensor = |ty: &Type| ty.holds_tensors() && !matches!(ty, Type::List(..));
        if !schema.arguments.iter().any(|argument| needs_tensor(&argument.ty)) {
            // A factory has no tensor to take a backend from, nor has an empty list.
            let kernel = Kernel::of_row(op, backend::cpu::kernel).named("factory");
            undefined.impl_for(&name, DispatchKey::CompositeExplicitAutograd, kernel)?;
        }
        builtins.by_op.push(Dispatcher::global().lookup(&name)?);
    }
    builtins.libraries.extend([definitions, cpu, cuda, meta, undefined]);
    composites::register(&mut builtins.libraries)?;
    mutation::register(&mut builtins.libraries, &builtins.by_op)
}
