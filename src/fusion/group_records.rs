//! The groups of a partition while it is made: a union-find forest of records.
//!
//! The root of a group is always its sink, because a group is only ever merged into the group of a post-dominator.
//! A record keeps what its vertex had gathered while it was still a root; the fusion rules read such stale records
//! on purpose, so a merge never touches the child's.

use super::pattern_graph::{PatternGraph, Vertex};
use crate::ir::Pattern;

/// What is known of the group that a vertex heads or headed.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    parent: Vertex,
    /// How the output side of the group behaves.
    pub pattern: Pattern,
    /// The group holds a node of pattern `out_ewise`.
    pub anchored: bool,
    /// Number of nodes gathered.
    pub size: u32,
    /// Number of kernel arguments counted; stays 0 unless arguments are limited.
    pub n_args: u32,
}

impl Record {
    /// True if `vertex`, whose record this is, is the sink of its group.
    pub fn is_root(&self, vertex: Vertex) -> bool {
        self.parent == vertex
    }
}

/// One record per vertex.
#[derive(Debug, Clone)]
pub struct GroupRecords {
    records: Vec<Record>,
}

impl GroupRecords {
    /// Every vertex a group of its own.
    pub fn singletons(graph: &PatternGraph) -> Self {
        let record = |vertex| {
            let pattern = graph.pattern(vertex);
            Record { parent: vertex, pattern, anchored: pattern == Pattern::OutEwise, size: 1, n_args: 0 }
        };
        GroupRecords { records: graph.vertices().map(record).collect() }
    }

    /// The record of `vertex` itself, as it was when it was last a root.
    pub fn own(&self, vertex: Vertex) -> &Record {
        &self.records[vertex.index()]
    }

    /// Sets what `vertex` alone contributes to the argument count.
    pub fn count_args(&mut self, vertex: Vertex, n_args: u32) {
        self.records[vertex.index()].n_args = n_args;
    }

    /// The sink of the group of `vertex`; halves the path on its way.
    pub fn find(&mut self, mut vertex: Vertex) -> Vertex {
        loop {
            let parent = self.records[vertex.index()].parent;
            if parent == vertex {
                return vertex;
            }
            let above = self.records[parent.index()].parent;
            self.records[vertex.index()].parent = above;
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
    /// The pattern changes only if the child brings an anchor: absorbing a node upstream does not change how the
    /// output side behaves, but behind an anchor only epilogues may follow.
    pub fn merge(&mut self, child: Vertex, sink: Vertex) {
        let child = self.find(child);
        if child == sink {
            return;
        }
        let from = self.records[child.index()];
        let into = &mut self.records[sink.index()];
        debug_assert_eq!(into.parent, sink, "groups are merged into sinks");
        into.size += from.size;
        into.n_args += from.n_args;
        if from.anchored {
            assert!(!into.anchored && into.pattern <= Pattern::Broadcast, "the path check admits one anchor per group");
            into.anchored = true;
            into.pattern = into.pattern.max(from.pattern);
        }
        self.records[child.index()].parent = sink;
    }
}
