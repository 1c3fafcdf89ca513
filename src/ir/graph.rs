//! Graphs: what a traced function computes.
//!
//! A graph owns its nodes in an arena. Operands come before users, so every pass is one forward loop. Graphs have
//! concrete sizes and no in-place ops. Facts about nodes live in [`SideTable`]s, not in the nodes.

use super::attr::Attrs;
use super::attrs::Cast;
use super::dtype::DType;
use super::entity::{Arena, SideTable, entity_id};
use super::op::Op;
use super::scalar::Scalar;
use super::types::TensorType;
use crate::error::Result;
use crate::profile::Place;
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::ops::Index;

entity_id! {
    /// Names a node of a graph; prints as `n7`.
    pub struct NodeId(u32) = "n";
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// An input of the graph, by its position.
    Input(u32),
    /// A plain number.
    Number(Scalar),
    /// A count that follows from sizes, as a plain number. It is an argument of a kernel and not a literal, so one
    /// kernel serves every size.
    Extent(i64),
    /// A call of an op.
    Op(Op),
}

/// A value of the graph and how it is made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// Its tensor operands.
    pub args: SmallVec<[NodeId; 3]>,
    /// Its other arguments.
    pub attrs: Attrs,
    /// The type of its value.
    pub ty: TensorType,
}

impl Node {
    /// The op, if the node is a call.
    pub fn op(&self) -> Option<Op> {
        match self.kind {
            NodeKind::Op(op) => Some(op),
            NodeKind::Input(_) | NodeKind::Number(_) | NodeKind::Extent(_) => None,
        }
    }
}

impl<T> SideTable<NodeId, T> {
    /// A table with a value made for every node of `graph`.
    pub fn filled(graph: &Graph, value: impl FnMut() -> T) -> SideTable<NodeId, T> {
        SideTable::with_len(graph.len(), value)
    }
}

/// A dataflow graph of tensor ops.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Graph {
    nodes: Arena<NodeId, Node>,
    inputs: Vec<NodeId>,
    outputs: Vec<NodeId>,
    origins: Origins,
    places: Places,
}

/// Where in the program each node was called. Like origins, this is debug information.
#[derive(Debug, Clone, Default)]
struct Places {
    /// By node. Nodes past the end have no place.
    of: Vec<Option<Place>>,
    /// The place of what is added next.
    next: Option<Place>,
}

impl PartialEq for Places {
    fn eq(&self, _: &Places) -> bool {
        true
    }
}

impl Eq for Places {}

impl Hash for Places {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Which node of an earlier graph each node was made for. This is debug information: it takes no part in equality.
#[derive(Debug, Clone, Default)]
struct Origins {
    /// By node. Nodes past the end have no origin.
    of: Vec<Option<NodeId>>,
    /// The origin of what is added next.
    next: Option<NodeId>,
}

impl PartialEq for Origins {
    fn eq(&self, _: &Origins) -> bool {
        true
    }
}

impl Eq for Origins {}

impl Hash for Origins {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Every node with its name, operands before users.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> {
        self.nodes.iter()
    }

    /// The inputs in order.
    pub fn inputs(&self) -> &[NodeId] {
        &self.inputs
    }

    /// The outputs in order. A node may be listed twice, and may be an input.
    pub fn outputs(&self) -> &[NodeId] {
        &self.outputs
    }

    /// Adds the next input.
    pub fn input(&mut self, ty: TensorType) -> NodeId {
        let kind = NodeKind::Input(self.inputs.len() as u32);
        let id = self.push(Node { kind, args: SmallVec::new(), attrs: Attrs::new(), ty });
        self.inputs.push(id);
        id
    }

    /// Adds a plain number.
    pub fn number(&mut self, value: Scalar) -> NodeId {
        let ty = TensorType::number(value.dtype());
        self.push(Node { kind: NodeKind::Number(value), args: SmallVec::new(), attrs: Attrs::new(), ty })
    }

    /// Adds a count that follows from sizes.
    pub fn extent(&mut self, count: usize) -> NodeId {
        let kind = NodeKind::Extent(count as i64);
        self.push(Node { kind, args: SmallVec::new(), attrs: Attrs::new(), ty: TensorType::number(DType::I64) })
    }

    /// The value converted to a dtype, or itself if it has that dtype.
    ///
    /// # Errors
    /// None for a tensor.
    pub fn cast(&mut self, x: NodeId, dtype: DType) -> Result<NodeId> {
        if self[x].ty.dtype == dtype { Ok(x) } else { self.add(Op::ToCopy, &[x], Cast { dtype: Some(dtype) }.into()) }
    }

    /// Adds a call, and infers its type.
    ///
    /// # Errors
    /// If the op's inference rejects the operands or arguments.
    pub fn add(&mut self, op: Op, args: &[NodeId], attrs: Attrs) -> Result<NodeId> {
        let ty = {
            let tys: SmallVec<[&TensorType; 4]> = args.iter().map(|&arg| &self[arg].ty).collect();
            op.infer(&tys, &attrs)?
        };
        Ok(self.push(Node { kind: NodeKind::Op(op), args: SmallVec::from_slice(args), attrs, ty }))
    }

    /// Adds a copy of a node of another graph, with other operands.
    pub fn copy(&mut self, node: &Node, args: &[NodeId]) -> NodeId {
        let id = self.push(Node { args: SmallVec::from_slice(args), ..node.clone() });
        if let NodeKind::Input(_) = node.kind {
            self.nodes[id].kind = NodeKind::Input(self.inputs.len() as u32);
            self.inputs.push(id);
        }
        id
    }

    /// Sets the strides of a value to others than an eager result would have.
    pub fn set_strides(&mut self, id: NodeId, strides: &[usize]) {
        self.nodes[id].ty.strides = strides.into();
    }

    /// Sets the outputs.
    pub fn set_outputs(&mut self, outputs: Vec<NodeId>) {
        self.outputs = outputs;
    }

    /// Sets the origin of nodes that are added from now on: the node of an earlier graph that they are made for.
    pub fn set_origin(&mut self, origin: Option<NodeId>) {
        self.origins.next = origin;
    }

    /// The node of the traced graph that this one was made for, if it was recorded. If calls were merged, it is the
    /// first of them.
    pub fn origin(&self, id: NodeId) -> Option<NodeId> {
        self.origins.of.get(id.index()).copied().flatten()
    }

    /// Sets the place of nodes that are added from now on.
    pub fn set_place(&mut self, place: Option<Place>) {
        self.places.next = place;
    }

    /// Where in the program a node of a traced graph was called, if that is known.
    pub fn place(&self, id: NodeId) -> Option<&Place> {
        self.places.of.get(id.index())?.as_ref()
    }

    /// The value that `id` is a view of, through any number of views, or `id` itself.
    pub fn view_base(&self, mut id: NodeId) -> NodeId {
        while self[id].op().is_some_and(Op::is_view) {
            id = self[id].args[0];
        }
        id
    }

    /// The nodes whose memory a window reads, directly or through views.
    pub fn windowed(&self) -> SideTable<NodeId, bool> {
        let mut found = SideTable::filled(self, || false);
        for (id, node) in self.nodes().rev() {
            let reads = node.op().is_some_and(|op| op.is_window() || found[id] && op.is_view());
            if reads {
                found[node.args[0]] = true;
            }
        }
        found
    }

    /// How often each node is used, by operands and by outputs.
    pub fn use_counts(&self) -> SideTable<NodeId, u32> {
        let mut counts = SideTable::filled(self, || 0);
        for (_, node) in self.nodes() {
            for &arg in &node.args {
                counts[arg] += 1;
            }
        }
        for &output in &self.outputs {
            counts[output] += 1;
        }
        counts
    }

    /// The types of a node's operands.
    pub fn arg_types(&self, id: NodeId) -> SmallVec<[&TensorType; 4]> {
        self[id].args.iter().map(|&arg| &self[arg].ty).collect()
    }

    fn push(&mut self, node: Node) -> NodeId {
        if self.origins.next.is_some() {
            self.origins.of.resize(self.nodes.len(), None);
            self.origins.of.push(self.origins.next);
        }
        if self.places.next.is_some() {
            self.places.of.resize(self.nodes.len(), None);
            self.places.of.push(self.places.next.clone());
        }
        self.nodes.push(node)
    }
}

impl Index<NodeId> for Graph {
    type Output = Node;
    fn index(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }
}
