//! Refusals: the reasons why units were not merged. Merge steps record them, and the plan reads them.

use super::unit::UnitId;
use crate::error::Reason;
use crate::ir::NodeId;
use rustc_hash::FxHashMap;

/// The reasons why pairs of units were not merged.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    reasons: FxHashMap<(UnitId, UnitId), Reason>,
    /// The pairs of each unit, to find them when the unit changes.
    pairs: FxHashMap<UnitId, Vec<(UnitId, UnitId)>>,
    /// Why two nodes are not in one group in blocks of rows.
    edges: FxHashMap<(NodeId, NodeId), Reason>,
}

impl Refusals {
    /// Why `producer` was not merged into `consumer`, if that was tried.
    pub(super) fn get(&self, producer: UnitId, consumer: UnitId) -> Option<&Reason> {
        self.reasons.get(&(producer, consumer))
    }

    /// Why two nodes are not in one group in blocks of rows, if one of them is in such a group or is a product.
    pub(super) fn edge(&self, producer: NodeId, consumer: NodeId) -> Option<&Reason> {
        self.edges.get(&(producer, consumer))
    }

    pub(super) fn insert_edge(&mut self, producer: NodeId, consumer: NodeId, reason: &Reason) {
        self.edges.entry((producer, consumer)).or_insert_with(|| reason.clone());
    }

    pub(super) fn insert(&mut self, producer: UnitId, consumer: UnitId, reason: Reason) {
        self.reasons.insert((producer, consumer), reason);
        for unit in [producer, consumer] {
            self.pairs.entry(unit).or_default().push((producer, consumer));
        }
    }

    /// Forgets the pairs of a unit that has changed, because they may be merged now.
    pub(super) fn forget(&mut self, unit: UnitId) {
        for pair in self.pairs.remove(&unit).unwrap_or_default() {
            self.reasons.remove(&pair);
        }
    }
}
