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
    /// The tensors that the calls save.
    saved: Vec<Tensor>,
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

impl Tape {
    /// The tape between operands, each with its position, and results. `None` if it has a call that cannot be copied.
    ///
    /// # Errors
    /// If the history of a view cannot be recomputed.
    pub(crate) fn between(operands: &[(usize, &Tensor)], results: &[&Tensor]) -> Result<Option<Tape>> {
        let mut ends = Vec::new();
        for (position, operand) in operands {
            ends.extend(gradient_edge(operand)?.map(|edge| (edge, *position)));
        }
        let edges = results.iter().filter_map(|result| gradient_edge(result).transpose());
        let mut tape = Tape { nodes: Vec::new(), results: edges.collect::<Result<_>>()?, ends, saved: Vec::new() };
        let mut seen = HashSet::new();
        let mut waiting: Vec<Edge> = tape.results.clone();
        while let Some(edge) = waiting.pop() {
            if tape.operand(&edge).is_some() || !seen.insert(Arc::as_ptr(&edge.node).addr()) || edge.node.is_leaf() {
                continue;
            }
            if !edge.node.function.is_copyable() {
                return Ok(None);
            }
            waiting.extend(edge.node.next.iter().flatten().cloned());
            tape.nodes.push(edge.node);
        }
        tape.nodes.sort_by_key(|node| node.sequence);
        let mut known = HashSet::new();
        let saved = &mut tape.saved;
        for node in &tape.nodes {
            node.function.each_saved(&mut |value| {
                if value.as_number().is_none() && known.insert(value.id()) {
                    saved.push(value.clone());
                }
            });
        }
        Ok(Some(tape))
    }

    /// The tensors whose values a copy needs.
    pub(crate) fn saved(&self) -> &[Tensor] {
        &self.saved
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
        let value = |value: &Tensor| {
            let missing = || Error::Internal { message: "a value that a tape saved was not kept".into() };
            values.get(&value.id()).map(Tensor::snapshot).ok_or_else(missing)
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
