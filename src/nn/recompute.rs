//! Checkpointing (Chen et al. 2016): what a function computes on the way is not kept for the backward pass, but
//! computed again.
//!
//! The second run has the random numbers and the autocast state of the first, so gradients have the same bits.
//!
//! A compiled step contains both runs. They would be merged, because they compute the same. So the second run starts
//! from copies that need the incoming gradient ([`not_before`]). The copies take the memory of what they copy where
//! nothing else reads it. A compiled function whose backward pass runs outside it keeps its values.

use crate::autograd::kept_values::keeps_values;
use crate::autograd::{Context, Function, GradOptions, apply, backward, enable_grad, is_grad_enabled};
use crate::device::DeviceKind;
use crate::dispatch::key::local::is_tracing;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ops::draws::{noting, repeating};
use crate::tensor::Tensor;
use crate::transforms::{AutocastGuard, AutocastState, autocast_on, no_autocast_on};

struct Recomputed<F> {
    function: F,
    n_inputs: usize,
    autocast: AutocastState,
}

/// Calls the function, and calls it again in the backward pass, so that what it computes on the way takes no memory in
/// between.
///
/// Gradients flow to the inputs, and to parameters that the function holds: these accumulate them, as in
/// [`Tensor::backward`]. If no input requires gradients, the function runs as it is. Called again, it must do the same
/// again; its random numbers are those of the first call.
///
/// ```
/// use opfuse::nn::{Forward, Linear, checkpoint};
/// use opfuse::{DType, Tensor};
///
/// # fn main() -> opfuse::Result<()> {
/// let layer = Linear::new(4, 4)?;
/// let x = Tensor::ones(&[2, 4], DType::F32)?;
/// x.set_requires_grad(true)?;
/// let own = layer.clone(); // shares the parameters
/// let y = checkpoint(move |x| Ok(vec![own.forward(&x[0])?.gelu()?]), &[&x])?;
/// y[0].sum_all()?.backward()?;
/// assert!(layer.weight.grad().is_some() && x.grad().is_some());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the function fails. The backward pass fails if gradients of gradients are wanted.
#[track_caller]
pub fn checkpoint(
    function: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    inputs: &[&Tensor],
) -> Result<Vec<Tensor>> {
    let is_recorded = is_grad_enabled() && inputs.iter().any(|input| input.requires_grad());
    if !is_recorded || keeps_values() {
        let inputs: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
        return function(&inputs);
    }
    apply(Recomputed { function, n_inputs: inputs.len(), autocast: AutocastState::current() }, inputs)
}

/// A copy of `x` that a graph cannot compute before `gradient`: it has no elements of the gradient written to it.
fn not_before(x: &Tensor, gradient: &Tensor) -> Result<Tensor> {
    if x.dim() == 0 {
        return not_before(&x.reshape([1])?, gradient)?.reshape(x.sizes());
    }
    let mut sizes = x.sizes().to_vec();
    sizes[0] = 0;
    let gradient = if gradient.dim() == 0 { gradient.reshape([1])? } else { gradient.clone() };
    let none = gradient.narrow(0, 0, 0)?.to_dtype(x.dtype())?.reshape(&sizes[..])?;
    x.scatter(0, &Tensor::zeros(&sizes, DType::I64)?.to_device(x.device())?, &none)
}

/// The autocast state of the first run, while the guards live.
fn autocast_as(state: AutocastState) -> Result<Vec<AutocastGuard>> {
    let kinds = [DeviceKind::Cpu, DeviceKind::Cuda, DeviceKind::PrivateUse1].into_iter();
    kinds.map(|kind| state.dtype(kind).map_or_else(|| no_autocast_on(kind), |dtype| autocast_on(kind, dtype))).collect()
}

impl<F: Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static> Recomputed<F> {
    /// The results for inputs without history, recorded.
    fn again(&self, inputs: &[Tensor], keys: &[Tensor]) -> Result<Vec<Tensor>> {
        let _recorded = enable_grad();
        let _autocast = autocast_as(self.autocast)?;
        repeating(keys, || (self.function)(inputs))
    }
}

impl<F: Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static> Function for Recomputed<F> {
    #[track_caller]
    fn forward(&self, context: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        inputs.iter().for_each(|input| context.save(input));
        let (results, keys) = noting(|| (self.function)(inputs));
        keys.iter().for_each(|key| context.save(key));
        results
    }

    fn backward(&self, saved: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        if is_grad_enabled() {
            let what = "it has no gradients of gradients; call the function without checkpoint for these";
            return Err(Error::argument("checkpoint", what));
        }
        let later = |x: &Tensor| match gradients.first().filter(|_| is_tracing()) {
            Some(gradient) => not_before(x, gradient),
            None => Ok(x.clone()),
        };
        let alone = |input: &Tensor| -> Result<Tensor> {
            let leaf = later(&input.detach()?)?;
            leaf.set_requires_grad(input.requires_grad())?;
            Ok(leaf)
        };
        let (inputs, keys) = saved.split_at(self.n_inputs.min(saved.len()));
        let inputs = inputs.iter().map(alone).collect::<Result<Vec<_>>>()?;
        let keys = keys.iter().map(later).collect::<Result<Vec<_>>>()?;
        let results = self.again(&inputs, &keys)?;
        if results.len() != gradients.len() {
            let what = format!("the function gave {} results at first, and {} now", gradients.len(), results.len());
            return Err(Error::argument("checkpoint", format!("{what}; it must do the same again")));
        }
        let flows = results.iter().zip(gradients).filter(|(result, _)| result.requires_grad());
        let (results, gradients): (Vec<&Tensor>, Vec<Option<&Tensor>>) =
            flows.map(|(result, gradient)| (result, Some(gradient))).unzip();
        backward(&results, &gradients, GradOptions::default())?;
        Ok(inputs.iter().map(Tensor::grad).collect())
    }

    fn name(&self) -> String {
        "CheckpointBackward".to_owned()
    }
}
