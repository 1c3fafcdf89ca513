//! The legal base of fusion: which vertices share a kernel.
//!
//! Every vertex is offered to its nearest post-dominator, together with all vertices between the two. What holds of
//! the groups follows from that alone: a group has one sink and nothing else of it is seen outside, no path leaves a
//! group and comes back, and the graph of groups has no cycle. The rows of `Partitioner::rule` say which offers
//! are accepted. The sweeps exist because heavy anchors choose their epilogues first, element-moving vertices
//! follow, and the fields of a tuple can only be judged once the tuple has been taken in.
//!
//! Deliberately absent: cost, recomputation, several outputs per group. All that works on top of these groups and
//! has to check for cycles itself.

use super::argument_limit::{Answer, ArgumentLimit};
use super::dominators::PostDominators;
use super::group_records::GroupRecords;
use super::pattern_graph::{PatternGraph, Users, Vertex};
use super::rates::Rates;
use crate::error::Reason;
use crate::ir::Pattern;
use std::fmt;

/// A group of a [`Partition`]; prints as `g3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl GroupId {
    /// The place in [`Partition::groups`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}", self.0)
    }
}

/// In which order vertices are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// In listing order, to the letter of the published algorithm: what an anchor finds depends on the listing.
    Strict,
    /// Every anchor before everything else, so that no light vertex listed earlier spoils an epilogue; and what an
    /// anchored group already holds does not stop a light vertex from joining the epilogue's other operands.
    #[default]
    AnchorsFirst,
}

/// What limits the groups, and what they are weighed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Options {
    /// 0 keeps every vertex apart.
    pub opt_level: u32,
    /// The most nodes in a group, by an estimate that may count nodes twice; `usize::MAX` is unlimited.
    pub max_fuse_depth: usize,
    /// The most arguments of a kernel, outputs included; 0 is unlimited.
    pub max_function_args: usize,
    /// In which order vertices are offered.
    pub order: Order,
    /// How fast the machine is that merges are weighed for.
    pub rates: Rates,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            opt_level: 2,
            max_fuse_depth: 256,
            max_function_args: 0,
            order: Order::default(),
            rates: Rates::BUILT_IN,
        }
    }
}

/// What became of an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Both ends are in one group.
    Fused,
    /// They are not, for this reason.
    Kept(Reason),
}

/// A grouping of all vertices of a graph; parameters and opaque constants are groups of one.
#[derive(Debug, Clone)]
pub struct Partition {
    /// The group of each vertex.
    pub group_of: Vec<GroupId>,
    /// The members of each group in listing order, the sink last. Groups are listed by their sinks, which puts
    /// producing groups before using ones.
    pub groups: Vec<Vec<Vertex>>,
    /// The tree the decisions were made on.
    pub post_dominators: PostDominators,
    patterns: Vec<Pattern>,
    refusals: Vec<Option<Reason>>,
}

impl Partition {
    /// Whether `consumer`, a user of `producer`, computes it in its own kernel, and if not, why.
    pub fn decision(&self, producer: Vertex, consumer: Vertex) -> Decision {
        if self.group_of[producer.index()] == self.group_of[consumer.index()] {
            return Decision::Fused;
        }
        let own = self.patterns[producer.index()];
        let refusal = self.refusals[producer.index()].clone();
        let reason = refusal.expect("the sink of a group was refused by its post-dominator or has none");
        // The refusal is about the post-dominator, which may lie further on; what is true of this very user is
        // more useful, unless nothing about the user matters.
        let reason = match (self.patterns[consumer.index()], reason) {
            (_, reason @ (Reason::Disabled | Reason::OpaqueOp | Reason::IsOutput)) => reason,
            (Pattern::Opaque, _) => Reason::OpaqueOp,
            (Pattern::OutEwise, _) if own >= Pattern::Reduce => Reason::TwoAnchors,
            (Pattern::OutEwise, _) => Reason::PrologueOfAnchor,
            (_, reason) => reason,
        };
        Decision::Kept(reason)
    }

    /// The only member of a group whose value is seen outside.
    pub fn sink(&self, group: GroupId) -> Vertex {
        *self.groups[group.index()].last().expect("groups are not empty")
    }
}

/// Partitions `graph`.
pub fn partition(graph: &PatternGraph, options: &Options) -> Partition {
    let users = Users::of(graph);
    let tree = PostDominators::of(graph, &users);
    let mut groups = GroupRecords::singletons(graph);
    let limit =
        (options.max_function_args > 0).then(|| ArgumentLimit::new(options.max_function_args, graph, &mut groups));
    let refusals = vec![None; graph.len()];
    let stamps = vec![0; graph.len()];
    let mut partitioner = Partitioner {
        graph,
        options,
        users: &users,
        tree: &tree,
        groups,
        limit,
        refusals,
        stamps,
        stamp: 0,
        region: Vec::new(),
        found_from: Vec::new(),
        stuck: vec![None; graph.len()],
    };
    partitioner.run();
    let Partitioner { mut groups, refusals, .. } = partitioner;
    let (group_of, groups) = collect(graph, &mut groups);
    let patterns = graph.vertices().map(|vertex| graph.pattern(vertex)).collect();
    Partition { group_of, groups, post_dominators: tree, patterns, refusals }
}

/// Numbers the groups by their sinks.
fn collect(graph: &PatternGraph, records: &mut GroupRecords) -> (Vec<GroupId>, Vec<Vec<Vertex>>) {
    let mut group_of = vec![GroupId(0); graph.len()];
    let mut groups = Vec::new();
    for vertex in graph.vertices().filter(|&vertex| records.own(vertex).is_root(vertex)) {
        group_of[vertex.index()] = GroupId(Vertex::new(groups.len()).0);
        groups.push(Vec::with_capacity(records.own(vertex).size as usize));
    }
    for vertex in graph.vertices() {
        let group = group_of[records.find(vertex).index()];
        group_of[vertex.index()] = group;
        groups[group.index()].push(vertex);
    }
    (group_of, groups)
}

/// One pass over all vertices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sweep {
    /// Anchors and light vertices, as they are listed.
    Base,
    /// Anchors only.
    Anchors,
    /// Light vertices only.
    Light,
    /// Vertices that move elements, and light ones once more.
    Injective,
    /// Fields of tuples that have been taken in.
    TupleFields,
}

struct Partitioner<'a> {
    graph: &'a PatternGraph,
    options: &'a Options,
    users: &'a Users,
    tree: &'a PostDominators,
    groups: GroupRecords,
    limit: Option<ArgumentLimit>,
    /// Why each vertex was last refused.
    refusals: Vec<Option<Reason>>,
    /// When each vertex was last met by a survey; the current survey has the number `stamp`.
    stamps: Vec<u32>,
    stamp: u32,
    /// What the last survey found: the vertex offered and everything strictly between.
    region: Vec<Vertex>,
    /// For each member of the region but the first, the place of the member through which it was found.
    found_from: Vec<u32>,
    /// A post-dominator that nothing in front of the vertex reaches in this sweep: a survey got stuck in between.
    stuck: Vec<Option<Vertex>>,
}

impl Partitioner<'_> {
    fn run(&mut self) {
        for vertex in self.graph.vertices() {
            self.refusals[vertex.index()] = self.refusal_at_once(vertex);
        }
        if self.options.opt_level == 0 {
            return;
        }
        let first: &[Sweep] = match self.options.order {
            Order::Strict => &[Sweep::Base],
            Order::AnchorsFirst => &[Sweep::Anchors, Sweep::Light],
        };
        for &sweep in first.iter().chain(&[Sweep::Injective, Sweep::TupleFields]) {
            self.stuck.fill(None);
            for vertex in self.graph.vertices() {
                self.visit(vertex, sweep);
            }
        }
    }

    /// Why a vertex can never be merged forward, whatever its post-dominator is.
    fn refusal_at_once(&self, vertex: Vertex) -> Option<Reason> {
        let facts = self.graph.facts(vertex);
        if self.options.opt_level == 0 {
            Some(Reason::Disabled)
        } else if facts.pattern == Pattern::Opaque {
            Some(Reason::OpaqueOp)
        } else if facts.visible {
            Some(Reason::IsOutput)
        } else if self.tree.parent(vertex).is_none() {
            Some(Reason::UsedElsewhere)
        } else {
            None
        }
    }

    fn visit(&mut self, vertex: Vertex, sweep: Sweep) {
        self.make_due_merges(vertex, sweep);
        if self.groups.own(vertex).pattern == Pattern::Opaque {
            return;
        }
        let Some(parent) = self.tree.parent(vertex) else { return };
        if let Err(reason) = self.offer(vertex, parent, sweep) {
            self.refusals[vertex.index()] = Some(reason);
        }
    }

    /// Offers `vertex` to its post-dominator; `Ok` also if this sweep does not concern it.
    fn offer(&mut self, vertex: Vertex, parent: Vertex, sweep: Sweep) -> Result<(), Reason> {
        let Some(rule) = self.rule(vertex, parent, sweep) else { return Ok(()) };
        self.survey(vertex, parent, rule?)?;
        if let Some(limit) = &mut self.limit {
            match limit.ask(self.graph, self.users, &mut self.groups, vertex) {
                Answer::Fits => {}
                Answer::TooMany => return Err(Reason::TooManyArguments),
                Answer::AskAgainAt(consumer) => {
                    limit.put_off(vertex, consumer);
                    // Holds until then, and for good if it is still too early then.
                    return Err(Reason::TooManyArguments);
                }
            }
        }
        self.merge_region(parent);
        Ok(())
    }

    /// Makes the merges that waited for the visit of `consumer`. Groups have grown since, so all is judged anew.
    fn make_due_merges(&mut self, consumer: Vertex, sweep: Sweep) {
        let Some(limit) = &mut self.limit else { return };
        for vertex in limit.due(self.graph, self.users, &mut self.groups, consumer) {
            let parent = self.tree.parent(vertex).expect("only vertices with a post-dominator are put off");
            if self.groups.group(parent).anchored {
                continue;
            }
            let Some(Ok(widest)) = self.rule(vertex, parent, sweep) else { continue };
            match self.survey(vertex, parent, widest) {
                Ok(()) => self.merge_region(parent),
                Err(reason) => self.refusals[vertex.index()] = Some(reason),
            }
        }
    }

    /// The worst pattern allowed strictly between `vertex` and its post-dominator, if the two may be fused at all;
    /// `None` if this sweep has no say in it.
    ///
    /// The records of `vertex` and `parent` are their own, from when they were last sinks: a vertex that took in an
    /// anchor is judged as one from then on. Vertices between and the sink are judged by their whole groups.
    fn rule(&mut self, vertex: Vertex, parent: Vertex, sweep: Sweep) -> Option<Result<Pattern, Reason>> {
        let own = self.groups.own(vertex).pattern;
        let into_tuple = self.groups.own(parent).pattern == Pattern::Tuple;
        let target = self.groups.find(parent);
        let sink = self.groups.own(target).pattern;
        if sweep == Sweep::TupleFields {
            let concerned = own <= Pattern::Injective && into_tuple && sink <= Pattern::Injective;
            return concerned.then_some(Ok(Pattern::Injective));
        }
        if self.groups.find(vertex) == target {
            return None;
        }
        let edge = self.tree.way(vertex).edge;
        let moves_now = sweep == Sweep::Injective;
        let verdict = match own {
            _ if into_tuple => Err(Reason::OpaqueOp),
            Pattern::OutEwise if !matches!(sweep, Sweep::Base | Sweep::Anchors) => return None,
            Pattern::OutEwise if edge == Pattern::Elemwise && sink <= Pattern::Broadcast => Ok(Pattern::Broadcast),
            Pattern::Elemwise | Pattern::Broadcast if sweep == Sweep::Anchors => return None,
            Pattern::Elemwise | Pattern::Broadcast if edge <= Pattern::Reduce && sink <= Pattern::OutEwise => {
                Ok(Pattern::Injective)
            }
            Pattern::Injective | Pattern::Tuple if !moves_now => return None,
            Pattern::Injective | Pattern::Tuple if sink <= Pattern::Injective => Ok(Pattern::Injective),
            // A reduction is finished only when its loop is.
            Pattern::Reduce | Pattern::OutEwise => Err(refused_after_loop(edge.max(sink))),
            Pattern::Elemwise | Pattern::Broadcast | Pattern::Injective | Pattern::Tuple => {
                Err(refused_before_loop(self.graph.pattern(parent), edge, sink))
            }
            Pattern::Opaque => Err(Reason::OpaqueOp),
        };
        Some(verdict)
    }

    /// Collects `vertex` and all vertices strictly between it and `parent`, or finds out why they cannot all join
    /// the group of `parent`.
    ///
    /// The size limit bounds the walk, and so do two facts of the tree: what certainly blocks a path, and how long
    /// the longest path is; a walk that got stuck once is not walked again from further up. Without a size limit the walk goes from group to group instead of from vertex to vertex:
    /// a group has one sink, and what lies between two of its members is in it.
    fn survey(&mut self, vertex: Vertex, parent: Vertex, widest: Pattern) -> Result<(), Reason> {
        let way = self.tree.way(vertex);
        if way.between.always_blocks() {
            return Err(refused_on_path(way.between));
        }
        let target = self.groups.find(parent);
        let max = self.options.max_fuse_depth;
        let bounded = max != usize::MAX;
        let mut size = self.groups.own(target).size as usize + self.groups.own(vertex).size as usize;
        if bounded && size + (way.length as usize - 1) > max {
            return Err(Reason::GroupTooLarge);
        }
        self.stamp += 1;
        self.stamps[parent.index()] = self.stamp;
        self.region.clear();
        self.found_from.clear();
        self.add_to_region(vertex, 0);
        let mut next = 0;
        while let Some(&at) = self.region.get(next) {
            next += 1;
            for user in self.users.of_vertex(at) {
                if !self.meet(user.vertex) {
                    continue;
                }
                let group = self.groups.find(user.vertex);
                let joined = group == target && self.options.order == Order::AnchorsFirst;
                let pattern = self.groups.own(group).pattern;
                if pattern > widest && !joined {
                    if pattern.always_blocks() {
                        self.remember_stuck(next - 1, parent);
                    }
                    return Err(refused_on_path(pattern));
                }
                if [user.vertex, group].iter().any(|met| self.stuck[met.index()] == Some(parent)) {
                    self.remember_stuck(next - 1, parent);
                    return Err(Reason::UsedElsewhere);
                }
                if bounded {
                    size += self.groups.own(user.vertex).size as usize;
                    if size > max {
                        return Err(Reason::GroupTooLarge);
                    }
                    self.add_to_region(user.vertex, next - 1);
                } else if group != target && (group == user.vertex || self.meet(group)) {
                    self.add_to_region(group, next - 1);
                }
            }
        }
        Ok(())
    }

    fn add_to_region(&mut self, vertex: Vertex, found_from: usize) {
        self.region.push(vertex);
        self.found_from.push(found_from as u32);
    }

    /// Notes for all on the walk's way to `place` that a reduction or an anchor keeps them from `parent`.
    fn remember_stuck(&mut self, mut place: usize, parent: Vertex) {
        loop {
            self.stuck[self.region[place].index()] = Some(parent);
            if place == 0 {
                return;
            }
            place = self.found_from[place] as usize;
        }
    }

    /// Stamps a vertex; false if the current survey has met it before.
    fn meet(&mut self, vertex: Vertex) -> bool {
        let stamp = &mut self.stamps[vertex.index()];
        let new = *stamp != self.stamp;
        *stamp = self.stamp;
        new
    }

    fn merge_region(&mut self, parent: Vertex) {
        let sink = self.groups.find(parent);
        for &vertex in &self.region {
            self.groups.merge(vertex, sink);
            self.refusals[vertex.index()] = None;
        }
    }
}

/// Why something behind a reduction or an anchor is not its epilogue; `pattern` is the worst there.
fn refused_after_loop(pattern: Pattern) -> Reason {
    match pattern {
        Pattern::Elemwise | Pattern::Broadcast | Pattern::Injective => Reason::MovesElements,
        Pattern::Reduce | Pattern::OutEwise => Reason::TwoAnchors,
        Pattern::Tuple | Pattern::Opaque => Reason::OpaqueOp,
    }
}

/// Why something in front of `parent` is not taken into its group, which ends in a `sink`; `edge` is the worst on the
/// way.
fn refused_before_loop(parent: Pattern, edge: Pattern, sink: Pattern) -> Reason {
    match (parent, sink) {
        (Pattern::Tuple | Pattern::Opaque, _) | (_, Pattern::Tuple | Pattern::Opaque) => Reason::OpaqueOp,
        (Pattern::OutEwise, _) => Reason::PrologueOfAnchor,
        // Only a use on the way to the sink can have such an edge.
        _ if edge > Pattern::Reduce => Reason::UsedElsewhere,
        (_, Pattern::OutEwise) => Reason::MovesElements,
        (_, Pattern::Reduce) => Reason::DifferentRows,
        (_, Pattern::Elemwise | Pattern::Broadcast | Pattern::Injective) => Reason::UsedElsewhere,
    }
}

/// Why a vertex or group of this pattern on the path keeps the two ends apart: the value has a use there that
/// cannot be in the sink's kernel.
fn refused_on_path(pattern: Pattern) -> Reason {
    match pattern {
        Pattern::Elemwise | Pattern::Broadcast | Pattern::Injective => Reason::MovesElements,
        Pattern::Reduce | Pattern::OutEwise => Reason::UsedElsewhere,
        Pattern::Tuple | Pattern::Opaque => Reason::OpaqueOp,
    }
}
