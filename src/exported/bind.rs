//! From the data of a program to steps that run: names become slots, and targets become operators.
//!
//! Everything that can be wrong with a call besides its tensors is found here, so a program that loads has all its
//! operators. Those that are missing are reported together.

use crate::device::Device;
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::key::default_dtype::default_dtype;
use crate::dispatch::operator::Operator;
use crate::dispatch::schema::Type;
use crate::dispatch::value::{TensorLayout, Value};
use crate::exported::control::ControlOp;
use crate::exported::mapped::MapOp;
use crate::exported::model::{Arg, Graph, Node, Size};
use crate::exported::numbers::NumberOp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A place for a value while a block runs.
pub(super) type Slot = usize;

/// A graph whose names are slots.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) inputs: Vec<Target>,
    pub(super) steps: Vec<Step>,
    pub(super) outputs: Vec<Source>,
    pub(super) n_slots: usize,
}

/// A call.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) call: Call,
    pub(super) arguments: Vec<(String, Source)>,
    pub(super) results: Vec<Target>,
    /// Slots that nothing reads after this call.
    pub(super) last: Vec<Slot>,
    /// What is called, and where in the Python source.
    pub(super) place: Arc<str>,
}

/// What a step calls.
#[derive(Debug)]
pub(super) enum Call {
    Operator(Operator),
    /// Arithmetic on sizes.
    Number(NumberOp),
    /// An operator that takes graphs.
    Control(ControlOp),
    /// A step into `vmap`, out of it, or of a value between the two.
    Map(MapOp),
}

/// Where an argument comes from.
#[derive(Debug)]
pub(super) enum Source {
    Slot(Slot),
    Value(Value),
    /// Whole numbers, some of them computed.
    Ints(Vec<Source>),
    /// A complex number in the place of a tensor: its parts.
    Complex([f64; 2]),
    Tensors(Vec<Slot>),
    OptionalTensors(Vec<Option<Slot>>),
    Block(Arc<Block>),
}

/// Where a result goes.
#[derive(Debug)]
pub(super) enum Target {
    Slot(Slot),
    /// The parts of a list.
    List(Vec<Slot>),
    Ignored,
}

/// Operators that are not there: how often each is called, and where first.
pub(super) type Missing = BTreeMap<String, (usize, String)>;

/// Binds a graph.
///
/// # Errors
/// What is wrong with it. Missing operators are no error here; they are added to `missing`.
pub(super) fn bind(graph: &Graph, missing: &mut Missing) -> Result<Block, String> {
    let mut names = Names(BTreeMap::new());
    let inputs = graph.inputs.iter().map(|input| names.target(input)).collect::<Result<_, _>>()?;
    let mut steps = Vec::new();
    for node in &graph.nodes {
        let place = match node.line.is_empty() {
            true => node.target.clone(),
            false => format!("{} at {}", node.target, node.line),
        };
        let bound = bound(node, &mut names, missing).map_err(|what| format!("{place}: {what}"))?;
        let place: Arc<str> = place.into();
        steps.extend(bound.into_iter().map(|step| Step { place: place.clone(), ..step }));
    }
    let outputs = graph.outputs.iter().map(|output| names.source(output, missing)).collect::<Result<Vec<_>, _>>()?;
    let n_slots = names.0.len();
    mark_last(&mut steps, &outputs, n_slots);
    Ok(Block { inputs, steps, outputs, n_slots })
}

/// The steps of a node: one, none if it needs no call, or two if it makes a tensor of a complex number.
fn bound(node: &Node, names: &mut Names, missing: &mut Missing) -> Result<Vec<Step>, String> {
    let call = match call(&node.target) {
        Ok(call) => call,
        Err(()) => {
            let (count, _) = missing.entry(node.target.clone()).or_insert_with(|| (0, node.line.clone()));
            *count += 1;
            None
        }
    };
    let argument = |(name, arg): &(String, Arg)| Ok((name.clone(), names.source(arg, missing)?));
    let mut arguments = node.inputs.iter().map(argument).collect::<Result<Vec<_>, String>>()?;
    let (call, number) = match call {
        Some(Call::Operator(operator)) => {
            let (operator, number) = without_complex_fill(operator, &mut arguments)?;
            (Some(Call::Operator(with_complex(operator, &mut arguments)?)), number)
        }
        other => (other, None),
    };
    let results: Vec<Target> = node.outputs.iter().map(|output| names.target(output)).collect::<Result<_, _>>()?;
    let fill = match (number, &results[..]) {
        (Some(number), [Target::Slot(made)]) => Some(fill(*made, number)?),
        _ => None,
    };
    let step = call.map(|call| Step { call, arguments, results, last: Vec::new(), place: "".into() });
    Ok(step.into_iter().chain(fill).collect())
}

/// Takes a complex number out of the arguments of an operator that makes a tensor of it. Numbers here are real. So
/// another operator makes the tensor, of the dtype that PyTorch chooses, and a second call fills it.
fn without_complex_fill(
    operator: Operator,
    arguments: &mut Vec<(String, Source)>,
) -> Result<(Operator, Option<[f64; 2]>), String> {
    let (base, at) = match &*operator.name().name {
        base @ ("aten::full" | "aten::full_like" | "aten::new_full") => (base, "fill_value"),
        base @ "aten::fill" => (base, "value"),
        _ => return Ok((operator, None)),
    };
    let Some((_, value)) = arguments.iter_mut().find(|(name, _)| name == at) else { return Ok((operator, None)) };
    let Source::Complex(number) = *value else { return Ok((operator, None)) };
    *value = Source::Value(Value::Float(number[0]));
    let is_absent = |(name, source): &(String, Source)| name == "dtype" && matches!(source, Source::Value(Value::None));
    if base == "aten::full" {
        arguments.retain(|argument| !is_absent(argument));
        if !arguments.iter().any(|(name, _)| name == "dtype") {
            arguments.push(("dtype".into(), Source::Value(Value::DType(default_dtype().complex()))));
        }
    }
    if number[1] == 0.0 {
        return Ok((operator, None));
    }
    if base == "aten::fill" {
        arguments.retain(|(name, _)| name == "self");
        return Ok((found("aten::clone", "")?, Some(number)));
    }
    Ok((operator, Some(number)))
}

fn found(name: &str, overload: &str) -> Result<Operator, String> {
    Dispatcher::global().find_schema(name, overload).map_err(|error| error.to_string())
}

/// The step that fills a tensor with a complex number.
fn fill(made: Slot, number: [f64; 2]) -> Result<Step, String> {
    let arguments = vec![("self".into(), Source::Slot(made)), ("value".into(), Source::Complex(number))];
    let call = Call::Operator(found("aten::fill_", "Tensor")?);
    Ok(Step { call, arguments, results: vec![Target::Ignored], last: Vec::new(), place: "".into() })
}

/// Operators that state facts of the export and compute nothing.
const FACTS: [&str; 5] = [
    "_assert_tensor_metadata",
    "_assert_async",
    "sym_constrain_range",
    "sym_constrain_range_for_size",
    "_functional_sym_constrain_range_for_size",
];

/// What a target stands for: `Ok(None)` for what needs no call.
fn call(target: &str) -> Result<Option<Call>, ()> {
    if let Some(number) = NumberOp::from_target(target) {
        return Ok(Some(Call::Number(number)));
    }
    if let Some(name) = target.strip_prefix("torch.ops.higher_order.") {
        return ControlOp::from_name(name).map(|control| Some(Call::Control(control))).ok_or(());
    }
    if let Some(name) = target.strip_prefix("torch._functorch.predispatch.") {
        return match name {
            "lazy_load_decompositions" => Ok(None),
            _ => MapOp::from_name(name).map(|op| Some(Call::Map(op))).ok_or(()),
        };
    }
    let mut parts = target.strip_prefix("torch.ops.").ok_or(())?.splitn(3, '.');
    let (Some(namespace), Some(name), Some(overload)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(());
    };
    if FACTS.contains(&name) {
        return Ok(None);
    }
    let overload = if overload == "default" { "" } else { overload };
    let found = Dispatcher::global().find_schema(&format!("{namespace}::{name}"), overload);
    found.map(|operator| Some(Call::Operator(operator))).map_err(|_| ())
}

/// Overloads that take a tensor where others of the same name take a number.
const OF_TENSORS: [&str; 3] = ["Tensor", "Tensor_Tensor", "self"];

/// The operator for complex numbers among the arguments. Numbers here are real. So a parameter for a number takes what
/// has no imaginary part, and otherwise the overload is called whose parameter is a tensor.
fn with_complex(operator: Operator, arguments: &mut [(String, Source)]) -> Result<Operator, String> {
    let takes_tensor = |operator: &Operator, name: &str| {
        let parameters = operator.schema().map(|schema| &schema.arguments);
        parameters.into_iter().flatten().any(|parameter| parameter.name == name && parameter.ty == Type::Tensor)
    };
    for (name, source) in arguments {
        let Source::Complex([real, imaginary]) = *source else { continue };
        if takes_tensor(&operator, name) {
            continue;
        }
        if imaginary == 0.0 {
            *source = Source::Value(Value::Float(real));
            continue;
        }
        let base = &operator.name().name;
        let mut others = OF_TENSORS.iter().filter_map(|overload| Dispatcher::global().find_schema(base, overload).ok());
        let what = || format!("{name} is the complex number {real} + {imaginary}i, and must be real");
        return others.find(|other| takes_tensor(other, name)).ok_or_else(what);
    }
    Ok(operator)
}

/// The slots of names.
struct Names(BTreeMap<String, Slot>);

impl Names {
    fn define(&mut self, name: &str) -> Result<Slot, String> {
        let slot = self.0.len();
        match self.0.insert(name.to_owned(), slot) {
            None => Ok(slot),
            Some(_) => Err(format!("the value {name:?} is there twice")),
        }
    }

    fn slot(&self, name: &str) -> Result<Slot, String> {
        self.0.get(name).copied().ok_or_else(|| format!("the value {name:?} is used before it is there"))
    }

    fn target(&mut self, arg: &Arg) -> Result<Target, String> {
        Ok(match arg {
            Arg::Name(name) if name.is_empty() => Target::Ignored,
            Arg::Name(name) => Target::Slot(self.define(name)?),
            Arg::Names(names) => {
                let name = |name: &Option<String>| name.clone().ok_or("a result without a name".to_owned());
                let names: Vec<String> = names.iter().map(name).collect::<Result<_, _>>()?;
                Target::List(names.iter().map(|name| self.define(name)).collect::<Result<_, _>>()?)
            }
            Arg::None
            | Arg::Int(_)
            | Arg::Float(_)
            | Arg::Bool(_)
            | Arg::Complex(_)
            | Arg::Str(_)
            | Arg::Ints(_)
            | Arg::Floats(_)
            | Arg::Bools(_)
            | Arg::DType(_)
            | Arg::MemoryFormat(_)
            | Arg::Layout
            | Arg::Device(_)
            | Arg::Graph(_) => Target::Ignored,
        })
    }

    fn source(&self, arg: &Arg, missing: &mut Missing) -> Result<Source, String> {
        Ok(Source::Value(match arg {
            Arg::Name(name) => return self.slot(name).map(Source::Slot),
            Arg::Names(names) if names.iter().all(Option::is_some) => {
                let slots = names.iter().flatten().map(|name| self.slot(name));
                return Ok(Source::Tensors(slots.collect::<Result<_, _>>()?));
            }
            Arg::Names(names) => {
                let slot = |name: &Option<String>| name.as_ref().map(|name| self.slot(name)).transpose();
                return Ok(Source::OptionalTensors(names.iter().map(slot).collect::<Result<_, _>>()?));
            }
            Arg::Ints(sizes) => {
                let size = |size: &Size| match size {
                    Size::Is(number) => Ok(Source::Value(Value::Int(*number))),
                    Size::Of(name) => self.slot(name).map(Source::Slot),
                };
                return Ok(Source::Ints(sizes.iter().map(size).collect::<Result<_, _>>()?));
            }
            Arg::Complex(parts) => return Ok(Source::Complex(*parts)),
            Arg::Graph(graph) => return Ok(Source::Block(Arc::new(bind(graph, missing)?))),
            Arg::None => Value::None,
            Arg::Int(number) => Value::Int(*number),
            Arg::Float(number) => Value::Float(*number),
            Arg::Bool(flag) => Value::Bool(*flag),
            Arg::Str(text) => Value::Str(text.as_str().into()),
            Arg::Floats(numbers) => Value::FloatList(numbers.clone()),
            Arg::Bools(flags) => Value::BoolList(flags.clone()),
            Arg::DType(dtype) => Value::DType(*dtype),
            Arg::MemoryFormat(format) => Value::MemoryFormat(*format),
            Arg::Layout => Value::Layout(TensorLayout::Strided),
            Arg::Device(device) => Value::Device(device.parse::<Device>().map_err(|error| error.to_string())?),
        }))
    }
}

impl Block {
    /// Adds how often each operator is called.
    pub(super) fn count(&self, counts: &mut BTreeMap<String, usize>) {
        for step in &self.steps {
            if let Call::Operator(operator) = &step.call {
                *counts.entry(operator.name().to_string()).or_default() += 1;
            }
            for (_, source) in &step.arguments {
                if let Source::Block(block) = source {
                    block.count(counts);
                }
            }
        }
    }
}

/// Notes at each step which slots nothing reads later, so that their values can be dropped there.
fn mark_last(steps: &mut [Step], outputs: &[Source], n_slots: usize) {
    let mut is_needed = vec![false; n_slots];
    outputs.iter().for_each(|output| output.slots(&mut |slot| is_needed[slot] = true));
    for step in steps.iter_mut().rev() {
        let mut last = Vec::new();
        let mut read = |slot: Slot| {
            if !std::mem::replace(&mut is_needed[slot], true) {
                last.push(slot);
            }
        };
        step.arguments.iter().for_each(|(_, source)| source.slots(&mut read));
        // Results that nothing reads.
        let results = step.results.iter().flat_map(Target::slots);
        results.for_each(&mut read);
        step.last = last;
    }
}

impl Source {
    fn slots(&self, each: &mut dyn FnMut(Slot)) {
        match self {
            Source::Slot(slot) => each(*slot),
            Source::Ints(parts) => parts.iter().for_each(|part| part.slots(each)),
            Source::Tensors(slots) => slots.iter().for_each(|slot| each(*slot)),
            Source::OptionalTensors(slots) => slots.iter().flatten().for_each(|slot| each(*slot)),
            Source::Value(_) | Source::Complex(_) | Source::Block(_) => {}
        }
    }
}

impl Target {
    fn slots(&self) -> Vec<Slot> {
        match self {
            Target::Slot(slot) => vec![*slot],
            Target::List(slots) => slots.clone(),
            Target::Ignored => Vec::new(),
        }
    }
}
