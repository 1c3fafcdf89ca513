//! Rust types as arguments and returns of operators.
//!
//! If the types of a typed call and a typed kernel agree, arguments pass in registers and nothing is boxed. An
//! [`ArgKind`] names an argument type without its lifetime (`&'static Tensor` names `&Tensor`), which makes signatures
//! comparable at run time. A [`CallArg`] is the same type with a lifetime.

use crate::device::{Device, Generator};
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::schema::Type;
use crate::dispatch::value::{Stack, TensorLayout, Value, key_set_of};
use crate::error::{Error, Result};
use crate::ir::{DType, MemoryFormat, Scalar};
use crate::tensor::handle::Tensor;
use smallvec::smallvec;
use std::any::TypeId;

/// Identifies the argument and return types of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    id: TypeId,
    name: &'static str,
}

impl Signature {
    /// The signature that a function type over argument kinds names.
    pub fn of<F: 'static>() -> Signature {
        Signature { id: TypeId::of::<F>(), name: std::any::type_name::<F>() }
    }

    /// The function type as text.
    pub const fn name(self) -> &'static str {
        self.name
    }
}

/// An argument type without its lifetime.
pub trait ArgKind: 'static {
    /// The type with its lifetime.
    type Ref<'a>;

    /// The schema type that corresponds to it.
    fn ty() -> Type;

    /// Reads the argument from a value of a boxed call.
    fn from_value(value: &Value) -> Option<Self::Ref<'_>>;

    /// Turns the argument into a value of a boxed call.
    fn into_value(argument: Self::Ref<'_>) -> Value;
}

/// An argument of a typed call.
pub trait CallArg<'a>: Sized {
    /// The type without its lifetime.
    type Kind: ArgKind;

    /// The argument under the type that kernels take.
    fn into_ref(self) -> <Self::Kind as ArgKind>::Ref<'a>;

    /// The tensors inside.
    fn tensors(&self) -> impl Iterator<Item = &Tensor>;
}

/// Declares argument types.
///
/// Grammar of a row: `'a, type under that lifetime => static name, schema type, |value| from a value, |argument| to a
/// value, |argument| tensors inside;`.
macro_rules! arguments {
    ($($life:lifetime, $ty:ty => $kind:ty, $schema:expr,
        |$v:ident| $from:expr, |$a:ident| $into:expr, |$t:ident| $tensors:expr;)*) => {$(
        impl ArgKind for $kind {
            type Ref<$life> = $ty;

            fn ty() -> Type {
                $schema
            }

            fn from_value($v: &Value) -> Option<Self::Ref<'_>> {
                $from
            }

            fn into_value($a: Self::Ref<'_>) -> Value {
                $into
            }
        }

        impl<$life> CallArg<$life> for $ty {
            type Kind = $kind;

            #[inline]
            fn into_ref(self) -> $ty {
                self
            }

            #[inline]
            fn tensors(&self) -> impl Iterator<Item = &Tensor> {
                let $t = self;
                $tensors
            }
        }
    )*};
}

/// Declares argument types held in one variant of [`Value`], with their optional forms.
macro_rules! plain_arguments {
    ($($life:lifetime, $ty:ty => $kind:ty, $schema:expr, $pattern:pat => $out:expr, |$a:ident| $into:expr;)*) => {
        arguments! {$(
            $life, $ty => $kind, $schema,
                |value| if let $pattern = value { Some($out) } else { None },
                |$a| $into, |_unused| std::iter::empty();
            $life, Option<$ty> => Option<$kind>, $schema.optional(),
                |value| {
                    if let Value::None = value { Some(None) } else { <$kind as ArgKind>::from_value(value).map(Some) }
                },
                |argument| argument.map_or(Value::None, |$a| $into), |_unused| std::iter::empty();
        )*}
    };
}

arguments! {
    'a, &'a Tensor => &'static Tensor, Type::Tensor,
        |value| if let Value::Tensor(tensor) = value { Some(tensor) } else { None },
        |argument| Value::Tensor(argument.clone()), |argument| std::iter::once(*argument);
    'a, Option<&'a Tensor> => Option<&'static Tensor>, Type::Tensor.optional(),
        |value| if let Value::None = value { Some(None) } else { <&Tensor>::from_value(value).map(Some) },
        |argument| argument.map_or(Value::None, |tensor| Value::Tensor(tensor.clone())),
        |argument| argument.iter().copied();
    'a, &'a [Tensor] => &'static [Tensor], Type::Tensor.list(),
        |value| if let Value::TensorList(tensors) = value { Some(tensors) } else { None },
        |argument| Value::TensorList(argument.to_vec()), |argument| argument.iter();
    'a, &'a [Option<Tensor>] => &'static [Option<Tensor>], Type::Tensor.optional().list(),
        |value| if let Value::OptionalTensorList(tensors) = value { Some(tensors) } else { None },
        |argument| Value::OptionalTensorList(argument.to_vec()), |argument| argument.iter().flatten();
    'a, &'a Generator => &'static Generator, Type::Generator,
        |value| if let Value::Object(object) = value { object.downcast_ref::<Generator>() } else { None },
        |argument| Value::from(argument), |_unused| std::iter::empty();
    'a, Option<&'a Generator> => Option<&'static Generator>, Type::Generator.optional(),
        |value| if let Value::None = value { Some(None) } else { <&Generator>::from_value(value).map(Some) },
        |argument| argument.map_or(Value::None, Value::from), |_unused| std::iter::empty();
}

plain_arguments! {
    'a, i64 => i64, Type::Int, Value::Int(number) => *number, |argument| Value::Int(argument);
    'a, f64 => f64, Type::Float, Value::Float(number) => *number, |argument| Value::Float(argument);
    'a, bool => bool, Type::Bool, Value::Bool(flag) => *flag, |argument| Value::Bool(argument);
    'a, &'a str => &'static str, Type::Str, Value::Str(text) => &**text, |argument| Value::Str(argument.into());
    'a, &'a [i64] => &'static [i64], Type::Int.list(), Value::IntList(numbers) => numbers.as_slice(),
        |argument| Value::IntList(argument.into());
    'a, &'a [f64] => &'static [f64], Type::Float.list(), Value::FloatList(numbers) => numbers.as_slice(),
        |argument| Value::FloatList(argument.into());
    'a, &'a [bool] => &'static [bool], Type::Bool.list(), Value::BoolList(flags) => flags.as_slice(),
        |argument| Value::BoolList(argument.into());
    'a, &'a [Scalar] => &'static [Scalar], Type::Scalar.list(), Value::ScalarList(numbers) => numbers.as_slice(),
        |argument| Value::ScalarList(argument.into());
    'a, Scalar => Scalar, Type::Scalar, Value::Scalar(number) => *number, |argument| Value::Scalar(argument);
    'a, DType => DType, Type::ScalarType, Value::DType(dtype) => *dtype, |argument| Value::DType(argument);
    'a, Device => Device, Type::Device, Value::Device(device) => *device, |argument| Value::Device(argument);
    'a, TensorLayout => TensorLayout, Type::Layout, Value::Layout(layout) => *layout,
        |argument| Value::Layout(argument);
    'a, MemoryFormat => MemoryFormat, Type::MemoryFormat, Value::MemoryFormat(format) => *format,
        |argument| Value::MemoryFormat(argument);
}

/// One value that a kernel returns.
pub trait ReturnValue: Sized + 'static {
    /// The schema type that corresponds to it.
    fn ty() -> Type;

    /// Turns it into a value of a boxed call.
    fn into_value(self) -> Value;

    /// Reads it from a value of a boxed call.
    fn from_value(value: Value) -> Option<Self>;
}

/// Declares return types held in one variant of [`Value`].
macro_rules! returns {
    ($($ty:ty, $schema:expr, $variant:ident;)*) => {$(
        impl ReturnValue for $ty {
            fn ty() -> Type {
                $schema
            }

            fn into_value(self) -> Value {
                Value::$variant(self)
            }

            fn from_value(value: Value) -> Option<Self> {
                if let Value::$variant(inner) = value { Some(inner) } else { None }
            }
        }
    )*};
}

returns! {
    Tensor, Type::Tensor, Tensor;
    Vec<Tensor>, Type::Tensor.list(), TensorList;
    i64, Type::Int, Int;
    f64, Type::Float, Float;
    bool, Type::Bool, Bool;
    Scalar, Type::Scalar, Scalar;
    DType, Type::ScalarType, DType;
    Device, Type::Device, Device;
}

impl ReturnValue for Option<Tensor> {
    fn ty() -> Type {
        Type::Tensor.optional()
    }

    fn into_value(self) -> Value {
        self.map_or(Value::None, Value::Tensor)
    }

    fn from_value(value: Value) -> Option<Self> {
        if let Value::None = value { Some(None) } else { Tensor::from_value(value).map(Some) }
    }
}

/// What a kernel returns: nothing, one value, or a tuple of values.
pub trait Returns: Sized + 'static {
    /// The schema types.
    fn types() -> Vec<Type>;

    /// Pushes the values in order onto an empty stack.
    fn push(self, stack: &mut Stack);

    /// Takes the values from a stack that holds nothing else.
    fn pop(stack: &mut Stack) -> Option<Self>;
}

impl<T: ReturnValue> Returns for T {
    fn types() -> Vec<Type> {
        vec![T::ty()]
    }

    fn push(self, stack: &mut Stack) {
        stack.push(self.into_value());
    }

    fn pop(stack: &mut Stack) -> Option<Self> {
        if stack.len() == 1 { T::from_value(stack.pop()?) } else { None }
    }
}

/// Arguments of a typed call: a tuple.
pub trait Args<'a>: Sized {
    /// What a typed kernel of these arguments is stored as.
    type Function<R: Returns>: ?Sized + 'static;

    /// The function type that identifies the signature.
    type Marker<R: Returns>: 'static;

    /// The union of the arguments' keys.
    fn key_set(&self) -> KeySet;

    /// Whether `test` holds for one of the tensors among the arguments.
    fn any_tensor(&self, test: impl Fn(&Tensor) -> bool) -> bool;

    /// Calls a kernel.
    fn apply<R: Returns>(self, function: &Self::Function<R>, operator: &Operator, keys: KeySet) -> Result<R>;

    /// The arguments as values.
    fn into_stack(self) -> Stack;
}

macro_rules! argument_tuples {
    ($(($($A:ident $a:ident),*))*) => {$(
        impl<'a, $($A: CallArg<'a>),*> Args<'a> for ($($A,)*) {
            type Function<R: Returns> =
                dyn for<'o, 'x> Fn(&'o Operator, KeySet, $(<$A::Kind as ArgKind>::Ref<'x>),*) -> Result<R> + Send + Sync;
            type Marker<R: Returns> = fn($($A::Kind),*) -> R;

            #[inline]
            fn key_set(&self) -> KeySet {
                let ($($a,)*) = self;
                KeySet::EMPTY $(| key_set_of($a.tensors()))*
            }

            #[inline]
            fn any_tensor(&self, test: impl Fn(&Tensor) -> bool) -> bool {
                let ($($a,)*) = self;
                let _used = &test;
                false $(|| $a.tensors().any(&test))*
            }

            #[inline]
            fn apply<R: Returns>(self, function: &Self::Function<R>, operator: &Operator, keys: KeySet) -> Result<R> {
                let ($($a,)*) = self;
                function(operator, keys, $($a.into_ref()),*)
            }

            fn into_stack(self) -> Stack {
                let ($($a,)*) = self;
                smallvec![$(<$A::Kind as ArgKind>::into_value($a.into_ref())),*]
            }
        }
    )*};
}

argument_tuples! {
    ()
    (A a)
    (A a, B b)
    (A a, B b, C c)
    (A a, B b, C c, D d)
    (A a, B b, C c, D d, E e)
    (A a, B b, C c, D d, E e, F f)
    (A a, B b, C c, D d, E e, F f, G g)
    (A a, B b, C c, D d, E e, F f, G g, H h)
    (A a, B b, C c, D d, E e, F f, G g, H h, I i)
    (A a, B b, C c, D d, E e, F f, G g, H h, I i, J j)
    (A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k)
    (A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k, L l)
}

macro_rules! return_tuples {
    ($(($n:literal; $($A:ident $a:ident),*))*) => {$(
        impl<$($A: ReturnValue),*> Returns for ($($A,)*) {
            fn types() -> Vec<Type> {
                vec![$($A::ty()),*]
            }

            fn push(self, _stack: &mut Stack) {
                let ($($a,)*) = self;
                $(_stack.push($a.into_value());)*
            }

            fn pop(stack: &mut Stack) -> Option<Self> {
                if stack.len() != $n {
                    return None;
                }
                let mut _values = stack.drain(..);
                Some(($($A::from_value(_values.next()?)?,)*))
            }
        }
    )*};
}

return_tuples! {
    (0;)
    (2; A a, B b)
    (3; A a, B b, C c)
    (4; A a, B b, C c, D d)
    (5; A a, B b, C c, D d, E e)
}

/// The error of a boxed call whose `position`-th value has another type than the kernel takes.
pub(crate) fn wrong_argument(op: &dyn std::fmt::Display, position: usize, expected: &Type, found: &Value) -> Error {
    let found = found.type_name();
    Error::argument(
        op.to_string(),
        format!("expected a value of type '{expected}' for argument {} but instead found type '{found}'", position + 1),
    )
}
