//! Post-dominators of a graph.
//!
//! Vertex `d` post-dominates `v` if every path from `v` to an output passes `d`. The nearest one is the lowest common
//! ancestor of all users of `v` in the tree of users. One backward sweep is enough, because users have larger numbers
//! than producers. An output has no post-dominator. Neither has a value whose users have no common ancestor.
//!
//! Climbing step by step would make deep graphs with long skip connections quadratic. So each vertex has one jump to a
//! far ancestor, which depends on its depth alone. A climb then takes logarithmically many steps. Every step and jump
//! has a summary of the paths that it skips. Deliberately absent: the meaning of patterns for fusion.

use super::pattern_graph::{PatternGraph, User, Users, Vertex};
use crate::ir::{Pattern, SideTable};

/// A summary of all paths from a vertex to one of its post-dominators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paths {
    /// The worst edge.
    pub edge: Pattern,
    /// The worst vertex strictly between, or elementwise if there is none.
    pub between: Pattern,
    /// The number of edges of the longest path. At least `length - 1` vertices are strictly between.
    pub length: u32,
}

impl Paths {
    const EMPTY: Paths = Paths { edge: Pattern::Elemwise, between: Pattern::Elemwise, length: 0 };

    /// These paths in sequence: this one, then `vertex`, then `next`.
    fn then(self, vertex: Pattern, next: Paths) -> Paths {
        Paths {
            edge: self.edge.max(next.edge),
            between: self.between.max(vertex).max(next.between),
            length: self.length + next.length,
        }
    }

    /// These paths in parallel.
    fn beside(self, other: Paths) -> Paths {
        Paths {
            edge: self.edge.max(other.edge),
            between: self.between.max(other.between),
            length: self.length.max(other.length),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct TreeNode {
    depth: u32,
    parent: Vertex,
    jump: Vertex,
    to_parent: Paths,
    to_jump: Paths,
}

/// The post-dominator tree of a graph.
#[derive(Debug, Clone)]
pub struct PostDominators {
    /// One per vertex, and one for `none`.
    nodes: SideTable<Vertex, TreeNode>,
    /// The common root of all trees, which stands for "none". It comes after the last vertex.
    none: Vertex,
}

impl PostDominators {
    /// Builds the tree in time `O((vertices + edges) log vertices)`.
    pub fn of(graph: &PatternGraph, users: &Users) -> Self {
        let none = Vertex::new(graph.len());
        let root = TreeNode { depth: 0, parent: none, jump: none, to_parent: Paths::EMPTY, to_jump: Paths::EMPTY };
        let mut tree = PostDominators { nodes: SideTable::with_len(graph.len() + 1, || root), none };
        for vertex in graph.vertices().rev() {
            let (parent, paths) = match users.of_vertex(vertex) {
                _ if graph.facts(vertex).visible => (none, Paths { edge: Pattern::Opaque, ..Paths::EMPTY }),
                [] => (none, Paths::EMPTY),
                users => tree.meet_all(graph, users),
            };
            tree.attach(graph, vertex, parent, paths);
        }
        tree
    }

    /// The nearest post-dominator of `vertex`, if it has one.
    pub fn parent(&self, vertex: Vertex) -> Option<Vertex> {
        Some(self.nodes[vertex].parent).filter(|&parent| parent != self.none)
    }

    /// The paths from `vertex` to its nearest post-dominator. Without one, only the edge pattern is meaningful.
    pub fn path(&self, vertex: Vertex) -> Paths {
        self.nodes[vertex].to_parent
    }

    /// The distance from the root of the tree of `vertex`. A root has depth 1.
    pub fn depth(&self, vertex: Vertex) -> u32 {
        self.nodes[vertex].depth
    }

    fn meet_all(&self, graph: &PatternGraph, users: &[User]) -> (Vertex, Paths) {
        let meeting = users[1..].iter().fold(users[0].vertex, |met, user| self.meet(met, user.vertex));
        if meeting == self.none {
            return (meeting, Paths { edge: Pattern::Opaque, ..Paths::EMPTY });
        }
        let paths = users.iter().map(|user| {
            let edge = Paths { edge: user.pattern, between: Pattern::Elemwise, length: 1 };
            match user.vertex == meeting {
                true => edge,
                false => edge.then(graph.pattern(user.vertex), self.climb(graph, user.vertex, meeting)),
            }
        });
        (meeting, paths.reduce(Paths::beside).expect("a used value has users"))
    }

    /// The lowest common ancestor.
    fn meet(&self, mut a: Vertex, mut b: Vertex) -> Vertex {
        let node = |vertex: Vertex| &self.nodes[vertex];
        if node(a).depth < node(b).depth {
            std::mem::swap(&mut a, &mut b);
        }
        let level = node(b).depth;
        while node(a).depth > level {
            a = if node(node(a).jump).depth >= level { node(a).jump } else { node(a).parent };
        }
        // Jump lengths depend on the depth alone, so both sides keep the same depth.
        while a != b {
            let apart = node(a).jump != node(b).jump;
            (a, b) = if apart { (node(a).jump, node(b).jump) } else { (node(a).parent, node(b).parent) };
        }
        a
    }

    /// The paths from a vertex to a proper ancestor.
    fn climb(&self, graph: &PatternGraph, from: Vertex, to: Vertex) -> Paths {
        let node = |vertex: Vertex| &self.nodes[vertex];
        let level = node(to).depth;
        let (mut at, mut climbed) = (from, None::<Paths>);
        while at != to {
            let jumps = node(node(at).jump).depth >= level;
            let (next, part) =
                if jumps { (node(at).jump, node(at).to_jump) } else { (node(at).parent, node(at).to_parent) };
            climbed = Some(climbed.map_or(part, |climbed| climbed.then(graph.pattern(at), part)));
            at = next;
        }
        climbed.expect("the ancestor is a proper one")
    }

    /// Makes `vertex` a child of `parent`. Its jump covers two jumps from the parent if they are equally long, so jump
    /// lengths follow skew-binary numbers.
    fn attach(&mut self, graph: &PatternGraph, vertex: Vertex, parent: Vertex, to_parent: Paths) {
        let below = self.nodes[parent];
        let middle = self.nodes[below.jump];
        let far = self.nodes[middle.jump];
        let doubles = parent != self.none && below.depth - middle.depth == middle.depth - far.depth;
        let pattern = |vertex| if vertex == self.none { Pattern::Opaque } else { graph.pattern(vertex) };
        let (jump, to_jump) = if doubles {
            let half = to_parent.then(pattern(parent), below.to_jump);
            (middle.jump, half.then(pattern(below.jump), middle.to_jump))
        } else {
            (parent, to_parent)
        };
        self.nodes[vertex] = TreeNode { depth: below.depth + 1, parent, jump, to_parent, to_jump };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fusion::pattern_graph::VertexFacts;

    #[test]
    fn a_diamond_meets_at_its_bottom_and_knows_its_arms() {
        let mut graph = PatternGraph::default();
        let x = graph.add(VertexFacts::param(), &[]);
        let top = graph.add_op(Pattern::Elemwise, &[x]);
        let left = graph.add_op(Pattern::Injective, &[top]);
        let right = graph.add_op(Pattern::Broadcast, &[top]);
        let tail = graph.add_op(Pattern::Broadcast, &[right]);
        let bottom = graph.add_op(Pattern::Elemwise, &[left, tail]);
        graph.mark_visible(bottom);
        let tree = PostDominators::of(&graph, &Users::of(&graph));
        assert_eq!(tree.parent(top), Some(bottom));
        assert_eq!(tree.path(top), Paths { edge: Pattern::Injective, between: Pattern::Injective, length: 3 });
        assert_eq!((tree.parent(bottom), tree.parent(x)), (None, None));
        assert_eq!((tree.depth(bottom), tree.depth(right)), (1, 3));
    }

    #[test]
    fn no_common_ancestor_is_final() {
        let mut graph = PatternGraph::default();
        let x = graph.add_op(Pattern::Elemwise, &[]);
        let left = graph.add_op(Pattern::Elemwise, &[x]);
        let right = graph.add_op(Pattern::Elemwise, &[x]);
        let third = graph.add_op(Pattern::Elemwise, &[x, right]);
        graph.mark_visible(left);
        graph.mark_visible(third);
        let tree = PostDominators::of(&graph, &Users::of(&graph));
        assert_eq!(tree.parent(x), None);
        assert_eq!(tree.parent(right), Some(third));
    }
}
