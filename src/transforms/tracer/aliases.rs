//! Outputs that are inputs, views of inputs, or aliases of each other.
//!
//! A graph has values, not tensors. It computes the elements of such an output, but not its relation to another tensor:
//! autograd would not see a write to one in the history of the other. So each call rebuilds such an output from its
//! origin, by the view ops that the function called.

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

/// The tensor that an output is rebuilt from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// This input of the graph, after the writes to it.
    Input(usize),
    /// This output.
    Output(usize),
}

/// An output that is an alias of an input or of another output.
pub struct OutputAlias {
    /// The index of the output.
    pub output: usize,
    /// Its origin. An origin that is an output comes earlier, or is not rebuilt itself.
    pub origin: Origin,
    /// The view ops. Without any, the output is its origin.
    chain: SmallVec<[ViewStep; 1]>,
    /// Whether the function made the view in grad mode.
    is_recorded: bool,
}

impl OutputAlias {
    /// Rebuilds the output from its origin.
    ///
    /// # Errors
    /// If the origin has another type than in the trace.
    pub fn made_of(&self, origin: &Tensor) -> Result<Tensor> {
        if self.chain.is_empty() {
            return Ok(origin.clone());
        }
        let _mode = set_grad_enabled(self.is_recorded);
        view_chain::apply(&mut Tensors, origin, &self.chain)
    }
}

/// Bases that several of these outputs are views of, and that are neither inputs nor outputs. They become outputs, so
/// that the views can be rebuilt.
pub(crate) fn shared_bases(outputs: &[Tensor]) -> Vec<Tensor> {
    with_recording(|recording| recording.shared_bases(outputs)).unwrap_or_default()
}

/// Which outputs are rebuilt. Whether they require gradients was asked before.
pub(crate) fn are_aliases(outputs: &[Tensor]) -> Vec<bool> {
    let are = |recording: &mut Recording| {
        (0..outputs.len()).map(|output| recording.alias(outputs, output).is_some()).collect()
    };
    with_recording(are).unwrap_or_else(|| vec![false; outputs.len()])
}

impl Recording {
    fn shared_bases(&self, outputs: &[Tensor]) -> Vec<Tensor> {
        // Each with the id of the first output that is a view of it, and whether another output is one too.
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

    /// How to rebuild an output, if it is an alias.
    fn alias<'a>(&'a self, outputs: &'a [Tensor], output: usize) -> Option<OutputAlias> {
        let tensor = &outputs[output];
        let is_it = |other: &Tensor| other.id() == tensor.id();
        let input = self.inputs.iter().position(is_it).map(Origin::Input);
        if let Some(origin) = input.or_else(|| outputs[..output].iter().position(is_it).map(Origin::Output)) {
            return Some(OutputAlias { output, origin, chain: SmallVec::new(), is_recorded: true });
        }
        let view = tensor.view_of()?;
        // An input that was lifted may itself be a view.
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
            // A later output that is rebuilt does not exist yet.
            (base < output || self.alias(outputs, base).is_none()).then_some(base)?;
            Some((Origin::Output(base), &view.chain[..], &outputs[base]))
        };
        let (origin, chain, base) = self.inputs.iter().enumerate().find_map(of_input).or_else(of_output)?;
        // The written value is not an input of the graph, so the output must be rebuilt.
        let is_written = matches!(origin, Origin::Input(input) if self.written.contains(&input));
        // Rebuilding gives the full history. It is wrong if the function recorded only part of it.
        let requires_grad = |tensor: &Tensor| tensor.autograd().is_some_and(Meta::requires_grad);
        let has_history = view.made_with_grad && requires_grad(base);
        let is_known = is_written || (view.is_differentiable && requires_grad(tensor) == has_history);
        is_known.then(|| OutputAlias { output, origin, chain: chain.into(), is_recorded: view.made_with_grad })
    }

    /// All outputs that are rebuilt.
    ///
    /// # Errors
    /// If an output shares elements with a written input, and the view ops are not known.
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
