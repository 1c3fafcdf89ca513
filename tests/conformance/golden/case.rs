//! Cases of golden data as they stand in the files; the format is described in `tests/golden/SCHEMA.md`.
//!
//! A case is read whole before anything runs, so a file that does not follow the format is reported as such. Only
//! names and numbers are here: the elements of tensors are fetched by key, see `tensors.rs`.

use opfuse::MemoryFormat;
use opfuse::dispatch::TensorLayout;
use opfuse::{DType, Device, Scalar};
use serde_json::Value as Json;

/// One operator call and its expected outcome.
pub(crate) struct Case {
    pub(crate) id: String,
    /// The full name, such as `aten::add.Tensor`.
    pub(crate) operator: String,
    pub(crate) tag: String,
    pub(crate) args: Vec<Arg>,
    pub(crate) expected: Expected,
    pub(crate) grads: Option<Grads>,
    /// Whether the reference refuses to differentiate the call.
    pub(crate) no_gradient: bool,
}

/// The expected outcome of the call.
pub(crate) enum Expected {
    /// An error of this class.
    Error(ErrorClass),
    /// Results, and storage windows of the arguments that were written.
    Outputs(Vec<Output>, Vec<After>),
}

/// Classes of errors that a caller can tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    Index,
    NotImplemented,
    Other,
}

/// An argument by name.
pub(crate) struct Arg {
    pub(crate) name: String,
    pub(crate) kind: ArgKind,
}

/// The forms an argument has.
pub(crate) enum ArgKind {
    None,
    Tensor(Window),
    TensorList(Vec<ArgKind>),
    /// A plain number where the schema wants a tensor.
    Wrapped(Scalar),
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(String),
    IntList(Vec<i64>),
    FloatList(Vec<f64>),
    BoolList(Vec<bool>),
    DType(DType),
    Device(Device),
    Layout(TensorLayout),
    MemoryFormat(MemoryFormat),
}

/// A tensor argument: a strided view of the storage window under `key`.
pub(crate) struct Window {
    pub(crate) dtype: DType,
    pub(crate) sizes: Vec<usize>,
    pub(crate) strides: Vec<usize>,
    pub(crate) offset: usize,
    pub(crate) key: String,
}

/// A result.
pub(crate) enum Output {
    Tensor(TensorOutput),
    /// A scalar returned to the host.
    Host(Scalar),
}

pub(crate) struct TensorOutput {
    pub(crate) dtype: DType,
    pub(crate) sizes: Vec<usize>,
    pub(crate) strides: Vec<usize>,
    pub(crate) strides_are_exact: bool,
    /// The key of the values and how near they must be; without it their contents are not compared.
    pub(crate) values: Option<(String, Tolerance)>,
    /// The argument whose storage it shares, and its offset there.
    pub(crate) alias: Option<(String, usize)>,
}

/// How near two floating numbers must be: `|x - reference| <= atol + rtol * |reference|`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tolerance {
    pub(crate) rtol: f64,
    pub(crate) atol: f64,
}

/// The storage window of an argument after the call.
pub(crate) struct After {
    pub(crate) name: String,
    pub(crate) key: String,
}

/// Upstream gradients, and the gradients of all floating tensor arguments.
pub(crate) struct Grads {
    /// Output index and key.
    pub(crate) cotangents: Vec<(usize, String)>,
    /// Argument name (`name.i` in a list) and what reaches it.
    pub(crate) inputs: Vec<(String, Option<Gradient>)>,
}

pub(crate) struct Gradient {
    pub(crate) dtype: DType,
    pub(crate) sizes: Vec<usize>,
    pub(crate) key: String,
    pub(crate) tolerance: Tolerance,
}

type Parsed<T> = Result<T, String>;

impl Case {
    pub(crate) fn parse(json: &Json) -> Parsed<Case> {
        let id = text(json, "id")?;
        let case = || -> Parsed<Case> {
            let overload = text(json, "overload")?;
            let dot = if overload.is_empty() { "" } else { "." };
            Ok(Case {
                id: id.clone(),
                operator: format!("{}{dot}{overload}", text(json, "op")?),
                tag: text(json, "tag")?,
                args: list(json, "args")?.iter().map(Arg::parse).collect::<Parsed<_>>()?,
                expected: Expected::parse(json)?,
                grads: json.get("grads").map(Grads::parse).transpose()?,
                no_gradient: json["grad_error"].as_bool().unwrap_or(false),
            })
        };
        case().map_err(|what| format!("{id}: malformed case: {what}"))
    }
}

impl Expected {
    fn parse(json: &Json) -> Parsed<Expected> {
        if let Some(error) = json.get("error") {
            return Ok(Expected::Error(match text(error, "kind")?.as_str() {
                "IndexError" => ErrorClass::Index,
                "NotImplementedError" => ErrorClass::NotImplemented,
                _ => ErrorClass::Other,
            }));
        }
        let outputs = list(json, "outputs")?.iter().map(Output::parse).collect::<Parsed<_>>()?;
        let after = json["after"].as_array().into_iter().flatten();
        let after = after.map(|after| Ok(After { name: text(after, "name")?, key: text(after, "key")? }));
        Ok(Expected::Outputs(outputs, after.collect::<Parsed<_>>()?))
    }
}

impl Arg {
    fn parse(json: &Json) -> Parsed<Arg> {
        Ok(Arg { name: text(json, "name")?, kind: ArgKind::parse(json)? })
    }
}

impl ArgKind {
    fn parse(json: &Json) -> Parsed<ArgKind> {
        let value = &json["value"];
        let word = || value.as_str().ok_or_else(|| format!("{value} is no text"));
        let wrong = |what: &str| format!("{value} is no {what}");
        Ok(match text(json, "kind")?.as_str() {
            "none" => ArgKind::None,
            "tensor" => ArgKind::Tensor(Window {
                dtype: dtype(json)?,
                sizes: counts(json, "shape")?,
                strides: counts(json, "stride")?,
                offset: count(&json["offset"])?,
                key: text(json, "key")?,
            }),
            "tensor_list" => {
                ArgKind::TensorList(list(json, "items")?.iter().map(ArgKind::parse).collect::<Parsed<_>>()?)
            }
            "wrapped_int" => ArgKind::Wrapped(Scalar::Int(int(value)?)),
            "wrapped_float" => ArgKind::Wrapped(Scalar::Float(float(value)?)),
            "int" => ArgKind::Int(int(value)?),
            "float" => ArgKind::Float(float(value)?),
            "bool" => ArgKind::Bool(truth(value)?),
            "str" => ArgKind::Str(word()?.to_string()),
            "int_list" => ArgKind::IntList(list(json, "value")?.iter().map(int).collect::<Parsed<_>>()?),
            "float_list" => ArgKind::FloatList(list(json, "value")?.iter().map(float).collect::<Parsed<_>>()?),
            "bool_list" => ArgKind::BoolList(list(json, "value")?.iter().map(truth).collect::<Parsed<_>>()?),
            "dtype" => ArgKind::DType(DType::from_name(word()?).ok_or_else(|| wrong("dtype"))?),
            "device" => ArgKind::Device(word()?.parse().map_err(|error| format!("{error}"))?),
            "layout" => ArgKind::Layout(TensorLayout::from_name(word()?).ok_or_else(|| wrong("layout"))?),
            "memory_format" => {
                ArgKind::MemoryFormat(MemoryFormat::from_name(word()?).ok_or_else(|| wrong("memory format"))?)
            }
            other => return Err(format!("unknown kind of argument {other:?}")),
        })
    }
}

impl Output {
    fn parse(json: &Json) -> Parsed<Output> {
        let value = &json["value"];
        Ok(match text(json, "kind")?.as_str() {
            "int" => Output::Host(Scalar::Int(int(value)?)),
            "float" => Output::Host(Scalar::Float(float(value)?)),
            "bool" => Output::Host(Scalar::Bool(truth(value)?)),
            "tensor" => Output::Tensor(TensorOutput {
                dtype: dtype(json)?,
                sizes: counts(json, "shape")?,
                strides: counts(json, "stride")?,
                strides_are_exact: json["stride_exact"].as_bool().unwrap_or(false),
                values: match text(json, "check")?.as_str() {
                    "values" => Some((text(json, "key")?, Tolerance::parse(json)?)),
                    "meta" => None,
                    other => return Err(format!("unknown check {other:?}")),
                },
                alias: match json["alias_of"].as_str() {
                    Some(name) => Some((name.to_string(), count(&json["offset"])?)),
                    None => None,
                },
            }),
            other => return Err(format!("unknown kind of output {other:?}")),
        })
    }
}

impl Tolerance {
    fn parse(json: &Json) -> Parsed<Tolerance> {
        let number = |name: &str| json.get(name).map_or(Ok(0.0), float);
        Ok(Tolerance { rtol: number("rtol")?, atol: number("atol")? })
    }
}

impl Grads {
    fn parse(json: &Json) -> Parsed<Grads> {
        let cotangents = list(json, "cotangents")?.iter();
        let cotangents = cotangents.map(|json| Ok((count(&json["output"])?, text(json, "key")?)));
        let inputs = list(json, "inputs")?.iter().map(|json| {
            let gradient = match text(json, "kind")?.as_str() {
                "none" => None,
                "tensor" => Some(Gradient {
                    dtype: dtype(json)?,
                    sizes: counts(json, "shape")?,
                    key: text(json, "key")?,
                    tolerance: Tolerance::parse(json)?,
                }),
                other => return Err(format!("unknown kind of gradient {other:?}")),
            };
            Ok((text(json, "name")?, gradient))
        });
        Ok(Grads { cotangents: cotangents.collect::<Parsed<_>>()?, inputs: inputs.collect::<Parsed<_>>()? })
    }
}

fn text(json: &Json, name: &str) -> Parsed<String> {
    json[name].as_str().map(str::to_string).ok_or_else(|| format!("no text {name:?}"))
}

fn list<'a>(json: &'a Json, name: &str) -> Parsed<&'a [Json]> {
    json[name].as_array().map(Vec::as_slice).ok_or_else(|| format!("no list {name:?}"))
}

fn dtype(json: &Json) -> Parsed<DType> {
    let name = text(json, "dtype")?;
    DType::from_name(&name).ok_or_else(|| format!("unknown dtype {name:?}"))
}

fn counts(json: &Json, name: &str) -> Parsed<Vec<usize>> {
    list(json, name)?.iter().map(count).collect()
}

fn count(json: &Json) -> Parsed<usize> {
    json.as_u64().and_then(|count| usize::try_from(count).ok()).ok_or_else(|| format!("{json} is no count"))
}

fn int(json: &Json) -> Parsed<i64> {
    json.as_i64().ok_or_else(|| format!("{json} is no whole number"))
}

fn truth(json: &Json) -> Parsed<bool> {
    json.as_bool().ok_or_else(|| format!("{json} is no truth value"))
}

/// Infinities and NaN, which JSON lacks, are strings.
fn float(json: &Json) -> Parsed<f64> {
    match json.as_str() {
        Some("nan") => Ok(f64::NAN),
        Some("inf") => Ok(f64::INFINITY),
        Some("-inf") => Ok(f64::NEG_INFINITY),
        Some(_) | None => json.as_f64().ok_or_else(|| format!("{json} is no number")),
    }
}
