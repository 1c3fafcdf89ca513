//! The groups of a partition while it is computed: a union-find forest of records.
//!
//! The root of a group is always its sink, because a group is merged only into the group of a post-dominator. The
//! record of a vertex keeps the state from when it was last a root. The fusion rules read such stale records on
//! purpose, so a merge does not update the record of the child.

use super::pattern_graph::{PatternGraph, Vertex};
use crate::ir::{Pattern, SideTable};

/// The group of which a vertex is or was the root.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    parent: Vertex,
    /// The pattern of the group for its consumers.
    pub pattern: Pattern,
    /// Whether the group has a node of pattern `out_ewise`.
    pub anchored: bool,
    /// The number of nodes.
    pub size: u32,
    /// The number of kernel arguments, or 0 if arguments are not limited.
    pub n_args: u32,
}

impl Record {
    /// Whether `vertex`, whose record this is, is the sink of its group.
    pub fn is_root(&self, vertex: Vertex) -> bool {
        self.parent == vertex
    }
}

/// One record per vertex.
#[derive(Debug, Clone)]
pub struct GroupRecords {
    records: SideTable<Vertex, Record>,
}

impl GroupRecords {
    /// Makes every vertex a group of its own.
    pub fn singletons(graph: &PatternGraph) -> Self {
        let record = |vertex| {
            let pattern = graph.pattern(vertex);
            Record { parent: vertex, pattern, anchored: pattern == Pattern::OutEwise, size: 1, n_args: 0 }
        };
        GroupRecords { records: graph.vertices().map(record).collect() }
    }

    /// The record of `vertex` itself, from when it was last a root.
    pub fn own(&self, vertex: Vertex) -> &Record {
        &self.records[vertex]
    }

    /// Sets the number of arguments that `vertex` alone contributes.
    pub fn count_args(&mut self, vertex: Vertex, n_args: u32) {
        self.records[vertex].n_args = n_args;
    }

    /// The sink of the group of `vertex`. Halves the path to it.
    pub fn find(&mut self, mut vertex: Vertex) -> Vertex {
        loop {
            let parent = self.records[vertex].parent;
            if parent == vertex {
                return vertex;
            }
            let above = self.records[parent].parent;
            self.records[vertex].parent = above;
            vertex = above;
        }
    }

    /// The record of the whole group of `vertex`.
    pub fn group(&mut self, vertex: Vertex) -> &Record {
        let root = self.find(vertex);
        self.own(root)
    }

    /// Merges the group of `child` into the group whose sink is `sink`.
    ///
    /// The pattern changes only if the child has an anchor. Absorbing another node upstream does not change the pattern
    /// for consumers, but an anchor may only be followed by epilogues.
    pub fn merge(&mut self, child: Vertex, sink: Vertex) {
        let child = self.find(child);
        if child == sink {
            return;
        }
        let from = self.records[child];
        let into = &mut self.records[sink];
        debug_assert_eq!(into.parent, sink, "groups are merged into sinks");
        into.size += from.size;
        into.n_args += from.n_args;
        if from.anchored {
            assert!(!into.anchored && into.pattern <= Pattern::Broadcast, "the path check admits one anchor per group");
            into.anchored = true;
            into.pattern = into.pattern.max(from.pattern);
        }
        self.records[child].parent = sink;
    }
}
