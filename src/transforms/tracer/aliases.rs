//! Outputs that are an input or a view of one, the same tensor as another output, or views of one tensor.
//!
//! A graph has values and no tensors, so what it gives for such an output has the right elements, but autograd takes it for
//! a tensor of its own: a write to one of two would not reach the history of the other. Such an output is therefore made
//! again in each call, by the view ops that the function called, of the tensor that it was a view of there.

use crate::autograd::Meta;
use crate::autograd::Tensors;
use crate::dispatch::key::grad_mode::set_grad_enabled;
use crate::error::{NotCaptured, Reason, Result};
use crate::tensor::handle::Tensor;
use crate::tensor::view_chain;
use crate::tensor::view_chain::ViewStep;
use crate::transforms::tracer::recording::Recording;
use crate::transforms::tracer::session::with_recording;
use smallvec::SmallVec;

/// The tensor that an output is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// That input of the graph, after what is written to it.
    Input(usize),
    /// That output.
    Output(usize),
}

/// An output that shares its elements.
pub struct OutputAlias {
    /// Which output.
    pub output: usize,
    /// What it is made of. An output is none that is made itself, or stands before this one.
    pub origin: Origin,
    /// By which view ops; by none if it is the same tensor.
    chain: SmallVec<[ViewStep; 1]>,
    /// Whether the function made it while gradients were recorded.
    is_recorded: bool,
}

impl OutputAlias {
    /// The output, of its origin.
    ///
    /// # Errors
    /// If the origin is of another type than the one that was traced.
    pub fn made_of(&self, origin: &Tensor) -> Result<Tensor> {
        if self.chain.is_empty() {
            return Ok(origin.clone());
        }
        let _mode = set_grad_enabled(self.is_recorded);
        view_chain::apply(&mut Tensors, origin, &self.chain)
    }
}

/// The tensors that several of these outputs of a function are views of and that are neither inputs nor outputs: they
/// are to become outputs, so that the views can be made of them.
pub(crate) fn shared_bases(outputs: &[Tensor]) -> Vec<Tensor> {
    with_recording(|recording| recording.shared_bases(outputs)).unwrap_or_default()
}

/// Which of these outputs are made of inputs or of other outputs; whether they require gradients was asked before.
pub(crate) fn are_aliases(outputs: &[Tensor]) -> Vec<bool> {
    let are = |recording: &mut Recording| {
        (0..outputs.len()).map(|output| recording.alias(outputs, output).is_some()).collect()
    };
    with_recording(are).unwrap_or_else(|| vec![false; outputs.len()])
}

impl Recording {
    fn shared_bases(&self, outputs: &[Tensor]) -> Vec<Tensor> {
        // With the number of the first output that is a view of it, and whether there is another one.
        let mut bases: Vec<(&Tensor, u64, bool)> = Vec::new();
        for output in outputs {
            let Some(view) = output.view_of().filter(|view| view.is_differentiable) else { continue };
            let base = &view.base;
            let is_hidden = self.nodes.contains_key(&base.id())
                && !self.is_input(base)
                && !outputs.iter().any(|other| other.id() == base.id());
            match bases.iter_mut().find(|(known, ..)| known.id() == base.id()) {
                Some((_, first, is_shared)) => *is_shared |= *first != output.id(),
                None if is_hidden => bases.push((base, output.id(), false)),
                None => {}
            }
        }
        bases.into_iter().filter(|(_, _, is_shared)| *is_shared).map(|(base, ..)| base.clone()).collect()
    }

    /// How an output is made of an input or of another output, if it is.
    fn alias<'a>(&'a self, outputs: &'a [Tensor], output: usize) -> Option<OutputAlias> {
        let tensor = &outputs[output];
        let is_it = |other: &Tensor| other.id() == tensor.id();
        let input = self.inputs.iter().position(is_it).map(Origin::Input);
        if let Some(origin) = input.or_else(|| outputs[..output].iter().position(is_it).map(Origin::Output)) {
            return Some(OutputAlias { output, origin, chain: SmallVec::new(), is_recorded: true });
        }
        let view = tensor.view_of()?;
        // An input that the function was not given may be a view itself.
        let of_input = |(index, input): (usize, &'a Tensor)| {
            let (root, begin) = match input.view_of().filter(|of| of.is_differentiable) {
                Some(of) => (of.base.id(), &of.chain[..]),
                None => (input.id(), &[][..]),
            };
            let rest = if root == view.base.id() { view.chain.strip_prefix(begin) } else { None };
            rest.map(move |rest| (Origin::Input(index), rest, input))
        };
        let of_output = || {
            let base = outputs.iter().position(|other| other.id() == view.base.id())?;
            // One that comes later is not made yet.
            (base < output || self.alias(outputs, base).is_none()).then_some(base)?;
            Some((Origin::Output(base), &view.chain[..], &outputs[base]))
        };
        let (origin, chain, base) = self.inputs.iter().enumerate().find_map(of_input).or_else(of_output)?;
        // What is written to is not what the graph was given, so there is no other way to make it.
        let is_written = matches!(origin, Origin::Input(input) if self.written.contains(&input));
        // Views of which only a part was recorded have less history than one that is made in one go.
        let requires_grad = |tensor: &Tensor| tensor.autograd().is_some_and(Meta::requires_grad);
        let has_history = view.made_with_grad && requires_grad(base);
        let is_known = is_written || (view.is_differentiable && requires_grad(tensor) == has_history);
        is_known.then(|| OutputAlias { output, origin, chain: chain.into(), is_recorded: view.made_with_grad })
    }

    /// All outputs that are made of others.
    ///
    /// # Errors
    /// If one shares its elements with an input that is written to, and it is not known how.
    pub(super) fn aliases(&self, outputs: &[Tensor]) -> Result<Vec<OutputAlias>, Reason> {
        let mut aliases = Vec::new();
        for (output, tensor) in outputs.iter().enumerate() {
            if let Some(alias) = self.alias(outputs, output) {
                aliases.push(alias);
            } else if self.written.iter().any(|&input| self.inputs[input].shares(tensor)) {
                return Err(NotCaptured::ResultSharesInput { result: output }.into());
            }
        }
        Ok(aliases)
    }
}
