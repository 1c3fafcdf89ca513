//! Operators that are made of others.
//!
//! They are registered with their ATen schemas and a decomposition (`CompositeImplicitAutograd`), so that boxed
//! callers and out-of-tree code find them by name; every key sees their parts. The methods of [`Tensor`] call the same
//! functions directly. Arguments that say where and how to store a result are taken if they ask for what is done
//! anyway, and refused otherwise.

mod activations;
mod adaptive;
mod attention;
mod batch_norm;
mod choices;
mod classification;
mod conversions;
mod convolution;
mod einsum;
mod factories;
mod indexing;
mod joins;
mod losses;
mod normalization;
mod norms;
mod numbers;
mod own_shapes;
mod padding;
mod pixels;
mod pointwise;
mod pooling;
mod products;
mod random;
mod reductions;
mod scatters;
mod sorting;
mod upsampling;
mod views;

use crate::dispatch::library::Library;
use crate::dispatch::value::TensorLayout;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::tensor::handle::Tensor;

/// Registers the operators of one file of this folder.
type Area = fn(&mut Library) -> Result<()>;

/// Every file of this folder that registers operators.
const AREAS: &[Area] = &[
    activations::register,
    adaptive::register,
    attention::register,
    batch_norm::register,
    choices::register,
    classification::register,
    conversions::register,
    convolution::register,
    einsum::register,
    factories::register,
    indexing::register,
    joins::register,
    losses::register,
    normalization::register,
    norms::register,
    numbers::register,
    own_shapes::register,
    pointwise::register,
    padding::register,
    pixels::register,
    pooling::register,
    products::register,
    random::register,
    reductions::register,
    scatters::register,
    sorting::register,
    upsampling::register,
    views::register,
];

/// Registers every composite operator in the registry of this process; dropping the library undoes it.
///
/// # Errors
/// If one is already defined.
pub(crate) fn register(libraries: &mut Vec<Library>) -> Result<()> {
    let mut library = Library::fragment("aten")?;
    for register in AREAS {
        register(&mut library)?;
    }
    libraries.push(library);
    Ok(())
}

/// `x` in the dtype asked for, if one is.
fn converted(x: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    dtype.map_or_else(|| Ok(x.clone()), |dtype| x.to_dtype(dtype))
}

fn count(op: &str, number: i64) -> Result<usize> {
    usize::try_from(number).map_err(|_| Error::OutOfRange {
        op: op.into(),
        what: "a count".into(),
        low: 0,
        high: i64::MAX,
        got: number,
    })
}

/// Sizes and strides as counts.
fn counts(op: &str, numbers: &[i64]) -> Result<Vec<usize>> {
    numbers.iter().map(|&number| count(op, number)).collect()
}

/// Refuses what results are not stored like: sparse, pinned.
fn check_storage(op: &str, layout: Option<TensorLayout>, pin_memory: Option<bool>) -> Result<()> {
    let refuse = |what: &str| Err(Error::argument(op, format!("{what} is not supported; leave the argument out")));
    match (layout, pin_memory) {
        (Some(TensorLayout::Sparse | TensorLayout::SparseCsr), _) => refuse("a sparse layout"),
        (_, Some(true)) => refuse("pinned memory"),
        (_, _) => Ok(()),
    }
}

/// `x` in the dtype that sums over it are computed in.
fn widened(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(wide(x.dtype()))
}

/// The dtype that values of `dtype` are computed in.
fn wide(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::F32 | DType::F64 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::Bool => dtype,
    }
}

/// Refuses operands that are not floating.
fn need_float(op: &str, tensors: &[&Tensor]) -> Result<()> {
    match tensors.iter().find(|tensor| !tensor.dtype().is_float()) {
        Some(tensor) => {
            let hint = "convert with to_dtype(DType::F32) first";
            Err(Error::dtype(op, tensor.dtype(), "a floating dtype", hint))
        }
        None => Ok(()),
    }
}
