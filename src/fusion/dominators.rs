//! Post-dominators of a graph.
//!
//! Vertex `d` post-dominates `v` if every path from `v` to where its value is seen passes `d`. The nearest one is the
//! lowest common ancestor of all users of `v` in the tree built so far; one backward sweep is enough because users
//! have larger numbers than producers. A value that is seen from outside has none, nor has one whose users have no
//! common ancestor, and "none" is final.
//!
//! Climbing step by step would make deep graphs with long skip connections quadratic. Each vertex therefore keeps one
//! jump to a far ancestor, chosen by depth alone, so that any climb takes logarithmically many steps, and every step
//! or jump knows a summary of what lies on its way. Deliberately absent: what the patterns mean for fusion.

use super::pattern_graph::{PatternGraph, User, Users, Vertex};
use crate::ir::Pattern;

/// What lies on all paths from a vertex up to one of its post-dominators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// The worst edge.
    pub edge: Pattern,
    /// The worst vertex strictly between, or elementwise if there is none.
    pub between: Pattern,
    /// Number of edges of the longest path; there are at least `length - 1` vertices strictly between.
    pub length: u32,
}

impl Way {
    const HERE: Way = Way { edge: Pattern::Elemwise, between: Pattern::Elemwise, length: 0 };

    /// This way, then `vertex`, then `next`.
    fn then(self, vertex: Pattern, next: Way) -> Way {
        Way {
            edge: self.edge.max(next.edge),
            between: self.between.max(vertex).max(next.between),
            length: self.length + next.length,
        }
    }

    /// Both ways lie side by side.
    fn beside(self, other: Way) -> Way {
        Way {
            edge: self.edge.max(other.edge),
            between: self.between.max(other.between),
            length: self.length.max(other.length),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Step {
    depth: u32,
    parent: u32,
    jump: u32,
    to_parent: Way,
    to_jump: Way,
}

/// The post-dominator tree of a graph.
#[derive(Debug, Clone)]
pub struct PostDominators {
    /// One per vertex, then the common root above all trees that stands for "none".
    steps: Vec<Step>,
}

impl PostDominators {
    /// Builds the tree in time `O((vertices + edges) log vertices)`.
    pub fn of(graph: &PatternGraph, users: &Users) -> Self {
        let none = Vertex::new(graph.len()).0;
        let root = Step { depth: 0, parent: none, jump: none, to_parent: Way::HERE, to_jump: Way::HERE };
        let mut tree = PostDominators { steps: vec![root; graph.len() + 1] };
        for vertex in graph.vertices().rev() {
            let (parent, way) = match users.of_vertex(vertex) {
                _ if graph.facts(vertex).visible => (none, Way { edge: Pattern::Opaque, ..Way::HERE }),
                [] => (none, Way::HERE),
                users => tree.meet_all(graph, users),
            };
            tree.attach(graph, vertex, parent, way);
        }
        tree
    }

    /// The nearest post-dominator of `vertex`, if its uses have one.
    pub fn parent(&self, vertex: Vertex) -> Option<Vertex> {
        let parent = self.steps[vertex.index()].parent;
        (parent as usize + 1 < self.steps.len()).then_some(Vertex(parent))
    }

    /// What lies between `vertex` and its nearest post-dominator; without one only the edge pattern means something.
    pub fn way(&self, vertex: Vertex) -> Way {
        self.steps[vertex.index()].to_parent
    }

    /// Distance from the root of the tree of `vertex`; a root has depth 1.
    pub fn depth(&self, vertex: Vertex) -> u32 {
        self.steps[vertex.index()].depth
    }

    fn meet_all(&self, graph: &PatternGraph, users: &[User]) -> (u32, Way) {
        let none = self.steps.len() - 1;
        let first = users[0].vertex.0;
        let meeting = users[1..].iter().fold(first, |met, user| self.meet(met, user.vertex.0));
        if meeting as usize == none {
            return (meeting, Way { edge: Pattern::Opaque, ..Way::HERE });
        }
        let ways = users.iter().map(|user| {
            let edge = Way { edge: user.pattern, between: Pattern::Elemwise, length: 1 };
            match user.vertex.0 == meeting {
                true => edge,
                false => edge.then(graph.pattern(user.vertex), self.climb(graph, user.vertex.0, meeting)),
            }
        });
        (meeting, ways.reduce(Way::beside).expect("a used value has users"))
    }

    /// The lowest common ancestor.
    fn meet(&self, mut a: u32, mut b: u32) -> u32 {
        let step = |vertex: u32| &self.steps[vertex as usize];
        if step(a).depth < step(b).depth {
            std::mem::swap(&mut a, &mut b);
        }
        let level = step(b).depth;
        while step(a).depth > level {
            a = if step(step(a).jump).depth >= level { step(a).jump } else { step(a).parent };
        }
        // Jump lengths depend on the depth alone, so both sides stay level.
        while a != b {
            let apart = step(a).jump != step(b).jump;
            (a, b) = if apart { (step(a).jump, step(b).jump) } else { (step(a).parent, step(b).parent) };
        }
        a
    }

    /// The way from a vertex to a proper ancestor.
    fn climb(&self, graph: &PatternGraph, from: u32, to: u32) -> Way {
        let step = |vertex: u32| &self.steps[vertex as usize];
        let level = step(to).depth;
        let (mut at, mut way) = (from, None::<Way>);
        while at != to {
            let jumps = step(step(at).jump).depth >= level;
            let (next, part) =
                if jumps { (step(at).jump, step(at).to_jump) } else { (step(at).parent, step(at).to_parent) };
            way = Some(way.map_or(part, |way| way.then(graph.pattern(Vertex(at)), part)));
            at = next;
        }
        way.expect("the ancestor is a proper one")
    }

    /// Hangs `vertex` below `parent`. The jump skips two jumps of the parent if they are equally long, which gives
    /// jump lengths the shape of skew-binary numbers.
    fn attach(&mut self, graph: &PatternGraph, vertex: Vertex, parent: u32, to_parent: Way) {
        let below = self.steps[parent as usize];
        let middle = self.steps[below.jump as usize];
        let far = self.steps[middle.jump as usize];
        let none = self.steps.len() - 1;
        let doubles = parent as usize != none && below.depth - middle.depth == middle.depth - far.depth;
        let pattern = |vertex: u32| match vertex as usize == none {
            true => Pattern::Opaque,
            false => graph.pattern(Vertex(vertex)),
        };
        let (jump, to_jump) = if doubles {
            let half = to_parent.then(pattern(parent), below.to_jump);
            (middle.jump, half.then(pattern(below.jump), middle.to_jump))
        } else {
            (parent, to_parent)
        };
        self.steps[vertex.index()] = Step { depth: below.depth + 1, parent, jump, to_parent, to_jump };
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
        assert_eq!(tree.way(top), Way { edge: Pattern::Injective, between: Pattern::Injective, length: 3 });
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
