//! Gradients.
//!
//! The Autograd key records a call whose operands require gradients as a [node](GradFn) of a tape. [`Tensor::backward`]
//! and [`grad`] run the tape backwards. The backward formula of a row of the op table is a graph from its derivative
//! column. A backward pass therefore consists of ordinary ops: it can be recorded for higher derivatives, traced by
//! `compile`, and seen by modes. Composite operators have no derivative of their own: their parts are recorded.
//!
//! What always holds: references in a tape form no cycle. A write to a value after it was saved is detected. The order
//! of the backward pass depends on the recorded calls alone.

mod accumulate;
mod anomaly;
mod engine;
mod function;
pub(crate) mod gradcheck;
mod handle;
mod hook;
pub(crate) mod inplace_or_view;
pub(crate) mod kept_values;
pub(crate) mod kernel;
mod meta;
mod node;
mod origin;
mod parts;
mod program;
mod row;
mod saved;
mod tape;
mod transfer;
mod views;
mod without_derivative;

pub use crate::dispatch::key::grad_mode::{
    GradGuard, InferenceGuard, enable_grad, inference_mode, is_grad_enabled, is_inference_mode, no_grad,
    set_grad_enabled,
};
pub use anomaly::{AnomalyGuard, detect_anomaly, is_anomaly_enabled, set_detect_anomaly};
pub use function::{Context, Function, apply};
pub use gradcheck::gradcheck;
pub use hook::HookId;
pub(crate) use meta::{Meta, gradient_edge};
pub(crate) use node::Edge;
pub use node::GradFn;
pub(crate) use node::reserve as reserve_calls;
pub(crate) use origin::is_on as detects_anomalies;
pub(crate) use program::{GradientProgram, KeptTensors, ProgramHistory, Request, Values, record_program};
pub(crate) use row::{replay, replay_until};
pub(crate) use tape::{Tape, leads_to, reached};
pub(crate) use views::{Tensors, is_unrecorded_view};
pub(crate) use without_derivative::record as record_without_derivative;

use crate::dispatch::builtins::Builtins;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::DispatchKey;
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ops::complex_numbers::of_pairs;
use crate::profile::stands_for;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;
use engine::Options;

/// Options of [`grad`] and [`backward`]. All are off by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GradOptions {
    /// Keep saved values, so that the backward pass can run again. Calls that saved nothing can run again in any case.
    /// Implied by `create_graph`.
    pub retain_graph: bool,
    /// Record the backward pass itself, for higher derivatives.
    pub create_graph: bool,
    /// Return `None` for an input that the outputs do not depend on, instead of an error.
    pub allow_unused: bool,
}

/// The gradients of `outputs` with respect to `inputs`: for each input, the vector-Jacobian product summed over the
/// outputs. Each gradient has the shape and dtype of its input. Leaves accumulate nothing.
///
/// `grad_outputs` holds one gradient per output, with its shape. For an output with one element it may be `None`, which
/// stands for 1. An empty list stands for `None` everywhere.
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
/// If an output does not require gradients, if a gradient in `grad_outputs` is missing or has another shape, if an
/// input was not used, or if saved values were freed or written to.
///
/// The gradient of a complex input is the slope in its real part plus `i` times that in its imaginary part.
#[track_caller]
pub fn grad(
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    grad_outputs: &[Option<&Tensor>],
    options: GradOptions,
) -> Result<Vec<Option<Tensor>>> {
    let _place = stands_for();
    let roots = roots(outputs, grad_outputs, options.create_graph)?;
    let edge_of = |input: &&Tensor| match gradient_edge(input.as_real())? {
        Some(edge) => {
            observer::observer().into_iter().for_each(|observer| observer.on_wanted(input.as_real()));
            Ok(Some(edge))
        }
        None => Err(Error::argument("grad", "one of the inputs does not require grad; call set_requires_grad(true)")),
    };
    let wanted = inputs.iter().map(edge_of).collect::<Result<Vec<_>>>()?;
    let found = engine::gradients_at(roots, wanted, options.into())?;
    if let Some(unused) = found.iter().position(Option::is_none).filter(|_| !options.allow_unused) {
        let what = "One of the differentiated Tensors appears to not have been used in the graph";
        let ty = inputs[unused].ty();
        return Err(Error::argument(
            "grad",
            format!("{what}: input {unused}, {ty}; set allow_unused to get None for it"),
        ));
    }
    let like_input = |(gradient, input): (Option<Tensor>, &&Tensor)| match gradient {
        Some(pairs) if input.dtype().is_complex() => of_pairs(&pairs).map(Some),
        other => Ok(other),
    };
    found.into_iter().zip(inputs).map(like_input).collect()
}

/// The contributions to the gradients of `inputs`, in the order in which a backward pass adds them up. What the inputs
/// were computed from gets no gradient. An input that does not require gradients has none. Saved values are kept.
///
/// # Errors
/// Same as [`grad`].
pub(crate) fn contributions(
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    grad_outputs: &[Option<&Tensor>],
) -> Result<Vec<Vec<Tensor>>> {
    let options = GradOptions { retain_graph: true, ..GradOptions::default() };
    let edges = inputs.iter().map(|input| gradient_edge(input)).collect::<Result<Vec<_>>>()?;
    engine::contributions_at(roots(outputs, grad_outputs, options.create_graph)?, edges, options.into())
}

/// Computes the gradients of `outputs` and accumulates them in the leaves they depend on. [`grad`] explains
/// `grad_outputs`.
///
/// # Errors
/// Same as [`grad`]. Leaves keep what they accumulated before an error.
#[track_caller]
pub fn backward(outputs: &[&Tensor], grad_outputs: &[Option<&Tensor>], options: GradOptions) -> Result<()> {
    let _place = stands_for();
    let roots = roots(outputs, grad_outputs, options.create_graph)?;
    engine::run(roots, options.into())
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
        let Some(edge) = gradient_edge(output.as_real())? else {
            let what = format!("element {index} of tensors does not require grad and does not have a grad_fn");
            return Err(Error::argument("backward", what));
        };
        anomaly::check_root(output.as_real(), &edge)?;
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
        Some(gradient) if gradient.dtype().is_complex() != output.dtype().is_complex() => {
            let hint = "a gradient is complex where its output is";
            Err(Error::dtype("backward", gradient.dtype(), format!("the dtype {} of the output", output.dtype()), hint))
        }
        // The gradient keeps its history: this backward pass is recorded, or its trace may be replayed in one that is.
        Some(gradient) if create_graph || observer::is_abstract() => Ok(gradient.as_real().clone()),
        Some(gradient) => gradient.as_real().detach(),
        None if output.dtype().is_complex() => {
            let hint = "pass the gradient of the output, or take a real number of it first, such as abs()";
            let what = "a real scalar: grad can be implicitly created only for these";
            Err(Error::dtype("backward", output.dtype(), what, hint))
        }
        None if output.numel() == 1 => output.detach()?.ones_like(),
        None => {
            let what =
                format!("grad can be implicitly created only for scalar outputs, not for shape {:?}", output.sizes());
            Err(Error::shape("backward", what, "pass the gradient of the output, or sum it first"))
        }
    }
}

/// Registers the kernels of the Autograd and ADInplaceOrView keys for every row of the op table and for `copy_`.
///
/// # Errors
/// If a registration fails.
pub(crate) fn register(builtins: &mut Builtins) -> Result<()> {
    let mut recorded = Library::impl_block("aten", DispatchKey::Autograd)?;
    let mut views = Library::impl_block("aten", DispatchKey::ADInplaceOrView)?;
    for (op, operator) in builtins.rows() {
        recorded
            .impl_operator(operator, Kernel::of_row(op, kernel::kernel).when(kernel::is_wanted).named("autograd"))?;
        if op.is_view() {
            views.impl_operator(operator, Kernel::of_row(op, inplace_or_view::view_kernel).named("view"))?;
        }
    }
    recorded.impl_operator(builtins.copy()?, Kernel::typed(kernel::copy_kernel))?;
    views.impl_operator(builtins.copy()?, Kernel::typed(inplace_or_view::copy_kernel))?;
    builtins.libraries.extend([recorded, views]);
    Ok(())
}

/// Registers what operators without a derivative do where gradients are wanted.
///
/// # Errors
/// If a registration fails.
pub(crate) fn register_fallbacks(builtins: &mut Builtins) -> Result<()> {
    let kernel = || Kernel::boxed(without_derivative::fallback).when(kernel::is_wanted).named("without_derivative");
    builtins.register_fallbacks(FALLBACK_KEYS.map(|key| (key, kernel())))
}

/// The Autograd keys of devices that operators without a derivative may run on.
const FALLBACK_KEYS: [DispatchKey; 5] = [
    DispatchKey::AutogradOther,
    DispatchKey::AutogradCPU,
    DispatchKey::AutogradCUDA,
    DispatchKey::AutogradMeta,
    DispatchKey::AutogradPrivateUse1,
];
