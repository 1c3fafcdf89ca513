//! The autograd state of a tensor: whether it requires gradients, what computed it, and its gradient.
//!
//! A *leaf* requires gradients because the user said so. An accumulating node adds up its gradients. Any other tensor
//! requires them because a recorded call computed it. The history of a view is that of its base, so its edge is
//! recomputed when the version of the base has changed.

use crate::autograd::accumulate::Accumulate;
use crate::autograd::hook::Hook;
use crate::autograd::node::{Edge, Node, ResultType};
use crate::autograd::views;
use crate::error::Result;
use crate::tensor::handle::Tensor;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The autograd state of one tensor.
#[derive(Default)]
pub(crate) struct Meta {
    requires_grad: AtomicBool,
    state: Mutex<State>,
}

/// The part of the state that a lock guards.
#[derive(Default)]
pub(crate) struct State {
    /// The accumulated gradient.
    pub(super) grad: Option<Tensor>,
    /// The recorded call that computed the tensor.
    pub(super) edge: Option<Edge>,
    /// The version of the tensor at which `edge` was set.
    pub(super) version: u64,
    /// The node that accumulates gradients in a leaf. It is made at first use.
    accumulator: Option<Arc<Node>>,
    /// The hooks of a leaf.
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

    /// The version of the tensor at which the edge was set.
    pub(super) fn known_version(&self) -> u64 {
        self.state().version
    }

    /// The recorded call that computed the tensor.
    pub(crate) fn edge(&self) -> Option<Edge> {
        self.state().edge.clone()
    }

    /// The state of a new result of a recorded call, at version `version`.
    pub(crate) fn recorded(edge: Option<Edge>, version: u64) -> Meta {
        let requires_grad = AtomicBool::new(edge.is_some());
        Meta { requires_grad, state: Mutex::new(State { edge, version, ..State::default() }) }
    }

    /// Sets the recorded call that computed the tensor, whose version is now `version`.
    pub(crate) fn set_edge(&self, edge: Edge, version: u64) {
        let mut state = self.state();
        (state.edge, state.version) = (Some(edge), version);
        drop(state);
        self.set_requires_grad(true);
    }
}

/// The edge along which the gradient of a tensor flows. `None` if the tensor does not require gradients.
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
    /// The autograd state of this tensor, if it has any.
    #[inline]
    pub(crate) fn autograd(&self) -> Option<&Meta> {
        self.autograd_slot().get().and_then(|slot| slot.downcast_ref())
    }

    /// The autograd state of this tensor, which is made if it has none.
    pub(crate) fn autograd_or_new(&self) -> &Meta {
        let slot = self.autograd_slot().get_or_init(|| Box::new(Meta::default()));
        slot.downcast_ref().expect("autograd alone fills its slot")
    }

    /// Sets the recorded call that computed this tensor.
    pub(crate) fn set_edge(&self, edge: Edge) {
        let version = self.version();
        let mut edge = Some(edge);
        // Usually the tensor is new, so there is no state to lock.
        self.autograd_slot().get_or_init(|| Box::new(Meta::recorded(edge.take(), version)));
        if let Some(edge) = edge {
            self.autograd_or_new().set_edge(edge, version);
        }
    }
}
