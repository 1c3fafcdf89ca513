//! The engine of the backward pass: gradients flow from roots through the tape.
//!
//! A node runs once all nodes that feed it have run. Ready nodes run in descending order of their sequence numbers. So
//! the order, and with it every rounding, depends on the recorded calls alone. Gradients that meet are added in order
//! of arrival. Everything runs on the calling thread through the dispatcher, so a backward pass can itself be recorded,
//! traced, or seen by modes.

use crate::autograd::anomaly;
use crate::autograd::hook;
use crate::autograd::node::{BackwardCall, Edge, Node, ResultType, reserve};
use crate::autograd::parts::{Part, Sum};
use crate::dispatch::key::grad_mode::set_grad_enabled;
use crate::dispatch::key::local::is_tracing;
use crate::error::{Error, Result};
use crate::ir::Scalar;
use crate::ops::factories::full_on;
use crate::profile::{self, Kind, Subject};
use crate::tensor::handle::Tensor;
use crate::tensor::observer::observer;
use smallvec::SmallVec;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

/// How a backward pass runs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Options {
    /// Keeps saved values for another backward pass.
    pub(super) retain_graph: bool,
    /// Records the backward pass itself.
    pub(super) create_graph: bool,
}

type Gradients = SmallVec<[Option<Tensor>; 1]>;

/// The edges at which a backward pass collects gradients.
enum Wanted {
    /// None: leaves accumulate their gradients.
    Leaves,
    /// The sum at each edge. The pass goes on beyond them.
    Sums(Vec<Option<Edge>>),
    /// Each contribution to an edge by itself, in order of arrival. The pass ends at them.
    Contributions(Vec<Option<Edge>>),
}

impl Wanted {
    fn edges(&self) -> Option<&[Option<Edge>]> {
        match self {
            Wanted::Leaves => None,
            Wanted::Sums(edges) | Wanted::Contributions(edges) => Some(edges),
        }
    }

    /// The edges that take their place in a backward pass that started at `now`.
    fn resolved(self, now: u64) -> Wanted {
        let resolved = |edges: Vec<Option<Edge>>| {
            edges.into_iter().map(|edge| edge.as_ref().and_then(|edge| edge.resolved(now)).cloned()).collect()
        };
        match self {
            Wanted::Leaves => Wanted::Leaves,
            Wanted::Sums(edges) => Wanted::Sums(resolved(edges)),
            Wanted::Contributions(edges) => Wanted::Contributions(resolved(edges)),
        }
    }
}

/// A node whose gradients have all arrived. The heap orders nodes by sequence number.
struct Ready(Arc<Node>);

impl PartialEq for Ready {
    fn eq(&self, other: &Ready) -> bool {
        self.0.sequence == other.0.sequence
    }
}
impl Eq for Ready {}
impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Ready) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ready {
    fn cmp(&self, other: &Ready) -> std::cmp::Ordering {
        self.0.sequence.cmp(&other.0.sequence)
    }
}

fn key(node: &Arc<Node>) -> usize {
    Arc::as_ptr(node).addr()
}

struct Task {
    options: Options,
    /// The number of the next recorded call when the pass started.
    started: u64,
    /// Gradients that have arrived, by node and result.
    arrived: HashMap<usize, SmallVec<[Option<Sum>; 1]>>,
    /// The number of edges into a node that have not delivered yet.
    missing: HashMap<usize, usize>,
    wanted: Wanted,
    /// The nodes from which a wanted edge can be reached.
    useful: HashSet<usize>,
    /// The gradients at each wanted edge.
    found: Vec<Vec<Tensor>>,
}

/// Runs the backward pass from `roots`, each with its initial gradient. Leaves accumulate their gradients.
///
/// # Errors
/// The first error of a node ends the backward pass. Leaves keep what they accumulated before it.
pub(super) fn run(roots: Vec<(Edge, Tensor)>, options: Options) -> Result<()> {
    run_for(roots, Wanted::Leaves, options).map(|_| ())
}

/// Like [`run`], but returns the gradients at `edges`. Leaves accumulate nothing.
///
/// # Errors
/// The first error of a node.
pub(super) fn gradients_at(
    roots: Vec<(Edge, Tensor)>,
    edges: Vec<Option<Edge>>,
    options: Options,
) -> Result<Vec<Option<Tensor>>> {
    let found = run_for(roots, Wanted::Sums(edges), options)?;
    Ok(found.into_iter().map(|mut gradients| gradients.pop()).collect())
}

/// The contributions to the gradients at `edges`, in order of arrival. The backward pass ends there: what lies beyond
/// an edge gets no gradient, and the hooks of these edges do not run. Leaves accumulate nothing.
///
/// # Errors
/// The first error of a node.
pub(super) fn contributions_at(
    roots: Vec<(Edge, Tensor)>,
    edges: Vec<Option<Edge>>,
    options: Options,
) -> Result<Vec<Vec<Tensor>>> {
    run_for(roots, Wanted::Contributions(edges), options)
}

fn run_for(roots: Vec<(Edge, Tensor)>, wanted: Wanted, options: Options) -> Result<Vec<Vec<Tensor>>> {
    let _mode = set_grad_enabled(options.create_graph);
    let _span =
        (profile::is_on() && !is_tracing()).then(|| profile::open(Kind::Backward, (0, 0), || named("backward")));
    let started = reserve(1);
    let resolved = |(edge, gradient): (Edge, Tensor)| Some((edge.resolved(started)?.clone(), gradient));
    let roots: Vec<(Edge, Tensor)> = roots.into_iter().filter_map(resolved).collect();
    let wanted = wanted.resolved(started);
    let found = vec![Vec::new(); wanted.edges().map_or(0, <[_]>::len)];
    let mut task = Task {
        options,
        started,
        arrived: HashMap::new(),
        missing: HashMap::new(),
        wanted,
        useful: HashSet::new(),
        found,
    };
    task.count(&roots);
    let mut ready = BinaryHeap::new();
    let mut started = HashSet::new();
    for (edge, gradient) in roots {
        task.deliver(&edge, gradient)?;
        if task.missing.get(&key(&edge.node)).is_none_or(|&missing| missing == 0) && started.insert(key(&edge.node)) {
            ready.push(Ready(edge.node));
        }
    }
    // Nodes are kept to the end: their edges keep alive the leaves that accumulate last.
    let mut visited = Vec::new();
    while let Some(Ready(node)) = ready.pop() {
        task.visit(&node, &mut ready)?;
        visited.push(node);
    }
    Ok(task.found)
}

impl Task {
    /// Counts the edges into every reachable node, and marks the nodes that lead to a wanted edge.
    fn count(&mut self, roots: &[(Edge, Tensor)]) {
        let mut seen = HashSet::new();
        // Post-order: a node is marked after everything reachable from it.
        let mut stack: Vec<(Arc<Node>, usize)> = Vec::new();
        for (edge, _) in roots {
            self.reaches(edge);
            if seen.insert(key(&edge.node)) {
                stack.push((edge.node.clone(), 0));
            }
            while let Some((node, position)) = stack.pop() {
                let Some(next) = node.next.get(position) else {
                    self.mark(&node);
                    continue;
                };
                let next = next.as_ref().and_then(|edge| edge.resolved(self.started));
                next.iter().for_each(|edge| self.reaches(edge));
                let next = next.map(|edge| edge.node.clone());
                stack.push((node, position + 1));
                if let Some(next) = next {
                    *self.missing.entry(key(&next)).or_default() += 1;
                    if seen.insert(key(&next)) {
                        stack.push((next, 0));
                    }
                }
            }
        }
    }

    /// Tells a trace that gradients could flow on from a leaf, to other wanted edges.
    fn reaches(&self, edge: &Edge) {
        let Wanted::Sums(wanted) = &self.wanted else { return };
        if let (Some(leaf), Some(observer)) = (edge.leaf(), observer())
            && wanted.iter().flatten().any(|one| !Arc::ptr_eq(&one.node, &edge.node))
        {
            observer.on_reached(leaf);
        }
    }

    fn mark(&mut self, node: &Arc<Node>) {
        let leads_on = |edge: &Edge| edge.resolved(self.started).is_some_and(|edge| self.leads_on(edge));
        if self.wanted.edges().is_some() && node.next.iter().flatten().any(leads_on) {
            self.useful.insert(key(node));
        }
    }

    /// Whether a gradient along `edge` reaches a wanted edge.
    fn leads_on(&self, edge: &Edge) -> bool {
        let is_wanted = |edges: &[Option<Edge>]| edges.iter().flatten().any(|one| Arc::ptr_eq(&one.node, &edge.node));
        self.useful.contains(&key(&edge.node)) || self.wanted.edges().is_some_and(is_wanted)
    }

    fn deliver(&mut self, edge: &Edge, gradient: Tensor) -> Result<()> {
        if let Wanted::Contributions(edges) = &self.wanted {
            let is_it = |one: &Option<Edge>| one.as_ref().is_some_and(|one| one.is_same(edge));
            if let Some(index) = edges.iter().position(is_it) {
                self.found[index].push(gradient);
                return Ok(());
            }
        }
        let mut sum = self.slot(edge).take().unwrap_or_default();
        sum.add(gradient, &|part| self.alone(part))?;
        *self.slot(edge) = Some(sum);
        Ok(())
    }

    /// What has arrived at an edge.
    fn slot(&mut self, edge: &Edge) -> &mut Option<Sum> {
        let slots = self.arrived.entry(key(&edge.node)).or_default();
        if slots.len() <= edge.output {
            slots.resize_with(edge.output + 1, || None);
        }
        &mut slots[edge.output]
    }

    /// The gradient of a part among zeros.
    fn alone(&self, part: &Part) -> Result<Tensor> {
        let results = self.apply(&part.node, SmallVec::from_iter([Some(part.gradient.clone())]))?;
        let missing = || Error::Internal { message: "a part has no gradient".into() };
        results.into_iter().next().flatten().ok_or_else(missing)
    }

    /// The gradient of a call that took a part of its operand, if it may wait for those of other parts.
    fn part(&self, node: &Arc<Node>, gradients: &Gradients) -> Option<Part> {
        let (place, gradient) = (node.function.place()?, gradients.first()?.clone()?);
        let edge = node.next.first()?.as_ref()?.resolved(self.started)?;
        let is_end = match &self.wanted {
            Wanted::Contributions(edges) => edges.iter().flatten().any(|one| one.is_same(edge)),
            Wanted::Leaves | Wanted::Sums(_) => false,
        };
        let fits = |result: &ResultType| result.dtype == gradient.dtype() && *result.sizes() == place.sizes[..];
        // A hook may have returned a gradient of another shape, which is an error of the call itself.
        let is_own = node.results.first().is_some_and(|own| own.sizes() == gradient.sizes());
        let waits = !is_end && is_own && edge.node.results.get(edge.output).is_some_and(fits);
        waits.then(|| Part { node: node.clone(), gradient, place: place.clone() })
    }

    fn visit(&mut self, node: &Arc<Node>, ready: &mut BinaryHeap<Ready>) -> Result<()> {
        let sums = self.arrived.remove(&key(node)).unwrap_or_default();
        let total = |sum: Option<Sum>| sum.map_or(Ok(None), |sum| sum.total(&|part| self.alone(part)));
        let mut gradients: Gradients = sums.into_iter().map(total).collect::<Result<_>>()?;
        gradients.resize(node.results.len().max(gradients.len()), None);
        if let Some(observer) = observer()
            && !node.is_leaf()
            && observer.is_abstract_since(node.sequence)
        {
            let older = node.clone();
            observer.on_older_call(node.sequence, Arc::new(move || older.hooks().is_empty()));
        }
        let hooks = node.hooks().clone();
        for (output, gradient) in gradients.iter_mut().enumerate() {
            if let Some(value) = gradient.take() {
                let own = hooks.iter().filter(|(of, _)| *of == output).map(|(_, hook)| hook.clone()).collect();
                *gradient = Some(hook::run(own, value)?);
            }
        }
        if let Wanted::Sums(wanted) = &self.wanted {
            for (edge, found) in wanted.iter().zip(&mut self.found) {
                if let Some(edge) = edge
                    && Arc::ptr_eq(&edge.node, node)
                {
                    found.extend(gradients.get(edge.output).cloned().flatten());
                }
            }
        }
        let works = self.wanted.edges().is_none() || self.useful.contains(&key(node));
        let mut part = if works { self.part(node, &gradients) } else { None };
        let results = match works && part.is_none() && gradients.iter().any(Option::is_some) {
            true => self.apply(node, gradients)?,
            false => Vec::new(),
        };
        let mut results = results.into_iter();
        for edge in &node.next {
            let gradient = results.next().flatten();
            let Some(edge) = edge.as_ref().and_then(|edge| edge.resolved(self.started)) else { continue };
            if let Some(part) = part.take() {
                self.slot(edge).get_or_insert_default().parts.push(part);
            } else if let Some(gradient) = gradient {
                self.deliver(edge, fitted(node, &edge.node, edge.output, gradient)?)?;
            }
            let missing = self.missing.get_mut(&key(&edge.node)).expect("every edge was counted");
            *missing -= 1;
            if *missing == 0 {
                ready.push(Ready(edge.node.clone()));
            }
        }
        Ok(())
    }

    fn apply(&self, node: &Arc<Node>, gradients: Gradients) -> Result<Vec<Option<Tensor>>> {
        let all = self.wanted.edges().is_none();
        let leads_on = |edge: &Edge| all || edge.resolved(self.started).is_some_and(|edge| self.leads_on(edge));
        let is_needed = |edge: &Option<Edge>| edge.as_ref().is_some_and(leads_on);
        let needs: SmallVec<[bool; 4]> = node.next.iter().map(is_needed).collect();
        let has_arrived = |edge: &Edge| {
            let Some(edge) = edge.resolved(self.started) else { return false };
            self.arrived.get(&key(&edge.node)).and_then(|slots| slots.get(edge.output)).is_some_and(Option::is_some)
        };
        let call = BackwardCall { node, needs: &needs, has_arrived: &has_arrived };
        let span = (profile::is_on() && !is_tracing()).then(|| {
            let name = node.function.name();
            profile::open(Kind::Node, (profile::key_of(&name), 0), || named(&name))
        });
        let is_given = anomaly::is_given(&gradients);
        let results = {
            // What a recorded backward pass records stands where the call stands.
            let _place = if self.options.create_graph { anomaly::located(node) } else { None };
            node.function.apply(gradients.into_vec(), &call)
        };
        drop(span);
        // An abstract trace is no call: what was recorded before it keeps its saved values for the real one.
        let is_call = !observer().is_some_and(|observer| observer.is_abstract_since(node.sequence));
        if !self.options.retain_graph && is_call {
            node.function.release();
        }
        let results = results?;
        anomaly::check_gradients(node, is_given, &results)?;
        Ok(results)
    }
}

/// What a profile says of a part of a backward pass.
fn named(name: &str) -> Subject {
    Subject { name: name.to_string(), ..Subject::default() }
}

/// Casts and checks a gradient that the formula of `giver` returned, so that it has the shape and dtype of the value it
/// belongs to.
fn fitted(giver: &Node, node: &Node, output: usize, gradient: Tensor) -> Result<Tensor> {
    let Some(result) = node.results.get(output) else { return Ok(gradient) };
    let gradient = if gradient.dtype() == result.dtype { gradient } else { gradient.to_dtype(result.dtype)? };
    if gradient.sizes() == result.sizes() {
        return Ok(gradient);
    }
    let what = format!(
        "{} returned a gradient of shape {:?} for an operand of shape {:?}, which goes to {}",
        giver.function.name(),
        gradient.sizes(),
        result.sizes(),
        node.function.name()
    );
    Err(Error::shape("backward", what, "a gradient has the shape of its value"))
}

/// The gradients of all results of a node, with zeros where none arrived.
pub(crate) fn with_zeros(node: &Node, gradients: Vec<Option<Tensor>>) -> Result<Vec<Tensor>> {
    let zeros = |index: usize| {
        let result = &node.results[index];
        full_on(result.device, result.sizes(), Scalar::Int(0), Some(result.dtype))
    };
    gradients.into_iter().enumerate().map(|(index, gradient)| gradient.map_or_else(|| zeros(index), Ok)).collect()
}
