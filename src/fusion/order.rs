//! A topological order of a graph, maintained while its vertices are merged.
//!
//! A merge closes a cycle if a path leaves the merged vertices and returns. The order limits the search for such a path
//! to positions between them. After a merge, only vertices between them that reach one, or are reached from one, move
//! (Pearce and Kelly, "A Dynamic Topological Sort Algorithm for Directed Acyclic Graphs", 2006). The order of nodes in
//! the graph is not enough: a kernel may have an early result that is read early, and a late one that waits.
//!
//! Vertices are units, and edges are given as functions. Nothing here looks into a unit.

use super::unit::UnitId;
use crate::ir::SideTable;
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

/// The position of each vertex in the order.
#[derive(Debug, Default)]
pub(super) struct TopologicalOrder {
    position: SideTable<UnitId, u32>,
}

impl TopologicalOrder {
    /// An order of the first `n` vertices. `predecessors` lists each vertex once, `successors` may repeat one.
    pub(super) fn of<S: Iterator<Item = UnitId>>(
        n: usize,
        predecessors: impl Fn(UnitId) -> Vec<UnitId>,
        successors: impl Fn(UnitId) -> S,
    ) -> TopologicalOrder {
        let vertices = || (0..n).map(UnitId::new);
        let mut waits: SideTable<UnitId, usize> = vertices().map(|vertex| predecessors(vertex).len()).collect();
        let mut ready: BTreeSet<UnitId> = vertices().filter(|&vertex| waits[vertex] == 0).collect();
        let mut position = SideTable::with_len(n, || 0);
        let mut next_position = 0;
        while let Some(vertex) = ready.pop_first() {
            position[vertex] = next_position;
            next_position += 1;
            let next: BTreeSet<UnitId> = successors(vertex).collect();
            for next in next {
                waits[next] -= 1;
                if waits[next] == 0 {
                    ready.insert(next);
                }
            }
        }
        TopologicalOrder { position }
    }

    fn at(&self, vertex: UnitId) -> u32 {
        self.position[vertex]
    }

    /// The first and the last position of some vertices.
    fn window(&self, members: &[UnitId]) -> (u32, u32) {
        let positions = || members.iter().map(|&member| self.at(member));
        (positions().min().unwrap_or(0), positions().max().unwrap_or(0))
    }

    /// Whether a path leaves the members and returns. Merging them would then close a cycle.
    pub(super) fn leaves_and_returns<S: Iterator<Item = UnitId>>(
        &self,
        members: &[UnitId],
        successors: impl Fn(UnitId) -> S,
    ) -> bool {
        let (_, last) = self.window(members);
        let mut seen: FxHashSet<UnitId> = FxHashSet::default();
        let mut stack: Vec<UnitId> = members.iter().flat_map(|&member| successors(member)).collect();
        stack.retain(|next| !members.contains(next));
        while let Some(vertex) = stack.pop() {
            if self.at(vertex) > last || !seen.insert(vertex) {
                continue;
            }
            for next in successors(vertex) {
                if members.contains(&next) {
                    return true;
                }
                stack.push(next);
            }
        }
        false
    }

    /// Moves the members to one position, that of the vertex `merged`, which is one of them. No path may leave them and
    /// return.
    pub(super) fn contract<S: Iterator<Item = UnitId>>(
        &mut self,
        members: &[UnitId],
        merged: UnitId,
        predecessors: impl Fn(UnitId) -> Vec<UnitId>,
        successors: impl Fn(UnitId) -> S,
    ) {
        let (first, last) = self.window(members);
        let after = self.reached(members, |vertex| successors(vertex).collect(), |position| position < last);
        let before = self.reached(members, predecessors, |position| position > first);
        let all = members.iter().chain(&before).chain(&after);
        let mut positions: Vec<u32> = all.map(|&vertex| self.at(vertex)).collect();
        positions.sort_unstable();
        let (n_before, n_after, n_positions) = (before.len(), after.len(), positions.len());
        for (vertex, &position) in before.into_iter().zip(&positions) {
            self.position[vertex] = position;
        }
        for (vertex, &position) in after.into_iter().zip(&positions[n_positions - n_after..]) {
            self.position[vertex] = position;
        }
        self.position[merged] = positions[n_before];
    }

    /// The vertices other than the members that are reached from them through positions `inside`, in order.
    fn reached(
        &self,
        members: &[UnitId],
        next: impl Fn(UnitId) -> Vec<UnitId>,
        inside: impl Fn(u32) -> bool,
    ) -> Vec<UnitId> {
        let mut seen: FxHashSet<UnitId> = FxHashSet::default();
        let mut stack: Vec<UnitId> = members.iter().flat_map(|&member| next(member)).collect();
        while let Some(vertex) = stack.pop() {
            if inside(self.at(vertex)) && !members.contains(&vertex) && seen.insert(vertex) {
                stack.extend(next(vertex));
            }
        }
        let mut found: Vec<UnitId> = seen.into_iter().collect();
        found.sort_unstable_by_key(|&vertex| self.at(vertex));
        found
    }
}
