//! `models/model.json` of a `.pt2` archive as data: what `torch.export` wrote, checked, and not yet bound to operators.
//!
//! The names are those of PyTorch's schema of exported programs, version 8. Members of the JSON that are not known are
//! skipped, as PyTorch does. Kinds of arguments that are not known are errors.

use crate::formats::json::{Bad, Reader};
use crate::ir::{DType, MemoryFormat};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The version of the schema that is read.
const MAJOR: u64 = 8;
/// Deepest nesting of graphs in graphs.
const MAX_GRAPHS: usize = 16;

/// An exported program.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) graph: Graph,
    pub(super) inputs: Vec<InputSpec>,
    pub(super) outputs: Vec<OutputSpec>,
    /// The allowed values of symbolic sizes, from and to.
    pub(super) ranges: BTreeMap<String, (Option<i64>, Option<i64>)>,
    pub(super) torch_version: String,
}

/// A graph, of the program or of an operator that takes one.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) inputs: Vec<Arg>,
    pub(super) outputs: Vec<Arg>,
    pub(super) nodes: Vec<Node>,
    pub(super) tensors: BTreeMap<String, TensorMeta>,
}

/// A call.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// What is called, such as `torch.ops.aten.linear.default`.
    pub(super) target: String,
    /// The arguments, with their names where they have one.
    pub(super) inputs: Vec<(String, Arg)>,
    pub(super) outputs: Vec<Arg>,
    /// Where in the Python source the call was made.
    pub(super) line: String,
}

/// An argument, a result, or the name of one.
#[derive(Debug, Clone)]
pub(super) enum Arg {
    None,
    /// A value of the graph.
    Name(String),
    /// Values of the graph, some of which may be absent.
    Names(Vec<Option<String>>),
    Int(i64),
    Float(f64),
    Bool(bool),
    /// The real and the imaginary part of a number.
    Complex([f64; 2]),
    Str(String),
    /// Whole numbers, each as it is or by the name of a value.
    Ints(Vec<Size>),
    Floats(Vec<f64>),
    Bools(Vec<bool>),
    DType(DType),
    MemoryFormat(MemoryFormat),
    /// How elements are stored; all but strided is refused.
    Layout,
    Device(String),
    Graph(std::sync::Arc<Graph>),
}

/// A size, or a symbolic expression of sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Size {
    Is(i64),
    Of(String),
}

/// What is known of a tensor.
#[derive(Debug, Clone, Default)]
pub(super) struct TensorMeta {
    pub(super) dtype: Option<DType>,
    pub(super) sizes: Vec<Size>,
    pub(super) strides: Vec<Size>,
    pub(super) offset: i64,
    pub(super) requires_grad: bool,
}

/// What an input of the graph is.
#[derive(Debug)]
pub(super) enum InputSpec {
    /// An argument of the caller.
    User(Arg),
    /// A parameter, buffer or constant, by its name in the module.
    State(String),
    /// A number or text that the program was exported for.
    Constant(Arg),
    /// Something that only orders calls.
    Token,
}

/// What an output of the graph is.
#[derive(Debug)]
pub(super) enum OutputSpec {
    /// A result.
    User,
    /// The new value of a parameter or buffer, by its name in the module.
    State(String),
    /// The new value of an argument, by its name in the graph.
    Input(String),
    Token,
}

type Parsed<T> = Result<T, Bad>;

impl Model {
    /// Reads the text of `model.json`.
    pub(super) fn parse(text: &str) -> Parsed<Model> {
        let mut reader = Reader::new(text);
        let mut model = Model::default();
        let mut major = None;
        reader.object(|reader, key| match &*key {
            "graph_module" => reader.object(|reader, key| match &*key {
                "graph" => set(&mut model.graph, graph(reader, MAX_GRAPHS)),
                "signature" => signature(reader, &mut model),
                _ => reader.skip(),
            }),
            "range_constraints" => reader.object(|reader, symbol| {
                let range = range(reader)?;
                model.ranges.insert(symbol.into_owned(), range);
                Ok(())
            }),
            "schema_version" => reader.object(|reader, key| match &*key {
                "major" => set(&mut major, reader.number().map(Some)),
                _ => reader.skip(),
            }),
            "torch_version" => set(&mut model.torch_version, string(reader)),
            _ => reader.skip(),
        })?;
        reader.end()?;
        match major {
            Some(MAJOR) => Ok(model),
            Some(other) => Err(reader.bad(format!(
                "its schema has version {other}, and version {MAJOR} is supported; export it with torch 2.7 or later"
            ))),
            None => Err(reader.bad("it does not say which version its schema has")),
        }
    }
}

fn signature(reader: &mut Reader<'_>, model: &mut Model) -> Parsed<()> {
    reader.object(|reader, key| match &*key {
        "input_specs" => set(&mut model.inputs, list(reader, input_spec)),
        "output_specs" => set(&mut model.outputs, list(reader, output_spec)),
        _ => reader.skip(),
    })
}

fn input_spec(reader: &mut Reader<'_>) -> Parsed<InputSpec> {
    let mut spec = None;
    reader.object(|reader, kind| {
        let (mut arg, mut of) = (Arg::None, String::new());
        reader.object(|reader, key| match (&*kind, &*key) {
            ("user_input", "arg") | ("constant_input", "value") => set(&mut arg, argument(reader)),
            (_, "parameter_name" | "buffer_name" | "tensor_constant_name" | "custom_obj_name") => {
                set(&mut of, string(reader))
            }
            _ => reader.skip(),
        })?;
        spec = Some(match &*kind {
            "user_input" => InputSpec::User(arg),
            "parameter" | "buffer" | "tensor_constant" => InputSpec::State(of),
            "constant_input" => InputSpec::Constant(arg),
            "token" => InputSpec::Token,
            "custom_obj" => {
                return Err(reader.bad(format!("input {of:?} is a pickled object, which is never unpickled")));
            }
            other => return Err(reader.bad(format!("an input of the unknown kind {other:?}"))),
        });
        Ok(())
    })?;
    spec.ok_or_else(|| reader.bad("an input without a kind"))
}

fn output_spec(reader: &mut Reader<'_>) -> Parsed<OutputSpec> {
    let mut spec = None;
    reader.object(|reader, kind| {
        let mut of = String::new();
        reader.object(|reader, key| match &*key {
            "parameter_name" | "buffer_name" | "user_input_name" => set(&mut of, string(reader)),
            _ => reader.skip(),
        })?;
        spec = Some(match &*kind {
            "user_output" => OutputSpec::User,
            "buffer_mutation" | "parameter_mutation" => OutputSpec::State(of),
            "user_input_mutation" => OutputSpec::Input(of),
            "token" => OutputSpec::Token,
            other => {
                let hint = "export the module for inference, without a loss";
                return Err(reader.bad(format!("an output of the kind {other:?} is not supported; {hint}")));
            }
        });
        Ok(())
    })?;
    spec.ok_or_else(|| reader.bad("an output without a kind"))
}

fn graph(reader: &mut Reader<'_>, depth: usize) -> Parsed<Graph> {
    let Some(below) = depth.checked_sub(1) else { return Err(reader.bad("graphs are nested too deeply")) };
    let mut graph = Graph::default();
    reader.object(|reader, key| match &*key {
        "inputs" => set(&mut graph.inputs, list(reader, argument)),
        "outputs" => set(&mut graph.outputs, list(reader, argument)),
        "nodes" => set(&mut graph.nodes, list(reader, |reader| node(reader, below))),
        "tensor_values" => reader.object(|reader, name| {
            let meta = tensor_meta(reader)?;
            graph.tensors.insert(name.into_owned(), meta);
            Ok(())
        }),
        _ => reader.skip(),
    })?;
    Ok(graph)
}

fn node(reader: &mut Reader<'_>, depth: usize) -> Parsed<Node> {
    let mut node = Node::default();
    reader.object(|reader, key| match &*key {
        "target" => set(&mut node.target, string(reader)),
        "inputs" => set(&mut node.inputs, list(reader, |reader| named_argument(reader, depth))),
        "outputs" => set(&mut node.outputs, list(reader, argument)),
        "metadata" => reader.object(|reader, key| match &*key {
            "stack_trace" => set(&mut node.line, reader.string().map(|trace| last_line(&trace))),
            _ => reader.skip(),
        }),
        _ => reader.skip(),
    })?;
    Ok(node)
}

/// `{"name": "self", "arg": {"as_tensor": …}, …}`.
fn named_argument(reader: &mut Reader<'_>, depth: usize) -> Parsed<(String, Arg)> {
    let (mut name, mut arg) = (String::new(), Arg::None);
    reader.object(|reader, key| match &*key {
        "name" => set(&mut name, string(reader)),
        "arg" => set(&mut arg, argument_of(reader, depth)),
        _ => reader.skip(),
    })?;
    Ok((name, arg))
}

/// The innermost place of a Python stack trace: `model.py:12 in forward: return self.lin(x)`.
fn last_line(trace: &str) -> String {
    let lines: Vec<&str> = trace.lines().map(str::trim).collect();
    let Some(at) = lines.iter().rposition(|line| line.starts_with("File \"")) else { return String::new() };
    let mut parts = lines[at].trim_start_matches("File \"").splitn(2, "\", line ");
    let (file, rest) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let file = file.rsplit(['/', '\\']).next().unwrap_or_default();
    let place = rest.replacen(", in ", " in ", 1);
    match lines.get(at + 1) {
        Some(code) if !code.is_empty() => format!("{file}:{place}: {code}"),
        Some(_) | None => format!("{file}:{place}"),
    }
}

fn argument(reader: &mut Reader<'_>) -> Parsed<Arg> {
    argument_of(reader, 0)
}

/// An argument, in which graphs may be nested so deep.
fn argument_of(reader: &mut Reader<'_>, depth: usize) -> Parsed<Arg> {
    let mut found = None;
    reader.object(|reader, kind| {
        found = Some(value(reader, kind, depth)?);
        Ok(())
    })?;
    found.ok_or_else(|| reader.bad("an argument without a kind"))
}

fn value(reader: &mut Reader<'_>, kind: Cow<'_, str>, depth: usize) -> Parsed<Arg> {
    Ok(match &*kind {
        "as_none" => {
            reader.skip()?;
            Arg::None
        }
        "as_tensor" => Arg::Name(name(reader)?),
        "as_tensors" => Arg::Names(list(reader, |reader| name(reader).map(Some))?),
        "as_optional_tensor" => optional(reader)?.map_or(Arg::None, Arg::Name),
        "as_optional_tensors" => Arg::Names(list(reader, optional)?),
        "as_int" => Arg::Int(reader.integer()?),
        "as_ints" => Arg::Ints(list(reader, |reader| reader.integer().map(Size::Is))?),
        "as_float" => Arg::Float(float(reader)?),
        "as_floats" => Arg::Floats(list(reader, float)?),
        "as_bool" => Arg::Bool(reader.boolean()?),
        "as_complex" => Arg::Complex(complex(reader)?),
        "as_bools" => Arg::Bools(list(reader, Reader::boolean)?),
        "as_string" | "as_operator" => Arg::Str(string(reader)?),
        "as_sym_int" | "as_sym_bool" | "as_sym_float" => symbol(reader)?,
        "as_sym_ints" => Arg::Ints(list(reader, |reader| match symbol(reader)? {
            Arg::Int(number) => Ok(Size::Is(number)),
            Arg::Name(name) => Ok(Size::Of(name)),
            _ => Err(reader.bad("a whole number is expected")),
        })?),
        "as_scalar_type" => {
            let code = reader.number()?;
            Arg::DType(dtype(code).ok_or_else(|| reader.bad(format!("the dtype number {code} is not supported")))?)
        }
        "as_memory_format" => Arg::MemoryFormat(match reader.number()? {
            1 => MemoryFormat::Contiguous,
            2 => MemoryFormat::ChannelsLast,
            3 => MemoryFormat::ChannelsLast3d,
            4 => MemoryFormat::Preserve,
            other => return Err(reader.bad(format!("the memory format number {other} is unknown"))),
        }),
        "as_layout" => match reader.number()? {
            7 => Arg::Layout,
            other => return Err(reader.bad(format!("the layout number {other} is not strided"))),
        },
        "as_device" => Arg::Device(device(reader)?),
        "as_graph" => {
            let mut inner = None;
            reader.object(|reader, key| match &*key {
                "graph" => set(&mut inner, graph(reader, depth).map(Some)),
                _ => reader.skip(),
            })?;
            Arg::Graph(inner.ok_or_else(|| reader.bad("a graph without calls"))?.into())
        }
        "as_custom_obj" => return Err(reader.bad("a pickled object as an argument, which is never unpickled")),
        other => return Err(reader.bad(format!("an argument of the kind {other:?} is not supported"))),
    })
}

/// `{"name": "x"}`.
fn name(reader: &mut Reader<'_>) -> Parsed<String> {
    let mut found = None;
    reader.object(|reader, key| match &*key {
        "name" => set(&mut found, string(reader).map(Some)),
        _ => reader.skip(),
    })?;
    found.ok_or_else(|| reader.bad("a name is missing"))
}

/// `{"as_tensor": {"name": "x"}}` or `{"as_none": …}`.
fn optional(reader: &mut Reader<'_>) -> Parsed<Option<String>> {
    let mut found = None;
    // Not `argument`, which would let these nest without an end.
    reader.object(|reader, kind| {
        found = Some(match &*kind {
            "as_tensor" => Some(name(reader)?),
            "as_none" => {
                reader.skip()?;
                None
            }
            _ => return Err(reader.bad("a tensor or none is expected")),
        });
        Ok(())
    })?;
    found.ok_or_else(|| reader.bad("an argument without a kind"))
}

/// `{"as_name": "s0"}`, `{"as_int": 2}` and their like.
fn symbol(reader: &mut Reader<'_>) -> Parsed<Arg> {
    let mut found = None;
    reader.object(|reader, kind| {
        found = Some(match &*kind {
            "as_name" => Arg::Name(string(reader)?),
            "as_int" => Arg::Int(reader.integer()?),
            "as_float" => Arg::Float(float(reader)?),
            "as_bool" => Arg::Bool(reader.boolean()?),
            other => return Err(reader.bad(format!("a symbol of the kind {other:?} is unknown"))),
        });
        Ok(())
    })?;
    found.ok_or_else(|| reader.bad("a symbol without a kind"))
}

/// A number, or one of the texts that stand for those that JSON has not.
fn float(reader: &mut Reader<'_>) -> Parsed<f64> {
    if reader.peek() != Some(b'"') {
        return reader.float();
    }
    match &*reader.string()? {
        "Infinity" => Ok(f64::INFINITY),
        "-Infinity" => Ok(f64::NEG_INFINITY),
        "NaN" => Ok(f64::NAN),
        other => Err(reader.bad(format!("{other:?} is no number"))),
    }
}

/// `{"real": 1.0, "imag": -2.0}`.
fn complex(reader: &mut Reader<'_>) -> Parsed<[f64; 2]> {
    let (mut real, mut imaginary) = (None, None);
    reader.object(|reader, key| match &*key {
        "real" => set(&mut real, float(reader).map(Some)),
        "imag" => set(&mut imaginary, float(reader).map(Some)),
        _ => reader.skip(),
    })?;
    real.zip(imaginary).map(Into::into).ok_or_else(|| reader.bad("a complex number has two parts"))
}

fn device(reader: &mut Reader<'_>) -> Parsed<String> {
    let (mut kind, mut index) = (String::new(), None);
    reader.object(|reader, key| match &*key {
        "type" => set(&mut kind, string(reader)),
        "index" if reader.peek() != Some(b'n') => set(&mut index, reader.number().map(Some)),
        _ => reader.skip(),
    })?;
    Ok(index.map_or(kind.clone(), |index| format!("{kind}:{index}")))
}

/// What is known of a tensor.
pub(super) fn tensor_meta(reader: &mut Reader<'_>) -> Parsed<TensorMeta> {
    let mut meta = TensorMeta::default();
    reader.object(|reader, key| match &*key {
        "dtype" => set(&mut meta.dtype, reader.number().map(dtype)),
        "sizes" => set(&mut meta.sizes, list(reader, size)),
        "strides" => set(&mut meta.strides, list(reader, size)),
        "requires_grad" => set(&mut meta.requires_grad, reader.boolean()),
        "storage_offset" => match size(reader)? {
            Size::Is(offset) => set(&mut meta.offset, Ok(offset)),
            Size::Of(_) => Ok(()),
        },
        _ => reader.skip(),
    })?;
    Ok(meta)
}

/// `{"as_int": 2}`, or `{"as_expr": {"expr_str": "2*s0", …}}`.
fn size(reader: &mut Reader<'_>) -> Parsed<Size> {
    let mut found = None;
    reader.object(|reader, kind| match &*kind {
        "as_int" => set(&mut found, reader.integer().map(|size| Some(Size::Is(size)))),
        "as_expr" => reader.object(|reader, key| match &*key {
            "expr_str" => set(&mut found, string(reader).map(|expr| Some(Size::Of(expr)))),
            _ => reader.skip(),
        }),
        other => Err(reader.bad(format!("a size of the kind {other:?} is unknown"))),
    })?;
    found.ok_or_else(|| reader.bad("a size without a value"))
}

fn range(reader: &mut Reader<'_>) -> Parsed<(Option<i64>, Option<i64>)> {
    let (mut low, mut high) = (None, None);
    reader.object(|reader, key| match &*key {
        _ if reader.peek() == Some(b'n') => reader.skip(),
        "min_val" => set(&mut low, reader.integer().map(Some)),
        "max_val" => set(&mut high, reader.integer().map(Some)),
        _ => reader.skip(),
    })?;
    Ok((low, high))
}

/// Puts what was read into its place.
pub(super) fn set<T>(place: &mut T, read: Parsed<T>) -> Parsed<()> {
    *place = read?;
    Ok(())
}

pub(super) fn string(reader: &mut Reader<'_>) -> Parsed<String> {
    reader.string().map(Cow::into_owned)
}

fn list<'a, T>(reader: &mut Reader<'a>, mut element: impl FnMut(&mut Reader<'a>) -> Parsed<T>) -> Parsed<Vec<T>> {
    let mut all = Vec::new();
    reader.array(|reader| {
        all.push(element(reader)?);
        Ok(())
    })?;
    Ok(all)
}

/// The dtype of that number in PyTorch's schema.
fn dtype(code: u64) -> Option<DType> {
    Some(match code {
        1 => DType::U8,
        2 => DType::I8,
        3 => DType::I16,
        4 => DType::I32,
        5 => DType::I64,
        6 => DType::F16,
        7 => DType::F32,
        8 => DType::F64,
        10 => DType::Complex64,
        11 => DType::Complex128,
        12 => DType::Bool,
        13 => DType::BF16,
        _ => return None,
    })
}
