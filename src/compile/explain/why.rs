//! Answers why two ops are not in one kernel.
//!
//! A name stands for one node, or for all nodes of a call. The answer is for the nearest pair: the one with the
//! shortest path over edges between computed values, in either direction. Among equals, a path that was not fused comes
//! first. Paths lead through views, as fusion does.

use super::{Decision, Edge, Explain, plain};
use crate::error::{Error, Reason, Result};
use crate::fusion::role::Role;
use crate::ir::{NodeId, Op};
use std::collections::VecDeque;
use std::fmt;

/// The answer to [`Explain::why`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// The node named first, or the value that it is a view of, with its op.
    pub a: (NodeId, String),
    /// The node named second.
    pub b: (NodeId, String),
    /// Whether both are in one kernel, and why.
    pub answer: Answer,
}

/// Whether two nodes are in one kernel, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Both are in this kernel. The path is empty if none leads from one to the other.
    Together {
        /// The kernel.
        group: usize,
        /// The edges between the two, all of them fused.
        path: Vec<Edge>,
    },
    /// A path leads from one to the other, and not all of its edges were fused.
    Apart {
        /// The edges between the two, from producer to consumer.
        path: Vec<Edge>,
    },
    /// Neither uses the other, even indirectly, so no edge between them could be fused.
    NoPath,
    /// One is an input, a number or a fill: kernels read or compute it in place.
    InNoKernel {
        /// Which one.
        node: NodeId,
    },
    /// Nothing is compiled.
    Eager {
        /// Why nothing is compiled.
        reason: Reason,
    },
}

impl Explain {
    /// Answers why two ops are not in one kernel. An op is named as in reports (`n7`), by the op that was called
    /// (`softmax`, `sum`), or by an op that a call consists of.
    ///
    /// ```
    /// # fn main() -> opfuse::Result<()> {
    /// use opfuse::{Tensor, compile};
    /// let f = compile(|a: &Tensor, b: &Tensor| a.mm(b)?.cumsum(0));
    /// let a = Tensor::from_slice(&[0.0f32; 4], &[2, 2])?;
    /// f.call((&a, &a))?;
    /// let why = f.explain().why("mm", "cumsum")?;
    /// assert!(why.to_string().contains("an opaque op is never fused"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Of a function that runs in several segments, the first one answers in which both names match something.
    ///
    /// # Errors
    /// If a name matches nothing in the graph. The message lists what there is. If no segment has both.
    pub fn why(&self, a: &str, b: &str) -> Result<Why> {
        if let Some(reason) = &self.eager {
            let nowhere = |name: &str| (NodeId::new(0), name.to_string());
            return Ok(Why { a: nowhere(a), b: nowhere(b), answer: Answer::Eager { reason: reason.clone() } });
        }
        if !self.segments.is_empty() {
            let answer = self.segments.iter().find_map(|segment| segment.report.why(a, b).ok());
            let apart = || {
                let count = self.segments.len();
                Error::argument("why", format!("none of the {count} segments has both {a:?} and {b:?}"))
            };
            return answer.ok_or_else(apart);
        }
        let (from, to) = (self.named(a)?, self.named(b)?);
        for &node in [&from, &to].into_iter().flatten() {
            if matches!(self.nodes[node.index()].role, Role::Input | Role::Inline) {
                let (a, b) = (*from.first().unwrap_or(&node), *to.first().unwrap_or(&node));
                return Ok(self.answer(a, b, Answer::InNoKernel { node }));
            }
        }
        let paths = [self.shortest(&from, &to), self.shortest(&to, &from)];
        // A path in the other direction swaps its ends, so that `a` is the op named first.
        let nearest = paths.into_iter().enumerate().filter_map(|(index, path)| Some((index == 1, path?)));
        if let Some((turned, path)) = nearest.min_by_key(|(turned, path)| (path.len(), is_fused(path), *turned)) {
            let ends = path.first().zip(path.last()).map(|(first, last)| (first.producer, last.consumer));
            // An empty path: one node has both names.
            let (first, last) = ends
                .or(from.iter().find(|id| to.contains(id)).map(|&id| (id, id)))
                .unwrap_or_else(|| unreachable!("an empty path leads from a node to itself"));
            let (a, b) = if turned { (last, first) } else { (first, last) };
            return Ok(match self.nodes[a.index()].group.filter(|_| is_fused(&path)) {
                Some(group) => self.answer(a, b, Answer::Together { group, path }),
                None => self.answer(a, b, Answer::Apart { path }),
            });
        }
        let group = |id: NodeId| self.nodes[id.index()].group;
        let pairs = from.iter().flat_map(|&a| to.iter().map(move |&b| (a, b)));
        let together = pairs.into_iter().find_map(|(a, b)| Some((a, b, group(a).filter(|_| group(a) == group(b))?)));
        Ok(match together {
            Some((a, b, group)) => self.answer(a, b, Answer::Together { group, path: Vec::new() }),
            None => self.answer(from[0], to[0], Answer::NoPath),
        })
    }

    fn answer(&self, a: NodeId, b: NodeId, answer: Answer) -> Why {
        let op = |id: NodeId| self.nodes[id.index()].node.op().map_or("input", Op::name).to_string();
        Why { a: (a, op(a)), b: (b, op(b)), answer }
    }

    /// The nodes that a name stands for, with views replaced by their bases: a node number, the nodes of the calls of
    /// an op, or the nodes of an op. Never empty.
    fn named(&self, name: &str) -> Result<Vec<NodeId>> {
        let wanted = name.trim().trim_start_matches('_');
        let pick = |is: &dyn Fn(&super::NodeReport) -> bool| -> Vec<NodeId> {
            let mut found: Vec<NodeId> =
                self.nodes.iter().filter(|report| is(report)).map(|report| self.view_base(report.id)).collect();
            found.sort_unstable();
            found.dedup();
            found
        };
        let by_number = || pick(&|report| report.id.to_string() == wanted);
        let by_call = || {
            let computed = |report: &super::NodeReport| report.role != Role::Inline;
            pick(&|report| computed(report) && report.source.is_some_and(|source| source.name() == wanted))
        };
        let by_op = || pick(&|report| report.node.op().is_some_and(|op| plain(op) == wanted));
        [by_number(), by_call(), by_op()].into_iter().find(|found| !found.is_empty()).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> Error {
        let mut there: Vec<&str> =
            self.nodes.iter().filter_map(|report| report.source).map(|call| call.name()).collect();
        there.extend(self.nodes.iter().filter_map(|report| report.node.op()).map(plain));
        there.sort_unstable();
        there.dedup();
        let numbers = match self.nodes.last() {
            Some(last) => format!("nodes n0 to {}", last.id),
            None => "no nodes".to_string(),
        };
        let hint = "an op may also have been dropped as dead, or merged with an equal one";
        Error::argument(
            "why",
            format!("nothing is named {name:?}; there are {numbers}, ops {}; {hint}", there.join(", ")),
        )
    }

    pub(super) fn view_base(&self, mut id: NodeId) -> NodeId {
        while self.nodes[id.index()].role == Role::View {
            id = self.nodes[id.index()].node.args[0];
        }
        id
    }

    /// A shortest path of edges from one of `from` to one of `to`. Of several last edges, one that was not fused is
    /// preferred.
    fn shortest(&self, from: &[NodeId], to: &[NodeId]) -> Option<Vec<Edge>> {
        let n_nodes = self.nodes.len();
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); n_nodes];
        for (index, edge) in self.edges.iter().enumerate() {
            users[edge.producer.index()].push(index);
        }
        let (mut is_end, mut seen) = (vec![false; n_nodes], vec![false; n_nodes]);
        to.iter().for_each(|id| is_end[id.index()] = true);
        if from.iter().any(|id| is_end[id.index()]) {
            return Some(Vec::new());
        }
        // The edge that first reached each node.
        let mut by: Vec<Option<usize>> = vec![None; n_nodes];
        let mut front: VecDeque<NodeId> = from.iter().copied().collect();
        from.iter().for_each(|id| seen[id.index()] = true);
        while !front.is_empty() {
            // One step of a breadth-first search: all nodes one edge further away.
            let mut ends: Vec<usize> = Vec::new();
            for _ in 0..front.len() {
                let node = front.pop_front()?;
                for &index in &users[node.index()] {
                    let next = self.edges[index].consumer;
                    if is_end[next.index()] {
                        ends.push(index);
                    } else if !seen[next.index()] {
                        seen[next.index()] = true;
                        by[next.index()] = Some(index);
                        front.push_back(next);
                    }
                }
            }
            if let Some(&last) = ends.iter().min_by_key(|&&index| (self.edges[index].is_fused(), index)) {
                let mut path = vec![self.edges[last].clone()];
                while let Some(index) = by[path[path.len() - 1].producer.index()] {
                    path.push(self.edges[index].clone());
                }
                path.reverse();
                return Some(path);
            }
        }
        None
    }
}

fn is_fused(path: &[Edge]) -> bool {
    path.iter().all(Edge::is_fused)
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = (format!("{} {}", self.a.0, self.a.1), format!("{} {}", self.b.0, self.b.1));
        match &self.answer {
            Answer::Together { group, path: _ } if self.a.0 == self.b.0 => {
                writeln!(f, "{a} is one op, in kernel {group}")
            }
            Answer::Together { group, path } => {
                writeln!(f, "{a} and {b} are in one kernel, kernel {group}")?;
                steps(f, path)
            }
            Answer::Apart { path } => {
                writeln!(f, "{a} and {b} are in two kernels")?;
                steps(f, path)
            }
            Answer::NoPath => writeln!(f, "there is no path between {a} and {b}, so no edge that could be fused"),
            Answer::InNoKernel { node } => {
                writeln!(f, "{node} belongs to no kernel: kernels read or compute it where they use it")
            }
            Answer::Eager { reason } => {
                writeln!(f, "nothing is compiled, the function runs eagerly: {reason}")?;
                writeln!(f, "  hint: {}", reason.hint())
            }
        }
    }
}

fn steps(f: &mut fmt::Formatter<'_>, path: &[Edge]) -> fmt::Result {
    for edge in path {
        write!(f, "  {} -> {}: ", edge.producer, edge.consumer)?;
        match &edge.decision {
            Decision::Fused { bytes } => writeln!(f, "fused, saves {bytes} bytes")?,
            Decision::Kept { reason, bytes, hint } => {
                writeln!(f, "not fused, costs {bytes} bytes: {reason}")?;
                writeln!(f, "    hint: {hint}")?;
            }
        }
    }
    Ok(())
}
