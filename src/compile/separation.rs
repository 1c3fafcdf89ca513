//! Keeps results apart that must not share memory.
//!
//! The values of a graph are immutable, so passes merge equal values and remove copies. Tensors are mutable: results
//! that were separate in the function must stay separate, or a write to one would change another. The results that
//! would share memory are known when the graph is built. They are copied after each run, before any write.

use crate::device::Shared;
use crate::eager::{self, Argument};
use crate::error::Result;
use crate::ir::{Attr, Attrs, Graph, NodeId, NodeKind, Op};
use crate::runtime::Array;
use crate::transforms::tracer::Owner;

/// The outputs to copy, in groups that share memory.
#[derive(Debug, Default)]
pub(super) struct Separation(Vec<Vec<usize>>);

impl Separation {
    /// The copies for a graph whose outputs have these owners. The inputs `own` are memory of the run.
    pub(super) fn of(graph: &Graph, owners: &[Owner], own: &[usize]) -> Separation {
        // The values whose memory an output uses, with the owner of that output.
        let mut taken: Vec<(NodeId, Owner)> = Vec::new();
        let mut groups: Vec<(NodeId, Owner, Vec<usize>)> = Vec::new();
        for (output, (&node, &owner)) in graph.outputs().iter().zip(owners).enumerate() {
            if owner == Owner::Anyone {
                continue;
            }
            let root = graph.view_base(node);
            let taken_by = || taken.iter().find(|(taken, _)| *taken == root).map(|(_, owner)| *owner);
            let input = input_behind(graph, node).filter(|input| !own.contains(input));
            let has = input.map(Owner::Input).or_else(taken_by);
            if has.is_none_or(|has| has == owner) {
                taken.push((root, owner));
                continue;
            }
            match groups.iter_mut().find(|(of, by, _)| (*of, *by) == (root, owner)) {
                Some((_, _, outputs)) => outputs.push(output),
                None => groups.push((root, owner, vec![output])),
            }
        }
        Separation(groups.into_iter().map(|(_, _, outputs)| outputs).collect())
    }

    /// Whether there is nothing to copy.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The outputs of each copy.
    pub(super) fn groups(&self) -> impl Iterator<Item = &[usize]> {
        self.0.iter().map(Vec::as_slice)
    }

    /// Makes the copies in the results of a run.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(super) fn apply(&self, results: &mut [Array]) -> Result<()> {
        for group in &self.0 {
            if let [output] = group[..] {
                let alone = Argument { array: &results[output], number: false };
                let attrs = Attrs::from_iter([Attr::None]);
                let copy = eager::run(Op::Clone, &[alone], &attrs)?;
                if copy.layout().strides == results[output].layout().strides {
                    results[output] = copy;
                    continue;
                }
            }
            let storage = results[group[0]].storage();
            let storage = Shared::new(storage.copy_to(storage.device())?);
            for &output in group {
                let (dtype, layout) = (results[output].dtype(), results[output].layout().clone());
                results[output] = Array::from_storage(storage.clone(), dtype, layout)?;
            }
        }
        Ok(())
    }
}

/// The input whose memory a value is in, if any.
pub(super) fn input_behind(graph: &Graph, node: NodeId) -> Option<usize> {
    match graph[graph.view_base(node)].kind {
        NodeKind::Input(input) => Some(input as usize),
        NodeKind::Number(_) | NodeKind::Extent(_) | NodeKind::Op(_) => None,
    }
}
