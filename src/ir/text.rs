//! The text form of graphs, and its parser.
//!
//! ```text
//! graph {
//!   n0 = input: f32[4,8]
//!   n1 = number 0.5: f64[]#
//!   n2 = mul(n0, n1): f32[4,8]
//!   n3 = sum(n2; [-1], false, none): f32[4]
//!   return n3
//! }
//! ```
//!
//! Strides follow a colon in a type if they are not row-major; `#` marks a plain number. The text of a graph parses
//! back to an equal graph. Parsing checks types, so a wrong type is an error with its line.

use super::attr::{Attr, Attrs, MemoryFormat};
use super::dtype::DType;
use super::graph::{Graph, Node, NodeId, NodeKind};
use super::op::Op;
use super::scalar::Scalar;
use super::shape::contiguous_strides;
use super::types::TensorType;
use super::verify::verify;
use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "graph {{")?;
        for (id, _) in self.nodes() {
            writeln!(f, "  {}", node_line(self, id))?;
        }
        writeln!(f, "  {}", return_line(self))?;
        writeln!(f, "}}")
    }
}

/// The line of a node: its name, how it is made, its type.
pub(super) fn node_line(graph: &Graph, id: NodeId) -> String {
    let node = &graph[id];
    format!("{id} = {}: {}", NodeText(node), node.ty)
}

/// The line of the outputs.
pub(super) fn return_line(graph: &Graph) -> String {
    let outputs: Vec<String> = graph.outputs().iter().map(NodeId::to_string).collect();
    format!("return {}", outputs.join(", "))
}

/// A node's right-hand side, without its type.
pub struct NodeText<'a>(pub &'a Node);

impl fmt::Display for NodeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.kind {
            NodeKind::Input(_) => f.write_str("input"),
            NodeKind::Number(value) => write!(f, "number {value}"),
            NodeKind::Extent(count) => write!(f, "extent {count}"),
            NodeKind::Op(op) => {
                let args: Vec<String> = self.0.args.iter().map(NodeId::to_string).collect();
                write!(f, "{}({}", op.name(), args.join(", "))?;
                for (index, attr) in self.0.attrs.iter().enumerate() {
                    write!(f, "{} {attr}", if index == 0 { ";" } else { "," })?;
                }
                f.write_str(")")
            }
        }
    }
}

impl FromStr for Graph {
    type Err = Error;

    fn from_str(text: &str) -> Result<Graph> {
        let mut graph = Graph::new();
        let mut at = 0;
        for line in text.lines() {
            let trimmed = line.trim();
            parse_line(&mut graph, trimmed)
                .map_err(|error| match error {
                    Error::Parse { .. } => error,
                    other => failure(trimmed, &other.to_string()),
                })
                .map_err(|error| match error {
                    Error::Parse { what, message, text, .. } => Error::Parse { what, message, at, text },
                    other => other,
                })?;
            at += line.len() + 1;
        }
        verify(&graph)?;
        Ok(graph)
    }
}

fn failure(line: &str, message: &str) -> Error {
    Error::Parse { what: "graph".into(), message: message.into(), at: 0, text: line.into() }
}

fn parse_line(graph: &mut Graph, line: &str) -> Result<()> {
    if line.is_empty() || line == "graph {" || line == "}" {
        return Ok(());
    }
    let bad = |message: &str| failure(line, message);
    if let Some(outputs) = line.strip_prefix("return") {
        let outputs = split_list(outputs).map(|id| parse_id(graph, id).ok_or_else(|| bad("unknown output")));
        let outputs = outputs.collect::<Result<Vec<NodeId>>>()?;
        graph.set_outputs(outputs);
        return Ok(());
    }
    let (name, rest) = line.split_once(" = ").ok_or_else(|| bad("expected `nK = …: type`"))?;
    if name != NodeId::new(graph.len()).to_string() {
        return Err(bad("nodes are numbered in order"));
    }
    let (value, ty) = rest.rsplit_once(": ").ok_or_else(|| bad("expected a type after `: `"))?;
    let ty = parse_type(ty).ok_or_else(|| bad("malformed type"))?;
    let id = if value == "input" {
        graph.input(ty.clone())
    } else if let Some(number) = value.strip_prefix("number ") {
        let Some(Attr::Scalar(scalar)) = parse_attr(number) else { return Err(bad("malformed number")) };
        graph.number(scalar)
    } else if let Some(count) = value.strip_prefix("extent ") {
        graph.extent(count.parse().map_err(|_| bad("malformed extent"))?)
    } else {
        parse_call(graph, value, &bad)?
    };
    if graph[id].ty != ty {
        return Err(bad(&format!("the type is {}", graph[id].ty)));
    }
    Ok(())
}

fn parse_call(graph: &mut Graph, value: &str, bad: &dyn Fn(&str) -> Error) -> Result<NodeId> {
    let (name, rest) = value.split_once('(').ok_or_else(|| bad("expected `op(…)`"))?;
    let op = Op::from_name(name).ok_or_else(|| bad("unknown op"))?;
    let inside = rest.strip_suffix(')').ok_or_else(|| bad("expected `)`"))?;
    let (args, attrs) = inside.split_once(';').unwrap_or((inside, ""));
    let args = split_list(args).map(|id| parse_id(graph, id).ok_or_else(|| bad("unknown operand")));
    let args = args.collect::<Result<Vec<NodeId>>>()?;
    let attrs = split_attrs(attrs).map(|attr| parse_attr(attr).ok_or_else(|| bad("malformed argument")));
    let attrs = attrs.collect::<Result<Attrs>>()?;
    graph.add(op, &args, attrs)
}

fn split_list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// Splits at commas outside brackets.
fn split_attrs(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let at_comma = move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    };
    text.split(at_comma).map(str::trim).filter(|part| !part.is_empty())
}

fn parse_id(graph: &Graph, text: &str) -> Option<NodeId> {
    let index: usize = text.strip_prefix('n')?.parse().ok()?;
    (index < graph.len()).then(|| NodeId::new(index))
}

fn parse_attr(text: &str) -> Option<Attr> {
    match text {
        "none" => return Some(Attr::None),
        "true" => return Some(Attr::bool(true)),
        "false" => return Some(Attr::bool(false)),
        _ => {}
    }
    if let Some(list) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return split_list(list).map(|item| item.parse().ok()).collect::<Option<_>>().map(Attr::Ints);
    }
    if let Some(word) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        // Strings are words of a choice. A text that is printed with escapes is none of them.
        if word.chars().any(|c| matches!(c, '"' | '\\' | ';' | ',') || c.is_control()) {
            return None;
        }
        // No other string argument has the name of a memory format.
        return Some(MemoryFormat::from_name(word).map_or_else(|| Attr::Str(word.into()), Attr::MemoryFormat));
    }
    if let Some(dtype) = DType::from_name(text) {
        return Some(Attr::DType(dtype));
    }
    text.parse().map(Scalar::Int).or_else(|_| text.parse().map(Scalar::Float)).ok().map(Attr::Scalar)
}

fn parse_type(text: &str) -> Option<TensorType> {
    let (dtype, rest) = text.split_once('[')?;
    let dtype = DType::from_name(dtype)?;
    let (inside, number) = match rest.strip_suffix("]#") {
        Some(inside) => (inside, true),
        None => (rest.strip_suffix(']')?, false),
    };
    let (sizes, strides) = inside.split_once(':').map_or((inside, None), |(sizes, strides)| (sizes, Some(strides)));
    let list = |text: &str| split_list(text).map(|item| item.parse().ok()).collect::<Option<_>>();
    let sizes: super::shape::Sizes = list(sizes)?;
    // An expanded tensor may have more elements than can be counted, and a contiguous one may not.
    let is_countable = sizes.contains(&0) || sizes.iter().try_fold(1usize, |n, &size| n.checked_mul(size)).is_some();
    let contiguous = || is_countable.then(|| contiguous_strides(&sizes));
    let strides = strides.map_or_else(contiguous, list)?;
    (strides.len() == sizes.len()).then_some(TensorType { dtype, sizes, strides, number })
}
