//! Operator schemas: names, argument and return types, defaults, alias marks.
//!
//! A schema prints in ATen notation, and `schema_parser.rs` reads it back. Checking the arguments of a call is here
//! too, because its messages print the declaration.

use crate::device::Device;
use crate::dispatch::value::{Stack, TensorLayout, Value};
use crate::error::{Error, Result};
use crate::ir::{DType, MemoryFormat, Scalar};
use std::fmt;

/// The full name of an operator, `namespace::name.overload`. The overload may be empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperatorName {
    /// `namespace::name`.
    pub name: String,
    /// The overload name. It may be empty.
    pub overload: String,
}

/// The type of an argument or a return.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are the names of the notation")]
pub enum Type {
    Tensor,
    Int,
    /// An integer that PyTorch may keep symbolic. Here it is a plain integer.
    SymInt,
    Float,
    Bool,
    Str,
    Scalar,
    ScalarType,
    Device,
    Layout,
    MemoryFormat,
    Generator,
    /// `T[]`, or `T[n]` with a fixed length.
    List(Box<Type>, Option<usize>),
    /// `T?`.
    Optional(Box<Type>),
}

/// A default value as written.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a point or an exponent.
    Float(f64),
    /// A quoted string.
    Str(String),
    /// A bare word: `Mean`, `float`, `strided`, `contiguous_format`.
    Symbol(String),
    /// `[…]`.
    List(Vec<Literal>),
}

/// Alias marks of a tensor: `(a)`, `(a!)`, `(a -> *)`, `(a|b)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AliasInfo {
    /// The alias sets before the call; `*` is the wildcard.
    pub before: Vec<String>,
    /// Whether the call writes through it.
    pub is_write: bool,
    /// The alias sets after the call, where they differ.
    pub after: Vec<String>,
}

/// One argument or return.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its name; returns may have an empty one.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Its alias marks.
    pub alias: Option<AliasInfo>,
    /// Its default.
    pub default: Option<Literal>,
    /// Whether it follows the `*`, so it can only be given by name.
    pub kwarg_only: bool,
}

/// What may be assumed about aliasing between arguments and returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AliasAnalysis {
    /// As the alias marks say.
    FromSchema,
    /// Anything may alias anything.
    Conservative,
    /// Nothing aliases and nothing is written.
    PureFunction,
}

impl AliasAnalysis {
    /// The name in dumps.
    pub const fn name(self) -> &'static str {
        match self {
            AliasAnalysis::FromSchema => "FROM_SCHEMA",
            AliasAnalysis::Conservative => "CONSERVATIVE",
            AliasAnalysis::PureFunction => "PURE_FUNCTION",
        }
    }
}

/// The declaration of an operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    /// The operator's name.
    pub name: OperatorName,
    /// Arguments in order. Keyword-only ones come last.
    pub arguments: Vec<Parameter>,
    /// Returns in order.
    pub returns: Vec<Parameter>,
    /// What may be assumed about aliasing.
    pub alias_analysis: AliasAnalysis,
}

impl OperatorName {
    /// The name from `namespace::name` and the overload.
    pub fn new(name: impl Into<String>, overload: impl Into<String>) -> Self {
        OperatorName { name: name.into(), overload: overload.into() }
    }

    /// The part before `::`.
    pub fn namespace(&self) -> Option<&str> {
        self.name.split_once("::").map(|(namespace, _)| namespace)
    }
}

impl Type {
    /// `T?` of this type.
    pub fn optional(self) -> Type {
        Type::Optional(Box::new(self))
    }

    /// `T[]` of this type.
    pub fn list(self) -> Type {
        Type::List(Box::new(self), None)
    }

    /// Whether values of the type may hold tensors.
    pub fn holds_tensors(&self) -> bool {
        match self {
            Type::Tensor => true,
            Type::List(inner, _) | Type::Optional(inner) => inner.holds_tensors(),
            Type::Int
            | Type::SymInt
            | Type::Float
            | Type::Bool
            | Type::Str
            | Type::Scalar
            | Type::ScalarType
            | Type::Device
            | Type::Layout
            | Type::MemoryFormat
            | Type::Generator => false,
        }
    }

    /// Whether kernels see the two types alike. Lengths of lists and symbolic integers make no difference.
    pub fn same_for_kernels(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::Int | Type::SymInt, Type::Int | Type::SymInt) => true,
            (Type::List(a, _), Type::List(b, _)) | (Type::Optional(a), Type::Optional(b)) => a.same_for_kernels(b),
            (a, b) => a == b,
        }
    }

    /// The value of a default of this type, or `None` if the literal does not fit.
    pub fn literal_value(&self, literal: &Literal) -> Option<Value> {
        Some(match (self, literal) {
            (Type::Optional(_), Literal::None) => Value::None,
            (Type::Optional(inner), literal) => return inner.literal_value(literal),
            (Type::Int | Type::SymInt, Literal::Int(number)) => Value::Int(*number),
            (Type::Int | Type::SymInt, Literal::Symbol(name)) => Value::Int(reduction(name)?),
            (Type::Float, Literal::Float(number)) => Value::Float(*number),
            (Type::Float, Literal::Int(number)) => Value::Float(*number as f64),
            (Type::Bool, Literal::Bool(flag)) => Value::Bool(*flag),
            (Type::Str, Literal::Str(text)) => Value::Str(text.as_str().into()),
            (Type::Scalar, Literal::Int(number)) => Value::Scalar(Scalar::Int(*number)),
            (Type::Scalar, Literal::Float(number)) => Value::Scalar(Scalar::Float(*number)),
            (Type::Scalar, Literal::Bool(flag)) => Value::Scalar(Scalar::Bool(*flag)),
            (Type::ScalarType, Literal::Symbol(name)) => Value::DType(dtype_word(name)?),
            (Type::Device, Literal::Str(name)) => Value::Device(name.parse::<Device>().ok()?),
            (Type::Layout, Literal::Symbol(name)) => Value::Layout(TensorLayout::from_name(name)?),
            (Type::MemoryFormat, Literal::Symbol(name)) => Value::MemoryFormat(MemoryFormat::from_name(name)?),
            // One element may stand for a list of fixed length: it is repeated.
            (Type::List(element, Some(n)), literal) if !matches!(literal, Literal::List(_)) => {
                list_value(element, &vec![literal.clone(); *n])?
            }
            (Type::List(element, n), Literal::List(items)) => {
                // An empty list of dims stands for all dims, whatever the declared length. A length of 1 says that a
                // lone number will do: `int[1] dim=[-2, -1]`.
                if n.is_some_and(|n| n != items.len() && n != 1 && !items.is_empty()) {
                    return None;
                }
                list_value(element, items)?
            }
            (_, _) => return None,
        })
    }
}

/// The number that schemas use for the reduction of a loss.
fn reduction(name: &str) -> Option<i64> {
    ["None", "Mean", "Sum"].iter().position(|known| *known == name).map(|index| index as i64)
}

/// A dtype by its word in schemas (`float`, `long`) or its short name.
fn dtype_word(name: &str) -> Option<DType> {
    Some(match name {
        "float" => DType::F32,
        "double" => DType::F64,
        "half" => DType::F16,
        "bfloat16" => DType::BF16,
        "long" => DType::I64,
        "int" => DType::I32,
        other => return DType::from_name(other),
    })
}

fn list_value(element: &Type, items: &[Literal]) -> Option<Value> {
    let values = items.iter().map(|item| element.literal_value(item)).collect::<Option<Vec<_>>>()?;
    Value::list_of(element, values)
}

impl Schema {
    /// Why a kernel with the `inferred` schema cannot implement this one. Names are not compared.
    pub fn difference(&self, inferred: &Schema) -> Option<String> {
        if self.arguments.len() != inferred.arguments.len() {
            let (ours, theirs) = (self.arguments.len(), inferred.arguments.len());
            return Some(format!("The number of arguments is different. {ours} vs {theirs}."));
        }
        if self.returns.len() != inferred.returns.len() {
            let (ours, theirs) = (self.returns.len(), inferred.returns.len());
            return Some(format!("The number of returns is different. {ours} vs {theirs}."));
        }
        let mismatch = |what: &str, ours: &[Parameter], theirs: &[Parameter]| {
            let at = ours.iter().zip(theirs).position(|(a, b)| !a.ty.same_for_kernels(&b.ty))?;
            Some(format!("Type mismatch in {what} {}: {} vs {}.", at + 1, ours[at].ty, theirs[at].ty))
        };
        mismatch("argument", &self.arguments, &inferred.arguments)
            .or_else(|| mismatch("return", &self.returns, &inferred.returns))
    }

    /// Checks positional and named arguments, fills in defaults, and returns the stack in schema order.
    ///
    /// # Errors
    /// If an argument is missing, unknown, given twice or of another type, or there are too many.
    pub fn bind(&self, positional: Vec<Value>, named: Vec<(&str, Value)>) -> Result<Stack> {
        let n_positional = self.arguments.iter().filter(|argument| !argument.kwarg_only).count();
        if positional.len() > n_positional {
            let found = positional.len();
            return Err(self.refusal(format!("expected at most {n_positional} argument(s) but received {found}")));
        }
        let mut slots: Vec<Option<Value>> = positional.into_iter().map(Some).collect();
        slots.resize_with(self.arguments.len(), || None);
        for (name, value) in named {
            let Some(at) = self.arguments.iter().position(|argument| argument.name == name) else {
                return Err(self.refusal(format!("unknown keyword argument '{name}'")));
            };
            if slots[at].is_some() {
                return Err(
                    self.refusal(format!("argument '{name}' specified both as positional and keyword argument"))
                );
            }
            slots[at] = Some(value);
        }
        let mut stack = Stack::new();
        for (position, (argument, slot)) in self.arguments.iter().zip(slots).enumerate() {
            stack.push(self.bind_one(position, argument, slot)?);
        }
        Ok(stack)
    }

    fn bind_one(&self, position: usize, argument: &Parameter, value: Option<Value>) -> Result<Value> {
        let Some(value) = value else {
            let default = argument.default.as_ref().and_then(|literal| argument.ty.literal_value(literal));
            return default.ok_or_else(|| self.refusal(format!("missing value for argument '{}'", argument.name)));
        };
        let found = value.type_name();
        value.coerce(&argument.ty).ok_or_else(|| {
            self.refusal(format!(
                "expected a value of type '{}' for argument '{}' but instead found type '{found}'; position: \
                 {position}",
                argument.ty, argument.name
            ))
        })
    }

    /// Checks the number of values on a stack.
    ///
    /// # Errors
    /// If it is not the number of arguments.
    pub(crate) fn check_count(&self, stack: &Stack) -> Result<()> {
        if stack.len() != self.arguments.len() {
            let (expected, found) = (self.arguments.len(), stack.len());
            return Err(self.refusal(format!("expected {expected} argument(s) on the stack but found {found}")));
        }
        Ok(())
    }

    /// Checks the number and types of the values of a stack in schema order.
    ///
    /// # Errors
    /// If the number of values or a type differs.
    pub fn check_stack(&self, stack: &Stack) -> Result<()> {
        self.check_count(stack)?;
        for (argument, value) in self.arguments.iter().zip(stack) {
            if !value.fits(&argument.ty) {
                let found = value.type_name();
                let (ty, name) = (&argument.ty, &argument.name);
                return Err(self.refusal(format!(
                    "expected a value of type '{ty}' for argument '{name}' but instead found type '{found}'"
                )));
            }
        }
        Ok(())
    }

    /// Whether the operator writes to an argument.
    pub fn is_mutable(&self) -> bool {
        self.arguments.iter().any(|argument| argument.alias.as_ref().is_some_and(|alias| alias.is_write))
    }

    fn refusal(&self, what: String) -> Error {
        Error::argument(self.name.to_string(), format!("{what}. Declaration: {self}"))
    }
}

impl fmt::Display for OperatorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if !self.overload.is_empty() {
            write!(f, ".{}", self.overload)?;
        }
        Ok(())
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_type(f, self, None)
    }
}

/// Writes a type with its alias marks, which follow the innermost type.
fn write_type(f: &mut fmt::Formatter<'_>, ty: &Type, alias: Option<&AliasInfo>) -> fmt::Result {
    let word = match ty {
        Type::List(element, n) => {
            write_type(f, element, alias)?;
            return match n {
                Some(n) => write!(f, "[{n}]"),
                None => f.write_str("[]"),
            };
        }
        Type::Optional(inner) => {
            write_type(f, inner, alias)?;
            return f.write_str("?");
        }
        Type::Tensor => "Tensor",
        Type::Int => "int",
        Type::SymInt => "SymInt",
        Type::Float => "float",
        Type::Bool => "bool",
        Type::Str => "str",
        Type::Scalar => "Scalar",
        Type::ScalarType => "ScalarType",
        Type::Device => "Device",
        Type::Layout => "Layout",
        Type::MemoryFormat => "MemoryFormat",
        Type::Generator => "Generator",
    };
    f.write_str(word)?;
    alias.map_or(Ok(()), |alias| write!(f, "{alias}"))
}

impl fmt::Display for AliasInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}{}", self.before.join("|"), if self.is_write { "!" } else { "" })?;
        if !self.after.is_empty() {
            write!(f, " -> {}", self.after.join("|"))?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::None => f.write_str("None"),
            Literal::Bool(true) => f.write_str("True"),
            Literal::Bool(false) => f.write_str("False"),
            Literal::Int(number) => write!(f, "{number}"),
            // The debug form always has a point or an exponent, so it is read back as a float.
            Literal::Float(number) => write!(f, "{number:?}"),
            Literal::Str(text) => write!(f, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
            Literal::Symbol(name) => f.write_str(name),
            Literal::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
        }
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_type(f, &self.ty, self.alias.as_ref())?;
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        self.default.as_ref().map_or(Ok(()), |default| write!(f, "={default}"))
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name)?;
        let mut behind_star = false;
        for (i, argument) in self.arguments.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            if argument.kwarg_only && !behind_star {
                behind_star = true;
                f.write_str("*, ")?;
            }
            write!(f, "{argument}")?;
        }
        f.write_str(") -> ")?;
        if let [only] = self.returns.as_slice()
            && only.name.is_empty()
        {
            return write!(f, "{only}");
        }
        f.write_str("(")?;
        for (i, value) in self.returns.iter().enumerate() {
            write!(f, "{}{value}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str(")")
    }
}
