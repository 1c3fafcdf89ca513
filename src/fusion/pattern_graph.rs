//! The graph of the partitioner: patterns and edges, no operators.
//!
//! Vertices are numbered in the order in which they are added, and inputs are added before their users. So a forward
//! loop over [`PatternGraph::vertices`] visits producers first, and a backward loop visits users first. Edges are
//! stored flat. Deliberately absent: operators, dtypes and sizes. Legality follows from patterns alone, except that the
//! argument limit counts ranks and unknown dimensions.

use crate::ir::entity::{Arena, entity_id};
use crate::ir::{Pattern, SideTable};
use std::ops::Range;

entity_id! {
    /// Names a vertex of a [`PatternGraph`]; prints as `v7`.
    pub struct Vertex(u32) = "v";
}

/// The kind of a vertex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VertexKind {
    /// A parameter of the graph.
    Param,
    /// A constant.
    Constant,
    /// A call.
    Op,
    /// A tuple of values.
    Tuple,
    /// One field of a tuple.
    TupleGet,
}

/// The facts about one vertex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VertexFacts {
    /// Its kind.
    pub kind: VertexKind,
    /// How its result relates to its inputs.
    pub pattern: Pattern,
    /// Whether the value is used by others than the listed users, as an output or a parameter is.
    pub visible: bool,
    /// The number of dimensions, for the argument limit.
    pub rank: u32,
    /// How many of them are unknown, for the argument limit.
    pub n_unknown: u32,
}

impl VertexFacts {
    /// A computed value that only its users read.
    pub const fn op(pattern: Pattern) -> Self {
        VertexFacts { kind: VertexKind::Op, pattern, visible: false, rank: 0, n_unknown: 0 }
    }

    /// A parameter of the graph.
    pub const fn param() -> Self {
        VertexFacts { kind: VertexKind::Param, pattern: Pattern::Opaque, visible: true, rank: 0, n_unknown: 0 }
    }
}

/// One input of a vertex: the producer and the pattern of the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input {
    /// The producer.
    pub vertex: Vertex,
    /// How the user's result relates to this input.
    pub pattern: Pattern,
}

/// A dataflow graph of patterns.
#[derive(Debug, Clone, Default)]
pub struct PatternGraph {
    facts: Arena<Vertex, VertexFacts>,
    /// `inputs[input_ends[v - 1]..input_ends[v]]` are the inputs of `v`.
    input_ends: Vec<u32>,
    inputs: Vec<Input>,
}

impl PatternGraph {
    /// An empty graph with room for `n` vertices.
    pub fn with_capacity(n: usize) -> Self {
        PatternGraph {
            facts: Arena::with_capacity(n),
            input_ends: Vec::with_capacity(n),
            inputs: Vec::with_capacity(2 * n),
        }
    }

    /// Appends a vertex. `inputs` are in argument order, and a value that is used twice is repeated.
    ///
    /// # Panics
    /// If an input has not been added yet.
    pub fn add(&mut self, facts: VertexFacts, inputs: &[(Vertex, Pattern)]) -> Vertex {
        let vertex = self.facts.push(facts);
        for &(input, pattern) in inputs {
            assert!(input < vertex, "{input} is used by {vertex} before it is added");
            self.inputs.push(Input { vertex: input, pattern });
        }
        self.input_ends.push(u32::try_from(self.inputs.len()).expect("a graph has fewer than 2^32 edges"));
        vertex
    }

    /// Appends an op whose edges all have the op's own pattern.
    pub fn add_op(&mut self, pattern: Pattern, inputs: &[Vertex]) -> Vertex {
        let edges: smallvec::SmallVec<[_; 4]> = inputs.iter().map(|&input| (input, pattern)).collect();
        self.add(VertexFacts::op(pattern), &edges)
    }

    /// Marks a value as used by others than the listed users.
    pub fn mark_visible(&mut self, vertex: Vertex) {
        self.facts[vertex].visible = true;
    }

    /// The number of vertices.
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    /// Whether there are no vertices.
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Every vertex, producers before users.
    pub fn vertices(&self) -> impl DoubleEndedIterator<Item = Vertex> + ExactSizeIterator + use<> {
        self.facts.ids()
    }

    /// The facts about `vertex`.
    pub fn facts(&self, vertex: Vertex) -> &VertexFacts {
        &self.facts[vertex]
    }

    /// The pattern of `vertex` itself.
    pub fn pattern(&self, vertex: Vertex) -> Pattern {
        self.facts[vertex].pattern
    }

    /// The inputs of `vertex`, in argument order.
    pub fn inputs(&self, vertex: Vertex) -> &[Input] {
        let end = self.input_ends[vertex.index()] as usize;
        let start = vertex.index().checked_sub(1).map_or(0, |before| self.input_ends[before] as usize);
        &self.inputs[start..end]
    }

    /// Whether a kernel could compute the vertex. Parameters, and constants that are passed as arguments, are no such
    /// vertices.
    pub fn is_groupable(&self, vertex: Vertex) -> bool {
        let facts = self.facts(vertex);
        match facts.kind {
            VertexKind::Param => false,
            VertexKind::Constant => facts.pattern != Pattern::Opaque,
            VertexKind::Op | VertexKind::Tuple | VertexKind::TupleGet => true,
        }
    }
}

/// A user of a value. A user that takes the value several times is listed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub vertex: Vertex,
    /// How many of its inputs are the value.
    pub n_edges: u32,
    /// The worst of these edges.
    pub pattern: Pattern,
}

/// The users of every vertex, in listing order.
#[derive(Debug, Clone)]
pub struct Users {
    ranges: SideTable<Vertex, Range<u32>>,
    edges: Vec<User>,
}

impl Users {
    /// Collects the users of every vertex, in linear time.
    pub fn of(graph: &PatternGraph) -> Self {
        let mut ranges: SideTable<Vertex, Range<u32>> = graph.vertices().map(|_| 0..0).collect();
        for input in &graph.inputs {
            ranges[input.vertex].end += 1;
        }
        let mut total = 0;
        for vertex in graph.vertices() {
            let range = &mut ranges[vertex];
            let room = range.end;
            // Empty for now; it grows as users are met. Repeated inputs leave a gap at the end.
            *range = total..total;
            total += room;
        }
        let mut edges = vec![User { vertex: Vertex::new(0), n_edges: 0, pattern: Pattern::Elemwise }; total as usize];
        for user in graph.vertices() {
            for &Input { vertex, pattern } in graph.inputs(user) {
                let range = &mut ranges[vertex];
                // Users come in rising order, so a repeated one is always the last one listed.
                match edges[range.start as usize..range.end as usize].last_mut() {
                    Some(last) if last.vertex == user => {
                        last.n_edges += 1;
                        last.pattern = last.pattern.max(pattern);
                    }
                    Some(_) | None => {
                        edges[range.end as usize] = User { vertex: user, n_edges: 1, pattern };
                        range.end += 1;
                    }
                }
            }
        }
        Users { ranges, edges }
    }

    /// The users of `vertex`, each once, in listing order.
    pub fn of_vertex(&self, vertex: Vertex) -> &[User] {
        let Range { start, end } = self.ranges[vertex];
        &self.edges[start as usize..end as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_listed_once_with_their_worst_edge() {
        let mut graph = PatternGraph::default();
        let x = graph.add(VertexFacts::param(), &[]);
        let a = graph.add_op(Pattern::Elemwise, &[x]);
        let edges = [(a, Pattern::Elemwise), (x, Pattern::Broadcast), (a, Pattern::Broadcast)];
        let b = graph.add(VertexFacts::op(Pattern::Broadcast), &edges);
        let users = Users::of(&graph);
        assert_eq!(users.of_vertex(a), [User { vertex: b, n_edges: 2, pattern: Pattern::Broadcast }]);
        assert_eq!(users.of_vertex(x).iter().map(|user| user.vertex).collect::<Vec<_>>(), [a, b]);
        assert_eq!(users.of_vertex(b), []);
        assert_eq!(graph.inputs(b).len(), 3);
    }

    #[test]
    #[should_panic(expected = "v1 is used by v0 before it is added")]
    fn users_cannot_precede_producers() {
        PatternGraph::default().add_op(Pattern::Elemwise, &[Vertex::new(1)]);
    }
}
