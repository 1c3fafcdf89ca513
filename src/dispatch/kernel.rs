//! Kernels: what the slots of dispatch tables hold.
//!
//! Every kernel can be called boxed. A kernel made from a Rust function also keeps that function with its own type, so
//! a typed call with the same signature jumps to it directly. A call with another signature, and every call of a boxed
//! kernel, goes through values on a stack. Marker kernels (fallthrough, ambiguous, invalid) hold no function.
//!
//! Tables keep every kernel that they ever held, because calls read them without a lock. What a kernel captures is
//! freed when it was unregistered and its last call has ended: a kernel that captures anything counts its calls.

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
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// A boxed kernel: takes its arguments from the stack and leaves its results there.
pub type BoxedFn = dyn Fn(&Operator, KeySet, &mut Stack) -> Result<()> + Send + Sync;

/// A kernel. It is immutable.
pub struct Kernel {
    name: String,
    body: Body,
    typed: Option<TypedKind>,
    /// Whether it was unregistered.
    is_retired: AtomicBool,
    row: Option<RowFn>,
    condition: Option<Relevance>,
    /// Whether it is a decomposition of this crate.
    is_own: bool,
    /// How often in a row the kernel could not be run as one program; from [`ENOUGH`] on it is run in parts.
    n_declined: AtomicU8,
}

/// The kernel of a row of the op table. It takes tensors and other arguments separately, like [`super::rows::call`].
pub(crate) type RowFn = fn(Op, KeySet, &[&Tensor], &[Attr]) -> Result<Tensor>;

/// Whether a kernel has anything to do for a tensor. If it has for none, the call may skip it.
pub(crate) type Relevance = fn(&Tensor) -> bool;

enum Body {
    /// Nothing was registered. Calling it is an error.
    Invalid,
    /// Calls skip the key.
    Fallthrough,
    /// A decomposition and a backend kernel both claim `AutogradOther`. Calling it is an error.
    Ambiguous,
    /// Lives as long as the kernel.
    Kept(Functions),
    /// `None` after the kernel was unregistered. No call ever waits for this lock.
    Counted(RwLock<Option<Functions>>),
}

impl Body {
    /// The body of functions that capture so many bytes. Without any they own nothing that could be freed.
    fn of(functions: Functions, captured: usize) -> Body {
        match captured {
            0 => Body::Kept(functions),
            _ => Body::Counted(RwLock::new(Some(functions))),
        }
    }
}

/// The functions of a kernel.
struct Functions {
    boxed: Box<BoxedFn>,
    /// A `Box<Args::Function<R>>` of the kernel's signature, if it was made from a Rust function.
    typed: Option<Box<dyn Any + Send + Sync>>,
}

/// The functions of a kernel, which live while a call holds this.
pub(crate) struct Entered<'a> {
    kernel: &'a Kernel,
    functions: Held<'a>,
}

enum Held<'a> {
    Kept(&'a Functions),
    Counted(Option<RwLockReadGuard<'a, Option<Functions>>>),
}

impl Entered<'_> {
    #[inline]
    fn functions(&self) -> Option<&Functions> {
        match &self.functions {
            Held::Kept(functions) => Some(functions),
            Held::Counted(functions) => functions.as_ref()?.as_ref(),
        }
    }

    /// The typed function, if it has exactly the type `F`.
    #[inline]
    pub(crate) fn function<F: ?Sized + 'static>(&self) -> Option<&F> {
        let typed = self.functions()?.typed.as_ref()?;
        typed.downcast_ref::<Box<F>>().map(|function| &**function)
    }
}

impl Entered<'_> {
    /// Calls the boxed function.
    #[inline]
    pub(crate) fn call_boxed(&self, op: &Operator, keys: KeySet, stack: &mut Stack) -> Result<()> {
        match self.functions() {
            Some(functions) => (functions.boxed)(op, keys, stack),
            None => Err(self.kernel.refused(op, keys)),
        }
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Held::Counted(functions) = &mut self.functions {
            drop(functions.take());
            if self.kernel.is_retired.load(Ordering::SeqCst) {
                self.kernel.free();
            }
        }
    }
}

/// The types of a kernel made from a Rust function.
struct TypedKind {
    signature: Signature,
    arguments: Vec<Type>,
    returns: Vec<Type>,
}

impl Kernel {
    /// A kernel from a boxed function.
    pub fn boxed(function: impl Fn(&Operator, KeySet, &mut Stack) -> Result<()> + Send + Sync + 'static) -> Kernel {
        let name = std::any::type_name_of_val(&function).to_string();
        let size = size_of_val(&function);
        let functions = Functions { boxed: Box::new(function), typed: None };
        Kernel { name, ..Kernel::of_body(Body::of(functions, size)) }
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
        Kernel { row: Some(function), ..Kernel::boxed(boxed).kept() }
    }

    /// The row function, if this is the kernel of a row.
    #[inline]
    pub(crate) fn row(&self) -> Option<RowFn> {
        self.row
    }

    /// The same kernel, which calls skip where `condition` is false. It must do nothing for those.
    pub(crate) fn when(mut self, condition: Relevance) -> Kernel {
        self.condition = Some(condition);
        self
    }

    /// The condition given to [`Kernel::when`].
    #[inline]
    pub(crate) fn condition(&self) -> Option<Relevance> {
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

    /// A kernel of functions with this signature, which capture so many bytes.
    #[inline(never)]
    fn of_functions(
        name: &str,
        captured: usize,
        functions: Functions,
        signature: Signature,
        arguments: &[fn() -> Type],
        returns: fn() -> Vec<Type>,
    ) -> Kernel {
        let arguments = arguments.iter().map(|ty| ty()).collect();
        let typed = TypedKind { signature, arguments, returns: returns() };
        let body = Body::of(functions, captured);
        Kernel { name: name.to_string(), typed: Some(typed), ..Kernel::of_body(body) }
    }

    fn of_body(body: Body) -> Kernel {
        let is_retired = AtomicBool::new(false);
        let n_declined = AtomicU8::new(ENOUGH);
        let row = None;
        Kernel { name: String::new(), body, typed: None, is_retired, row, condition: None, is_own: false, n_declined }
    }

    /// The same kernel, which is never unregistered, so that its calls need not be counted.
    pub(crate) fn kept(mut self) -> Kernel {
        self.body = match self.body {
            Body::Counted(functions) => match functions.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some(functions) => Body::Kept(functions),
                None => Body::Invalid,
            },
            other => other,
        };
        self
    }

    /// Whether the kernel was unregistered.
    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::SeqCst)
    }

    /// Frees the functions as soon as no call runs them. The kernel is in no table any more.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::SeqCst);
        self.free();
    }

    /// Frees the functions of a retired kernel, unless a call still runs them; then the end of that call frees them.
    #[cold]
    fn free(&self) {
        let Body::Counted(functions) = &self.body else { return };
        let freed = functions.try_write().map(|mut functions| functions.take());
        // Dropped without the lock: what a kernel captures may call operators.
        drop(freed);
    }

    /// The functions, unless this is a marker or was unregistered.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        let functions = match &self.body {
            Body::Kept(functions) => Held::Kept(functions),
            Body::Counted(functions) => {
                let functions = functions.try_read().ok()?;
                if functions.is_none() {
                    return None;
                }
                Held::Counted(Some(functions))
            }
            Body::Invalid | Body::Fallthrough | Body::Ambiguous => return None,
        };
        Some(Entered { kernel: self, functions })
    }

    /// The same kernel, marked as a decomposition of this crate.
    pub(crate) fn own(self) -> Kernel {
        Kernel { is_own: true, ..self }
    }

    /// Whether this is a decomposition of this crate.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// The same kernel, a decomposition into other calls that may be run as one program ([`super::whole`]).
    pub(crate) fn may_be_whole(self) -> Kernel {
        Kernel { n_declined: AtomicU8::new(0), ..self }
    }

    /// Whether it is worth trying to run the kernel as one program.
    #[inline]
    pub(crate) fn is_tried_whole(&self) -> bool {
        self.n_declined.load(Ordering::Relaxed) < ENOUGH
    }

    /// Notes whether the kernel became one program.
    pub(crate) fn note_whole(&self, is_whole: bool) {
        let n_declined = if is_whole { 0 } else { self.n_declined.load(Ordering::Relaxed).saturating_add(1) };
        self.n_declined.store(n_declined, Ordering::Relaxed);
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
            (Body::Kept(_) | Body::Counted(_), Some(_)) => "[ boxed unboxed ]",
            (Body::Kept(_) | Body::Counted(_), None) => "[ boxed ]",
            (Body::Fallthrough, _) => "[ fallthrough ]",
            (Body::Ambiguous | Body::Invalid, _) => "[ none ]",
        }
    }

    /// Calls the kernel with the arguments on the stack.
    ///
    /// # Errors
    /// If the kernel is a marker (invalid, fallthrough, ambiguous), or if it fails.
    #[inline]
    pub fn call_boxed(&self, op: &Operator, keys: KeySet, stack: &mut Stack) -> Result<()> {
        match self.enter() {
            Some(entered) => entered.call_boxed(op, keys, stack),
            None => Err(self.refused(op, keys)),
        }
    }

    /// Why the kernel cannot be called.
    #[cold]
    pub(crate) fn refused(&self, op: &Operator, keys: KeySet) -> Error {
        let what = match &self.body {
            Body::Kept(_) | Body::Counted(_) => "a kernel was called that is not registered any more".into(),
            Body::Invalid => "a kernel was called although nothing was registered for it".into(),
            Body::Fallthrough => format!(
                "the fallthrough kernel of {} was called; calls skip it, do not redispatch to it: take the key out of \
                 the set",
                keys.highest()
            ),
            Body::Ambiguous => {
                "ambiguous autogradother kernel: the operator has a CompositeImplicitAutograd kernel and \
                                one for a backend whose gradients go to AutogradOther, which makes the backend kernel \
                                unreachable; register the decomposition as CompositeExplicitAutograd, or an \
                                AutogradOther kernel too"
                    .into()
            }
        };
        Error::NotImplemented { op: op.name().to_string(), what }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.forms())
    }
}

/// What can be registered as a kernel: kernels, and Rust functions. `M` only distinguishes the implementations.
///
/// A function takes the operator's arguments. In front of them it may take a [`KeySet`], the keys of the call, or an
/// [`Operator`] and a [`KeySet`]. With both it can pass the call on, without looking the operator up:
///
/// ```
/// use opfuse::dispatch::{DispatchKey, KeySet, Library, Operator};
/// use opfuse::{Result, Tensor};
///
/// /// Counts nothing and changes nothing: the keys below get the call.
/// fn passed_on(neg: &Operator, keys: KeySet, x: &Tensor) -> Result<Tensor> {
///     neg.redispatch(keys - KeySet::of(DispatchKey::AutogradCPU), (x,))
/// }
///
/// # fn main() -> Result<()> {
/// let mut library = Library::impl_block("aten", DispatchKey::AutogradCPU)?;
/// library.impl_("neg", passed_on)?;
/// assert_eq!(Tensor::try_from([1.0f32])?.neg()?.to_vec::<f32>()?, [-1.0]);
/// # Ok(())
/// # }
/// ```
pub trait IntoKernel<M> {
    /// Converts into a kernel.
    fn into_kernel(self) -> Kernel;
}

/// After so many failures in a row a kernel is run in parts.
const ENOUGH: u8 = 3;

/// Marks the implementation for kernels.
#[derive(Debug)]
pub struct Itself;

/// Marks the implementations for functions with a leading [`KeySet`].
#[derive(Debug)]
pub struct WithKeySet;

/// Marks the implementations for functions with a leading [`Operator`] and [`KeySet`].
#[derive(Debug)]
pub struct WithOperator;

impl IntoKernel<Itself> for Kernel {
    fn into_kernel(self) -> Kernel {
        self
    }
}

/// Implements [`IntoKernel`] for functions of one number of arguments; `$lead` names the leading
/// arguments: none, the keys, or operator and keys.
macro_rules! function_kernels {
    ($of:ident, $marker:ty, ($($lead:ident)*), ($($A:ident $a:ident),*)) => {
        impl<Func, Ret: Returns, $($A: ArgKind),*> IntoKernel<($marker, fn($($A),*) -> Ret)> for Func
        where
            // The first bound finds the argument types, the second makes them independent of any lifetime.
            Func: Fn($(function_kernels!(@ty $lead),)* $($A),*) -> Result<Ret>
                + for<'x> Fn($(function_kernels!(@ty $lead),)* $($A::Ref<'x>),*) -> Result<Ret>
                + Send + Sync + 'static,
        {
            fn into_kernel(self) -> Kernel {
                // Decides which of the two bounds a call uses.
                #[allow(clippy::too_many_arguments, reason = "the number of arguments is the operator's")]
                #[inline]
                fn call<Ret, $($A),*>(
                    function: impl Fn($(function_kernels!(@ty $lead),)* $($A),*) -> Result<Ret>,
                    _operator: &Operator, _keys: KeySet, $($a: $A),*
                ) -> Result<Ret> {
                    function($(function_kernels!(@use $lead _operator _keys),)* $($a),*)
                }

                // Not inlined, so that the two calls below add its code once.
                #[inline(never)]
                fn shared<Func, Ret: Returns, $($A: ArgKind),*>(function: &Arc<Func>) -> TypedFn!(Ret, $($A),*)
                where
                    Func: for<'x> Fn($(function_kernels!(@ty $lead),)* $($A::Ref<'x>),*) -> Result<Ret>
                        + Send + Sync + 'static,
                {
                    let function = Arc::clone(function);
                    Box::new(move |operator, keys, $($a),*| call(&*function, operator, keys, $($a),*))
                }

                let function = Arc::new(self);
                let (boxed, typed) = (shared::<_, Ret, $($A),*>(&function), shared::<_, Ret, $($A),*>(&function));
                $of(std::any::type_name::<Func>(), size_of::<Func>(), boxed, typed)
            }
        }
    };
    (@ty operator) => { &Operator };
    (@ty keys) => { KeySet };
    (@use operator $operator:ident $keys:ident) => { $operator };
    (@use keys $operator:ident $keys:ident) => { $keys };
}

/// A typed kernel, which takes operator and keys in front of its arguments.
macro_rules! TypedFn {
    ($Ret:ident, $($A:ident),*) => {
        Box<dyn for<'o, 'x> Fn(&'o Operator, KeySet, $($A::Ref<'x>),*) -> Result<$Ret> + Send + Sync>
    };
}

/// Declares how a kernel is made of functions with one number of arguments. It depends on the signature alone: a
/// function by itself adds no code but its own.
macro_rules! kernel_of_functions {
    ($of:ident, $n:literal, ($($A:ident $a:ident),*)) => {
        /// The kernel of a function twice, for boxed and for typed calls, which captures so many bytes.
        fn $of<Ret: Returns, $($A: ArgKind),*>(
            name: &str, captured: usize, function: TypedFn!(Ret, $($A),*), typed: TypedFn!(Ret, $($A),*),
        ) -> Kernel {
            let boxed = move |op: &Operator, keys: KeySet, stack: &mut Stack| {
                let result = {
                    let [$($a),*] = stack.as_slice() else {
                        return Err(wrong_count(op, $n, stack));
                    };
                    let mut _position = 0..$n;
                    $(let position = _position.next().unwrap_or_default();
                    let $a = $A::from_value($a)
                        .ok_or_else(|| wrong_type(op, position, $A::ty, $a))?;)*
                    function(op, keys, $($a),*)?
                };
                stack.clear();
                result.push(stack);
                Ok(())
            };
            let functions = Functions { boxed: Box::new(boxed), typed: Some(Box::new(typed)) };
            let signature = Signature::of::<fn($($A),*) -> Ret>();
            Kernel::of_functions(name, captured, functions, signature, &[$($A::ty),*], Ret::types)
        }
    };
}

/// The error of a boxed call that has not `n` arguments. Errors are made by functions of their own, because
/// each signature has a copy of the code around them.
#[cold]
#[inline(never)]
fn wrong_count(op: &Operator, n: usize, stack: &Stack) -> Error {
    let what = format!("expected {n} argument(s) on the stack but found {}", stack.len());
    Error::argument(op.name().to_string(), what)
}

/// The error of a boxed call with an argument of another type.
#[cold]
#[inline(never)]
fn wrong_type(op: &Operator, position: usize, ty: fn() -> Type, found: &Value) -> Error {
    wrong_argument(op.name(), position, &ty(), found)
}

macro_rules! all_function_kernels {
    ($($n:literal $of:ident ($($A:ident $a:ident),*))*) => {$(
        kernel_of_functions!($of, $n, ($($A $a),*));
        function_kernels!($of, Itself, (), ($($A $a),*));
        function_kernels!($of, WithKeySet, (keys), ($($A $a),*));
        function_kernels!($of, WithOperator, (operator keys), ($($A $a),*));
    )*};
}

all_function_kernels! {
    0 of_0 ()
    1 of_1 (A a)
    2 of_2 (A a, B b)
    3 of_3 (A a, B b, C c)
    4 of_4 (A a, B b, C c, D d)
    5 of_5 (A a, B b, C c, D d, E e)
    6 of_6 (A a, B b, C c, D d, E e, F f)
    7 of_7 (A a, B b, C c, D d, E e, F f, G g)
    8 of_8 (A a, B b, C c, D d, E e, F f, G g, H h)
    9 of_9 (A a, B b, C c, D d, E e, F f, G g, H h, I i)
    10 of_10 (A a, B b, C c, D d, E e, F f, G g, H h, I i, J j)
    11 of_11 (A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k)
    12 of_12 (A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k, L l)
}
