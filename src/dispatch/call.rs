//! Calling operators.
//!
//! The keys of a call are those of its tensors, plus the thread's included keys, minus its excluded keys, minus the
//! keys that the operator falls through. The highest key gives the slot, and the slot gives the kernel. A redispatch
//! starts at the slot: only the given keys count. None of this takes a lock. It allocates only if a typed call meets a
//! boxed kernel, or if there is no kernel.

use crate::dispatch::kernel::{Kernel, Relevance};
use crate::dispatch::key::alias::AUTOGRAD_KEYS;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::local::local_key_sets;
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::signature::{Args, Returns, Signature};
use crate::dispatch::value::{Stack, Value};
use crate::dispatch::whole;
use crate::error::{Error, Result};
use crate::profile::{Located, locate};
use smallvec::SmallVec;
use std::fmt;
use std::marker::PhantomData;

/// An operator with the signature of its typed kernels; made by [`Operator::typed`].
pub struct TypedOperator<A, R> {
    op: Operator,
    signature: PhantomData<fn(A) -> R>,
}

/// Who chose the keys of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The dispatcher, from arguments and thread.
    Call,
    /// A kernel that passes a call on.
    Kernel,
}

/// The keys whose kernels want to know where a call stands.
const LOCATED: KeySet = KeySet::from_keys(&[DispatchKey::Tracer, DispatchKey::PythonTLSSnapshot]);

/// Whether a trace or a profile will see the call.
#[inline(always)]
pub(super) fn is_located(keys: KeySet) -> bool {
    !(keys & LOCATED).is_empty()
}

/// Notes the caller of the calling function, if a trace or a profile will see the call of `operator`.
#[inline(always)]
#[track_caller]
pub(super) fn located(keys: KeySet, operator: &Operator) -> Option<Located> {
    if is_located(keys) { Some(locate(operator.composite_name())) } else { None }
}

impl Operator {
    /// The name, if the operator is made of others: it is no row of the op table.
    pub(crate) fn composite_name(&self) -> Option<&str> {
        if self.row().is_some() { None } else { Some(&self.name().name) }
    }

    /// The keys that decide a call on this thread whose tensors have the keys `arguments`.
    #[inline]
    pub fn call_key_set(&self, arguments: KeySet) -> KeySet {
        let keys = local_key_sets().apply(arguments);
        // After the thread's sets were applied: an included key may bring a backend.
        keys & self.mask(keys)
    }

    /// The kernel for these keys, and the keys that it is called with. A kernel with a condition is Autograd's. If the
    /// condition holds for none of the tensors, that kernel would only redispatch, so it is skipped.
    #[inline(always)]
    pub(crate) fn select(&self, keys: KeySet, holds: impl FnOnce(Relevance) -> bool) -> (KeySet, Option<&Kernel>) {
        let kernel = self.kernel(keys);
        match kernel.and_then(Kernel::condition) {
            Some(condition) if !holds(condition) => {
                let below = keys - AUTOGRAD_KEYS;
                (below, self.kernel(below))
            }
            Some(_) | None => (keys, kernel),
        }
    }

    /// Calls the operator with typed arguments: `op.call::<(&Tensor, &Tensor, Scalar), Tensor>((a, b, alpha))`.
    ///
    /// If the types differ from those of the kernel, the call goes through boxed values.
    ///
    /// # Errors
    /// If the types do not convert to those of the schema, if there is no kernel for the keys, or if the kernel fails.
    #[inline]
    #[track_caller]
    pub fn call<'a, A: Args<'a>, R: Returns>(&self, arguments: A) -> Result<R> {
        let keys = self.call_key_set(arguments.key_set());
        let _place = located(keys, self);
        let (keys, _) = self.select(keys, |condition| arguments.any_tensor(condition));
        self.dispatch(Origin::Call, keys, arguments)
    }

    /// Calls the kernel that `keys` select. Keys of arguments, thread-local sets and fallthrough keys are not
    /// consulted.
    ///
    /// # Errors
    /// Same as [`Operator::call`].
    #[inline]
    pub fn redispatch<'a, A: Args<'a>, R: Returns>(&self, keys: KeySet, arguments: A) -> Result<R> {
        self.dispatch(Origin::Kernel, keys, arguments)
    }

    #[inline]
    fn dispatch<'a, A: Args<'a>, R: Returns>(&self, origin: Origin, keys: KeySet, arguments: A) -> Result<R> {
        let kernel = self.kernel(keys);
        // A call without tensors may make a large one.
        let is_large = || arguments.any_tensor(whole::is_large) || !arguments.any_tensor(|_| true);
        let may_be_whole = kernel.is_some_and(Kernel::is_tried_whole) && is_large();
        if !may_be_whole
            && let Some(entered) = kernel.and_then(Kernel::enter)
            && let Some(function) = entered.function::<A::Function<R>>()
        {
            return arguments.apply(function, self, keys);
        }
        self.dispatch_values(origin, keys, arguments.into_stack())
    }

    /// Calls the operator with the arguments on the stack. On return the stack holds the results and nothing else.
    ///
    /// The values must have the schema's types. [`Operator::invoke`] checks and converts them.
    ///
    /// # Errors
    /// If there is no kernel for the keys, or if the kernel fails. The contents of the stack are then unspecified.
    #[inline]
    #[track_caller]
    pub fn call_boxed(&self, stack: &mut Stack) -> Result<()> {
        let arguments = stack.iter().fold(KeySet::EMPTY, |keys, value| keys | value.key_set());
        let keys = self.call_key_set(arguments);
        let _place = located(keys, self);
        let (keys, _) = self.select(keys, |condition| stack.iter().any(|value| value.any_tensor(condition)));
        self.dispatch_boxed(Origin::Call, keys, stack)
    }

    /// Like [`Operator::redispatch`], with the arguments on a stack.
    ///
    /// An operator with a schema like `add_(Tensor(a!) self, …) -> Tensor(a!)` returns its argument: the handle itself,
    /// whatever handle the kernel left.
    ///
    /// # Errors
    /// Same as [`Operator::call_boxed`]. Also if the keys lead to a fallthrough kernel.
    #[inline]
    pub fn redispatch_boxed(&self, keys: KeySet, stack: &mut Stack) -> Result<()> {
        self.dispatch_boxed(Origin::Kernel, keys, stack)
    }

    #[inline]
    pub(crate) fn dispatch_boxed(&self, origin: Origin, keys: KeySet, stack: &mut Stack) -> Result<()> {
        match self.returned_arguments() {
            [] => self.run_boxed(origin, keys, stack),
            returned => self.run_write(origin, keys, stack, returned),
        }
    }

    #[inline]
    fn run_boxed(&self, origin: Origin, keys: KeySet, stack: &mut Stack) -> Result<()> {
        let Some(kernel) = self.kernel(keys) else { return self.settled(keys, stack) };
        if kernel.is_tried_whole()
            && let Some(results) = whole::run(self, kernel, keys, stack)
        {
            *stack = results;
            return Ok(());
        }
        match kernel.enter() {
            Some(entered) => entered.call_boxed(self, keys, stack),
            // A registration changes a slot and then the keys of calls. This call came between.
            None if kernel.is_fallthrough() && origin == Origin::Call => self.settled(keys, stack),
            None if kernel.is_retired() => self.settled(keys, stack),
            None => Err(kernel.refused(self, keys)),
        }
    }

    /// Calls the kernel that is registered now, after the table gave none.
    #[cold]
    fn settled(&self, keys: KeySet, stack: &mut Stack) -> Result<()> {
        loop {
            let (kernel, keys) = self.settle(keys)?;
            match kernel.enter() {
                Some(entered) => return entered.call_boxed(self, keys, stack),
                // It was unregistered in between.
                None if kernel.is_retired() => {}
                None => return Err(kernel.refused(self, keys)),
            }
        }
    }

    /// Calls a kernel that writes to arguments, and returns these arguments.
    fn run_write(&self, origin: Origin, keys: KeySet, stack: &mut Stack, returned: &[(usize, usize)]) -> Result<()> {
        let targets: SmallVec<[(usize, Option<Value>); 1]> =
            returned.iter().map(|&(result, argument)| (result, stack.get(argument).cloned())).collect();
        self.run_boxed(origin, keys, stack)?;
        for (result, target) in targets {
            if let (Some(Value::Tensor(left)), Some(Value::Tensor(target))) = (stack.get_mut(result), target) {
                *left = target;
            }
        }
        Ok(())
    }

    /// Checks positional and named arguments against the schema, fills in defaults, calls the operator, and returns its
    /// results.
    ///
    /// # Errors
    /// If there is no schema. If an argument is missing, unknown, given twice or of another type. If
    /// [`Operator::call_boxed`] fails.
    #[track_caller]
    pub fn invoke(&self, positional: Vec<Value>, named: Vec<(&str, Value)>) -> Result<Stack> {
        let Some(schema) = self.schema() else {
            let what = format!("{} has no schema; call def() first", self.name());
            return Err(Error::Registration { what });
        };
        let mut stack = schema.bind(positional, named)?;
        self.call_boxed(&mut stack)?;
        Ok(stack)
    }

    /// The operator with the signature of its first typed kernel.
    ///
    /// # Errors
    /// If the first typed kernel has another signature.
    pub fn typed<'a, A: Args<'a>, R: Returns>(&self) -> Result<TypedOperator<A, R>> {
        let accessed = Signature::of::<A::Marker<R>>();
        match self.recorded_signature() {
            Some((correct, site)) if correct != accessed => Err(Error::Argument {
                op: self.name().to_string(),
                what: format!(
                    "tried to access or call an operator with a wrong signature\n  correct signature: {} (registered \
                     at {site})\n  accessed/called as: {}",
                    correct.name(),
                    accessed.name()
                ),
            }),
            Some(_) | None => Ok(TypedOperator { op: self.clone(), signature: PhantomData }),
        }
    }

    #[cold]
    fn dispatch_values<R: Returns>(&self, origin: Origin, keys: KeySet, mut stack: Stack) -> Result<R> {
        self.dispatch_boxed(origin, keys, &mut stack)?;
        let found: Vec<&str> = stack.iter().map(Value::type_name).collect();
        let found = found.join(", ");
        R::pop(&mut stack).ok_or_else(|| {
            let expected: Vec<String> = R::types().iter().map(ToString::to_string).collect();
            let expected = expected.join(", ");
            Error::argument(
                self.name().to_string(),
                format!("expected results ({expected}) but the kernel returned ({found})"),
            )
        })
    }
}

impl<'a, A: Args<'a>, R: Returns> TypedOperator<A, R> {
    /// The operator without its signature.
    pub fn operator(&self) -> &Operator {
        &self.op
    }

    /// Calls the operator. See [`Operator::call`].
    ///
    /// # Errors
    /// Same as [`Operator::call`].
    #[inline]
    #[track_caller]
    pub fn call(&self, arguments: A) -> Result<R> {
        self.op.call(arguments)
    }

    /// Calls the kernel that `keys` select. See [`Operator::redispatch`].
    ///
    /// # Errors
    /// Same as [`Operator::call`].
    #[inline]
    pub fn redispatch(&self, keys: KeySet, arguments: A) -> Result<R> {
        self.op.redispatch(keys, arguments)
    }
}

impl<A, R> fmt::Debug for TypedOperator<A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} as {}", self.op, std::any::type_name::<fn(A) -> R>())
    }
}

impl Kernel {
    /// Calls the kernel with typed arguments, without dispatch.
    ///
    /// # Errors
    /// If the types do not convert to those of the kernel, or if the kernel fails.
    pub fn call<'a, A: Args<'a>, R: Returns>(&self, op: &Operator, keys: KeySet, arguments: A) -> Result<R> {
        if let Some(entered) = self.enter()
            && let Some(function) = entered.function::<A::Function<R>>()
        {
            return arguments.apply(function, op, keys);
        }
        let mut stack = arguments.into_stack();
        self.call_boxed(op, keys, &mut stack)?;
        R::pop(&mut stack).ok_or_else(|| {
            Error::argument(op.name().to_string(), "the kernel returned results of other types than expected")
        })
    }
}
