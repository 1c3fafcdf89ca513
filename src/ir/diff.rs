//! What changed between two graphs, as lines of their text form.
//!
//! A pass numbers nodes anew, so lines are aligned without their names: by a longest common subsequence. An aligned
//! line is kept if its operands are aligned too. Otherwise it was replaced. So a user of a replaced value is a change,
//! and users of that user are not.

use super::attr::Attrs;
use super::graph::{Graph, NodeId, NodeKind};
use super::text::{node_line, return_line};
use super::types::TensorType;
use rustc_hash::FxHashMap;

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is in both graphs, perhaps under other names.
    Kept,
    /// It is in the graph before alone.
    Removed,
    /// It is in the graph after alone.
    Added,
}

/// A line of the text of one of the graphs; of the graph after if it was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// What became of it.
    pub(crate) change: Change,
    /// Its text.
    pub(crate) text: String,
}

/// Beyond so many pairs of lines they are not aligned: what is between the first and the last change was replaced.
const MAX_PAIRS: usize = 1 << 26;

/// The lines of both graphs, those that were removed before those that were added in their place.
pub(crate) fn diff(before: &Graph, after: &Graph) -> Vec<Line> {
    let mut words = FxHashMap::default();
    let [old, new] = [before, after].map(|graph| spoken(graph, &mut words));
    let mut partners: Vec<Option<usize>> = vec![None; old.len()];
    for (i, j) in align(&old, &new) {
        partners[i] = Some(j);
    }
    let stays = |&(i, j): &(usize, usize)| {
        let pairs = operands(before, i).iter().zip(operands(after, j));
        pairs.into_iter().all(|(old, new)| partners[old.index()] == Some(new.index()))
    };
    let aligned = partners.iter().enumerate().filter_map(|(i, partner)| Some((i, (*partner)?)));
    let kept: Vec<(usize, usize)> = aligned.filter(stays).collect();
    let mut lines = Vec::with_capacity(new.len());
    let (mut i, mut j) = (0, 0);
    for (next_i, next_j) in kept.into_iter().chain([(old.len(), new.len())]) {
        lines.extend((i..next_i).map(|i| Line { change: Change::Removed, text: text(before, i) }));
        lines.extend((j..next_j).map(|j| Line { change: Change::Added, text: text(after, j) }));
        if next_j < new.len() {
            lines.push(Line { change: Change::Kept, text: text(after, next_j) });
        }
        (i, j) = (next_i + 1, next_j + 1);
    }
    lines
}

/// What a line says but for names: a node, and the number of its operands; or how many outputs there are.
type Saying<'a> = (Option<(NodeKind, &'a Attrs, &'a TensorType)>, usize);

/// What each line says, as a number; a line for the outputs comes last.
fn spoken<'a>(graph: &'a Graph, words: &mut FxHashMap<Saying<'a>, u32>) -> Vec<u32> {
    let nodes = graph.nodes().map(|(_, node)| (Some((node.kind, &node.attrs, &node.ty)), node.args.len()));
    let all = nodes.chain([(None, graph.outputs().len())]);
    all.map(|saying| {
        let next = words.len() as u32;
        *words.entry(saying).or_insert(next)
    })
    .collect()
}

fn operands(graph: &Graph, line: usize) -> &[NodeId] {
    if line < graph.len() { &graph[NodeId::new(line)].args } else { graph.outputs() }
}

fn text(graph: &Graph, line: usize) -> String {
    if line < graph.len() { node_line(graph, NodeId::new(line)) } else { return_line(graph) }
}

/// The pairs of a longest common subsequence, in order.
fn align(old: &[u32], new: &[u32]) -> Vec<(usize, usize)> {
    let n_first = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old[n_first..], &new[n_first..]);
    let n_last = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let middle = align_by_table(&old_rest[..old_rest.len() - n_last], &new_rest[..new_rest.len() - n_last]);
    let first = (0..n_first).map(|i| (i, i));
    let middle = middle.into_iter().map(|(i, j)| (i + n_first, j + n_first));
    first.chain(middle).chain((0..n_last).map(|i| (old.len() - n_last + i, new.len() - n_last + i))).collect()
}

fn align_by_table(old: &[u32], new: &[u32]) -> Vec<(usize, usize)> {
    let width = new.len() + 1;
    if old.len().saturating_mul(new.len()) > MAX_PAIRS {
        return Vec::new();
    }
    // How many pairs there are from line i of the one and line j of the other on; at most the root of `MAX_PAIRS`.
    let mut n_pairs = vec![0u16; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            let (below, beside) = (n_pairs[(i + 1) * width + j], n_pairs[i * width + j + 1]);
            let both = n_pairs[(i + 1) * width + j + 1] + 1;
            n_pairs[i * width + j] = if old[i] == new[j] { both } else { below.max(beside) };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < old.len() && j < new.len() {
        if old[i] == new[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if n_pairs[(i + 1) * width + j] >= n_pairs[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::{Change, diff};
    use crate::ir::Graph;

    /// Inputs `n0` and `n1` of two floats, then these lines.
    fn graph(lines: &str) -> Graph {
        let text = format!("n0 = input: f32[2]\nn1 = input: f32[2]\n{}", lines.replace("; ", "\n"));
        text.parse().expect("the graph is legal")
    }

    /// The lines after the inputs, each with a sign for what became of it, and types left out.
    #[track_caller]
    fn check(before: &str, after: &str, expected: &str) {
        let lines = diff(&graph(before), &graph(after));
        let signed = lines.iter().map(|line| {
            let sign = match line.change {
                Change::Kept => ' ',
                Change::Removed => '-',
                Change::Added => '+',
            };
            format!("{sign}{}", line.text.split(": f32").next().unwrap_or_default())
        });
        let signed: Vec<String> = signed.collect();
        assert_eq!(signed[..2], [" n0 = input", " n1 = input"]);
        assert_eq!(signed[2..].join("; "), expected, "{before} to {after}");
    }

    const EXP: &str = "n2 = exp(n0): f32[2]; n3 = tanh(n2): f32[2]; return n3";

    #[test]
    fn lines_are_kept_removed_or_added() {
        check(EXP, EXP, " n2 = exp(n0);  n3 = tanh(n2);  return n3");
        // A line goes: others keep what they say, under other names.
        let dead = "n2 = sin(n1): f32[2]; n3 = exp(n0): f32[2]; n4 = tanh(n3): f32[2]; return n4";
        check(dead, EXP, "-n2 = sin(n1);  n2 = exp(n0);  n3 = tanh(n2);  return n3");
        check(EXP, dead, "+n2 = sin(n1);  n3 = exp(n0);  n4 = tanh(n3);  return n4");
        // A value is replaced: its user is a change, and what uses that one is none.
        let sin = "n2 = sin(n0): f32[2]; n3 = tanh(n2): f32[2]; n4 = abs(n3): f32[2]; return n4";
        let cos = "n2 = cos(n0): f32[2]; n3 = tanh(n2): f32[2]; n4 = abs(n3): f32[2]; return n4";
        check(sin, cos, "-n2 = sin(n0); -n3 = tanh(n2); +n2 = cos(n0); +n3 = tanh(n2);  n4 = abs(n3);  return n4");
        // Another operand, another output.
        let other = "n2 = exp(n1): f32[2]; n3 = tanh(n2): f32[2]; return n2";
        let both = "-n2 = exp(n0); +n2 = exp(n1);  n3 = tanh(n2); -return n3; +return n2";
        check(EXP, other, both);
        check("return n0", "return n0, n1", "-return n0; +return n0, n1");
    }

    #[test]
    fn graphs_that_are_too_large_are_replaced_between_their_ends() {
        let chain = |op: &str, count: usize| {
            let calls = (2..count + 2).map(|at| format!("n{at} = {op}(n{}): f32[2]; ", at - 1));
            graph(&format!("{}return n{}", calls.collect::<String>(), count + 1))
        };
        let lines = diff(&chain("exp", 9000), &chain("sin", 9000));
        let count = |change: Change| lines.iter().filter(|line| line.change == change).count();
        assert_eq!([Change::Kept, Change::Removed, Change::Added].map(count), [2, 9001, 9001]);
    }
}
