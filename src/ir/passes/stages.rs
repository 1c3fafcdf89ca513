//! Cuts a graph at calls of code that it does not contain.
//!
//! Such a call reads values of the graph, and its results are inputs of the graph. So the graph runs in stages: one
//! before each call computes what the call reads, and the last one computes everything else. A value that several
//! stages use is computed in the first of them and handed on (*carried*). What no call needs waits for the last stage,
//! where it fuses with what follows.

use crate::error::{Error, Result};
use crate::ir::{Graph, NodeId, NodeKind, SideTable};
use std::collections::HashMap;

/// The input of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StageInput {
    /// This input of the whole graph.
    Input(usize),
    /// This value of an earlier stage, by its position among all that are carried.
    Carried(usize),
}

/// What runs before a call.
#[derive(Debug, Clone)]
pub struct Stage {
    /// Returns what the call reads, and then values for later stages, which get the next positions in order.
    pub graph: Graph,
    /// The inputs of the graph.
    pub inputs: Vec<StageInput>,
}

/// A graph in stages.
#[derive(Debug, Clone)]
pub struct Stages {
    /// One stage before each call.
    pub before: Vec<Stage>,
    /// Takes all inputs of the whole graph, and then carried values. Returns its outputs.
    pub last: Graph,
    /// The carried values that the last stage takes.
    pub carried: Vec<usize>,
}

/// Cuts a graph at calls that read these nodes, in order. A call reads nothing that depends on its own results or on
/// those of a later call.
///
/// # Errors
/// If the graph breaks an invariant.
pub fn stages(graph: &Graph, calls: &[Vec<NodeId>]) -> Result<Stages> {
    let is_op = |id: NodeId| matches!(graph[id].kind, NodeKind::Op(_));
    // The first stage that needs each value.
    let mut stage_of = SideTable::filled(graph, || calls.len());
    for (stage, reads) in calls.iter().enumerate().rev() {
        reads.iter().for_each(|&read| stage_of[read] = stage);
    }
    for (id, node) in graph.nodes().rev() {
        for &arg in &node.args {
            stage_of[arg] = stage_of[arg].min(stage_of[id]);
        }
    }
    // A window counts from the start of the memory that eager calls would give its value. The passes keep that memory
    // for windows that they see. So the stage that computes a value also takes its windows, and views on the way.
    let is_windowed = graph.windowed();
    for (id, node) in graph.nodes() {
        let follows = node.op().is_some_and(|op| op.is_window() || is_windowed[id] && op.is_view());
        if follows && is_op(node.args[0]) {
            stage_of[id] = stage_of[node.args[0]];
        }
    }
    // Values that later stages use.
    let mut is_carried = SideTable::filled(graph, || false);
    let mut used_in = |id: NodeId, stage: usize| is_carried[id] |= is_op(id) && stage_of[id] < stage;
    for (id, node) in graph.nodes() {
        node.args.iter().for_each(|&arg| used_in(arg, stage_of[id]));
    }
    for (stage, reads) in calls.iter().enumerate() {
        reads.iter().for_each(|&read| used_in(read, stage));
    }
    graph.outputs().iter().for_each(|&output| used_in(output, calls.len()));

    let mut carried: HashMap<NodeId, usize> = HashMap::new();
    let mut before = Vec::with_capacity(calls.len());
    for (stage, reads) in calls.iter().enumerate() {
        let own = |id: NodeId| is_op(id) && stage_of[id] == stage;
        let mut part = Part::new(graph, &carried);
        graph.nodes().filter(|(id, _)| own(*id)).try_for_each(|(id, _)| part.copy(id))?;
        let new: Vec<NodeId> = graph.nodes().map(|(id, _)| id).filter(|&id| own(id) && is_carried[id]).collect();
        let outputs = reads.iter().chain(&new).map(|&id| part.node(id)).collect::<Result<_>>()?;
        part.out.set_outputs(outputs);
        before.push(Stage { graph: part.out, inputs: part.inputs });
        for id in new {
            carried.insert(id, carried.len());
        }
    }
    let mut part = Part::new(graph, &carried);
    let own = |id: NodeId| is_op(id) && stage_of[id] == calls.len();
    // Carried values come after all inputs.
    graph.inputs().iter().try_for_each(|&input| part.node(input).map(|_| ()))?;
    graph.nodes().filter(|(id, _)| own(*id)).try_for_each(|(id, _)| part.copy(id))?;
    let outputs = graph.outputs().iter().map(|&id| part.node(id)).collect::<Result<_>>()?;
    part.out.set_outputs(outputs);
    let taken = |input: &StageInput| match input {
        StageInput::Carried(at) => Some(*at),
        StageInput::Input(_) => None,
    };
    let carried = part.inputs.iter().filter_map(taken).collect();
    Ok(Stages { before, last: part.out, carried })
}

/// A stage in the making.
struct Part<'a> {
    graph: &'a Graph,
    carried: &'a HashMap<NodeId, usize>,
    out: Graph,
    moved: SideTable<NodeId, Option<NodeId>>,
    inputs: Vec<StageInput>,
}

impl<'a> Part<'a> {
    fn new(graph: &'a Graph, carried: &'a HashMap<NodeId, usize>) -> Part<'a> {
        let moved = SideTable::filled(graph, || None);
        Part { graph, carried, out: Graph::new(), moved, inputs: Vec::new() }
    }

    /// Copies a call.
    fn copy(&mut self, id: NodeId) -> Result<()> {
        let graph = self.graph;
        let args = graph[id].args.iter().map(|&arg| self.node(arg)).collect::<Result<Vec<_>>>()?;
        self.out.set_place(graph.place(id).cloned());
        self.moved[id] = Some(self.out.copy(&graph[id], &args));
        Ok(())
    }

    /// The node of a value, which becomes an input if another stage computes it.
    fn node(&mut self, id: NodeId) -> Result<NodeId> {
        if let Some(known) = self.moved[id] {
            return Ok(known);
        }
        let node = &self.graph[id];
        self.out.set_place(None);
        let made = match node.kind {
            NodeKind::Number(_) | NodeKind::Extent(_) => self.out.copy(node, &[]),
            NodeKind::Input(index) => {
                self.inputs.push(StageInput::Input(index as usize));
                self.out.copy(node, &[])
            }
            NodeKind::Op(_) => {
                let at = self.carried.get(&id).copied();
                let at = at.ok_or_else(|| Error::invalid("graph", format!("{id} is read before it is computed")))?;
                self.inputs.push(StageInput::Carried(at));
                self.out.input(node.ty.clone())
            }
        };
        self.moved[id] = Some(made);
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_computed_once_and_as_late_as_its_first_reader_allows() {
        // The first call reads n3 and gives n4, the second reads n5 and n3 and gives n6.
        let graph: Graph = "graph {
            n0 = input: f32[2]
            n1 = number 0.5: f64[]#
            n2 = exp(n0): f32[2]
            n3 = mul(n2, n1): f32[2]
            n4 = input: f32[2]
            n5 = sub(n4, n2; 1): f32[2]
            n6 = input: f32[2]
            n7 = mul(n6, n1): f32[2]
            n8 = tanh(n0): f32[2]
            n9 = add(n7, n8; 1): f32[2]
            return n9, n3, n6
        }"
        .parse()
        .expect("it is a graph");
        let node = NodeId::new;
        let Stages { before, last, carried } =
            stages(&graph, &[vec![node(3)], vec![node(5), node(3)]]).expect("calls read what is there");
        let text = |graph: &Graph| graph.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        let [first, second] = &before[..] else { panic!("there are two calls") };
        assert_eq!(
            text(&first.graph),
            "graph { n0 = input: f32[2] n1 = exp(n0): f32[2] n2 = number 0.5: f64[]# n3 = mul(n1, n2): f32[2] return \
             n3, n1, n3 }"
        );
        assert_eq!(first.inputs, [StageInput::Input(0)]);
        assert_eq!(
            text(&second.graph),
            "graph { n0 = input: f32[2] n1 = input: f32[2] n2 = sub(n0, n1; 1): f32[2] n3 = input: f32[2] return n2, \
             n3 }"
        );
        assert_eq!(second.inputs, [StageInput::Input(1), StageInput::Carried(0), StageInput::Carried(1)]);
        assert_eq!(
            text(&last),
            "graph { n0 = input: f32[2] n1 = input: f32[2] n2 = input: f32[2] n3 = number 0.5: f64[]# n4 = mul(n2, \
             n3): f32[2] n5 = tanh(n0): f32[2] n6 = add(n4, n5; 1): f32[2] n7 = input: f32[2] return n6, n7, n2 }"
        );
        assert_eq!(carried, [1]);
    }

    #[test]
    fn windows_are_taken_where_the_memory_is_made() {
        // The call reads n1 and gives n3. Nothing before it needs the window.
        let graph: Graph = "graph {
            n0 = input: f32[4]
            n1 = exp(n0): f32[4]
            n2 = slice(n1; 0, 1, 4, 1): f32[3]
            n3 = input: f32[4]
            n4 = as_strided(n2; [2], [1], 0): f32[2]
            return n4, n3
        }"
        .parse()
        .expect("it is a graph");
        let Stages { before, carried, .. } =
            stages(&graph, &[vec![NodeId::new(1)]]).expect("the call reads what is there");
        let [first] = &before[..] else { panic!("there is one call") };
        let ops: Vec<_> = first.graph.nodes().filter_map(|(_, node)| node.op()).collect();
        assert_eq!(ops, [crate::ir::Op::Exp, crate::ir::Op::Slice, crate::ir::Op::AsStrided]);
        assert_eq!(first.graph.outputs().len(), 2, "the window is carried");
        assert_eq!(carried, [0]);
    }
}
