//! Refusals: why units stayed apart, noted while they are merged and read by the plan.

use crate::error::Reason;
use crate::ir::NodeId;
use rustc_hash::FxHashMap;

/// Why two units stayed apart, for the edges between them.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    reasons: FxHashMap<(u32, u32), Reason>,
    /// The pairs that each unit is part of, so that they are found when it changes.
    pairs: FxHashMap<u32, Vec<(u32, u32)>>,
    /// Why two nodes are not in one group of blocks.
    edges: FxHashMap<(NodeId, NodeId), Reason>,
}

impl Refusals {
    /// The reason why `producer` was not merged into `consumer`, if that was tried.
    pub(super) fn get(&self, producer: u32, consumer: u32) -> Option<&Reason> {
        self.reasons.get(&(producer, consumer))
    }

    /// The reason why two nodes are not in one group of blocks, if one of them is in such a group or is a product.
    pub(super) fn edge(&self, producer: NodeId, consumer: NodeId) -> Option<&Reason> {
        self.edges.get(&(producer, consumer))
    }

    pub(super) fn insert_edge(&mut self, producer: NodeId, consumer: NodeId, reason: &Reason) {
        self.edges.entry((producer, consumer)).or_insert_with(|| reason.clone());
    }

    pub(super) fn insert(&mut self, producer: u32, consumer: u32, reason: Reason) {
        self.reasons.insert((producer, consumer), reason);
        for unit in [producer, consumer] {
            self.pairs.entry(unit).or_default().push((producer, consumer));
        }
    }

    /// Forgets everything about a unit that has changed: it is another partner for everyone now.
    pub(super) fn forget(&mut self, unit: u32) {
        for pair in self.pairs.remove(&unit).unwrap_or_default() {
            self.reasons.remove(&pair);
        }
    }
}
