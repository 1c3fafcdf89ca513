//! Which tensors of a recording are views of which.
//!
//! A write through a view changes its base and all other views of it. Autograd tracks the views that it can
//! differentiate. A recording needs all of them: also detached views, views of inference tensors, and results of
//! `_unsafe_view`. So it keeps a table of its own. For views that were made before the recording it asks autograd.

use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::error::{NotCaptured, Reason};
use crate::ir::{Attrs, Op};
use crate::tensor::handle::{Tensor, ViewOf, WeakTensor};
use crate::tensor::view_chain::{ViewChain, ViewStep};
use crate::transforms::tracer::condition::Outside;
use crate::transforms::tracer::recording::Recording;
use std::sync::atomic::Ordering;

/// How a view comes from its base.
#[derive(Clone)]
pub(super) struct Lineage {
    /// The base: an input of the graph, or a computed value that is no view.
    pub(super) base: Tensor,
    /// The view ops that lead from the base to the view.
    pub(super) chain: ViewChain,
    /// Whether the function made the view in grad mode, and the views before it.
    pub(super) made_with_grad: bool,
    /// Whether it counts writes by itself.
    pub(super) has_own_version: bool,
}

/// A view that the function made.
pub(super) struct TracedView {
    view: WeakTensor,
    of: Lineage,
}

impl Lineage {
    /// Whether a gradient of the view flows to the base, if the base requires gradients.
    pub(super) fn has_history(&self) -> bool {
        self.made_with_grad && !self.chain.has(|step| step.op == Op::Detach || !step.op.is_differentiable())
    }
}

impl Recording {
    /// Notes that a view op of the function made `view` of `operand`.
    pub(super) fn note_view(&mut self, op: Op, operand: &Tensor, attrs: &Attrs, view: &Tensor) {
        let step = ViewStep::new(op, attrs);
        // A view of a view that was made in no-grad mode has no history either.
        let (base, chain, has_history, has_own_version) = match self.lineage(operand) {
            Some(of) => (of.base, of.chain.then(step), of.made_with_grad, of.has_own_version),
            None => (operand.clone(), ViewChain::of(step), true, false),
        };
        let of = Lineage { base, chain, made_with_grad: has_history && is_grad_enabled(), has_own_version };
        self.views.insert(view.id(), TracedView { view: view.downgrade(), of });
    }

    /// Notes another handle of the elements of a tensor, without its history. What cannot be recorded breaks the trace.
    pub(super) fn note_alias(&mut self, tensor: &Tensor, alias: &Tensor) {
        match self.record(Op::Detach, std::slice::from_ref(tensor), Attrs::new()) {
            Ok(node) => {
                self.note_view(Op::Detach, tensor, &Attrs::new(), alias);
                self.name(alias, node);
            }
            Err(error) => self.give_up(Reason::of_error(error)),
        }
    }

    /// Notes that a view does not share the version of its base.
    pub(super) fn note_own_version(&mut self, view: &Tensor) {
        if let Some(traced) = self.views.get_mut(&view.id()) {
            traced.of.has_own_version = true;
        }
    }

    /// How a tensor comes from its base. `None` if it is an input of the graph, or no view.
    pub(super) fn lineage(&self, tensor: &Tensor) -> Option<Lineage> {
        if let Some(traced) = self.views.get(&tensor.id()) {
            return Some(traced.of.clone());
        }
        let view = tensor.view_of()?;
        if self.is_input(tensor) {
            return None;
        }
        let ViewOf { base, chain, made_with_grad, .. } = view;
        // What autograd takes for the base of a view may be a detached view of another tensor.
        let (of, chain) = match self.lineage(base) {
            Some(of) => (of.base, of.chain.followed_by(chain)),
            None => (base.clone(), chain.clone()),
        };
        Some(Lineage { base: of, chain, made_with_grad: *made_with_grad, has_own_version: false })
    }

    /// The base of a view, or else the tensor itself.
    pub(super) fn root(&self, tensor: &Tensor) -> Tensor {
        self.lineage(tensor).map_or_else(|| tensor.clone(), |of| of.base)
    }

    /// The bases of the views that the function made.
    pub(super) fn noted_bases(&self) -> impl Iterator<Item = &Tensor> {
        self.views.values().map(|traced| &traced.of.base)
    }

    /// Forgets views that are gone, and with them the bases that nothing else needs.
    pub(super) fn forget_lost_views(&mut self) {
        self.views.retain(|_, traced| traced.view.upgrade().is_some());
    }

    /// The number of writes to the elements of a tensor, which dates its node. Versions do not count those to inference
    /// tensors.
    pub(super) fn stamp(&self, tensor: &Tensor) -> u64 {
        match self.n_writes.is_empty() {
            true => tensor.version(),
            false => tensor.version() + self.n_writes_to(tensor),
        }
    }

    /// The number of recorded writes to the elements of a tensor.
    pub(super) fn n_writes_to(&self, tensor: &Tensor) -> u64 {
        self.n_writes.get(&address(tensor)).copied().unwrap_or(0)
    }

    /// By how much the recorded writes increase the version of an input.
    pub(super) fn n_versions_of(&self, input: &Tensor) -> u64 {
        self.n_versions.get(&address(input)).copied().unwrap_or(0)
    }

    /// Counts a recorded write to the elements of a tensor, whose version was `before`.
    pub(super) fn count_write(&mut self, tensor: &Tensor, before: u64) {
        *self.n_writes.entry(address(tensor)).or_default() += 1;
        self.n_effects += u64::from(self.outside(&self.root(tensor)).is_some());
        if !self.views.get(&tensor.id()).is_some_and(|traced| traced.of.has_own_version) {
            *self.n_versions.entry(address(tensor)).or_default() += 1;
        }
        if tensor.has_data() && self.may_be_trace() {
            self.counted.push((tensor.clone(), tensor.version().wrapping_sub(before)));
        }
    }

    /// Takes back the versions of tensors from outside. A trace writes to none: the calls of its program do.
    pub(super) fn uncount_writes(&mut self) {
        for (tensor, times) in self.counted.drain(..) {
            tensor.version_counter().fetch_sub(times, Ordering::AcqRel);
        }
    }

    /// Why an abstract trace cannot contain a write, if it cannot: it would change the history of a captured tensor.
    pub(super) fn refuses_history(&self, target: &Tensor, source: &Tensor) -> Option<NotCaptured> {
        let root = self.root(target);
        let flows = || target.may_require_grad() || root.may_require_grad() || source.may_require_grad();
        if self.is_deferred() || !is_grad_enabled() || !flows() {
            return None;
        }
        match self.outside(&root) {
            Some(Outside::Captured(of)) => {
                Some(NotCaptured::HistoryWritten { tensor: Outside::Captured(of).to_string().into() })
            }
            Some(Outside::Given(_)) | None => None,
        }
    }
}

fn address(tensor: &Tensor) -> usize {
    tensor.array().storage().as_ptr().addr()
}
