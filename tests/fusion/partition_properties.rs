//! Random graphs through the partitioner: the groups are legal, and equal to those of obvious, slow twins.
//!
//! A failure prints the seed and the graph, one line per vertex, ready to become a case of its own.

use crate::legality::{broken_by_groups, broken_by_plan};
use opfuse::error::Reason;
use opfuse::internals::fusion::dominators::{Paths, PostDominators};
use opfuse::internals::fusion::{
    Decision, Options, Order, Pattern, PatternGraph, Plan, Users, Vertex, VertexFacts, VertexKind, partition, plan,
};
use opfuse::ir::{Graph, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// SplitMix64: seeded, tiny, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// The weight of each pattern in random graphs, from elementwise to opaque; tuples occur where the mix has them.
const MIXES: [[usize; 7]; 4] =
    [[10, 4, 2, 1, 1, 0, 0], [4, 4, 4, 2, 2, 1, 1], [6, 2, 6, 0, 0, 3, 0], [8, 4, 1, 1, 4, 0, 0]];

fn random_graph(seed: u64, max_len: usize) -> PatternGraph {
    let mut random = Random(seed);
    let mix = MIXES[random.below(MIXES.len())];
    let reach = [3, 8, max_len][random.below(3)];
    let n_params = 1 + random.below(3);
    let len = n_params + 1 + random.below(max_len - n_params);
    let mut graph = PatternGraph::with_capacity(len);
    for _ in 0..n_params {
        let n_unknown = random.below(2) as u32;
        graph.add(VertexFacts { rank: 2, n_unknown, ..VertexFacts::param() }, &[]);
    }
    for vertex in n_params..len {
        let mut ticket = random.below(mix.iter().sum());
        let place = mix.iter().position(|&share| ticket.checked_sub(share).map(|rest| ticket = rest).is_none());
        let pattern = Pattern::ALL[place.expect("the ticket is below the sum")];
        let inputs: Vec<_> = (0..=random.below(3))
            .map(|_| {
                let input = Vertex::new(vertex - 1 - random.below(reach.min(vertex)));
                let into_tuple = pattern == Pattern::Tuple || graph.pattern(input) == Pattern::Tuple;
                let refined = pattern == Pattern::Broadcast && !random.one_in(3);
                let edge = match (into_tuple, refined) {
                    (true, _) => pattern.max(Pattern::Injective).min(Pattern::Reduce),
                    (false, true) => Pattern::Elemwise,
                    (false, false) => pattern,
                };
                (input, edge)
            })
            .collect();
        let kind = if pattern == Pattern::Tuple { VertexKind::Tuple } else { VertexKind::Op };
        graph.add(VertexFacts { kind, ..VertexFacts::op(pattern) }, &inputs);
    }
    // A few outputs; nodes that they do not use are dead, which is tested, too.
    graph.mark_visible(Vertex::new(len - 1));
    for _ in 0..random.below(3) {
        graph.mark_visible(Vertex::new(random.below(len)));
    }
    graph
}

fn text(graph: &PatternGraph) -> String {
    let mut text = String::new();
    for vertex in graph.vertices() {
        let facts = graph.facts(vertex);
        write!(text, "  {vertex} {:?} {}{}", facts.kind, facts.pattern, if facts.visible { " visible" } else { "" })
            .expect("strings take text");
        for input in graph.inputs(vertex) {
            write!(text, " {}:{}", input.vertex, input.pattern).expect("strings take text");
        }
        text.push('\n');
    }
    text
}

fn random_options(seed: u64) -> Options {
    let mut random = Random(!seed);
    Options {
        opt_level: u32::from(!random.one_in(20)) * 2,
        max_fuse_depth: [256, 256, 2, 3, 5, 9, usize::MAX][random.below(7)],
        max_function_args: [0, 0, 0, 4, 9, 17][random.below(6)],
        order: [Order::Strict, Order::AnchorsFirst][random.below(2)],
        ..Options::default()
    }
}

#[test]
fn every_grouping_is_legal_and_every_edge_has_a_decision() {
    for seed in 0..if cfg!(debug_assertions) { 2000 } else { 10_000 } {
        let graph = random_graph(seed, 60);
        let options = random_options(seed);
        let partition = partition(&graph, &options);
        for (index, group) in partition.groups.iter().enumerate() {
            assert!(group.iter().all(|&vertex| partition.group_of[vertex].index() == index), "seed {seed}");
        }
        if let Some(complaint) = broken_by_groups(&graph, &options, &partition.groups) {
            panic!("seed {seed}, {options:?}: {complaint}\n{}", text(&graph));
        }
        for vertex in graph.vertices() {
            for input in graph.inputs(vertex) {
                let together = partition.group_of[input.vertex] == partition.group_of[vertex];
                let decision = partition.decision(input.vertex, vertex);
                assert_eq!(decision == Decision::Fused, together, "seed {seed}: {} -> {vertex}", input.vertex);
                let disabled = decision == Decision::Kept(Reason::Disabled);
                assert_eq!(disabled, options.opt_level == 0, "seed {seed}: {} -> {vertex}", input.vertex);
            }
        }
    }
}

/// Ops by pattern and inputs; the graph's parameter is 0.
type Ops<'a> = &'a [(Pattern, &'a [usize])];
/// A change of a plan.
type Change<'a> = &'a dyn Fn(&mut Plan);

/// The checker of the rules finds each rule broken.
#[test]
fn broken_rules_are_found() {
    use Pattern::{Elemwise, Injective, Opaque, OutEwise, Reduce};
    let x = vec![0];
    let cases: [(Ops<'_>, &[&[usize]], &str); 11] = [
        (&[(Elemwise, &[0])], &[&x], "rule 1"),
        (&[(Elemwise, &[0])], &[&x, &[1], &[1]], "rule 1"),
        // Two groups wait for each other, though no path of nodes is a cycle.
        (&[(Elemwise, &[0]), (Elemwise, &[1]), (Elemwise, &[0]), (Elemwise, &[3])], &[&x, &[1, 4], &[2, 3]], "rule 2"),
        (&[(Elemwise, &[0]), (Opaque, &[1]), (Elemwise, &[1, 2])], &[&x, &[1, 3], &[2]], "rule 3"),
        (&[(Elemwise, &[0]), (Elemwise, &[1]), (Opaque, &[1])], &[&x, &[1, 2], &[3]], "rule 4"),
        (&[(Opaque, &[0]), (Elemwise, &[1])], &[&x, &[1, 2]], "rule 5"),
        (&[(Reduce, &[0]), (Reduce, &[1])], &[&x, &[1, 2]], "rule 6"),
        (&[(Reduce, &[0]), (Elemwise, &[1])], &[&x, &[1, 2]], "rule 6"),
        (&[(Elemwise, &[0]), (OutEwise, &[1])], &[&x, &[1, 2]], "rule 6"),
        (&[(OutEwise, &[0]), (Injective, &[1])], &[&x, &[1, 2]], "rule 6"),
        (&[(Elemwise, &[0]), (Elemwise, &[1]), (Elemwise, &[2])], &[&x, &[1, 2, 3]], "rule 7"),
    ];
    let options = Options { max_fuse_depth: 2, ..Options::default() };
    for (ops, groups, rule) in cases {
        let mut graph = PatternGraph::default();
        graph.add(VertexFacts::param(), &[]);
        for (pattern, inputs) in ops {
            graph.add_op(*pattern, &inputs.iter().map(|&input| Vertex::new(input)).collect::<Vec<_>>());
        }
        graph.mark_visible(Vertex::new(ops.len()));
        let of = |group: &&[usize]| group.iter().map(|&vertex| Vertex::new(vertex)).collect();
        let groups: Vec<Vec<Vertex>> = groups.iter().map(of).collect();
        let found = broken_by_groups(&graph, &options, &groups).unwrap_or_default();
        assert!(found.starts_with(rule), "{rule}: {found:?} in {groups:?} of\n{}", text(&graph));
        let legal = partition(&graph, &options).groups;
        assert_eq!(broken_by_groups(&graph, &options, &legal), None, "{legal:?} of\n{}", text(&graph));
    }
}

/// The same for kernels of a plan: a legal plan is changed so that it breaks a rule.
#[test]
fn broken_rules_of_plans_are_found() {
    let text = "n0 = input: f32[8,4]
                n1 = exp(n0): f32[8,4]
                n2 = sum(n1; [-1], true, none): f32[8,1]
                n3 = sum(n1; [0], true, none): f32[1,4]
                n4 = div(n1, n2): f32[8,4]
                n5 = div(n1, n3): f32[8,4]
                n6 = cumsum(n4; 0, none): f32[8,4]
                return n4, n5, n6";
    let graph: Graph = text.parse().expect("it is a graph");
    let options = Options::default();
    let legal = plan(&graph, &options);
    assert_eq!(broken_by_plan(&graph, &options, &legal), None, "{}", legal.text(&graph));
    let n = NodeId::new;
    let step_of = |plan: &Plan, node: NodeId| {
        plan.steps.iter().position(|step| step.nodes.contains(&node)).expect("every node has a step")
    };
    let joined = |plan: &mut Plan, nodes: &[NodeId]| {
        let into = step_of(plan, nodes[0]);
        for &node in &nodes[1..] {
            let from = step_of(plan, node);
            plan.steps[from].nodes.retain(|other| *other != node);
            plan.steps[into].nodes.push(node);
            let outputs = std::mem::take(&mut plan.steps[from].outputs);
            plan.steps[into].outputs.extend(outputs);
        }
    };
    let change: [(&str, Change<'_>); 7] = [
        ("rule 1", &|plan| plan.steps.retain(|step| !step.nodes.contains(&n(6)))),
        ("rule 1", &|plan| plan.steps.push(plan.steps[0].clone())),
        ("rule 2", &|plan| plan.steps.reverse()),
        ("rule 4", &|plan| plan.steps.iter_mut().for_each(|step| step.outputs.retain(|output| *output != n(4)))),
        ("rule 4", &|plan| {
            let step = step_of(plan, n(2));
            plan.steps[step].outputs.push(n(2));
        }),
        ("rules 5 and 6", &|plan| joined(plan, &[n(4), n(6)])),
        ("rule 6", &|plan| joined(plan, &[n(2), n(3)])),
    ];
    for (index, (rule, change)) in change.iter().enumerate() {
        let mut plan = legal.clone();
        change(&mut plan);
        let found = broken_by_plan(&graph, &options, &plan).unwrap_or_default();
        assert!(found.contains(rule), "change {index}: {rule}: {found:?}\n{}", plan.text(&graph));
    }
    let few = Options { max_fuse_depth: 1, ..options };
    assert!(broken_by_plan(&graph, &few, &legal).is_some_and(|found| found.contains("rule 7")));
    assert_eq!(broken_by_plan(&graph, &few, &plan(&graph, &few)), None);
}

#[test]
fn post_dominators_are_what_all_paths_share() {
    for seed in 0..4000 {
        let graph = random_graph(seed, 14);
        let users = Users::of(&graph);
        let tree = PostDominators::of(&graph, &users);
        for vertex in graph.vertices() {
            let found = tree.parent(vertex).map(|parent| (parent, tree.path(vertex)));
            assert_eq!(found, nearest_on_all_paths(&graph, &users, vertex), "seed {seed}, {vertex}:\n{}", text(&graph));
        }
    }
}

/// The definition: lists every path from `vertex` to an output or an unused value, intersects them, and examines every
/// path up to the result.
fn nearest_on_all_paths(graph: &PatternGraph, users: &Users, vertex: Vertex) -> Option<(Vertex, Paths)> {
    let mut paths = Vec::new();
    let mut open = vec![vec![(vertex, Pattern::Elemwise)]];
    while let Some(path) = open.pop() {
        let (last, _) = path[path.len() - 1];
        let onward = users.of_vertex(last);
        if graph.facts(last).visible || onward.is_empty() {
            paths.push(path);
            continue;
        }
        open.extend(onward.iter().map(|user| [&path[..], &[(user.vertex, user.pattern)]].concat()));
    }
    let on = |path: &[(Vertex, Pattern)], wanted: Vertex| path.iter().any(|&(met, _)| met == wanted);
    let parent = graph.vertices().find(|&v| v > vertex && paths.iter().all(|path| on(path, v)))?;
    let mut way = Paths { edge: Pattern::Elemwise, between: Pattern::Elemwise, length: 0 };
    for path in paths {
        let end = path.iter().position(|&(met, _)| met == parent)?;
        for (place, &(met, edge)) in path[..=end].iter().enumerate().skip(1) {
            way.edge = way.edge.max(edge);
            way.length = way.length.max(place as u32);
            way.between = if place < end { way.between.max(graph.pattern(met)) } else { way.between };
        }
    }
    Some((parent, way))
}

#[test]
fn long_walks_over_dominators_are_exact() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut graph = PatternGraph::default();
        for index in 0..120_usize {
            let pattern =
                [Pattern::Elemwise, Pattern::ALL[random.below(Pattern::ALL.len())]][usize::from(random.one_in(9))];
            let mut inputs: Vec<_> = index.checked_sub(1).map(Vertex::new).into_iter().collect();
            if index > 0 && random.one_in(4) {
                inputs.push(Vertex::new(random.below(index)));
            }
            graph.add_op(pattern, &inputs);
        }
        graph.mark_visible(Vertex::new(119));
        let users = Users::of(&graph);
        let tree = PostDominators::of(&graph, &users);
        let common = common_vertices(&graph, &users);
        for vertex in graph.vertices() {
            let parent = common[vertex.index()].iter().copied().find(|&other| other > vertex);
            assert_eq!(tree.parent(vertex), parent, "seed {seed}, {vertex}:\n{}", text(&graph));
            let way = parent.map(|parent| way_by_tables(&graph, &users, vertex, parent));
            assert_eq!(parent.map(|_| tree.path(vertex)), way, "seed {seed}, {vertex}:\n{}", text(&graph));
        }
    }
}

/// For each vertex the vertices on every path from it, itself included: the intersection over its users.
fn common_vertices(graph: &PatternGraph, users: &Users) -> Vec<BTreeSet<Vertex>> {
    let mut common = vec![BTreeSet::new(); graph.len()];
    for vertex in graph.vertices().rev() {
        let of_users = users.of_vertex(vertex).iter().map(|user| common[user.vertex.index()].clone());
        let shared = of_users.reduce(|a, b| &a & &b).filter(|_| !graph.facts(vertex).visible);
        common[vertex.index()] = shared.unwrap_or_default();
        common[vertex.index()].insert(vertex);
    }
    common
}

/// Walks back from `parent` and keeps the worst pattern and the longest path for every vertex in between.
fn way_by_tables(graph: &PatternGraph, users: &Users, vertex: Vertex, parent: Vertex) -> Paths {
    let nothing = Paths { edge: Pattern::Elemwise, between: Pattern::Elemwise, length: 0 };
    let mut ways: BTreeMap<Vertex, Paths> = BTreeMap::from([(parent, nothing)]);
    for at in (vertex.index()..parent.index()).rev().map(Vertex::new) {
        let mut way = nothing;
        for user in users.of_vertex(at) {
            let Some(&rest) = ways.get(&user.vertex) else { continue };
            let passed = if user.vertex == parent { Pattern::Elemwise } else { graph.pattern(user.vertex) };
            way.edge = way.edge.max(user.pattern).max(rest.edge);
            way.between = way.between.max(passed).max(rest.between);
            way.length = way.length.max(rest.length + 1);
        }
        if way.length > 0 {
            ways.insert(at, way);
        }
    }
    ways[&vertex]
}

#[test]
fn groups_are_those_of_the_plain_algorithm() {
    for seed in 0..4000 {
        let graph = random_graph(seed, 40);
        let max_fuse_depth = [256, 3, 6, 12, usize::MAX][seed as usize % 5];
        let options = Options { max_fuse_depth, order: Order::Strict, ..Options::default() };
        let found: BTreeSet<Vec<Vertex>> = partition(&graph, &options).groups.into_iter().collect();
        let plain = PlainPartitioner::run(&graph, max_fuse_depth);
        assert!(found == plain, "seed {seed}, depth {max_fuse_depth}\n{found:?}\n{plain:?}\n{}", text(&graph));
    }
}

#[test]
fn a_limit_that_is_never_reached_changes_nothing() {
    // Without a limit the walk jumps from group to group; with one it counts vertex by vertex.
    for seed in 0..4000 {
        let graph = random_graph(seed, 60);
        for order in [Order::Strict, Order::AnchorsFirst] {
            let groups =
                |max_fuse_depth| partition(&graph, &Options { max_fuse_depth, order, ..Options::default() }).groups;
            assert_eq!(groups(usize::MAX), groups(1_000_000_000), "seed {seed}, {order:?}\n{}", text(&graph));
        }
    }
}

/// The rules as they read, with none of the shortcuts.
struct PlainPartitioner<'a> {
    graph: &'a PatternGraph,
    users: Users,
    /// The sink of each vertex' group.
    sink: Vec<Vertex>,
    pattern: Vec<Pattern>,
    size: Vec<usize>,
    anchored: Vec<bool>,
}

impl PlainPartitioner<'_> {
    fn run(graph: &PatternGraph, max_fuse_depth: usize) -> BTreeSet<Vec<Vertex>> {
        let users = Users::of(graph);
        let tree = PostDominators::of(graph, &users);
        let pattern: Vec<_> = graph.vertices().map(|vertex| graph.pattern(vertex)).collect();
        let anchored = pattern.iter().map(|&pattern| pattern == Pattern::OutEwise).collect();
        let sink: Vec<_> = graph.vertices().collect();
        let mut plain = PlainPartitioner { graph, users, sink, pattern, size: vec![1; graph.len()], anchored };
        for phase in 0..3 {
            for vertex in graph.vertices() {
                if plain.pattern[vertex.index()] == Pattern::Opaque {
                    continue;
                }
                let Some(parent) = tree.parent(vertex) else { continue };
                let between = plain.between(vertex, parent);
                let own_sizes =
                    plain.size[vertex.index()] + between.iter().map(|v| plain.size[v.index()]).sum::<usize>();
                if plain.size[plain.sink[parent.index()].index()].saturating_add(own_sizes) > max_fuse_depth {
                    continue;
                }
                if plain.agrees(phase, vertex, parent, tree.path(vertex).edge, &between) {
                    plain.merge(vertex, parent);
                    between.into_iter().for_each(|member| plain.merge(member, parent));
                }
            }
        }
        let mut groups: BTreeMap<Vertex, Vec<Vertex>> = BTreeMap::new();
        graph.vertices().for_each(|vertex| groups.entry(plain.sink[vertex.index()]).or_default().push(vertex));
        groups.into_values().collect()
    }

    fn between(&self, vertex: Vertex, parent: Vertex) -> BTreeSet<Vertex> {
        let mut found = BTreeSet::new();
        let mut open = vec![vertex];
        while let Some(at) = open.pop() {
            for user in self.users.of_vertex(at) {
                if user.vertex != parent && found.insert(user.vertex) {
                    open.push(user.vertex);
                }
            }
        }
        found
    }

    fn agrees(&self, phase: u32, v: Vertex, parent: Vertex, edge: Pattern, between: &BTreeSet<Vertex>) -> bool {
        use Pattern::{Broadcast, Elemwise, Injective, Opaque, OutEwise, Reduce, Tuple};
        let group = |vertex: Vertex| self.pattern[self.sink[vertex.index()].index()];
        let path_at_most = |limit| between.iter().all(|&vertex| group(vertex) <= limit);
        let own = self.pattern[v.index()];
        let parent_own = self.pattern[parent.index()];
        if phase == 2 {
            return own <= Injective && parent_own == Tuple && group(parent) <= Injective && path_at_most(Injective);
        }
        if self.sink[v.index()] == self.sink[parent.index()] || parent_own == Tuple {
            return false;
        }
        match own {
            OutEwise => phase == 0 && edge == Elemwise && path_at_most(Broadcast) && group(parent) <= Broadcast,
            Elemwise | Broadcast => {
                let sink = matches!(group(parent), Elemwise | Broadcast | Injective | Reduce | OutEwise);
                edge <= Reduce && path_at_most(Injective) && sink
            }
            Injective | Tuple => phase == 1 && path_at_most(Injective) && group(parent) <= Injective,
            Reduce | Opaque => false,
        }
    }

    fn merge(&mut self, child: Vertex, parent: Vertex) {
        let (from, into) = (self.sink[child.index()], self.sink[parent.index()]);
        if from == into {
            return;
        }
        self.size[into.index()] += self.size[from.index()];
        if self.anchored[from.index()] {
            assert!(!self.anchored[into.index()], "two anchors in\n{}", text(self.graph));
            self.anchored[into.index()] = true;
            self.pattern[into.index()] = self.pattern[into.index()].max(self.pattern[from.index()]);
        }
        self.sink.iter_mut().filter(|sink| **sink == from).for_each(|sink| *sink = into);
    }
}

/// Asks for the decisions of `edges` in a graph of ops over one parameter; the last op is the output.
fn check_decisions(ops: &[(Pattern, &[usize])], edges: &[(usize, usize, Decision)]) {
    let mut graph = PatternGraph::default();
    graph.add(VertexFacts::param(), &[]);
    for (pattern, inputs) in ops {
        let inputs: Vec<_> = inputs.iter().map(|&input| Vertex::new(input)).collect();
        graph.add_op(*pattern, &inputs);
    }
    graph.mark_visible(Vertex::new(ops.len()));
    let partition = partition(&graph, &Options::default());
    for (producer, user, expected) in edges {
        let found = partition.decision(Vertex::new(*producer), Vertex::new(*user));
        assert_eq!(found, *expected, "v{producer} -> v{user} of\n{}", text(&graph));
    }
}

#[test]
fn decisions_name_the_rule_that_kept_an_edge() {
    use Decision::{Fused, Kept};
    use Pattern::{Elemwise, Injective, Opaque, OutEwise, Reduce};
    let kept = Kept;
    // relu -> (matmul, add): the skip value would have to be both an operand and an epilogue operand.
    check_decisions(
        &[(Elemwise, &[0]), (OutEwise, &[1, 0]), (Elemwise, &[2, 1]), (Injective, &[3]), (Elemwise, &[4])],
        &[
            (0, 1, kept(Reason::OpaqueOp)),
            (1, 2, kept(Reason::PrologueOfAnchor)),
            (1, 3, kept(Reason::UsedElsewhere)),
            (2, 3, Fused),
            (3, 4, kept(Reason::MovesElements)),
            (4, 5, Fused),
        ],
    );
    // Softmax: the exponentials feed a reduction and its user.
    check_decisions(
        &[(Elemwise, &[0]), (Reduce, &[1]), (Elemwise, &[1, 2])],
        &[
            (1, 2, kept(Reason::UsedElsewhere)),
            (1, 3, kept(Reason::UsedElsewhere)),
            (2, 3, kept(Reason::MovesElements)),
        ],
    );
    check_decisions(
        &[(Injective, &[0]), (Reduce, &[1]), (Reduce, &[2]), (Opaque, &[3])],
        &[(1, 2, kept(Reason::DifferentRows)), (2, 3, kept(Reason::TwoAnchors)), (3, 4, kept(Reason::OpaqueOp))],
    );
}

#[test]
fn limits_are_named_as_reasons() {
    let mut graph = PatternGraph::default();
    let x = graph.add(VertexFacts::param(), &[]);
    let y = graph.add(VertexFacts::param(), &[]);
    let a = graph.add_op(Pattern::Elemwise, &[x, y]);
    let b = graph.add_op(Pattern::Elemwise, &[a, x]);
    let c = graph.add_op(Pattern::Elemwise, &[b]);
    graph.mark_visible(b);
    graph.mark_visible(c);
    let decide = |options: &Options| partition(&graph, options).decision(a, b);
    let limits = Options::default();
    assert_eq!(decide(&limits), Decision::Fused);
    assert_eq!(decide(&Options { max_fuse_depth: 1, ..limits }), Decision::Kept(Reason::GroupTooLarge));
    assert_eq!(decide(&Options { max_function_args: 3, ..limits }), Decision::Kept(Reason::TooManyArguments));
    assert_eq!(decide(&Options { opt_level: 0, ..limits }), Decision::Kept(Reason::Disabled));
    assert_eq!(partition(&graph, &limits).decision(b, c), Decision::Kept(Reason::IsOutput));
}

#[test]
fn anchors_go_first_and_do_not_depend_on_the_listing() {
    // matmul -> add1 -> add2 with a light value in both adds, listed before and after the matrix product.
    for light_first in [true, false] {
        let mut graph = PatternGraph::default();
        let x = graph.add(VertexFacts::param(), &[]);
        let light = light_first.then(|| graph.add_op(Pattern::Elemwise, &[x]));
        let product = graph.add_op(Pattern::OutEwise, &[x, x]);
        let light = light.unwrap_or_else(|| graph.add_op(Pattern::Elemwise, &[x]));
        let add = graph.add_op(Pattern::Elemwise, &[product, light]);
        let sum = graph.add_op(Pattern::Elemwise, &[add, light]);
        graph.mark_visible(sum);
        assert_eq!(partition(&graph, &Options::default()).groups.len(), 2, "light_first: {light_first}");
    }
}
