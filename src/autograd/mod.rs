//! Gradients.
//!
//! A call whose operands require gradients is recorded by the Autograd key as a [node](GradFn) of a tape; the tape is
//! run backwards by [`Tensor::backward`] or [`grad`]. What a row of the op table does on the way back is a graph of its
//! derivative column, so that the way back is made of the same ops as everything else: it can be recorded again for
//! higher derivatives, traced by `compile`, and seen by modes. Composite operators have no derivative of their own: their
//! parts are recorded.
//!
//! What always holds: a tape refers to what it needs and to nothing that refers to it; a value that was written to after
//! it was saved is noticed; the order of the way back depends on the recorded calls alone.

mod accumulate;
mod engine;
mod function;
pub(crate) mod gradcheck;
mod handle;
mod hook;
pub(crate) mod inplace_or_view;
pub(crate) mod kernel;
mod meta;
mod node;
mod program;
mod row;
mod saved;
mod transfer;
mod views;

pub use crate::dispatch::key::grad_mode::{
    GradGuard, InferenceGuard, enable_grad, inference_mode, is_grad_enabled, is_inference_mode, no_grad,
    set_grad_enabled,
};
pub use function::{Context, Function, apply};
pub use gradcheck::gradcheck;
pub use hook::HookId;
pub(crate) use meta::{Meta, gradient_edge};
pub(crate) use node::Edge;
pub use node::GradFn;
pub(crate) use program::{GradientProgram, record_program};
pub(crate) use views::Tensors;

use crate::dispatch::builtins::Builtins;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::DispatchKey;
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::tensor::handle::Tensor;
use crate::tensor::observer;
use engine::Options;

/// How gradients are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GradOptions {
    /// Keep saved values, so that the way back can be run again; calls that save none can be in any case. Implied by
    /// `create_graph`.
    pub retain_graph: bool,
    /// Record the way back itself, for higher derivatives.
    pub create_graph: bool,
    /// Give `None` for an input that the outputs do not depend on, instead of an error.
    pub allow_unused: bool,
}

/// Gradients of `outputs` with respect to `inputs`: the sum over the outputs of output gradient times derivative. Leaves
/// keep the gradients they have.
///
/// `grad_outputs` holds one gradient per output, of its shape; `None`, or an empty list, stands for 1 where the output has
/// one element.
///
/// ```
/// # fn main() -> opfuse::Result<()> {
/// use opfuse::Tensor;
/// use opfuse::autograd::{GradOptions, grad};
/// let x = Tensor::scalar(3.0f64)?;
/// x.set_requires_grad(true)?;
/// let cube = x.pow(3)?;
/// let options = GradOptions { create_graph: true, ..GradOptions::default() };
/// let first = grad(&[&cube], &[&x], &[], options)?.remove(0).expect("the cube depends on x");
/// let second = grad(&[&first], &[&x], &[], GradOptions::default())?.remove(0).expect("and so does its slope");
/// assert_eq!((first.item::<f64>()?, second.item::<f64>()?), (27.0, 18.0));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If an output does not require gradients, a gradient is missing or of another shape, an input was not used, or saved
/// values were freed or written to.
pub fn grad(
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    grad_outputs: &[Option<&Tensor>],
    options: GradOptions,
) -> Result<Vec<Option<Tensor>>> {
    let roots = roots(outputs, grad_outputs, options.create_graph)?;
    let edge_of = |input: &&Tensor| match gradient_edge(input)? {
        Some(edge) => Ok(Some(edge)),
        None => Err(Error::argument("grad", "one of the inputs does not require grad; call set_requires_grad(true)")),
    };
    let wanted = inputs.iter().map(edge_of).collect::<Result<Vec<_>>>()?;
    let found = engine::run(roots, Some(&wanted), options.into())?;
    if !options.allow_unused && found.iter().any(Option::is_none) {
        return Err(Error::argument(
            "grad",
            "One of the differentiated Tensors appears to not have been used in the graph; set allow_unused to get None \
             for it",
        ));
    }
    Ok(found)
}

/// Adds the gradients of `outputs` to the leaves they depend on; see [`grad`] for `grad_outputs`.
///
/// # Errors
/// As [`grad`]. Leaves keep what was added before an error.
pub fn backward(outputs: &[&Tensor], grad_outputs: &[Option<&Tensor>], options: GradOptions) -> Result<()> {
    let roots = roots(outputs, grad_outputs, options.create_graph)?;
    engine::run(roots, None, options.into()).map(|_| ())
}

impl From<GradOptions> for Options {
    fn from(options: GradOptions) -> Options {
        Options { retain_graph: options.retain_graph || options.create_graph, create_graph: options.create_graph }
    }
}

fn roots(outputs: &[&Tensor], grad_outputs: &[Option<&Tensor>], create_graph: bool) -> Result<Vec<(Edge, Tensor)>> {
    if !grad_outputs.is_empty() && grad_outputs.len() != outputs.len() {
        let what = format!("{} gradients were given for {} outputs", grad_outputs.len(), outputs.len());
        return Err(Error::argument("backward", what));
    }
    let root = |(index, output): (usize, &&Tensor)| {
        let Some(edge) = gradient_edge(output)? else {
            let what = format!("element {index} of tensors does not require grad and does not have a grad_fn");
            return Err(Error::argument("backward", what));
        };
        Ok((edge, root_gradient(output, grad_outputs.get(index).copied().flatten(), create_graph)?))
    };
    outputs.iter().enumerate().map(root).collect()
}

fn root_gradient(output: &Tensor, given: Option<&Tensor>, create_graph: bool) -> Result<Tensor> {
    match given {
        Some(gradient) if gradient.sizes() != output.sizes() => {
            let what = format!(
                "Mismatch in shape: the gradient has shape {:?}, the output {:?}",
                gradient.sizes(),
                output.sizes()
            );
            Err(Error::shape("backward", what, "a gradient has the shape of its output"))
        }
        // A trace may be called op by op later on, in a way back that is recorded.
        Some(gradient) if create_graph || observer::is_abstract() => Ok(gradient.clone()),
        Some(gradient) => gradient.detach(),
        None if output.numel() == 1 => output.detach()?.ones_like(),
        None => {
            let what =
                format!("grad can be implicitly created only for scalar outputs, not for shape {:?}", output.sizes());
            Err(Error::shape("backward", what, "pass the gradient of the output, or sum it first"))
        }
    }
}

/// Registers what the Autograd and ADInplaceOrView keys do with every row of the op table and with `copy_`.
///
/// # Errors
/// If the registry refuses a kernel.
pub(crate) fn register(builtins: &mut Builtins) -> Result<()> {
    let mut recorded = Library::impl_block("aten", DispatchKey::Autograd)?;
    let mut views = Library::impl_block("aten", DispatchKey::ADInplaceOrView)?;
    for (op, operator) in builtins.rows() {
        let name = operator.name().to_string();
        recorded.impl_(&name, Kernel::of_row(op, kernel::kernel).when(kernel::is_wanted).named("autograd"))?;
        if op.is_view() {
            views.impl_(&name, Kernel::of_row(op, inplace_or_view::view_kernel).named("view"))?;
        }
    }
    recorded.impl_("aten::copy_", Kernel::typed(kernel::copy_kernel))?;
    views.impl_("aten::copy_", Kernel::typed(inplace_or_view::copy_kernel))?;
    builtins.libraries.extend([recorded, views]);
    Ok(())
}
