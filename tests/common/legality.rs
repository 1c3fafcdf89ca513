//! The rules of legality of `fuser_cases/SCHEMA.md`, judged without the fuser: from a graph and its groups alone.
//!
//! [`broken_by_groups`] judges the groups of the base partitioner, which keep every rule to the letter.
//! [`broken_by_plan`] judges the kernels of a plan by relaxed rules. A kernel may have several results and several
//! reductions over the same rows, and may hold matrix products that run in blocks of rows.

#![allow(dead_code, reason = "every test uses a part of it")]

use opfuse::internals::fusion::{Options, Order, Pattern, PatternGraph, Plan, Step, StepKind, Vertex};
use opfuse::internals::ir::infer::reduced_dims;
use opfuse::ir::{Graph, Meaning, NodeId, NodeKind};
use std::collections::BTreeSet;

/// The users of each node, and its group.
struct Grouped {
    users: Vec<Vec<usize>>,
    group_of: Vec<Option<usize>>,
    n_groups: usize,
}

impl Grouped {
    /// Rules 2 and 3: no path leads from a group back to it. Paths may pass through nodes of no group.
    fn path_back(&self) -> Option<String> {
        for group in 0..self.n_groups {
            let is_member = |node: usize| self.group_of[node] == Some(group);
            let members = (0..self.users.len()).filter(|&node| is_member(node));
            let mut open: Vec<usize> =
                members.flat_map(|node| &self.users[node]).copied().filter(|&user| !is_member(user)).collect();
            let mut seen = vec![false; self.users.len()];
            while let Some(node) = open.pop() {
                if is_member(node) {
                    return Some(format!("rule 3: a path leaves group {group} and comes back at {node}"));
                }
                if !std::mem::replace(&mut seen[node], true) {
                    open.extend(&self.users[node]);
                }
            }
        }
        self.cycle()
    }

    /// Rule 2, by topological sorting: groups without pending operands are removed until none is left.
    fn cycle(&self) -> Option<String> {
        // A node of no group is a group of its own.
        let own = |node: usize| self.group_of[node].unwrap_or(self.n_groups + node);
        let mut edges: BTreeSet<(usize, usize)> = BTreeSet::new();
        for (node, users) in self.users.iter().enumerate() {
            edges.extend(users.iter().map(|&user| (own(node), own(user))).filter(|(from, to)| from != to));
        }
        let mut waits = vec![0; self.n_groups + self.users.len()];
        edges.iter().for_each(|&(_, to)| waits[to] += 1);
        let mut ready: Vec<usize> = (0..waits.len()).filter(|&group| waits[group] == 0).collect();
        let mut n_done = 0;
        while let Some(group) = ready.pop() {
            n_done += 1;
            for &(_, to) in edges.range((group, 0)..(group + 1, 0)) {
                waits[to] -= 1;
                if waits[to] == 0 {
                    ready.push(to);
                }
            }
        }
        (n_done < waits.len()).then(|| "rule 2: the graph of groups has a cycle".into())
    }
}

/// The rule that groups of the base partitioner break, if there is one.
pub(crate) fn broken_by_groups(graph: &PatternGraph, options: &Options, groups: &[Vec<Vertex>]) -> Option<String> {
    let mut users = vec![Vec::new(); graph.len()];
    for vertex in graph.vertices() {
        for input in graph.inputs(vertex) {
            users[input.vertex.index()].push(vertex.index());
        }
    }
    let mut group_of = vec![None; graph.len()];
    for (index, group) in groups.iter().enumerate() {
        for vertex in group {
            if group_of[vertex.index()].replace(index).is_some() {
                return Some(format!("rule 1: {vertex} is in two groups"));
            }
        }
    }
    if let Some(missing) = group_of.iter().position(Option::is_none) {
        return Some(format!("rule 1: {} is in no group", Vertex::new(missing)));
    }
    let grouped = Grouped { users, group_of, n_groups: groups.len() };
    let broken = grouped.path_back();
    broken.or_else(|| groups.iter().find_map(|group| broken_by_group(graph, options, &grouped.users, group)))
}

fn broken_by_group(graph: &PatternGraph, options: &Options, users: &[Vec<usize>], group: &[Vertex]) -> Option<String> {
    let is_member = |index: usize| group.contains(&Vertex::new(index));
    let sink = *group.last()?;
    for &vertex in group.iter().filter(|&&vertex| vertex != sink) {
        let users = &users[vertex.index()];
        if graph.facts(vertex).visible || users.iter().any(|&user| !is_member(user)) {
            return Some(format!("rule 4: {vertex} escapes from {group:?} beside the sink"));
        }
        if users.is_empty() {
            return Some(format!("rule 4: {vertex} of {group:?} does not lead to the sink"));
        }
    }
    let count = |pattern: Pattern| group.iter().filter(|&&vertex| graph.pattern(vertex) == pattern).count();
    if group.len() > 1 && count(Pattern::Opaque) > 0 {
        return Some(format!("rule 5: an opaque node is not alone in {group:?}"));
    }
    if count(Pattern::Reduce) + count(Pattern::OutEwise) > 1 {
        return Some(format!("rule 6: two anchors in {group:?}"));
    }
    if count(Pattern::Reduce) == 1 && graph.pattern(sink) != Pattern::Reduce {
        return Some(format!("rule 6: the reduction is not the sink of {group:?}"));
    }
    if group.len() > options.max_fuse_depth.max(1) {
        return Some(format!("rule 7: {} nodes in {group:?}", group.len()));
    }
    let anchor = *group.iter().find(|&&vertex| graph.pattern(vertex) == Pattern::OutEwise)?;
    if graph.inputs(anchor).iter().any(|input| group.contains(&input.vertex)) {
        return Some(format!("rule 6: something is fused into an operand of {anchor} in {group:?}"));
    }
    if options.order == Order::Strict {
        // In listing order a light vertex may take in an injective one before an anchor joins in front of both. It
        // takes some 50,000 random graphs to see it once; the other order exists to rule it out.
        return None;
    }
    let mut behind = vec![anchor.index()];
    while let Some(index) = behind.pop() {
        for &user in users[index].iter().filter(|&&user| is_member(user)) {
            if graph.pattern(Vertex::new(user)) > Pattern::Broadcast {
                return Some(format!("rule 6: {} follows the anchor {anchor} in {group:?}", Vertex::new(user)));
            }
            behind.push(user);
        }
    }
    None
}

/// What a node is to the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// Given, or made where it is used.
    Free,
    View,
    Loop,
    Fold,
    Anchor,
    /// Written part by part.
    Parts,
    Opaque,
}

fn sort(graph: &Graph, node: NodeId) -> Sort {
    let NodeKind::Op(op) = graph[node].kind else { return Sort::Free };
    match op.row().meaning {
        Meaning::Fill | Meaning::Range => Sort::Free,
        Meaning::View(_) | Meaning::Window(_) => Sort::View,
        Meaning::Body(..) | Meaning::Gather(_) => Sort::Loop,
        Meaning::Fold(_) => Sort::Fold,
        Meaning::Product => Sort::Anchor,
        Meaning::Concat | Meaning::Overlay => Sort::Parts,
        Meaning::Routine(_) | Meaning::Decompose(_) => Sort::Opaque,
    }
}

/// The rule that a plan breaks, if there is one.
pub(crate) fn broken_by_plan(graph: &Graph, options: &Options, plan: &Plan) -> Option<String> {
    let mut users = vec![Vec::new(); graph.len()];
    for (id, node) in graph.nodes() {
        node.args.iter().for_each(|arg| users[arg.index()].push(id.index()));
    }
    let mut group_of = vec![None; graph.len()];
    for (index, step) in plan.steps.iter().enumerate() {
        for &node in &step.nodes {
            if group_of[node.index()].replace(index).is_some() {
                return Some(format!("rule 1: {node} is in two steps"));
            }
        }
    }
    // Views that are not needed in memory, and values made where they are used, need no step.
    let needs_one = |node: &NodeId| !matches!(sort(graph, *node), Sort::Free | Sort::View);
    let mut computed = graph.nodes().map(|(id, _)| id).filter(needs_one);
    if let Some(missing) = computed.find(|node| group_of[node.index()].is_none()) {
        return Some(format!("rule 1: {missing} is in no step"));
    }
    let grouped = Grouped { users, group_of, n_groups: plan.steps.len() };
    for (index, step) in plan.steps.iter().enumerate() {
        if let Some(rule) = broken_by_step(graph, options, step) {
            return Some(format!("s{index} breaks {rule}"));
        }
        for &node in &step.nodes {
            let escapes = escapes(graph, &grouped, node);
            if escapes != step.outputs.contains(&node) {
                let what = if escapes { "escapes, and is not written" } else { "is written for nobody" };
                return Some(format!("s{index} breaks rule 4: {node} {what}"));
            }
        }
        let late = step.nodes.iter().flat_map(|&node| &graph[node].args).find(|arg| {
            let made_in = grouped.group_of[arg.index()];
            made_in.is_some_and(|made_in| made_in > index)
        });
        if let Some(late) = late {
            return Some(format!("s{index} breaks rule 2: {late} is made later"));
        }
    }
    grouped.path_back()
}

/// Whether a node outside its step needs a value in memory. For a view without a step, its users decide.
fn escapes(graph: &Graph, grouped: &Grouped, node: NodeId) -> bool {
    let own = grouped.group_of[node.index()];
    let mut open = vec![node.index()];
    while let Some(node) = open.pop() {
        if graph.outputs().iter().any(|output| output.index() == node) {
            return true;
        }
        for &user in &grouped.users[node] {
            match grouped.group_of[user] {
                Some(group) if Some(group) == own => {}
                Some(_) => return true,
                None => open.push(user),
            }
        }
    }
    false
}

fn broken_by_step(graph: &Graph, options: &Options, step: &Step) -> Option<String> {
    let count = |wanted: Sort| step.nodes.iter().filter(|&&node| sort(graph, node) == wanted).count();
    let of = |sorts: &[Sort]| sorts.iter().map(|&sort| count(sort)).sum::<usize>() == step.nodes.len();
    let alone = step.nodes.len() == 1;
    let [anchors, parts] = [count(Sort::Anchor), count(Sort::Parts)];
    let light = [Sort::Free, Sort::View, Sort::Loop];
    let fits = match &step.kind {
        StepKind::Alias => alone && of(&[Sort::View]),
        StepKind::Product => alone && anchors == 1,
        StepKind::Routine => alone && count(Sort::Opaque) == 1,
        StepKind::Kernel(_) if parts > 0 => {
            of(&[&light[..], &[Sort::Fold, Sort::Parts]].concat()) && is_last(graph, step)
        }
        StepKind::Kernel(_) => of(&[&light[..], &[Sort::Fold]].concat()),
        StepKind::Parts(_) => parts > 0 && of(&[&light[..], &[Sort::Parts]].concat()),
        StepKind::Blocks(_) => anchors > 0 && of(&[&light[..], &[Sort::Fold, Sort::Anchor]].concat()),
    };
    if !fits {
        let sorts: Vec<String> = step.nodes.iter().map(|&node| format!("{node} {:?}", sort(graph, node))).collect();
        return Some(format!("rules 5 and 6: {} cannot be one step", sorts.join(", ")));
    }
    if let StepKind::Blocks(_) = step.kind
        && let Some(rule) = broken_by_blocks(graph, step)
    {
        return Some(rule);
    }
    if let StepKind::Kernel(_) = step.kind {
        let folds = step.nodes.iter().copied().filter(|&node| sort(graph, node) == Sort::Fold);
        // A view inside may have split or joined rows or elements; their number stays the same.
        let counts = |sizes: Vec<usize>| if count(Sort::View) > 0 { vec![sizes.iter().product()] } else { sizes };
        let loops: BTreeSet<[Vec<usize>; 2]> = folds.map(|fold| loops(graph, fold).map(counts)).collect();
        if loops.len() > 1 {
            return Some(format!("rule 6: reductions over other rows or elements: {loops:?}"));
        }
    }
    let n_nodes = step.nodes.len();
    (n_nodes > options.max_fuse_depth.max(1)).then(|| format!("rule 7: {n_nodes} nodes"))
}

/// Whether a kernel has concatenations of what it computes, of what it reads anyway, and of numbers, and nothing in it
/// reads their results but concatenations.
fn is_last(graph: &Graph, step: &Step) -> bool {
    let is_parts = |node: NodeId| sort(graph, node) == Sort::Parts;
    let others = || step.nodes.iter().copied().filter(|&node| !is_parts(node));
    let reads = |base: NodeId| others().flat_map(|node| &graph[node].args).any(|&arg| graph.view_base(arg) == base);
    // An operand without elements has no place in the result.
    let is_made = |arg: &NodeId| {
        let (base, is_empty) = (graph.view_base(*arg), graph[*arg].ty.numel() == 0);
        is_empty || step.nodes.contains(&base) || sort(graph, base) == Sort::Free || reads(base)
    };
    let is_joined = |node: NodeId| graph[node].args.iter().all(is_made);
    let is_read = others().filter(|&node| sort(graph, node) != Sort::View).any(|node| {
        graph[node].args.iter().any(|&arg| is_parts(graph.view_base(arg)) && step.nodes.contains(&graph.view_base(arg)))
    });
    step.nodes.iter().copied().filter(|&node| is_parts(node)).all(is_joined) && !is_read
}

/// A product in blocks of rows needs its whole right operand and the same rows of its left one.
fn broken_by_blocks(graph: &Graph, step: &Step) -> Option<String> {
    for &anchor in step.nodes.iter().filter(|&&node| sort(graph, node) == Sort::Anchor) {
        let [left, right] = [graph[anchor].args[0], graph[anchor].args[1]];
        if step.nodes.contains(&graph.view_base(right)) {
            return Some(format!("rule 6: {right} is made in the blocks that {anchor} needs all of it for"));
        }
        let mut node = left;
        while step.nodes.contains(&graph.view_base(left)) && sort(graph, node) == Sort::View {
            let source = graph[node].args[0];
            let [view, whole] = [node, source].map(|node| &graph[node].ty);
            if !view.is_contiguous() || !whole.is_contiguous() || view.numel() != whole.numel() {
                return Some(format!("rule 6: {anchor} reads rows of {source} that its own block has not made"));
            }
            node = source;
        }
    }
    None
}

/// The rows of a reduction and the elements of each.
fn loops(graph: &Graph, fold: NodeId) -> [Vec<usize>; 2] {
    let sizes = &graph[graph[fold].args[0]].ty.sizes;
    let dims = reduced_dims("fold", &graph[fold].attrs, sizes.len()).expect("the graph is verified");
    [false, true].map(|reduced| {
        let dims = (0..sizes.len()).filter(|dim| dims.contains(dim) == reduced);
        dims.map(|dim| sizes[dim]).filter(|&size| size != 1).collect()
    })
}
