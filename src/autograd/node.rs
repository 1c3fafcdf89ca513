//! The tape: one node per recorded call, with an edge to the node that made each operand.
//!
//! A node is kept alive by the tensors that came out of its call and by the nodes behind it. Edges point backwards
//! only, so there are no circles, and a long tape is let go of without deep recursion.

use crate::autograd::hook::Hook;
use crate::device::Device;
use crate::error::Result;
use crate::ir::DType;
use crate::runtime::SharedLayout;
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a recorded call does on the way back.
pub(crate) trait Backward: Send + Sync {
    /// Its name in error messages: `MulBackward`.
    fn name(&self) -> String;

    /// Gradients of the operands from those of the results. `needed` says which are wanted; others may be `None`.
    fn apply(&self, gradients: Vec<Option<Tensor>>, call: &BackwardCall<'_>) -> Result<Vec<Option<Tensor>>>;

    /// Lets go of saved values: nobody will ask again. A call that saved none may be asked again.
    fn release(&self) {}
}

/// How a node is asked for gradients.
pub(crate) struct BackwardCall<'a> {
    /// The node.
    pub(crate) node: &'a Arc<Node>,
    /// Which operands want a gradient.
    pub(crate) needs: &'a [bool],
}

/// Where a gradient flows to: result number `output` of the call that `node` recorded.
#[derive(Clone)]
pub(crate) struct Edge {
    pub(crate) node: Arc<Node>,
    pub(crate) output: usize,
    /// The leaf that the node adds gradients to. The leaf owns the node, so the edge keeps the leaf.
    _leaf: Option<Tensor>,
}

impl Edge {
    /// The edge to a result of a recorded call.
    pub(crate) fn new(node: Arc<Node>, output: usize) -> Edge {
        Edge { node, output, _leaf: None }
    }

    /// The edge to a leaf, whose gradients `node` adds up.
    pub(super) fn to_leaf(node: Arc<Node>, leaf: &Tensor) -> Edge {
        Edge { node, output: 0, _leaf: Some(leaf.clone()) }
    }
}

/// Type and device of a result, which its gradient has to match.
#[derive(Debug, Clone)]
pub(crate) struct ResultType {
    pub(crate) dtype: DType,
    pub(crate) device: Device,
    layout: SharedLayout,
}

impl ResultType {
    pub(crate) fn of(tensor: &Tensor) -> ResultType {
        ResultType { dtype: tensor.dtype(), device: tensor.device(), layout: tensor.array().layout.clone() }
    }

    pub(crate) fn sizes(&self) -> &[usize] {
        &self.layout.sizes
    }
}

/// A recorded call.
pub(crate) struct Node {
    /// Later calls have greater numbers, so descending order is a legal order on the way back.
    pub(crate) sequence: u64,
    pub(crate) function: Box<dyn Backward>,
    pub(crate) next: SmallVec<[Option<Edge>; 2]>,
    pub(crate) results: SmallVec<[ResultType; 1]>,
    hooks: Mutex<Vec<(usize, Hook)>>,
}

impl Node {
    /// A node of this call.
    pub(crate) fn new(
        function: Box<dyn Backward>,
        next: SmallVec<[Option<Edge>; 2]>,
        results: SmallVec<[ResultType; 1]>,
    ) -> Arc<Node> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let sequence = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Node { sequence, function, next, results, hooks: Mutex::default() })
    }

    /// A node that comes behind all others, for gradients that end in a leaf.
    pub(super) fn last(function: Box<dyn Backward>, result: ResultType) -> Arc<Node> {
        let results = SmallVec::from_iter([result]);
        Arc::new(Node { sequence: 0, function, next: SmallVec::new(), results, hooks: Mutex::default() })
    }

    /// The hooks on gradients of its results, by result.
    pub(super) fn hooks(&self) -> MutexGuard<'_, Vec<(usize, Hook)>> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Only nodes that nobody else knows wait, which are none as long as leaves and kept results are behind.
        let alone = |edge: Edge| Arc::into_inner(edge.node);
        let mut waiting: Vec<Node> = Vec::new();
        waiting.extend(self.next.drain(..).flatten().filter_map(alone));
        while let Some(mut node) = waiting.pop() {
            waiting.extend(node.next.drain(..).flatten().filter_map(alone));
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.function.name(), self.sequence)
    }
}

/// The call that made a tensor, as autograd recorded it: what `grad_fn` shows.
#[derive(Clone)]
pub struct GradFn(pub(crate) Edge);

impl GradFn {
    /// What the recorded call does on the way back: `MulBackward`.
    pub fn name(&self) -> String {
        self.0.node.function.name()
    }

    /// The recorded calls that made its operands; `None` where no gradient flows.
    pub fn next_functions(&self) -> Vec<Option<GradFn>> {
        self.0.node.next.iter().map(|edge| edge.clone().map(GradFn)).collect()
    }

    /// Whether both are the same recorded call.
    pub fn is_same(&self, other: &GradFn) -> bool {
        Arc::ptr_eq(&self.0.node, &other.0.node)
    }
}

impl fmt::Debug for GradFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.node, f)
    }
}
