//! A graph with the values of its inputs, as text that can be checked: the form of a bug report.
//!
//! [`Repro::check`] runs the graph compiled and node by node, and compares bits. [`Repro::minimize`] (in
//! [`minimize`](super::minimize)) removes what a failure does not need.

use super::options::CompileOptions;
use super::panics::guarded;
use super::pipeline;
use crate::device::{Device, DeviceKind, Shared, Storage};
use crate::eager::{self, Argument};
use crate::error::{Error, Result};
use crate::ir::{DType, Graph, Layout, NodeId, NodeKind, TensorType, verify};
use crate::runtime::Array;
use crate::tensor::handle::Tensor;
use std::fmt::{self, Write as _};
use std::str::FromStr;

/// A graph with values for its inputs: a case that can be checked, made smaller, and kept as text.
///
/// ```
/// use opfuse::CompileOptions;
/// use opfuse::compile::Repro;
///
/// # fn main() -> opfuse::Result<()> {
/// let repro: Repro = "
/// graph {
///   n0 = input: f32[4]
///   n1 = exp(n0): f32[4]
///   n2 = sum(n1; [0], false, none): f32[]
///   return n2
/// }
/// inputs {
///   n0 = 3f800000*3 bf800000
/// }
/// "
/// .parse()?;
/// repro.check(&CompileOptions::default())?; // compiled bits equal eager bits
/// # Ok(())
/// # }
/// ```
///
/// An input's values are the bits of its elements in hexadecimal, in row-major order; `*3` repeats one three times.
#[derive(Debug, Clone)]
pub struct Repro {
    graph: Graph,
    inputs: Vec<Tensor>,
}

impl Repro {
    /// A graph with the values of its inputs, in their order.
    ///
    /// # Errors
    /// If the graph breaks an invariant, or an input has another dtype, other sizes or other strides than the graph
    /// says, or no data on the CPU.
    pub fn new(graph: Graph, inputs: Vec<Tensor>) -> Result<Repro> {
        verify(&graph)?;
        if inputs.len() != graph.inputs().len() {
            let what = format!("{} inputs were given for the {} of the graph", inputs.len(), graph.inputs().len());
            return Err(Error::argument("repro", format!("{what}; give one tensor for each")));
        }
        for (&node, input) in graph.inputs().iter().zip(&inputs) {
            if input.device().kind != DeviceKind::Cpu || !input.has_data() {
                let what = format!("the input {node} is on {} or has no data", input.device());
                return Err(Error::argument("repro", format!("{what}; move it to the CPU")));
            }
            let ty = &graph[node].ty;
            if !input.array().is_of(ty) {
                let what = format!("the input {node} is {ty} in the graph, and {} was given", input.array().ty());
                return Err(Error::argument("repro", format!("{what}; give a tensor of that type and layout")));
            }
        }
        Ok(Repro { graph, inputs })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The values of its inputs.
    pub fn inputs(&self) -> &[Tensor] {
        &self.inputs
    }

    /// Runs the graph compiled with these options, and node by node as eager calls do, and compares the outputs.
    ///
    /// # Errors
    /// If an element has other bits, if one of the two fails and the other does not, or if they fail with different
    /// kinds of errors. The message has the output, the element, and both values.
    pub fn check(&self, options: &CompileOptions) -> Result<()> {
        compare(&self.graph, self.eager(), guarded(|| self.compiled(options)))
    }

    /// The outputs, each node run alone.
    fn eager(&self) -> Result<Vec<Array>> {
        let arrays: Vec<Array> = self.inputs.iter().map(|input| input.array().clone()).collect();
        let (values, failed) = node_values(&self.graph, &arrays);
        match failed {
            Some(error) => Err(error),
            None => Ok(self.graph.outputs().iter().filter_map(|id| values[id.index()].clone()).collect()),
        }
    }

    /// The outputs of the compiled graph.
    fn compiled(&self, options: &CompileOptions) -> Result<Vec<Array>> {
        let built = pipeline::build(self.graph.clone(), &options.fusion, options.tier_or_forced())?;
        let arrays: Vec<&Array> = self.inputs.iter().map(Tensor::array).collect();
        Ok(built.executable.run(&arrays)?.into_vec())
    }

    /// A test in Rust that checks this case with the default options.
    pub fn to_test(&self, name: &str) -> String {
        format!(
            "#[test]\nfn {name}() -> opfuse::Result<()> {{\n    let repro: opfuse::compile::Repro = \"\n{self}\"\n    \
             .parse()?;\n    repro.check(&opfuse::CompileOptions::default())\n}}\n"
        )
    }
}

/// The value of every node of a graph, each run alone, and the first error. Nodes that need a value that could not be
/// computed have none.
pub(super) fn node_values(graph: &Graph, inputs: &[Array]) -> (Vec<Option<Array>>, Option<Error>) {
    let mut values: Vec<Option<Array>> = Vec::with_capacity(graph.len());
    let mut failed = None;
    for (_, node) in graph.nodes() {
        let value = match node.kind {
            NodeKind::Input(position) => Ok(Some(inputs[position as usize].clone())),
            NodeKind::Number(number) => Tensor::number(number).map(|tensor| Some(tensor.array().clone())),
            NodeKind::Extent(count) => Tensor::number(count).map(|tensor| Some(tensor.array().clone())),
            NodeKind::Op(op) => {
                let argument = |arg: &NodeId| {
                    let array = values[arg.index()].as_ref()?;
                    Some(Argument { array, number: graph[*arg].ty.number })
                };
                let arguments: Option<Vec<Argument<'_>>> = node.args.iter().map(argument).collect();
                let run = |arguments: Vec<Argument<'_>>| guarded(|| eager::run(op, &arguments, &node.attrs));
                arguments.map(run).transpose()
            }
        };
        values.push(value.unwrap_or_else(|error| {
            failed.get_or_insert(error);
            None
        }));
    }
    (values, failed)
}

/// Compares outputs of a graph.
///
/// # Errors
/// How they differ.
pub fn compare(graph: &Graph, eager: Result<Vec<Array>>, compiled: Result<Vec<Array>>) -> Result<()> {
    let (eager, compiled) = match (eager, compiled) {
        (Ok(eager), Ok(compiled)) => (eager, compiled),
        // Errors of types are found before those of values, so only the kinds have to agree.
        (Err(eager), Err(compiled)) if std::mem::discriminant(&eager) == std::mem::discriminant(&compiled) => {
            return Ok(());
        }
        (Err(eager), Err(compiled)) => return Err(differs(format!("eager: {eager}; compiled: {compiled}"))),
        (Ok(_), Err(compiled)) => return Err(differs(format!("eager calls work; compiled: {compiled}"))),
        (Err(eager), Ok(_)) => return Err(differs(format!("eager: {eager}; the compiled graph works"))),
    };
    for (output, ((eager, compiled), &node)) in eager.iter().zip(&compiled).zip(graph.outputs()).enumerate() {
        let what = format!("output {output} ({node})");
        if (eager.dtype(), &eager.layout().sizes) != (compiled.dtype(), &compiled.layout().sizes) {
            return Err(differs(format!("{what}: eager {}, compiled {}", eager.ty(), compiled.ty())));
        }
        let pairs = words(eager).into_iter().zip(words(compiled)).enumerate();
        if let Some((at, (eager, compiled))) = pairs.into_iter().find(|(_, (eager, compiled))| eager != compiled) {
            return Err(differs(format!("{what}, element {at}: eager {eager:x}, compiled {compiled:x} (bits)")));
        }
    }
    Ok(())
}

fn differs(how: String) -> Error {
    Error::Internal { message: format!("a compiled graph differs from its eager calls: {how}") }
}

/// The bits of each element, in row-major order.
fn words(array: &Array) -> Vec<u64> {
    let (layout, size) = (array.layout(), array.dtype().size());
    let bytes = Storage::borrow(array.storage());
    let word = |at: usize| {
        let mut raw = [0; 8];
        raw[..size].copy_from_slice(&bytes[at * size..(at + 1) * size]);
        u64::from_le_bytes(raw)
    };
    offsets(layout).map(word).collect()
}

/// Where each element is, in row-major order.
fn offsets(layout: &Layout) -> impl Iterator<Item = usize> + '_ {
    (0..layout.numel()).map(|mut index| {
        let mut at = layout.offset;
        for (&size, &stride) in layout.sizes.iter().zip(&layout.strides).rev() {
            at += index % size * stride;
            index /= size;
        }
        at
    })
}

/// A tensor of this type whose elements have these bits.
///
/// # Errors
/// If there is not enough memory.
pub(super) fn of_words(ty: &TensorType, words: impl IntoIterator<Item = u64>) -> Result<Tensor> {
    let layout = Layout { sizes: ty.sizes.clone(), strides: ty.strides.clone(), offset: 0 };
    let size = ty.dtype.size();
    let mut storage = Storage::zeroed(Device::CPU, layout.extent() * size)?;
    let bytes = storage.bytes_mut();
    for (at, word) in offsets(&layout).zip(words) {
        bytes[at * size..(at + 1) * size].copy_from_slice(&word.to_le_bytes()[..size]);
    }
    Array::from_storage(Shared::new(storage), ty.dtype, layout).map(Tensor::from_array)
}

impl fmt::Display for Repro {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}inputs {{", self.graph)?;
        for (node, input) in self.graph.inputs().iter().zip(&self.inputs) {
            let mut line = format!("  {node} =");
            for run in words(input.array()).chunk_by(|one, other| one == other) {
                write!(line, " {:x}", run[0])?;
                if run.len() > 1 {
                    write!(line, "*{}", run.len())?;
                }
            }
            writeln!(f, "{line}")?;
        }
        writeln!(f, "}}")
    }
}

/// The most elements of all inputs in a text, because a few bytes of it may stand for many.
const MOST_ELEMENTS: usize = 1 << 26;

impl FromStr for Repro {
    type Err = Error;

    /// Parses the text form, with at most 2^26 elements in all inputs.
    fn from_str(text: &str) -> Result<Repro> {
        let Some((graph, values)) = text.split_once("inputs {") else {
            return Err(parse_error(text, "`inputs {` with the values of its inputs follows a graph"));
        };
        let graph: Graph = graph.parse()?;
        let Some((values, _)) = values.split_once('}') else {
            return Err(parse_error(values, "`inputs {` needs a `}` after the values"));
        };
        let mut lines = values.lines().map(str::trim).filter(|line| !line.is_empty());
        let elements = graph.inputs().iter().try_fold(0usize, |sum, &node| sum.checked_add(graph[node].ty.numel()));
        if elements.is_none_or(|elements| elements > MOST_ELEMENTS) {
            return Err(parse_error(values, format!("inputs may have {MOST_ELEMENTS} elements in all")));
        }
        let mut inputs = Vec::with_capacity(graph.inputs().len());
        for &node in graph.inputs() {
            let line =
                lines.next().ok_or_else(|| parse_error(values, format!("the input {node} needs a line of values")))?;
            inputs.push(values_of(line, node, &graph[node].ty)?);
        }
        if let Some(line) = lines.next() {
            return Err(parse_error(line, "the graph has no more inputs"));
        }
        Repro::new(graph, inputs)
    }
}

/// The values of an input, from its line.
fn values_of(line: &str, node: NodeId, ty: &TensorType) -> Result<Tensor> {
    let words = line.strip_prefix(&node.to_string()).and_then(|rest| rest.trim_start().strip_prefix('='));
    let words = words.ok_or_else(|| parse_error(line, format!("a line for `{node} =` is expected")))?;
    let runs = words.split_whitespace().map(|run| run_of(run, ty.dtype)).collect::<Result<Vec<_>>>()?;
    let count = runs.iter().try_fold(0usize, |sum, &(_, times)| sum.checked_add(times));
    if count != Some(ty.numel()) {
        return Err(parse_error(line, format!("{node} is {ty}, so {} elements are expected", ty.numel())));
    }
    of_words(ty, runs.iter().flat_map(|&(word, times)| std::iter::repeat_n(word, times)))
}

/// The bits of an element, and how often it is repeated.
fn run_of(text: &str, dtype: DType) -> Result<(u64, usize)> {
    let (word, times) = text.split_once('*').unwrap_or((text, "1"));
    let most = if dtype == DType::Bool { 1 } else { u64::MAX >> (64 - 8 * dtype.size()) };
    let word = u64::from_str_radix(word, 16).ok().filter(|&word| word <= most);
    let expected = || parse_error(text, format!("the bits of an element of {dtype} in hexadecimal are expected"));
    word.zip(times.parse().ok()).ok_or_else(expected)
}

fn parse_error(text: &str, message: impl Into<String>) -> Error {
    Error::Parse { what: "repro".into(), message: message.into(), at: 0, text: text.into() }
}
