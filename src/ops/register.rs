//! Registers the built-in operators: rows of the op table, composites by subject, and the forms that write.
//!
//! Composites are registered with their ATen schemas and a decomposition (`CompositeImplicitAutograd`), so that boxed
//! callers and out-of-tree code find them by name; every key sees their parts.

use crate::dispatch::builtins::Builtins;
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::DispatchKey;
use crate::dispatch::library::Library;
use crate::dispatch::schema::{Schema, Type};
use crate::error::Result;
use crate::ir::Op;
use crate::ops::{
    activations, adaptive_pooling, attention, batch_norm, classification, conversions, convolution, einsum, factories,
    images, index_operators, joins, losses, normalization, norms, own_shapes, padding, pointwise, pooling, products,
    random_operators, reductions, scatters, sorting, views,
};
use crate::ops::{backend, mutation};

/// Registers the composite operators of one subject.
type Subject = fn(&mut Library) -> Result<()>;

/// Every subject with composite operators.
const SUBJECTS: &[Subject] = &[
    activations::register,
    adaptive_pooling::register,
    attention::register,
    batch_norm::register,
    pointwise::register_choices,
    classification::register,
    conversions::register,
    convolution::register,
    einsum::register,
    factories::register,
    index_operators::register,
    joins::register,
    losses::register,
    normalization::register,
    norms::register,
    pointwise::register_numbers,
    own_shapes::register,
    pointwise::register,
    padding::register,
    images::register,
    pooling::register,
    products::register,
    random_operators::register,
    reductions::register,
    scatters::register,
    sorting::register,
    images::register_upsampling,
    views::register,
];

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
    composites(&mut builtins.libraries)?;
    mutation::register(&mut builtins.libraries, &builtins.by_op)
}

/// Registers every composite operator in the registry of this process; dropping the library undoes it.
///
/// # Errors
/// If one is already defined.
fn composites(libraries: &mut Vec<Library>) -> Result<()> {
    let mut library = Library::fragment("aten")?;
    for register in SUBJECTS {
        register(&mut library)?;
    }
    libraries.push(library);
    Ok(())
}
