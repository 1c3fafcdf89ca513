//! Tapes of abstract traces.
//!
//! While a function is captured, its calls are recorded on a tape as in an eager call, but over tensors without
//! elements. If a backward pass through the compiled function is itself recorded, a copy of that tape takes the place
//! of the compiled backward pass, with the values of the call. So higher derivatives have eager's bits: the same
//! formulas run in the same order, whatever the function wrote to or left out.

use crate::autograd::meta::gradient_edge;
use crate::autograd::node::{Edge, Node};
use crate::error::{Error, Result};
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The tape of a function that was captured.
pub(crate) struct Tape {
    /// The recorded calls, the oldest first.
    nodes: Vec<Arc<Node>>,
    /// The edges of the differentiable results.
    results: Vec<Edge>,
    /// The edges of the operands, at which the tape ends, and the positions of the operands.
    ends: Vec<(Edge, usize)>,
    /// The tensors and numbers that the calls save.
    saved: Vec<Tensor>,
    /// The calls that save tensors and that a gradient of each result runs through.
    saving_behind: Vec<CallSet>,
    /// Whether the gradients of the operands are linear in those of the results.
    is_linear: bool,
}

/// A set of recorded calls of a tape, a bit for each.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct CallSet(Vec<u64>);

impl CallSet {
    fn insert(&mut self, call: usize) {
        if self.0.len() <= call / 64 {
            self.0.resize(call / 64 + 1, 0);
        }
        self.0[call / 64] |= 1 << (call % 64);
    }

    fn has(&self, call: usize) -> bool {
        self.0.get(call / 64).is_some_and(|bits| bits >> (call % 64) & 1 == 1)
    }

    /// Adds the calls of another set.
    pub(super) fn add(&mut self, other: &CallSet) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(bits, more)| *bits |= more);
    }

    /// Whether some call is in both.
    pub(super) fn meets(&self, other: &CallSet) -> bool {
        self.0.iter().zip(&other.0).any(|(bits, more)| bits & more != 0)
    }
}

/// What takes the place of the edges and values of a tape in a copy of it.
pub(crate) struct Places<'a> {
    edge: &'a dyn Fn(&Edge) -> Option<Edge>,
    value: &'a dyn Fn(&Tensor) -> Result<Tensor>,
}

impl Places<'_> {
    /// The edge in the copy.
    pub(super) fn edge(&self, edge: &Edge) -> Option<Edge> {
        (self.edge)(edge)
    }

    /// The value in the copy.
    pub(super) fn value(&self, value: &Tensor) -> Result<Tensor> {
        (self.value)(value)
    }
}

/// Of each result, which of the operands a gradient of it flows to. An operand without history is reached by none.
///
/// # Errors
/// If the history of a view cannot be recomputed.
pub(crate) fn reached(operands: &[&Tensor], results: &[&Tensor]) -> Result<Vec<Vec<bool>>> {
    let ends = operands.iter().map(|operand| gradient_edge(operand)).collect::<Result<Vec<_>>>()?;
    let from = |result: &&Tensor| {
        let mut found = vec![false; operands.len()];
        let edge = gradient_edge(result)?;
        follow(edge, |edge| {
            let at = ends.iter().position(|end| end.as_ref().is_some_and(|end| end.is_same(edge)));
            at.inspect(|&at| found[at] = true).is_some()
        });
        Ok(found)
    };
    results.iter().map(from).collect()
}

/// Whether a gradient that starts at an edge reaches a leaf.
pub(crate) fn leads_to(edge: &Edge, leaf: &Tensor) -> bool {
    let mut is_reached = false;
    follow(Some(edge.clone()), |edge| {
        is_reached |= edge.leaf().is_some_and(|other| other.is_handle_of(leaf));
        is_reached
    });
    is_reached
}

/// Follows a gradient from an edge, and asks of each edge whether it ends there.
pub(super) fn follow(from: Option<Edge>, mut ends: impl FnMut(&Edge) -> bool) {
    let mut seen = HashSet::new();
    let mut waiting: Vec<Edge> = from.into_iter().collect();
    while let Some(edge) = waiting.pop() {
        if !ends(&edge) && seen.insert(Arc::as_ptr(&edge.node).addr()) {
            waiting.extend(edge.node.next.iter().flatten().cloned());
        }
    }
}

impl Tape {
    /// The tape between operands, each with its position, and results. `None` if it has a call that cannot be copied.
    ///
    /// # Errors
    /// If the history of a view cannot be recomputed. If a backward pass of the function itself would fail: a saved
    /// value was written to, or freed. That counts where no gradient reaches an operand, too.
    pub(crate) fn between(operands: &[(usize, &Tensor)], results: &[&Tensor]) -> Result<Option<Tape>> {
        let mut ends = Vec::new();
        for (position, operand) in operands {
            ends.extend(gradient_edge(operand)?.map(|edge| (edge, *position)));
        }
        let edges = results.iter().filter_map(|result| gradient_edge(result).transpose());
        let mut tape = Tape {
            nodes: Vec::new(),
            results: edges.collect::<Result<_>>()?,
            ends,
            saved: Vec::new(),
            saving_behind: Vec::new(),
            is_linear: true,
        };
        let mut seen = HashSet::new();
        let mut is_copyable = true;
        let mut waiting: Vec<Edge> = tape.results.clone();
        while let Some(edge) = waiting.pop() {
            if tape.operand(&edge).is_some() || !seen.insert(Arc::as_ptr(&edge.node).addr()) || edge.node.is_leaf() {
                continue;
            }
            edge.node.function.check_backward(&edge.node)?;
            is_copyable &= edge.node.function.is_copyable();
            tape.is_linear &= edge.node.function.is_linear() && edge.node.hooks().is_empty();
            waiting.extend(edge.node.next.iter().flatten().cloned());
            tape.nodes.push(edge.node);
        }
        if !is_copyable {
            return Ok(None);
        }
        tape.nodes.sort_by_key(|node| node.sequence);
        let mut known = HashSet::new();
        let saved = &mut tape.saved;
        for node in &tape.nodes {
            node.function.each_saved(&mut |value| {
                if known.insert(value.id()) {
                    saved.push(value.clone());
                }
            });
        }
        tape.find_saving();
        Ok(Some(tape))
    }

    /// Finds the calls that save tensors and that a gradient of each result runs through.
    fn find_saving(&mut self) {
        let address = |node: &Arc<Node>| Arc::as_ptr(node).addr();
        let numbers: HashMap<usize, usize> = self.nodes.iter().map(address).zip(0..).collect();
        let saves = |node: &Arc<Node>| {
            let mut saves = false;
            node.function.each_saved(&mut |value| saves |= value.as_number().is_none());
            saves
        };
        let saves: Vec<bool> = self.nodes.iter().map(saves).collect();
        let behind = |result: &Edge| {
            let (mut seen, mut found) = (CallSet::default(), CallSet::default());
            let number = |edge: &Edge| match self.operand(edge) {
                Some(_) => None,
                None => numbers.get(&address(&edge.node)).copied(),
            };
            let mut waiting: Vec<usize> = number(result).into_iter().collect();
            while let Some(call) = waiting.pop() {
                if !seen.has(call) {
                    seen.insert(call);
                    waiting.extend(self.nodes[call].next.iter().flatten().filter_map(number));
                }
                if saves[call] {
                    found.insert(call);
                }
            }
            found
        };
        self.saving_behind = self.results.iter().map(behind).collect();
    }

    /// Whether no gradient can run through any more, after these calls were freed.
    pub(super) fn is_spent(&self, freed: &CallSet) -> bool {
        self.saving_behind.iter().all(|calls| calls.meets(freed))
    }

    /// The calls that save tensors and that a gradient of this result runs through.
    pub(super) fn saving_behind(&self, result: usize) -> &CallSet {
        &self.saving_behind[result]
    }

    /// The tensors whose values a copy needs. It needs those of numbers that are others in each call.
    pub(crate) fn saved(&self) -> &[Tensor] {
        &self.saved
    }

    /// Whether the gradients of the operands are linear in those of the results. Derivatives and hooks of users may do
    /// anything.
    pub(super) fn is_linear(&self) -> bool {
        self.is_linear
    }

    /// The number of recorded calls.
    pub(super) fn n_calls(&self) -> usize {
        self.nodes.len()
    }

    fn operand(&self, edge: &Edge) -> Option<usize> {
        self.ends.iter().find(|(end, _)| end.is_same(edge)).map(|(_, position)| *position)
    }

    /// A copy with the edges of real operands and the real values of the saved tensors, by id. Its calls have the
    /// sequence numbers from `first` on. Returns the edges of the results.
    ///
    /// # Errors
    /// If a saved value is missing.
    pub(super) fn copy(
        &self,
        operands: &[Option<Edge>],
        values: &HashMap<u64, Tensor>,
        first: u64,
    ) -> Result<Vec<Option<Edge>>> {
        let mut copies: HashMap<usize, Arc<Node>> = HashMap::new();
        let value = |value: &Tensor| match (values.get(&value.id()), value.as_number()) {
            (Some(value), _) => Ok(value.snapshot()),
            // A number that the function has is the same in each call.
            (None, Some(number)) => Tensor::number(number),
            (None, None) => Err(Error::Internal { message: "a value that a tape saved was not kept".into() }),
        };
        for (node, sequence) in self.nodes.iter().zip(first..) {
            let edge = |edge: &Edge| self.copied(edge, operands, &copies);
            let function = node.function.copy(&Places { edge: &edge, value: &value })?;
            let next: SmallVec<[Option<Edge>; 2]> = node.next.iter().map(|next| next.as_ref().and_then(edge)).collect();
            let copy = Node::numbered(sequence, function, next, node.results.clone());
            copy.hooks().extend(node.hooks().iter().cloned());
            copies.insert(Arc::as_ptr(node).addr(), copy);
        }
        Ok(self.results.iter().map(|edge| self.copied(edge, operands, &copies)).collect())
    }

    fn copied(&self, edge: &Edge, operands: &[Option<Edge>], copies: &HashMap<usize, Arc<Node>>) -> Option<Edge> {
        match self.operand(edge) {
            Some(operand) => operands[operand].clone(),
            // A leaf that the function made has no copy.
            None => copies.get(&Arc::as_ptr(&edge.node).addr()).map(|node| Edge::new(node.clone(), edge.output)),
        }
    }
}
