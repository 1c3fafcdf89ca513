//! Kernels: what the slots of dispatch tables hold.
//!
//! Every kernel can be called boxed. A kernel made from a Rust function also keeps that function with its own type, so
//! a typed call with the same signature jumps to it directly. A call with another signature, and every call of a boxed
//! kernel, goes through values on a stack. Marker kernels (fallthrough, ambiguous, invalid) hold no function.

use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::row_values::unpack;
use crate::dispatch::schema::{AliasAnalysis, OperatorName, Parameter, Schema, Type};
use crate::dispatch::signature::{ArgKind, Returns, Signature, wrong_argument};
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Result};
use crate::ir::{Attr, Op};
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A boxed kernel: takes its arguments from the stack and leaves its results there.
pub type BoxedFn = dyn Fn(&Operator, KeySet, &mut Stack) -> Result<()> + Send + Sync;

/// A kernel. It is immutable.
pub struct Kernel {
    name: String,
    body: Body,
    typed: Option<Typed>,
    row: Option<RowFn>,
    condition: Option<Condition>,
    /// Whether it is a decomposition of this crate.
    is_own: bool,
}

/// The kernel of a row of the op table. It takes tensors and other arguments separately, like [`super::rows::call`].
pub(crate) type RowFn = fn(Op, KeySet, &[&Tensor], &[Attr]) -> Result<Tensor>;

/// Whether a kernel has anything to do for a tensor. If it has for none, the call may skip it.
pub(crate) type Condition = fn(&Tensor) -> bool;

enum Body {
    /// Nothing was registered. Calling it is an error.
    Invalid,
    /// Calls skip the key.
    Fallthrough,
    /// A decomposition and a backend kernel both claim `AutogradOther`. Calling it is an error.
    Ambiguous,
    Boxed(Box<BoxedFn>),
}

/// The typed half of a kernel made from a Rust function.
struct Typed {
    /// A `Box<Args::Function<R>>` of the signature below.
    function: Box<dyn Any + Send + Sync>,
    signature: Signature,
    arguments: Vec<Type>,
    returns: Vec<Type>,
}

impl Kernel {
    /// A kernel from a boxed function.
    pub fn boxed(function: impl Fn(&Operator, KeySet, &mut Stack) -> Result<()> + Send + Sync + 'static) -> Kernel {
        let name = std::any::type_name_of_val(&function).to_string();
        Kernel { name, ..Kernel::of_body(Body::Boxed(Box::new(function))) }
    }

    /// A kernel from a Rust function. A leading [`KeySet`] argument receives the keys of the call.
    pub fn typed<M>(function: impl IntoKernel<M>) -> Kernel {
        function.into_kernel()
    }

    /// A kernel of a row of the op table. A method calls it without values on a stack.
    pub(crate) fn of_row(op: Op, function: RowFn) -> Kernel {
        let boxed = move |operator: &Operator, keys: KeySet, stack: &mut Stack| {
            let schema = operator.schema().ok_or_else(|| Error::argument(op.name(), "has no schema"))?;
            schema.check_count(stack)?;
            let (tensors, attrs) = unpack(op, schema, stack)?;
            let tensors: SmallVec<[&Tensor; 4]> = tensors.iter().collect();
            let result = function(op, keys, &tensors, &attrs)?;
            stack.clear();
            stack.push(Value::Tensor(result));
            Ok(())
        };
        Kernel { row: Some(function), ..Kernel::boxed(boxed) }
    }

    /// The row function, if this is the kernel of a row.
    #[inline]
    pub(crate) fn row(&self) -> Option<RowFn> {
        self.row
    }

    /// The same kernel, which calls skip where `condition` is false. It must do nothing for those.
    pub(crate) fn when(mut self, condition: Condition) -> Kernel {
        self.condition = Some(condition);
        self
    }

    /// The condition given to [`Kernel::when`].
    #[inline]
    pub(crate) fn condition(&self) -> Option<Condition> {
        self.condition
    }

    /// The fallthrough kernel: calls skip its key.
    pub fn fallthrough() -> Kernel {
        Kernel { name: "fallthrough".into(), ..Kernel::of_body(Body::Fallthrough) }
    }

    /// The invalid kernel, which stands for a missing registration.
    pub fn invalid() -> Kernel {
        Kernel { name: "invalid".into(), ..Kernel::of_body(Body::Invalid) }
    }

    /// The kernel of an `AutogradOther` slot that two kernels claim.
    pub(crate) fn ambiguous() -> Kernel {
        Kernel { name: "ambiguous_autogradother_kernel".into(), ..Kernel::of_body(Body::Ambiguous) }
    }

    fn of_body(body: Body) -> Kernel {
        Kernel { name: String::new(), body, typed: None, row: None, condition: None, is_own: false }
    }

    /// The same kernel, marked as a decomposition of this crate.
    pub(crate) fn own(self) -> Kernel {
        Kernel { is_own: true, ..self }
    }

    /// Whether this is a decomposition of this crate.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// The same kernel under another name, which dumps show.
    pub fn named(mut self, name: impl Into<String>) -> Kernel {
        self.name = name.into();
        self
    }

    /// The name in dumps. By default it is that of the Rust function.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether calls skip the key of this kernel.
    pub const fn is_fallthrough(&self) -> bool {
        matches!(self.body, Body::Fallthrough)
    }

    /// Whether this is the invalid kernel.
    pub const fn is_invalid(&self) -> bool {
        matches!(self.body, Body::Invalid)
    }

    /// The signature of a typed kernel.
    pub fn signature(&self) -> Option<Signature> {
        self.typed.as_ref().map(|typed| typed.signature)
    }

    /// The schema that a typed kernel's signature implies; arguments are named `_0`, `_1`, ….
    pub fn inferred_schema(&self, name: &OperatorName) -> Option<Schema> {
        let typed = self.typed.as_ref()?;
        let argument = |(i, ty): (usize, &Type)| Parameter {
            name: format!("_{i}"),
            ty: ty.clone(),
            alias: None,
            default: None,
            kwarg_only: false,
        };
        let arguments = typed.arguments.iter().enumerate().map(argument).collect();
        let mut returns: Vec<Parameter> = typed.returns.iter().enumerate().map(argument).collect();
        returns.iter_mut().for_each(|value| value.name.clear());
        Some(Schema { name: name.clone(), arguments, returns, alias_analysis: AliasAnalysis::Conservative })
    }

    /// How the kernel can be called, as dumps show it.
    pub const fn forms(&self) -> &'static str {
        match (&self.body, &self.typed) {
            (Body::Boxed(_), Some(_)) => "[ boxed unboxed ]",
            (Body::Boxed(_), None) => "[ boxed ]",
            (Body::Fallthrough, _) => "[ fallthrough ]",
            (Body::Ambiguous | Body::Invalid, _) => "[ none ]",
        }
    }

    /// The typed function, if it has exactly the type `F`.
    #[inline]
    pub(crate) fn function<F: ?Sized + 'static>(&self) -> Option<&F> {
        let typed = self.typed.as_ref()?;
        typed.function.downcast_ref::<Box<F>>().map(|function| &**function)
    }

    /// Calls the kernel with the arguments on the stack.
    ///
    /// # Errors
    /// If the kernel is a marker (invalid, fallthrough, ambiguous), or if it fails.
    #[inline]
    pub fn call_boxed(&self, op: &Operator, keys: KeySet, stack: &mut Stack) -> Result<()> {
        match &self.body {
            Body::Boxed(function) => function(op, keys, stack),
            Body::Invalid => Err(refusal(op, "a kernel was called although nothing was registered for it".into())),
            Body::Fallthrough => Err(refusal(
                op,
                format!(
                    "the fallthrough kernel of {} was called; calls skip it, do not redispatch to it",
                    keys.highest()
                ),
            )),
            Body::Ambiguous => Err(refusal(
                op,
                "ambiguous autogradother kernel: the operator has a CompositeImplicitAutograd kernel and one for a \
                 backend whose gradients go to AutogradOther, which makes the backend kernel unreachable; register \
                 the decomposition as CompositeExplicitAutograd, or an AutogradOther kernel too"
                    .into(),
            )),
        }
    }
}

fn refusal(op: &Operator, what: String) -> Error {
    Error::NotImplemented { op: op.name().to_string(), what }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.forms())
    }
}

/// What can be registered as a kernel: kernels, and Rust functions with or without a leading [`KeySet`]. `M` only
/// distinguishes the implementations.
pub trait IntoKernel<M> {
    /// Converts into a kernel.
    fn into_kernel(self) -> Kernel;
}

/// Marks the implementation for kernels.
#[derive(Debug)]
pub struct Itself;

/// Marks the implementations for functions with a leading [`KeySet`].
#[derive(Debug)]
pub struct WithKeySet;

impl IntoKernel<Itself> for Kernel {
    fn into_kernel(self) -> Kernel {
        self
    }
}

/// Implements [`IntoKernel`] for functions of one number of arguments; `$keys` is empty or the leading key set.
macro_rules! function_kernels {
    ($marker:ty, ($($keys:ident)?), $n:literal, ($($A:ident $a:ident),*)) => {
        impl<Func, Ret: Returns, $($A: ArgKind),*> IntoKernel<($marker, fn($($A),*) -> Ret)> for Func
        where
            // The first bound finds the argument types, the second makes them independent of any lifetime.
            Func: Fn($(function_kernels!(@ty $keys),)? $($A),*) -> Result<Ret>
                + for<'x> Fn($(function_kernels!(@ty $keys),)? $($A::Ref<'x>),*) -> Result<Ret>
                + Send + Sync + 'static,
        {
            fn into_kernel(self) -> Kernel {
                // Decides which of the two bounds a call uses.
                #[allow(clippy::too_many_arguments, reason = "the number of arguments is the operator's")]
                #[inline]
                fn call<Ret, $($A),*>(
                    function: impl Fn($(function_kernels!(@ty $keys),)? $($A),*) -> Result<Ret>,
                    _keys: KeySet, $($a: $A),*
                ) -> Result<Ret> {
                    function($(function_kernels!(@use $keys _keys),)? $($a),*)
                }

                let name = std::any::type_name::<Func>().to_string();
                let function = Arc::new(self);
                let shared = Arc::clone(&function);
                let typed: Box<dyn for<'x> Fn(KeySet, $($A::Ref<'x>),*) -> Result<Ret> + Send + Sync> =
                    Box::new(move |keys, $($a),*| call(&*shared, keys, $($a),*));
                let boxed = move |op: &Operator, keys: KeySet, stack: &mut Stack| {
                    let result = {
                        let [$($a),*] = stack.as_slice() else {
                            let found = stack.len();
                            let what = format!("expected {} argument(s) on the stack but found {found}", $n);
                            return Err(Error::argument(op.name().to_string(), what));
                        };
                        let mut _position = 0..$n;
                        $(let position = _position.next().unwrap_or_default();
                        let $a = $A::from_value($a)
                            .ok_or_else(|| wrong_argument(op.name(), position, &$A::ty(), $a))?;)*
                        call(&*function, keys, $($a),*)?
                    };
                    stack.clear();
                    result.push(stack);
                    Ok(())
                };
                Kernel {
                    name,
                    typed: Some(Typed {
                        function: Box::new(typed),
                        signature: Signature::of::<fn($($A),*) -> Ret>(),
                        arguments: vec![$($A::ty()),*],
                        returns: Ret::types(),
                    }),
                    ..Kernel::of_body(Body::Boxed(Box::new(boxed)))
                }
            }
        }
    };
    (@ty $keys:ident) => { KeySet };
    (@use $keys:ident $value:ident) => { $value };
}

macro_rules! all_function_kernels {
    ($($n:literal ($($A:ident $a:ident),*))*) => {$(
        function_kernels!(Itself, (), $n, ($($A $a),*));
        function_kernels!(WithKeySet, (keys), $n, ($($A $a),*));
    )*};
}

all_function_kernels! {
    0 ()
    1 (A a)
    2 (A a, B b)
    3 (A a, B b, C c)
    4 (A a, B b, C c, D d)
    5 (A a, B b, C c, D d, E e)
    6 (A a, B b, C c, D d, E e, F f)
    7 (A a, B b, C c, D d, E e, F f, G g)
    8 (A a, B b, C c, D d, E e, F f, G g, H h)
    9 (A a, B b, C c, D d, E e, F f, G g, H h, I i)
    10 (A a, B b, C c, D d, E e, F f, G g, H h, I i, J j)
    11 (A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k)
    12 (A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k, L l)
}
