//! A topological order of a graph, maintained while its vertices are merged.
//!
//! A merge closes a cycle if a path leaves the merged vertices and returns. The order limits the search for such a path
//! to positions between them. After a merge, only vertices between them that reach one, or are reached from one, move
//! (Pearce and Kelly, "A Dynamic Topological Sort Algorithm for Directed Acyclic Graphs", 2006). The order of nodes in
//! the graph is not enough: a kernel may have an early result that is read early, and a late one that waits.
//!
//! Vertices are numbers, and edges are given as functions. Nothing here knows what a vertex is.

use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

/// The position of each vertex in the order, by its number.
#[derive(Debug, Default)]
pub(super) struct TopologicalOrder {
    position: Vec<u32>,
}

impl TopologicalOrder {
    /// An order of the vertices `0..n`. `predecessors` lists each vertex once, `successors` may repeat one.
    pub(super) fn of<S: Iterator<Item = u32>>(
        n: u32,
        predecessors: impl Fn(u32) -> Vec<u32>,
        successors: impl Fn(u32) -> S,
    ) -> TopologicalOrder {
        let mut waits: Vec<usize> = (0..n).map(|vertex| predecessors(vertex).len()).collect();
        let mut ready: BTreeSet<u32> = (0..n).filter(|&vertex| waits[vertex as usize] == 0).collect();
        let mut position = vec![0; waits.len()];
        let mut next_position = 0;
        while let Some(vertex) = ready.pop_first() {
            position[vertex as usize] = next_position;
            next_position += 1;
            let next: BTreeSet<u32> = successors(vertex).collect();
            for next in next {
                waits[next as usize] -= 1;
                if waits[next as usize] == 0 {
                    ready.insert(next);
                }
            }
        }
        TopologicalOrder { position }
    }

    fn at(&self, vertex: u32) -> u32 {
        self.position[vertex as usize]
    }

    /// The first and the last position of some vertices.
    fn window(&self, members: &[u32]) -> (u32, u32) {
        let positions = || members.iter().map(|&member| self.at(member));
        (positions().min().unwrap_or(0), positions().max().unwrap_or(0))
    }

    /// Whether a path leaves the members and returns. Merging them would then close a cycle.
    pub(super) fn leaves_and_returns<S: Iterator<Item = u32>>(
        &self,
        members: &[u32],
        successors: impl Fn(u32) -> S,
    ) -> bool {
        let (_, last) = self.window(members);
        let mut seen: FxHashSet<u32> = FxHashSet::default();
        let mut stack: Vec<u32> = members.iter().flat_map(|&member| successors(member)).collect();
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
    pub(super) fn contract<S: Iterator<Item = u32>>(
        &mut self,
        members: &[u32],
        merged: u32,
        predecessors: impl Fn(u32) -> Vec<u32>,
        successors: impl Fn(u32) -> S,
    ) {
        let (first, last) = self.window(members);
        let after = self.reached(members, |vertex| successors(vertex).collect(), |position| position < last);
        let before = self.reached(members, predecessors, |position| position > first);
        let all = members.iter().chain(&before).chain(&after);
        let mut positions: Vec<u32> = all.map(|&vertex| self.at(vertex)).collect();
        positions.sort_unstable();
        let (n_before, n_after, n_positions) = (before.len(), after.len(), positions.len());
        for (vertex, &position) in before.into_iter().zip(&positions) {
            self.position[vertex as usize] = position;
        }
        for (vertex, &position) in after.into_iter().zip(&positions[n_positions - n_after..]) {
            self.position[vertex as usize] = position;
        }
        self.position[merged as usize] = positions[n_before];
    }

    /// The vertices other than the members that are reached from them through positions `inside`, in order.
    fn reached(&self, members: &[u32], next: impl Fn(u32) -> Vec<u32>, inside: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut seen: FxHashSet<u32> = FxHashSet::default();
        let mut stack: Vec<u32> = members.iter().flat_map(|&member| next(member)).collect();
        while let Some(vertex) = stack.pop() {
            if inside(self.at(vertex)) && !members.contains(&vertex) && seen.insert(vertex) {
                stack.extend(next(vertex));
            }
        }
        let mut found: Vec<u32> = seen.into_iter().collect();
        found.sort_unstable_by_key(|&vertex| self.at(vertex));
        found
    }
}
