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
use crate::transforms::tracer::condition::Outside;
use crate::transforms::tracer::recording::Recording;
use crate::transforms::tracer::session::with_recording;
use crate::transforms::tracer::views::Lineage;
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
    /// Whether it counts writes by itself.
    has_own_version: bool,
    /// The output, if it is a captured view of a captured tensor.
    captured: Option<Tensor>,
}

/// All of an alias but the captured tensor itself, which is an id.
#[derive(PartialEq)]
pub struct OutputKind {
    output: usize,
    origin: Origin,
    chain: SmallVec<[ViewStep; 1]>,
    flags: [bool; 2],
    captured: Option<u64>,
}

impl OutputAlias {
    /// What it is, to be compared.
    pub(crate) fn kind(&self) -> OutputKind {
        OutputKind {
            output: self.output,
            origin: self.origin,
            chain: self.chain.clone(),
            flags: [self.is_recorded, self.has_own_version],
            captured: self.captured.as_ref().map(Tensor::id),
        }
    }

    /// Rebuilds the output from its origin.
    ///
    /// # Errors
    /// If the origin has another type than in the trace.
    pub fn made_of(&self, origin: &Tensor) -> Result<Tensor> {
        if let Some(captured) = &self.captured {
            return Ok(captured.clone());
        }
        if self.chain.is_empty() {
            return Ok(origin.clone());
        }
        let _mode = set_grad_enabled(self.is_recorded);
        let view = view_chain::apply(&mut Tensors, origin, &self.chain)?;
        Ok(if self.has_own_version { view.with_own_version() } else { view })
    }
}

/// Bases that several of these outputs are views of, or that were written to, and that are neither inputs nor outputs.
/// They become outputs, so that the views can be rebuilt.
pub(crate) fn shared_bases(outputs: &[Tensor]) -> Vec<Tensor> {
    let bases = |recording: &mut Recording| {
        recording.hide_made();
        recording.shared_bases(outputs)
    };
    with_recording(bases).unwrap_or_default()
}

impl Recording {
    fn shared_bases(&self, outputs: &[Tensor]) -> Vec<Tensor> {
        // Each with the id of the first output that is a view of it, and whether it must become an output.
        let mut bases: Vec<(Tensor, u64, bool)> = Vec::new();
        for output in outputs {
            let Some(Lineage { base, .. }) = self.lineage(output) else { continue };
            let is_hidden = self.nodes.contains_key(&base.id())
                && !self.is_input(&base)
                && !outputs.iter().any(|other| other.id() == base.id());
            let is_written = is_hidden && self.n_writes_to(&base) > 0;
            match bases.iter_mut().find(|(known, ..)| known.id() == base.id()) {
                Some((_, first, is_needed)) => *is_needed |= is_written || *first != output.id(),
                None if is_hidden => bases.push((base, output.id(), is_written)),
                None => {}
            }
        }
        bases.into_iter().filter(|(_, _, is_needed)| *is_needed).map(|(base, ..)| base).collect()
    }

    /// How to rebuild an output, if it is an alias.
    fn alias(&self, outputs: &[Tensor], output: usize) -> Option<OutputAlias> {
        let tensor = &outputs[output];
        let is_it = |other: &Tensor| other.id() == tensor.id();
        let input = self.inputs.iter().position(is_it).map(Origin::Input);
        if let Some(origin) = input.or_else(|| outputs[..output].iter().position(is_it).map(Origin::Output)) {
            let chain = SmallVec::new();
            return Some(OutputAlias {
                output,
                origin,
                chain,
                is_recorded: true,
                has_own_version: false,
                captured: None,
            });
        }
        let of = self.lineage(tensor)?;
        let is_base = |other: &Tensor| other.id() == of.base.id();
        let input = self.inputs.iter().position(is_base).map(Origin::Input);
        // A later output that is rebuilt does not exist yet.
        let is_there = |&base: &usize| base < output || self.alias(outputs, base).is_none();
        let of_output = || outputs.iter().position(is_base).filter(is_there).map(Origin::Output);
        let origin = input.or_else(of_output)?;
        // The written value is not an input of the graph, so the output must be rebuilt.
        let is_written = matches!(origin, Origin::Input(input) if self.written.contains(&input));
        // Rebuilding gives the full history. It is wrong if the function recorded only part of it. If it gives none,
        // the program gives what the function recorded.
        let requires_grad = |tensor: &Tensor| tensor.autograd().is_some_and(Meta::requires_grad);
        let is_captured = matches!(self.outside(tensor), Some(Outside::Captured(_)));
        let is_known = match (of.has_history() && requires_grad(&of.base), requires_grad(tensor)) {
            (false, true) => is_written || !is_captured,
            (true, false) => is_written,
            (true, true) | (false, false) => true,
        };
        let captured = is_captured.then(|| tensor.clone());
        let Lineage { chain, made_with_grad: is_recorded, has_own_version, .. } = of;
        is_known.then(|| OutputAlias { output, origin, chain: chain.steps(), is_recorded, has_own_version, captured })
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
