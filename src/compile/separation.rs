//! Results that must not share their elements.
//!
//! Values of a graph are not written to, so passes make one of equal ones, and none of a copy. Tensors are: what was
//! apart in the function stays apart in its results, or a write to one of them would change another. Which results of a
//! graph would share memory is known when it is built; those are copied after each run, before anything is written.

use crate::device::Shared;
use crate::eager::{self, Argument};
use crate::error::Result;
use crate::ir::{Attr, Attrs, Graph, NodeId, NodeKind, Op};
use crate::runtime::Array;
use crate::transforms::tracer::Owner;

/// The outputs to be copied, in groups that share their elements.
#[derive(Debug, Default)]
pub(super) struct Separation(Vec<Vec<usize>>);

impl Separation {
    /// What is to be done for a graph whose outputs have these owners, one for each.
    pub(super) fn of(graph: &Graph, owners: &[Owner]) -> Separation {
        // The value whose memory an output lies in, and who has it.
        let mut taken: Vec<(NodeId, Owner)> = Vec::new();
        let mut groups: Vec<(NodeId, Owner, Vec<usize>)> = Vec::new();
        for (output, (&node, &owner)) in graph.outputs().iter().zip(owners).enumerate() {
            if owner == Owner::Anyone || graph[node].ty.numel() == 0 {
                continue;
            }
            let root = graph.view_base(node);
            let taken_by = || taken.iter().find(|(taken, _)| *taken == root).map(|(_, owner)| *owner);
            let has = input_behind(graph, node).map(Owner::Input).or_else(taken_by);
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
    pub(super) fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }

    /// Copies what has to be, in the results of a run.
    ///
    /// # Errors
    /// If there is no memory.
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

/// The input whose memory a value lies in, if it does.
pub(super) fn input_behind(graph: &Graph, node: NodeId) -> Option<usize> {
    match graph[graph.view_base(node)].kind {
        NodeKind::Input(input) => Some(input as usize),
        NodeKind::Number(_) | NodeKind::Extent(_) | NodeKind::Op(_) => None,
    }
}
