//! The limit on kernel arguments, for targets whose calling convention has one.
//!
//! It is checked by an estimate before a merge, and not by a count of the kernel's arguments. Each consumer of the
//! candidate counts the parameters and tuple fields that it reads, and the arguments of the groups of its other
//! operands. If such a group has no count yet, the merge is deferred until that consumer is visited. Then the operands
//! without a count are traced back to those that have one.

use super::group_records::GroupRecords;
use super::pattern_graph::{PatternGraph, Users, Vertex, VertexKind};
use smallvec::SmallVec;
use std::collections::HashMap;

/// The answer of the limit to merging a vertex forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Merge it now.
    Fits,
    /// Ask again when this consumer is visited.
    AskAgainAt(Vertex),
    /// Do not merge it.
    TooMany,
}

/// The limit and the merges that it deferred.
#[derive(Debug)]
pub struct ArgumentLimit {
    max: usize,
    deferred: HashMap<Vertex, Vec<Vertex>>,
}

impl ArgumentLimit {
    /// A limit of `max` arguments, outputs included. Sets each vertex's own count in `groups`.
    pub fn new(max: usize, graph: &PatternGraph, groups: &mut GroupRecords) -> Self {
        for vertex in graph.vertices() {
            let n_args = match graph.facts(vertex).kind {
                VertexKind::Op | VertexKind::Tuple => {
                    graph.inputs(vertex).iter().map(|i| n_args(graph, i.vertex)).sum()
                }
                VertexKind::Param | VertexKind::Constant | VertexKind::TupleGet => 0,
            };
            groups.count_args(vertex, n_args);
        }
        ArgumentLimit { max, deferred: HashMap::new() }
    }

    /// Whether `vertex` may be merged forward.
    pub fn ask(&self, graph: &PatternGraph, users: &Users, groups: &mut GroupRecords, vertex: Vertex) -> Answer {
        let Some(room) = self.room(graph, users, vertex) else { return Answer::Fits };
        let mut uncounted = None;
        for user in users.of_vertex(vertex) {
            let (n_args, open) = counted(graph, groups, user.vertex);
            if n_args > room {
                return Answer::TooMany;
            }
            uncounted = open.then_some(user.vertex).or(uncounted);
        }
        uncounted.map_or(Answer::Fits, Answer::AskAgainAt)
    }

    /// Defers merging `vertex` to the visit of `consumer`.
    pub fn defer(&mut self, vertex: Vertex, consumer: Vertex) {
        self.deferred.entry(consumer).or_default().push(vertex);
    }

    /// The merges that were deferred to the visit of `consumer`, if its arguments fit now, else none.
    pub fn due(
        &mut self,
        graph: &PatternGraph,
        users: &Users,
        groups: &mut GroupRecords,
        consumer: Vertex,
    ) -> Vec<Vertex> {
        let Some(vertices) = self.deferred.remove(&consumer) else { return Vec::new() };
        let room = self.room(graph, users, consumer);
        let fits = room.is_none_or(|room| traced(graph, groups, consumer) <= room);
        if fits { vertices } else { Vec::new() }
    }

    /// The arguments that are left after the outputs. `None` if there are none left, which by convention means no
    /// limit.
    fn room(&self, graph: &PatternGraph, users: &Users, vertex: Vertex) -> Option<usize> {
        let outputs = users.of_vertex(vertex).iter().map(|user| {
            let n_unknown = graph.facts(user.vertex).n_unknown as usize;
            user.n_edges as usize * (1 + n_unknown)
        });
        self.max.checked_sub(outputs.sum()).filter(|&room| room > 0)
    }
}

/// The arguments for reading `input`: itself and, if its shape is not fully known, sizes and strides.
fn n_args(graph: &PatternGraph, input: Vertex) -> u32 {
    let facts = graph.facts(input);
    match facts.kind {
        VertexKind::Param | VertexKind::TupleGet if facts.n_unknown > 0 => 1 + facts.n_unknown + facts.rank,
        VertexKind::Param | VertexKind::TupleGet => 1,
        VertexKind::Constant | VertexKind::Op | VertexKind::Tuple => 0,
    }
}

/// The operands of `consumer` in other groups, without parameters: the first of each group, and the group.
fn operands(graph: &PatternGraph, groups: &mut GroupRecords, consumer: Vertex) -> SmallVec<[(Vertex, Vertex); 8]> {
    let own = groups.find(consumer);
    let mut operands: SmallVec<[(Vertex, Vertex); 8]> = SmallVec::new();
    for input in graph.inputs(consumer) {
        if graph.facts(input.vertex).kind == VertexKind::Param {
            continue;
        }
        let group = groups.find(input.vertex);
        if group != own && operands.iter().all(|&(_, seen)| seen != group) {
            operands.push((input.vertex, group));
        }
    }
    operands
}

/// The arguments of `consumer` with all operand groups merged into it, and whether one of these has no count yet.
fn counted(graph: &PatternGraph, groups: &mut GroupRecords, consumer: Vertex) -> (usize, bool) {
    let mut total = groups.own(consumer).n_args as usize;
    let mut uncounted = false;
    for (_, group) in operands(graph, groups, consumer) {
        let n_args = groups.own(group).n_args;
        total += n_args as usize;
        uncounted |= n_args == 0;
    }
    (total, uncounted)
}

/// The arguments of `consumer`, where operands without a count are traced back to those that have one.
///
/// An operand that is reached twice counts twice. The explicit stack and the memo keep long and diamond-shaped
/// histories cheap.
fn traced(graph: &PatternGraph, groups: &mut GroupRecords, consumer: Vertex) -> usize {
    let mut memo: HashMap<Vertex, usize> = HashMap::new();
    let mut stack = vec![consumer];
    while let Some(&vertex) = stack.last() {
        let mut total = groups.own(vertex).n_args as usize;
        let before = stack.len();
        for (operand, group) in operands(graph, groups, vertex) {
            match (groups.own(group).n_args, memo.get(&operand)) {
                (0, None) => stack.push(operand),
                (0, Some(&n_args)) => total = total.saturating_add(n_args),
                (n_args, _) => total = total.saturating_add(n_args as usize),
            }
        }
        if stack.len() == before {
            memo.insert(vertex, total);
            stack.pop();
        }
    }
    memo[&consumer]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fusion::pattern_graph::VertexFacts;
    use crate::ir::Pattern;

    #[test]
    fn uncounted_operands_are_traced_back() {
        let mut graph = PatternGraph::default();
        let shaped = VertexFacts { rank: 2, n_unknown: 1, ..VertexFacts::param() };
        let x = graph.add(shaped, &[]);
        let y = graph.add(VertexFacts::param(), &[]);
        let a = graph.add_op(Pattern::Elemwise, &[x]);
        let b = graph.add_op(Pattern::Elemwise, &[a, y]);
        let c = graph.add_op(Pattern::Elemwise, &[a]);
        let d = graph.add_op(Pattern::Elemwise, &[c, b]);
        let mut groups = GroupRecords::singletons(&graph);
        let limit = ArgumentLimit::new(5, &graph, &mut groups);
        assert_eq!((groups.own(a).n_args, groups.own(b).n_args, groups.own(c).n_args), (4, 1, 0));
        assert_eq!(counted(&graph, &mut groups, d), (1, true));
        assert_eq!(traced(&graph, &mut groups, d), 5);
        let users = Users::of(&graph);
        assert_eq!(limit.ask(&graph, &users, &mut groups, b), Answer::AskAgainAt(d));
        assert_eq!(limit.ask(&graph, &users, &mut groups, a), Answer::TooMany);
    }
}
