//! Blocks of rows: matrix products and the kernels around them, computed some rows at a time.
//!
//! A block of rows goes through all members of a group while it is in a core's cache. So values between members need no
//! memory of their own. Rows are those of the products, with batches and rows of a matrix flattened. Every member
//! computes a row of its results from the same row of other members' results, and from anything in memory. A product
//! takes its right operand from memory, and its left one from a block or from memory. Examples are `matmul + bias +
//! gelu`, three projections of one input, and attention without a matrix of scores in memory.
//!
//! Bits do not change, because a row of a product depends on that row alone. A kernel may write its rows to other
//! places ([`super::row_order`]), for example to split or merge heads.
//!
//! A group pays if it saves more bytes than it moves again: the right operand of a product is packed once per block. So
//! blocks are as high as caches allow, and right operands must fit there too. An edge to a unit that did not join gets
//! the reason of the rule that failed.

use super::cost::pays;
use super::rates::Nanos;
use super::refusals::Refusals;
use super::region::{Region, Value, ValueId, Walk};
use super::role::{Role, role, same_elements};
use super::row_order::{RowKernel, rows_first};
use super::unit::{Blocks, Member, Unit, UnitId, UnitKind};
use super::units::Units;
use crate::error::Reason;
use crate::ir::{DType, NodeId, TensorType};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// The size in bytes of a block's values and left operands, which should stay in a core's caches.
const BLOCK_BYTES: usize = 4 << 20;
/// The most bytes of one matrix of a right operand. A larger one leaves no room for the block.
const RIGHT_BYTES: usize = 1 << 20;
/// How many bytes must be saved per byte that is packed again.
const WORTH: usize = 2;
/// How much longer than its parts a group may take by the cost model. The model of products is rough, and a group also
/// saves memory, such as that of a matrix of scores.
pub const DOUBT: f64 = 1.125;
/// The most members of a group. A new member is checked against all others.
const MAX_MEMBERS: usize = 64;
/// The least rows of a block. For products of fewer rows, packing the operands takes too much of the time.
const MIN_HEIGHT: usize = 16;

/// Merges products and their neighbours to groups in blocks where that pays, and records why for the edges that stay.
/// Returns whether it merged any.
pub(super) fn merge(units: &mut Units<'_>, refusals: &mut Refusals) -> bool {
    let mut has_merged = false;
    for unit in units.units.ids() {
        if units.units[unit].as_ref().is_none_or(|unit| !matches!(unit.kind, UnitKind::Product)) {
            continue;
        }
        let (mut members, mut best) = (vec![unit], None);
        let mut gain = 0;
        'grow: loop {
            let mut refused = Vec::new();
            let alone = neighbours(units, &members).into_iter().map(|candidate| vec![candidate]);
            for candidates in alone.chain(readers(units, &members)) {
                let grown = [&members[..], &candidates].concat();
                match Group::new(units, &grown).and_then(|group| group.worth_more_than(gain)) {
                    Ok(group) => {
                        gain = group.gain();
                        best = Some((group.unit, group.aliases));
                        members = grown;
                        continue 'grow;
                    }
                    Err(reason) => refused.extend((candidates.len() == 1).then(|| (candidates[0], reason))),
                }
            }
            for (candidate, reason) in refused {
                refuse(units, &members, candidate, &reason, refusals);
            }
            break;
        }
        if let Some((merged, aliases)) = best {
            let apart: Nanos = members.iter().map(|&member| units.cost.unit(units.unit(member))).sum();
            if let Err(reason) = pays(units.cost.unit(&merged), apart * DOUBT) {
                members.iter().for_each(|&member| refuse(units, &members, member, &reason, refusals));
                continue;
            }
            let last = *members.iter().max().expect("there are members");
            members.extend(aliases);
            units.replace(&members, last, merged);
            has_merged = true;
        }
    }
    has_merged
}

/// Records why a unit did not join others, for every edge between them.
fn refuse(units: &Units<'_>, members: &[UnitId], candidate: UnitId, reason: &Reason, refusals: &mut Refusals) {
    let between = |consumers: &[UnitId], producers: &[UnitId], refusals: &mut Refusals| {
        for &consumer in consumers.iter().flat_map(|&unit| &units.unit(unit).nodes) {
            for &arg in &units.graph[consumer].args {
                let producer = units.graph.view_base(arg);
                if units.unit_of[producer].is_some_and(|unit| producers.contains(&unit)) {
                    refusals.insert_edge(producer, consumer, reason);
                }
            }
        }
    };
    between(&[candidate], members, refusals);
    between(members, &[candidate], refusals);
}

/// The candidates to join a group: kernels and products that use results of the members, products with the same left
/// operand as one, and the kernel that computes that operand.
fn neighbours(units: &Units<'_>, members: &[UnitId]) -> Vec<UnitId> {
    let mut found = Vec::new();
    for &member in members {
        let unit = units.unit(member);
        found.extend(users(units, &unit.outputs).into_iter().filter(|&user| is_kernel_or_product(units, user)));
        if let UnitKind::Product = unit.kind {
            let left = units.graph[unit.nodes[0]].args[0];
            let shares = |&user: &NodeId| role(units.graph, user) == Role::Product && units.graph[user].args[0] == left;
            let siblings = units.users[left].iter().copied().filter(shares).filter_map(|user| units.unit_of[user]);
            found.extend(siblings.filter(|&of| matches!(units.unit(of).kind, UnitKind::Product)));
            let producer = same_elements(units.graph, left).and_then(|value| units.unit_of[value]);
            found.extend(producer.filter(|&of| matches!(units.unit(of).kind, UnitKind::Kernel(_))));
        }
    }
    found.sort_unstable();
    found.dedup();
    found.retain(|candidate| !members.contains(candidate));
    found
}

/// For each result of the members that only kernels and products use: these users, if there are several. The result is
/// kept out of memory only if all of them join.
fn readers(units: &Units<'_>, members: &[UnitId]) -> Vec<Vec<UnitId>> {
    let mut found = Vec::new();
    for output in members.iter().flat_map(|&member| &units.unit(member).outputs) {
        let mut users = users(units, std::slice::from_ref(output));
        users.retain(|user| !members.contains(user));
        let may_join = users.iter().all(|&user| is_kernel_or_product(units, user));
        if users.len() > 1 && may_join && !found.contains(&users) {
            found.push(users);
        }
    }
    found
}

fn is_kernel_or_product(units: &Units<'_>, unit: UnitId) -> bool {
    matches!(units.unit(unit).kind, UnitKind::Kernel(_) | UnitKind::Product)
}

/// The units that use some values, directly or through views of memory, in order.
fn users(units: &Units<'_>, values: &[NodeId]) -> Vec<UnitId> {
    let (mut found, mut stack) = (Vec::new(), values.to_vec());
    while let Some(value) = stack.pop() {
        for &user in &units.users[value] {
            match units.unit_of[user].map(|of| (of, &units.unit(of).kind)) {
                Some((_, UnitKind::Alias)) => stack.push(user),
                Some((of, _)) => found.push(of),
                None => {}
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// A legal group.
struct Group {
    unit: Unit,
    /// Views of inner values, which the group absorbs.
    aliases: Vec<UnitId>,
    /// Bytes that are no longer moved, and bytes that are moved again.
    saved: usize,
    extra: usize,
}

impl Group {
    fn gain(&self) -> usize {
        self.saved.saturating_sub(WORTH * self.extra)
    }

    fn worth_more_than(self, gain: usize) -> Result<Group, Reason> {
        if self.gain() > gain {
            return Ok(self);
        }
        let Group { saved, extra, .. } = self;
        Err(if gain == 0 { Reason::NotWorthIt { saved, extra } } else { Reason::SavesNothingMore })
    }

    /// The members as one group.
    ///
    /// # Errors
    /// The reason why they cannot be computed in blocks.
    fn new(units: &Units<'_>, members: &[UnitId]) -> Result<Group, Reason> {
        let graph = units.graph;
        if members.iter().any(|&member| units.renews(member)) {
            return Err(Reason::RenewsInput);
        }
        let set: HashSet<UnitId> = members.iter().copied().collect();
        let aliases = aliases(units, &set).ok_or(Reason::UsedElsewhere)?;
        let all: Vec<UnitId> = members.iter().chain(&aliases).copied().collect();
        if units.leaves_and_returns(&all) {
            return Err(Reason::WouldCycle);
        }
        let n_nodes: usize = all.iter().map(|&unit| units.unit(unit).nodes.len()).sum();
        if n_nodes > units.max_nodes || members.len() > MAX_MEMBERS {
            return Err(Reason::GroupTooLarge);
        }
        let inside = |node: NodeId| units.unit_of[node].is_some_and(|unit| all.contains(&unit));
        let ordered = in_order(units, &set, &inside).ok_or(Reason::WouldCycle)?;
        let is_product = |member: &&UnitId| matches!(units.unit(**member).kind, UnitKind::Product);
        let first = *ordered.iter().find(is_product).expect("groups grow from products");
        let (batches, rows, columns) = matrix(&graph[units.unit(first).nodes[0]].ty)?;
        if batches * rows * columns == 0 {
            return Err(Reason::NothingToCompute);
        }
        let mut checker = Checker { units, inside: &inside, batches, rows, scattered: Vec::new() };
        let members = ordered.iter().map(|&member| checker.member(member)).collect::<Result<Vec<Member>, Reason>>()?;
        let produced: Vec<NodeId> = members.iter().flat_map(|member| member.outputs.iter().copied()).collect();
        let used_inside = |value: NodeId| {
            let mut stack = vec![value];
            while let Some(value) = stack.pop() {
                if units.is_output[value] || units.users[value].iter().any(|&user| !inside(user)) {
                    return false;
                }
                stack.extend(units.users[value].iter().filter(|&&user| role(graph, user) == Role::View));
            }
            true
        };
        let per_row = |node: NodeId| graph[node].ty.numel() / (batches * rows);
        let is_inner = |node: &NodeId| !checker.scattered.contains(node) && used_inside(*node);
        let inner: Vec<(NodeId, usize)> = produced.iter().copied().filter(is_inner).map(|v| (v, per_row(v))).collect();
        let row_bytes = checker.held(&members, &inner);
        let height = (BLOCK_BYTES / row_bytes.max(1)).clamp(MIN_HEIGHT.min(rows), rows);
        if height * row_bytes > 2 * BLOCK_BYTES {
            let (bytes, limit) = (height * row_bytes, 2 * BLOCK_BYTES);
            return Err(Reason::BlockTooLarge { rows: height, bytes, limit });
        }
        let (saved, extra) = checker.traffic(&ordered, &inner, rows.div_ceil(height));
        let mut nodes: Vec<NodeId> = all.iter().flat_map(|&unit| units.unit(unit).nodes.iter().copied()).collect();
        nodes.sort_unstable();
        let outputs = produced.into_iter().filter(|node| inner.iter().all(|(other, _)| other != node)).collect();
        let blocks = Blocks { batches, rows, height, inner, members };
        Ok(Group { unit: Unit { kind: UnitKind::Blocks(Box::new(blocks)), nodes, outputs }, aliases, saved, extra })
    }
}

/// The number of batches, rows and columns of a product's result.
fn matrix(ty: &TensorType) -> Result<(usize, usize, usize), Reason> {
    match ty.sizes[..] {
        [rows, columns] => Ok((1, rows, columns)),
        [batches, rows, columns] => Ok((batches, rows, columns)),
        _ => Err(Reason::DifferentRows),
    }
}

/// The views between members. `None` if one is also used outside.
fn aliases(units: &Units<'_>, set: &HashSet<UnitId>) -> Option<Vec<UnitId>> {
    let mut found = Vec::new();
    let mut stack: Vec<(NodeId, Vec<UnitId>)> = Vec::new();
    for &member in set {
        stack.extend(units.unit(member).outputs.iter().map(|&output| (output, Vec::new())));
    }
    // Every view of a result, with the views between the two.
    while let Some((value, path)) = stack.pop() {
        for &user in &units.users[value] {
            let Some(unit) = units.unit_of[user] else { continue };
            if matches!(units.unit(unit).kind, UnitKind::Alias) {
                let mut path = path.clone();
                path.push(unit);
                stack.push((user, path));
            } else if set.contains(&unit) {
                found.extend(path.iter().copied());
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    let stays = |&unit: &UnitId| {
        let node = units.unit(unit).nodes[0];
        let inside = |user: &NodeId| units.unit_of[*user].is_some_and(|of| set.contains(&of) || found.contains(&of));
        !units.is_output[node] && units.users[node].iter().all(inside)
    };
    found.iter().all(stays).then(|| found.clone())
}

/// The members in topological order, each as soon as possible after those whose results it uses, so that few values are
/// live at a time. `None` if there is a cycle.
fn in_order(units: &Units<'_>, set: &HashSet<UnitId>, inside: &dyn Fn(NodeId) -> bool) -> Option<Vec<UnitId>> {
    let producers = |unit: UnitId| {
        let mut producers: Vec<UnitId> = Vec::new();
        for &arg in units.unit(unit).nodes.iter().flat_map(|&node| &units.graph[node].args) {
            let mut source = arg;
            while role(units.graph, source) == Role::View && inside(source) && units.unit_of[source] != Some(unit) {
                source = units.graph[source].args[0];
            }
            producers.extend(units.unit_of[source].filter(|&of| of != unit && inside(source)));
        }
        producers.sort_unstable();
        producers.dedup();
        producers
    };
    let mut left: Vec<(UnitId, Vec<UnitId>)> = set.iter().map(|&unit| (unit, producers(unit))).collect();
    left.sort_unstable_by_key(|&(unit, _)| (units.unit(unit).nodes[0], unit));
    let mut position: HashMap<UnitId, usize> = HashMap::new();
    let mut ordered: Vec<UnitId> = Vec::new();
    while !left.is_empty() {
        // One more than the position of the last producer. `None` if a producer has none yet.
        let ready = |producers: &[UnitId]| {
            producers.iter().try_fold(0, |last, producer| Some(last.max(1 + position.get(producer)?)))
        };
        let all_ready =
            left.iter().enumerate().filter_map(|(at, (_, producers))| Some((ready(producers)?, Reverse(at))));
        let (_, Reverse(at)) = all_ready.max()?;
        let (unit, _) = left.remove(at);
        position.insert(unit, ordered.len());
        ordered.push(unit);
    }
    Some(ordered)
}

/// Checks that each member can be computed from the same rows of the others' results.
struct Checker<'a> {
    units: &'a Units<'a>,
    inside: &'a dyn Fn(NodeId) -> bool,
    batches: usize,
    rows: usize,
    /// Results of the members so far whose rows are scattered.
    scattered: Vec<NodeId>,
}

impl Checker<'_> {
    /// The member as the group runs it.
    ///
    /// # Errors
    /// The reason why it cannot be in the group.
    fn member(&mut self, member: UnitId) -> Result<Member, Reason> {
        let unit = self.units.unit(member);
        let region = match &unit.kind {
            UnitKind::Product => {
                self.product(unit.nodes[0])?;
                None
            }
            // A concatenation has several kinds of rows.
            UnitKind::Kernel(_) if unit.nodes.iter().any(|&node| role(self.units.graph, node) == Role::Parts) => {
                return Err(Reason::MovesElements);
            }
            UnitKind::Kernel(region) => {
                let RowKernel { region, scattered } = self.kernel(region)?;
                self.scattered.extend(scattered);
                Some(Box::new(region))
            }
            UnitKind::Alias | UnitKind::Parts(_) | UnitKind::Routine | UnitKind::Blocks(_) => {
                return Err(Reason::OpaqueOp);
            }
        };
        Ok(Member { region, nodes: unit.nodes.clone(), outputs: unit.outputs.clone() })
    }

    /// Whether the group computes `node`, or its base if it is a view.
    fn makes(&self, node: NodeId) -> bool {
        let root = self.units.graph.view_base(node);
        role(self.units.graph, root) != Role::Input && (self.inside)(root)
    }

    /// The value of the group that `node` is, or is a view of. `None` if it is in memory already.
    ///
    /// # Errors
    /// If the rows of `node` are not those of the value.
    fn produced(&self, node: NodeId) -> Result<Option<NodeId>, Reason> {
        if !self.makes(node) {
            return Ok(None);
        }
        let root = same_elements(self.units.graph, node).ok_or(Reason::MovesElements)?;
        if self.scattered.contains(&root) { Err(Reason::DifferentRows) } else { Ok(Some(root)) }
    }

    fn product(&self, node: NodeId) -> Result<(), Reason> {
        let graph = self.units.graph;
        let ty = &graph[node].ty;
        let [left, right] = [graph[node].args[0], graph[node].args[1]];
        let (batches, rows, _) = matrix(ty)?;
        // The dtype of the operands counts: those of an f32 result may be 16-bit floats.
        let dtype = graph[left].ty.dtype;
        if !matches!(dtype, DType::F32 | DType::F64) {
            return Err(Reason::WholeProduct { dtype });
        }
        if !ty.is_contiguous() {
            return Err(Reason::ProductRowsApart);
        }
        if self.makes(right) {
            return Err(Reason::PrologueOfAnchor);
        }
        self.produced(left)?;
        if (batches, rows) != (self.batches, self.rows) {
            return Err(Reason::DifferentRows);
        }
        if batches == 0 || graph[left].ty.numel() == 0 {
            return Err(Reason::NothingToCompute);
        }
        let bytes = graph[right].ty.bytes() / batches;
        if bytes > RIGHT_BYTES {
            return Err(Reason::RightOperandTooLarge { bytes, limit: RIGHT_BYTES });
        }
        Ok(())
    }

    fn kernel(&self, region: &Region) -> Result<RowKernel, Reason> {
        // Every block would store an output that is a plain number or a copy.
        let is_computed =
            |(value, _): &(ValueId, Walk)| matches!(region.values[*value], Value::Body(..) | Value::Fold(..));
        if !region.outputs.iter().all(is_computed) {
            return Err(Reason::DifferentRows);
        }
        let graph = self.units.graph;
        if region.loads.entities().any(|walk| self.scattered.contains(&graph.view_base(walk.node))) {
            return Err(Reason::DifferentRows);
        }
        rows_first(graph, region, self.batches * self.rows, &|node| self.makes(node))
    }

    /// The most live bytes per row: left operands, and each value of the group until its last read.
    fn held(&self, members: &[Member], inner: &[(NodeId, usize)]) -> usize {
        let graph = self.units.graph;
        let bytes = |node: NodeId| graph[node].ty.bytes() / (self.batches * self.rows);
        let mut last: HashMap<NodeId, usize> = HashMap::new();
        for (at, member) in members.iter().enumerate() {
            let args = member.nodes.iter().flat_map(|&node| &graph[node].args);
            last.extend(args.map(|&arg| (graph.view_base(arg), at)));
        }
        let mut held: Vec<usize> = vec![0; members.len()];
        for (at, member) in members.iter().enumerate() {
            for &output in member.outputs.iter().filter(|&&output| inner.iter().any(|&(node, _)| node == output)) {
                let end = last.get(&output).map_or(at, |&last| last.max(at));
                held[at..=end].iter_mut().for_each(|held| *held += bytes(output));
            }
        }
        held.into_iter().max().unwrap_or(0) + self.lefts(members).into_iter().map(bytes).sum::<usize>()
    }

    /// The left operands in memory, each once.
    fn lefts(&self, members: &[Member]) -> Vec<NodeId> {
        let products = members.iter().filter(|member| member.region.is_none());
        let mut lefts: Vec<NodeId> = products.map(|product| self.units.graph[product.nodes[0]].args[0]).collect();
        lefts.sort_unstable();
        lefts.dedup();
        lefts.retain(|&left| self.produced(left) == Ok(None));
        lefts
    }

    /// The bytes that the group no longer moves, and the bytes that it moves again.
    fn traffic(&self, members: &[UnitId], inner: &[(NodeId, usize)], blocks: usize) -> (usize, usize) {
        let graph = self.units.graph;
        let mut saved: usize = inner.iter().map(|(node, _)| 2 * graph[*node].ty.bytes()).sum();
        let (mut lefts, mut extra) = (HashSet::new(), 0);
        for &member in members {
            let unit = self.units.unit(member);
            if let UnitKind::Product = unit.kind {
                let [left, right] = [graph[unit.nodes[0]].args[0], graph[unit.nodes[0]].args[1]];
                if !lefts.insert(left) {
                    saved += graph[left].ty.bytes();
                }
                extra += (blocks - 1) * graph[right].ty.bytes();
            }
        }
        (saved, extra)
    }
}
