//! The Complex key: what operators do to complex numbers, by what they do to real ones.
//!
//! A complex tensor wraps a tensor of pairs ([`crate::tensor::complex`]). A call of an operator with one among its
//! operands becomes calls on pairs, or on real and imaginary parts:
//!
//! - Operators that move elements, and sums, treat both parts alike ([`alike`]): the pair is a dim that is mapped.
//! - Arithmetic and products of matrices follow from those of the parts ([`arithmetic`]), and
//!   so do convolutions ([`windows`]).
//! - Elementary functions have formulas ([`functions`]).
//! - Rows of linear algebra take pairs ([`matrices`]).
//! - Writes go to the pairs, and conversions make pairs ([`conversions`]).
//!
//! All other operators run their decomposition, or say that they take real numbers only. The keys below see real
//! tensors: gradients, traces, `vmap` and compiled functions need no rule for complex numbers. The gradient of a
//! complex tensor is the slope in the real part plus `i` times that in the imaginary part, as in PyTorch.

mod alike;
mod arithmetic;
mod conversions;
mod functions;
mod matrices;
mod operands;
mod reductions;
mod windows;

use crate::dispatch::key::DispatchKey;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::library::Library;
use crate::dispatch::operator::Operator;
use crate::dispatch::table::Source;
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::tensor::handle::Tensor;

/// Registers the kernels of the key.
///
/// # Errors
/// If a registration fails.
pub(super) fn register(libraries: &mut Vec<Library>) -> Result<()> {
    let mut library = Library::impl_block("aten", DispatchKey::Complex)?;
    alike::register(&mut library)?;
    arithmetic::register(&mut library)?;
    conversions::register(&mut library)?;
    functions::register(&mut library)?;
    matrices::register(&mut library)?;
    reductions::register(&mut library)?;
    windows::register(&mut library)?;
    libraries.push(library);
    Ok(())
}

/// The kernel of this key for operators without a kernel of their own here.
pub(super) fn fallback(operator: &Operator, keys: KeySet, stack: &mut Stack) -> Result<()> {
    let below = keys - KeySet::of(DispatchKey::Complex);
    if operator.slot(below.highest_backend_key()).source == Source::Math {
        // The parts of the decomposition come back to this key.
        return operator.redispatch_boxed(below, stack);
    }
    let found = stack.iter().flat_map(Value::tensors).find(|tensor| tensor.is_complex());
    let dtype = found.map_or(DType::Complex64, Tensor::dtype);
    let hint = "call it on real(), imag(), abs() or view_as_real()";
    Err(Error::unsupported(operator.name().to_string(), dtype, "real dtypes", hint))
}
