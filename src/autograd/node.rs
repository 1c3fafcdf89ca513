//! The tape: one node per recorded call, with an edge to the node that computed each operand.
//!
//! The results of a call and the nodes of later calls keep its node alive. Edges point to earlier calls only, so there
//! are no cycles. A long tape is dropped without deep recursion.

use crate::autograd::hook::Hook;
use crate::autograd::origin::Origin;
use crate::autograd::tape::Places;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ops::part_place::PartPlace;
use crate::runtime::SharedLayout;
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The backward formula of a recorded call.
pub(crate) trait Backward: Send + Sync {
    /// The name in error messages, such as `MulBackward`.
    fn name(&self) -> String;

    /// The gradients of the operands from those of the results. Only gradients marked in `call.needs` must be computed.
    fn apply(&self, gradients: Vec<Option<Tensor>>, call: &BackwardCall<'_>) -> Result<Vec<Option<Tensor>>>;

    /// Drops saved values after the backward pass. A call that saved nothing can still run again.
    fn release(&self) {}

    /// Whether [`Backward::copy`] can copy the call.
    fn is_copyable(&self) -> bool {
        false
    }

    /// Whether the gradients of the operands are linear in those of the results, so that what is not there counts for
    /// nothing.
    fn is_linear(&self) -> bool {
        true
    }

    /// Calls `each` with every saved value.
    fn each_saved(&self, _each: &mut dyn FnMut(&Tensor)) {}

    /// Checks that a backward pass can run: that there is a formula, and that the saved values are there and were not
    /// written to since.
    ///
    /// # Errors
    /// The error of a backward pass through `node`, whose formula this is.
    fn check_backward(&self, _node: &Arc<Node>) -> Result<()> {
        Ok(())
    }

    /// The same formula with other saved values and edges.
    ///
    /// # Errors
    /// If a value is missing, or if the call cannot be copied.
    fn copy(&self, _places: &Places<'_>) -> Result<Box<dyn Backward>> {
        Err(Error::Internal { message: format!("a recorded call of {} cannot be copied", self.name()) })
    }

    /// Where the part lies that the call took from its operand, if that is all it did.
    fn place(&self) -> Option<&PartPlace> {
        None
    }

    /// The tape that has taken the place of this call.
    fn expanded(&self) -> Option<&Expanded> {
        None
    }
}

/// The tape that takes the place of a recorded call, in backward passes that start later.
pub(crate) struct Expanded {
    /// Passes that start before this number do not see it.
    at: u64,
    /// The edges of the results.
    results: Vec<Option<Edge>>,
}

impl Expanded {
    /// A tape with these results, for backward passes that start from now on.
    pub(super) fn new(results: Vec<Option<Edge>>) -> Expanded {
        Expanded { at: reserve(1), results }
    }

    /// The edges of the results.
    pub(super) fn results(&self) -> &[Option<Edge>] {
        &self.results
    }
}

/// The number of the next recorded call.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Reserves numbers of recorded calls. Returns the first.
pub(crate) fn reserve(count: usize) -> u64 {
    NEXT.fetch_add(count as u64, Ordering::Relaxed)
}

/// The context in which a backward formula runs.
pub(crate) struct BackwardCall<'a> {
    /// The node.
    pub(crate) node: &'a Arc<Node>,
    /// Which operands need a gradient.
    pub(crate) needs: &'a [bool],
    /// Whether a gradient has arrived at an edge already, to which those of this call are added.
    pub(crate) has_arrived: &'a dyn Fn(&Edge) -> bool,
}

/// Where a gradient flows: to result number `output` of the call that `node` recorded.
#[derive(Clone)]
pub(crate) struct Edge {
    pub(crate) node: Arc<Node>,
    pub(crate) output: usize,
    /// The leaf that the node accumulates gradients in. The leaf owns the node, so the edge keeps the leaf alive.
    leaf: Option<Tensor>,
}

impl Edge {
    /// The edge to a result of a recorded call.
    pub(crate) fn new(node: Arc<Node>, output: usize) -> Edge {
        Edge { node, output, leaf: None }
    }

    /// Whether both lead to the same result.
    pub(super) fn is_same(&self, other: &Edge) -> bool {
        Arc::ptr_eq(&self.node, &other.node) && self.output == other.output
    }

    /// The edge that takes its place in a backward pass that started at `now`. `None` if no gradient flows there.
    pub(super) fn resolved(&self, now: u64) -> Option<&Edge> {
        match self.node.function.expanded() {
            // Hooks belong to the call itself.
            Some(expanded) if expanded.at < now && self.node.hooks().is_empty() => {
                expanded.results[self.output].as_ref()
            }
            Some(_) | None => Some(self),
        }
    }

    /// The leaf that it leads to.
    pub(super) fn leaf(&self) -> Option<&Tensor> {
        self.leaf.as_ref()
    }

    /// The edge to a leaf, whose gradients `node` accumulates.
    pub(super) fn to_leaf(node: Arc<Node>, leaf: &Tensor) -> Edge {
        Edge { node, output: 0, leaf: Some(leaf.clone()) }
    }
}

/// The type and device of a result. Its gradient must match.
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

/// The number of nodes that run after all others.
const LAST: u64 = 0;

/// A recorded call.
pub(crate) struct Node {
    /// Later calls have larger numbers, so descending order is a topological order of the backward pass.
    pub(crate) sequence: u64,
    pub(crate) function: Box<dyn Backward>,
    pub(crate) next: SmallVec<[Option<Edge>; 2]>,
    pub(crate) results: SmallVec<[ResultType; 1]>,
    /// Where the call stands, if anomalies were detected then.
    pub(super) origin: Option<Box<Origin>>,
    hooks: Mutex<Vec<(usize, Hook)>>,
}

impl Node {
    /// A node for a new call with these results.
    pub(crate) fn new(
        function: Box<dyn Backward>,
        next: SmallVec<[Option<Edge>; 2]>,
        results: &[&Tensor],
    ) -> Arc<Node> {
        let (sequence, origin) = (reserve(1), Origin::of(results));
        let results = results.iter().map(|result| ResultType::of(result)).collect();
        Arc::new(Node { sequence, function, next, results, origin, hooks: Mutex::default() })
    }

    /// A node for a call with a number that was reserved.
    pub(super) fn numbered(
        sequence: u64,
        function: Box<dyn Backward>,
        next: SmallVec<[Option<Edge>; 2]>,
        results: SmallVec<[ResultType; 1]>,
    ) -> Arc<Node> {
        Arc::new(Node { sequence, function, next, results, origin: None, hooks: Mutex::default() })
    }

    /// Whether it accumulates the gradients of a leaf.
    pub(super) fn is_leaf(&self) -> bool {
        self.sequence == LAST
    }

    /// A node that runs after all others: it accumulates the gradients of a leaf.
    pub(super) fn last(function: Box<dyn Backward>, result: ResultType) -> Arc<Node> {
        Node::numbered(LAST, function, SmallVec::new(), SmallVec::from_iter([result]))
    }

    /// The hooks on the gradients of its results, each with the index of its result.
    pub(super) fn hooks(&self) -> MutexGuard<'_, Vec<(usize, Hook)>> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What takes the place of the formula of a node that is being dropped.
struct Gone;

impl Backward for Gone {
    fn name(&self) -> String {
        "a dropped call".into()
    }

    fn apply(&self, _: Vec<Option<Tensor>>, _: &BackwardCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Err(Error::Internal { message: "a dropped call was asked for gradients".into() })
    }
}

/// What a node keeps alive: its formula with the values that it saved, whose edges lead to other nodes, and its own
/// edges.
type Held = (Box<dyn Backward>, SmallVec<[Option<Edge>; 2]>);

/// Drops of nodes on this thread that wait for the end of another drop.
struct Waiting {
    is_dropping: Cell<bool>,
    held: RefCell<Vec<Held>>,
}

thread_local! {
    static WAITING: Waiting = const { Waiting { is_dropping: Cell::new(false), held: RefCell::new(Vec::new()) } };
}

/// Says that no drop is in progress any more, also if one has panicked.
struct Dropping<'a>(&'a Waiting);

impl Drop for Dropping<'_> {
    fn drop(&mut self) {
        self.0.is_dropping.set(false);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Dropped in a loop, not by recursion, which a long chain of calls would make too deep.
        let held: Held = (std::mem::replace(&mut self.function, Box::new(Gone)), std::mem::take(&mut self.next));
        let mut held = Some(held);
        let done = WAITING.try_with(|waiting| {
            if waiting.is_dropping.replace(true) {
                waiting.held.borrow_mut().extend(held.take());
                return;
            }
            let _dropping = Dropping(waiting);
            while let Some(next) = held.take() {
                drop(next);
                held = waiting.held.borrow_mut().pop();
            }
        });
        // A thread that ends may have lost its list. Then what is held is dropped here.
        drop((done, held));
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.function.name(), self.sequence)
    }
}

/// A recorded call, as the `grad_fn` of the tensor that it computed.
#[derive(Clone)]
pub struct GradFn(pub(crate) Edge);

impl GradFn {
    /// The name of the backward formula, such as `MulBackward`.
    pub fn name(&self) -> String {
        self.0.node.function.name()
    }

    /// The recorded calls that computed the operands. `None` where no gradient flows.
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
