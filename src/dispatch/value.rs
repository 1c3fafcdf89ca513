//! Values of boxed calls.
//!
//! A boxed call passes its arguments on a [`Stack`] of [`Value`]s, one per schema argument in order. It gets its
//! results the same way. `signature.rs` converts Rust types to values and back.

use crate::device::{Device, Generator};
use crate::dispatch::key::set::KeySet;
use crate::dispatch::schema::Type;
use crate::ir::{DType, MemoryFormat, Scalar};
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The arguments of a boxed call, and then its results.
pub type Stack = SmallVec<[Value; 8]>;

/// One argument or result.
#[derive(Clone)]
pub enum Value {
    /// An absent optional.
    None,
    /// A tensor.
    Tensor(Tensor),
    /// Tensors.
    TensorList(Vec<Tensor>),
    /// Tensors, some of them absent.
    OptionalTensorList(Vec<Option<Tensor>>),
    /// A whole number.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Str(Arc<str>),
    /// Whole numbers: sizes, strides, dimensions.
    IntList(SmallVec<[i64; 6]>),
    /// Floating-point numbers.
    FloatList(Vec<f64>),
    /// Truth values.
    BoolList(Vec<bool>),
    /// A number of any category.
    Scalar(Scalar),
    /// Numbers of any category.
    ScalarList(Vec<Scalar>),
    /// An element type.
    DType(DType),
    /// A device.
    Device(Device),
    /// How elements are stored.
    Layout(TensorLayout),
    /// The order of dimensions in memory.
    MemoryFormat(MemoryFormat),
    /// A random generator, or an object that out-of-tree kernels pass to each other.
    Object(Arc<dyn Any + Send + Sync>),
}

/// How the elements of a tensor are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TensorLayout {
    /// Elements at offset plus index times strides.
    Strided,
    /// Coordinates and values.
    Sparse,
    /// Compressed rows.
    SparseCsr,
}

impl TensorLayout {
    /// The layout of that name in schemas.
    pub fn from_name(name: &str) -> Option<TensorLayout> {
        Some(match name {
            "strided" => TensorLayout::Strided,
            "sparse" => TensorLayout::Sparse,
            "sparse_csr" => TensorLayout::SparseCsr,
            _ => return None,
        })
    }
}

impl From<&Generator> for Value {
    fn from(generator: &Generator) -> Value {
        Value::Object(Arc::new(generator.clone()))
    }
}

impl Value {
    /// The union of the key sets of the tensors inside.
    pub fn key_set(&self) -> KeySet {
        match self {
            Value::Tensor(tensor) => tensor.key_set(),
            Value::TensorList(tensors) => key_set_of(tensors),
            Value::OptionalTensorList(tensors) => key_set_of(tensors.iter().flatten()),
            Value::None
            | Value::Int(_)
            | Value::Float(_)
            | Value::Bool(_)
            | Value::Str(_)
            | Value::IntList(_)
            | Value::FloatList(_)
            | Value::BoolList(_)
            | Value::Scalar(_)
            | Value::ScalarList(_)
            | Value::DType(_)
            | Value::Device(_)
            | Value::Layout(_)
            | Value::MemoryFormat(_)
            | Value::Object(_) => KeySet::EMPTY,
        }
    }

    /// Whether `test` holds for one of the tensors inside.
    #[inline]
    pub(crate) fn any_tensor(&self, test: impl Fn(&Tensor) -> bool) -> bool {
        match self {
            Value::Tensor(tensor) => test(tensor),
            other => other.tensors().any(test),
        }
    }

    /// The tensors inside, in order.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        let (one, list, optional): (Option<&Tensor>, &[Tensor], &[Option<Tensor>]) = match self {
            Value::Tensor(tensor) => (Some(tensor), &[], &[]),
            Value::TensorList(tensors) => (None, tensors, &[]),
            Value::OptionalTensorList(tensors) => (None, &[], tensors),
            Value::None
            | Value::Int(_)
            | Value::Float(_)
            | Value::Bool(_)
            | Value::Str(_)
            | Value::IntList(_)
            | Value::FloatList(_)
            | Value::BoolList(_)
            | Value::Scalar(_)
            | Value::ScalarList(_)
            | Value::DType(_)
            | Value::Device(_)
            | Value::Layout(_)
            | Value::MemoryFormat(_)
            | Value::Object(_) => (None, &[], &[]),
        };
        one.into_iter().chain(list).chain(optional.iter().flatten())
    }

    /// The tensors inside, in order, for replacement.
    pub fn tensors_mut(&mut self) -> impl Iterator<Item = &mut Tensor> {
        let (one, list, optional): (Option<&mut Tensor>, &mut [Tensor], &mut [Option<Tensor>]) = match self {
            Value::Tensor(tensor) => (Some(tensor), &mut [], &mut []),
            Value::TensorList(tensors) => (None, tensors, &mut []),
            Value::OptionalTensorList(tensors) => (None, &mut [], tensors),
            Value::None
            | Value::Int(_)
            | Value::Float(_)
            | Value::Bool(_)
            | Value::Str(_)
            | Value::IntList(_)
            | Value::FloatList(_)
            | Value::BoolList(_)
            | Value::Scalar(_)
            | Value::ScalarList(_)
            | Value::DType(_)
            | Value::Device(_)
            | Value::Layout(_)
            | Value::MemoryFormat(_)
            | Value::Object(_) => (None, &mut [], &mut []),
        };
        one.into_iter().chain(list).chain(optional.iter_mut().flatten())
    }

    /// The type of the value in the notation of schemas.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Value::None => "NoneType",
            Value::Tensor(_) => "Tensor",
            Value::TensorList(_) => "Tensor[]",
            Value::OptionalTensorList(_) => "Tensor?[]",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Bool(_) => "bool",
            Value::Str(_) => "str",
            Value::IntList(_) => "int[]",
            Value::FloatList(_) => "float[]",
            Value::BoolList(_) => "bool[]",
            Value::Scalar(_) => "Scalar",
            Value::ScalarList(_) => "Scalar[]",
            Value::DType(_) => "ScalarType",
            Value::Device(_) => "Device",
            Value::Layout(_) => "Layout",
            Value::MemoryFormat(_) => "MemoryFormat",
            Value::Object(_) => "Generator",
        }
    }

    /// Whether the value has type `ty` as kernels expect it, without conversion.
    pub fn fits(&self, ty: &Type) -> bool {
        match (ty, self) {
            (Type::Optional(_), Value::None) => true,
            (Type::Optional(inner), value) => value.fits(inner),
            (Type::Tensor, Value::Tensor(_))
            | (Type::Int | Type::SymInt, Value::Int(_))
            | (Type::Float, Value::Float(_))
            | (Type::Bool, Value::Bool(_))
            | (Type::Str, Value::Str(_))
            | (Type::Scalar, Value::Scalar(_))
            | (Type::ScalarType, Value::DType(_))
            | (Type::Device, Value::Device(_))
            | (Type::Layout, Value::Layout(_))
            | (Type::MemoryFormat, Value::MemoryFormat(_))
            | (Type::Generator, Value::Object(_)) => true,
            (Type::List(element, n), value) => {
                let Some((found, len)) = value.list_parts() else { return false };
                // The length of an integer list is a hint (`int[2]` takes one number too). That of `bool[3]` is exact.
                let exact = matches!(**element, Type::Bool);
                element.same_for_kernels(&found) && n.is_none_or(|n| n == len || !exact)
            }
            (_, _) => false,
        }
    }

    /// The element type and the length of a list.
    fn list_parts(&self) -> Option<(Type, usize)> {
        match self {
            Value::TensorList(items) => Some((Type::Tensor, items.len())),
            Value::OptionalTensorList(items) => Some((Type::Tensor.optional(), items.len())),
            Value::IntList(items) => Some((Type::Int, items.len())),
            Value::FloatList(items) => Some((Type::Float, items.len())),
            Value::BoolList(items) => Some((Type::Bool, items.len())),
            Value::ScalarList(items) => Some((Type::Scalar, items.len())),
            Value::None
            | Value::Tensor(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Bool(_)
            | Value::Str(_)
            | Value::Scalar(_)
            | Value::DType(_)
            | Value::Device(_)
            | Value::Layout(_)
            | Value::MemoryFormat(_)
            | Value::Object(_) => None,
        }
    }

    /// Converts the value to type `ty`. An integer becomes a float or a scalar, a number a tensor that takes part in
    /// promotion as a number, one number a list of fixed length, and a list of tensors a list of optional tensors.
    pub fn coerce(self, ty: &Type) -> Option<Value> {
        if self.fits(ty) {
            return Some(self);
        }
        Some(match (ty, self) {
            (Type::Optional(inner), value) => return value.coerce(inner),
            (Type::Float, Value::Int(number)) => Value::Float(number as f64),
            (Type::Float, Value::Scalar(Scalar::Float(number))) => Value::Float(number),
            (Type::Float, Value::Scalar(Scalar::Int(number))) => Value::Float(number as f64),
            (Type::Int | Type::SymInt, Value::Scalar(Scalar::Int(number))) => Value::Int(number),
            (Type::Scalar, Value::Int(number)) => Value::Scalar(Scalar::Int(number)),
            (Type::Scalar, Value::Float(number)) => Value::Scalar(Scalar::Float(number)),
            (Type::Scalar, Value::Bool(flag)) => Value::Scalar(Scalar::Bool(flag)),
            // A number for a tensor takes part in promotion as a number.
            (Type::Tensor, Value::Int(number)) => Value::Tensor(Tensor::number(number).ok()?),
            (Type::Tensor, Value::Float(number)) => Value::Tensor(Tensor::number(number).ok()?),
            (Type::Tensor, Value::Bool(flag)) => Value::Tensor(Tensor::number(flag).ok()?),
            (Type::Tensor, Value::Scalar(number)) => Value::Tensor(Tensor::number(number).ok()?),
            (Type::List(element, _), value) => return value.coerce_list(element, ty),
            (_, _) => return None,
        })
    }

    fn coerce_list(self, element: &Type, ty: &Type) -> Option<Value> {
        let is_empty = self.list_parts().is_some_and(|(_, len)| len == 0);
        match (element, self) {
            (Type::Optional(inner), Value::TensorList(items)) if **inner == Type::Tensor => {
                Some(Value::OptionalTensorList(items.into_iter().map(Some).collect()))
            }
            (Type::Float, Value::IntList(items)) => {
                Some(Value::FloatList(items.into_iter().map(|number| number as f64).collect()))
            }
            // An empty list has no element type.
            (element, _) if is_empty => Value::list_of(element, Vec::new()),
            (element, value) => {
                let Type::List(_, Some(n)) = ty else { return None };
                let one = value.coerce(element)?;
                Value::list_of(element, vec![one; *n])
            }
        }
    }

    /// A list of values of one element type, or `None` if one of them has another type.
    pub fn list_of(element: &Type, values: Vec<Value>) -> Option<Value> {
        let mut items = values.into_iter();
        Some(match element {
            Type::Tensor => Value::TensorList(
                items.map(|v| if let Value::Tensor(t) = v { Some(t) } else { None }).collect::<Option<_>>()?,
            ),
            Type::Int | Type::SymInt => Value::IntList(
                items.map(|v| if let Value::Int(i) = v { Some(i) } else { None }).collect::<Option<_>>()?,
            ),
            Type::Float => Value::FloatList(
                items.map(|v| if let Value::Float(x) = v { Some(x) } else { None }).collect::<Option<_>>()?,
            ),
            Type::Bool => Value::BoolList(
                items.map(|v| if let Value::Bool(b) = v { Some(b) } else { None }).collect::<Option<_>>()?,
            ),
            Type::Scalar => Value::ScalarList(
                items.map(|v| if let Value::Scalar(s) = v { Some(s) } else { None }).collect::<Option<_>>()?,
            ),
            Type::Optional(inner) if **inner == Type::Tensor => {
                let item = |value| match value {
                    Value::None => Some(None),
                    value => {
                        if let Value::Tensor(tensor) = value {
                            Some(Some(tensor))
                        } else {
                            None
                        }
                    }
                };
                Value::OptionalTensorList(items.map(item).collect::<Option<_>>()?)
            }
            Type::Str
            | Type::ScalarType
            | Type::Device
            | Type::Layout
            | Type::MemoryFormat
            | Type::Generator
            | Type::List(_, _)
            | Type::Optional(_) => {
                // No operator takes a list of these, except an empty one.
                return items.next().is_none().then(|| Value::TensorList(Vec::new()));
            }
        })
    }
}

/// The union of the key sets of some tensors.
pub(crate) fn key_set_of<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> KeySet {
    tensors.into_iter().fold(KeySet::EMPTY, |set, tensor| set | tensor.key_set())
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::None => f.write_str("None"),
            Value::Tensor(tensor) => write!(f, "{tensor:?}"),
            Value::TensorList(tensors) => write!(f, "{tensors:?}"),
            Value::OptionalTensorList(tensors) => write!(f, "{tensors:?}"),
            Value::Int(number) => write!(f, "{number}"),
            Value::Float(number) => write!(f, "{number:?}"),
            Value::Bool(flag) => write!(f, "{flag}"),
            Value::Str(text) => write!(f, "{text:?}"),
            Value::IntList(numbers) => write!(f, "{numbers:?}"),
            Value::FloatList(numbers) => write!(f, "{numbers:?}"),
            Value::BoolList(flags) => write!(f, "{flags:?}"),
            Value::Scalar(number) => write!(f, "{number:?}"),
            Value::ScalarList(numbers) => write!(f, "{numbers:?}"),
            Value::DType(dtype) => write!(f, "{dtype}"),
            Value::Device(device) => write!(f, "{device}"),
            Value::Layout(layout) => write!(f, "{layout:?}"),
            Value::MemoryFormat(format) => write!(f, "{format:?}"),
            Value::Object(_) => f.write_str("object"),
        }
    }
}
