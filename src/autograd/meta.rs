//! What autograd knows of a tensor: whether it requires gradients, where it comes from, and its gradient.
//!
//! A *leaf* requires gradients because the user said so; its gradients are added up in it by an accumulating node.
//! Any other tensor requires them because a recorded call made it. A view of a tensor that was written to comes from
//! whatever that tensor comes from now, so its edge is looked up anew when the version has moved.

use crate::autograd::accumulate::Accumulate;
use crate::autograd::hook::Hook;
use crate::autograd::node::{Edge, Node, ResultType};
use crate::autograd::views;
use crate::error::Result;
use crate::tensor::handle::Tensor;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What autograd knows of one tensor.
#[derive(Default)]
pub(crate) struct Meta {
    requires_grad: AtomicBool,
    state: Mutex<State>,
}

/// The part under a lock.
#[derive(Default)]
pub(crate) struct State {
    /// The gradient added up so far.
    pub(super) grad: Option<Tensor>,
    /// The recorded call that made the tensor.
    pub(super) edge: Option<Edge>,
    /// The version of the tensor that `edge` is right for.
    pub(super) version: u64,
    /// The node that adds up gradients in a leaf, once anything has referred to it.
    accumulator: Option<Arc<Node>>,
    /// Hooks of a leaf.
    pub(super) hooks: Vec<Hook>,
    /// Whether a tensor that is no leaf keeps its gradient.
    pub(super) retains: bool,
}

impl Meta {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn requires_grad(&self) -> bool {
        self.requires_grad.load(Ordering::Acquire)
    }

    pub(crate) fn set_requires_grad(&self, requires: bool) {
        self.requires_grad.store(requires, Ordering::Release);
    }

    /// The version that the edge is right for.
    pub(super) fn known_version(&self) -> u64 {
        self.state().version
    }

    /// The recorded call that made the tensor.
    pub(super) fn edge(&self) -> Option<Edge> {
        self.state().edge.clone()
    }

    /// Of a tensor that a recorded call has just made; its version is `version`.
    pub(crate) fn recorded(edge: Option<Edge>, version: u64) -> Meta {
        let requires_grad = AtomicBool::new(edge.is_some());
        Meta { requires_grad, state: Mutex::new(State { edge, version, ..State::default() }) }
    }

    /// Says which recorded call made the tensor, whose version is now `version`.
    pub(crate) fn set_edge(&self, edge: Edge, version: u64) {
        let mut state = self.state();
        (state.edge, state.version) = (Some(edge), version);
        drop(state);
        self.set_requires_grad(true);
    }
}

/// Where the gradient of a tensor flows to; `None` if it requires none.
pub(crate) fn gradient_edge(tensor: &Tensor) -> Result<Option<Edge>> {
    views::refresh(tensor)?;
    let Some(meta) = tensor.autograd().filter(|meta| meta.requires_grad()) else { return Ok(None) };
    let mut state = meta.state();
    if let Some(edge) = &state.edge {
        return Ok(Some(edge.clone()));
    }
    let accumulator =
        state.accumulator.get_or_insert_with(|| Node::last(Box::new(Accumulate::new(tensor)), ResultType::of(tensor)));
    Ok(Some(Edge::to_leaf(accumulator.clone(), tensor)))
}

impl Tensor {
    /// What autograd knows of it, if anything.
    #[inline]
    pub(crate) fn autograd(&self) -> Option<&Meta> {
        self.autograd_slot().get().and_then(|slot| slot.downcast_ref())
    }

    /// What autograd knows of it, made if there is nothing yet.
    pub(crate) fn autograd_or_new(&self) -> &Meta {
        let slot = self.autograd_slot().get_or_init(|| Box::new(Meta::default()));
        slot.downcast_ref().expect("autograd alone fills its slot")
    }

    /// Says which recorded call made it.
    pub(crate) fn set_edge(&self, edge: Edge) {
        let version = self.version();
        let mut edge = Some(edge);
        // Usually it was made just now, so there is nothing to lock yet.
        self.autograd_slot().get_or_init(|| Box::new(Meta::recorded(edge.take(), version)));
        if let Some(edge) = edge {
            self.autograd_or_new().set_edge(edge, version);
        }
    }
}
