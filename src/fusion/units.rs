//! A graph cut into units: the state of planning.
//!
//! A unit is a kernel, a view of memory, a matrix product, a piecewise value, a routine, or a group in blocks of rows.
//! Plain numbers, fills and ranges belong to no unit, because a kernel computes them where it uses them. A view belongs
//! to a kernel only if its source and all its users do. Otherwise it is a view of memory, which costs nothing.
//!
//! [`Units::base`] cuts a graph along the groups of the base partition. The merge steps then replace several units by
//! one.

use super::cost::{CostModel, pays};
use super::order::TopologicalOrder;
use super::partition::{Decision, Options, partition};
use super::parts::{filled_with, place_parts};
use super::pattern_graph::{PatternGraph, Vertex, VertexFacts};
use super::rates::Nanos;
use super::region::{MAX_OPERANDS, Region, place};
use super::role::{Role, op_role, role};
use super::unit::{Unit, UnitId, UnitKind};
use crate::error::Reason;
use crate::ir::entity::Arena;
use crate::ir::{Graph, NodeId, Op, Pattern, SideTable};
use std::collections::{HashMap, HashSet};

/// The most nodes of one kernel, unless the options have a lower limit.
const MAX_NODES: usize = 256;

/// A graph cut into units.
#[derive(Debug)]
pub struct Units<'g> {
    /// The graph.
    pub graph: &'g Graph,
    /// The units. An absorbed one is `None`.
    pub units: Arena<UnitId, Option<Unit>>,
    /// The unit of each node that has one.
    pub unit_of: SideTable<NodeId, Option<UnitId>>,
    /// The users of each node.
    pub users: SideTable<NodeId, Vec<NodeId>>,
    /// Whether the value is an output of the graph.
    pub is_output: SideTable<NodeId, bool>,
    /// For each node of a base group that was split, why the group is not one kernel.
    pub splits: SideTable<NodeId, Option<Reason>>,
    /// The cost model.
    pub cost: CostModel<'g>,
    /// A topological order of the units, maintained while they are merged.
    order: TopologicalOrder,
    /// The most nodes of a merged unit.
    pub max_nodes: usize,
    /// The new values of inputs that the caller overwrites with them.
    pub renewed: HashSet<NodeId>,
    /// The base partition, for [`Units::base_reason`].
    base: super::partition::Partition,
}

/// A node as the partitioner names it.
fn vertex(node: NodeId) -> Vertex {
    Vertex::new(node.index())
}

/// The graph as the partitioner sees it.
pub fn pattern_graph(graph: &Graph) -> PatternGraph {
    let mut out = PatternGraph::with_capacity(graph.len());
    for (id, node) in graph.nodes() {
        let Some(op) = node.op().filter(|op| op_role(*op) != Role::Inline) else {
            out.add(VertexFacts::param(), &[]);
            continue;
        };
        let pattern = op.pattern(&graph.arg_types(id), &node.ty);
        let edge = |arg: &NodeId| {
            let same = pattern == Pattern::Broadcast && graph[*arg].ty.sizes == node.ty.sizes;
            (vertex(*arg), if same { Pattern::Elemwise } else { pattern })
        };
        let edges: Vec<(Vertex, Pattern)> = node.args.iter().map(edge).collect();
        out.add(VertexFacts::op(pattern), &edges);
    }
    for &output in graph.outputs() {
        out.mark_visible(vertex(output));
    }
    out
}

impl<'g> Units<'g> {
    /// Cuts `graph` along the groups of its base partition. Views of memory and matrix products become units of their
    /// own. A group whose nodes do not fit common loops is cut into single nodes.
    pub fn base(graph: &'g Graph, options: &Options) -> Units<'g> {
        let base = partition(&pattern_graph(graph), options);
        let mut users = SideTable::filled(graph, Vec::new);
        for (id, node) in graph.nodes() {
            for &arg in &node.args {
                users[arg].push(id);
            }
        }
        let mut is_output = SideTable::filled(graph, || false);
        for &output in graph.outputs() {
            is_output[output] = true;
        }
        let unit_of = SideTable::filled(graph, || None);
        let splits = SideTable::filled(graph, || None);
        let (cost, order) = (CostModel::new(graph, options.rates), TopologicalOrder::default());
        let max_nodes = options.max_fuse_depth.min(MAX_NODES);
        let (units, renewed) = (Arena::default(), HashSet::default());
        let mut units =
            Units { graph, units, unit_of, users, is_output, splits, max_nodes, renewed, cost, order, base };
        let inside = units.views_inside();
        units.cut(&inside);
        units
    }

    /// Whether each view is computed inside a kernel: its source and all its users are in one base group.
    fn views_inside(&self) -> SideTable<NodeId, bool> {
        let mut inside = SideTable::filled(self.graph, || false);
        let group = |node: NodeId| self.base.group_of[vertex(node)];
        for (id, node) in self.graph.nodes().rev() {
            if role(self.graph, id) == Role::View && !self.is_output[id] {
                let stays = |user: &NodeId| {
                    let fits = role(self.graph, *user) == Role::Loop || inside[*user];
                    group(*user) == group(id) && fits && !self.is_gathered_from(*user, id)
                };
                let own = group(node.args[0]) == group(id);
                inside[id] = own && !self.users[id].is_empty() && self.users[id].iter().all(stays);
            }
        }
        // A view of a view that lies in memory is one itself.
        for (id, node) in self.graph.nodes() {
            let source = node.args.first().copied();
            if inside[id] && source.is_some_and(|source| role(self.graph, source) == Role::View && !inside[source]) {
                inside[id] = false;
            }
        }
        inside
    }

    /// Whether a kernel computes new values of inputs that nothing else reads. It can write them straight to these.
    pub fn renews(&self, unit: UnitId) -> bool {
        let is_own = |user: &NodeId| self.unit_of[*user] == Some(unit);
        let Unit { kind, outputs, .. } = self.unit(unit);
        matches!(kind, UnitKind::Kernel(region) if !region.has_folds())
            && outputs.iter().any(|output| self.renewed.contains(output) && self.users[*output].iter().all(is_own))
    }

    fn is_gathered_from(&self, user: NodeId, source: NodeId) -> bool {
        self.graph[user].op().is_some_and(Op::is_gather) && self.graph[user].args[0] == source
    }

    fn cut(&mut self, inside: &SideTable<NodeId, bool>) {
        let groups = self.base.groups.clone();
        for group in groups {
            let mut members: Vec<Vec<NodeId>> = Vec::new();
            let mut levels: HashMap<NodeId, Option<usize>> = HashMap::new();
            for node in group.into_iter().map(|vertex| NodeId::new(vertex.index())) {
                let is_member = match role(self.graph, node) {
                    Role::View => inside[node],
                    Role::Loop => true,
                    Role::Input | Role::Inline | Role::Product | Role::Parts | Role::Routine => false,
                };
                let level = self.level(node, is_member, &levels);
                levels.insert(node, level);
                match role(self.graph, node) {
                    Role::Input => {}
                    Role::Inline if self.is_read_from_memory(node) => self.add_kernel_or_split(vec![node]),
                    Role::Inline => {}
                    Role::View if !is_member => self.add_single(node, UnitKind::Alias),
                    Role::View | Role::Loop => {
                        let level = level.unwrap_or(0);
                        members.resize(members.len().max(level + 1), Vec::new());
                        members[level].push(node);
                    }
                    Role::Product => self.add_single(node, UnitKind::Product),
                    Role::Parts => {
                        let regions = place_parts(self.graph, &|other| other == node, &[node], &[node]);
                        let regions = regions.expect("operands in memory can be copied part by part");
                        self.add_single(node, UnitKind::Parts(regions));
                    }
                    Role::Routine => self.add_single(node, UnitKind::Routine),
                }
            }
            for members in members.into_iter().filter(|members| !members.is_empty()) {
                self.add_kernel_or_split(members);
            }
        }
    }

    /// How often a path to `node` leaves the members of its group and returns, through nodes that are units of their
    /// own. Nodes of one level can share a kernel without a cycle. `None` for a node that is a unit of its own and
    /// depends on no member.
    fn level(&self, node: NodeId, is_member: bool, levels: &HashMap<NodeId, Option<usize>>) -> Option<usize> {
        let of_arg = |arg: &NodeId| {
            let level = (*levels.get(arg)?)?;
            let is_own_unit = self.unit_of[*arg].is_some();
            Some(level + (is_member && is_own_unit) as usize)
        };
        let level = self.graph[node].args.iter().filter_map(of_arg).max();
        if is_member { level.or(Some(0)) } else { level }
    }

    /// Whether a number, fill or range must be in memory, because something other than a kernel reads it.
    fn is_read_from_memory(&self, node: NodeId) -> bool {
        let is_fill = filled_with(self.graph, node).is_some();
        let by_kernel = |user: &NodeId| match role(self.graph, *user) {
            Role::Loop => !self.is_gathered_from(*user, node),
            Role::Parts => is_fill,
            Role::Input | Role::Inline | Role::View | Role::Product | Role::Routine => false,
        };
        self.is_output[node] || !self.users[node].iter().all(by_kernel)
    }

    fn add_single(&mut self, node: NodeId, kind: UnitKind) {
        self.unit_of[node] = Some(self.units.push(Some(Unit { kind, nodes: vec![node], outputs: vec![node] })));
    }

    fn add_kernel_or_split(&mut self, members: Vec<NodeId>) {
        match self.region_that_pays(&members) {
            Ok((region, outputs)) => self.add_kernel(members, outputs, region),
            Err(reason) => {
                for &node in &members {
                    self.splits[node] = Some(reason.clone());
                }
                for node in members {
                    if role(self.graph, node) == Role::View {
                        self.add_single(node, UnitKind::Alias);
                    } else {
                        let (region, outputs) = self.region(&[node]).expect("a single node fits its own loops");
                        self.add_kernel(vec![node], outputs, region);
                    }
                }
            }
        }
    }

    /// The nodes as one kernel, if it takes no longer than one kernel for each of them.
    fn region_that_pays(&self, nodes: &[NodeId]) -> Result<(Region, Vec<NodeId>), Reason> {
        let (region, outputs) = self.region(nodes)?;
        let together = self.cost.kernel(&region);
        // The estimate is cheaper than laying out each node, and is nearly always enough.
        if nodes.len() > 1 && 2.0 * together > nodes.iter().map(|&node| self.cost.alone(node)).sum() {
            pays(together, nodes.iter().map(|&node| self.kernel_alone(node)).sum())?;
        }
        Ok((region, outputs))
    }

    /// How long a node takes as a kernel of its own. 0 for a view.
    fn kernel_alone(&self, node: NodeId) -> Nanos {
        if role(self.graph, node) == Role::View {
            return 0.0;
        }
        self.region(&[node]).map_or(0.0, |(region, _)| self.cost.kernel(&region))
    }

    fn add_kernel(&mut self, nodes: Vec<NodeId>, outputs: Vec<NodeId>, region: Region) {
        let unit = UnitId::new(self.units.len());
        nodes.iter().for_each(|&node| self.unit_of[node] = Some(unit));
        self.units.push(Some(Unit { kind: UnitKind::Kernel(Box::new(region)), nodes, outputs }));
    }

    /// Those of the sorted nodes that other nodes read, or the last one if there are none.
    pub fn outputs_of(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let contains = |node: NodeId| nodes.binary_search(&node).is_ok();
        let outside = |&node: &NodeId| self.is_output[node] || self.users[node].iter().any(|user| !contains(*user));
        let outputs: Vec<NodeId> = nodes.iter().copied().filter(outside).collect();
        if outputs.is_empty() { vec![*nodes.last().expect("units have nodes")] } else { outputs }
    }

    /// Whether a node is a view of memory.
    pub(super) fn is_alias(&self, node: NodeId) -> bool {
        self.unit_of[node].is_some_and(|unit| matches!(self.unit(unit).kind, UnitKind::Alias))
    }

    /// The views of memory from a node on, and what the last of them is of.
    pub(super) fn views(&self, mut node: NodeId) -> (Vec<NodeId>, NodeId) {
        let mut views = Vec::new();
        while self.is_alias(node) {
            views.push(node);
            node = self.graph[node].args[0];
        }
        (views, node)
    }

    /// Whether the union of two kernels, and of views between them, has more operands and results than a kernel can
    /// have. The union is not laid out, because kernels that read many values are tried with many others.
    pub(super) fn are_too_many_arguments(&self, a: UnitId, b: UnitId, views: &[UnitId]) -> bool {
        let [first, second] = [a, b].map(|unit| self.unit(unit));
        let is_part = |unit: UnitId| unit == a || unit == b || views.contains(&unit);
        let inside = |node: NodeId| self.unit_of[node].is_some_and(is_part);
        let outside = |node: NodeId| self.is_output[node] || self.users[node].iter().any(|user| !inside(*user));
        let outputs = first.outputs.iter().chain(&second.outputs).filter(|node| outside(**node)).count();
        let [left, right] = [first, second].map(|unit| unit.region().map_or(&[][..], |region| &region.operands[..]));
        let Some(limit) = MAX_OPERANDS.checked_sub(outputs.max(1)) else { return true };
        if left.len() + right.len() <= limit {
            return false;
        }
        let (mut at, mut operands) = (0, right.iter().filter(|node| !inside(**node)).count());
        for node in left {
            // Both are sorted.
            while right.get(at).is_some_and(|other| other < node) {
                at += 1;
            }
            operands += (right.get(at) != Some(node) && !inside(*node)) as usize;
        }
        operands > limit
    }

    /// The nodes as one kernel, and its outputs.
    ///
    /// # Errors
    /// The reason why they cannot be one kernel.
    pub fn region(&self, nodes: &[NodeId]) -> Result<(Region, Vec<NodeId>), Reason> {
        let contains = |node: NodeId| nodes.binary_search(&node).is_ok();
        let outputs = self.outputs_of(nodes);
        // A bound that is cheap to check: a value from outside is at least one operand. For the union of two units it
        // is checked earlier.
        let is_operand = |&arg: &NodeId| !contains(arg) && role(self.graph, arg) != Role::Inline;
        let mut operands: Vec<NodeId> =
            nodes.iter().flat_map(|&node| &self.graph[node].args).copied().filter(is_operand).collect();
        operands.sort_unstable();
        operands.dedup();
        if operands.len() + outputs.len() > MAX_OPERANDS {
            return Err(Reason::TooManyArguments);
        }
        self.lay_out(nodes)
    }

    /// Like [`Units::region`], for nodes that are known to have few enough operands.
    pub(super) fn lay_out(&self, nodes: &[NodeId]) -> Result<(Region, Vec<NodeId>), Reason> {
        let contains = |node: NodeId| nodes.binary_search(&node).is_ok();
        let outputs = self.outputs_of(nodes);
        if nodes.len() > 1 && outputs.iter().any(|&output| role(self.graph, output) == Role::View) {
            return Err(Reason::MovesElements);
        }
        let region = place(self.graph, &contains, nodes, &outputs)?;
        Ok((region, outputs))
    }

    /// The unit of that name.
    pub fn unit(&self, unit: UnitId) -> &Unit {
        self.units[unit].as_ref().expect("an absorbed unit is not asked for")
    }

    /// Checks that two units take no longer as one.
    ///
    /// # Errors
    /// If they do, with the times.
    pub(super) fn pays(&self, merged: &Unit, a: UnitId, b: UnitId) -> Result<(), Reason> {
        pays(self.cost.unit(merged), self.cost.unit(self.unit(a)) + self.cost.unit(self.unit(b)))
    }

    /// Computes the topological order of the units. Merging requires it.
    pub(super) fn sort(&mut self) {
        self.order =
            TopologicalOrder::of(self.units.len(), |unit| self.predecessors(unit), |unit| self.successors(unit));
    }

    /// Whether a path leaves the members and returns. Merging them would then close a cycle.
    pub(super) fn leaves_and_returns(&self, members: &[UnitId]) -> bool {
        self.order.leaves_and_returns(members, |unit| self.successors(unit))
    }

    /// Whether there is no path between two units.
    pub(super) fn are_independent(&self, a: UnitId, b: UnitId) -> bool {
        let reads = |from: UnitId, to: UnitId| self.successors(from).any(|next| next == to);
        !reads(a, b) && !reads(b, a) && !self.leaves_and_returns(&[a, b])
    }

    /// Replaces the members by `merged`, which gets the number `at` of one of them.
    pub(super) fn replace(&mut self, members: &[UnitId], at: UnitId, merged: Unit) {
        let mut order = std::mem::take(&mut self.order);
        order.contract(members, at, |unit| self.predecessors(unit), |unit| self.successors(unit));
        self.order = order;
        members.iter().for_each(|&gone| self.units[gone] = None);
        merged.nodes.iter().for_each(|&node| self.unit_of[node] = Some(at));
        self.units[at] = Some(merged);
    }

    /// Units that read what `unit` writes.
    pub fn successors(&self, unit: UnitId) -> impl Iterator<Item = UnitId> + '_ {
        let users = self.unit(unit).nodes.iter().flat_map(|&node| &self.users[node]);
        users.filter_map(|&user| self.unit_of[user]).filter(move |&other| other != unit)
    }

    /// Units whose results `unit` reads, latest first, each once.
    pub fn predecessors(&self, unit: UnitId) -> Vec<UnitId> {
        let args = self.unit(unit).nodes.iter().flat_map(|&node| &self.graph[node].args);
        let mut units: Vec<UnitId> = args.filter_map(|&arg| self.unit_of[arg]).filter(|&other| other != unit).collect();
        units.sort_unstable_by(|a, b| b.cmp(a));
        units.dedup();
        units
    }

    /// The base partition's reason for keeping two nodes apart.
    pub fn base_reason(&self, producer: NodeId, consumer: NodeId) -> Option<Reason> {
        // With a view between the two, the producer may be inside a group. The refusal is that of the group's sink.
        let sink = self.base.sink(self.base.group_of[vertex(producer)]);
        match self.base.decision(sink, vertex(consumer)) {
            Decision::Fused => None,
            Decision::Kept(reason) => Some(reason),
        }
    }
}
