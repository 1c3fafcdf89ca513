//! Registers the built-in operators: rows of the op table, the forms that follow from them, and composites by subject.
//!
//! A composite is registered with its ATen schema and a decomposition (`CompositeImplicitAutograd`). Boxed callers and
//! out-of-tree code find it by name, and every key sees its parts. Inside the crate every operator is called by its
//! handle. Only `named` looks it up, once.

use crate::dispatch::builtins::Builtins;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::DispatchKey;
use crate::dispatch::library::Library;
use crate::dispatch::schema::Type;
use crate::error::Result;
use crate::ir::Op;
use crate::ops::{
    activations, adaptive_pooling, antialiasing, attention, backend, batch_norm, bessel, calculus, closeness,
    combinations, complex_numbers, contractions, conversions, convolution, cross_entropy, diagonals, divisors, dropout,
    einsum, element, embedding_bag, embedding_bag_backward, factories, float_parts, fourier_transforms, frequencies,
    grids, grouped_products, histograms, images, in_place, incomplete_gamma, index_slices, indexing, joins,
    linear_algebra, losses, margin_losses, masks, matrices, matrix_norms, multinomial, mutation, normalization, norms,
    order_statistics, other_names, padding, pieces, plain_forms, pointwise, poisson, pooling, products, random,
    random_fills, random_like, rearranging, recurrent, reductions, resampling, reshaping, scatters, searching, sorting,
    spaces, special, spectrograms, stacks, statistics, uniques, view_forms, views, windows, written_forms,
};

/// Registers the composite operators of one subject.
type Subject = fn(&mut Library) -> Result<()>;

/// Every subject with composite operators.
const SUBJECTS: &[Subject] = &[
    activations::register,
    adaptive_pooling::register,
    attention::register,
    batch_norm::register,
    complex_numbers::register,
    conversions::register,
    convolution::register,
    cross_entropy::register,
    diagonals::register,
    dropout::register,
    einsum::register,
    element::register,
    embedding_bag::register,
    embedding_bag_backward::register,
    factories::register,
    fourier_transforms::register,
    spectrograms::register,
    grouped_products::register,
    index_slices::register,
    indexing::register,
    joins::register,
    losses::register,
    margin_losses::register,
    masks::register,
    normalization::register,
    norms::register,
    pointwise::register,
    padding::register,
    images::register,
    in_place::register,
    pieces::register,
    plain_forms::register,
    pooling::register,
    products::register,
    random::register,
    random_fills::register,
    rearranging::register,
    recurrent::register,
    reductions::register,
    resampling::register,
    reshaping::register,
    scatters::register,
    sorting::register,
    views::register,
    closeness::register,
    grids::register,
    histograms::register,
    matrices::register,
    multinomial::register,
    incomplete_gamma::register,
    poisson::register,
    order_statistics::register,
    searching::register,
    statistics::register,
    uniques::register,
    antialiasing::register,
    calculus::register,
    combinations::register,
    contractions::register,
    matrix_norms::register,
    linear_algebra::register,
    spaces::register,
    special::register,
    stacks::register,
    windows::register,
    frequencies::register,
    bessel::register,
    divisors::register,
    float_parts::register,
    random_like::register,
];

/// Registers every row of the op table with its kernels per backend, the composites, and the in-place and `out` forms.
///
/// # Errors
/// If an operator with one of these names is defined already.
pub(crate) fn register(builtins: &mut Builtins) -> Result<()> {
    let mut definitions = Library::def_block("aten")?;
    let mut cpu = Library::impl_block("aten", DispatchKey::CPU)?;
    let mut cuda = Library::impl_block("aten", DispatchKey::CUDA)?;
    let mut meta = Library::impl_block("aten", DispatchKey::Meta)?;
    let mut undefined = Library::fragment("aten")?;
    for &op in Op::ALL {
        let operator = definitions.def_operator(&op.schema())?;
        operator.set_row(op);
        cpu.impl_operator(&operator, Kernel::of_row(op, backend::cpu::kernel).named("cpu"))?;
        cuda.impl_operator(&operator, Kernel::of_row(op, backend::cuda::kernel).named("cuda"))?;
        meta.impl_operator(&operator, Kernel::of_row(op, backend::meta::kernel).named("meta"))?;
        let needs_tensor = |ty: &Type| ty.holds_tensors() && !matches!(ty, Type::List(..));
        let arguments = operator.schema().map_or(&[][..], |schema| &schema.arguments);
        if !arguments.iter().any(|argument| needs_tensor(&argument.ty)) {
            // A factory, or a call with an empty list, has no tensor that determines a backend.
            let kernel = Kernel::of_row(op, backend::cpu::kernel).named("factory");
            undefined.impl_operator_for(&operator, DispatchKey::CompositeExplicitAutograd, kernel)?;
        }
        builtins.by_op.push(operator);
    }
    builtins.libraries.extend([definitions, cpu, cuda, meta, undefined]);
    mutation::register(builtins)?;
    written_forms::register(builtins)?;
    view_forms::register(builtins)?;
    composites(&mut builtins.libraries)
}

/// Registers every composite operator in the global registry. Dropping the library undoes it.
///
/// # Errors
/// If one of them is defined already.
fn composites(libraries: &mut Vec<Library>) -> Result<()> {
    let mut library = Library::fragment("aten")?;
    for register in SUBJECTS {
        register(&mut library)?;
    }
    other_names::register(&mut library)?;
    libraries.push(library);
    grouped_products::register_outside(libraries)
}
