//! The base partition: the legal groups that fusion starts from.
//!
//! Each vertex may be merged into the group of its nearest post-dominator, together with all vertices between the two.
//! The invariants of groups follow from that. A group has one sink, and only the sink is used outside. No path leaves a
//! group and returns, so the graph of groups has no cycle. `Partitioner::rule` decides which merges are legal.
//!
//! There are several sweeps over the vertices. Anchors choose their epilogues first, and vertices that move elements
//! follow. Fields of a tuple are last, because they can be judged only after the tuple was merged.
//!
//! Deliberately absent: cost, recomputation, several outputs per group. The merge steps add these, and check for cycles
//! themselves.

use super::argument_limit::{Answer, ArgumentLimit};
use super::dominators::PostDominators;
use super::group_records::GroupRecords;
use super::pattern_graph::{PatternGraph, Users, Vertex};
use super::rates::Rates;
use crate::error::Reason;
use crate::ir::entity::entity_id;
use crate::ir::{Pattern, SideTable};

entity_id! {
    /// Names a group of a [`Partition`]; prints as `g3`.
    pub struct GroupId(u32) = "g";
}

/// The order in which vertices are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// In listing order, exactly as in the published algorithm (`FuseOps` of TVM). The epilogue of an anchor then
    /// depends on the listing.
    Strict,
    /// Anchors first, so that no light vertex that is listed earlier prevents an epilogue. Also, members of an anchored
    /// group do not stop a light vertex on a path to it, so other operands of an epilogue can be fused.
    #[default]
    AnchorsFirst,
}

/// Options of fusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Options {
    /// 0 disables fusion: every op is a kernel of its own.
    pub opt_level: u32,
    /// The most nodes of a group, by an estimate that may count nodes twice. `usize::MAX` means no limit.
    pub max_fuse_depth: usize,
    /// The most arguments of a kernel, outputs included. 0 means no limit.
    pub max_function_args: usize,
    /// The order in which vertices are visited.
    pub order: Order,
    /// The rates of the machine, for the cost model.
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

/// The decision about an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Both ends are in one group.
    Fused,
    /// They are not, for this reason.
    Kept(Reason),
}

/// A grouping of all vertices of a graph. Parameters and opaque constants are groups of one.
#[derive(Debug, Clone)]
pub struct Partition {
    /// The group of each vertex.
    pub group_of: SideTable<Vertex, GroupId>,
    /// The members of each group in listing order, the sink last. Groups are listed by their sinks, so producers come
    /// before users.
    pub groups: Vec<Vec<Vertex>>,
    /// The tree that the decisions used.
    pub post_dominators: PostDominators,
    patterns: SideTable<Vertex, Pattern>,
    refusals: SideTable<Vertex, Option<Reason>>,
}

impl Partition {
    /// Whether `producer` and its user `consumer` are in one group, and if not, why.
    pub fn decision(&self, producer: Vertex, consumer: Vertex) -> Decision {
        if self.group_of[producer] == self.group_of[consumer] {
            return Decision::Fused;
        }
        let own = self.patterns[producer];
        let refusal = self.refusals[producer].clone();
        let reason = refusal.expect("the sink of a group was refused by its post-dominator or has none");
        // The refusal is about the post-dominator, which may be further on. A reason about this user is more useful,
        // unless the reason does not depend on users.
        let reason = match (self.patterns[consumer], reason) {
            (_, reason @ (Reason::Disabled | Reason::OpaqueOp | Reason::IsOutput)) => reason,
            (Pattern::Opaque, _) => Reason::OpaqueOp,
            (Pattern::OutEwise, _) if own >= Pattern::Reduce => Reason::TwoAnchors,
            (Pattern::OutEwise, _) => Reason::PrologueOfAnchor,
            (_, reason) => reason,
        };
        Decision::Kept(reason)
    }

    /// The only member of a group whose value is used outside.
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
    let refusals = graph.vertices().map(|_| None).collect();
    let stamps = graph.vertices().map(|_| 0).collect();
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
        stuck: graph.vertices().map(|_| None).collect(),
    };
    partitioner.run();
    let Partitioner { mut groups, refusals, .. } = partitioner;
    let (group_of, groups) = collect(graph, &mut groups);
    let patterns = graph.vertices().map(|vertex| graph.pattern(vertex)).collect();
    Partition { group_of, groups, post_dominators: tree, patterns, refusals }
}

/// Numbers the groups by their sinks.
fn collect(graph: &PatternGraph, records: &mut GroupRecords) -> (SideTable<Vertex, GroupId>, Vec<Vec<Vertex>>) {
    let mut group_of: SideTable<Vertex, GroupId> = graph.vertices().map(|_| GroupId::new(0)).collect();
    let mut groups = Vec::new();
    for vertex in graph.vertices().filter(|&vertex| records.own(vertex).is_root(vertex)) {
        group_of[vertex] = GroupId::new(groups.len());
        groups.push(Vec::with_capacity(records.own(vertex).size as usize));
    }
    for vertex in graph.vertices() {
        let group = group_of[records.find(vertex)];
        group_of[vertex] = group;
        groups[group.index()].push(vertex);
    }
    (group_of, groups)
}

/// One pass over all vertices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sweep {
    /// Anchors and light vertices, in listing order.
    Base,
    /// Anchors only.
    Anchors,
    /// Light vertices only.
    Light,
    /// Vertices that move elements, and light ones once more.
    Injective,
    /// Fields of tuples that were merged.
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
    refusals: SideTable<Vertex, Option<Reason>>,
    /// The number of the last survey that visited each vertex. The current survey has the number `stamp`.
    stamps: SideTable<Vertex, u32>,
    stamp: u32,
    /// The result of the last survey: the vertex to be merged, and all vertices strictly between it and the target.
    region: Vec<Vertex>,
    /// For each member of the region but the first, the index of the member through which it was found.
    found_from: Vec<u32>,
    /// For each vertex, a post-dominator that it cannot be merged into in this sweep: a survey failed in between.
    stuck: SideTable<Vertex, Option<Vertex>>,
}

impl Partitioner<'_> {
    fn run(&mut self) {
        for vertex in self.graph.vertices() {
            self.refusals[vertex] = self.initial_refusal(vertex);
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

    /// Why a vertex can never be merged forward, regardless of its post-dominator.
    fn initial_refusal(&self, vertex: Vertex) -> Option<Reason> {
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
        self.make_deferred_merges(vertex, sweep);
        if self.groups.own(vertex).pattern == Pattern::Opaque {
            return;
        }
        let Some(parent) = self.tree.parent(vertex) else { return };
        if let Err(reason) = self.try_merge(vertex, parent, sweep) {
            self.refusals[vertex] = Some(reason);
        }
    }

    /// Tries to merge `vertex` into the group of its post-dominator. `Ok` also if this sweep does not concern it.
    fn try_merge(&mut self, vertex: Vertex, parent: Vertex, sweep: Sweep) -> Result<(), Reason> {
        let Some(rule) = self.rule(vertex, parent, sweep) else { return Ok(()) };
        self.survey(vertex, parent, rule?)?;
        if let Some(limit) = &mut self.limit {
            match limit.ask(self.graph, self.users, &mut self.groups, vertex) {
                Answer::Fits => {}
                Answer::TooMany => return Err(Reason::TooManyArguments),
                Answer::AskAgainAt(consumer) => {
                    limit.defer(vertex, consumer);
                    // Valid until then, and finally if the merge is still not possible then.
                    return Err(Reason::TooManyArguments);
                }
            }
        }
        self.merge_region(parent);
        Ok(())
    }

    /// Makes the merges that were deferred to the visit of `consumer`. Groups have changed since, so all checks are
    /// repeated.
    fn make_deferred_merges(&mut self, consumer: Vertex, sweep: Sweep) {
        let Some(limit) = &mut self.limit else { return };
        for vertex in limit.due(self.graph, self.users, &mut self.groups, consumer) {
            let parent = self.tree.parent(vertex).expect("only vertices with a post-dominator are deferred");
            if self.groups.group(parent).anchored {
                continue;
            }
            let Some(Ok(widest)) = self.rule(vertex, parent, sweep) else { continue };
            match self.survey(vertex, parent, widest) {
                Ok(()) => self.merge_region(parent),
                Err(reason) => self.refusals[vertex] = Some(reason),
            }
        }
    }

    /// The worst pattern that is allowed strictly between `vertex` and its post-dominator, or why the two cannot be
    /// fused. `None` if this sweep does not concern them.
    ///
    /// `vertex` and `parent` are judged by their own records, from when they were last sinks. So a vertex that absorbed
    /// an anchor counts as one. Vertices in between and the sink are judged by their whole groups.
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
        let edge = self.tree.path(vertex).edge;
        let is_injective_sweep = sweep == Sweep::Injective;
        let verdict = match own {
            _ if into_tuple => Err(Reason::OpaqueOp),
            Pattern::OutEwise if !matches!(sweep, Sweep::Base | Sweep::Anchors) => return None,
            Pattern::OutEwise if edge == Pattern::Elemwise && sink <= Pattern::Broadcast => Ok(Pattern::Broadcast),
            Pattern::Elemwise | Pattern::Broadcast if sweep == Sweep::Anchors => return None,
            Pattern::Elemwise | Pattern::Broadcast if edge <= Pattern::Reduce && sink <= Pattern::OutEwise => {
                Ok(Pattern::Injective)
            }
            Pattern::Injective | Pattern::Tuple if !is_injective_sweep => return None,
            Pattern::Injective | Pattern::Tuple if sink <= Pattern::Injective => Ok(Pattern::Injective),
            // The result of a reduction exists only after its loop.
            Pattern::Reduce | Pattern::OutEwise => Err(refused_after_loop(edge.max(sink))),
            Pattern::Elemwise | Pattern::Broadcast | Pattern::Injective | Pattern::Tuple => {
                Err(refused_before_loop(self.graph.pattern(parent), edge, sink))
            }
            Pattern::Opaque => Err(Reason::OpaqueOp),
        };
        Some(verdict)
    }

    /// Collects `vertex` and all vertices strictly between it and `parent`.
    ///
    /// The walk is bounded by the size limit, and by the summary of paths in the tree. A walk that failed once is not
    /// repeated from further up. Without a size limit the walk goes from group to group, because a group has one sink,
    /// and all vertices between two of its members belong to it.
    ///
    /// # Errors
    /// The reason why one of the vertices cannot join the group of `parent`.
    fn survey(&mut self, vertex: Vertex, parent: Vertex, widest: Pattern) -> Result<(), Reason> {
        let path = self.tree.path(vertex);
        if path.between.always_blocks() {
            return Err(refused_on_path(path.between));
        }
        let target = self.groups.find(parent);
        let max = self.options.max_fuse_depth;
        let bounded = max != usize::MAX;
        let mut size = self.groups.own(target).size as usize + self.groups.own(vertex).size as usize;
        if bounded && size + (path.length as usize - 1) > max {
            return Err(Reason::GroupTooLarge);
        }
        self.stamp += 1;
        self.stamps[parent] = self.stamp;
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
                if [user.vertex, group].iter().any(|&met| self.stuck[met] == Some(parent)) {
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

    /// Marks all vertices on the walk's path to the region's member `at`: a reduction or an anchor separates them from
    /// `parent`.
    fn remember_stuck(&mut self, mut at: usize, parent: Vertex) {
        loop {
            self.stuck[self.region[at]] = Some(parent);
            if at == 0 {
                return;
            }
            at = self.found_from[at] as usize;
        }
    }

    /// Stamps a vertex. Returns whether the current survey visits it for the first time.
    fn meet(&mut self, vertex: Vertex) -> bool {
        let stamp = &mut self.stamps[vertex];
        let new = *stamp != self.stamp;
        *stamp = self.stamp;
        new
    }

    fn merge_region(&mut self, parent: Vertex) {
        let sink = self.groups.find(parent);
        for &vertex in &self.region {
            self.groups.merge(vertex, sink);
            self.refusals[vertex] = None;
        }
    }
}

/// Why consumers of a reduction or an anchor are not its epilogue. `pattern` is the worst of them.
fn refused_after_loop(pattern: Pattern) -> Reason {
    match pattern {
        Pattern::Elemwise | Pattern::Broadcast | Pattern::Injective => Reason::MovesElements,
        Pattern::Reduce | Pattern::OutEwise => Reason::TwoAnchors,
        Pattern::Tuple | Pattern::Opaque => Reason::OpaqueOp,
    }
}

/// Why a producer of `parent` does not join its group, whose sink has the pattern `sink`. `edge` is the worst edge
/// between the two.
fn refused_before_loop(parent: Pattern, edge: Pattern, sink: Pattern) -> Reason {
    match (parent, sink) {
        (Pattern::Tuple | Pattern::Opaque, _) | (_, Pattern::Tuple | Pattern::Opaque) => Reason::OpaqueOp,
        (Pattern::OutEwise, _) => Reason::PrologueOfAnchor,
        // Only a use between the two can have such an edge.
        _ if edge > Pattern::Reduce => Reason::UsedElsewhere,
        (_, Pattern::OutEwise) => Reason::MovesElements,
        (_, Pattern::Reduce) => Reason::DifferentRows,
        (_, Pattern::Elemwise | Pattern::Broadcast | Pattern::Injective) => Reason::UsedElsewhere,
    }
}

/// Why a vertex or group of this pattern on the path prevents the merge: it uses the value, and cannot be in the sink's
/// kernel.
fn refused_on_path(pattern: Pattern) -> Reason {
    match pattern {
        Pattern::Elemwise | Pattern::Broadcast | Pattern::Injective => Reason::MovesElements,
        Pattern::Reduce | Pattern::OutEwise => Reason::UsedElsewhere,
        Pattern::Tuple | Pattern::Opaque => Reason::OpaqueOp,
    }
}
